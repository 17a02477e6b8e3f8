/* One row at a time, in plain C: what every machine can run, and what the wide lanes are measured against. */
#ifndef SJ_LANES_SCALAR_H
#define SJ_LANES_SCALAR_H

#include "scan/band.h"

#define LANES 1
#define NAME(base) base##_scalar

typedef double lane_float;
typedef int64_t lane_int;
typedef unsigned lane_mask;

SJ_INLINE lane_float float_all(double value) { return value; }
SJ_INLINE lane_int int_all(int64_t value) { return value; }
SJ_INLINE lane_float float_load(const double *from) { return *from; }
SJ_INLINE lane_int int_load(const int64_t *from) { return *from; }
SJ_INLINE lane_float float_load_narrow(const float *from) { return *from; }
SJ_INLINE lane_int int_load_narrow(const int32_t *from) { return *from; }
SJ_INLINE lane_float float_load_some(const double *from, int64_t count) { return count > 0 ? *from : 0.0; }
SJ_INLINE lane_int int_load_some(const int64_t *from, int64_t count) { return count > 0 ? *from : 0; }
SJ_INLINE lane_mask mask_all(void) { return 1; }
SJ_INLINE unsigned mask_bits(lane_mask mask) { return mask; }

SJ_INLINE lane_float float_minus(lane_float left, lane_float right) { return left - right; }
SJ_INLINE unsigned float_over(lane_float difference, lane_float hi) { return difference > hi; }
SJ_INLINE unsigned float_under(lane_float difference, lane_float lo) { return difference < lo; }
SJ_INLINE unsigned int_less(lane_int first, lane_int second) { return first < second; }

SJ_INLINE lane_mask float_within(lane_mask mask, lane_float difference, lane_float lo, lane_float hi)
{
    return mask & (difference >= lo) & (difference <= hi);
}

SJ_INLINE lane_mask int_within(lane_mask mask, lane_int right, lane_int smallest, lane_int largest)
{
    return mask & (right >= smallest) & (right <= largest);
}

/* For the nested loop: whether all rows so far were outside the band, this one included. */
#define ALL_OUTSIDE 1
#define SCAN_PARTS 4

SJ_INLINE lane_int int_origin(lane_int smallest) { return smallest; }

SJ_INLINE lane_int int_width(lane_int smallest, lane_int largest)
{
    return (int64_t)((uint64_t)largest - (uint64_t)smallest);
}

SJ_INLINE lane_mask int_outside(lane_mask before, lane_int right, lane_int origin, lane_int width)
{
    return before & ((uint64_t)right - (uint64_t)origin > (uint64_t)width);
}

SJ_INLINE lane_mask float_outside(lane_mask before, lane_float difference, lane_float lo, lane_float hi)
{
    return before & ~float_within(1, difference, lo, hi);
}

/* As float_outside for lo = -hi: outside is |difference| > hi, or NaN. */
SJ_INLINE lane_mask float_beyond(lane_mask before, lane_float difference, lane_float hi)
{
    return before & !(__builtin_fabs(difference) <= hi);
}

SJ_INLINE lane_mask float_unequal(lane_mask before, lane_float left, lane_float right)
{
    return before & (left != right);
}

SJ_INLINE void mask_store(uint8_t *to, lane_mask mask) { *to = (uint8_t)mask; }

/* How many bits are set; mostly few. There is no instruction for it, and a call of the compiler's library may not link. */
SJ_INLINE int64_t bits_set(unsigned bits)
{
    int64_t set = 0;
    for (; bits; bits &= bits - 1) {
        set++;
    }
    return set;
}

/* Always stores, and counts only a match: a branch that cannot be predicted would cost more than the store. */
SJ_INLINE int64_t emit(unsigned bits, int64_t row, int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    *out_probe = probe_id;
    *out_row = (int32_t)row;
    return bits;
}

/* Writes the matches among the sixteen rows of a ring, mostly few: bit n stands for row `row + (first + n) % 16`. */
SJ_INLINE int64_t emit_chunk(unsigned bits, int64_t row, int first, int32_t probe_id, int32_t *out_probe,
                             int32_t *out_row)
{
    int64_t written = 0;
    for (; bits; bits &= bits - 1, written++) {
        out_probe[written] = probe_id;
        out_row[written] = (int32_t)(row + (first + __builtin_ctz(bits)) % 16);
    }
    return written;
}

#endif
