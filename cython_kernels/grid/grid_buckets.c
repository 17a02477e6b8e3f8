#include <math.h>
#include <string.h>

#include "grid/grid.h"

SJ_INLINE int64_t float_bucket(double value, double width)
{
    const double quotient = value / width;
    if (quotient != quotient) {
        return SJ_NAN_BUCKET;
    }
    if (quotient >= (double)SJ_BUCKET_LIMIT) {
        return SJ_BUCKET_LIMIT;
    }
    if (quotient <= -(double)SJ_BUCKET_LIMIT) {
        return -SJ_BUCKET_LIMIT;
    }
    const int64_t truncated = (int64_t)quotient;
    return truncated - ((double)truncated > quotient);
}

/* Returns the next larger number; NaN and infinity stay. It is `nextafter`, without a call. */
SJ_INLINE double next_larger(double value)
{
    int64_t number;
    memcpy(&number, &value, sizeof number);
    number = (number < 0 ? INT64_MIN - number : number) + (value < INFINITY); /* in the order of the values */
    number = number < 0 ? INT64_MIN - number : number;
    memcpy(&value, &number, sizeof value);
    return value;
}

SJ_INLINE int64_t floor_divide(int64_t value, int64_t width)
{
    const int64_t quotient = value / width;
    return quotient - (quotient * width > value);
}

void sj_float_buckets(const double *column, int64_t count, double width, double offset, int64_t *buckets)
{
    for (int64_t row = 0; row < count; row++) {
        buckets[row] = float_bucket(column[row] + offset, width);
    }
}

void sj_int_buckets(const int64_t *column, int64_t count, int64_t width, int64_t offset, int64_t *buckets)
{
    for (int64_t row = 0; row < count; row++) {
        buckets[row] = floor_divide(sj_saturate((sj_int128)column[row] + offset), width);
    }
}

/* fl(l - r) <= hi implies l - r < next(hi), so r > l - next(hi) in real numbers. Computing that bound rounds once more,
 * to at most one step above the true value: hence the second step. Everything after it (divide, floor, clamp) is
 * monotone, so the bucket of the bound is never above the bucket of a matching right value. The same holds from the
 * other side. */
void sj_float_bucket_range(const double *left, int64_t count, double lo, double hi, double width, int64_t *first,
                           int64_t *last)
{
    const double next_hi = nextafter(hi, INFINITY), previous_lo = nextafter(lo, -INFINITY);
    for (int64_t probe = 0; probe < count; probe++) {
        const double smallest = -next_larger(next_hi - left[probe]);
        first[probe] = smallest != smallest ? -SJ_BUCKET_LIMIT : float_bucket(smallest, width);
        if (last) {
            const double largest = next_larger(left[probe] - previous_lo);
            last[probe] = largest != largest ? SJ_BUCKET_LIMIT : float_bucket(largest, width);
        }
    }
}

void sj_int_bucket_range(const int64_t *left, int64_t count, sj_wide lo, sj_wide hi, int64_t width, int64_t *first,
                         int64_t *last)
{
    const sj_int128 wide_lo = sj_widen(lo), wide_hi = sj_widen(hi);
    for (int64_t probe = 0; probe < count; probe++) {
        first[probe] = floor_divide(sj_saturate(left[probe] - wide_hi), width);
        if (last) {
            last[probe] = floor_divide(sj_saturate(left[probe] - wide_lo), width);
        }
    }
}

int sj_probes_sorted(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count)
{
    int sorted = 1;
    for (int64_t probe = 1; probe < count; probe++) {
        int same = buckets[probe - 1] == buckets[probe];
        if (float_second) {
            const double before = float_second[probe - 1], after = float_second[probe];
            same &= !(after < before) & !((before != before) & (after == after));
        }
        if (int_second) {
            same &= int_second[probe - 1] <= int_second[probe];
        }
        sorted &= (buckets[probe - 1] < buckets[probe]) | same;
    }
    return sorted;
}

int64_t sj_directory_count(const int64_t *sorted_buckets, int64_t count)
{
    int64_t distinct = count > 0;
    int ascending = 1;
    for (int64_t row = 1; row < count; row++) {
        distinct += sorted_buckets[row] != sorted_buckets[row - 1];
        ascending &= sorted_buckets[row] >= sorted_buckets[row - 1];
    }
    return ascending ? distinct : -1;
}

void sj_directory_fill(const int64_t *sorted_buckets, int64_t count, int64_t *ids, int64_t *starts)
{
    int64_t entry = 0;
    for (int64_t row = 0; row < count; row++) {
        if (row == 0 || sorted_buckets[row] != sorted_buckets[row - 1]) {
            ids[entry] = sorted_buckets[row];
            starts[entry++] = row;
        }
    }
    starts[entry] = count;
}

void sj_limit_cells(int64_t *cells, int64_t count)
{
    for (int64_t at = 0; at < count; at++) {
        const int64_t cell = cells[at];
        cells[at] = cell > SJ_CELL_LIMIT ? SJ_CELL_LIMIT : cell < -SJ_CELL_LIMIT ? -SJ_CELL_LIMIT : cell;
    }
}
