#include <math.h>

#include "grid/grid.h"

SJ_INLINE int bit_length(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }

void sj_steps_plan(const double *float_sorted, const int64_t *int_sorted, int64_t count, sj_steps *steps)
{
    const sj_steps none = {0};
    *steps = none;
    const int64_t most = count / SJ_STEP_ROWS;
    if (most < 2) {
        return;
    }
    if (int_sorted) {
        const uint64_t span = (uint64_t)int_sorted[count - 1] - (uint64_t)int_sorted[0];
        int shift = bit_length(span) - bit_length((uint64_t)most);
        shift = shift < 0 ? 0 : shift;
        shift += span >> shift >= (uint64_t)most;
        if (int_sorted[count - 1] > int_sorted[0]) {
            steps->int_origin = int_sorted[0];
            steps->shift = shift;
            steps->count = (int64_t)(span >> shift) + 1;
        }
        return;
    }
    const double span = float_sorted[count - 1] - float_sorted[0];
    const double scale = (double)(most - 1) / span;
    if (span > 0 && isfinite(span) && isfinite(scale) && scale > 0) {
        steps->float_origin = float_sorted[0];
        steps->scale = scale;
        steps->count = most;
    }
}

/* Returns the step of a row. Subtracting, multiplying by a positive number and cutting off keep the order of values. */
SJ_INLINE int64_t step_of(const double *float_sorted, const int64_t *int_sorted, const sj_steps *steps, int64_t row)
{
    uint64_t step;
    if (int_sorted) {
        step = ((uint64_t)int_sorted[row] - (uint64_t)steps->int_origin) >> steps->shift;
    } else {
        const double at = (float_sorted[row] - steps->float_origin) * steps->scale;
        step = at >= 0 && at < (double)steps->count ? (uint64_t)at : at > 0 ? (uint64_t)steps->count : 0;
    }
    return step < (uint64_t)steps->count ? (int64_t)step : steps->count - 1;
}

int sj_steps_fill(const double *float_sorted, const int64_t *int_sorted, int64_t count, const sj_steps *steps,
                  int32_t *starts)
{
    int64_t next = 0, begin = 0;
    double met = 0; /* summed over all rows: the rows in the row's step, which a probe like it would meet */
    for (int64_t row = 0; row < count; row++) {
        const int64_t step = step_of(float_sorted, int_sorted, steps, row);
        if (step >= next) {
            met += (double)(row - begin) * (double)(row - begin);
            begin = row;
            for (; next <= step; next++) {
                starts[next] = (int32_t)row;
            }
        }
    }
    met += (double)(count - begin) * (double)(count - begin);
    for (; next <= steps->count; next++) {
        starts[next] = (int32_t)count;
    }
    return met <= (double)SJ_MAX_STEP_ROWS * (double)count;
}
