/* The probe of a bucket grid, for one width of lanes: chunks are prefetched ("asked for") well before they are tested.
 *
 *   probes ──► asked for ──► second chunk asked for ──► tested        16 buckets between each two of them
 *
 * Every probe looks at the buckets of its cells in the order of the cells, at each bucket once, and at a bucket's rows
 * in order of their arrival. So the order of the pairs does not depend on how many fit the output.
 */
#include "bucket/bucket_grid.h"
#include "scan/rows.h"
#include "sums/partner_sums.h"

#define LINE_BYTES 64
#define SURE_CONDITIONS 3 /* conditions that are tested without asking whether a row is left */
#define CHUNK_BITS ((1u << SJ_CHUNK_ROWS) - 1)

SJ_INLINE const char *chunk_column(const sj_bucket_columns *columns, int condition, int64_t chunk)
{
    return (const char *)columns->right[condition] + chunk * columns->chunk_bytes[condition];
}

SJ_INLINE void ask_for_chunk(const sj_bucket_probe *probe, int64_t chunk)
{
    const sj_bucket_columns *columns = &probe->columns;
    for (int c = 0; c < columns->conditions; c++) {
        const char *from = chunk_column(columns, c, chunk);
        __builtin_prefetch(from);
        if (columns->chunk_bytes[c] > LINE_BYTES) {
            __builtin_prefetch(from + LINE_BYTES);
        }
    }
}

SJ_INLINE unsigned float_bits(const lane_bounds *bounds, int slot, lane_float right)
{
    const lane_float difference = float_minus(bounds->left[slot], right);
    return mask_bits(float_within(mask_all(), difference, bounds->lo[slot], bounds->hi[slot]));
}

SJ_INLINE unsigned int_bits(const lane_bounds *bounds, int slot, lane_int right)
{
    return mask_bits(int_within(mask_all(), right, bounds->smallest[slot], bounds->largest[slot]));
}

/* Returns a bit for each lane of a chunk: whether its row passes one condition. */
SJ_INLINE unsigned chunk_test(const sj_bucket_columns *columns, const lane_bounds *bounds, int condition, int64_t chunk)
{
    const void *items = chunk_column(columns, condition, chunk);
    const int slot = columns->slot[condition];
    unsigned bits = 0;
    switch (columns->item[condition]) {
    case SJ_FLOAT64:
        for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
            bits |= float_bits(bounds, slot, float_load((const double *)items + lane)) << lane;
        }
        break;
    case SJ_FLOAT32:
        for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
            bits |= float_bits(bounds, slot, float_load_narrow((const float *)items + lane)) << lane;
        }
        break;
    case SJ_INT64:
        for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
            bits |= int_bits(bounds, slot, int_load((const int64_t *)items + lane)) << lane;
        }
        break;
    default:
        for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
            bits |= int_bits(bounds, slot, int_load_narrow((const int32_t *)items + lane)) << lane;
        }
    }
    return bits;
}

/* Returns a bit for each row of the chunk's ring: whether it matches. Lanes behind the chunk's rows are read too. */
SJ_INLINE unsigned chunk_ring(const sj_bucket_probe *probe, const lane_bounds *bounds, int64_t chunk, sj_chunk facts)
{
    unsigned bits = ~0u;
    /* Whether the first conditions leave a row is hard to predict: a branch on it costs more than the next test. */
    for (int c = 0; c < probe->columns.conditions && (bits || c < SURE_CONDITIONS); c++) {
        bits &= chunk_test(&probe->columns, bounds, c, chunk);
    }
    /* Bit n: the n-th row of the ring. */
    return (bits & CHUNK_BITS) * (1u + (1u << SJ_CHUNK_ROWS)) >> facts.head & ((1u << facts.count) - 1);
}

/* Writes the chunk's matches. The output has room for 16 pairs, and all of it may be written to. */
SJ_INLINE int64_t chunk_matches(const sj_bucket_probe *probe, const lane_bounds *bounds, int64_t chunk, sj_chunk facts,
                                int32_t probe_id, int32_t *out_probe, int32_t *out_row)
{
    const unsigned ring = chunk_ring(probe, bounds, chunk, facts);
    return emit_chunk(ring, chunk * SJ_CHUNK_ROWS, facts.head, probe_id, out_probe, out_row);
}

/* Returns how many cells the probe's band covers; SJ_BUCKET_VISITS + 1 stands for any number above SJ_BUCKET_VISITS. */
SJ_INLINE int64_t cells_of(const sj_bucket_probe *probe)
{
    uint64_t cells = 1;
    for (int key = 0; key < SJ_BUCKET_KEYS; key++) {
        const int64_t from = probe->cell_from[key][probe->probe], to = probe->cell_to[key][probe->probe];
        if (to < from) {
            return 0;
        }
        if ((uint64_t)to - (uint64_t)from >= SJ_BUCKET_VISITS) {
            return SJ_BUCKET_VISITS + 1;
        }
        cells *= (uint64_t)to - (uint64_t)from + 1;
    }
    return cells > SJ_BUCKET_VISITS ? SJ_BUCKET_VISITS + 1 : (int64_t)cells;
}

SJ_INLINE void enter_probe(sj_bucket_probe *probe)
{
    probe->in_probe = 1;
    probe->visited_count = 0;
    probe->cells = probe->is_scan ? SJ_BUCKET_VISITS + 1 : cells_of(probe);
    probe->bucket = probe->cells > SJ_BUCKET_VISITS ? 0 : probe->grid->bucket_count;
    if (probe->cells <= SJ_BUCKET_VISITS) {
        probe->first = probe->cell_from[0][probe->probe];
        probe->second = probe->cell_from[1][probe->probe];
    }
}

/* Returns the bucket of the next cell. Mostly that is the bucket behind the last one, which saves a division. */
SJ_INLINE int64_t cell_bucket(sj_bucket_probe *probe)
{
    const sj_bucket_grid *grid = probe->grid;
    const uint64_t cell = sj_cell_of(grid, (uint64_t)probe->first, (uint64_t)probe->second);
    if (cell != probe->cell + 1 || !cell) {
        probe->cell_bucket = sj_bucket_of(grid, cell);
    } else if (++probe->cell_bucket == grid->bucket_count) {
        probe->cell_bucket = 0;
    }
    probe->cell = cell;
    return probe->cell_bucket;
}

/* Returns the next bucket that the probe in work has not looked at; SJ_NO_CHUNK: there are no more. */
SJ_INLINE int64_t next_bucket(sj_bucket_probe *probe)
{
    if (probe->cells > SJ_BUCKET_VISITS) {
        return probe->bucket < probe->grid->bucket_count ? probe->bucket++ : SJ_NO_CHUNK;
    }
    while (probe->cells > 0) {
        const int64_t bucket = cell_bucket(probe);
        probe->cells--;
        if (probe->second < probe->cell_to[1][probe->probe]) {
            probe->second++;
        } else if (probe->cells) {
            probe->second = probe->cell_from[1][probe->probe];
            probe->first++;
        }
        int seen = 0;
        for (int visit = 0; visit < probe->visited_count; visit++) {
            seen |= probe->visited[visit] == bucket;
        }
        if (!seen) {
            probe->visited[probe->visited_count++] = bucket;
            return bucket;
        }
    }
    return SJ_NO_CHUNK;
}

/* Asks for the first chunk of the next bucket that is to be tested; returns 0 where there is none. */
SJ_INLINE int ask_for_next(sj_bucket_probe *probe)
{
    for (; probe->probe < probe->band.probe_count; probe->probe++) {
        if (!probe->in_probe) {
            enter_probe(probe);
        }
        const int64_t bucket = next_bucket(probe);
        if (bucket != SJ_NO_CHUNK) {
            const sj_chunk_span span = {(int32_t)probe->probe, (int32_t)bucket};
            probe->ring[probe->asked++ % SJ_BUCKET_AHEAD] = span;
            __builtin_prefetch(probe->grid->chunks + bucket);
            ask_for_chunk(probe, bucket);
            return 1;
        }
        probe->in_probe = 0;
    }
    return 0;
}

/* Asks for the second chunk of a bucket, halfway between asking for the first and testing it. */
SJ_INLINE void follow(sj_bucket_probe *probe)
{
    const sj_chunk *chunk = probe->grid->chunks + probe->ring[probe->followed++ % SJ_BUCKET_AHEAD].chunk;
    if (chunk->next != SJ_NO_CHUNK) {
        __builtin_prefetch(probe->grid->chunks + chunk->next);
        ask_for_chunk(probe, chunk->next);
    }
}

/* A probe that is ready to be tested, and whether any row may match it. */
typedef struct {
    lane_bounds bounds;
    int64_t probe; /* -1: none yet */
    int may_match;
} ready_probe;

/* Asks for what comes next, and makes the probe of the next span ready. Returns the span; NULL: there are no more. */
SJ_INLINE sj_chunk_span *ready_span(sj_bucket_probe *probe, ready_probe *ready)
{
    while (probe->asked < probe->tested + SJ_BUCKET_AHEAD && ask_for_next(probe)) {
    }
    while (probe->followed < probe->asked && probe->followed < probe->tested + SJ_BUCKET_AHEAD / 2) {
        follow(probe);
    }
    if (probe->tested == probe->asked) {
        return NULL;
    }
    sj_chunk_span *span = &probe->ring[probe->tested % SJ_BUCKET_AHEAD];
    if (span->probe != ready->probe) {
        sj_probe values;
        ready->may_match = sj_prepare(&probe->band, span->probe, &values);
        if (ready->may_match) {
            bounds_load(&ready->bounds, &values, probe->band.float_count, probe->band.int_count);
        }
        ready->probe = span->probe;
    }
    return span;
}

/* Returns a chunk's facts; asks for the chunk behind it. */
SJ_INLINE sj_chunk entered_chunk(sj_bucket_probe *probe, int64_t at)
{
    const sj_chunk chunk = probe->grid->chunks[at];
    if (chunk.next != SJ_NO_CHUNK) {
        ask_for_chunk(probe, chunk.next);
    }
    probe->candidates += chunk.count;
    return chunk;
}

int64_t NAME(sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    ready_probe ready;
    sj_chunk_span *span;
    int64_t written = 0;
    ready.probe = -1;
    for (; (span = ready_span(probe, &ready)); probe->tested++) {
        while (ready.may_match && span->chunk != SJ_NO_CHUNK) {
            if (capacity - written < SJ_CHUNK_ROWS) {
                return written;
            }
            const sj_chunk chunk = entered_chunk(probe, span->chunk);
            written += chunk_matches(probe, &ready.bounds, span->chunk, chunk, span->probe, out_probe + written,
                                     out_row + written);
            span->chunk = chunk.next;
        }
    }
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
    ready_probe ready;
    const sj_chunk_span *span;
    ready.probe = -1;
    for (; (span = ready_span(probe, &ready)); probe->tested++) {
        int64_t found = 0;
        for (int64_t at = span->chunk; ready.may_match && at != SJ_NO_CHUNK;) {
            const sj_chunk chunk = entered_chunk(probe, at);
            const unsigned ring = chunk_ring(probe, &ready.bounds, at, chunk);
            found += bits_set(ring);
            if (sums) {
                sj_fold_begin(sums, span->probe);
                fold_chunk(sums, ring, at, chunk.head);
            }
            at = chunk.next;
        }
        counts[span->probe] += found;
    }
}

#include "bucket/bucket_matches_template.h"
