/* The fold of pieces into sums and extremes, for one width of lanes. Include after one lanes_*.h. */
#include "bucket/bucket_grid.h"
#include "sums/partner_sums.h"

/* Does WORK for each step of each piece, with `at` its first row and `bits` its rows. */
#define FOLD_STEPS(WORK)                                               \
    for (int place = 0; place < sums->piece_count; place++) {          \
        const sj_piece piece = sums->pieces[place];                    \
        const unsigned bits = piece.bits;                              \
        int64_t at = piece.row;                                        \
        for (int step = 0; step < piece.steps; step++, at += LANES) {  \
            WORK                                                       \
        }                                                              \
    }

/* Adds values, cut into three parts; `open` notes those that the cuts do not fit. */
#define FOLD_FLOATS(LOAD, TYPE)                                                                        \
    {                                                                                                  \
        const TYPE *items = (const TYPE *)column;                                                      \
        FOLD_STEPS(const lane_float value = LOAD(items + at, bits);                                    \
                   const lane_float upper = float_minus(float_plus(value, first), first);              \
                   const lane_float rest = float_minus(value, upper);                                  \
                   const lane_float middle = float_minus(float_plus(rest, second), second);            \
                   const lane_float lower = float_minus(rest, middle);                                 \
                   open |= floats_unfit(value, limit, lower,                                           \
                                        float_minus(float_plus(lower, third), third));                 \
                   uppers = float_plus(uppers, upper); middles = float_plus(middles, middle);          \
                   lowers = float_plus(lowers, lower);)                                                \
    }

SJ_INLINE void fold_float_sum(const sj_partner_sums *sums, const sj_fold *fold, const void *column)
{
    const lane_float first = float_all(fold->cut[0]), second = float_all(fold->cut[1]), third = float_all(fold->cut[2]);
    const lane_float limit = float_all(fold->limit);
    lane_float uppers = float_all(0), middles = float_all(0), lowers = float_all(0);
    unsigned open = 0;
    if (fold->limit == 0) {
        return; /* all values so far are zero */
    }
    if (fold->item == SJ_FLOAT64) {
        FOLD_FLOATS(float_load_bits, double)
    } else {
        FOLD_FLOATS(float_load_narrow_bits, float)
    }
    fold->floats[0][sums->group] += float_total(uppers);
    fold->floats[1][sums->group] += float_total(middles);
    fold->floats[2][sums->group] += float_total(lowers);
    sums->open[sums->group] |= open != 0;
}

#define FOLD_INTS(LOAD, TYPE)                                                  \
    {                                                                          \
        const TYPE *items = (const TYPE *)column;                              \
        FOLD_STEPS(const lane_int value = LOAD(items + at, bits);              \
                   uppers = int_plus(uppers, int_upper(value));                \
                   lowers = int_plus(lowers, int_lower(value));)               \
    }

SJ_INLINE void fold_int_sum(const sj_partner_sums *sums, const sj_fold *fold, const void *column)
{
    lane_int uppers = int_all(0), lowers = int_all(0);
    if (fold->item == SJ_INT64) {
        FOLD_INTS(int_load_bits, int64_t)
    } else {
        FOLD_INTS(int_load_narrow_bits, int32_t)
    }
    fold->ints[0][sums->group] += int_total(uppers);
    fold->ints[1][sums->group] += int_total(lowers);
}

#define FOLD_LEAST(NUMBER, TYPE)                                                              \
    {                                                                                         \
        const TYPE *items = (const TYPE *)column;                                             \
        FOLD_STEPS(least = int_least(least, int_flipped(NUMBER, reversed), bits);)            \
    }

/* Larger numbers are compared as smaller ones: ~x reverses the order of int64. */
SJ_INLINE void fold_extreme(const sj_partner_sums *sums, const sj_fold *fold, const void *column)
{
    const int64_t flips = fold->function == SJ_FOLD_MAX ? -1 : 0;
    const lane_int reversed = int_all(flips);
    int64_t *best = &fold->ints[0][sums->group];
    lane_int least = int_all(*best ^ flips);
    switch (fold->item) {
    case SJ_FLOAT64:
        FOLD_LEAST(float_ordered(float_load_bits(items + at, bits)), double)
        break;
    case SJ_FLOAT32:
        FOLD_LEAST(float_ordered(float_load_narrow_bits(items + at, bits)), float)
        break;
    case SJ_INT64:
        FOLD_LEAST(int_load_bits(items + at, bits), int64_t)
        break;
    default:
        FOLD_LEAST(int_load_narrow_bits(items + at, bits), int32_t)
    }
    *best = int_least_lane(least) ^ flips;
}

void NAME(sj_fold)(sj_partner_sums *sums)
{
    for (int number = 0; number < sums->fold_count; number++) {
        const sj_fold *fold = &sums->folds[number];
        const void *column = sums->columns->addresses[fold->column * sums->columns->run_count + sums->run];
        if (fold->function != SJ_FOLD_SUM) {
            fold_extreme(sums, fold, column);
        } else if (fold->item == SJ_INT64 || fold->item == SJ_INT32) {
            fold_int_sum(sums, fold, column);
        } else {
            if (fold->limit == 0) {
                sj_fold_choose(sums, LANES);
            }
            fold_float_sum(sums, fold, column);
        }
    }
}
