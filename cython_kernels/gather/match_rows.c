#include "gather/match_rows.h"

#include <string.h>

/* The probes of a block, each with the pairs in a row that are its. */
typedef struct {
    int64_t count;
    int32_t probes[SJ_LISTED_PAIRS];
    int32_t lengths[SJ_LISTED_PAIRS];
} listed_stretches;

static void find_stretches(listed_stretches *stretches, const int32_t *probes, int32_t first_probe, int64_t count)
{
    stretches->count = 0;
    for (int64_t at = 0, end; at < count; at = end) {
        for (end = at + 1; end < count && probes[end] == probes[at]; end++) {
        }
        stretches->probes[stretches->count] = first_probe + probes[at];
        stretches->lengths[stretches->count++] = (int32_t)(end - at);
    }
}

/* Whether each probe of a stretch is a row of a run. */
static int are_inside(const sj_match_rows *rows, const listed_stretches *stretches)
{
    const sj_selection *probes = rows->probes;
    int outside = 0;
    for (int64_t s = 0; s < stretches->count; s++) {
        const int32_t probe = stretches->probes[s];
        if (probe >= probes->count) {
            return 0;
        }
        const uint64_t run = probes->run_numbers ? (uint64_t)(int64_t)probes->run_numbers[probe]
                                                 : (uint64_t)probes->run_number;
        if (run >= (uint64_t)rows->own->run_count) {
            return 0;
        }
        outside |= (uint64_t)(int64_t)probes->rows[probe] >= (uint64_t)rows->own->run_rows[run];
    }
    return !outside;
}

/* Returns where the item of a probe lies. */
SJ_INLINE const unsigned char *probe_item(const sj_match_rows *rows, int64_t column, int32_t probe)
{
    const sj_selection *probes = rows->probes;
    const int64_t run = probes->run_numbers ? probes->run_numbers[probe] : probes->run_number;
    return rows->own->addresses[column * rows->own->run_count + run] +
           (int64_t)probes->rows[probe] * rows->own->item_bytes[column];
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

static void spread_column(const sj_match_rows *rows, const listed_stretches *stretches, int64_t column)
{
    const int64_t item_bytes = rows->own->item_bytes[column];
    unsigned char *to = rows->own_to[column] + rows->written * item_bytes;
    for (int64_t s = 0; s < stretches->count; s++) {
        const unsigned char *item = probe_item(rows, column, stretches->probes[s]);
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

/* to[i] = the larger of window[i] and the item of its probe */
static void spread_greatest(const sj_match_rows *rows, const listed_stretches *stretches, const int64_t *window, int64_t *to)
{
    for (int64_t s = 0; s < stretches->count; s++) {
        int64_t item;
        memcpy(&item, probe_item(rows, 0, stretches->probes[s]), sizeof item);
        for (const int64_t *end = window + stretches->lengths[s]; window < end; window++) {
            *to++ = *window > item ? *window : item;
        }
    }
}

int sj_make_rows(sj_match_rows *rows, const sj_run_columns *window, int64_t run_number, uint64_t cached,
                 const int32_t *found, const int32_t *probes, int32_t first_probe, int64_t count)
{
    listed_stretches stretches;
    int64_t firsts[SJ_LISTED_PAIRS]; /* items of the window's first column, where only the greatest is made of them */
    find_stretches(&stretches, probes, first_probe, count);
    if (!are_inside(rows, &stretches)) {
        return -1;
    }
    for (int64_t column = 0; column < window->column_count; column++) {
        const int item_bytes = window->item_bytes[column];
        const int is_cached = column < 64 && cached >> column & 1;
        unsigned char *to = rows->window_to[column];
        if (to || !column) {
            sj_gather_run(window->addresses[column * window->run_count + run_number],
                          is_cached ? 0 : window->run_rows[run_number], item_bytes, found, count,
                          to ? to + rows->written * item_bytes : (unsigned char *)firsts);
        }
    }
    const unsigned char *first = rows->window_to[0];
    spread_greatest(rows, &stretches, first ? (const int64_t *)first + rows->written : firsts,
                    rows->greatest + rows->written);
    for (int64_t column = 0; column < rows->own->column_count; column++) {
        if (rows->own_to[column]) {
            spread_column(rows, &stretches, column);
        }
    }
    rows->written += count;
    return 0;
}
