#include "kafka/consumer.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* What is used of librdkafka's public interface (rdkafka.h), which keeps its binary form since version 1. */
typedef struct rd_kafka rd_kafka;
typedef struct rd_kafka_conf rd_kafka_conf;
typedef struct rd_kafka_queue rd_kafka_queue;
typedef struct rd_kafka_headers rd_kafka_headers;

typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_part;
} rd_kafka_message;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *private_part;
} rd_kafka_topic_partition;

typedef struct {
    int cnt;
    int size;
    rd_kafka_topic_partition *elems;
} rd_kafka_topic_partition_list;

enum { RD_KAFKA_CONSUMER = 1, RD_KAFKA_CONF_OK = 0, RD_KAFKA_PARTITION_EOF = -191 };

static struct {
    rd_kafka_conf *(*conf_new)(void);
    void (*conf_destroy)(rd_kafka_conf *);
    int (*conf_set)(rd_kafka_conf *, const char *, const char *, char *, size_t);
    void (*conf_set_opaque)(rd_kafka_conf *, void *);
    void (*conf_set_error_cb)(rd_kafka_conf *, void (*)(rd_kafka *, int, const char *, void *));
    void (*conf_set_log_cb)(rd_kafka_conf *, void (*)(const rd_kafka *, int, const char *, const char *));
    rd_kafka *(*make)(int, rd_kafka_conf *, char *, size_t);
    void (*destroy)(rd_kafka *);
    int (*poll_set_consumer)(rd_kafka *);
    int (*consumer_close)(rd_kafka *);
    rd_kafka_queue *(*queue_get_consumer)(rd_kafka *);
    void (*queue_destroy)(rd_kafka_queue *);
    ptrdiff_t (*consume_batch_queue)(rd_kafka_queue *, int, rd_kafka_message **, size_t);
    void (*message_destroy)(rd_kafka_message *);
    int64_t (*message_timestamp)(const rd_kafka_message *, int *);
    int (*message_headers)(const rd_kafka_message *, rd_kafka_headers **);
    int (*header_get_last)(const rd_kafka_headers *, const char *, const void **, size_t *);
    rd_kafka_topic_partition_list *(*list_new)(int);
    rd_kafka_topic_partition *(*list_add)(rd_kafka_topic_partition_list *, const char *, int32_t);
    void (*list_destroy)(rd_kafka_topic_partition_list *);
    int (*assign)(rd_kafka *, const rd_kafka_topic_partition_list *);
    int (*position)(rd_kafka *, rd_kafka_topic_partition_list *);
    const char *(*err2name)(int);
    /* Since 2.1; NULL before. */
    int32_t (*message_leader_epoch)(const rd_kafka_message *);
    void (*set_leader_epoch)(rd_kafka_topic_partition *, int32_t);
} kafka;

/* librdkafka takes so many messages from its queue under one lock; measured: no gain beyond. */
enum { HELD_MESSAGES = 4096 };

struct sj_consumer {
    rd_kafka *client;
    rd_kafka_queue *queue;
    rd_kafka_topic_partition_list *place; /* the one partition */
    rd_kafka_message *held[HELD_MESSAGES];
    int64_t first, last; /* held[first, last) were fetched and not handed over */
    int errors[SJ_CONSUMER_ERRORS];
    int error_count;
};

const char *sj_consumer_load(const char *library)
{
    static const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"rd_kafka_conf_new", &kafka.conf_new},
        {"rd_kafka_conf_destroy", &kafka.conf_destroy},
        {"rd_kafka_conf_set", &kafka.conf_set},
        {"rd_kafka_conf_set_opaque", &kafka.conf_set_opaque},
        {"rd_kafka_conf_set_error_cb", &kafka.conf_set_error_cb},
        {"rd_kafka_conf_set_log_cb", &kafka.conf_set_log_cb},
        {"rd_kafka_new", &kafka.make},
        {"rd_kafka_destroy", &kafka.destroy},
        {"rd_kafka_poll_set_consumer", &kafka.poll_set_consumer},
        {"rd_kafka_consumer_close", &kafka.consumer_close},
        {"rd_kafka_queue_get_consumer", &kafka.queue_get_consumer},
        {"rd_kafka_queue_destroy", &kafka.queue_destroy},
        {"rd_kafka_consume_batch_queue", &kafka.consume_batch_queue},
        {"rd_kafka_message_destroy", &kafka.message_destroy},
        {"rd_kafka_message_timestamp", &kafka.message_timestamp},
        {"rd_kafka_message_headers", &kafka.message_headers},
        {"rd_kafka_header_get_last", &kafka.header_get_last},
        {"rd_kafka_topic_partition_list_new", &kafka.list_new},
        {"rd_kafka_topic_partition_list_add", &kafka.list_add},
        {"rd_kafka_topic_partition_list_destroy", &kafka.list_destroy},
        {"rd_kafka_assign", &kafka.assign},
        {"rd_kafka_position", &kafka.position},
        {"rd_kafka_err2name", &kafka.err2name},
    };
    static const struct {
        const char *name;
        void *to;
    } newer[] = {
        {"rd_kafka_message_leader_epoch", &kafka.message_leader_epoch},
        {"rd_kafka_topic_partition_set_leader_epoch", &kafka.set_leader_epoch},
    };
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return "librdkafka";
    for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++) {
        void *found = dlsym(handle, symbols[at].name);
        if (found == NULL)
            return symbols[at].name;
        memcpy(symbols[at].to, &found, sizeof found);
    }
    for (size_t at = 0; at < sizeof newer / sizeof *newer; at++) {
        void *found = dlsym(handle, newer[at].name);
        memcpy(newer[at].to, &found, sizeof found);
    }
    return NULL;
}

static void keep_error(rd_kafka *client, int error, const char *reason, void *of)
{
    sj_consumer *consumer = of;
    (void)client;
    (void)reason;
    for (int at = 0; at < consumer->error_count; at++)
        if (consumer->errors[at] == error)
            return;
    if (consumer->error_count < SJ_CONSUMER_ERRORS)
        consumer->errors[consumer->error_count++] = error;
}

static void log_nothing(const rd_kafka *client, int level, const char *where, const char *text)
{
    (void)client;
    (void)level;
    (void)where;
    (void)text;
}

sj_consumer *sj_consumer_open(const char *const *names, const char *const *values, int settings, const char *topic,
                              int32_t partition, char *reason)
{
    sj_consumer *consumer = calloc(1, sizeof *consumer);
    rd_kafka_conf *conf = kafka.conf_new();
    *reason = 0;
    if (consumer == NULL || conf == NULL)
        goto failed;
    for (int at = 0; at < settings; at++)
        if (kafka.conf_set(conf, names[at], values[at], reason, SJ_REASON_BYTES) != RD_KAFKA_CONF_OK)
            goto failed;
    kafka.conf_set_opaque(conf, consumer);
    kafka.conf_set_error_cb(conf, keep_error);
    kafka.conf_set_log_cb(conf, log_nothing);
    consumer->client = kafka.make(RD_KAFKA_CONSUMER, conf, reason, SJ_REASON_BYTES);
    if (consumer->client == NULL)
        goto failed;
    conf = NULL; /* it is the client's now */
    kafka.poll_set_consumer(consumer->client);
    consumer->queue = kafka.queue_get_consumer(consumer->client);
    consumer->place = kafka.list_new(1);
    if (consumer->queue != NULL && consumer->place != NULL) {
        kafka.list_add(consumer->place, topic, partition);
        return consumer;
    }
failed:
    if (conf != NULL)
        kafka.conf_destroy(conf);
    if (consumer != NULL)
        sj_consumer_close(consumer);
    return NULL;
}

static void let_go(sj_consumer *consumer)
{
    while (consumer->first < consumer->last)
        kafka.message_destroy(consumer->held[consumer->first++]);
    consumer->first = consumer->last = 0;
}

int sj_consumer_seek(sj_consumer *consumer, int64_t offset, int32_t epoch)
{
    let_go(consumer);
    consumer->place->elems[0].offset = offset;
    if (kafka.set_leader_epoch != NULL)
        kafka.set_leader_epoch(&consumer->place->elems[0], epoch);
    return kafka.assign(consumer->client, consumer->place);
}

/* Makes sure that a message is held, if one comes in time. */
static int fill(sj_consumer *consumer, int wait_ms)
{
    if (consumer->first < consumer->last)
        return 1;
    consumer->first = consumer->last = 0;
    /* The batch call waits until its array is full. So it waits for one message, and then takes what is there. */
    ptrdiff_t came = kafka.consume_batch_queue(consumer->queue, wait_ms, consumer->held, 1);
    if (came > 0) {
        consumer->last = 1;
        came = kafka.consume_batch_queue(consumer->queue, 0, consumer->held + 1, HELD_MESSAGES - 1);
        consumer->last += came > 0 ? came : 0;
    }
    return consumer->first < consumer->last;
}

static int put_bytes(sj_byte_values *values, int64_t row, const void *bytes, size_t size)
{
    const int32_t begin = values->ends[row];
    if (bytes == NULL) {
        values->nulls++;
        size = 0;
    } else {
        if (size > (size_t)(values->capacity - begin))
            return 0;
        memcpy(values->data + begin, bytes, size);
        values->valid[row >> 3] |= (unsigned char)(1u << (row & 7));
    }
    values->ends[row + 1] = begin + (int32_t)size;
    return 1;
}

static void take_back(sj_byte_values *values, int64_t row)
{
    const unsigned char bit = (unsigned char)(1u << (row & 7));
    if (values->valid[row >> 3] & bit)
        values->valid[row >> 3] &= (unsigned char)~bit;
    else
        values->nulls--;
}

/* Copies one message; 0 where it does not fit, and then nothing was changed. */
static int put(sj_messages *to, rd_kafka_message *message)
{
    const int64_t row = to->count;
    rd_kafka_headers *headers = NULL;
    if (to->columns > 2 && kafka.message_headers(message, &headers) != 0)
        headers = NULL;
    for (int column = 0; column < to->columns; column++) {
        const void *bytes = column == 0 ? message->key : message->payload;
        size_t size = column == 0 ? message->key_len : message->len;
        if (column >= 2) {
            bytes = NULL;
            if (headers == NULL || kafka.header_get_last(headers, to->headers[column - 2], &bytes, &size) != 0)
                bytes = NULL;
        }
        if (!put_bytes(&to->values[column], row, bytes, size)) {
            if (row == 0) {
                to->short_column = column;
                to->short_bytes = (int64_t)size;
            }
            while (column-- > 0)
                take_back(&to->values[column], row);
            return 0;
        }
    }
    int type = 0;
    const int64_t time_ms = kafka.message_timestamp(message, &type);
    to->offsets[row] = message->offset;
    to->times_us[row] = type == 0 ? 0 : time_ms * 1000;
    to->time_types[row] = (int8_t)(type == 0 ? 0 : type - 1);
    if (type == 0)
        to->times_nulls++;
    else
        to->times_valid[row >> 3] |= (unsigned char)(1u << (row & 7));
    to->count++;
    return 1;
}

int sj_consumer_fetch(sj_consumer *consumer, int64_t end, int wait_ms, sj_messages *to, int64_t *position)
{
    int64_t after = -1; /* the offset after the last message of this call */
    to->short_column = -1;
    to->epoch = -1;
    for (;;) {
        if (!fill(consumer, to->count ? 0 : wait_ms))
            break;
        rd_kafka_message *message = consumer->held[consumer->first];
        if (message->err) {
            if (to->count) { /* what came before the error is handed over first */
                *position = after;
                return 0;
            }
            const int error = message->err;
            *position = error == RD_KAFKA_PARTITION_EOF ? message->offset : -1;
            consumer->first++;
            kafka.message_destroy(message);
            return error;
        }
        const int32_t epoch = kafka.message_leader_epoch == NULL ? -1 : kafka.message_leader_epoch(message);
        if (message->offset >= end || to->count == to->rows || (to->count && epoch != to->epoch) || !put(to, message)) {
            *position = message->offset;
            return 0;
        }
        to->epoch = epoch;
        after = message->offset + 1;
        consumer->first++;
        kafka.message_destroy(message);
    }
    /* Nothing is held, so librdkafka's position counts: it has passed the markers of transactions too. */
    *position = kafka.position(consumer->client, consumer->place) == 0 ? consumer->place->elems[0].offset : after;
    return 0;
}

int sj_consumer_errors(const sj_consumer *consumer, int *errors)
{
    memcpy(errors, consumer->errors, sizeof(int) * (size_t)consumer->error_count);
    return consumer->error_count;
}

const char *sj_consumer_error_name(int error)
{
    return kafka.err2name(error);
}

void sj_consumer_close(sj_consumer *consumer)
{
    let_go(consumer);
    if (consumer->client != NULL)
        kafka.consumer_close(consumer->client);
    if (consumer->place != NULL)
        kafka.list_destroy(consumer->place);
    if (consumer->queue != NULL)
        kafka.queue_destroy(consumer->queue);
    if (consumer->client != NULL)
        kafka.destroy(consumer->client);
    free(consumer);
}
