/* Matches of a probing as rows of a result. A few pairs at a time are listed, and the window's columns gathered while the
 * list and most of what it names are in cache: no list of all pairs is made.
 *
 * The columns of the probes' own side stand still while a probe meets its partners. So of them only stretches are
 * written: a probe, and how many rows in a row are its matches. Each stretch of rows has the items of one probe.
 */
#ifndef SJ_MATCH_ROWS_H
#define SJ_MATCH_ROWS_H

#include "grid/grid.h"

/* Rows behind the capacity that may be written to: an item is repeated in blocks of 32 bytes. */
#define SJ_MATCH_SLACK 64

typedef struct {
    int64_t column_count;
    const int *item_bytes;
    unsigned char *const *to; /* columns of the result, with room for capacity + SJ_MATCH_SLACK rows */
    int64_t capacity;
    int64_t written;
    int32_t *probes; /* of each stretch; there is room for `capacity` stretches */
    int32_t *lengths;
    int64_t stretches;
} sj_match_rows;

/* Adds the rows of some pairs, given their probes, to the stretches. */
void sj_add_stretches(sj_match_rows *rows, const int32_t *probes, int64_t count, int32_t first_probe);

/* Writes each column whose out is not NULL, with up to SJ_MATCH_SLACK rows behind the last. `probes` says where each
 * probe lies. Returns -1, and writes nothing, where one lies outside its run. */
int sj_spread_probes(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                     unsigned char *const *outs);

/* to[i] = the larger of window[i] and the probe's item in the first of its columns. */
void sj_spread_greatest(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                        const int64_t *window, int64_t *to);

#endif
