#include "periodic/windows.h"

#include <stdint.h>

/* Results between the one whose event times are fetched and the one that is looked at. */
#define AHEAD 64

typedef struct {
    int64_t first;
    int64_t last;
} stretch;

static const stretch NONE = {1, 0};

/* The windows of a tuple where `every` is 1: ids may lie beyond the ends of int64, and these are left out. */
static stretch narrowest(const sj_window_stream *stream, int64_t time)
{
    const sj_int128 first = (sj_int128)time - stream->lag;
    const sj_int128 last = first + stream->whole;
    if (first > INT64_MAX || last < INT64_MIN) {
        return NONE;
    }
    return (stretch){sj_saturate(first), sj_saturate(last)};
}

static stretch windows_of(int64_t every, const sj_window_stream *stream, int64_t time)
{
    if (every == 1) {
        return narrowest(stream, time);
    }
    int64_t quotient = time / every;
    int64_t rest = time % every;
    if (rest < 0) {
        quotient--;
        rest += every;
    }
    const int64_t first = quotient + (rest > 0) - stream->lag;
    return (stretch){first, quotient + stream->whole + (rest + stream->part >= every) - stream->lag};
}

/* Finds the windows that all tuples of a result are in; -1: a row or its run does not exist. */
static int in_common(const sj_windows *windows, int64_t result, stretch *found)
{
    *found = (stretch){INT64_MIN, INT64_MAX};
    for (int64_t n = 0; n < windows->stream_count; n++) {
        const sj_window_stream *stream = &windows->streams[n];
        const sj_run_columns *columns = stream->columns;
        const sj_selection *of = &stream->selection;
        const uint64_t run_number = (uint64_t)(of->run_numbers ? of->run_numbers[result] : of->run_number);
        const int64_t row = of->rows[result];
        if (run_number >= (uint64_t)columns->run_count || (uint64_t)row >= (uint64_t)columns->run_rows[run_number]) {
            return -1;
        }
        const stretch one = windows_of(windows->every, stream, ((const int64_t *)columns->addresses[run_number])[row]);
        found->first = one.first > found->first ? one.first : found->first;
        found->last = one.last < found->last ? one.last : found->last;
    }
    return 0;
}

/* Fetches the event times of a result: its rows lie anywhere in the windows, mostly outside the cache. */
static void fetch(const sj_windows *windows, int64_t result)
{
    for (int64_t n = 0; n < windows->stream_count; n++) {
        const sj_window_stream *stream = &windows->streams[n];
        const sj_selection *of = &stream->selection;
        const uint64_t run_number = (uint64_t)(of->run_numbers ? of->run_numbers[result] : of->run_number);
        if (run_number < (uint64_t)stream->columns->run_count) {
            /* Computed as an integer, because nobody has checked yet that the row exists. */
            const uintptr_t times = (uintptr_t)stream->columns->addresses[run_number];
            __builtin_prefetch((const void *)(times + (uintptr_t)((int64_t)of->rows[result] * sizeof(int64_t))));
        }
    }
}

int64_t sj_windows_fill(sj_windows *windows, int32_t *out_results, int64_t *out_ids, int64_t capacity)
{
    const int64_t count = windows->count;
    int64_t next = windows->next;
    stretch left = {windows->first, windows->last}; /* of the result before `next` */
    int64_t written = 0;
    while (written < capacity) {
        if (left.first > left.last) {
            if (next == count) {
                break;
            }
            if (count - next > AHEAD) {
                fetch(windows, next + AHEAD);
            }
            if (in_common(windows, next, &left)) {
                return -1;
            }
            next++;
            continue;
        }
        out_results[written] = (int32_t)(next - 1);
        if (out_ids) {
            out_ids[written] = left.first;
        }
        written++;
        if (!out_ids || left.first == left.last) {
            left = NONE;
        } else {
            left.first++;
        }
    }
    windows->next = next;
    windows->first = left.first;
    windows->last = left.last;
    return written;
}
