#include "grid/runs_probe.h"

#include <stdlib.h>
#include <string.h>

#include "grid/grid.h"
#include "sums/partner_sums.h"

enum { WORK_NONE = 0, WORK_SCAN = 1, WORK_GRID = 2, WORK_BUCKETS = 3 };

/* Sets the number of probes of the slice, and their ranges. */
static void begin_slice(sj_runs *runs)
{
    const int64_t left = runs->slices_end - runs->slice_begin;
    const int64_t count = left < runs->slice_probes ? left : runs->slice_probes;
    const int conditions = runs->conditions;
    runs->probe_count = count;
    runs->run = 0;
    runs->has_layout = 0;
    for (int c = 0; c < conditions; c++) {
        for (int64_t at = 0; runs->float_left[c] && at < count; at++) {
            const double value = runs->float_left[c][at];
            double *range = runs->float_range[c];
            range[0] = at == 0 || value < range[0] ? value : range[0];
            range[1] = at == 0 || value > range[1] ? value : range[1];
        }
        for (int64_t at = 0; runs->int_left[c] && at < count; at++) {
            const int64_t value = runs->int_left[c][at];
            int64_t *range = runs->int_range[c];
            range[0] = at == 0 || value < range[0] ? value : range[0];
            range[1] = at == 0 || value > range[1] ? value : range[1];
        }
    }
}

/* Goes on to the next slice; returns whether there is one. */
static int next_slice(sj_runs *runs)
{
    if (runs->slices_end - runs->slice_begin <= runs->probe_count) {
        return 0;
    }
    for (int c = 0; c < runs->conditions; c++) {
        if (runs->float_left[c]) {
            runs->float_left[c] += runs->probe_count;
        } else {
            runs->int_left[c] += runs->probe_count;
        }
    }
    runs->slice_begin += runs->probe_count;
    begin_slice(runs);
    return 1;
}

int sj_runs_begin(sj_runs *runs, int conditions)
{
    runs->conditions = conditions;
    begin_slice(runs);
    const size_t rows = (size_t)(runs->probe_count > 0 ? runs->probe_count : 1);
    char *memory = malloc(rows * (sizeof(int64_t) * (2 + (size_t)conditions) + sizeof(int32_t)));
    if (!memory) {
        return -1;
    }
    runs->bucket_from = (int64_t *)memory;
    runs->bucket_to = runs->bucket_from + rows;
    runs->permuted = (double *)(runs->bucket_to + rows);
    runs->order = (int32_t *)(runs->permuted + rows * (size_t)conditions);
    return 0;
}

void sj_runs_end(sj_runs *runs)
{
    free(runs->bucket_from);
    runs->bucket_from = NULL;
    sj_bucket_probe_end(&runs->bucket_probe);
}

/* Whether any probe may match any row, by smallest and largest values of both. NaN (inf - inf) rules nothing out. */
static int may_match(const sj_runs *runs, const sj_run_index *index)
{
    for (int c = 0; index->has_zone && c < index->conditions; c++) {
        const int s = index->slot[c];
        if (index->is_float[c]) {
            if (runs->float_range[c][1] - index->float_smallest[s] < index->band.float_lo[s] ||
                runs->float_range[c][0] - index->float_largest[s] > index->band.float_hi[s]) {
                return 0;
            }
        } else if ((sj_int128)runs->int_range[c][1] - index->int_smallest[s] < sj_widen(index->band.int_lo[s]) ||
                   (sj_int128)runs->int_range[c][0] - index->int_largest[s] > sj_widen(index->band.int_hi[s])) {
            return 0;
        }
    }
    return 1;
}

/* Whether a condition holds for all probes and rows, by smallest and largest values of both. NaN settles nothing. */
static int always_matches(const sj_runs *runs, const sj_run_index *index, int c)
{
    const int s = index->slot[c];
    if (index->is_float[c]) {
        return runs->float_range[c][0] - index->float_largest[s] >= index->band.float_lo[s] &&
               runs->float_range[c][1] - index->float_smallest[s] <= index->band.float_hi[s];
    }
    return (sj_int128)runs->int_range[c][0] - index->int_largest[s] >= sj_widen(index->band.int_lo[s]) &&
           (sj_int128)runs->int_range[c][1] - index->int_smallest[s] <= sj_widen(index->band.int_hi[s]);
}

/* Returns the number of the condition at a slot of the floats, or of the integers. */
static int condition_at(const sj_run_index *index, int is_float, int slot)
{
    int c = 0;
    while (c < index->conditions - 1 && (!index->is_float[c] != !is_float || index->slot[c] != slot)) {
        c++;
    }
    return c;
}

/* Takes condition `s` of the floats, or of the integers, out of a band. */
static void drop_condition(sj_band *band, int is_float, int s)
{
    if (is_float) {
        for (band->float_count--; s < band->float_count; s++) {
            band->float_left[s] = band->float_left[s + 1];
            band->float_right[s] = band->float_right[s + 1];
            band->float_lo[s] = band->float_lo[s + 1];
            band->float_hi[s] = band->float_hi[s + 1];
            band->float_equal[s] = band->float_equal[s + 1];
        }
        return;
    }
    for (band->int_count--; s < band->int_count; s++) {
        band->int_left[s] = band->int_left[s + 1];
        band->int_right[s] = band->int_right[s + 1];
        band->int_lo[s] = band->int_lo[s + 1];
        band->int_hi[s] = band->int_hi[s + 1];
    }
}

/* Leaves out what holds for all pairs of the run in work, but the conditions that it is laid out by: with these two
 * alone the matches of most buckets need no test. */
static void leave_out_settled(sj_runs *runs, const sj_run_index *index)
{
    sj_grid *grid = &runs->grid;
    if (!index->has_zone || index->sorted == SJ_SORTED_INTERVAL) {
        return;
    }
    for (int is_float = 0; is_float < 2; is_float++) {
        for (int s = is_float ? grid->band.float_count : grid->band.int_count; s-- > 0;) {
            const int c = condition_at(index, is_float, s);
            if (c == index->first || c == index->second || !always_matches(runs, index, c)) {
                continue;
            }
            drop_condition(&grid->band, is_float, s);
            if (index->first >= 0 && !index->is_float[index->first] == !is_float && s < grid->first_slot) {
                grid->first_slot--;
            }
        }
    }
}

static void set_left(const sj_runs *runs, const sj_run_index *index, sj_band *band, int permuted)
{
    for (int c = 0; c < index->conditions; c++) {
        if (index->is_float[c]) {
            band->float_left[index->slot[c]] = permuted ? runs->float_permuted[c] : runs->float_left[c];
        } else {
            band->int_left[index->slot[c]] = permuted ? runs->int_permuted[c] : runs->int_left[c];
        }
    }
    band->probe_count = runs->probe_count;
}

static void set_buckets(sj_runs *runs, const sj_run_index *index, const double *floats, const int64_t *ints)
{
    const int c = index->first;
    const int s = c < 0 ? 0 : index->slot[c];
    if (c < 0) {
        memset(runs->bucket_from, 0, (size_t)runs->probe_count * sizeof *runs->bucket_from);
        memset(runs->bucket_to, 0, (size_t)runs->probe_count * sizeof *runs->bucket_to);
    } else if (index->is_float[c]) {
        sj_float_bucket_range(floats, runs->probe_count, index->band.float_lo[s], index->band.float_hi[s],
                              index->float_width, runs->bucket_from, runs->bucket_to);
    } else {
        sj_int_bucket_range(ints, runs->probe_count, index->band.int_lo[s], index->band.int_hi[s], index->int_width,
                            runs->bucket_from, runs->bucket_to);
    }
}

/* Puts the probes in the order of this run's sort layout, unless they are in that order. -1: no memory. */
static int put_in_order(sj_runs *runs, const sj_run_index *index)
{
    const int64_t count = runs->probe_count;
    if (runs->has_layout && runs->first == index->first && runs->second == index->second &&
        runs->float_width == index->float_width && runs->int_width == index->int_width) {
        return 0;
    }
    const double *first_floats = index->first >= 0 ? runs->float_left[index->first] : NULL;
    const int64_t *first_ints = index->first >= 0 ? runs->int_left[index->first] : NULL;
    set_buckets(runs, index, first_floats, first_ints);
    const int64_t *buckets = index->first >= 0 ? runs->bucket_from : NULL;
    const double *second_floats = index->second >= 0 ? runs->float_left[index->second] : NULL;
    const int64_t *second_ints = index->second >= 0 ? runs->int_left[index->second] : NULL;
    if (!second_floats && !second_ints) {
        memset(runs->permuted, 0, (size_t)count * sizeof(int64_t));
        second_ints = (const int64_t *)runs->permuted;
    }
    if (sj_grid_order(buckets, second_floats, second_ints, count, runs->order)) {
        return -1;
    }
    for (int c = 0; c < index->conditions; c++) {
        double *to = runs->permuted + c * count;
        const void *from = index->is_float[c] ? (const void *)runs->float_left[c] : (const void *)runs->int_left[c];
        sj_gather(from, count, 8, runs->order, count, (unsigned char *)to);
        runs->float_permuted[c] = to;
        runs->int_permuted[c] = (const int64_t *)to;
    }
    set_buckets(runs, index, index->first >= 0 ? runs->float_permuted[index->first] : NULL,
                index->first >= 0 ? runs->int_permuted[index->first] : NULL);
    runs->first = index->first;
    runs->second = index->second;
    runs->float_width = index->float_width;
    runs->int_width = index->int_width;
    runs->has_layout = 1;
    return 0;
}

/* Begins to probe a bucket grid. -1: no memory. */
static int enter_buckets(sj_runs *runs, const sj_run_index *index)
{
    sj_bucket_probe *probe = &runs->bucket_probe;
    sj_bucket_probe_end(probe);
    memset(probe, 0, sizeof *probe);
    probe->grid = index->bucket_grid;
    probe->columns = index->bucket_columns;
    probe->band = index->band;
    set_left(runs, index, &probe->band, 0);
    runs->work = WORK_BUCKETS;
    return sj_bucket_probe_begin(probe);
}

/* Begins to probe the run in work. -1: no memory. */
static int enter_run(sj_runs *runs)
{
    const sj_run_index *index = runs->indexes[runs->run];
    if (index->bucket_grid) {
        return enter_buckets(runs, index);
    }
    const int grown = runs->run == runs->run_count - 1 && runs->last_rows >= 0;
    const int64_t rows = grown ? runs->last_rows : index->band.run_count;
    if (!rows || !may_match(runs, index)) {
        return 0;
    }
    const int64_t scanned = runs->probe_count == 1 ? SJ_SCAN_ROWS_ALONE : SJ_SCAN_PAIRS / runs->probe_count;
    if (rows <= scanned || (index->first < 0 && index->second < 0)) {
        memset(&runs->scan, 0, sizeof runs->scan);
        runs->scan.band = index->band;
        runs->scan.band.run_count = rows;
        set_left(runs, index, &runs->scan.band, 0);
        runs->work = WORK_SCAN;
        return 0;
    }
    if (put_in_order(runs, index)) {
        return -1;
    }
    sj_grid *grid = &runs->grid;
    memset(grid, 0, sizeof *grid);
    grid->band = index->band;
    set_left(runs, index, &grid->band, 1);
    grid->sorted = index->sorted;
    grid->float_fences = index->float_fences;
    grid->int_fences = index->int_fences;
    grid->steps = index->steps;
    grid->probe_order = runs->order;
    grid->bucket_from = runs->bucket_from;
    grid->bucket_to = runs->bucket_to;
    grid->bucket_ids = index->bucket_ids;
    grid->bucket_starts = index->bucket_starts;
    grid->bucket_count = index->bucket_count;
    if (index->first >= 0) {
        grid->first_slot = index->slot[index->first];
        grid->float_width = index->is_float[index->first] ? index->float_width : 0;
        grid->int_width = index->is_float[index->first] ? 0 : index->int_width;
    }
    runs->work = WORK_GRID;
    return 0;
}

/* Goes on to the next run. */
static void leave_run(sj_runs *runs)
{
    runs->candidates += runs->work == WORK_SCAN ? runs->scan.candidates
                        : runs->work == WORK_GRID ? runs->grid.candidates
                        : runs->work == WORK_BUCKETS ? runs->bucket_probe.candidates : 0;
    runs->work = WORK_NONE;
    runs->run++;
}

int sj_runs_count(sj_runs *runs, int64_t *counts, sj_partner_sums *sums)
{
    const int64_t first_group = sums ? sums->first_group : 0;
    const int64_t first_run = sums ? sums->run : 0;
    if (!runs->probe_count) {
        return 0;
    }
    do {
        while (runs->run < runs->run_count) {
            if (enter_run(runs)) {
                return -1;
            }
            int64_t *of_slice = counts + runs->slice_begin;
            if (sums) {
                sums->run = first_run + runs->run;
                sums->first_group = first_group + runs->slice_begin;
            }
            if (runs->work == WORK_SCAN) {
                runs->scan_count(&runs->scan, of_slice, sums);
            } else if (runs->work == WORK_GRID) {
                leave_out_settled(runs, runs->indexes[runs->run]);
                runs->grid_count(&runs->grid, of_slice, sums);
            } else if (runs->work == WORK_BUCKETS) {
                runs->bucket_count(&runs->bucket_probe, of_slice, sums);
            }
            if (sums) {
                sj_fold_pieces(sums);
            }
            leave_run(runs);
        }
    } while (next_slice(runs));
    return 0;
}

int sj_runs_are_done(const sj_runs *runs)
{
    return !runs->probe_count ||
           (runs->run >= runs->run_count && runs->slice_begin + runs->probe_count >= runs->slices_end);
}

/* Writes the next pairs of the run in work; returns how many. 0: there are no more. */
static int64_t fill_run(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    switch (runs->work) {
    case WORK_SCAN: return runs->scan_fill(&runs->scan, out_probe, out_row, capacity);
    case WORK_GRID: return runs->grid_fill(&runs->grid, out_probe, out_row, capacity);
    case WORK_BUCKETS: return runs->bucket_fill(&runs->bucket_probe, out_probe, out_row, capacity);
    default: return 0;
    }
}

int64_t sj_runs_next(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    do {
        while (runs->run < runs->run_count && runs->probe_count > 0) {
            if (runs->work == WORK_NONE && enter_run(runs)) {
                return -1;
            }
            const int64_t count = fill_run(runs, out_probe, out_row, capacity);
            if (count) {
                return count;
            }
            leave_run(runs);
        }
    } while (next_slice(runs));
    return 0;
}

int64_t sj_runs_fill(sj_runs *runs, int32_t *out_probe, int32_t *out_row, int32_t *out_run, int64_t capacity)
{
    int64_t written = 0;
    while (capacity - written >= SJ_MIN_CAPACITY) {
        const int64_t count = sj_runs_next(runs, out_probe + written, out_row + written, capacity - written);
        if (count <= 0) {
            return count < 0 ? count : written;
        }
        for (const int64_t end = written + count; written < end; written++) {
            out_probe[written] += (int32_t)runs->slice_begin;
            out_run[written] = (int32_t)runs->run;
        }
    }
    return written;
}

/* Returns a bit for each of the window's columns: whether the probing of the run in work reads it. */
static uint64_t read_columns(const sj_runs *runs, const sj_run_columns *window)
{
    const sj_run_index *index = runs->indexes[runs->run];
    uint64_t read = 0;
    for (int64_t column = 0; index->bucket_grid && column < window->column_count && column < 64; column++) {
        const void *items = window->addresses[column * window->run_count + runs->run];
        for (int c = 0; c < index->bucket_columns.conditions; c++) {
            read |= (uint64_t)(index->bucket_columns.right[c] == items) << column;
        }
    }
    return read;
}

int sj_runs_match(sj_runs *runs, const sj_run_columns *window, sj_match_rows *rows)
{
    int32_t probes[SJ_LISTED_PAIRS], found[SJ_LISTED_PAIRS];
    for (;;) {
        const int64_t left = rows->capacity - rows->written;
        if (left < SJ_MIN_CAPACITY) {
            return 0;
        }
        const int64_t count = sj_runs_next(runs, probes, found, left < SJ_LISTED_PAIRS ? left : SJ_LISTED_PAIRS);
        if (count <= 0) {
            return (int)count;
        }
        if (sj_make_rows(rows, window, runs->run, read_columns(runs, window), found, probes, (int32_t)runs->slice_begin,
                         count)) {
            return -2;
        }
    }
}
