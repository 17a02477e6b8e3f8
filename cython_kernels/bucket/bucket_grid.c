#include "bucket/bucket_grid.h"

#include <stdlib.h>
#include <string.h>

#include "grid/grid.h"

#define NUMBERED_ROWS 1024 /* rows whose buckets are computed at a time */
#define AHEAD_ROWS 12      /* rows by which each of the three prefetches of an insertion is ahead of the next */
#define WALKED_CHUNKS 4    /* chunks of a chain that is searched for dead rows, at most */
#define LINE_BYTES 64

void sj_bucket_begin(sj_bucket_grid *grid)
{
    for (int64_t bucket = 0; bucket < grid->bucket_count; bucket++) {
        const sj_chunk empty = {SJ_NO_CHUNK, 0, (uint32_t)bucket, 0};
        grid->chunks[bucket] = empty;
    }
    grid->free_chunk = SJ_NO_CHUNK;
    grid->unused_chunk = grid->bucket_count;
    grid->rows = grid->swept = 0;
}

/* Writes the bucket of each row; `cells` has room for the cells of NUMBERED_ROWS rows, key by key. */
static void number_rows(const sj_bucket_grid *grid, const double *const *floats, const int64_t *const *ints, int64_t from,
                        int64_t count, int64_t *cells, int32_t *buckets)
{
    memset(cells, 0, SJ_BUCKET_KEYS * NUMBERED_ROWS * sizeof *cells);
    for (int64_t begin = 0; begin < count; begin += NUMBERED_ROWS) {
        const int64_t part = count - begin < NUMBERED_ROWS ? count - begin : NUMBERED_ROWS;
        for (int key = 0; key < grid->key_count; key++) {
            int64_t *to = cells + key * NUMBERED_ROWS;
            if (grid->keys[key].is_float) {
                sj_float_buckets(floats[key] + from + begin, part, grid->keys[key].float_width, 0.0, to);
                sj_limit_cells(to, part);
            } else {
                sj_int_buckets(ints[key] + from + begin, part, grid->keys[key].int_width, 0, to);
            }
        }
        for (int64_t at = 0; at < part; at++) {
            const uint64_t cell = sj_cell_of(grid, (uint64_t)cells[at], (uint64_t)cells[NUMBERED_ROWS + at]);
            buckets[begin + at] = (int32_t)sj_bucket_of(grid, cell);
        }
    }
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
    grid->chunks[chunk].next = (uint32_t)grid->free_chunk;
    grid->chunks[chunk].count = 0;
    grid->free_chunk = chunk;
}

/* Adds a chunk behind the last of a bucket and returns it; SJ_NO_CHUNK: every chunk is taken. */
static int64_t add_chunk(sj_bucket_grid *grid, int64_t bucket)
{
    int64_t chunk = grid->free_chunk;
    if (chunk != SJ_NO_CHUNK) {
        grid->free_chunk = grid->chunks[chunk].next;
    } else if (grid->unused_chunk < grid->chunk_room) {
        chunk = grid->unused_chunk++;
    } else {
        return SJ_NO_CHUNK;
    }
    const sj_chunk empty = {SJ_NO_CHUNK, 0, 0, 0};
    grid->chunks[chunk] = empty;
    grid->chunks[grid->chunks[bucket].last].next = (uint32_t)chunk;
    grid->chunks[bucket].last = (uint32_t)chunk;
    return chunk;
}

/* Drops the dead rows before the first living one of a chunk: its ring then begins behind them. Returns how many. */
static int64_t drop_first_rows(const sj_bucket_grid *grid, int64_t chunk, int64_t lowest_kept)
{
    const int count = grid->chunks[chunk].count;
    int dead = 0;
    while (dead < count && grid->positions[sj_chunk_row(grid, chunk, dead)] < lowest_kept) {
        dead++;
    }
    grid->chunks[chunk].head = (grid->chunks[chunk].head + dead) % SJ_CHUNK_ROWS;
    grid->chunks[chunk].count = (uint32_t)(count - dead);
    return dead;
}

/* Drops the dead rows of a bucket and returns how many; the others keep their order. In a bucket of one chunk, no row
 * is moved where only the oldest are dead. */
static int64_t drop_dead(sj_bucket_grid *grid, int64_t bucket, int64_t lowest_kept)
{
    int64_t dropped = drop_first_rows(grid, bucket, lowest_kept), to_chunk = bucket;
    int to = 0;
    for (int64_t chunk = bucket; chunk != SJ_NO_CHUNK; chunk = grid->chunks[chunk].next) {
        const int count = grid->chunks[chunk].count;
        for (int n = 0; n < count; n++) {
            const int64_t row = sj_chunk_row(grid, chunk, n);
            if (grid->positions[row] < lowest_kept) {
                dropped++;
                continue;
            }
            if (to == SJ_CHUNK_ROWS) {
                to_chunk = grid->chunks[to_chunk].next;
                to = 0;
            }
            const int64_t to_row = sj_chunk_row(grid, to_chunk, to++);
            if (to_row != row) {
                move_row(grid, row, to_row);
            }
        }
    }
    if (!dropped) {
        return 0;
    }
    for (int64_t chunk = bucket; chunk != to_chunk; chunk = grid->chunks[chunk].next) {
        grid->chunks[chunk].count = SJ_CHUNK_ROWS;
    }
    int64_t behind = grid->chunks[to_chunk].next;
    grid->chunks[to_chunk].next = SJ_NO_CHUNK;
    grid->chunks[to_chunk].count = (uint32_t)to;
    grid->chunks[bucket].last = (uint32_t)to_chunk;
    while (behind != SJ_NO_CHUNK) {
        const int64_t chunk = behind;
        behind = grid->chunks[chunk].next;
        give_back(grid, chunk);
    }
    grid->rows -= dropped;
    return dropped;
}

/* Whether all rows of a full chunk are dead. */
SJ_INLINE int is_dead(const sj_bucket_grid *grid, int64_t chunk, int64_t lowest_kept)
{
    int dead = 1;
    for (int lane = 0; lane < SJ_CHUNK_ROWS; lane++) {
        dead &= grid->positions[chunk * SJ_CHUNK_ROWS + lane] < lowest_kept;
    }
    return dead;
}

/* Drops the rows of a chain's first chunk. The second chunk's rows take their place, lane by lane, and the second is
 * given back. */
static void drop_first(sj_bucket_grid *grid, int64_t bucket)
{
    sj_chunk *first = grid->chunks + bucket;
    const int64_t second = first->next;
    for (int n = 0; n < grid->chunks[second].count; n++) {
        const int64_t row = sj_chunk_row(grid, second, n);
        move_row(grid, row, bucket * SJ_CHUNK_ROWS + row % SJ_CHUNK_ROWS);
    }
    first->next = grid->chunks[second].next;
    first->count = grid->chunks[second].count;
    first->head = grid->chunks[second].head;
    if (first->last == second) {
        first->last = (uint32_t)bucket;
    }
    give_back(grid, second);
    grid->rows -= SJ_CHUNK_ROWS;
}

/* Whether a bucket has so few chunks that all its rows may be looked at for each new row. */
SJ_INLINE int is_short(const sj_bucket_grid *grid, int64_t bucket)
{
    int64_t chunk = bucket;
    for (int chunks = 0; chunks < WALKED_CHUNKS; chunks++) {
        chunk = grid->chunks[chunk].next;
        if (chunk == SJ_NO_CHUNK) {
            return 1;
        }
    }
    return 0;
}

/* Returns a chunk of the bucket that has room; SJ_NO_CHUNK: there is none. A long chain is not searched for dead rows:
 * a hot value's chain would be searched for every new row. */
static int64_t chunk_with_room(sj_bucket_grid *grid, int64_t bucket, int64_t lowest_kept)
{
    int64_t chunk = grid->chunks[bucket].last;
    if (grid->chunks[chunk].count < SJ_CHUNK_ROWS) {
        return chunk;
    }
    if (is_short(grid, bucket)) {
        drop_dead(grid, bucket, lowest_kept);
    }
    while (grid->chunks[bucket].next != SJ_NO_CHUNK && is_dead(grid, bucket, lowest_kept)) {
        drop_first(grid, bucket);
    }
    chunk = grid->chunks[bucket].last;
    return grid->chunks[chunk].count < SJ_CHUNK_ROWS ? chunk : add_chunk(grid, bucket);
}

/* Prefetches the place where a bucket's next row will most likely go: behind the last row, or in a full chunk the place
 * of its first row, which is the most likely to be dead. */
SJ_INLINE void ask_for(const sj_bucket_grid *grid, int64_t bucket)
{
    const int64_t chunk = grid->chunks[bucket].last;
    const int count = grid->chunks[chunk].count;
    const int64_t row = sj_chunk_row(grid, chunk, count);
    for (int column = 0; column < grid->column_count; column++) {
        __builtin_prefetch(grid->columns[column] + row * grid->item_bytes[column], 1);
    }
    if (count == SJ_CHUNK_ROWS) {
        const int64_t *positions = grid->positions + chunk * SJ_CHUNK_ROWS;
        __builtin_prefetch(positions);
        __builtin_prefetch(positions + LINE_BYTES / sizeof *positions);
    }
}

/* Inserts rows begin:begin+count, given their buckets; returns how many of them are in. */
static int64_t insert_rows(sj_bucket_grid *grid, const unsigned char *const *columns, const int32_t *buckets,
                           int64_t begin, int64_t count, int64_t lowest_kept)
{
    for (int64_t at = 0; at < count; at++) {
        if (at + 3 * AHEAD_ROWS < count) {
            __builtin_prefetch(grid->chunks + buckets[at + 3 * AHEAD_ROWS], 1);
        }
        if (at + 2 * AHEAD_ROWS < count) {
            __builtin_prefetch(grid->chunks + grid->chunks[buckets[at + 2 * AHEAD_ROWS]].last, 1);
        }
        if (at + AHEAD_ROWS < count) {
            ask_for(grid, buckets[at + AHEAD_ROWS]);
        }
        const int64_t chunk = chunk_with_room(grid, buckets[at], lowest_kept);
        if (chunk == SJ_NO_CHUNK) {
            return at;
        }
        const int64_t to = sj_chunk_row(grid, chunk, grid->chunks[chunk].count);
        grid->chunks[chunk].count++;
        for (int column = 0; column < grid->column_count; column++) {
            const int bytes = grid->item_bytes[column];
            copy_item(grid->columns[column] + to * bytes, columns[column] + (begin + at) * bytes, bytes);
        }
        grid->rows++;
    }
    return count;
}

int64_t sj_bucket_insert(sj_bucket_grid *grid, const unsigned char *const *columns, const double *const *floats,
                         const int64_t *const *ints, int64_t begin, int64_t count, int64_t lowest_kept)
{
    const size_t cells_bytes = SJ_BUCKET_KEYS * NUMBERED_ROWS * sizeof(int64_t);
    int64_t *cells = malloc(cells_bytes + (size_t)(count - begin) * sizeof(int32_t));
    if (!cells) {
        return -1;
    }
    int32_t *buckets = (int32_t *)(cells + SJ_BUCKET_KEYS * NUMBERED_ROWS);
    number_rows(grid, floats, ints, begin, count - begin, cells, buckets);
    const int64_t inserted = insert_rows(grid, columns, buckets, begin, count - begin, lowest_kept);
    free(cells);
    return begin + inserted;
}

int64_t sj_bucket_sweep(sj_bucket_grid *grid, int64_t count, int64_t lowest_kept)
{
    int64_t dropped = 0;
    for (int64_t at = 0; at < count; at++) {
        /* In a bucket that still gets rows, dead ones make room soon enough. So its rows are not looked at where the
         * middle row of its only chunk lives, or where too few rows are dead to give a chunk back. */
        const int64_t last = grid->chunks[grid->swept].last;
        const int count = grid->chunks[last].count;
        const int asked = last == grid->swept ? count / 2 : count - 1;
        if (count && grid->positions[sj_chunk_row(grid, grid->swept, asked)] < lowest_kept) {
            dropped += drop_dead(grid, grid->swept, lowest_kept);
        }
        grid->swept = grid->swept + 1 < grid->bucket_count ? grid->swept + 1 : 0;
    }
    return dropped;
}

int64_t sj_bucket_live_rows(const sj_bucket_grid *grid, int64_t lowest_kept, int64_t step)
{
    int64_t live = 0;
    for (int64_t bucket = 0; bucket < grid->bucket_count; bucket += step) {
        for (int64_t chunk = bucket; chunk != SJ_NO_CHUNK; chunk = grid->chunks[chunk].next) {
            for (int n = 0; n < grid->chunks[chunk].count; n++) {
                live += grid->positions[sj_chunk_row(grid, chunk, n)] >= lowest_kept;
            }
        }
    }
    return live;
}

int64_t sj_bucket_rows(const sj_bucket_grid *grid, int64_t begin, int64_t end, int32_t *rows)
{
    int64_t count = 0;
    for (int64_t bucket = begin; bucket < end; bucket++) {
        for (int64_t chunk = bucket; chunk != SJ_NO_CHUNK; chunk = grid->chunks[chunk].next) {
            for (int n = 0; rows && n < grid->chunks[chunk].count; n++) {
                rows[count + n] = (int32_t)sj_chunk_row(grid, chunk, n);
            }
            count += grid->chunks[chunk].count;
        }
    }
    return count;
}

int64_t sj_bucket_spread_rows(const sj_bucket_grid *grid, int64_t most, int32_t *rows)
{
    int64_t before = 0, found = 0;
    const int64_t step = grid->rows > most ? (grid->rows + most - 1) / most : 1;
    for (int64_t bucket = 0; bucket < grid->bucket_count; bucket++) {
        for (int64_t chunk = bucket; chunk != SJ_NO_CHUNK; chunk = grid->chunks[chunk].next) {
            const int64_t end = before + grid->chunks[chunk].count;
            for (int64_t at = step / 2 + found * step; at < end; at += step) {
                rows[found++] = (int32_t)sj_chunk_row(grid, chunk, (int)(at - before));
            }
            before = end;
        }
    }
    return found;
}

int64_t sj_bucket_crowd(const sj_bucket_grid *grid, const int32_t *buckets, int64_t count, int64_t most)
{
    int64_t total = 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t rows = 0;
        for (int64_t chunk = buckets[at]; chunk != SJ_NO_CHUNK && rows < most; chunk = grid->chunks[chunk].next) {
            rows += grid->chunks[chunk].count;
        }
        total += rows < most ? rows : most;
    }
    return total;
}

int sj_bucket_numbers(const sj_bucket_grid *grid, const double *const *floats, const int64_t *const *ints, int64_t count,
                      int32_t *buckets)
{
    int64_t *cells = malloc(SJ_BUCKET_KEYS * NUMBERED_ROWS * sizeof(int64_t));
    if (!cells) {
        return -1;
    }
    number_rows(grid, floats, ints, 0, count, cells, buckets);
    free(cells);
    return 0;
}

/* Puts the columns that rows are tested by in the order of their items. */
static void set_tested_columns(sj_bucket_probe *probe)
{
    const sj_bucket_columns *columns = &probe->columns;
    int count = 0;
    for (int item = 0; item < SJ_ITEMS; item++) {
        for (int c = 0; c < columns->conditions; c++) {
            if (columns->item[c] == item) {
                const sj_tested_column column = {columns->right[c], columns->slot[c]};
                probe->tested_column[count++] = column;
            }
        }
        probe->tested_end[item] = count;
    }
}

int sj_bucket_probe_begin(sj_bucket_probe *probe)
{
    const sj_bucket_grid *grid = probe->grid;
    const sj_band *band = &probe->band;
    const int *key_condition = probe->columns.key_condition;
    const int64_t count = band->probe_count;
    set_tested_columns(probe);
    probe->stride_rest = (int64_t)(grid->stride % (uint64_t)grid->bucket_count);
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
            sj_limit_cells(probe->cell_from[key], 2 * count);
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
