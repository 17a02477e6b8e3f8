/* Sums, counts and extremes of many groups of numbers: the group of each number is given by its position.
 *
 * A sum is exact: a number is cut into limbs, whole numbers times a power of 2^30, and each group has an int64 for each
 * limb. Numbers that follow each other in one group are first added in a register of 128 bits.
 *
 *   number ──► 128 bits, while group and lowest limb stay ──► three limbs of the group ──► carried now and then
 */
#ifndef SJ_SUMS_H
#define SJ_SUMS_H

#include <stdint.h>

enum {
    SJ_LIMB_BITS = 30,
    SJ_SUM_LIMBS = 76, /* from 2^-1080 on: room for all floats, and for more of them than there is memory */
    SJ_SUM_ONES = 36   /* the limb of 2^0 */
};

typedef struct {
    int64_t count;                /* groups */
    int64_t *limbs[SJ_SUM_LIMBS]; /* of all groups; NULL: all are 0 */
    uint8_t *beyond;              /* of each group: which of 1 infinity, 2 -infinity, 4 NaN it has; NULL: none */
    int64_t added;                /* numbers since limbs were carried */
} sj_sums;

/* Whether all positions are from 0 to before `count`. */
int sj_positions_fit(const int32_t *positions, int64_t n, int64_t count);

/* Add numbers to the groups at these positions, which must fit. Return -1 where memory lacks, else 0. `words` are numbers
 * of 128 bits, the lower half first. */
int sj_sums_floats(sj_sums *sums, const int32_t *positions, const double *values, int64_t n);
int sj_sums_integers(sj_sums *sums, const int32_t *positions, const int64_t *values, int64_t n);
int sj_sums_wide(sj_sums *sums, const int32_t *positions, const int64_t *words, int64_t n);

/* Returns the number of limbs from the lowest to the highest that has a number, and writes which is the lowest. */
int sj_sums_limbs(const sj_sums *sums, int *lowest);

/* Writes the limbs from `lowest` on, limb after limb, so that all but the last are from 0 to 2^30 - 1. */
void sj_sums_digits(const sj_sums *sums, int lowest, int rows, int64_t *digits);

/* Writes for each group 0, infinity, -infinity or NaN: the sum of its numbers that are not finite. */
void sj_sums_beyond(const sj_sums *sums, double *out);

void sj_sums_free(sj_sums *sums);

/* Adds to the count of each group how many positions are its own. Positions must fit. */
void sj_tally(const int32_t *positions, int64_t n, int64_t *counts);

/* Lowers (or raises, where `largest`) the number of each group to that of its smallest (largest) value. A float is
 * ordered by an int64: NaN is the largest, -0.0 is below 0.0. Positions must fit. */
void sj_extremes_float(const int32_t *positions, const double *values, int64_t n, int largest, int64_t *best);
void sj_extremes_int(const int32_t *positions, const int64_t *values, int64_t n, int largest, int64_t *best);

#endif
