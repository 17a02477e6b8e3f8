/* The band join's data: conditions, one probe made ready, and the two resumable joins.
 *
 * A condition c compares column left[c] of the probes with column right[c] of the run: lo <= left - right <= hi, both
 * ends included. Conditions are kept in two groups, float64 first and int64 after it, so that each pair of group sizes
 * has its own unrolled loop. Their order does not matter, as all must hold.
 *
 *   float64  d = left - right; d >= lo && d <= hi           NaN and inf - inf never match
 *            or an equality: d = 0 - right; d == -left      NaN never matches, infinities match themselves
 *   int64    smallest <= right <= largest, where smallest = left - hi and largest = left - lo are computed in 128
 *            bits once for each probe and clamped to int64: exact, nothing overflows
 */
#ifndef SJ_BAND_H
#define SJ_BAND_H

#include <stddef.h>
#include <stdint.h>

#define SJ_MAX_CONDITIONS 16
#define SJ_MIN_CAPACITY 64

/* A run tile of three columns is 24 KB: it stays in L1 while the probes of a tile pass over it. */
#define SJ_SCAN_TILE_PROBES 32
#define SJ_SCAN_TILE_ROWS 1024

/* A fence is the sorted value of every 32nd row of a run. A search among fences stays in cache, and ends within 32 rows
 * of the row sought. */
#define SJ_FENCE_ROWS 32

/* Steps divide the values of a sorted run into equally wide parts, with 4 to 8 rows in each where the values are even.
 * Each step has the first row at or after it. One look finds a probe's rows, where a search takes up to 20 looks. Steps
 * are not used where a row's step has more than SJ_MAX_STEP_ROWS rows, on the average over all rows. */
#define SJ_STEP_ROWS 4
#define SJ_MAX_STEP_ROWS 32

/* Spans of a run that are looked up together: while one comes from memory, the others are prefetched. */
#define SJ_GRID_SPANS 48

/* Buckets for which a group of probes remembers how far they have been read. A probe normally spans 2 to 4. */
#define SJ_GRID_POINTERS 64

#define SJ_INLINE static inline __attribute__((always_inline, unused))

__extension__ typedef __int128 sj_int128;

/* A bound of an int64 condition, clamped to +-2^64: left - right is never outside of that. */
typedef struct {
    int64_t high;
    uint64_t low;
} sj_wide;

typedef struct {
    int float_count;
    int int_count;
    const double *float_left[SJ_MAX_CONDITIONS];
    const double *float_right[SJ_MAX_CONDITIONS];
    double float_lo[SJ_MAX_CONDITIONS];
    double float_hi[SJ_MAX_CONDITIONS];
    int float_equal[SJ_MAX_CONDITIONS]; /* whether it is an equality; lo and hi are 0 then */
    const int64_t *int_left[SJ_MAX_CONDITIONS];
    const int64_t *int_right[SJ_MAX_CONDITIONS];
    sj_wide int_lo[SJ_MAX_CONDITIONS];
    sj_wide int_hi[SJ_MAX_CONDITIONS];
    double interval_lo; /* only where rows are sorted as SJ_SORTED_INTERVAL */
    int64_t probe_count;
    int64_t run_count;
} sj_band;

/* A row passes a condition on floats where lo <= left - right <= hi. Of an equality, left is 0. */
typedef struct {
    double left[SJ_MAX_CONDITIONS];
    double lo[SJ_MAX_CONDITIONS];
    double hi[SJ_MAX_CONDITIONS];
    int64_t smallest[SJ_MAX_CONDITIONS];
    int64_t largest[SJ_MAX_CONDITIONS];
} sj_probe;

typedef struct {
    sj_band band;
    int64_t probe_tile; /* first probe of the tile in work */
    int64_t run_tile;   /* first run row of the tile in work */
    int64_t probe;      /* probe in work */
    int64_t row;        /* next run row to be tested */
    int64_t candidates;
    int is_rolled; /* tests one register at a time, without the sift: to measure what the sift gives */
} sj_scan;

/* A value's step is (value - origin) >> shift, or (value - origin) * scale; a value before the origin is in step 0. */
typedef struct {
    const int32_t *starts; /* count + 1 rows, the last of them the number of rows; NULL: there are no steps */
    int64_t count;
    double float_origin;
    double scale;
    int64_t int_origin;
    int shift;
} sj_steps;

/* The kind of the key that a run is sorted by inside a bucket; its condition is number 0 of its group.
 *
 * INTERVAL: a probe has two values, each with a condition. That of condition 0 says where its rows begin, and that of
 * condition 1 where they end: at the first row where it, less the sorted key, is below interval_lo. */
enum sj_sorted { SJ_SORTED_NONE = 0, SJ_SORTED_FLOAT = 1, SJ_SORTED_INT = 2, SJ_SORTED_INTERVAL = 3 };

/* Rows row:end of the run that a probe may match: a bucket, or the rest of it. */
typedef struct {
    int64_t probe;
    int64_t row; /* next row to be tested */
    int64_t end;
    int is_settled; /* whether all rows within the band of the sorted key match */
} sj_span;

typedef struct {
    sj_band band;
    int sorted;
    const double *float_fences; /* every 32nd value of the sorted column; both NULL: no fences */
    const int64_t *int_fences;
    sj_steps steps; /* only for a run that is one bucket; used instead of the fences */
    const int32_t *probe_order;
    const int64_t *bucket_from; /* of each probe: first and last bucket that can hold a match */
    const int64_t *bucket_to;
    const int64_t *bucket_ids;
    const int64_t *bucket_starts;
    int64_t bucket_count;
    int64_t probe;       /* probe in work */
    int64_t slot;        /* bucket in work, counted from group_bucket */
    int64_t group_from;   /* first bucket of all probes in this group */
    int64_t group_bucket; /* the directory's entry of that bucket, or of the next one that exists */
    int64_t pointer[SJ_GRID_POINTERS];
    int64_t pointers_set;
    sj_span span[SJ_GRID_SPANS];
    int span_count;
    int span_at; /* span in work */
    int in_group;
    int in_probe;
    int64_t candidates;
    int is_counting;
    /* Of the condition that the buckets are made of; both widths 0: there is none, or it is not known. */
    int first_slot;
    double float_width;
    int64_t int_width;
} sj_grid;

/* Buckets whose numbers are larger, or that are narrower, are never taken to be settled: see bucket_is_settled. */
#define SJ_SETTLED_BUCKETS ((int64_t)1 << 50)
#define SJ_SETTLED_WIDTH 0x1p-900

/* The roof of the nested loop: it only compares one condition, over rows that stay in L1. It tests `rounds` (a multiple
 * of 8) times SJ_SCAN_TILE_ROWS pairs. The answer only keeps the compiler from leaving the work out. */
typedef unsigned (*sj_scan_roof)(int is_float, int64_t rounds);

/* What takes the partners of each probe while they are counted: see sums/partner_sums.h. */
typedef struct sj_partner_sums sj_partner_sums;

typedef int64_t (*sj_scan_fill)(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity);
typedef int64_t (*sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity);

/* Add to each probe's count how many pairs it has, and give its partners to `sums`, unless that is NULL. Nothing was
 * written before, and nothing can be afterwards. */
typedef void (*sj_scan_count)(sj_scan *scan, int64_t *counts, sj_partner_sums *sums);
typedef void (*sj_grid_count)(sj_grid *grid, int64_t *counts, sj_partner_sums *sums);

void sj_scan_count_scalar(sj_scan *scan, int64_t *counts, sj_partner_sums *sums);
void sj_grid_count_scalar(sj_grid *grid, int64_t *counts, sj_partner_sums *sums);
unsigned sj_scan_roof_scalar(int is_float, int64_t rounds);
int64_t sj_scan_fill_scalar(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity);
int64_t sj_grid_fill_scalar(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity);
#if defined(__x86_64__)
void sj_scan_count_avx2(sj_scan *scan, int64_t *counts, sj_partner_sums *sums);
void sj_grid_count_avx2(sj_grid *grid, int64_t *counts, sj_partner_sums *sums);
void sj_scan_count_avx512(sj_scan *scan, int64_t *counts, sj_partner_sums *sums);
void sj_grid_count_avx512(sj_grid *grid, int64_t *counts, sj_partner_sums *sums);
unsigned sj_scan_roof_avx2(int is_float, int64_t rounds);
int64_t sj_scan_fill_avx2(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity);
int64_t sj_grid_fill_avx2(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity);
unsigned sj_scan_roof_avx512(int is_float, int64_t rounds);
int64_t sj_scan_fill_avx512(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity);
int64_t sj_grid_fill_avx512(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity);
#endif

SJ_INLINE sj_int128 sj_widen(sj_wide value)
{
    return ((sj_int128)value.high) * ((sj_int128)1 << 64) + (sj_int128)value.low;
}

SJ_INLINE int64_t sj_saturate(sj_int128 value)
{
    return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : (int64_t)value;
}

/* Prepares condition `c` of the floats of probe `index`; returns the probe's value. */
SJ_INLINE double sj_prepare_float(const sj_band *band, int64_t index, int c, sj_probe *probe)
{
    const double value = band->float_left[c][index];
    const int is_equality = band->float_equal[c];
    probe->left[c] = is_equality ? 0.0 : value;
    probe->lo[c] = is_equality ? -value : band->float_lo[c];
    probe->hi[c] = is_equality ? -value : band->float_hi[c];
    return value;
}

/* Prepares of probe `index` only what condition 0 of the sorted group needs. Does not tell whether any right values can
 * match it. */
SJ_INLINE void sj_prepare_sorted(const sj_band *band, int64_t index, int sorted, sj_probe *probe)
{
    if (sorted != SJ_SORTED_INT) {
        sj_prepare_float(band, index, 0, probe);
        if (sorted == SJ_SORTED_INTERVAL) {
            sj_prepare_float(band, index, 1, probe);
        }
    } else {
        const sj_int128 left = band->int_left[0][index];
        probe->smallest[0] = sj_saturate(left - sj_widen(band->int_hi[0]));
        probe->largest[0] = sj_saturate(left - sj_widen(band->int_lo[0]));
    }
}

/* Prepares condition `c` of the integers of probe `index`; returns whether any right values can match it. */
SJ_INLINE int sj_prepare_int(const sj_band *band, int64_t index, int c, sj_probe *probe)
{
    const int64_t value = band->int_left[c][index];
    const int64_t lo = (int64_t)band->int_lo[c].low, hi = (int64_t)band->int_hi[c].low;
    int64_t smallest, largest;
    if ((lo < 0 ? -1 : 0) == band->int_lo[c].high && (hi < 0 ? -1 : 0) == band->int_hi[c].high &&
        !__builtin_sub_overflow(value, hi, &smallest) && !__builtin_sub_overflow(value, lo, &largest)) {
        probe->smallest[c] = smallest;
        probe->largest[c] = largest;
        return smallest <= largest;
    }
    const sj_int128 wide_smallest = value - sj_widen(band->int_hi[c]), wide_largest = value - sj_widen(band->int_lo[c]);
    probe->smallest[c] = sj_saturate(wide_smallest);
    probe->largest[c] = sj_saturate(wide_largest);
    return wide_smallest <= INT64_MAX && wide_largest >= INT64_MIN && wide_smallest <= wide_largest;
}

/* Prepares probe `index`; returns whether any right values can match it. */
SJ_INLINE int sj_prepare(const sj_band *band, int64_t index, sj_probe *probe)
{
    int alive = 1;
    for (int c = 0; c < band->float_count; c++) {
        const double value = sj_prepare_float(band, index, c, probe);
        alive &= value == value;
    }
    for (int c = 0; c < band->int_count; c++) {
        alive &= sj_prepare_int(band, index, c, probe);
    }
    return alive;
}

#endif
