/* Four rows at a time with AVX2. It has no compress instruction: a table of 16 entries moves the matches to the front.
 *
 *   vpcmpgtq  3 cycles latency, 1 a cycle on Haswell; vcmppd 3-4 cycles, 2 a cycle from Skylake on
 *   pshufb    1 cycle, the table (256 bytes) stays in L1
 */
#ifndef SJ_LANES_AVX2_H
#define SJ_LANES_AVX2_H

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,popcnt,bmi"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,popcnt,bmi")
#endif

#include <immintrin.h>

#include "scan/band.h"

#define LANES 4
#define NAME(base) base##_avx2

typedef __m256d lane_float;
typedef __m256i lane_int;
typedef __m256d lane_mask;

SJ_INLINE lane_float float_all(double value) { return _mm256_set1_pd(value); }
SJ_INLINE lane_int int_all(int64_t value) { return _mm256_set1_epi64x(value); }
SJ_INLINE lane_float float_load(const double *from) { return _mm256_loadu_pd(from); }
SJ_INLINE lane_int int_load(const int64_t *from) { return _mm256_loadu_si256((const __m256i *)from); }

SJ_INLINE lane_float float_load_narrow(const float *from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }

SJ_INLINE lane_int int_load_narrow(const int32_t *from)
{
    return _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)from));
}

SJ_INLINE __m256i first_lanes(int64_t count)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

SJ_INLINE lane_float float_load_some(const double *from, int64_t count)
{
    return _mm256_maskload_pd(from, first_lanes(count));
}

SJ_INLINE lane_int int_load_some(const int64_t *from, int64_t count)
{
    return _mm256_maskload_epi64((const long long *)from, first_lanes(count));
}

SJ_INLINE lane_mask mask_all(void) { return _mm256_castsi256_pd(_mm256_set1_epi64x(-1)); }
SJ_INLINE unsigned mask_bits(lane_mask mask) { return (unsigned)_mm256_movemask_pd(mask); }

SJ_INLINE lane_float float_minus(lane_float left, lane_float right) { return _mm256_sub_pd(left, right); }

SJ_INLINE unsigned float_over(lane_float difference, lane_float hi)
{
    return mask_bits(_mm256_cmp_pd(difference, hi, _CMP_GT_OQ));
}

SJ_INLINE unsigned float_under(lane_float difference, lane_float lo)
{
    return mask_bits(_mm256_cmp_pd(difference, lo, _CMP_LT_OQ));
}

SJ_INLINE unsigned int_less(lane_int first, lane_int second)
{
    return mask_bits(_mm256_castsi256_pd(_mm256_cmpgt_epi64(second, first)));
}

SJ_INLINE lane_mask float_within(lane_mask mask, lane_float difference, lane_float lo, lane_float hi)
{
    const __m256d low_enough = _mm256_cmp_pd(difference, hi, _CMP_LE_OQ);
    const __m256d high_enough = _mm256_cmp_pd(difference, lo, _CMP_GE_OQ);
    return _mm256_and_pd(mask, _mm256_and_pd(low_enough, high_enough));
}

SJ_INLINE lane_mask int_within(lane_mask mask, lane_int right, lane_int smallest, lane_int largest)
{
    const __m256i too_small = _mm256_cmpgt_epi64(smallest, right);
    const __m256i too_large = _mm256_cmpgt_epi64(right, largest);
    return _mm256_andnot_pd(_mm256_castsi256_pd(_mm256_or_si256(too_small, too_large)), mask);
}

/* For the nested loop: the lanes in which all rows so far were outside the band, this row included. For integers, one
 * unsigned compare of right - smallest replaces two compares. AVX2 compares only signed integers, so both sides of the
 * compare are shifted by 2^63. */
#define ALL_OUTSIDE 0xf
#define SCAN_PARTS 4

SJ_INLINE lane_int int_origin(lane_int smallest)
{
    return _mm256_xor_si256(smallest, _mm256_set1_epi64x(INT64_MIN));
}

SJ_INLINE lane_int int_width(lane_int smallest, lane_int largest)
{
    return int_origin(_mm256_sub_epi64(largest, smallest));
}

SJ_INLINE lane_mask int_outside(lane_mask before, lane_int right, lane_int origin, lane_int width)
{
    return _mm256_and_pd(before, _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_sub_epi64(right, origin), width)));
}

SJ_INLINE lane_mask float_outside(lane_mask before, lane_float difference, lane_float lo, lane_float hi)
{
    return _mm256_andnot_pd(float_within(mask_all(), difference, lo, hi), before);
}

/* As float_outside for lo = -hi: outside is |difference| > hi, or NaN. */
SJ_INLINE lane_mask float_beyond(lane_mask before, lane_float difference, lane_float hi)
{
    const __m256d positive = _mm256_andnot_pd(_mm256_set1_pd(-0.0), difference);
    return _mm256_and_pd(before, _mm256_cmp_pd(positive, hi, _CMP_NLE_UQ));
}

SJ_INLINE lane_mask float_unequal(lane_mask before, lane_float left, lane_float right)
{
    return _mm256_and_pd(before, _mm256_cmp_pd(left, right, _CMP_NEQ_UQ));
}

SJ_INLINE void mask_store(uint8_t *to, lane_mask mask) { *to = (uint8_t)mask_bits(mask); }

/* Bit i says whether byte i of 64 differs from `value`. */
SJ_INLINE uint64_t bytes_other_than(const uint8_t *from, int value)
{
    const __m256i values = _mm256_set1_epi8((char)value);
    const __m256i first = _mm256_loadu_si256((const __m256i *)from);
    const __m256i second = _mm256_loadu_si256((const __m256i *)(from + 32));
    const uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(first, values));
    const uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(second, values));
    return ~((uint64_t)high << 32 | low);
}

#define SJ_WORD(k) 4 * (k), 4 * (k) + 1, 4 * (k) + 2, 4 * (k) + 3
static const uint8_t front_of[16][16] __attribute__((aligned(16), unused)) = {
    {SJ_WORD(0), SJ_WORD(0), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(0), SJ_WORD(0), SJ_WORD(0)},
    {SJ_WORD(1), SJ_WORD(0), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(1), SJ_WORD(0), SJ_WORD(0)},
    {SJ_WORD(2), SJ_WORD(0), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(2), SJ_WORD(0), SJ_WORD(0)},
    {SJ_WORD(1), SJ_WORD(2), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(1), SJ_WORD(2), SJ_WORD(0)},
    {SJ_WORD(3), SJ_WORD(0), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(3), SJ_WORD(0), SJ_WORD(0)},
    {SJ_WORD(1), SJ_WORD(3), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(1), SJ_WORD(3), SJ_WORD(0)},
    {SJ_WORD(2), SJ_WORD(3), SJ_WORD(0), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(2), SJ_WORD(3), SJ_WORD(0)},
    {SJ_WORD(1), SJ_WORD(2), SJ_WORD(3), SJ_WORD(0)}, {SJ_WORD(0), SJ_WORD(1), SJ_WORD(2), SJ_WORD(3)},
};
#undef SJ_WORD

/* How many bits are set. */
SJ_INLINE int64_t bits_set(unsigned bits) { return __builtin_popcount(bits); }

/* Writes four items, whatever the number of matches: the caller keeps room for them. */
SJ_INLINE int64_t emit_rows(unsigned bits, __m128i rows, int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    const __m128i front = _mm_load_si128((const __m128i *)front_of[bits]);
    _mm_storeu_si128((__m128i *)out_row, _mm_shuffle_epi8(rows, front));
    _mm_storeu_si128((__m128i *)out_probe, _mm_set1_epi32(probe_id));
    return bits_set(bits);
}

SJ_INLINE int64_t emit(unsigned bits, int64_t row, int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    const __m128i rows = _mm_add_epi32(_mm_set1_epi32((int32_t)row), _mm_setr_epi32(0, 1, 2, 3));
    return emit_rows(bits, rows, probe_id, out_probe, out_row);
}

/* The same for the sixteen rows of a ring: bit n stands for row `row + (first + n) % 16`. */
SJ_INLINE int64_t emit_chunk(unsigned bits, int64_t row, int first, int32_t probe_id, int32_t *out_probe,
                             int32_t *out_row)
{
    int64_t written = 0;
    for (int n = 0; n < 16; n += LANES) {
        const __m128i lanes = _mm_add_epi32(_mm_set1_epi32(first + n), _mm_setr_epi32(0, 1, 2, 3));
        const __m128i ring = _mm_and_si128(lanes, _mm_set1_epi32(15));
        const __m128i rows = _mm_add_epi32(_mm_set1_epi32((int32_t)row), ring);
        written += emit_rows(bits >> n & 15, rows, probe_id, out_probe + written, out_row + written);
    }
    return written;
}

#endif
