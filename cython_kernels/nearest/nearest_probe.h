/* The nearest partners of probes, kept while these are probed: no list of all pairs is made.
 *
 *   probing ──► a list of 1 024 pairs ──► distances ──► select ──► ties of those that are left ──► keep
 */
#ifndef SJ_NEAREST_PROBE_H
#define SJ_NEAREST_PROBE_H

#include "grid/runs_probe.h"
#include "nearest/distances.h"
#include "nearest/nearest.h"

typedef struct {
    sj_distances distances;              /* all but the pairs */
    const sj_run_columns *ties[SJ_TIES]; /* of the runs: a column of int64 each; NULL: it is 0 for all pairs */
    sj_nearest *nearest;
} sj_nearest_probe;

/* Takes all pairs of a probing of which none was written before. Returns 0; -1: no memory; -2 where a pair points
 * outside; 1 where a distance cannot be held exactly, and what was kept is of no use. */
int sj_nearest_take(sj_nearest_probe *probe, sj_runs *runs);

#endif
