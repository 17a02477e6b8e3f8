#include "pages/pages.h"

#include <string.h>

/* A block has one smallest difference, and each of its parts a width of its own: parquet-format, Encodings.md. */
enum { BLOCK = 128, PARTS = 4, PART = BLOCK / PARTS };

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *out++ = (uint8_t)(value | 128);
    }
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *put_signed(uint8_t *out, int64_t value)
{
    return put_varint(out, ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0));
}

/* The width is a constant in each call, so that the loop becomes shifts and stores without a branch. */
static inline __attribute__((always_inline)) void pack_part(const uint64_t *values, uint64_t least,
                                                            const unsigned width, uint8_t *out)
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

static uint8_t *put_part(const uint64_t *values, uint64_t least, uint8_t *width, uint8_t *out)
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

int64_t sj_pack_differences(const void *values, int64_t count, int item_bytes, uint8_t *out)
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

#define FIND_RUNS(TYPE)                                          \
    do {                                                         \
        const TYPE *from = values;                               \
        TYPE *to = firsts;                                       \
        to[0] = from[0];                                         \
        starts[0] = 0;                                           \
        for (int64_t i = 1; i < count && runs <= most; i++) {    \
            to[runs] = from[i];                                  \
            starts[runs] = (int32_t)i;                           \
            runs += from[i] != from[i - 1];                      \
        }                                                        \
    } while (0)

int64_t sj_find_runs(const void *values, int64_t count, int item_bytes, int64_t most, void *firsts, int32_t *starts)
{
    int64_t runs = 1;
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
