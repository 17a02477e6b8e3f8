/* Four rows at a time with AVX2. It has no compress instruction: a table of 16 entries moves the matches to the front.
 *
 *   vpcmpgtq  3 cycles latency, 1 a cycle on Haswell; vcmppd 3-4 cycles, 2 a cycle from Skylake on
 *   pshufb    1 cycle, the table (256 bytes) stays in L1
 */
#ifndef SJ_LANES_AVX2_H
#define SJ_LANES_AVX2_H

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,popcnt,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,popcnt,bmi,bmi2")
#endif

#include <immintrin.h>

#include "scan/band.h"
#include "simd/dispatch.h"

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

SJ_INLINE __m256i lanes_of(unsigned bits)
{
    const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
    return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits), each), each);
}

SJ_INLINE __m128i narrow_lanes_of(unsigned bits)
{
    const __m128i each = _mm_setr_epi32(1, 2, 4, 8);
    return _mm_cmpeq_epi32(_mm_and_si128(_mm_set1_epi32((int)bits), each), each);
}

/* The items whose bit is set; zero elsewhere, where nothing is read. */
SJ_INLINE lane_float float_load_bits(const double *from, unsigned bits)
{
    return _mm256_maskload_pd(from, lanes_of(bits));
}

SJ_INLINE lane_float float_load_narrow_bits(const float *from, unsigned bits)
{
    return _mm256_cvtps_pd(_mm_maskload_ps(from, narrow_lanes_of(bits)));
}

SJ_INLINE lane_int int_load_bits(const int64_t *from, unsigned bits)
{
    return _mm256_maskload_epi64((const long long *)from, lanes_of(bits));
}

SJ_INLINE lane_int int_load_narrow_bits(const int32_t *from, unsigned bits)
{
    return _mm256_cvtepi32_epi64(_mm_maskload_epi32(from, narrow_lanes_of(bits)));
}

SJ_INLINE lane_float float_plus(lane_float left, lane_float right) { return _mm256_add_pd(left, right); }

SJ_INLINE double float_total(lane_float values)
{
    double each[4];
    _mm256_storeu_pd(each, values);
    return each[0] + each[1] + each[2] + each[3];
}

/* Whether a value is not below the limit in size, or two others differ; NaN is and does. */
SJ_INLINE unsigned floats_unfit(lane_float value, lane_float limit, lane_float left, lane_float right)
{
    const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
    const __m256d large = _mm256_cmp_pd(size, limit, _CMP_NLT_UQ);
    return (unsigned)_mm256_movemask_pd(_mm256_or_pd(large, _mm256_cmp_pd(left, right, _CMP_NEQ_UQ)));
}

/* Numbers in the order of floats: NaN is the largest, whatever its bits, and -0.0 is below 0.0. */
SJ_INLINE lane_int float_ordered(lane_float values)
{
    const __m256d nan = _mm256_cmp_pd(values, values, _CMP_UNORD_Q);
    const __m256i bits = _mm256_castpd_si256(_mm256_blendv_pd(values, _mm256_set1_pd(__builtin_nan("")), nan));
    const __m256i sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), bits);
    return _mm256_xor_si256(bits, _mm256_and_si256(sign, _mm256_set1_epi64x(INT64_MAX)));
}

SJ_INLINE lane_int int_plus(lane_int left, lane_int right) { return _mm256_add_epi64(left, right); }
SJ_INLINE lane_int int_flipped(lane_int values, lane_int flips) { return _mm256_xor_si256(values, flips); }

SJ_INLINE int64_t int_total(lane_int values)
{
    int64_t each[4];
    _mm256_storeu_si256((__m256i *)each, values);
    return each[0] + each[1] + each[2] + each[3];
}

SJ_INLINE int64_t int_least_lane(lane_int values)
{
    int64_t each[4];
    _mm256_storeu_si256((__m256i *)each, values);
    for (int lane = 1; lane < 4; lane++) {
        each[0] = each[lane] < each[0] ? each[lane] : each[0];
    }
    return each[0];
}

/* A value is its upper part times 2^32, and its lower part, which is not negative. */
SJ_INLINE lane_int int_upper(lane_int values)
{
    /* There is no shift of 64 bits that keeps the sign: the words above are -1 or 0. */
    const __m256i sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), values);
    return _mm256_blend_epi32(_mm256_srli_epi64(values, 32), sign, 0xaa);
}

SJ_INLINE lane_int int_lower(lane_int values)
{
    return _mm256_and_si256(values, _mm256_set1_epi64x(0xffffffff));
}

SJ_INLINE lane_int int_least(lane_int least, lane_int values, unsigned bits)
{
    const __m256i smaller = _mm256_and_si256(_mm256_cmpgt_epi64(least, values), lanes_of(bits));
    return _mm256_blendv_epi8(least, values, smaller);
}

/* Bit n of the four below: whether item n of sixteen is within lowest..highest. */
SJ_INLINE unsigned narrow_floats_within(const float *from, float lowest, float highest)
{
    unsigned bits = 0;
    for (int n = 0; n < 16; n += 8) {
        const __m256 values = _mm256_loadu_ps(from + n);
        const __m256 large_enough = _mm256_cmp_ps(values, _mm256_set1_ps(lowest), _CMP_GE_OQ);
        const __m256 small_enough = _mm256_cmp_ps(values, _mm256_set1_ps(highest), _CMP_LE_OQ);
        bits |= (unsigned)_mm256_movemask_ps(_mm256_and_ps(large_enough, small_enough)) << n;
    }
    return bits;
}

SJ_INLINE unsigned narrow_ints_within(const int32_t *from, int32_t lowest, int32_t highest)
{
    unsigned outside = 0;
    for (int n = 0; n < 16; n += 8) {
        const __m256i values = _mm256_loadu_si256((const __m256i *)(from + n));
        const __m256i too_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(lowest), values);
        const __m256i too_large = _mm256_cmpgt_epi32(values, _mm256_set1_epi32(highest));
        outside |= (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(too_small, too_large))) << n;
    }
    return ~outside;
}

SJ_INLINE unsigned ints_within(const int64_t *from, lane_int smallest, lane_int largest)
{
    unsigned outside = 0;
    for (int n = 0; n < 16; n += LANES) {
        const __m256i values = int_load(from + n);
        const __m256i too_small = _mm256_cmpgt_epi64(smallest, values), too_large = _mm256_cmpgt_epi64(values, largest);
        outside |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_or_si256(too_small, too_large))) << n;
    }
    return ~outside;
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
SJ_INLINE int64_t emit(unsigned bits, int64_t row, int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    const __m128i front = _mm_load_si128((const __m128i *)front_of[bits]);
    const __m128i rows = _mm_add_epi32(_mm_set1_epi32((int32_t)row), _mm_setr_epi32(0, 1, 2, 3));
    _mm_storeu_si128((__m128i *)out_row, _mm_shuffle_epi8(rows, front));
    _mm_storeu_si128((__m128i *)out_probe, _mm_set1_epi32(probe_id));
    return bits_set(bits);
}

/* The same for the sixteen rows of a ring: bit n stands for row `row + (first + n) % 16`. All sixteen may be written. */
SJ_INLINE int64_t emit_chunk(unsigned bits, int64_t row, int first, int32_t probe_id, int32_t *out_probe,
                             int32_t *out_row)
{
    const int64_t before = bits_set(bits & 255);
    const __m256i rows = _mm256_set1_epi32((int32_t)row), ring = _mm256_set1_epi32(15);
    const __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)sj_set_bits[bits & 255]));
    const __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)sj_set_bits[bits >> 8]));
    const __m256i low_lanes = _mm256_and_si256(_mm256_add_epi32(low, _mm256_set1_epi32(first)), ring);
    const __m256i high_lanes = _mm256_and_si256(_mm256_add_epi32(high, _mm256_set1_epi32(first + 8)), ring);
    _mm256_storeu_si256((__m256i *)out_row, _mm256_add_epi32(rows, low_lanes));
    _mm256_storeu_si256((__m256i *)(out_row + before), _mm256_add_epi32(rows, high_lanes));
    _mm256_storeu_si256((__m256i *)out_probe, _mm256_set1_epi32(probe_id));
    _mm256_storeu_si256((__m256i *)(out_probe + 8), _mm256_set1_epi32(probe_id));
    return before + bits_set(bits >> 8);
}

#endif
