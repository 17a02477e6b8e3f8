/* Rows that are sorted by one key, against one probe: rows before its band are skipped, rows within it are tested.
 *
 * fl(left - right) never grows as right grows. So rows are skipped while it is above hi, and read until it is below lo;
 * the exact test decides every row between. NaN compares false both ways: it is not skipped, and it does not end the
 * reading.
 *
 * Include after one lanes_*.h.
 */
#ifndef SJ_SORTED_ROWS_H
#define SJ_SORTED_ROWS_H

#include "scan/rows.h"
#include "sums/partner_sums.h"

/* Registers of rows that are skipped one by one before the skip starts to gallop. */
#define SKIP_STEPS 12

/* A column that is sorted within each bucket. Of the two, only the one that `sorted` names is set. */
typedef struct {
    const double *floats;
    const int64_t *ints;
} sorted_column;

/* Whether a row is before the probe's band of the sorted key. */
SJ_INLINE int row_is_over(const sj_probe *probe, int sorted, sorted_column column, int64_t row)
{
    if (sorted != SJ_SORTED_INT) {
        return probe->left[0] - column.floats[row] > probe->hi[0];
    }
    return column.ints[row] < probe->smallest[0];
}

/* Whether a row is past the probe's band. NaN is not. */
SJ_INLINE int row_is_past(const sj_band *band, const sj_probe *probe, int sorted, sorted_column column, int64_t row)
{
    if (sorted == SJ_SORTED_FLOAT) {
        return probe->left[0] - column.floats[row] < probe->lo[0];
    }
    if (sorted == SJ_SORTED_INTERVAL) {
        return probe->left[1] - column.floats[row] < band->interval_lo;
    }
    return column.ints[row] > probe->largest[0];
}

/* Whether a row that is not before the probe's band is not within it either. Unlike in row_is_past, NaN is not. */
SJ_INLINE int row_is_beyond(const sj_probe *probe, int sorted, sorted_column column, int64_t row)
{
    if (sorted == SJ_SORTED_FLOAT) {
        return !(probe->left[0] - column.floats[row] >= probe->lo[0]);
    }
    return column.ints[row] > probe->largest[0];
}

/* The ends of the rows that a probe may match. */
enum { BAND_BEGIN, BAND_END };

/* Returns the first row of row:end that is not before this end of the probe's band: strides that grow, then halves. */
SJ_INLINE int64_t gallop_rows(const sj_probe *probe, int sorted, sorted_column column, int64_t row, int64_t end,
                              int64_t stride, int edge)
{
#define SJ_IS_BEFORE(at)                                                                 \
    (edge == BAND_BEGIN ? row_is_over(probe, sorted, column, at)                         \
                        : !row_is_beyond(probe, sorted, column, at))
    while (end - row > stride && SJ_IS_BEFORE(row + stride)) {
        row += stride + 1;
        stride *= 2;
    }
    int64_t high = end - row > stride ? row + stride : end;
    while (row < high) {
        const int64_t middle = row + (high - row) / 2;
        if (SJ_IS_BEFORE(middle)) {
            row = middle + 1;
        } else {
            high = middle;
        }
    }
    return row;
#undef SJ_IS_BEFORE
}

/* Returns the first row of row:end that is not before the probe's band. */
SJ_INLINE int64_t skip_rows(const sj_probe *probe, int sorted, sorted_column column, int64_t row, int64_t end)
{
    const unsigned all = (1u << LANES) - 1;
    for (int step = 0; step < SKIP_STEPS && end - row >= LANES; step++) {
        unsigned over;
        if (sorted != SJ_SORTED_INT) {
            const lane_float difference = float_minus(float_all(probe->left[0]), float_load(column.floats + row));
            over = float_over(difference, float_all(probe->hi[0]));
        } else {
            over = int_less(int_load(column.ints + row), int_all(probe->smallest[0]));
        }
        if (over != all) {
            return row + __builtin_ctz(~over);
        }
        row += LANES;
    }
    return gallop_rows(probe, sorted, column, row, end, 4 * LANES, BAND_BEGIN);
}

/* Returns the first row of row:end that is beyond the probe's band, where none of them is before it. */
SJ_INLINE int64_t rows_within(const sj_probe *probe, int sorted, sorted_column column, int64_t row, int64_t end)
{
    return gallop_rows(probe, sorted, column, row, end, 2 * LANES, BAND_END);
}

/* Returns a bit for each of `count` rows from `row` on: whether it is past the band. */
SJ_INLINE unsigned rows_past(const lane_bounds *bounds, const sj_band *band, int sorted, int64_t row, int64_t count)
{
    unsigned under = 0;
    if (sorted == SJ_SORTED_FLOAT || sorted == SJ_SORTED_INTERVAL) {
        const int ends = sorted == SJ_SORTED_INTERVAL; /* the condition that ends the rows */
        const double *from = band->float_right[0] + row;
        const lane_float right = count >= LANES ? float_load(from) : float_load_some(from, count);
        under = float_under(float_minus(bounds->left[ends], right), ends ? float_all(band->interval_lo) : bounds->lo[0]);
    } else if (sorted == SJ_SORTED_INT) {
        const int64_t *from = band->int_right[0] + row;
        const lane_int right = count >= LANES ? int_load(from) : int_load_some(from, count);
        under = int_less(bounds->largest[0], right);
    }
    return count < LANES ? under & ((1u << count) - 1) : under;
}

/* Tests `count` rows from `row` on; writes to `tested` how many come before the first row that is past the band. */
SJ_INLINE int64_t grid_step(const lane_bounds *bounds, const sj_band *band, int float_count, int int_count, int sorted,
                            int64_t row, int64_t count, int32_t probe_id, int32_t *out_probe, int32_t *out_row,
                            int64_t *tested)
{
    const unsigned under = rows_past(bounds, band, sorted, row, count);
    const unsigned bits = rows_test(bounds, band, 0, float_count, 0, int_count, row, count);
    *tested = under ? __builtin_ctz(under) : count;
    return emit(bits, row, probe_id, out_probe, out_row);
}

/* Tests rows row:end. Returns the row where it stopped: `end` (all tested, or past the band), or an earlier one because
 * the output is full. */
SJ_INLINE int64_t grid_rows(const sj_band *band, const sj_probe *probe, int float_count, int int_count, int sorted,
                            int64_t row, int64_t end, int32_t probe_id, row_output *output, int64_t *candidates)
{
    if ((sorted == SJ_SORTED_FLOAT && float_count < 1) || (sorted == SJ_SORTED_INT && int_count < 1) ||
        (sorted == SJ_SORTED_INTERVAL && float_count < 2)) {
        __builtin_unreachable(); /* the sorted key is that of a condition */
    }
    lane_bounds bounds;
    bounds_load(&bounds, probe, float_count, int_count);
    int32_t *out_probe = output->probe, *out_row = output->run;
    const int64_t limit = output->capacity - LANES;
    const int64_t from = row;
    int64_t written = output->written, tested = LANES;
    while (end - row >= LANES && written <= limit) {
        written += grid_step(&bounds, band, float_count, int_count, sorted, row, LANES, probe_id, out_probe + written,
                             out_row + written, &tested);
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
                             out_probe + written, out_row + written, &tested);
        *candidates += tested;
        row = end;
    }
    output->written = written;
    return row;
}

/* Returns how many of rows row:end match, and gives them to `sums` unless that is NULL; adds to `candidates` how many come
 * before the first that is past the band. */
SJ_INLINE int64_t grid_matches(const sj_band *band, const sj_probe *probe, int float_count, int int_count, int sorted,
                               int64_t row, int64_t end, int64_t *candidates, sj_partner_sums *sums)
{
    if ((sorted == SJ_SORTED_FLOAT && float_count < 1) || (sorted == SJ_SORTED_INT && int_count < 1) ||
        (sorted == SJ_SORTED_INTERVAL && float_count < 2)) {
        __builtin_unreachable(); /* the sorted key is that of a condition */
    }
    lane_bounds bounds;
    bounds_load(&bounds, probe, float_count, int_count);
    const int64_t from = row;
    int64_t found = 0;
    while (row < end) {
        const int64_t count = end - row < LANES ? end - row : LANES;
        const unsigned under = rows_past(&bounds, band, sorted, row, count);
        const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, row, count);
        found += bits_set(bits);
        if (sums) {
            sj_fold_put(sums, row, 1, bits);
        }
        if (under) {
            end = row + __builtin_ctz(under);
            break;
        }
        row += count;
    }
    *candidates += end - from;
    return found;
}

/* In these the kind of order is a constant, as each call is a copy of its own. */
SJ_INLINE int64_t unrolled_matches(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                   int64_t *candidates, sj_partner_sums *sums)
{
#define SJ_CALL(float_count, int_count) \
    grid_matches(band, probe, float_count, int_count, sorted, row, end, candidates, sums)
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL)
#undef SJ_CALL
}

SJ_INLINE int64_t unrolled_rows(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                int32_t probe_id, row_output *output, int64_t *candidates)
{
#define SJ_CALL(float_count, int_count) \
    grid_rows(band, probe, float_count, int_count, sorted, row, end, probe_id, output, candidates)
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL)
#undef SJ_CALL
}

/* Calls a function for a constant kind of order; CALL(sorted) is one of the two above. */
#define SJ_BY_ORDER(sorted, CALL)                              \
    switch (sorted) {                                          \
    case SJ_SORTED_FLOAT: return CALL(SJ_SORTED_FLOAT);        \
    case SJ_SORTED_INTERVAL: return CALL(SJ_SORTED_INTERVAL);  \
    case SJ_SORTED_INT: return CALL(SJ_SORTED_INT);            \
    default: return CALL(SJ_SORTED_NONE);                      \
    }

static int64_t NAME(sj_grid_matches)(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                     int64_t *candidates)
{
#define SJ_CALL(order) unrolled_matches(band, probe, order, row, end, candidates, NULL)
    SJ_BY_ORDER(sorted, SJ_CALL)
#undef SJ_CALL
}

static int64_t NAME(sj_grid_folded)(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                    int64_t *candidates, sj_partner_sums *sums)
{
#define SJ_CALL(order) unrolled_matches(band, probe, order, row, end, candidates, sums)
    SJ_BY_ORDER(sorted, SJ_CALL)
#undef SJ_CALL
}

static int64_t NAME(sj_grid_rows)(const sj_band *band, const sj_probe *probe, int sorted, int64_t row, int64_t end,
                                  int32_t probe_id, row_output *output, int64_t *candidates)
{
#define SJ_CALL(order) unrolled_rows(band, probe, order, row, end, probe_id, output, candidates)
    SJ_BY_ORDER(sorted, SJ_CALL)
#undef SJ_CALL
}

#endif
