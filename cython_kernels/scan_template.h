/* The SIMD nested loop (CellJoin, section 5), for one width of lanes.
 *
 *   for each tile of 32 probes
 *     for each tile of 1024 run rows      <- in L1 from its second probe on
 *       for each probe, row               <- order of the output
 *
 * Four registers of rows are tested on the first condition at once; mostly none passes and the rest is skipped. Which
 * steps it is not is written down without a branch: at one in twenty, wrong guesses cost more than the compares.
 */
#include "rows.h"

#define SCAN_STEP (4 * LANES)

/* Returns the row it stopped at: `end`, or an earlier one because the output is full. */
SJ_INLINE int64_t scan_rows(const sj_band *band, const sj_probe *probe, int float_count, int int_count, int64_t row,
                            int64_t end, int32_t probe_id, int is_rolled, row_output *output)
{
    const int first_float = float_count > 0 ? 1 : 0;
    const int first_int = float_count > 0 ? 0 : (int_count > 0 ? 1 : 0);
    lane_bounds bounds;
    bounds_load(&bounds, band, probe, float_count, int_count);
    int64_t written = output->written;
    if (!is_rolled) {
        /* First the steps in which any row passes the first condition, without a branch; then those alone. */
        int64_t step_row[SJ_SCAN_TILE_ROWS / SCAN_STEP];
        const int64_t steps = (end - row) / SCAN_STEP;
        int64_t passed = 0;
        for (int64_t step = 0; step < steps; step++) {
            const int64_t from = row + step * SCAN_STEP;
            unsigned any = 0;
            for (int part = 0; part < 4; part++) {
                any |= rows_test(&bounds, band, 0, first_float, 0, first_int, from + part * LANES, LANES);
            }
            step_row[passed] = from;
            passed += any != 0;
        }
        for (int64_t at = 0; at < passed; at++) {
            if (written > output->capacity - SCAN_STEP) {
                output->written = written;
                return step_row[at];
            }
            for (int part = 0; part < 4; part++) {
                const int64_t from = step_row[at] + part * LANES;
                const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, from, LANES);
                if (bits) {
                    written += emit(bits, from, probe_id, output->probe + written, output->run + written);
                }
            }
        }
        row += steps * SCAN_STEP;
    }
    while (row < end && written <= output->capacity - LANES) {
        const int64_t count = end - row < LANES ? end - row : LANES;
        const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, row, count);
        written += emit(bits, row, probe_id, output->probe + written, output->run + written);
        row += count;
    }
    output->written = written;
    return row;
}

static int64_t NAME(sj_scan_rows)(const sj_band *band, const sj_probe *probe, int64_t row, int64_t end,
                                  int32_t probe_id, int is_rolled, row_output *output)
{
#define SJ_CALL(float_count, int_count) \
    scan_rows(band, probe, float_count, int_count, row, end, probe_id, is_rolled, output)
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL)
#undef SJ_CALL
}

int64_t NAME(sj_scan_fill)(sj_scan *scan, int32_t *out_probe, int32_t *out_run, int64_t capacity)
{
    const sj_band *band = &scan->band;
    row_output output = {out_probe, out_run, 0, capacity};
    while (scan->probe_tile < band->probe_count && band->run_count > 0) {
        const int64_t run_stop = scan->run_tile + SJ_SCAN_TILE_ROWS;
        const int64_t run_end = run_stop < band->run_count ? run_stop : band->run_count;
        const int64_t probe_stop = scan->probe_tile + SJ_SCAN_TILE_PROBES;
        const int64_t probe_end = probe_stop < band->probe_count ? probe_stop : band->probe_count;
        for (; scan->probe < probe_end; scan->probe++) {
            sj_probe probe;
            if (sj_prepare(band, scan->probe, &probe)) {
                const int64_t from = scan->row;
                scan->row = NAME(sj_scan_rows)(band, &probe, from, run_end, (int32_t)scan->probe, scan->is_rolled,
                                                      &output);
                scan->candidates += scan->row - from;
                if (scan->row < run_end) {
                    return output.written;
                }
            }
            scan->row = scan->run_tile;
        }
        scan->run_tile = run_end;
        if (run_end == band->run_count) {
            scan->run_tile = 0;
            scan->probe_tile = probe_end;
        }
        scan->probe = scan->probe_tile;
        scan->row = scan->run_tile;
    }
    return output.written;
}

#define ROOF_ROWS SJ_SCAN_TILE_ROWS

unsigned NAME(sj_scan_roof)(int is_float, int64_t rounds)
{
    double floats[ROOF_ROWS];
    int64_t ints[ROOF_ROWS];
    unsigned found = 0;
    for (int row = 0; row < ROOF_ROWS; row++) {
        floats[row] = row;
        ints[row] = row;
    }
    for (int64_t round = 0; round < rounds; round++) {
        /* Nothing matches: a bound that no row reaches, and that the compiler cannot know. */
        int64_t beyond = 2 * ROOF_ROWS + (round & 1);
        __asm__ volatile("" : "+r"(beyond) : "r"(floats), "r"(ints) : "memory");
        const lane_int smallest = int_all(beyond), largest = int_all(beyond + 20);
        const lane_float left = float_all((double)beyond), lo = float_all(-10.0), hi = float_all(10.0);
        for (int row = 0; row < ROOF_ROWS; row += SCAN_STEP) {
            unsigned bits[4];
            for (int part = 0; part < 4; part++) {
                const int at = row + part * LANES;
                bits[part] = mask_bits(
                    is_float ? float_within(mask_all(), float_minus(left, float_load(floats + at)), lo, hi)
                             : int_within(mask_all(), int_load(ints + at), smallest, largest));
            }
            found |= bits[0] | bits[1] | bits[2] | bits[3];
        }
    }
    return found;
}
