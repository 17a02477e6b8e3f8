/* The items of 4 bytes that pass a probe's condition, so that they can be tested in lanes of 4 bytes (CellJoin, eq. 1).
 *
 *   float64  lo <= left - item <= hi      ──►     lowest <= item <= highest     float32
 *
 * left - item falls as the item grows, with rounding too. So the items that pass lie side by side, and the ends are
 * looked for around what real numbers give. Where they are not there, items are tested in 8 bytes.
 */
#ifndef SJ_NARROW_ITEMS_H
#define SJ_NARROW_ITEMS_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "scan/band.h"

typedef struct {
    float lowest;
    float highest;
    int is_exact; /* whether the ends were found */
} sj_narrow_floats;

typedef struct {
    int32_t lowest;
    int32_t highest;
} sj_narrow_ints;

/* Returns the float32 that is `steps` behind another in the order of the values; both zeros are one. */
SJ_INLINE float sj_float_behind(float value, int steps)
{
    int32_t number;
    memcpy(&number, &value, sizeof number);
    number = (number < 0 ? INT32_MIN - number : number) + steps;
    number = number < 0 ? INT32_MIN - number : number;
    memcpy(&value, &number, sizeof value);
    return value;
}

/* Returns the end of the items with sign * (left - item) <= sign * limit: the smallest of them where `sign` is 1, the
 * largest where it is -1. NaN: it is neither of the two around what real numbers give. */
SJ_INLINE float sj_narrow_end(double left, double limit, int sign)
{
    const double end = left - limit, most = sign * limit;
    if (!(fabs(end) < FLT_MAX)) {
        return NAN;
    }
    /* Without a branch: on which side of the end a float32 lies is hard to predict. */
    const float here = (float)end, inside = sj_float_behind(here, sign), outside = sj_float_behind(here, -sign);
    const int passes = sign * (left - here) <= most;
    const int is_end = (sign * (left - outside) > most) & (passes | (sign * (left - inside) <= most));
    return !is_end ? NAN : passes ? here : inside;
}

/* Returns the float32 items that pass a condition on floats. */
SJ_INLINE sj_narrow_floats sj_narrow_floats_of(const sj_probe *probe, int slot)
{
    const double left = probe->left[slot], lo = probe->lo[slot], hi = probe->hi[slot];
    sj_narrow_floats narrow;
    narrow.lowest = hi == INFINITY ? -INFINITY : sj_narrow_end(left, hi, 1);
    narrow.highest = lo == -INFINITY ? INFINITY : sj_narrow_end(left, lo, -1);
    narrow.is_exact = isfinite(left) && !isnan(narrow.lowest) && !isnan(narrow.highest);
    return narrow;
}

/* Returns the int32 items that pass a condition on integers; where there are none, lowest is above highest. */
SJ_INLINE sj_narrow_ints sj_narrow_ints_of(const sj_probe *probe, int slot)
{
    const int64_t smallest = probe->smallest[slot], largest = probe->largest[slot];
    sj_narrow_ints narrow = {INT32_MAX, INT32_MIN};
    if (smallest <= INT32_MAX && largest >= INT32_MIN) {
        narrow.lowest = (int32_t)(smallest > INT32_MIN ? smallest : INT32_MIN);
        narrow.highest = (int32_t)(largest < INT32_MAX ? largest : INT32_MAX);
    }
    return narrow;
}

#endif
