/* A few probes against all runs of a window in one call, as in a push of one tuple.
 *
 *   probes ──► run 0 (grid) ──► run 1 (grid) ──► ... ──► newest rows (scan)        pairs carry the number of their run
 *
 * Many probes go slice by slice, each slice through all runs. So the order of the pairs does not depend on which thread
 * has which slices.
 */
#ifndef SJ_RUNS_PROBE_H
#define SJ_RUNS_PROBE_H

#include "bucket/bucket_grid.h"
#include "gather/match_rows.h"

/* Up to so many pairs a run is scanned, whatever its order. For a single probe it is up to so many rows: alone it finds
 * its place in less time. */
#define SJ_SCAN_PAIRS 4096
#define SJ_SCAN_ROWS_ALONE 256

/* All that probing one run needs and no probe changes. Conditions are numbered as the probes' columns, their slots as
 * in sj_band. A bucket grid may grow between two probings: a probing sees it as it is when it enters it. */
typedef struct {
    const sj_bucket_grid *bucket_grid; /* NULL: a run in one piece; else the fields from `first` on are not used */
    sj_bucket_columns bucket_columns;
    sj_band band; /* without the left side */
    int conditions;
    int is_float[SJ_MAX_CONDITIONS];
    int slot[SJ_MAX_CONDITIONS];
    int first;  /* the condition that the buckets are made of; -1: none */
    int second; /* the condition that a bucket is sorted by; -1: none */
    int sorted;
    double float_width;
    int64_t int_width;
    const double *float_fences;
    const int64_t *int_fences;
    sj_steps steps;
    const int64_t *bucket_ids;
    const int64_t *bucket_starts;
    int64_t bucket_count;
    int has_zone;
    double float_smallest[SJ_MAX_CONDITIONS]; /* the run's zone map, by slot */
    double float_largest[SJ_MAX_CONDITIONS];
    int64_t int_smallest[SJ_MAX_CONDITIONS];
    int64_t int_largest[SJ_MAX_CONDITIONS];
} sj_run_index;

typedef struct {
    const sj_run_index **indexes;
    int64_t run_count;
    int64_t last_rows; /* rows of the last run, which may have grown since its index was made; -1: as the index says */
    int64_t probe_count; /* probes of the slice in work */
    int64_t slice_probes; /* probes of a whole slice */
    int64_t slices_end; /* probes of all slices */
    int64_t slice_begin; /* probes of the slices before */
    int conditions;
    const double *float_left[SJ_MAX_CONDITIONS]; /* the slice's keys, by condition; one of the two is NULL */
    const int64_t *int_left[SJ_MAX_CONDITIONS];
    double float_range[SJ_MAX_CONDITIONS][2]; /* smallest and largest key of the slice, by condition */
    int64_t int_range[SJ_MAX_CONDITIONS][2];
    sj_scan_fill scan_fill;
    sj_grid_fill grid_fill;
    sj_bucket_fill bucket_fill;
    sj_scan_count scan_count;
    sj_grid_count grid_count;
    sj_bucket_count bucket_count;
    int64_t run; /* the run in work */
    int work;    /* what is done with it: nothing yet, scan, grid or bucket grid */
    sj_scan scan;
    sj_grid grid;
    sj_bucket_probe bucket_probe;
    int64_t candidates;
    /* the slice's probes in the order of the sort layout that they were last sorted for */
    int has_layout;
    int first;
    int second;
    double float_width;
    int64_t int_width;
    int32_t *order;
    int64_t *bucket_from;
    int64_t *bucket_to;
    double *permuted; /* room for every column */
    const double *float_permuted[SJ_MAX_CONDITIONS];
    const int64_t *int_permuted[SJ_MAX_CONDITIONS];
} sj_runs;

/* Begins with the first slice; the caller has set the lefts, `slices_end` and `slice_probes`. -1: no memory. */
int sj_runs_begin(sj_runs *runs, int conditions);
void sj_runs_end(sj_runs *runs);

/* Whether all slices are finished. */
int sj_runs_are_done(const sj_runs *runs);

/* Writes the next pairs, all of the run and the slice in work; returns how many. 0: there are no more. -1: no memory. */
int64_t sj_runs_next(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int64_t capacity);

/* Writes the next pairs and the number of each pair's run; returns how many. 0: there are no more. -1: no memory. */
int64_t sj_runs_fill(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int32_t *out_run, int64_t capacity);

/* Adds to each probe's count how many pairs it has, in all runs, and gives its partners to `sums` unless that is NULL.
 * Nothing was written before. -1: no memory. */
int sj_runs_count(sj_runs *runs, int64_t *counts, sj_partner_sums *sums);

/* Makes the rows of the next matches, in the order of the pairs. It stops where there are no more, or room runs out. -1: no
 * memory. -2: a probe lies outside its run. */
int sj_runs_match(sj_runs *runs, const sj_run_columns *window, sj_match_rows *rows);

#endif
