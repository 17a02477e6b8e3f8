/* The probe of a bucket grid, for one width of lanes: chunks are prefetched ("asked for") well before they are tested.
 *
 *   probes ──► buckets listed ──► asked for ──► second chunk asked for ──► tested      16 buckets between the last three
 *
 * Every probe looks at the buckets of its cells in the order of the cells, at each bucket once, and at a bucket's rows
 * in order of their arrival. So the order of the pairs does not depend on how many fit the output.
 */
#include "bucket/bucket_grid.h"
#include "bucket/narrow_items.h"
#include "scan/rows.h"
#include "sums/partner_sums.h"

#define LINE_BYTES 64
#define AHEAD_SPANS 32    /* by which a bucket is asked for before it is tested */
#define SURE_CONDITIONS 3 /* conditions that are tested without asking whether a row is left */
#define CHUNK_BITS ((1u << SJ_CHUNK_ROWS) - 1)

/* How far a probing is: a copy, which a loop can keep in registers. */
typedef struct {
    sj_bucket_probe *probe;
    const sj_chunk *chunks;
    uint64_t listed;
    uint64_t asked;
    uint64_t followed;
    uint64_t tested;
    int64_t candidates;
} span_walk;

SJ_INLINE span_walk begun_walk(sj_bucket_probe *probe)
{
    const span_walk walk = {probe,           probe->grid->chunks, probe->listed,    probe->asked,
                            probe->followed, probe->tested,       probe->candidates};
    return walk;
}

SJ_INLINE void end_walk(const span_walk *walk)
{
    sj_bucket_probe *probe = walk->probe;
    probe->listed = walk->listed;
    probe->asked = walk->asked;
    probe->followed = walk->followed;
    probe->tested = walk->tested;
    probe->candidates = walk->candidates;
}

SJ_INLINE sj_chunk_span *span_at(const span_walk *walk, uint64_t number)
{
    return walk->probe->ring + number % SJ_BUCKET_SPANS;
}

SJ_INLINE void list_bucket(span_walk *walk, int64_t bucket)
{
    const sj_chunk_span span = {(int32_t)walk->probe->probe, (int32_t)bucket};
    *span_at(walk, walk->listed++) = span;
    __builtin_prefetch(walk->chunks + bucket);
}

/* Lists the buckets of cells in `rows` rows of `width` cells, each bucket once. */
SJ_INLINE void list_cells(span_walk *walk, int64_t first, int64_t second, uint64_t rows, uint64_t width)
{
    const sj_bucket_probe *probe = walk->probe;
    const sj_bucket_grid *grid = probe->grid;
    const uint64_t stride = grid->stride, buckets = (uint64_t)grid->bucket_count;
    const uint64_t cell = sj_cell_of(grid, (uint64_t)first, (uint64_t)second);
    const int is_small = rows == 1 || (width <= stride && stride <= buckets); /* so that nothing below overflows */
    const uint64_t reach = is_small ? (rows - 1) * stride + width - 1 : buckets;
    if (reach < buckets && cell + reach >= cell) {
        /* All have buckets of their own, each behind that of the cell before. That saves most divisions. */
        int64_t begin = sj_bucket_of(grid, cell);
        for (uint64_t row = 0; row < rows; row++) {
            int64_t bucket = begin;
            for (uint64_t at = 0; at < width; at++) {
                list_bucket(walk, bucket);
                bucket = bucket + 1 == grid->bucket_count ? 0 : bucket + 1;
            }
            begin += probe->stride_rest;
            begin -= begin >= grid->bucket_count ? grid->bucket_count : 0;
        }
        return;
    }
    const uint64_t begin = walk->listed;
    for (uint64_t number = 0; number < rows * width; number++) {
        const int64_t bucket = sj_bucket_of(grid, cell + number / width * stride + number % width);
        int is_new = 1;
        for (uint64_t before = begin; before < walk->listed; before++) {
            is_new &= span_at(walk, before)->chunk != bucket;
        }
        if (is_new) {
            list_bucket(walk, bucket);
        }
    }
}

/* Lists the buckets of the next probe; SJ_BUCKET_VISITS of them where it looks at all. */
SJ_INLINE void list_buckets(span_walk *walk)
{
    sj_bucket_probe *probe = walk->probe;
    const int64_t at = probe->probe;
    if (!probe->is_scan) {
        const int64_t first = probe->cell_from[0][at], second = probe->cell_from[1][at];
        const uint64_t rows = (uint64_t)probe->cell_to[0][at] - (uint64_t)first + 1;
        const uint64_t width = (uint64_t)probe->cell_to[1][at] - (uint64_t)second + 1;
        const int is_nowhere = probe->cell_to[0][at] < first || probe->cell_to[1][at] < second;
        /* Where all of int64 is covered, `rows` or `width` is 0. */
        if (is_nowhere || (rows - 1 < SJ_BUCKET_VISITS && width - 1 < SJ_BUCKET_VISITS && rows * width <= SJ_BUCKET_VISITS)) {
            if (!is_nowhere) {
                list_cells(walk, first, second, rows, width);
            }
            probe->probe++;
            return;
        }
    }
    const int64_t left = probe->grid->bucket_count - probe->bucket;
    for (int64_t count = left < SJ_BUCKET_VISITS ? left : SJ_BUCKET_VISITS; count > 0; count--) {
        list_bucket(walk, probe->bucket++);
    }
    if (left <= SJ_BUCKET_VISITS) {
        probe->bucket = 0;
        probe->probe++;
    }
}

/* Asks for the columns of a chunk that it is tested by. */
SJ_INLINE void ask_for_chunk(const sj_bucket_probe *probe, int64_t chunk)
{
    const int narrow = probe->tested_end[SJ_FLOAT32], conditions = probe->tested_end[SJ_FLOAT64];
    const int64_t offset = chunk * LINE_BYTES;
    int c = 0;
    for (; c < narrow; c++) {
        __builtin_prefetch(probe->tested_column[c].items + offset);
    }
    for (; c < conditions; c++) {
        __builtin_prefetch(probe->tested_column[c].items + 2 * offset);
        __builtin_prefetch(probe->tested_column[c].items + 2 * offset + LINE_BYTES);
    }
}

/* Asks for the second chunk of a bucket, halfway between asking for the first and testing it. */
SJ_INLINE void follow(span_walk *walk)
{
    const sj_chunk *chunk = walk->chunks + span_at(walk, walk->followed++)->chunk;
    if (chunk->next != SJ_NO_CHUNK) {
        __builtin_prefetch(walk->chunks + chunk->next);
        ask_for_chunk(walk->probe, chunk->next);
    }
}

/* A probe that is ready to be tested: its bounds by the place of their column, and those of columns of 8 bytes for the
 * lanes, by their slot. */
typedef struct {
    sj_narrow_ints narrow_ints[SJ_MAX_CONDITIONS];
    sj_narrow_floats narrow_floats[SJ_MAX_CONDITIONS];
    lane_bounds bounds;
    int64_t probe; /* -1: none yet */
    int may_match;
} ready_probe;

SJ_INLINE void make_ready(const sj_bucket_probe *probe, int32_t number, ready_probe *ready)
{
    sj_probe values;
    ready->probe = number;
    ready->may_match = sj_prepare(&probe->band, number, &values);
    int c = 0;
    for (; c < probe->tested_end[SJ_INT32]; c++) {
        ready->narrow_ints[c] = sj_narrow_ints_of(&values, probe->tested_column[c].slot);
    }
    for (; c < probe->tested_end[SJ_FLOAT32]; c++) {
        const int slot = probe->tested_column[c].slot;
        ready->narrow_floats[c] = sj_narrow_floats_of(&values, slot);
        if (!ready->narrow_floats[c].is_exact) {
            float_bounds_load(&ready->bounds, &values, slot);
        }
    }
    for (; c < probe->tested_end[SJ_INT64]; c++) {
        int_bounds_load(&ready->bounds, &values, probe->tested_column[c].slot);
    }
    for (; c < probe->tested_end[SJ_FLOAT64]; c++) {
        float_bounds_load(&ready->bounds, &values, probe->tested_column[c].slot);
    }
}

/* Lists and asks for what comes next, and makes the probe of the next span ready. Returns the span; NULL: there are no
 * more. */
SJ_INLINE sj_chunk_span *ready_span(span_walk *walk, ready_probe *ready)
{
    const uint64_t ahead = walk->tested + AHEAD_SPANS;
    if (walk->listed < ahead) {
        while (walk->listed <= walk->tested + SJ_BUCKET_SPANS - SJ_BUCKET_VISITS &&
               walk->probe->probe < walk->probe->band.probe_count) {
            list_buckets(walk);
        }
    }
    while (walk->asked < ahead && walk->asked < walk->listed) {
        ask_for_chunk(walk->probe, span_at(walk, walk->asked++)->chunk);
    }
    while (walk->followed < ahead - AHEAD_SPANS / 2 && walk->followed < walk->asked) {
        follow(walk);
    }
    if (walk->tested == walk->listed) {
        return NULL;
    }
    sj_chunk_span *span = span_at(walk, walk->tested);
    if (span->probe != ready->probe) {
        make_ready(walk->probe, span->probe, ready);
    }
    return span;
}

/* Returns a chunk's facts, and asks for the chunk behind it. The first two of a bucket were asked for before. */
SJ_INLINE sj_chunk entered_chunk(span_walk *walk, const sj_chunk_span *span, int64_t at)
{
    const sj_chunk facts = walk->chunks[at];
    if (at != span->chunk && facts.next != SJ_NO_CHUNK) {
        ask_for_chunk(walk->probe, facts.next);
    }
    walk->candidates += facts.count;
    return facts;
}

/* Returns a bit for each lane of a chunk: whether its item passes a condition on floats. */
#define FLOATS_WITHIN(bounds, slot, load, items)                                                                  \
    unsigned bits = 0;                                                                                            \
    for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {                                                     \
        const lane_float difference = float_minus((bounds)->left[slot], load((items) + lane));                    \
        bits |= mask_bits(float_within(mask_all(), difference, (bounds)->lo[slot], (bounds)->hi[slot])) << lane;  \
    }                                                                                                             \
    return bits;

SJ_INLINE unsigned floats_within(const lane_bounds *bounds, int slot, const double *items)
{
    FLOATS_WITHIN(bounds, slot, float_load, items)
}

SJ_INLINE unsigned widened_floats_within(const lane_bounds *bounds, int slot, const float *items)
{
    FLOATS_WITHIN(bounds, slot, float_load_narrow, items)
}

/* Returns a bit for each row of the chunk's ring: whether it matches. Lanes behind the chunk's rows are read too. */
SJ_INLINE unsigned chunk_ring(const sj_bucket_probe *probe, const ready_probe *ready, int64_t chunk, sj_chunk facts)
{
    const sj_tested_column *column = probe->tested_column;
    const int *end = probe->tested_end;
    const int64_t row = chunk * SJ_CHUNK_ROWS;
    unsigned bits = CHUNK_BITS;
    int c = 0;
    /* Whether the first conditions leave a row is hard to predict: a branch on it costs more than the next test. */
#define CONDITIONS_UP_TO(item) for (; c < end[item] && (bits || c < SURE_CONDITIONS); c++)
    CONDITIONS_UP_TO(SJ_INT32) {
        const sj_narrow_ints *narrow = ready->narrow_ints + c;
        bits &= narrow_ints_within((const int32_t *)column[c].items + row, narrow->lowest, narrow->highest);
    }
    CONDITIONS_UP_TO(SJ_FLOAT32) {
        const sj_narrow_floats *narrow = ready->narrow_floats + c;
        const float *items = (const float *)column[c].items + row;
        bits &= narrow->is_exact ? narrow_floats_within(items, narrow->lowest, narrow->highest)
                                 : widened_floats_within(&ready->bounds, column[c].slot, items);
    }
    CONDITIONS_UP_TO(SJ_INT64) {
        const int slot = column[c].slot;
        bits &= ints_within((const int64_t *)column[c].items + row, ready->bounds.smallest[slot],
                            ready->bounds.largest[slot]);
    }
    CONDITIONS_UP_TO(SJ_FLOAT64) {
        bits &= floats_within(&ready->bounds, column[c].slot, (const double *)column[c].items + row);
    }
#undef CONDITIONS_UP_TO
    /* Bit n: the n-th row of the ring. */
    return bits * (1u + (1u << SJ_CHUNK_ROWS)) >> facts.head & ((1u << facts.count) - 1);
}

int64_t NAME(sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    span_walk walk = begun_walk(probe);
    ready_probe ready;
    sj_chunk_span *span;
    int64_t written = 0;
    int is_full = 0;
    ready.probe = -1;
    for (; !is_full && (span = ready_span(&walk, &ready)); walk.tested += !is_full) {
        for (int64_t at = ready.may_match ? span->chunk : SJ_NO_CHUNK; at != SJ_NO_CHUNK;) {
            is_full = capacity - written < SJ_CHUNK_ROWS; /* all that is left may be written to */
            if (is_full) {
                span->chunk = (int32_t)at;
                break;
            }
            const sj_chunk facts = entered_chunk(&walk, span, at);
            const unsigned ring = chunk_ring(probe, &ready, at, facts);
            written += emit_chunk(ring, at * SJ_CHUNK_ROWS, facts.head, span->probe, out_probe + written,
                                  out_row + written);
            at = facts.next;
        }
    }
    end_walk(&walk);
    return written;
}

/* Gives the rows of a ring to the sums, by their lanes. */
SJ_INLINE void fold_chunk(sj_partner_sums *sums, unsigned ring, int64_t chunk, int head)
{
    const unsigned bits = (ring << head | ring << head >> SJ_CHUNK_ROWS) & CHUNK_BITS;
    for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
        sj_fold_put(sums, chunk * SJ_CHUNK_ROWS + lane, 1, bits >> lane & ((1u << LANES) - 1));
    }
}

void NAME(sj_bucket_count)(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums)
{
    span_walk walk = begun_walk(probe);
    ready_probe ready;
    const sj_chunk_span *span;
    ready.probe = -1;
    for (; (span = ready_span(&walk, &ready)); walk.tested++) {
        int64_t found = 0;
        for (int64_t at = ready.may_match ? span->chunk : SJ_NO_CHUNK; at != SJ_NO_CHUNK;) {
            const sj_chunk facts = entered_chunk(&walk, span, at);
            const unsigned ring = chunk_ring(probe, &ready, at, facts);
            found += bits_set(ring);
            if (sums) {
                sj_fold_begin(sums, span->probe);
                fold_chunk(sums, ring, at, facts.head);
            }
            at = facts.next;
        }
        counts[span->probe] += found;
    }
    end_walk(&walk);
}
