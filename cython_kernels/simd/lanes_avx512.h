/* Eight rows at a time with AVX-512 (F, VL, DQ, BW).
 *
 *   vcmppd/vpcmpq to a mask   3-5 cycles, 1 a cycle (Skylake-X), 2 a cycle (Zen 5)
 *   vpcompressd in a register 3-6 cycles, 1 in 2 cycles
 *   vpcompressd to memory     microcoded on Zen 4, over 100 cycles: compress in a register and store whole
 */
#ifndef SJ_LANES_AVX512_H
#define SJ_LANES_AVX512_H

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,popcnt,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,popcnt,bmi,bmi2")
#endif

#include <immintrin.h>

#include "scan/band.h"

#define LANES 8
#define NAME(base) base##_avx512

typedef __m512d lane_float;
typedef __m512i lane_int;
typedef __mmask8 lane_mask;

SJ_INLINE lane_float float_all(double value) { return _mm512_set1_pd(value); }
SJ_INLINE lane_int int_all(int64_t value) { return _mm512_set1_epi64(value); }
SJ_INLINE lane_float float_load(const double *from) { return _mm512_loadu_pd(from); }
SJ_INLINE lane_int int_load(const int64_t *from) { return _mm512_loadu_si512(from); }

SJ_INLINE lane_float float_load_narrow(const float *from) { return _mm512_cvtps_pd(_mm256_loadu_ps(from)); }

SJ_INLINE lane_float float_load_some(const double *from, int64_t count)
{
    return _mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), from);
}

SJ_INLINE lane_int int_load_some(const int64_t *from, int64_t count)
{
    return _mm512_maskz_loadu_epi64((__mmask8)((1u << count) - 1), from);
}

/* The items whose bit is set; zero elsewhere, where nothing is read. */
SJ_INLINE lane_float float_load_bits(const double *from, unsigned bits)
{
    return _mm512_maskz_loadu_pd((__mmask8)bits, from);
}

SJ_INLINE lane_float float_load_narrow_bits(const float *from, unsigned bits)
{
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps((__mmask8)bits, from));
}

SJ_INLINE lane_int int_load_bits(const int64_t *from, unsigned bits)
{
    return _mm512_maskz_loadu_epi64((__mmask8)bits, from);
}

SJ_INLINE lane_int int_load_narrow_bits(const int32_t *from, unsigned bits)
{
    return _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32((__mmask8)bits, from));
}

SJ_INLINE lane_float float_plus(lane_float left, lane_float right) { return _mm512_add_pd(left, right); }
SJ_INLINE double float_total(lane_float values) { return _mm512_reduce_add_pd(values); }

/* Whether a value is not below the limit in size, or two others differ; NaN is and does. */
SJ_INLINE unsigned floats_unfit(lane_float value, lane_float limit, lane_float left, lane_float right)
{
    return _mm512_cmp_pd_mask(_mm512_abs_pd(value), limit, _CMP_NLT_UQ) | _mm512_cmp_pd_mask(left, right, _CMP_NEQ_UQ);
}

/* Numbers in the order of floats: NaN is the largest, whatever its bits, and -0.0 is below 0.0. */
SJ_INLINE lane_int float_ordered(lane_float values)
{
    const __mmask8 nan = _mm512_cmp_pd_mask(values, values, _CMP_UNORD_Q);
    const __m512i bits = _mm512_castpd_si512(_mm512_mask_mov_pd(values, nan, _mm512_set1_pd(__builtin_nan(""))));
    const __m512i sign = _mm512_srai_epi64(bits, 63);
    return _mm512_xor_si512(bits, _mm512_and_si512(sign, _mm512_set1_epi64(INT64_MAX)));
}

SJ_INLINE lane_int int_plus(lane_int left, lane_int right) { return _mm512_add_epi64(left, right); }
SJ_INLINE lane_int int_flipped(lane_int values, lane_int flips) { return _mm512_xor_si512(values, flips); }
SJ_INLINE int64_t int_total(lane_int values) { return _mm512_reduce_add_epi64(values); }
SJ_INLINE int64_t int_least_lane(lane_int values) { return _mm512_reduce_min_epi64(values); }

/* A value is its upper part times 2^32, and its lower part, which is not negative. */
SJ_INLINE lane_int int_upper(lane_int values) { return _mm512_srai_epi64(values, 32); }
SJ_INLINE lane_int int_lower(lane_int values) { return _mm512_and_si512(values, _mm512_set1_epi64(0xffffffff)); }

SJ_INLINE lane_int int_least(lane_int least, lane_int values, unsigned bits)
{
    return _mm512_mask_min_epi64(least, (__mmask8)bits, least, values);
}

/* Bit n of the three below: whether item n of sixteen is within lowest..highest. */
SJ_INLINE unsigned narrow_floats_within(const float *from, float lowest, float highest)
{
    const __m512 values = _mm512_loadu_ps(from);
    const __mmask16 large_enough = _mm512_cmp_ps_mask(values, _mm512_set1_ps(lowest), _CMP_GE_OQ);
    return _mm512_mask_cmp_ps_mask(large_enough, values, _mm512_set1_ps(highest), _CMP_LE_OQ);
}

SJ_INLINE unsigned narrow_ints_within(const int32_t *from, int32_t lowest, int32_t highest)
{
    const __m512i values = _mm512_loadu_si512(from);
    const __mmask16 large_enough = _mm512_cmpge_epi32_mask(values, _mm512_set1_epi32(lowest));
    return _mm512_mask_cmple_epi32_mask(large_enough, values, _mm512_set1_epi32(highest));
}

SJ_INLINE unsigned ints_within(const int64_t *from, lane_int smallest, lane_int largest)
{
    unsigned bits = 0;
    for (int n = 0; n < 16; n += LANES) {
        const __m512i values = int_load(from + n);
        const __mmask8 large_enough = _mm512_cmpge_epi64_mask(values, smallest);
        bits |= (unsigned)_mm512_mask_cmple_epi64_mask(large_enough, values, largest) << n;
    }
    return bits;
}

SJ_INLINE lane_mask mask_all(void) { return 0xff; }
SJ_INLINE unsigned mask_bits(lane_mask mask) { return mask; }

SJ_INLINE lane_float float_minus(lane_float left, lane_float right) { return _mm512_sub_pd(left, right); }

SJ_INLINE unsigned float_over(lane_float difference, lane_float hi)
{
    return _mm512_cmp_pd_mask(difference, hi, _CMP_GT_OQ);
}

SJ_INLINE unsigned float_under(lane_float difference, lane_float lo)
{
    return _mm512_cmp_pd_mask(difference, lo, _CMP_LT_OQ);
}

SJ_INLINE unsigned int_less(lane_int first, lane_int second) { return _mm512_cmplt_epi64_mask(first, second); }

SJ_INLINE lane_mask float_within(lane_mask mask, lane_float difference, lane_float lo, lane_float hi)
{
    return _mm512_mask_cmp_pd_mask(_mm512_mask_cmp_pd_mask(mask, difference, lo, _CMP_GE_OQ), difference, hi, _CMP_LE_OQ);
}

SJ_INLINE lane_mask int_within(lane_mask mask, lane_int right, lane_int smallest, lane_int largest)
{
    /* One unsigned compare instead of two, as smallest <= largest. Compilers move their difference out of the loops. */
    return _mm512_mask_cmple_epu64_mask(mask, _mm512_sub_epi64(right, smallest), _mm512_sub_epi64(largest, smallest));
}

/* For the nested loop: the lanes in which all rows so far were outside the band, this row included. The compares are
 * chained by their masks, because an OR of masks would need the ports that the compares use. */
#define ALL_OUTSIDE 0xff
#define SCAN_PARTS 2

SJ_INLINE lane_int int_origin(lane_int smallest) { return smallest; }

SJ_INLINE lane_int int_width(lane_int smallest, lane_int largest) { return _mm512_sub_epi64(largest, smallest); }

SJ_INLINE lane_mask int_outside(lane_mask before, lane_int right, lane_int origin, lane_int width)
{
    return _mm512_mask_cmpgt_epu64_mask(before, _mm512_sub_epi64(right, origin), width);
}

SJ_INLINE lane_mask float_outside(lane_mask before, lane_float difference, lane_float lo, lane_float hi)
{
    return _kandn_mask8(float_within(mask_all(), difference, lo, hi), before);
}

/* As float_outside for lo = -hi: outside is |difference| > hi, or NaN. */
SJ_INLINE lane_mask float_beyond(lane_mask before, lane_float difference, lane_float hi)
{
    return _mm512_mask_cmp_pd_mask(before, _mm512_abs_pd(difference), hi, _CMP_NLE_UQ);
}

SJ_INLINE lane_mask float_unequal(lane_mask before, lane_float left, lane_float right)
{
    return _mm512_mask_cmp_pd_mask(before, left, right, _CMP_NEQ_UQ);
}

SJ_INLINE void mask_store(uint8_t *to, lane_mask mask) { _store_mask8((__mmask8 *)to, mask); }

/* Bit i says whether byte i of 64 differs from `value`. */
SJ_INLINE uint64_t bytes_other_than(const uint8_t *from, int value)
{
    return _mm512_cmpneq_epu8_mask(_mm512_loadu_si512(from), _mm512_set1_epi8((char)value));
}

/* How many bits are set. */
SJ_INLINE int64_t bits_set(unsigned bits) { return __builtin_popcount(bits); }

/* Writes eight items, whatever the number of matches: the caller keeps room for them. */
SJ_INLINE int64_t emit(unsigned bits, int64_t row, int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    const __m256i rows = _mm256_add_epi32(_mm256_set1_epi32((int32_t)row), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_storeu_si256((__m256i *)out_row, _mm256_maskz_compress_epi32((__mmask8)bits, rows));
    _mm256_storeu_si256((__m256i *)out_probe, _mm256_set1_epi32(probe_id));
    return bits_set(bits);
}

/* The same for the sixteen rows of a ring: bit n stands for row `row + (first + n) % 16`. */
SJ_INLINE int64_t emit_chunk(unsigned bits, int64_t row, int first, int32_t probe_id, int32_t *out_probe,
                             int32_t *out_row)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i ring = _mm512_and_si512(_mm512_add_epi32(lanes, _mm512_set1_epi32(first)), _mm512_set1_epi32(15));
    const __m512i rows = _mm512_add_epi32(_mm512_set1_epi32((int32_t)row), ring);
    _mm512_storeu_si512(out_row, _mm512_maskz_compress_epi32((__mmask16)bits, rows));
    _mm512_storeu_si512(out_probe, _mm512_set1_epi32(probe_id));
    return bits_set(bits);
}

#endif
