/* Rows of a window in chunks by the grid cell they lie in: nothing is sorted, nothing is merged.
 *
 *   cell of a row ──mod──► bucket b ──► chunk b [ r r r r r r r r r r r . . . . . ]     16 rows, column by column
 *                                           │ full
 *                                           └──► chunk 1041 [ r r . . . . . . . . . . . . . . ]     chained
 *
 * Row `chunk * 16 + lane` is at that place of every column. A chunk is a ring: its first row is in lane `head`, the
 * others in the lanes behind it, with lane 0 after 15. The rows of a bucket are in order of arrival, and all its chunks
 * but the last are full. Several cells share a bucket; the exact test decides. Rows with a position below `lowest_kept`
 * are dead. They are dropped where their bucket is full, and by the sweep. They never match, because the window's rule
 * is among the conditions.
 */
#ifndef SJ_BUCKET_GRID_H
#define SJ_BUCKET_GRID_H

#include "scan/band.h"

#define SJ_CHUNK_ROWS 16
#define SJ_BUCKET_KEYS 2

/* Cells whose buckets one probe looks up, at most; a probe whose band covers more cells looks at all buckets. */
#define SJ_BUCKET_VISITS 64
/* Buckets that are listed before they are tested: room for those of two probes. */
#define SJ_BUCKET_SPANS 128

/* The number that stands for no chunk: the largest that `next` and `last` can hold. */
#define SJ_NO_CHUNK ((1 << 27) - 1)

enum sj_item { SJ_INT32 = 0, SJ_FLOAT32 = 1, SJ_INT64 = 2, SJ_FLOAT64 = 3, SJ_ITEMS = 4 };

/* How one key is cut into cells: floor(value / width). */
typedef struct {
    int is_float;
    double float_width;
    int64_t int_width;
} sj_cell_key;

/* All facts of a chunk in one word, so that looking a bucket up costs one cache miss. */
typedef struct {
    uint32_t next : 27; /* the chunk behind it; SJ_NO_CHUNK: none */
    uint32_t count : 5; /* its rows */
    uint32_t last : 27; /* of the first chunk of a bucket: the bucket's last */
    uint32_t head : 5;  /* lane of its first row */
} sj_chunk;

typedef struct {
    int column_count;
    unsigned char *const *columns; /* chunk_room * SJ_CHUNK_ROWS items each */
    const int *item_bytes;
    const int64_t *positions; /* the column that the window is measured in */
    int64_t bucket_count;     /* chunk b is the first of bucket b */
    int64_t chunk_room;
    sj_chunk *chunks;
    int64_t free_chunk; /* first of the chunks that were given back; SJ_NO_CHUNK: none */
    int64_t unused_chunk; /* first chunk that was never used */
    int64_t rows;
    int64_t swept; /* bucket where the next sweep begins */
    uint64_t stride; /* a cell's number is first * stride + second, by the cells of both keys; 1 without a second key */
    int key_count;
    sj_cell_key keys[SJ_BUCKET_KEYS];
} sj_bucket_grid;

/* Where a probe is to look: at this chunk and the chunks behind it. */
typedef struct {
    int32_t probe;
    int32_t chunk; /* SJ_NO_CHUNK: no more */
} sj_chunk_span;

/* The conditions of a band over a grid's columns. Those on items of one kind are tested in this order. */
typedef struct {
    int conditions;
    int is_float[SJ_MAX_CONDITIONS];
    int item[SJ_MAX_CONDITIONS];        /* enum sj_item */
    const void *right[SJ_MAX_CONDITIONS];
    int slot[SJ_MAX_CONDITIONS];             /* number among the band's float or int conditions */
    int key_condition[SJ_BUCKET_KEYS];       /* the condition that serves each key; -1: none does */
} sj_bucket_columns;

/* A column that rows are tested by. */
typedef struct {
    const char *items;
    int slot; /* of its condition, among the band's float or int conditions */
} sj_tested_column;

typedef struct {
    const sj_bucket_grid *grid;
    sj_bucket_columns columns;
    sj_band band;                          /* the probes' side and the bounds */
    sj_tested_column tested_column[SJ_MAX_CONDITIONS]; /* the conditions' columns, in the order of enum sj_item */
    int tested_end[SJ_ITEMS];                          /* of each kind of item: the place behind its last column */
    int64_t *cell_from[SJ_BUCKET_KEYS];      /* of each probe: first and last cell, key by key */
    int64_t *cell_to[SJ_BUCKET_KEYS];
    int is_scan;         /* a key has no condition that serves it: every probe looks at all buckets */
    int64_t stride_rest; /* the grid's stride modulo its buckets */
    int64_t probe;       /* the next probe whose buckets are to be listed */
    int64_t bucket;      /* the next bucket of that probe, where it looks at all of them */
    sj_chunk_span ring[SJ_BUCKET_SPANS]; /* span n is at n % SJ_BUCKET_SPANS */
    uint64_t listed;                     /* spans so far: listed, prefetched, followed to the second chunk, tested */
    uint64_t asked;
    uint64_t followed;
    uint64_t tested;
    int64_t candidates;
} sj_bucket_probe;

typedef int64_t (*sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity);

/* Adds to each probe's count how many pairs it has, and gives its partners to `sums`, unless that is NULL. Nothing was
 * written before, and nothing can be afterwards. */
typedef void (*sj_bucket_count)(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums);

void sj_bucket_count_scalar(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums);
int64_t sj_bucket_fill_scalar(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity);
#if defined(__x86_64__)
void sj_bucket_count_avx2(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums);
void sj_bucket_count_avx512(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums);
int64_t sj_bucket_fill_avx2(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity);
int64_t sj_bucket_fill_avx512(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity);
#endif

/* Returns where the n-th row of a chunk is. */
SJ_INLINE int64_t sj_chunk_row(const sj_bucket_grid *grid, int64_t chunk, int n)
{
    return chunk * SJ_CHUNK_ROWS + (grid->chunks[chunk].head + n) % SJ_CHUNK_ROWS;
}

/* Returns the number of a cell. */
SJ_INLINE uint64_t sj_cell_of(const sj_bucket_grid *grid, uint64_t first, uint64_t second)
{
    return first * grid->stride + second;
}

/* Returns the bucket of a cell. Neighbours along the last key are neighbours in memory too. */
SJ_INLINE int64_t sj_bucket_of(const sj_bucket_grid *grid, uint64_t cell)
{
    return (int64_t)(cell % (uint64_t)grid->bucket_count);
}

/* Makes a grid empty; its owner has allocated the memory. */
void sj_bucket_begin(sj_bucket_grid *grid);

/* Appends rows begin:count of a batch to the buckets of their keys, which have the types of the grid's keys. Dead rows
 * make room. Returns the row where it stopped: `count`, or an earlier one as every chunk is taken. -1: no memory. */
int64_t sj_bucket_insert(sj_bucket_grid *grid, const unsigned char *const *columns, const double *const *floats,
                         const int64_t *const *ints, int64_t begin, int64_t count, int64_t lowest_kept);

/* Drops dead rows of the next `count` buckets, and returns how many. A bucket of one chunk is cleaned if the chunk's
 * middle row is dead. Of a bucket of several chunks, where the last has n rows, the n-th row of the first is looked at:
 * if it is dead, so many rows are dead that a chunk becomes free, and the bucket is cleaned. */
int64_t sj_bucket_sweep(sj_bucket_grid *grid, int64_t count, int64_t lowest_kept);

/* Returns how many rows are not dead in the first bucket and each `step`-th after it. */
int64_t sj_bucket_live_rows(const sj_bucket_grid *grid, int64_t lowest_kept, int64_t step);

/* Writes the rows of buckets begin:end, bucket by bucket, in order of arrival there, unless `rows` is NULL. Returns how
 * many there are. */
int64_t sj_bucket_rows(const sj_bucket_grid *grid, int64_t begin, int64_t end, int32_t *rows);

/* Writes rows evenly spaced over all buckets, `most` of them at most; returns how many. It reads no columns. */
int64_t sj_bucket_spread_rows(const sj_bucket_grid *grid, int64_t most, int32_t *rows);

/* Returns how many rows some buckets have, all together; each counts with `most` at most. */
int64_t sj_bucket_crowd(const sj_bucket_grid *grid, const int32_t *buckets, int64_t count, int64_t most);

/* Writes the bucket of each row, given the rows' keys as for `sj_bucket_insert`; -1: no memory. */
int sj_bucket_numbers(const sj_bucket_grid *grid, const double *const *floats, const int64_t *const *ints, int64_t count,
                      int32_t *buckets);

/* Computes the cells that each probe's band covers, from the conditions that serve the keys. -1: no memory. */
int sj_bucket_probe_begin(sj_bucket_probe *probe);
void sj_bucket_probe_end(sj_bucket_probe *probe);

#endif
