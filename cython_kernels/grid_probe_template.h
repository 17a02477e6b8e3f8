/* The grid probe, for one width of lanes: sorted probes meet a sorted run like a merge join in each neighbour bucket.
 *
 *   run     | bucket 7       | bucket 8       | bucket 9       |      a bucket is sorted by the second attribute
 *                 ^pointer         ^pointer                            pointers only move forward while the probes'
 *   probe   from bucket 7 to bucket 8                                  first bucket stays the same
 *
 * fl(left - right) never grows as right grows, so rows are skipped while it is above hi and read until it is below lo;
 * every row between is decided by the exact test. NaN compares false both ways: it is neither skipped nor a stop.
 */
#include "rows.h"

/* Steps of one register before the skip starts to gallop. */
#define SKIP_STEPS 12

/* Is the row before the probe's band of the sort attribute? */
SJ_INLINE int row_is_over(const sj_band *band, const sj_probe *probe, int sorted, int64_t row)
{
    if (sorted == SJ_SORTED_FLOAT) {
        return probe->left[0] - band->float_right[0][row] > band->float_hi[0];
    }
    return band->int_right[0][row] < probe->smallest[0];
}

/* First row of row:end that is not before the probe's band. */
SJ_INLINE int64_t skip_rows(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end)
{
    const unsigned all = (1u << LANES) - 1;
    for (int step = 0; step < SKIP_STEPS && end - row >= LANES; step++) {
        unsigned over;
        if (sorted == SJ_SORTED_FLOAT) {
            const lane_float difference = float_minus(float_all(probe->left[0]), float_load(band->float_right[0] + row));
            over = float_over(difference, float_all(band->float_hi[0]));
        } else {
            over = int_less(int_load(band->int_right[0] + row), int_all(probe->smallest[0]));
        }
        if (over != all) {
            return row + __builtin_ctz(~over);
        }
        row += LANES;
    }
    int64_t stride = 4 * LANES;
    while (end - row > stride && row_is_over(band, probe, sorted, row + stride)) {
        row += stride + 1;
        stride *= 2;
    }
    int64_t high = end - row > stride ? row + stride : end;
    while (row < high) {
        const int64_t middle = row + (high - row) / 2;
        if (row_is_over(band, probe, sorted, middle)) {
            row = middle + 1;
        } else {
            high = middle;
        }
    }
    return row;
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

/* Sets row and end to the part of the bucket that is not before the probe's band. */
SJ_INLINE void enter_bucket(sj_grid *grid, const sj_probe *probe, int64_t entry)
{
    const int64_t run_count = grid->band.run_count;
    int64_t begin = grid->bucket_starts[entry], end = grid->bucket_starts[entry + 1];
    /* A directory that lies must not make us read outside the columns. */
    begin = begin < 0 ? 0 : begin > run_count ? run_count : begin;
    end = end < begin ? begin : end > run_count ? run_count : end;
    if (grid->sorted != SJ_SORTED_NONE) {
        const int64_t slot = grid->slot;
        if (slot < grid->pointers_set) {
            begin = grid->pointer[slot];
        }
        begin = grid->sorted == SJ_SORTED_FLOAT ? skip_rows(&grid->band, probe, SJ_SORTED_FLOAT, begin, end)
                                                : skip_rows(&grid->band, probe, SJ_SORTED_INT, begin, end);
        if (slot < SJ_GRID_POINTERS) {
            grid->pointer[slot] = begin;
            grid->pointers_set = slot < grid->pointers_set ? grid->pointers_set : slot + 1;
        }
    }
    grid->row = begin;
    grid->end = end;
}

int64_t NAME(sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_run, int64_t capacity)
{
    row_output output = {out_probe, out_run, 0, capacity};
    for (; grid->probe < grid->band.probe_count; grid->probe++) {
        sj_probe probe;
        if (!sj_prepare(&grid->band, grid->probe, &probe)) {
            continue;
        }
        if (!grid->in_probe) {
            enter_group(grid);
            grid->slot = 0;
            grid->in_probe = 1;
        }
        const int32_t probe_id = grid->probe_order[grid->probe];
        const int64_t last_bucket = grid->bucket_to[grid->probe];
        for (;; grid->slot++) {
            const int64_t entry = grid->group_bucket + grid->slot;
            if (!grid->in_bucket) {
                if (entry >= grid->bucket_count || grid->bucket_ids[entry] > last_bucket) {
                    break;
                }
                enter_bucket(grid, &probe, entry);
                grid->in_bucket = 1;
            }
            grid->row = NAME(sj_grid_rows)(&grid->band, &probe, grid->sorted, grid->row, grid->end, probe_id, &output,
                                           &grid->candidates);
            if (grid->row < grid->end) {
                return output.written;
            }
            grid->in_bucket = 0;
        }
        grid->in_probe = 0;
    }
    return output.written;
}
