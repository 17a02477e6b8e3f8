/* Matches of a probing as rows of a result. A block of pairs at a time is listed, and its rows are made while the list, and
 * most of what it names, are in cache: no list of all pairs is made.
 *
 * The columns of the probes' own side stand still while a probe meets its partners. So a block is seen as stretches: a
 * probe, and how many pairs in a row are its. Each stretch of rows has the items of one probe.
 */
#ifndef SJ_MATCH_ROWS_H
#define SJ_MATCH_ROWS_H

#include "grid/grid.h"

/* Pairs of a block, at most. */
#define SJ_LISTED_PAIRS 1024

/* Rows behind the capacity that may be written to: an item is repeated in blocks of 32 bytes. */
#define SJ_MATCH_SLACK 64

/* Where the rows go: columns of the result, with room for capacity + SJ_MATCH_SLACK rows; NULL: nobody asks for one. */
typedef struct {
    unsigned char *const *window_to; /* the first has items of 8 bytes */
    const sj_run_columns *own;       /* columns of the probes' side; the first has items of 8 bytes */
    const sj_selection *probes;      /* where each probe lies */
    unsigned char *const *own_to;
    int64_t *greatest; /* of both first columns */
    int64_t capacity;
    int64_t written;
} sj_match_rows;

/* Makes the rows of a block: `found` has their rows in run `run_number` of the window's columns, `probes` their probes
 * less `first_probe`. Bit c of `cached`: column c is in cache. Returns -1, and makes none, where a probe lies outside its
 * run. */
int sj_make_rows(sj_match_rows *rows, const sj_run_columns *window, int64_t run_number, uint64_t cached,
                 const int32_t *found, const int32_t *probes, int32_t first_probe, int64_t count);

#endif
