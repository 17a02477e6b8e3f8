/* The periodic windows that the tuples of a result have in common.
 *
 *   tuple of stream 0   ──────[first .... last]
 *   tuple of stream 1   ──[first ...... last]
 *   in common                 [.. ids ..]       each is written with the result's number
 *
 * A window begins every `every` microseconds. A tuple is in a stretch of windows, with the ids of the first stream.
 */
#ifndef SJ_WINDOWS_H
#define SJ_WINDOWS_H

#include "grid/grid.h"

typedef struct {
    const sj_run_columns *columns; /* one column of int64: event times in microseconds */
    sj_selection selection;
    int64_t whole; /* of a window of W microseconds: W - 1 = whole * every + part */
    int64_t part;
    int64_t lag;
} sj_window_stream;

typedef struct {
    int64_t every;
    int64_t stream_count;
    sj_window_stream *streams;
    int64_t count; /* results */
    int64_t next;  /* the result that is looked at next */
    int64_t first; /* first:last are the windows of the result before `next` still to be written; first > last: none */
    int64_t last;
} sj_windows;

/* Writes the results whose tuples share windows, once for each window (out_ids NULL: once), in ascending order of both.
 * Returns how many were written: only at the end fewer than `capacity`. -1: a row or a run's number is outside. */
int64_t sj_windows_fill(sj_windows *windows, int32_t *out_results, int64_t *out_ids, int64_t capacity);

#endif
