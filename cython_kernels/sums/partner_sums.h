/* Sums and extremes of columns over each probe's partners, while the partners are found: no pair is written.
 *
 *   count of a scan, grid or bucket grid ──► pieces: rows of one run, for one group ──► fold: column after column
 *                                            (group: the probe that they match)          lanes, then three doubles
 *
 * A sum of floats is exact. With s = 1.5 * 2^(52 + e) the difference (x + s) - s is the multiple of 2^e that is nearest
 * to x, and what it leaves of x is exact too (Rump, Ogita and Oishi, 2008, section 3). So each x is cut into three parts
 * of 33 bits. Up to 2^20 of them are added as doubles without an error, in any order. Where x is not finite, too large
 * for the cuts, or has bits below them, its group is left open: the caller adds the pairs of that group one by one.
 */
#ifndef SJ_PARTNER_SUMS_H
#define SJ_PARTNER_SUMS_H

#include "grid/grid.h"

enum {
    SJ_FOLD_PIECES = 64,
    SJ_FOLD_PARTS = 3,
    SJ_FOLD_PART_BITS = 33,
    SJ_FOLD_HEADROOM = 14 /* bits that a value may have above the first that was seen */
};

enum sj_fold_function { SJ_FOLD_SUM = 0, SJ_FOLD_MIN = 1, SJ_FOLD_MAX = 2 };

/* Steps of LANES rows each. Bit n of `bits` stands for the n-th row of every step. */
typedef struct {
    int32_t row;
    uint16_t steps;
    uint16_t bits;
} sj_piece;

/* One function of one column. A sum of integers has two parts: of the upper and of the lower halves of the values.
 * An extreme has one, in the order of int64: of floats NaN is the largest, and -0.0 is below 0.0. */
typedef struct {
    int function; /* enum sj_fold_function */
    int item;     /* enum sj_item */
    int64_t column;
    double limit; /* of a sum of floats: a power of 2 that values are below; 0: not chosen yet */
    double cut[SJ_FOLD_PARTS];
    double *floats[SJ_FOLD_PARTS]; /* of each group */
    int64_t *ints[2];
} sj_fold;

struct sj_partner_sums {
    int64_t count; /* groups */
    int fold_count;
    sj_fold *folds;
    uint8_t *open; /* of each group: whether it is left open */
    const sj_run_columns *columns;
    void (*fold)(sj_partner_sums *sums); /* that of the implementation; takes the pieces */
    int64_t run;                         /* that the pieces are of */
    int64_t first_group;                 /* that of probe 0 */
    int64_t group;
    int piece_count;
    sj_piece pieces[SJ_FOLD_PIECES + 1]; /* the last is written to and never read */
};

/* Chooses what is not chosen yet of the sums of floats, by the pieces, where a value among these is not zero. */
void sj_fold_choose(sj_partner_sums *sums, int lanes);

void sj_fold_scalar(sj_partner_sums *sums);
#if defined(__x86_64__)
void sj_fold_avx2(sj_partner_sums *sums);
void sj_fold_avx512(sj_partner_sums *sums);
#endif

/* Takes the pieces so far. A run ends with it, since its columns are others than the next run's. */
SJ_INLINE void sj_fold_pieces(sj_partner_sums *sums)
{
    if (sums->piece_count) {
        sums->fold(sums);
        sums->piece_count = 0;
    }
}

/* Begins with the partners of a probe, or goes on with them. */
SJ_INLINE void sj_fold_begin(sj_partner_sums *sums, int64_t probe)
{
    const int64_t group = sums->first_group + probe;
    if (group != sums->group) {
        sj_fold_pieces(sums);
        sums->group = group;
    }
}

/* Adds a piece; one without rows is not kept. */
SJ_INLINE void sj_fold_put(sj_partner_sums *sums, int64_t row, int steps, unsigned bits)
{
    const sj_piece piece = {(int32_t)row, (uint16_t)steps, (uint16_t)bits};
    sums->pieces[sums->piece_count] = piece;
    sums->piece_count += bits != 0;
    if (sums->piece_count == SJ_FOLD_PIECES) {
        sj_fold_pieces(sums);
    }
}

/* Adds rows that follow each other. */
SJ_INLINE void sj_fold_rows(sj_partner_sums *sums, int64_t row, int64_t end, int lanes)
{
    while (end - row >= lanes) {
        const int64_t steps = (end - row) / lanes < UINT16_MAX ? (end - row) / lanes : UINT16_MAX;
        sj_fold_put(sums, row, (int)steps, (1u << lanes) - 1);
        row += steps * lanes;
    }
    sj_fold_put(sums, row, 1, (1u << (end - row)) - 1);
}

#endif
