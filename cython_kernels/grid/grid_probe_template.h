/* The grid probe, for one width of lanes: sorted probes meet a sorted run like a merge join in each neighbour bucket.
 *
 *   run     | bucket 7       | bucket 8       | bucket 9       |      a bucket is sorted by the second key
 *                 ^pointer         ^pointer                            pointers only move forward while the probes'
 *   probe   from bucket 7 to bucket 8                                  first bucket stays the same
 *
 * A probe of a large run waits for memory at every step of a search. So some spans are looked up together, in three
 * passes: search the fences (in cache) and prefetch the rows; skip to the band and prefetch the other columns; test.
 * A run that is one bucket has steps instead of fences: where a probe's rows begin is looked up, not searched.
 */
#include <math.h>

#include "grid/sorted_rows.h"

SJ_INLINE sorted_column column_of(const sj_grid *grid)
{
    const sorted_column column = {grid->band.float_right[0], grid->band.int_right[0]};
    return column;
}

/* Returns a row of row:end, found among the fences: all rows before it are before the probe's band, and of the rows
 * from it on at most 32 are. */
SJ_INLINE int64_t skip_fences(const sj_grid *grid, const sj_probe *probe, int sorted, int64_t row, int64_t end)
{
    const sorted_column fences = {grid->float_fences, grid->int_fences};
    const int64_t first = (row + SJ_FENCE_ROWS - 1) / SJ_FENCE_ROWS;
    const int64_t last = (end + SJ_FENCE_ROWS - 1) / SJ_FENCE_ROWS;
    const int64_t fence = skip_rows(probe, sorted, fences, first, last);
    return fence > first ? (fence - 1) * SJ_FENCE_ROWS + 1 : row;
}

/* Returns the first directory entry from `entry` on that is not below `bucket`. */
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

/* Begins a group where the probe's first bucket is not that of the live probe before it: all pointers start anew. */
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

/* Whether all rows of a bucket hold what the condition of the buckets asks, and nothing is asked besides but the sorted
 * key. Then the matches need no test: they are the rows within the band of that key. */
SJ_INLINE int bucket_is_settled(const sj_grid *grid, const sj_probe *probe, int sorted, int64_t entry)
{
    const int others = grid->band.float_count + grid->band.int_count - 1;
    if (!grid->is_counting || (sorted != SJ_SORTED_FLOAT && sorted != SJ_SORTED_INT) || others > 1 ||
        (sorted == SJ_SORTED_FLOAT && !isfinite(probe->left[0]))) {
        return 0;
    }
    if (!others) {
        return 1;
    }
    const int64_t id = grid->bucket_ids[entry];
    const int slot = grid->first_slot;
    if (id < -SJ_SETTLED_BUCKETS || id > SJ_SETTLED_BUCKETS) {
        return 0; /* too far out to say where the bucket ends */
    }
    if (grid->int_width) {
        const sj_int128 smallest = (sj_int128)id * grid->int_width;
        return smallest >= probe->smallest[slot] && smallest + (grid->int_width - 1) <= probe->largest[slot];
    }
    if (!(grid->float_width > SJ_SETTLED_WIDTH)) {
        return 0;
    }
    /* A value's bucket is floor(fl(x / width)): the bucket's values lie within these ends. As fl(left - x) is monotone
     * in x, all pass where both ends do. */
    const double begin = (double)id * grid->float_width, end = (double)(id + 1) * grid->float_width;
    const double slack = (fabs(begin) + fabs(end)) * 0x1p-50;
    const double most = probe->left[slot] - (begin - slack), least = probe->left[slot] - (end + slack);
    return most <= probe->hi[slot] && least >= probe->lo[slot];
}

/* Adds a span: the part of a bucket that is not before the probe's band. With fences it may begin 32 rows too early. */
SJ_INLINE void enter_bucket(sj_grid *grid, const sj_probe *probe, int sorted, int64_t entry)
{
    const int64_t run_count = grid->band.run_count;
    int64_t begin = grid->bucket_starts[entry], end = grid->bucket_starts[entry + 1];
    /* Even a wrong directory must not lead to reading outside the columns. */
    begin = begin < 0 ? 0 : begin > run_count ? run_count : begin;
    end = end < begin ? begin : end > run_count ? run_count : end;
    if (sorted != SJ_SORTED_NONE) {
        const int64_t slot = grid->slot;
        if (slot < grid->pointers_set) {
            begin = grid->pointer[slot];
        }
        begin = grid->float_fences || grid->int_fences
                    ? skip_fences(grid, probe, sorted, begin, end)
                    : skip_rows(probe, sorted, column_of(grid), begin, end);
        if (slot < SJ_GRID_POINTERS) {
            grid->pointer[slot] = begin;
            grid->pointers_set = slot < grid->pointers_set ? grid->pointers_set : slot + 1;
        }
    }
    if (begin < end) {
        const sj_span span = {grid->probe, begin, end, bucket_is_settled(grid, probe, sorted, entry)};
        grid->span[grid->span_count++] = span;
    }
}

/* Prefetches the row `row` of all columns but the sorted one. */
SJ_INLINE void prefetch_rows(const sj_band *band, int sorted, int64_t row)
{
    for (int c = sorted == SJ_SORTED_FLOAT || sorted == SJ_SORTED_INTERVAL; c < band->float_count; c++) {
        __builtin_prefetch(band->float_right[c] + row);
    }
    for (int c = sorted == SJ_SORTED_INT; c < band->int_count; c++) {
        __builtin_prefetch(band->int_right[c] + row);
    }
}

SJ_INLINE void prefetch_sorted(const sj_grid *grid, int sorted, int64_t row)
{
    const char *from = sorted != SJ_SORTED_INT ? (const char *)(grid->band.float_right[0] + row)
                                               : (const char *)(grid->band.int_right[0] + row);
    for (int line = 0; line < SJ_FENCE_ROWS * 8 / 64; line++) {
        __builtin_prefetch(from + 64 * line);
    }
}

/* Looks up the buckets of the next probes: finds the spans, and prefetches the sorted column at each. */
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

/* Moves each span to its first row that is not before the band of the sorted key, and prefetches the other columns. */
SJ_INLINE void settle_spans(sj_grid *grid, int sorted)
{
    const int exact = !(grid->float_fences || grid->int_fences);
    sj_probe probe;
    for (int at = 0; at < grid->span_count; at++) {
        sj_span *span = &grid->span[at];
        if (sorted != SJ_SORTED_NONE && !exact) {
            sj_prepare_sorted(&grid->band, span->probe, sorted, &probe);
            span->row = skip_rows(&probe, sorted, column_of(grid), span->row, span->end);
        }
        if (span->row < span->end) {
            prefetch_rows(&grid->band, sorted, span->row);
        }
    }
}

/* Returns the first row of the step of the smallest value that can match: no match is before it. See
 * sj_float_bucket_range for the widening. */
SJ_INLINE int64_t step_row(const sj_grid *grid, const sj_probe *probe, int sorted, double next_hi)
{
    const sj_steps *steps = &grid->steps;
    int64_t step = 0;
    if (sorted != SJ_SORTED_INT) {
        const double about = grid->band.float_equal[0] ? -probe->hi[0] : probe->left[0] - next_hi;
        const double smallest = about - __builtin_fabs(about) * 0x1p-52;
        const double at = (smallest - steps->float_origin) * steps->scale;
        step = at >= (double)steps->count ? steps->count : at > 0 ? (int64_t)at : 0;
    } else if (probe->smallest[0] > steps->int_origin) {
        const uint64_t at = ((uint64_t)probe->smallest[0] - (uint64_t)steps->int_origin) >> steps->shift;
        step = at > (uint64_t)steps->count ? steps->count : (int64_t)at;
    }
    return steps->starts[step];
}

/* Finds the next spans of a run with steps, without a search. A probe whose band meets no row is dropped before the
 * other columns are prefetched. */
SJ_INLINE void next_steps(sj_grid *grid, int sorted)
{
    const int64_t run_count = grid->band.run_count;
    const double next_hi = sorted != SJ_SORTED_INT ? nextafter(grid->band.float_hi[0], INFINITY) : 0;
    sj_probe probe;
    grid->span_at = grid->span_count = 0;
    while (!grid->span_count && grid->probe < grid->band.probe_count) {
        int found = 0;
        for (; found < SJ_GRID_SPANS && grid->probe < grid->band.probe_count; grid->probe++, found++) {
            sj_prepare_sorted(&grid->band, grid->probe, sorted, &probe);
            const int64_t begin = step_row(grid, &probe, sorted, next_hi);
            /* Even wrong steps must not lead to reading outside the columns. */
            const int64_t row = begin < 0 ? 0 : begin > run_count ? run_count : begin;
            const char *from = sorted != SJ_SORTED_INT ? (const char *)(grid->band.float_right[0] + row)
                                                       : (const char *)(grid->band.int_right[0] + row);
            __builtin_prefetch(from);
            __builtin_prefetch(from + 64);
            grid->span[found].probe = grid->probe;
            grid->span[found].row = row;
            grid->span[found].is_settled = grid->is_counting && sorted != SJ_SORTED_INTERVAL &&
                                           grid->band.float_count + grid->band.int_count == 1 &&
                                           (sorted == SJ_SORTED_INT || isfinite(probe.left[0]));
        }
        int kept = 0;
        for (int at = 0; at < found; at++) {
            sj_span span = grid->span[at];
            sj_prepare_sorted(&grid->band, span.probe, sorted, &probe);
            span.row = skip_rows(&probe, sorted, column_of(grid), span.row, run_count);
            span.end = run_count;
            const int is_within = span.row < run_count && !row_is_past(&grid->band, &probe, sorted, column_of(grid), span.row);
            if (is_within) {
                prefetch_rows(&grid->band, sorted, span.row);
            }
            grid->span[kept] = span;
            kept += is_within;
        }
        grid->span_count = kept;
    }
}

SJ_INLINE void next_spans(sj_grid *grid)
{
    if (grid->steps.starts) {
        if (grid->sorted == SJ_SORTED_FLOAT) {
            next_steps(grid, SJ_SORTED_FLOAT);
        } else if (grid->sorted == SJ_SORTED_INTERVAL) {
            next_steps(grid, SJ_SORTED_INTERVAL);
        } else {
            next_steps(grid, SJ_SORTED_INT);
        }
        return;
    }
    switch (grid->sorted) {
    case SJ_SORTED_FLOAT:
        find_spans(grid, SJ_SORTED_FLOAT);
        settle_spans(grid, SJ_SORTED_FLOAT);
        break;
    case SJ_SORTED_INTERVAL:
        find_spans(grid, SJ_SORTED_INTERVAL);
        settle_spans(grid, SJ_SORTED_INTERVAL);
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

int64_t NAME(sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    row_output output = {out_probe, out_row, 0, capacity};
    for (;;) {
        sj_probe probe;
        int64_t prepared = -1;
        for (; grid->span_at < grid->span_count; grid->span_at++) {
            sj_span *span = &grid->span[grid->span_at];
            if (span->row >= span->end) {
                continue;
            }
            if (span->probe != prepared) {
                if (!sj_prepare(&grid->band, span->probe, &probe)) {
                    span->row = span->end;
                    continue;
                }
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

void NAME(sj_grid_count)(sj_grid *grid, int64_t *counts, sj_partner_sums *sums)
{
    grid->is_counting = 1;
    for (;;) {
        sj_probe probe;
        int64_t prepared = -1;
        for (; grid->span_at < grid->span_count; grid->span_at++) {
            const sj_span *span = &grid->span[grid->span_at];
            if (span->row >= span->end) {
                continue;
            }
            if (span->probe != prepared) {
                if (!sj_prepare(&grid->band, span->probe, &probe)) {
                    continue;
                }
                prepared = span->probe;
            }
            int64_t found;
            if (sums) {
                sj_fold_begin(sums, grid->probe_order[span->probe]);
            }
            if (span->is_settled) {
                const sorted_column column = column_of(grid);
                found = grid->sorted == SJ_SORTED_FLOAT
                            ? rows_within(&probe, SJ_SORTED_FLOAT, column, span->row, span->end)
                            : rows_within(&probe, SJ_SORTED_INT, column, span->row, span->end);
                if (sums) {
                    sj_fold_rows(sums, span->row, found, LANES);
                }
                found -= span->row;
                grid->candidates += found;
            } else if (sums) {
                found = NAME(sj_grid_folded)(&grid->band, &probe, grid->sorted, span->row, span->end, &grid->candidates,
                                             sums);
            } else {
                found = NAME(sj_grid_matches)(&grid->band, &probe, grid->sorted, span->row, span->end, &grid->candidates);
            }
            counts[grid->probe_order[span->probe]] += found;
        }
        next_spans(grid);
        if (!grid->span_count) {
            return;
        }
    }
}
