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
SJ_INLINE lane_float float_load_some(const double *from, int64_t count) { return count > 0 ? *from : 0.0; }
SJ_INLINE lane_int int_load_some(const int64_t *from, int64_t count) { return count > 0 ? *from : 0; }

/* The item, where its bit is set; else zero, and nothing is read. */
SJ_INLINE lane_float float_load_bits(const double *from, unsigned bits) { return bits ? *from : 0.0; }
SJ_INLINE lane_float float_load_narrow_bits(const float *from, unsigned bits) { return bits ? *from : 0.0; }
SJ_INLINE lane_int int_load_bits(const int64_t *from, unsigned bits) { return bits ? *from : 0; }
SJ_INLINE lane_int int_load_narrow_bits(const int32_t *from, unsigned bits) { return bits ? *from : 0; }
SJ_INLINE lane_float float_plus(lane_float left, lane_float right) { return left + right; }
SJ_INLINE double float_total(lane_float value) { return value; }

/* Whether a value is not below the limit in size, or two others differ; NaN is and does. */
SJ_INLINE unsigned floats_unfit(lane_float value, lane_float limit, lane_float left, lane_float right)
{
    return !(__builtin_fabs(value) < limit) | (left != right);
}

/* The number in the order of floats: NaN is the largest, whatever its bits, and -0.0 is below 0.0. */
SJ_INLINE lane_int float_ordered(lane_float value)
{
    const union {
        double number;
        int64_t bits;
    } as = {value == value ? value : __builtin_nan("")};
    return as.bits ^ ((as.bits >> 63) & INT64_MAX);
}

SJ_INLINE lane_int int_plus(lane_int left, lane_int right) { return left + right; }
SJ_INLINE lane_int int_flipped(lane_int value, lane_int flips) { return value ^ flips; }
SJ_INLINE int64_t int_total(lane_int value) { return value; }
SJ_INLINE int64_t int_least_lane(lane_int value) { return value; }

/* A value is its upper part times 2^32, and its lower part, which is not negative. */
SJ_INLINE lane_int int_upper(lane_int value) { return value >> 32; }
SJ_INLINE lane_int int_lower(lane_int value) { return value & 0xffffffff; }

SJ_INLINE lane_int int_least(lane_int least, lane_int value, unsigned bits)
{
    return bits && value < least ? value : least;
}

/* Bit n of the three below: whether item n of sixteen is within lowest..highest. */
#define SIXTEEN_WITHIN(from, lowest, highest)                                     \
    unsigned bits = 0;                                                            \
    for (int n = 0; n < 16; n++) {                                                \
        bits |= (unsigned)((from[n] >= (lowest)) & (from[n] <= (highest))) << n;  \
    }                                                                             \
    return bits;

SJ_INLINE unsigned narrow_floats_within(const float *from, float lowest, float highest)
{
    SIXTEEN_WITHIN(from, lowest, highest)
}

SJ_INLINE unsigned narrow_ints_within(const int32_t *from, int32_t lowest, int32_t highest)
{
    SIXTEEN_WITHIN(from, lowest, highest)
}

SJ_INLINE unsigned ints_within(const int64_t *from, lane_int smallest, lane_int largest)
{
    SIXTEEN_WITHIN(from, smallest, largest)
}

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
