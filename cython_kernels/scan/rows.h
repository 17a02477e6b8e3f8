/* The test of a run's rows against one probe, shared by every operation and every width of lanes.
 *
 * Include after one lanes_*.h. `float_count` and `int_count` are constants in the unrolled copies, so the loops over
 * conditions vanish and every bound lives in a register.
 */
#ifndef SJ_ROWS_H
#define SJ_ROWS_H

typedef struct {
    lane_float left[SJ_MAX_CONDITIONS];
    lane_float lo[SJ_MAX_CONDITIONS];
    lane_float hi[SJ_MAX_CONDITIONS];
    lane_int smallest[SJ_MAX_CONDITIONS];
    lane_int largest[SJ_MAX_CONDITIONS];
} lane_bounds;

typedef struct {
    int32_t *probe;
    int32_t *run;
    int64_t written;
    int64_t capacity;
} row_output;

SJ_INLINE void float_bounds_load(lane_bounds *bounds, const sj_probe *probe, int c)
{
    bounds->left[c] = float_all(probe->left[c]);
    bounds->lo[c] = float_all(probe->lo[c]);
    bounds->hi[c] = float_all(probe->hi[c]);
}

SJ_INLINE void int_bounds_load(lane_bounds *bounds, const sj_probe *probe, int c)
{
    bounds->smallest[c] = int_all(probe->smallest[c]);
    bounds->largest[c] = int_all(probe->largest[c]);
}

SJ_INLINE void bounds_load(lane_bounds *bounds, const sj_probe *probe, int float_count, int int_count)
{
    for (int c = 0; c < float_count; c++) {
        float_bounds_load(bounds, probe, c);
    }
    for (int c = 0; c < int_count; c++) {
        int_bounds_load(bounds, probe, c);
    }
}

/* Returns a bit for each of LANES rows from `row` on: whether it passes the conditions from (float_from, int_from) on.
 * Where `count` < LANES, only so many rows exist, and only so many are read. */
SJ_INLINE unsigned rows_test(const lane_bounds *bounds, const sj_band *band, int float_from, int float_count, int int_from,
                             int int_count, int64_t row, int64_t count)
{
    lane_mask mask = mask_all();
    for (int c = float_from; c < float_count; c++) {
        const double *from = band->float_right[c] + row;
        const lane_float right = count >= LANES ? float_load(from) : float_load_some(from, count);
        mask = float_within(mask, float_minus(bounds->left[c], right), bounds->lo[c], bounds->hi[c]);
    }
    for (int c = int_from; c < int_count; c++) {
        const int64_t *from = band->int_right[c] + row;
        const lane_int right = count >= LANES ? int_load(from) : int_load_some(from, count);
        mask = int_within(mask, right, bounds->smallest[c], bounds->largest[c]);
    }
    const unsigned bits = mask_bits(mask);
    return count >= LANES ? bits : bits & ((1u << count) - 1);
}

/* The usual pairs of counts (float, int) have their own copy of the loop; in all others the counts stay variables. */
#define SJ_UNROLLED(float_count, int_count, CALL)                                    \
    switch ((float_count) < 4 && (int_count) < 4 ? (float_count) * 4 + (int_count) : -1) { \
    case 1: return CALL(0, 1);                                                       \
    case 2: return CALL(0, 2);                                                       \
    case 3: return CALL(0, 3);                                                       \
    case 4: return CALL(1, 0);                                                       \
    case 5: return CALL(1, 1);                                                       \
    case 6: return CALL(1, 2);                                                       \
    case 7: return CALL(1, 3);                                                       \
    case 8: return CALL(2, 0);                                                       \
    case 9: return CALL(2, 1);                                                       \
    case 10: return CALL(2, 2);                                                      \
    case 12: return CALL(3, 0);                                                      \
    case 13: return CALL(3, 1);                                                      \
    default: return CALL((float_count), (int_count));                                \
    }

#endif
