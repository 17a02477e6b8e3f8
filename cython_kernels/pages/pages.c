#include "pages/pages.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A block has one smallest difference, and each of its parts a width of its own: parquet-format, Encodings.md. */
enum { BLOCK = 128, PARTS = 4, PART = BLOCK / PARTS };

/* What becomes part of its callers, for each processor that they are compiled for. */
#define INLINE static inline __attribute__((always_inline))

INLINE uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *out++ = (uint8_t)(value | 128);
    }
    *out++ = (uint8_t)value;
    return out;
}

INLINE uint8_t *put_signed(uint8_t *out, int64_t value)
{
    return put_varint(out, ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0));
}

/* The width is a constant in each call, so that the loop becomes shifts and stores without a branch. */
INLINE void pack_part(const uint64_t *values, uint64_t least, const unsigned width, uint8_t *out)
{
    uint64_t word = 0;
    unsigned filled = 0;
#pragma GCC unroll 32
    for (int i = 0; i < PART; i++) {
        const uint64_t value = values[i] - least;
        word |= value << filled;
        filled += width;
        if (filled >= 64) {
            memcpy(out, &word, 8);
            out += 8;
            filled -= 64;
            word = filled ? value >> (width - filled) : 0;
        }
    }
    if (filled) { /* 32 values of an odd width end with half a word */
        memcpy(out, &word, 4);
    }
}

#define WIDTH(W)                           \
    case W:                                \
        pack_part(values, least, W, out);  \
        break;
#define WIDTHS_4(W) WIDTH(W) WIDTH(W + 1) WIDTH(W + 2) WIDTH(W + 3)
#define WIDTHS_16(W) WIDTHS_4(W) WIDTHS_4(W + 4) WIDTHS_4(W + 8) WIDTHS_4(W + 12)

INLINE uint8_t *put_part(const uint64_t *values, uint64_t least, uint8_t *width, uint8_t *out)
{
    uint64_t any = 0;
    for (int i = 0; i < PART; i++) {
        any |= values[i] - least;
    }
    *width = any ? (uint8_t)(64 - __builtin_clzll(any)) : 0;
    switch (*width) {
        WIDTHS_16(1) WIDTHS_16(17) WIDTHS_16(33) WIDTHS_16(49)
    default:
        break;
    }
    return out + PART / 8 * *width;
}

/* Differences wrap around in the width of their values, so each fits into that width. */
#define STEPS(TYPE, UNSIGNED)                                                            \
    for (int i = 0; i < n; i++) {                                                        \
        const TYPE *at = (const TYPE *)values + first + i;                               \
        const int64_t step = (TYPE)((UNSIGNED)at[0] - (UNSIGNED)at[-1]);                 \
        steps[i] = (uint64_t)step;                                                       \
        least = step < least ? step : least;                                             \
    }

INLINE int64_t pack(const void *values, int64_t count, int item_bytes, uint8_t *out)
{
    const uint8_t *begin = out;
    uint64_t steps[BLOCK];
    if (count == 0) {
        return 0;
    }
    out = put_varint(put_varint(put_varint(out, BLOCK), PARTS), (uint64_t)count);
    out = put_signed(out, item_bytes == 8 ? *(const int64_t *)values : *(const int32_t *)values);
    for (int64_t first = 1; first < count; first += BLOCK) {
        const int n = count - first < BLOCK ? (int)(count - first) : BLOCK;
        int64_t least = INT64_MAX;
        if (item_bytes == 8) {
            STEPS(int64_t, uint64_t)
        } else {
            STEPS(int32_t, uint32_t)
        }
        for (int i = n; i < BLOCK; i++) {
            steps[i] = (uint64_t)least;
        }
        out = put_signed(out, least);
        uint8_t *widths = out;
        out += PARTS;
        for (int part = 0; part < PARTS; part++) {
            out = put_part(steps + part * PART, (uint64_t)least, widths + part, out);
        }
        if (out - begin >= count * item_bytes) {
            return 0;
        }
    }
    return out - begin < count * item_bytes ? out - begin : 0;
}

#if defined(__x86_64__)
__attribute__((target("avx2,bmi,bmi2"))) static int64_t pack_wide(const void *values, int64_t count, int item_bytes,
                                                                  uint8_t *out)
{
    return pack(values, count, item_bytes, out);
}
#else
#define pack_wide pack
#endif

int64_t sj_pack_differences(const void *values, int64_t count, int item_bytes, int is_wide, uint8_t *out)
{
    return is_wide ? pack_wide(values, count, item_bytes, out) : pack(values, count, item_bytes, out);
}

/* How many values differ from the one before: compilers make SIMD of it. */
#define COUNT_CHANGES(TYPE)                                                 \
    for (int64_t i = first; i < end; i++) {                                 \
        changes += ((const TYPE *)values)[i] != ((const TYPE *)values)[i - 1]; \
    }

static uint32_t count_changes(const void *values, int64_t first, int64_t end, int item_bytes)
{
    uint32_t changes = 0;
    if (item_bytes == 8) {
        COUNT_CHANGES(uint64_t)
    } else {
        COUNT_CHANGES(uint32_t)
    }
    return changes;
}

enum { COUNTED = 4096, MASKED = 16 }; /* values between two looks at the count; values of a mask */

/* Returns a bit for each of MASKED values from `first` on: whether it differs from the one before. */
static inline uint32_t changes_mask(const void *values, int64_t first, int item_bytes)
{
    uint32_t mask = 0;
#if defined(__SSE2__)
    const __m128i *from = (const __m128i *)((const char *)values + first * item_bytes);
    const __m128i *before = (const __m128i *)((const char *)values + (first - 1) * item_bytes);
    for (int at = 0; at < item_bytes; at++) { /* as many registers as an item has bytes */
        const __m128i equal = _mm_cmpeq_epi32(_mm_loadu_si128(from + at), _mm_loadu_si128(before + at));
        if (item_bytes == 8) {
            const __m128i both = _mm_and_si128(equal, _mm_shuffle_epi32(equal, _MM_SHUFFLE(2, 3, 0, 1)));
            mask |= (uint32_t)_mm_movemask_pd(_mm_castsi128_pd(both)) << 2 * at;
        } else {
            mask |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(equal)) << 4 * at;
        }
    }
    return ~mask & ((1u << MASKED) - 1);
#else
    for (int64_t at = 0; at < MASKED; at++) {
        const char *item = (const char *)values + (first + at) * item_bytes;
        mask |= (uint32_t)(memcmp(item, item - item_bytes, (size_t)item_bytes) != 0) << at;
    }
    return mask;
#endif
}

/* Whether the runs from `first` on, with those before, are more than `most`. */
static int are_too_many(const void *values, int64_t first, int64_t count, int item_bytes, int64_t runs, int64_t most)
{
    for (; first < count && runs <= most; first += COUNTED) {
        runs += count_changes(values, first, first + COUNTED < count ? first + COUNTED : count, item_bytes);
    }
    return runs > most;
}

#define ADD_RUN(at)                     \
    do {                                \
        to[runs] = from[at];            \
        starts[runs++] = (int32_t)(at); \
    } while (0)

/* Where the first values hardly come in runs, the others are counted before any more are written. */
#define FIND_RUNS(TYPE)                                                                                       \
    do {                                                                                                      \
        const TYPE *from = values;                                                                            \
        TYPE *to = firsts;                                                                                    \
        ADD_RUN(0);                                                                                           \
        for (; i + MASKED <= count && runs + MASKED <= most; i += MASKED) {                                   \
            if (i == COUNTED + 1 && runs > COUNTED / 2 && are_too_many(from, i, count, item_bytes, runs, most)) { \
                return 0;                                                                                     \
            }                                                                                                 \
            for (uint32_t mask = changes_mask(from, i, sizeof(TYPE)); mask; mask &= mask - 1) {               \
                ADD_RUN(i + __builtin_ctz(mask));                                                             \
            }                                                                                                 \
        }                                                                                                     \
        for (; i < count && runs <= most; i++) {                                                              \
            if (from[i] != from[i - 1]) {                                                                     \
                ADD_RUN(i);                                                                                   \
            }                                                                                                 \
        }                                                                                                     \
    } while (0)

int64_t sj_find_runs(const void *values, int64_t count, int item_bytes, int64_t most, void *firsts, int32_t *starts)
{
    int64_t runs = 0, i = 1;
    if (count == 0 || most == 0) {
        return 0;
    }
    if (item_bytes == 8) {
        FIND_RUNS(uint64_t);
    } else {
        FIND_RUNS(uint32_t);
    }
    return runs <= most ? runs : 0;
}

int64_t sj_number_runs(const int32_t *starts, int64_t runs, int id_bytes, uint8_t *out)
{
    const uint8_t *begin = out;
    for (int64_t run = 0; run < runs; run++) {
        const uint32_t id = (uint32_t)run;
        out = put_varint(out, (uint64_t)(starts[run + 1] - starts[run]) << 1);
        memcpy(out, &id, 4);
        out += id_bytes;
    }
    return out - begin;
}
