/* The columns of a result that its probes and not the window fill: each stretch of rows has the items of one probe. */
#ifndef SJ_MATCH_ROWS_H
#define SJ_MATCH_ROWS_H

#include "bucket/bucket_matches.h"
#include "grid/grid.h"

/* Writes each column whose out is not NULL, with up to SJ_MATCH_SLACK rows behind the last. `probes` says where each
 * probe lies. Returns -1, and writes nothing, where one lies outside its run. */
int sj_spread_probes(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                     unsigned char *const *outs);

/* to[i] = the larger of window[i] and the probe's item in the first of its columns. */
void sj_spread_greatest(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                        const int64_t *window, int64_t *to);

#endif
