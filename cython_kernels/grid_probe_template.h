/* The grid probe, for one width of lanes: sorted probes meet a sorted run like a merge join in each neighbour bucket.
 *
 *   run     | bucket 7       | bucket 8       | bucket 9       |      a bucket is sorted by the second attribute
 *                 ^pointer         ^pointer                            pointers only move forward while the probes'
 *   probe   from bucket 7 to bucket 8                                  first bucket stays the same
 *
 * fl(left - right) never grows as right grows, so rows are skipped while it is above hi and read until it is below lo;
 * every row between is decided by the exact test. NaN compares false both ways: it is neither skipped nor a stop.
 *
 * A probe of a large run waits for memory at every step of a search. So the probes go in groups of spans, in three
 * passes: search the fences (in cache) and ask for the rows; skip to the band and ask for the other columns; test.
 */
#include "rows.h"

/* Steps of one register before the skip starts to gallop. */
#define SKIP_STEPS 12

/* A column sorted within each bucket; only the one that `sorted` names is there. */
typedef struct {
    const double *floats;
    const int64_t *ints;
} sorted_column;

/* Is the value before the probe's band of the sort attribute? */
SJ_INLINE int row_is_over(const sj_band *band, const sj_probe *probe, int sorted, sorted_column column, int64_t row)
{
    if (sorted == SJ_SORTED_FLOAT) {
        return probe->left[0] - column.floats[row] > band->float_hi[0];
    }
    return column.ints[row] < probe->smallest[0];
}

/* First row of row:end that is not before the probe's band. */
SJ_INLINE int64_t skip_rows(const sj_band *band, const sj_probe *probe, int sorted, sorted_column column, int64_t row,
                            int64_t end)
{
    const unsigned all = (1u << LANES) - 1;
    for (int step = 0; step < SKIP_STEPS && end - row >= LANES; step++) {
        unsigned over;
        if (sorted == SJ_SORTED_FLOAT) {
            const lane_float difference = float_minus(float_all(probe->left[0]), float_load(column.floats + row));
            over = float_over(difference, float_all(band->float_hi[0]));
        } else {
            over = int_less(int_load(column.ints + row), int_all(probe->smallest[0]));
        }
        if (over != all) {
            return row + __builtin_ctz(~over);
        }
        row += LANES;
    }
    int64_t stride = 4 * LANES;
    while (end - row > stride && row_is_over(band, probe, sorted, column, row + stride)) {
        row += stride + 1;
        stride *= 2;
    }
    int64_t high = end - row > stride ? row + stride : end;
    while (row < high) {
        const int64_t middle = row + (high - row) / 2;
        if (row_is_over(band, probe, sorted, column, middle)) {
            row = middle + 1;
        } else {
            high = middle;
        }
    }
    return row;
}

SJ_INLINE sorted_column column_of(const sj_grid *grid)
{
    const sorted_column column = {grid->band.float_right[0], grid->band.int_right[0]};
    return column;
}

/* A row of row:end before which all are before the probe's band, and at most 32 after it: found among the fences. */
SJ_INLINE int64_t skip_fences(const sj_grid *grid, const sj_probe *probe, int sorted, int64_t row, int64_t end)
{
    const sorted_column fences = {grid->float_fences, grid->int_fences};
    const int64_t first = (row + SJ_FENCE_ROWS - 1) / SJ_FENCE_ROWS;
    const int64_t last = (end + SJ_FENCE_ROWS - 1) / SJ_FENCE_ROWS;
    const int64_t fence = skip_rows(&grid->band, probe, sorted, fences, first, last);
    return fence > first ? (fence - 1) * SJ_FENCE_ROWS + 1 : row;
}

/* Tests `count` rows at `row`; the number of them that are not past the band goes to `tested`. */
SJ_INLINE int64_t grid_step(const lane_bounds *bounds, const sj_band *band, int float_count, int int_count, int sorted,
                            int64_t row, int64_t count, int32_t probe_id, int32_t *out_probe, int32_t *out_run,
                            int64_t *tested)
{
    unsigned under = 0;
    if (sorted == SJ_SORTED_FLOAT) {
        const double *from = band->float_right[0] + row;
        const lane_float right = count >= LANES ? float_load(from) : float_load_some(from, count);
        under = float_under(float_minus(bounds->left[0], right), bounds->lo[0]);
    } else if (sorted == SJ_SORTED_INT) {
        const int64_t *from = band->int_right[0] + row;
        const lane_int right = count >= LANES ? int_load(from) : int_load_some(from, count);
        under = int_less(bounds->largest[0], right);
    }
    if (count < LANES) {
        under &= (1u << count) - 1;
    }
    const unsigned bits = rows_test(bounds, band, 0, float_count, 0, int_count, row, count);
    *tested = under ? __builtin_ctz(under) : count;
    return emit(bits, row, probe_id, out_probe, out_run);
}

/* Returns the row it stopped at: `end` (all tested, or past the band), or an earlier one because the output is full. */
SJ_INLINE int64_t grid_rows(const sj_band *band, const sj_probe *probe, int float_count, int int_count, int sorted,
                            int64_t row, int64_t end, int32_t probe_id, row_output *output, int64_t *candidates)
{
    if ((sorted == SJ_SORTED_FLOAT && float_count < 1) || (sorted == SJ_SORTED_INT && int_count < 1)) {
        __builtin_unreachable(); /* the sort attribute is a condition */
    }
    lane_bounds bounds;
    bounds_load(&bounds, band, probe, float_count, int_count);
    int32_t *out_probe = output->probe, *out_run = output->run;
    const int64_t limit = output->capacity - LANES;
    const int64_t from = row;
    int64_t written = output->written, tested = LANES;
    while (end - row >= LANES && written <= limit) {
        written += grid_step(&bounds, band, float_count, int_count, sorted, row, LANES, probe_id, out_probe + written,
                             out_run + written, &tested);
        if (tested < LANES) {
            *candidates += row + tested - from;
            output->written = written;
            return end;
        }
        row += LANES;
    }
    *candidates += row - from;
    if (row < end && end - row < LANES && written <= limit) {
        written += grid_step(&bounds, band, float_count, int_count, sorted, row, end - row, probe_id,
                             out_probe + written, out_run + written, &tested);
        *candidates += tested;
        row = end;
    }
    output->written = written;
    return row;
}

#define SJ_CALL_NONE(float_count, int_count) \
    grid_rows(band, probe, float_count, int_count, SJ_SORTED_NONE, row, end, probe_id, output, candidates)
#define SJ_CALL_FLOAT(float_count, int_count) \
    grid_rows(band, probe, float_count, int_count, SJ_SORTED_FLOAT, row, end, probe_id, output, candidates)
#define SJ_CALL_INT(float_count, int_count) \
    grid_rows(band, probe, float_count, int_count, SJ_SORTED_INT, row, end, probe_id, output, candidates)

static int64_t NAME(sj_grid_rows)(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                  int32_t probe_id, row_output *output, int64_t *candidates)
{
    if (sorted == SJ_SORTED_FLOAT) {
        SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL_FLOAT)
    }
    if (sorted == SJ_SORTED_INT) {
        SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL_INT)
    }
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL_NONE)
}

/* First directory entry from `entry` on that is not below `bucket`. */
SJ_INLINE int64_t skip_buckets(const sj_grid *grid, int64_t entry, int64_t bucket)
{
    int64_t stride = 1;
    while (grid->bucket_count - entry > stride && grid->bucket_ids[entry + stride] < bucket) {
        entry += stride;
        stride *= 2;
    }
    int64_t high = grid->bucket_count - entry > stride ? entry + stride : grid->bucket_count;
    while (entry < high) {
        const int64_t middle = entry + (high - entry) / 2;
        if (grid->bucket_ids[middle] < bucket) {
            entry = middle + 1;
        } else {
            high = middle;
        }
    }
    return entry;
}

/* The probe's first bucket is that of the live probe before it, or a later one: then every pointer starts anew. */
SJ_INLINE void enter_group(sj_grid *grid)
{
    const int64_t bucket = grid->bucket_from[grid->probe];
    if (!grid->in_group || bucket != grid->group_from) {
        grid->group_from = bucket;
        grid->group_bucket = skip_buckets(grid, grid->group_bucket, bucket);
        grid->pointers_set = 0;
        grid->in_group = 1;
    }
}

/* The part of a bucket that is not before the probe's band; with fences it may begin up to 32 rows too early. */
SJ_INLINE void enter_bucket(sj_grid *grid, const sj_probe *probe, int sorted, int64_t entry)
{
    const int64_t run_count = grid->band.run_count;
    int64_t begin = grid->bucket_starts[entry], end = grid->bucket_starts[entry + 1];
    /* A directory that lies must not make us read outside the columns. */
    begin = begin < 0 ? 0 : begin > run_count ? run_count : begin;
    end = end < begin ? begin : end > run_count ? run_count : end;
    if (sorted != SJ_SORTED_NONE) {
        const int64_t slot = grid->slot;
        if (slot < grid->pointers_set) {
            begin = grid->pointer[slot];
        }
        begin = grid->float_fences || grid->int_fences
                    ? skip_fences(grid, probe, sorted, begin, end)
                    : skip_rows(&grid->band, probe, sorted, column_of(grid), begin, end);
        if (slot < SJ_GRID_POINTERS) {
            grid->pointer[slot] = begin;
            grid->pointers_set = slot < grid->pointers_set ? grid->pointers_set : slot + 1;
        }
    }
    if (begin < end) {
        const sj_span span = {grid->probe, begin, end};
        grid->span[grid->span_count++] = span;
    }
}

/* Asks for the rows at `row` of all columns but the sorted one. */
SJ_INLINE void prefetch_rows(const sj_band *band, int sorted, int64_t row)
{
    for (int c = sorted == SJ_SORTED_FLOAT; c < band->float_count; c++) {
        __builtin_prefetch(band->float_right[c] + row);
    }
    for (int c = sorted == SJ_SORTED_INT; c < band->int_count; c++) {
        __builtin_prefetch(band->int_right[c] + row);
    }
}

SJ_INLINE void prefetch_sorted(const sj_grid *grid, int sorted, int64_t row)
{
    const char *from = sorted == SJ_SORTED_FLOAT ? (const char *)(grid->band.float_right[0] + row)
                                                 : (const char *)(grid->band.int_right[0] + row);
    for (int line = 0; line < SJ_FENCE_ROWS * 8 / 64; line++) {
        __builtin_prefetch(from + 64 * line);
    }
}

/* Looks up the next probes' buckets: the spans are found, and then their rows asked for, all at once. */
SJ_INLINE void find_spans(sj_grid *grid, int sorted)
{
    sj_probe probe;
    grid->span_at = grid->span_count = 0;
    for (; grid->probe < grid->band.probe_count; grid->probe++) {
        if (!sj_prepare(&grid->band, grid->probe, &probe)) {
            continue;
        }
        if (!grid->in_probe) {
            enter_group(grid);
            grid->slot = 0;
            grid->in_probe = 1;
        }
        const int64_t last_bucket = grid->bucket_to[grid->probe];
        for (;; grid->slot++) {
            const int64_t entry = grid->group_bucket + grid->slot;
            if (entry >= grid->bucket_count || grid->bucket_ids[entry] > last_bucket) {
                break;
            }
            if (grid->span_count == SJ_GRID_SPANS) {
                return;
            }
            const int before = grid->span_count;
            enter_bucket(grid, &probe, sorted, entry);
            if (grid->span_count > before && sorted != SJ_SORTED_NONE) {
                prefetch_sorted(grid, sorted, grid->span[before].row);
            }
        }
        grid->in_probe = 0;
    }
}

/* Moves each span to its first row within the band of the sort attribute, and asks for the other columns there. */
SJ_INLINE void settle_spans(sj_grid *grid, int sorted)
{
    const int exact = !(grid->float_fences || grid->int_fences);
    sj_probe probe;
    for (int at = 0; at < grid->span_count; at++) {
        sj_span *span = &grid->span[at];
        if (sorted != SJ_SORTED_NONE && !exact) {
            if (sorted == SJ_SORTED_FLOAT) {
                probe.left[0] = grid->band.float_left[0][span->probe];
            } else {
                sj_prepare(&grid->band, span->probe, &probe);
            }
            span->row = skip_rows(&grid->band, &probe, sorted, column_of(grid), span->row, span->end);
        }
        if (span->row < span->end) {
            prefetch_rows(&grid->band, sorted, span->row);
        }
    }
}

SJ_INLINE void next_spans(sj_grid *grid)
{
    switch (grid->sorted) {
    case SJ_SORTED_FLOAT:
        find_spans(grid, SJ_SORTED_FLOAT);
        settle_spans(grid, SJ_SORTED_FLOAT);
        break;
    case SJ_SORTED_INT:
        find_spans(grid, SJ_SORTED_INT);
        settle_spans(grid, SJ_SORTED_INT);
        break;
    default:
        find_spans(grid, SJ_SORTED_NONE);
        settle_spans(grid, SJ_SORTED_NONE);
    }
}

int64_t NAME(sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_run, int64_t capacity)
{
    row_output output = {out_probe, out_run, 0, capacity};
    for (;;) {
        sj_probe probe;
        int64_t prepared = -1;
        for (; grid->span_at < grid->span_count; grid->span_at++) {
            sj_span *span = &grid->span[grid->span_at];
            if (span->row >= span->end) {
                continue;
            }
            if (span->probe != prepared) {
                sj_prepare(&grid->band, span->probe, &probe);
                prepared = span->probe;
            }
            span->row = NAME(sj_grid_rows)(&grid->band, &probe, grid->sorted, span->row, span->end,
                                           grid->probe_order[span->probe], &output, &grid->candidates);
            if (span->row < span->end) {
                return output.written;
            }
        }
        next_spans(grid);
        if (!grid->span_count) {
            return output.written;
        }
    }
}
