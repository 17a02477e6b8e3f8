/* Laying a run out: bucket numbers, the order by (bucket, second attribute), the directory, gathering by an order. */
#ifndef SJ_GRID_H
#define SJ_GRID_H

#include <stdint.h>

#include "band.h"

#define SJ_BUCKET_LIMIT ((int64_t)1 << 62)
#define SJ_NAN_BUCKET INT64_MAX

/* floor((x + offset) / width). Floats are clamped to +-2^62, NaN gets SJ_NAN_BUCKET; integers add saturating. */
void sj_float_buckets(const double *column, int64_t count, double width, double offset, int64_t *buckets);
void sj_int_buckets(const int64_t *column, int64_t count, int64_t width, int64_t offset, int64_t *buckets);

/* The first and the last bucket in which each probe can find a match; `last` may be NULL. */
void sj_float_bucket_range(const double *left, int64_t count, double lo, double hi, double width, int64_t *first,
                           int64_t *last);
void sj_int_bucket_range(const int64_t *left, int64_t count, sj_wide lo, sj_wide hi, int64_t width, int64_t *first,
                         int64_t *last);

/* Are the probes sorted by (bucket, second)? Neither or one of the two columns is given; NaN comes last. */
int sj_probes_sorted(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count);

/* Number of distinct buckets, or -1 where they are not ascending. */
int64_t sj_directory_count(const int64_t *sorted_buckets, int64_t count);
void sj_directory_fill(const int64_t *sorted_buckets, int64_t count, int64_t *ids, int64_t *starts);

/* Stable order by (bucket, second); `buckets` may be NULL, one of the two columns is given. -1: no memory. */
int sj_grid_order(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count,
                  int32_t *order);

/* out[i] = column[order[i]] for items of 1, 2, 4, 8 or 16 bytes. -1: an entry of order is outside 0..rows-1. */
int sj_gather(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
              unsigned char *out);

/* out[i] = columns[places[i]][rows[i]]: the same over the runs of a window. -1: outside of them. */
int sj_gather_runs(const unsigned char *const *columns, const int64_t *run_rows, int64_t run_count, int item_bytes,
                   const int32_t *places, const int32_t *rows, int64_t count, unsigned char *out);

#endif
