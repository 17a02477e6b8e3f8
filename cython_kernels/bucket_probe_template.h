/* The probe of a bucket grid, for one width of lanes: the chunks of a few probes' cells are asked for together, then tested.
 *
 * Every probe looks at the chunks of its cells' buckets in the order of the cells, each bucket once, and at a bucket's
 * rows in order of their arrival: the order of the pairs is a function of the rows, not of how many fit the output.
 */
#include <string.h>

#include "bucket_grid.h"
#include "rows.h"

#define LINE_BYTES 64

SJ_INLINE const char *chunk_column(const sj_bucket_columns *columns, int condition, int64_t chunk)
{
    const int bytes = columns->item[condition] == SJ_FLOAT64 || columns->item[condition] == SJ_INT64 ? 8 : 4;
    return (const char *)columns->right[condition] + chunk * SJ_CHUNK_ROWS * bytes;
}

SJ_INLINE void ask_for_chunk(const sj_bucket_probe *probe, int64_t chunk)
{
    const sj_bucket_columns *columns = &probe->columns;
    for (int c = 0; c < columns->conditions; c++) {
        const char *from = chunk_column(columns, c, chunk);
        __builtin_prefetch(from);
        if (columns->item[c] == SJ_FLOAT64 || columns->item[c] == SJ_INT64) {
            __builtin_prefetch(from + LINE_BYTES);
        }
    }
}

/* Bits of the LANES rows from `lane` on that pass one condition. */
SJ_INLINE unsigned lanes_test(const sj_bucket_columns *columns, const lane_bounds *bounds, int condition, int64_t row)
{
    const int slot = columns->slot[condition];
    const void *column = columns->right[condition];
    if (columns->is_float[condition]) {
        const lane_float right = columns->item[condition] == SJ_FLOAT64 ? float_load((const double *)column + row)
                                                                      : float_load_narrow((const float *)column + row);
        return mask_bits(float_within(mask_all(), float_minus(bounds->left[slot], right), bounds->lo[slot],
                                      bounds->hi[slot]));
    }
    const lane_int right = columns->item[condition] == SJ_INT64 ? int_load((const int64_t *)column + row)
                                                              : int_load_narrow((const int32_t *)column + row);
    return mask_bits(int_within(mask_all(), right, bounds->smallest[slot], bounds->largest[slot]));
}

/* Writes the chunk's matches; they all fit. Lanes behind its rows are read too: the room is there. */
SJ_INLINE int64_t chunk_matches(const sj_bucket_probe *probe, const lane_bounds *bounds, int64_t chunk, int32_t probe_id,
                                int32_t *out_probe, int32_t *out_run)
{
    unsigned bits = (1u << probe->grid->counts[chunk]) - 1;
    const int64_t first = chunk * SJ_CHUNK_ROWS;
    for (int c = 0; c < probe->columns.conditions && bits; c++) {
        unsigned found = 0;
        for (int lane = 0; lane < SJ_CHUNK_ROWS; lane += LANES) {
            found |= lanes_test(&probe->columns, bounds, c, first + lane) << lane;
        }
        bits &= found;
    }
    int64_t written = 0;
    for (int lane = 0; lane < SJ_CHUNK_ROWS && bits >> lane; lane += LANES) {
        const unsigned part = bits >> lane & ((1u << LANES) - 1);
        if (part) {
            written += emit(part, first + lane, probe_id, out_probe + written, out_run + written);
        }
    }
    return written;
}

/* How many cells the probe's band covers; more than SJ_BUCKET_VISITS are not counted. */
SJ_INLINE int64_t cells_of(const sj_bucket_probe *probe)
{
    sj_int128 cells = 1;
    for (int key = 0; key < SJ_BUCKET_KEYS && cells > 0 && cells <= SJ_BUCKET_VISITS; key++) {
        cells *= (sj_int128)probe->cell_to[key][probe->probe] - probe->cell_from[key][probe->probe] + 1;
    }
    return cells > SJ_BUCKET_VISITS ? SJ_BUCKET_VISITS + 1 : cells > 0 ? (int64_t)cells : 0;
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

/* The next bucket of the probe in work that it has not looked at; -1: no more. */
SJ_INLINE int64_t next_bucket(sj_bucket_probe *probe)
{
    if (probe->cells > SJ_BUCKET_VISITS) {
        return probe->bucket < probe->grid->bucket_count ? probe->bucket++ : -1;
    }
    while (probe->cells > 0) {
        const int64_t bucket = sj_bucket_of(probe->grid, (uint64_t)probe->first, (uint64_t)probe->second);
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
    return -1;
}

/* Second chunks behind the first: they are asked for while the others are tested. */
SJ_INLINE void follow_chunks(sj_bucket_probe *probe)
{
    const sj_bucket_grid *grid = probe->grid;
    sj_chunk_span first[SJ_BUCKET_SPANS];
    const int count = probe->span_count;
    memcpy(first, probe->span, (size_t)count * sizeof *first);
    sj_chunk_span *to = probe->span;
    for (int at = 0; at < count; at++) {
        const int32_t chunk = first[at].chunk;
        *to = first[at];
        if (grid->counts[chunk] == SJ_CHUNK_ROWS && grid->next[chunk] >= 0) {
            to->is_followed = 0;
            to++;
            to->probe = first[at].probe;
            to->chunk = grid->next[chunk];
            to->is_followed = 1;
            ask_for_chunk(probe, to->chunk);
        }
        to++;
    }
    probe->span_count = (int)(to - probe->span);
}

/* The first chunks of the next probes' buckets, as many as are asked for at a time. */
SJ_INLINE void first_chunks(sj_bucket_probe *probe)
{
    probe->span_at = probe->span_count = 0;
    for (; probe->probe < probe->band.probe_count; probe->probe++) {
        if (!probe->in_probe) {
            enter_probe(probe);
        }
        while (probe->span_count < SJ_BUCKET_SPANS) {
            const int64_t bucket = next_bucket(probe);
            if (bucket < 0) {
                break;
            }
            const sj_chunk_span span = {(int32_t)probe->probe, (int32_t)bucket, 1};
            probe->span[probe->span_count++] = span;
            __builtin_prefetch(probe->grid->counts + bucket);
            __builtin_prefetch(probe->grid->next + bucket);
            ask_for_chunk(probe, bucket);
        }
        if (probe->span_count == SJ_BUCKET_SPANS) {
            return; /* in the middle of this probe, for all we know */
        }
        probe->in_probe = 0;
    }
}

int64_t NAME(sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_run, int64_t capacity)
{
    const sj_bucket_grid *grid = probe->grid;
    lane_bounds bounds;
    int64_t written = 0, prepared = -1;
    int may_match = 0;
    for (;;) {
        for (; probe->span_at < probe->span_count; probe->span_at++) {
            sj_chunk_span *span = &probe->span[probe->span_at];
            if (span->probe != prepared) {
                sj_probe values;
                may_match = sj_prepare(&probe->band, span->probe, &values);
                if (may_match) {
                    bounds_load(&bounds, &probe->band, &values, probe->band.float_count, probe->band.int_count);
                }
                prepared = span->probe;
            }
            if (!may_match) {
                continue;
            }
            while (span->chunk >= 0) {
                if (capacity - written < SJ_CHUNK_ROWS + LANES) {
                    return written;
                }
                const int64_t chunk = span->chunk;
                span->chunk = span->is_followed && grid->counts[chunk] == SJ_CHUNK_ROWS ? grid->next[chunk] : -1;
                if (span->chunk >= 0) {
                    ask_for_chunk(probe, span->chunk);
                }
                probe->candidates += grid->counts[chunk];
                written += chunk_matches(probe, &bounds, chunk, span->probe, out_probe + written,
                                         out_run + written);
            }
        }
        first_chunks(probe);
        if (!probe->span_count) {
            return written;
        }
        follow_chunks(probe);
    }
}
