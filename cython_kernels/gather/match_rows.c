#include "gather/match_rows.h"

#include <string.h>

void sj_add_stretches(sj_match_rows *rows, const int32_t *probes, int64_t count, int32_t first_probe)
{
    int64_t last = rows->stretches - 1;
    for (int64_t at = 0, end; at < count; at = end) {
        const int32_t probe = probes[at];
        for (end = at + 1; end < count && probes[end] == probe; end++) {
        }
        if (last < 0 || rows->probes[last] != first_probe + probe) {
            rows->probes[++last] = first_probe + probe;
            rows->lengths[last] = 0;
        }
        rows->lengths[last] += (int32_t)(end - at);
    }
    rows->stretches = last + 1;
}

/* Returns where the item of a probe lies. */
SJ_INLINE const unsigned char *probe_item(const sj_run_columns *from, const sj_selection *probes, int64_t column,
                                          int32_t probe)
{
    const int64_t run = probes->run_numbers ? probes->run_numbers[probe] : probes->run_number;
    return from->addresses[column * from->run_count + run] + (int64_t)probes->rows[probe] * from->item_bytes[column];
}

/* An item is repeated in one block of 32 bytes, which is stored as often as needed, and beyond the end. */
typedef struct {
    uint64_t words[4];
} item_block;

#define REPEAT(type)                                                      \
    {                                                                     \
        type items[sizeof(item_block) / sizeof(type)];                    \
        for (size_t n = 0; n < sizeof items / sizeof *items; n++) {       \
            memcpy(items + n, item, sizeof(type));                        \
        }                                                                 \
        memcpy(&block, items, sizeof block);                              \
    }                                                                     \
    break

static void spread_column(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                          int64_t column, unsigned char *to)
{
    const int64_t item_bytes = from->item_bytes[column];
    for (int64_t s = 0; s < stretches->stretches; s++) {
        const unsigned char *item = probe_item(from, probes, column, stretches->probes[s]);
        const int64_t bytes = stretches->lengths[s] * item_bytes;
        item_block block = {{0}};
        switch (item_bytes) {
        case 1: REPEAT(uint8_t);
        case 2: REPEAT(uint16_t);
        case 4: REPEAT(uint32_t);
        case 8: REPEAT(uint64_t);
        default: memcpy(&block, item, 16), memcpy(block.words + 2, item, 16);
        }
        for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block) {
            memcpy(to + at, &block, sizeof block);
        }
        to += bytes;
    }
}

/* Whether each probe of a stretch is a row of a run. */
static int are_inside(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches)
{
    int outside = 0;
    for (int64_t s = 0; s < stretches->stretches; s++) {
        const int32_t probe = stretches->probes[s];
        if (probe >= probes->count) {
            return 0;
        }
        const uint64_t run = probes->run_numbers ? (uint64_t)(int64_t)probes->run_numbers[probe]
                                                 : (uint64_t)probes->run_number;
        if (run >= (uint64_t)from->run_count) {
            return 0;
        }
        outside |= (uint64_t)(int64_t)probes->rows[probe] >= (uint64_t)from->run_rows[run];
    }
    return !outside;
}

int sj_spread_probes(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                     unsigned char *const *outs)
{
    if (!are_inside(from, probes, stretches)) {
        return -1;
    }
    for (int64_t column = 0; column < from->column_count; column++) {
        if (outs[column]) {
            spread_column(from, probes, stretches, column, outs[column]);
        }
    }
    return 0;
}

void sj_spread_greatest(const sj_run_columns *from, const sj_selection *probes, const sj_match_rows *stretches,
                        const int64_t *window, int64_t *to)
{
    for (int64_t s = 0; s < stretches->stretches; s++) {
        int64_t item;
        memcpy(&item, probe_item(from, probes, 0, stretches->probes[s]), sizeof item);
        for (const int64_t *end = window + stretches->lengths[s]; window < end; window++) {
            *to++ = *window > item ? *window : item;
        }
    }
}
