/* One partition of a topic, read by librdkafka into arrays: no Python object a message, and no lock of Python's.
 *
 *   librdkafka's threads ──► its queue ── batch call ──► messages held ── one copy each ──► arrays of the caller
 *                                                            └── beyond the end of a range: kept for the next one
 *
 * librdkafka is not linked. Its functions are found in the library that the confluent-kafka wheel brings, when the first
 * consumer is made. Semantics: streamjoin_ds.source.kafka.message_sources, the readable twin.
 */
#ifndef SJ_CONSUMER_H
#define SJ_CONSUMER_H

#include <stddef.h>
#include <stdint.h>

/* Byte values: value i lies at [ends[i], ends[i + 1]) of data; bit i of valid says whether there is one. */
typedef struct {
    int32_t *ends;
    unsigned char *valid;
    unsigned char *data;
    int64_t capacity;
    int64_t nulls;
} sj_byte_values;

typedef struct {
    int64_t rows; /* how many messages the arrays have room for */
    int64_t count; /* how many they have */
    int64_t *offsets;
    int64_t *times_us;
    unsigned char *times_valid;
    int64_t times_nulls;
    int8_t *time_types; /* 0: the producer's time, 1: the broker's */
    int32_t epoch; /* the leader epoch of all of them; -1 where it is not known */
    int columns;
    sj_byte_values *values; /* key, value, then the headers */
    const char *const *headers;
    /* Where the first message that was to come does not fit: which values, and how many bytes they need. Else -1. */
    int short_column;
    int64_t short_bytes;
} sj_messages;

typedef struct sj_consumer sj_consumer;

enum { SJ_CONSUMER_ERRORS = 16, SJ_REASON_BYTES = 512 };

/* Finds librdkafka's functions in a library. Returns NULL, or the name of the first thing that is missing. */
const char *sj_consumer_load(const char *library);

/* Makes a consumer of one partition; NULL where librdkafka refuses, and why is in `reason`, which may hold the value of a
 * setting: it is never to be shown. The library must have been loaded. */
sj_consumer *sj_consumer_open(const char *const *names, const char *const *values, int settings, const char *topic,
                              int32_t partition, char *reason);

/* Goes to an offset, and forgets what it holds. The last message before it has a leader epoch; -1 where that is not known.
 * Returns librdkafka's error, 0 for none. */
int sj_consumer_seek(sj_consumer *consumer, int64_t offset, int32_t epoch);

/* Adds messages before `end` that have one leader epoch: all that are there, or those that fit. Waits for the first of them, so long at most.
 * Sets the position: all before it was handed over or is no message; -1 where it is not known.
 * Returns librdkafka's error if one is next, 0 for none. */
int sj_consumer_fetch(sj_consumer *consumer, int64_t end, int wait_ms, sj_messages *to, int64_t *position);

/* Copies the errors that were told beside the messages, each once. Returns how many. */
int sj_consumer_errors(const sj_consumer *consumer, int *errors);

/* Returns librdkafka's name of an error. */
const char *sj_consumer_error_name(int error);

void sj_consumer_close(sj_consumer *consumer);

#endif
