#include "bucket_grid.h"

#include <stdlib.h>
#include <string.h>

#include "grid.h"

#define NUMBERED_ROWS 1024
#define AHEAD_ROWS 12
#define WALKED_CHUNKS 4

void sj_bucket_begin(sj_bucket_grid *grid)
{
    memset(grid->counts, 0, (size_t)grid->chunk_room);
    for (int64_t bucket = 0; bucket < grid->bucket_count; bucket++) {
        grid->last[bucket] = (int32_t)bucket;
        grid->next[bucket] = -1;
    }
    grid->free_chunk = -1;
    grid->unused_chunk = grid->bucket_count;
    grid->rows = grid->swept = 0;
}

int sj_bucket_numbers(const sj_bucket_grid *grid, const double *const *floats, const int64_t *const *ints, int64_t count,
                    int32_t *buckets)
{
    int64_t *cells = malloc(SJ_BUCKET_KEYS * NUMBERED_ROWS * sizeof(int64_t));
    if (!cells) {
        return -1;
    }
    memset(cells, 0, SJ_BUCKET_KEYS * NUMBERED_ROWS * sizeof(int64_t));
    for (int64_t begin = 0; begin < count; begin += NUMBERED_ROWS) {
        const int64_t part = count - begin < NUMBERED_ROWS ? count - begin : NUMBERED_ROWS;
        for (int key = 0; key < grid->key_count; key++) {
            int64_t *to = cells + key * NUMBERED_ROWS;
            if (grid->keys[key].is_float) {
                sj_float_buckets(floats[key] + begin, part, grid->keys[key].float_width, 0.0, to);
            } else {
                sj_int_buckets(ints[key] + begin, part, grid->keys[key].int_width, 0, to);
            }
        }
        for (int64_t at = 0; at < part; at++) {
            buckets[begin + at] = (int32_t)sj_bucket_of(grid, (uint64_t)cells[at], (uint64_t)cells[NUMBERED_ROWS + at]);
        }
    }
    free(cells);
    return 0;
}

SJ_INLINE void copy_item(unsigned char *to, const unsigned char *from, int item_bytes)
{
    switch (item_bytes) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, 16); break;
    }
}

static void move_row(const sj_bucket_grid *grid, int64_t from, int64_t to)
{
    for (int column = 0; column < grid->column_count; column++) {
        const int bytes = grid->item_bytes[column];
        unsigned char *items = grid->columns[column];
        copy_item(items + to * bytes, items + from * bytes, bytes);
    }
}

static void give_back(sj_bucket_grid *grid, int64_t chunk)
{
    grid->counts[chunk] = 0;
    grid->next[chunk] = (int32_t)grid->free_chunk;
    grid->free_chunk = chunk;
}

/* A chunk behind the last of a bucket; -1: every one is taken. */
static int64_t add_chunk(sj_bucket_grid *grid, int64_t bucket)
{
    int64_t chunk = grid->free_chunk;
    if (chunk >= 0) {
        grid->free_chunk = grid->next[chunk];
    } else if (grid->unused_chunk < grid->chunk_room) {
        chunk = grid->unused_chunk++;
    } else {
        return -1;
    }
    grid->counts[chunk] = 0;
    grid->next[chunk] = -1;
    grid->next[grid->last[bucket]] = (int32_t)chunk;
    grid->last[bucket] = (int32_t)chunk;
    return chunk;
}

/* Of a bucket's only chunk the dead rows at its begin, which is where they are unless positions are out of order: columns are
 * moved up in one piece. -1: others are dead, too. */
static int drop_first_rows(sj_bucket_grid *grid, int64_t chunk, int64_t lowest_kept)
{
    const int64_t *positions = grid->positions + chunk * SJ_CHUNK_ROWS;
    const int count = grid->counts[chunk];
    int first = 0, dead = 0;
    for (int lane = 0; lane < count; lane++) {
        first += dead == lane && positions[lane] < lowest_kept;
        dead += positions[lane] < lowest_kept;
    }
    if (dead != first) {
        return -1;
    }
    for (int column = 0; dead && column < grid->column_count; column++) {
        const int bytes = grid->item_bytes[column];
        unsigned char *items = grid->columns[column] + chunk * SJ_CHUNK_ROWS * bytes;
        memmove(items, items + dead * bytes, (size_t)((count - dead) * bytes));
    }
    grid->counts[chunk] = (uint8_t)(count - dead);
    grid->rows -= dead;
    return dead;
}

/* Drops the dead rows of a bucket, the others keep their order. */
static int64_t drop_dead(sj_bucket_grid *grid, int64_t bucket, int64_t lowest_kept)
{
    if (grid->next[bucket] < 0) {
        const int first = drop_first_rows(grid, bucket, lowest_kept);
        if (first >= 0) {
            return first;
        }
    }
    int64_t to_chunk = bucket, to = 0, dropped = 0;
    for (int64_t chunk = bucket; chunk >= 0; chunk = grid->next[chunk]) {
        const int count = grid->counts[chunk];
        for (int lane = 0; lane < count; lane++) {
            const int64_t row = chunk * SJ_CHUNK_ROWS + lane;
            if (grid->positions[row] < lowest_kept) {
                dropped++;
                continue;
            }
            if (to == SJ_CHUNK_ROWS) {
                to_chunk = grid->next[to_chunk];
                to = 0;
            }
            if (dropped) {
                move_row(grid, row, to_chunk * SJ_CHUNK_ROWS + to);
            }
            to++;
        }
    }
    if (!dropped) {
        return 0;
    }
    for (int64_t chunk = bucket; chunk != to_chunk; chunk = grid->next[chunk]) {
        grid->counts[chunk] = SJ_CHUNK_ROWS;
    }
    int64_t behind = grid->next[to_chunk];
    grid->counts[to_chunk] = (uint8_t)to;
    grid->next[to_chunk] = -1;
    grid->last[bucket] = (int32_t)to_chunk;
    while (behind >= 0) {
        const int64_t chunk = behind;
        behind = grid->next[chunk];
        give_back(grid, chunk);
    }
    grid->rows -= dropped;
    return dropped;
}

/* Are all rows of a full chunk dead? */
SJ_INLINE int is_dead(const sj_bucket_grid *grid, int64_t chunk, int64_t lowest_kept)
{
    int dead = 1;
    for (int lane = 0; lane < SJ_CHUNK_ROWS; lane++) {
        dead &= grid->positions[chunk * SJ_CHUNK_ROWS + lane] < lowest_kept;
    }
    return dead;
}

/* The first chunk of a chain gives up its rows: the second's take their place, and it is given back. */
static void drop_first(sj_bucket_grid *grid, int64_t bucket)
{
    const int64_t second = grid->next[bucket];
    for (int lane = 0; lane < grid->counts[second]; lane++) {
        move_row(grid, second * SJ_CHUNK_ROWS + lane, bucket * SJ_CHUNK_ROWS + lane);
    }
    grid->counts[bucket] = grid->counts[second];
    grid->next[bucket] = grid->next[second];
    if (grid->last[bucket] == second) {
        grid->last[bucket] = (int32_t)bucket;
    }
    give_back(grid, second);
    grid->rows -= SJ_CHUNK_ROWS;
}

/* Whether a bucket has so few chunks that all its rows may be looked at, time and again. */
SJ_INLINE int is_short(const sj_bucket_grid *grid, int64_t bucket)
{
    int64_t chunk = bucket;
    for (int chunks = 0; chunks < WALKED_CHUNKS; chunks++) {
        chunk = grid->next[chunk];
        if (chunk < 0) {
            return 1;
        }
    }
    return 0;
}

/* A chunk of the bucket that has room; -1: there is none. A long chain is not walked: it would be for every row of a
 * value that is hot. */
static int64_t chunk_with_room(sj_bucket_grid *grid, int64_t bucket, int64_t lowest_kept)
{
    int64_t chunk = grid->last[bucket];
    if (grid->counts[chunk] < SJ_CHUNK_ROWS) {
        return chunk;
    }
    if (is_short(grid, bucket)) {
        drop_dead(grid, bucket, lowest_kept);
    }
    while (grid->next[bucket] >= 0 && is_dead(grid, bucket, lowest_kept)) {
        drop_first(grid, bucket);
    }
    chunk = grid->last[bucket];
    return grid->counts[chunk] < SJ_CHUNK_ROWS ? chunk : add_chunk(grid, bucket);
}

/* Where the row will most likely go, and what may have to be read to see it. */
SJ_INLINE void ask_for(const sj_bucket_grid *grid, int64_t bucket)
{
    const int64_t row = (int64_t)grid->last[bucket] * SJ_CHUNK_ROWS + grid->counts[grid->last[bucket]] % SJ_CHUNK_ROWS;
    for (int column = 0; column < grid->column_count; column++) {
        __builtin_prefetch(grid->columns[column] + row * grid->item_bytes[column], 1);
    }
}

int64_t sj_bucket_insert(sj_bucket_grid *grid, const unsigned char *const *columns, const int32_t *buckets, int64_t begin,
                       int64_t count, int64_t lowest_kept)
{
    for (int64_t row = begin; row < count; row++) {
        if (row + 2 * AHEAD_ROWS < count) {
            const int32_t bucket = buckets[row + 2 * AHEAD_ROWS];
            __builtin_prefetch(grid->last + bucket);
            __builtin_prefetch(grid->counts + bucket);
        }
        if (row + AHEAD_ROWS < count) {
            ask_for(grid, buckets[row + AHEAD_ROWS]);
        }
        const int64_t chunk = chunk_with_room(grid, buckets[row], lowest_kept);
        if (chunk < 0) {
            return row;
        }
        const int64_t to = chunk * SJ_CHUNK_ROWS + grid->counts[chunk]++;
        for (int column = 0; column < grid->column_count; column++) {
            const int bytes = grid->item_bytes[column];
            copy_item(grid->columns[column] + to * bytes, columns[column] + row * bytes, bytes);
        }
        grid->rows++;
    }
    return count;
}

int64_t sj_bucket_sweep(sj_bucket_grid *grid, int64_t count, int64_t lowest_kept)
{
    int64_t dropped = 0;
    for (int64_t at = 0; at < count; at++) {
        /* In a bucket that rows still come to dead ones make room soon enough: where the middle row of the only chunk lives,
         * or so few are dead that no chunk would be had back, the others are not looked at. */
        const int64_t last = grid->last[grid->swept];
        const int64_t asked = last == grid->swept ? grid->counts[last] / 2 : grid->counts[last] - 1;
        if (grid->counts[last] && grid->positions[grid->swept * SJ_CHUNK_ROWS + asked] < lowest_kept) {
            dropped += drop_dead(grid, grid->swept, lowest_kept);
        }
        grid->swept = grid->swept + 1 < grid->bucket_count ? grid->swept + 1 : 0;
    }
    return dropped;
}

int64_t sj_bucket_live_rows(const sj_bucket_grid *grid, int64_t lowest_kept)
{
    int64_t live = 0;
    for (int64_t chunk = 0; chunk < grid->unused_chunk; chunk++) {
        for (int lane = 0; lane < grid->counts[chunk]; lane++) {
            live += grid->positions[chunk * SJ_CHUNK_ROWS + lane] >= lowest_kept;
        }
    }
    return live;
}

void sj_bucket_rows(const sj_bucket_grid *grid, int32_t *rows)
{
    for (int64_t bucket = 0; bucket < grid->bucket_count; bucket++) {
        for (int64_t chunk = bucket; chunk >= 0; chunk = grid->next[chunk]) {
            for (int lane = 0; lane < grid->counts[chunk]; lane++) {
                *rows++ = (int32_t)(chunk * SJ_CHUNK_ROWS + lane);
            }
        }
    }
}

int sj_bucket_probe_begin(sj_bucket_probe *probe)
{
    const sj_bucket_grid *grid = probe->grid;
    const sj_band *band = &probe->band;
    const int *key_condition = probe->columns.key_condition;
    const int64_t count = band->probe_count;
    probe->is_scan = !grid->key_count;
    for (int key = 0; key < grid->key_count; key++) {
        probe->is_scan |= key_condition[key] < 0;
    }
    if (probe->is_scan || !count) {
        return 0;
    }
    int64_t *cells = malloc((size_t)count * 2 * SJ_BUCKET_KEYS * sizeof(int64_t));
    if (!cells) {
        return -1;
    }
    for (int key = 0; key < SJ_BUCKET_KEYS; key++) {
        probe->cell_from[key] = cells + 2 * key * count;
        probe->cell_to[key] = probe->cell_from[key] + count;
        if (key >= grid->key_count) {
            memset(probe->cell_from[key], 0, 2 * (size_t)count * sizeof(int64_t));
            continue;
        }
        const int condition = key_condition[key];
        const int slot = probe->columns.slot[condition];
        if (probe->columns.is_float[condition]) {
            sj_float_bucket_range(band->float_left[slot], count, band->float_lo[slot], band->float_hi[slot],
                                  grid->keys[key].float_width, probe->cell_from[key], probe->cell_to[key]);
        } else {
            sj_int_bucket_range(band->int_left[slot], count, band->int_lo[slot], band->int_hi[slot],
                                grid->keys[key].int_width, probe->cell_from[key], probe->cell_to[key]);
        }
    }
    return 0;
}

void sj_bucket_probe_end(sj_bucket_probe *probe)
{
    free(probe->cell_from[0]);
    probe->cell_from[0] = NULL;
}
