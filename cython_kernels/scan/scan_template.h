/* The SIMD nested loop (CellJoin, section 5), for one width of lanes.
 *
 *   for each tile of 32 probes            <- prepared once
 *     for each tile of 1024 run rows      <- in L1 while the probes pass over it
 *       for each batch of 16 probes
 *         sift:  the first condition alone; a register of rows is loaded once for 4 probes
 *         test:  all conditions, on the steps of rows that the sift leaves; on all rows where it leaves most
 *
 * Order of the output: tile of probes, tile of rows, probe, row.
 *
 * To sift a pair costs a subtraction, a compare and a share of a load, no more: the outcome of a step of rows is one
 * mask, stored as a byte. The steps that are left are then listed for the whole batch, without a branch. A loop over
 * the steps of one probe and tile would mostly end with a mispredicted branch, which costs an eighth of sifting them.
 */
#include <string.h>

#include "scan/rows.h"
#include "sums/partner_sums.h"

/* Not inlined: with its copies for each number of conditions, it would take registers from its caller. */
#define SCAN_APART static __attribute__((noinline))

#define SCAN_STEP (SCAN_PARTS * LANES)
#define TILE_STEPS (SJ_SCAN_TILE_ROWS / SCAN_STEP)
#define SIFT_PROBES 4 /* with 8 the sift is 3 % faster, but more probes are left over, and these go one by one */
#define SCAN_BATCH 16 /* probes that are sifted before their steps are listed */
#define MOST_PROBES 8 /* probes of one sift: the roof takes so many */
#define MOST_PARTS 4  /* registers of a step: the roof takes so many */
#define LIST_STEPS 512 /* > TILE_STEPS: an item of the list is probe * LIST_STEPS + step */
#define LIST_SLACK 4   /* items that may be written behind the last one */

/* The probes of a tile that some row could match, in their order. */
typedef struct {
    int64_t count;
    int64_t id[SJ_SCAN_TILE_PROBES];
    sj_probe probe[SJ_SCAN_TILE_PROBES];
} probe_tile;

/* A batch in work: `count` probes against rows row:end, which have `steps` whole steps. */
typedef struct {
    const sj_band *band;
    const sj_probe *probe;
    const int64_t *id;
    int64_t count;
    int64_t row;
    int64_t end;
    int64_t steps;
} scan_batch;

/* The form of the first condition. EVEN means lo == -hi: one compare of |left - right| instead of two. EQUAL: the values
 * are compared. */
enum { SIFT_INT, SIFT_FLOAT, SIFT_FLOAT_EVEN, SIFT_FLOAT_EQUAL };

/* outside[probe][step]: the lanes in which no row of the step passes the first condition. */
SJ_INLINE void sift(const sj_band *band, const sj_probe *probe, int probe_count, int form, int parts, int64_t row,
                    int64_t steps, uint8_t (*outside)[TILE_STEPS])
{
    lane_int origin[MOST_PROBES], width[MOST_PROBES];
    lane_float left[MOST_PROBES];
    for (int p = 0; p < probe_count; p++) {
        if (form == SIFT_INT) {
            const lane_int smallest = int_all(probe[p].smallest[0]);
            origin[p] = int_origin(smallest);
            width[p] = int_width(smallest, int_all(probe[p].largest[0]));
        } else {
            left[p] = float_all(form == SIFT_FLOAT_EQUAL ? -probe[p].hi[0] : probe[p].left[0]);
        }
    }
    const lane_float lo = float_all(form == SIFT_INT ? 0.0 : band->float_lo[0]);
    const lane_float hi = float_all(form == SIFT_INT ? 0.0 : band->float_hi[0]);
    const int64_t *ints = form == SIFT_INT ? band->int_right[0] + row : NULL;
    const double *floats = form == SIFT_INT ? NULL : band->float_right[0] + row;
    for (int64_t step = 0; step < steps; step++) {
        /* The rows are loaded first: the compiler cannot know that the bytes stored below do not overlap them. */
        lane_int int_row[MOST_PARTS];
        lane_float float_row[MOST_PARTS];
        for (int part = 0; part < parts; part++) {
            const int64_t at = (step * parts + part) * LANES;
            if (form == SIFT_INT) {
                int_row[part] = int_load(ints + at);
            } else {
                float_row[part] = float_load(floats + at);
            }
        }
        for (int p = 0; p < probe_count; p++) {
            lane_mask mask = mask_all();
            for (int part = 0; part < parts; part++) {
                if (form == SIFT_INT) {
                    mask = int_outside(mask, int_row[part], origin[p], width[p]);
                } else if (form == SIFT_FLOAT_EQUAL) {
                    mask = float_unequal(mask, left[p], float_row[part]);
                } else {
                    const lane_float difference = float_minus(left[p], float_row[part]);
                    mask = form == SIFT_FLOAT ? float_outside(mask, difference, lo, hi)
                                              : float_beyond(mask, difference, hi);
                }
            }
            mask_store(&outside[p][step], mask);
        }
    }
}

static void NAME(sj_sift)(const scan_batch *batch, uint8_t (*outside)[TILE_STEPS])
{
    const sj_band *band = batch->band;
    const int form = band->float_count == 0 ? SIFT_INT
                     : band->float_equal[0] ? SIFT_FLOAT_EQUAL
                     : band->float_lo[0] == -band->float_hi[0] ? SIFT_FLOAT_EVEN : SIFT_FLOAT;
    int64_t p = 0;
#define SJ_SIFT(probe_count, form) \
    sift(band, batch->probe + p, probe_count, form, SCAN_PARTS, batch->row, batch->steps, outside + p)
#define SJ_SIFT_ALL(form)                                        \
    for (; p + SIFT_PROBES <= batch->count; p += SIFT_PROBES) {  \
        SJ_SIFT(SIFT_PROBES, form);                              \
    }                                                            \
    for (; p < batch->count; p++) {                              \
        SJ_SIFT(1, form);                                        \
    }
    switch (form) {
    case SIFT_INT: SJ_SIFT_ALL(SIFT_INT) break;
    case SIFT_FLOAT: SJ_SIFT_ALL(SIFT_FLOAT) break;
    case SIFT_FLOAT_EQUAL: SJ_SIFT_ALL(SIFT_FLOAT_EQUAL) break;
    default: SJ_SIFT_ALL(SIFT_FLOAT_EVEN) break;
    }
#undef SJ_SIFT_ALL
#undef SJ_SIFT
}

/* Appends the steps in which a row passed; returns the new number of items. */
SJ_INLINE int64_t list_steps(const uint8_t *outside, int64_t steps, int first_item, uint16_t *list, int64_t listed)
{
#if LANES == 1
    for (int64_t step = 0; step < steps; step++) {
        list[listed] = (uint16_t)(first_item + step);
        listed += !outside[step];
    }
#else
    for (int64_t from = 0; from < steps; from += 64) {
        uint64_t passed = bytes_other_than(outside + from, ALL_OUTSIDE);
        passed &= steps - from < 64 ? ((uint64_t)1 << (steps - from)) - 1 : ~(uint64_t)0;
        const int64_t after = listed + __builtin_popcountll(passed);
        do { /* four at a time, even if fewer are left: mostly the loop then ends after its first round */
            for (int k = 0; k < LIST_SLACK; k++) {
                list[listed + k] = (uint16_t)(first_item + from + (int64_t)_tzcnt_u64(passed));
                passed &= passed - 1;
            }
            listed += LIST_SLACK;
        } while (passed);
        listed = after;
    }
#endif
    return listed;
}

/* Tests the listed steps by all conditions; returns how many items are done: all, or fewer if the output is full. */
SJ_INLINE int64_t test_listed(const scan_batch *batch, int float_count, int int_count, const uint16_t *list,
                              int64_t listed, row_output *output)
{
    const sj_band *band = batch->band;
    const int64_t first_row = batch->row, end = batch->end, steps = batch->steps, capacity = output->capacity;
    int32_t *out_probe = output->probe, *out_row = output->run;
    int64_t written = output->written;
    int64_t at = 0;
    for (; at < listed && written <= capacity - SCAN_STEP; at++) {
        const int p = list[at] / LIST_STEPS;
        const int64_t step = list[at] % LIST_STEPS;
        const int32_t probe_id = (int32_t)batch->id[p];
        int64_t row = first_row + step * SCAN_STEP;
        lane_bounds bounds;
        bounds_load(&bounds, &batch->probe[p], float_count, int_count);
        if (step < steps) {
            unsigned bits[SCAN_PARTS];
            unsigned any = 0;
            for (int part = 0; part < SCAN_PARTS; part++) {
                bits[part] = rows_test(&bounds, band, 0, float_count, 0, int_count, row + part * LANES, LANES);
                any |= bits[part];
            }
            for (int part = 0; any && part < SCAN_PARTS; part++) {
                written += emit(bits[part], row + part * LANES, probe_id, out_probe + written, out_row + written);
            }
            continue;
        }
        for (; row < end; row += LANES) { /* the rows behind the last whole step */
            const int64_t count = end - row < LANES ? end - row : LANES;
            const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, row, count);
            written += emit(bits, row, probe_id, out_probe + written, out_row + written);
        }
    }
    output->written = written;
    return at;
}

SCAN_APART int64_t NAME(sj_test_listed)(const scan_batch *batch, const uint16_t *list, int64_t listed,
                                        row_output *output)
{
#define SJ_CALL(float_count, int_count) test_listed(batch, float_count, int_count, list, listed, output)
    SJ_UNROLLED(batch->band->float_count, batch->band->int_count, SJ_CALL)
#undef SJ_CALL
}

/* Tests one probe of a batch, one register of rows at a time, without a sift. Returns the row where it stopped: `end`,
 * or an earlier one if the output is full. */
SJ_INLINE int64_t scan_rolled(const scan_batch *batch, int64_t p, int float_count, int int_count, row_output *output)
{
    const sj_band *band = batch->band;
    const int64_t end = batch->end, capacity = output->capacity;
    const int32_t probe_id = (int32_t)batch->id[p];
    int32_t *out_probe = output->probe, *out_row = output->run;
    lane_bounds bounds;
    bounds_load(&bounds, &batch->probe[p], float_count, int_count);
    int64_t row = batch->row;
    int64_t written = output->written;
    while (row < end && written <= capacity - LANES) {
        const int64_t count = end - row < LANES ? end - row : LANES;
        const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, row, count);
        written += emit(bits, row, probe_id, out_probe + written, out_row + written);
        row += count;
    }
    output->written = written;
    return row;
}

SCAN_APART int64_t NAME(sj_scan_rolled)(const scan_batch *batch, int64_t p, row_output *output)
{
#define SJ_CALL(float_count, int_count) scan_rolled(batch, p, float_count, int_count, output)
    SJ_UNROLLED(batch->band->float_count, batch->band->int_count, SJ_CALL)
#undef SJ_CALL
}

/* How much of a batch is done: the number of probes, and the first row that the next probe has not met. */
typedef struct {
    int64_t probes;
    int64_t row;
} batch_place;

/* Tests all rows of a batch by all conditions, probe after probe. */
static batch_place NAME(sj_scan_whole)(const scan_batch *batch, row_output *output)
{
    for (int64_t p = 0; p < batch->count; p++) {
        const int64_t row = NAME(sj_scan_rolled)(batch, p, output);
        if (row < batch->end) {
            return (batch_place){p, row};
        }
    }
    return (batch_place){batch->count, batch->row};
}

SCAN_APART batch_place NAME(sj_scan_batch)(const scan_batch *batch, row_output *output)
{
    uint8_t outside[SCAN_BATCH][TILE_STEPS] __attribute__((aligned(64)));
    uint16_t list[SCAN_BATCH * (TILE_STEPS + 1) + LIST_SLACK];
    int64_t listed = 0;
    NAME(sj_sift)(batch, outside);
    for (int64_t p = 0; p < batch->count; p++) {
        const int first_item = (int)p * LIST_STEPS;
        listed = list_steps(outside[p], batch->steps, first_item, list, listed);
        list[listed] = (uint16_t)(first_item + batch->steps);
        listed += batch->row + batch->steps * SCAN_STEP < batch->end;
    }
    /* Where most steps are left, all rows are tested: bounds stay in registers, and no branch depends on a match. */
    if (2 * listed > batch->count * batch->steps) {
        return NAME(sj_scan_whole)(batch, output);
    }
    const int64_t tested = NAME(sj_test_listed)(batch, list, listed, output);
    if (tested == listed) {
        return (batch_place){batch->count, batch->row};
    }
    return (batch_place){list[tested] / LIST_STEPS, batch->row + list[tested] % LIST_STEPS * SCAN_STEP};
}

int64_t NAME(sj_scan_fill)(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity)
{
    const sj_band *band = &scan->band;
    /* Without a condition there is nothing to sift by. */
    const int is_rolled = scan->is_rolled || band->float_count + band->int_count == 0;
    row_output output = {out_probe, out_row, 0, capacity};
    probe_tile tile;
    while (scan->probe_tile < band->probe_count && band->run_count > 0) {
        const int64_t probe_stop = scan->probe_tile + SJ_SCAN_TILE_PROBES;
        const int64_t probe_end = probe_stop < band->probe_count ? probe_stop : band->probe_count;
        tile.count = 0;
        for (int64_t probe = scan->probe_tile; probe < probe_end; probe++) {
            tile.id[tile.count] = probe;
            tile.count += sj_prepare(band, probe, &tile.probe[tile.count]);
        }
        while (scan->run_tile < band->run_count) {
            const int64_t run_stop = scan->run_tile + SJ_SCAN_TILE_ROWS;
            const int64_t run_end = run_stop < band->run_count ? run_stop : band->run_count;
            int64_t at = 0;
            while (at < tile.count && tile.id[at] < scan->probe) {
                at++;
            }
            while (at < tile.count) {
                /* A probe that a full output stopped inside the tile is finished alone. */
                const int64_t most = scan->row > scan->run_tile ? 1 : SCAN_BATCH;
                const int64_t count = tile.count - at < most ? tile.count - at : most;
                const scan_batch batch = {band, tile.probe + at, tile.id + at, count, scan->row, run_end,
                                          (run_end - scan->row) / SCAN_STEP};
                const batch_place place =
                    is_rolled ? NAME(sj_scan_whole)(&batch, &output) : NAME(sj_scan_batch)(&batch, &output);
                scan->candidates += place.probes * (run_end - scan->row);
                if (place.probes < count) {
                    scan->candidates += place.row - scan->row;
                    scan->probe = tile.id[at + place.probes];
                    scan->row = place.row;
                    return output.written;
                }
                at += count;
                scan->row = scan->run_tile;
            }
            scan->probe = scan->probe_tile;
            scan->run_tile = run_end;
            scan->row = run_end;
        }
        scan->probe_tile = probe_end;
        scan->probe = probe_end;
        scan->run_tile = 0;
        scan->row = 0;
    }
    return output.written;
}

/* Returns how many of rows row:end match a probe, and gives them to `sums` unless that is NULL. */
SJ_INLINE int64_t scan_matches(const sj_band *band, const sj_probe *probe, int float_count, int int_count, int64_t row,
                               int64_t end, sj_partner_sums *sums)
{
    lane_bounds bounds;
    bounds_load(&bounds, probe, float_count, int_count);
    int64_t found = 0;
    for (; row < end; row += LANES) {
        const int64_t count = end - row < LANES ? end - row : LANES;
        const unsigned bits = rows_test(&bounds, band, 0, float_count, 0, int_count, row, count);
        found += bits_set(bits);
        if (sums) {
            sj_fold_put(sums, row, 1, bits);
        }
    }
    return found;
}

SCAN_APART int64_t NAME(sj_scan_matches)(const sj_band *band, const sj_probe *probe, int64_t row, int64_t end)
{
#define SJ_CALL(float_count, int_count) scan_matches(band, probe, float_count, int_count, row, end, NULL)
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL)
#undef SJ_CALL
}

SCAN_APART int64_t NAME(sj_scan_folded)(const sj_band *band, const sj_probe *probe, int64_t row, int64_t end,
                                        sj_partner_sums *sums)
{
#define SJ_CALL(float_count, int_count) scan_matches(band, probe, float_count, int_count, row, end, sums)
    SJ_UNROLLED(band->float_count, band->int_count, SJ_CALL)
#undef SJ_CALL
}

void NAME(sj_scan_count)(sj_scan *scan, int64_t *counts, sj_partner_sums *sums)
{
    const sj_band *band = &scan->band;
    probe_tile tile;
    for (; scan->probe_tile < band->probe_count && band->run_count > 0; scan->probe_tile += SJ_SCAN_TILE_PROBES) {
        const int64_t left = band->probe_count - scan->probe_tile;
        tile.count = 0;
        for (int64_t at = 0; at < left && at < SJ_SCAN_TILE_PROBES; at++) {
            tile.id[tile.count] = scan->probe_tile + at;
            tile.count += sj_prepare(band, scan->probe_tile + at, &tile.probe[tile.count]);
        }
        for (int64_t row = 0; row < band->run_count; row += SJ_SCAN_TILE_ROWS) {
            const int64_t end = band->run_count - row < SJ_SCAN_TILE_ROWS ? band->run_count : row + SJ_SCAN_TILE_ROWS;
            for (int64_t at = 0; at < tile.count; at++) {
                if (sums) {
                    sj_fold_begin(sums, tile.id[at]);
                    counts[tile.id[at]] += NAME(sj_scan_folded)(band, &tile.probe[at], row, end, sums);
                } else {
                    counts[tile.id[at]] += NAME(sj_scan_matches)(band, &tile.probe[at], row, end);
                }
            }
        }
        scan->candidates += tile.count * band->run_count;
    }
}

/* The roof: the sift alone, over a tile that never leaves L1, in the fastest of the forms that were tried (1, 2, 4 and
 * 8 probes; 1, 2, 4 and 8 registers a step). With AVX-512 it compares one register a cycle, which is all that the one
 * port for it can do. No nested loop over 64-bit values can do less work, whatever the number of conditions: each pair
 * needs the first condition decided, and the others only where the first holds. The roof leaves out everything else
 * that a join does: preparing probes, rows across cache lines, the list, the other conditions, the output. */
unsigned NAME(sj_scan_roof)(int is_float, int64_t rounds)
{
    double floats[SJ_SCAN_TILE_ROWS] __attribute__((aligned(64)));
    int64_t ints[SJ_SCAN_TILE_ROWS] __attribute__((aligned(64)));
    uint8_t outside[MOST_PROBES][TILE_STEPS];
    sj_probe probe[MOST_PROBES];
    sj_band band;
    unsigned found = 0;
    for (int row = 0; row < SJ_SCAN_TILE_ROWS; row++) {
        floats[row] = row;
        ints[row] = row;
    }
    memset(&band, 0, sizeof band);
    band.float_right[0] = floats;
    band.int_right[0] = ints;
    band.float_lo[0] = -10.0;
    band.float_hi[0] = 10.0;
    const int64_t steps = SJ_SCAN_TILE_ROWS / (MOST_PARTS * LANES);
    for (int64_t round = 0; round < rounds; round += MOST_PROBES) {
        for (int p = 0; p < MOST_PROBES; p++) {
            /* Nothing matches: bounds that no row reaches, and that the compiler cannot know. */
            const int64_t beyond = 2 * SJ_SCAN_TILE_ROWS + p;
            probe[p].left[0] = (double)beyond;
            probe[p].smallest[0] = beyond;
            probe[p].largest[0] = beyond + 20;
        }
        __asm__ volatile("" : : "r"(floats), "r"(ints), "r"(probe), "r"(&band) : "memory");
        if (is_float) {
            sift(&band, probe, MOST_PROBES, SIFT_FLOAT_EVEN, MOST_PARTS, 0, steps, outside);
        } else {
            sift(&band, probe, MOST_PROBES, SIFT_INT, MOST_PARTS, 0, steps, outside);
        }
        __asm__ volatile("" : : "r"(outside) : "memory");
        found |= outside[0][0] != ALL_OUTSIDE;
    }
    return found;
}
