/* Several pairs at a time, in the compiler's vectors of LANE_BYTES; include after these are defined:
 *
 *   NAME(base)   the name of a function of this implementation
 *   LANE_BYTES   16, 32 or 64
 *
 * The order of the operations is that of the twin (streamjoin_ds.spec.functions.globe.answers).
 */
#include <string.h>

#include "globe/near_places.h"

#define LANES (LANE_BYTES / 8)

typedef double near_lane __attribute__((vector_size(LANE_BYTES)));
typedef int64_t near_mask __attribute__((vector_size(LANE_BYTES)));
typedef uint8_t near_bytes __attribute__((vector_size(LANES)));

#define DEGREES_HALF 0.008726646259971648 /* of a radian: half a degree */
#define SMALL 0.1                         /* radians of half an angle */
#define ERROR 4e-9                        /* of the product of two cosines */
#define WHOLE 6755399441055744.0          /* 1.5 * 2^52: added and subtracted, it rounds to a whole number */

SJ_INLINE near_lane near_load(const double *from)
{
    near_lane lane;
    memcpy(&lane, from, sizeof lane);
    return lane;
}

SJ_INLINE near_lane near_abs(near_lane value)
{
    return (near_lane)((near_mask)value & INT64_MAX);
}

/* The square of a sine of up to 0.1, to 5e-10 of it. */
SJ_INLINE near_lane near_square_short(near_lane angle)
{
    const near_lane square = angle * angle;
    const near_lane sum = (square * (1.0 / 120) + -1.0 / 6) * square + 1.0;
    return sum * sum * square;
}

/* The square of a sine of up to a quarter turn, to 2e-9. */
SJ_INLINE near_lane near_square_long(near_lane angle)
{
    const near_lane square = angle * angle;
    near_lane sum = square * (1.0 / 6227020800) + -1.0 / 39916800;
    sum = sum * square + 1.0 / 362880;
    sum = sum * square + -1.0 / 5040;
    sum = sum * square + 1.0 / 120;
    sum = sum * square + -1.0 / 6;
    sum = sum * square + 1.0;
    return sum * sum * square;
}

void NAME(sj_near_fill)(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out)
{
    for (int64_t first = 0; first < SJ_NEAR_PAIRS; first += LANES) {
        const near_lane lat_1 = near_load(block->column[0] + first), lon_1 = near_load(block->column[1] + first);
        const near_lane lat_2 = near_load(block->column[2] + first), lon_2 = near_load(block->column[3] + first);
        const near_lane north = (lat_1 - lat_2) * DEGREES_HALF;
        const near_lane around = lon_1 - lon_2;
        const near_lane turns = around - 360.0 * ((around * (1.0 / 360) + WHOLE) - WHOLE);
        const near_lane north_square = near_square_short(north);
        const near_lane middle_square = near_square_long((lat_1 + lat_2) * DEGREES_HALF);
        const near_lane curved = 1.0 - bounds->eccentricity * middle_square;
        const near_lane east = turns * DEGREES_HALF * (curved * bounds->inverse);
        const near_lane east_square = near_square_short(east);
        const near_lane chord = east_square * (1.0 - (middle_square + north_square)) + north_square;
        const near_lane scale = curved * curved * curved, error = east_square * ERROR;
        const near_mask is_below = chord < bounds->low * scale - error;
        const near_mask is_above = chord > bounds->high * scale + error;
        const near_lane high_1 = near_abs(lat_1), high_2 = near_abs(lat_2);
        const near_mask is_odd = (near_abs(east) >= SMALL) | (high_1 > bounds->most_latitude) |
                                 (high_2 > bounds->most_latitude);
        const near_mask may_be = (near_abs(north) < SMALL) & (high_1 <= 90.0) & (high_2 <= 90.0) &
                                 (near_abs(lon_1) <= 360.0) & (near_abs(lon_2) <= 360.0);
        const near_mask near = is_below & ~is_odd & may_be;
        const near_mask open = (~(is_below | is_above) | is_odd) & may_be;
        const near_bytes answers = __builtin_convertvector((near & 1) | (open & 2), near_bytes);
        memcpy(out + first, &answers, sizeof answers);
    }
}
