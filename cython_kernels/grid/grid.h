/* Laying a run out: bucket numbers, the order by (bucket, second key), the directory, gathering by an order. */
#ifndef SJ_GRID_H
#define SJ_GRID_H

#include <stdint.h>

#include "scan/band.h"

#define SJ_BUCKET_LIMIT ((int64_t)1 << 62)
#define SJ_CELL_LIMIT ((int64_t)1 << 50)
#define SJ_NAN_BUCKET INT64_MAX

/* floor((x + offset) / width). Floats: clamped to +-2^62, and NaN gets SJ_NAN_BUCKET. Integers: the sum saturates. */
void sj_float_buckets(const double *column, int64_t count, double width, double offset, int64_t *buckets);

/* Clamps cells to +-SJ_CELL_LIMIT. Farther out a float is too coarse to tell cells apart, so values there share the
 * outermost cells. Otherwise a band would cover so many cells there that a probe looked at all buckets. */
void sj_limit_cells(int64_t *cells, int64_t count);

void sj_int_buckets(const int64_t *column, int64_t count, int64_t width, int64_t offset, int64_t *buckets);

/* The first and the last bucket in which each probe can find a match; `last` may be NULL. */
void sj_float_bucket_range(const double *left, int64_t count, double lo, double hi, double width, int64_t *first,
                           int64_t *last);
void sj_int_bucket_range(const int64_t *left, int64_t count, sj_wide lo, sj_wide hi, int64_t width, int64_t *first,
                         int64_t *last);

/* Whether the probes are sorted by (bucket, second), with NaN last. Of the two columns one is given, or none. */
int sj_probes_sorted(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count);

/* Returns the number of distinct buckets, or -1 where they are not ascending. */
int64_t sj_directory_count(const int64_t *sorted_buckets, int64_t count);
void sj_directory_fill(const int64_t *sorted_buckets, int64_t count, int64_t *ids, int64_t *starts);

/* Sets everything of a sorted column's steps but their starts. Of the two columns one is given. Count 0: no steps. */
void sj_steps_plan(const double *float_sorted, const int64_t *int_sorted, int64_t count, sj_steps *steps);
/* Fills `starts` (steps->count + 1 rows). Returns 0 where the values are so uneven that a search is better. */
int sj_steps_fill(const double *float_sorted, const int64_t *int_sorted, int64_t count, const sj_steps *steps,
                  int32_t *starts);

/* Writes the stable order by (bucket, second) of the rows of several runs that are each in this order: the number of
 * each row's run, and the row. `buckets` may be NULL; one of the two seconds is given. -1: no memory. */
int sj_merge_order(const int64_t *const *buckets, const double *const *float_seconds,
                   const int64_t *const *int_seconds, const int64_t *run_rows, int64_t run_count, int32_t *run_numbers,
                   int32_t *rows);

/* Writes the stable order by (bucket, second). `buckets` may be NULL; one of the seconds is given. -1: no memory. */
int sj_grid_order(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count,
                  int32_t *order);

/* out[i] = column[order[i]] for items of 1, 2, 4, 8 or 16 bytes. -1: an entry of order is outside 0..rows-1. */
int sj_gather(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
              unsigned char *out);

/* Does what sj_gather does, without checking `order`. */
void sj_gather_run(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                   unsigned char *out);

/* The same columns of several runs. */
typedef struct {
    const unsigned char **addresses; /* column by column, run by run */
    int64_t *run_rows;
    int *item_bytes; /* of each column */
    int64_t run_count;
    int64_t column_count;
} sj_run_columns;

/* Some rows of these runs: row rows[i] of run run_numbers[i]. `run_numbers` NULL: all are of run `run_number`; if not,
 * `run_number` is 0. */
typedef struct {
    int64_t count;
    const int32_t *rows;
    const int32_t *run_numbers;
    int64_t run_number;
} sj_selection;

/* Copies some rows of each column whose out is not NULL: outs[c][i] = columns[c][run_numbers[i]][rows[i]]. Returns -1,
 * and copies nothing, where a row is outside its run. */
int sj_gather_columns(const sj_run_columns *from, const sj_selection *selection, unsigned char *const *outs);

#endif
