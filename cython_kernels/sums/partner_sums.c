#include "sums/partner_sums.h"

#include <math.h>

#include "bucket/bucket_grid.h"

/* Sets the cuts so that values below 2^exponent have room. */
static void choose_cuts(sj_fold *fold, int exponent)
{
    exponent = exponent < -900 ? -900 : exponent > 1000 ? 1000 : exponent;
    fold->limit = ldexp(1.0, exponent);
    for (int part = 0; part < SJ_FOLD_PARTS; part++) {
        fold->cut[part] = ldexp(1.5, 52 + exponent - SJ_FOLD_PART_BITS * (part + 1));
    }
}

void sj_fold_choose(sj_partner_sums *sums, int lanes)
{
    for (int number = 0; number < sums->fold_count; number++) {
        sj_fold *fold = &sums->folds[number];
        if (fold->function != SJ_FOLD_SUM || fold->limit != 0 || (fold->item != SJ_FLOAT64 && fold->item != SJ_FLOAT32)) {
            continue;
        }
        const void *items = sums->columns->addresses[fold->column * sums->columns->run_count + sums->run];
        double largest = 0;
        int are_zero = 1;
        for (int at = 0; at < sums->piece_count; at++) {
            const sj_piece piece = sums->pieces[at];
            for (int64_t row = piece.row, end = row + (int64_t)piece.steps * lanes; row < end; row++) {
                if (!(piece.bits >> (row - piece.row) % lanes & 1)) {
                    continue;
                }
                const double value =
                    fold->item == SJ_FLOAT64 ? ((const double *)items)[row] : (double)((const float *)items)[row];
                are_zero &= value == 0;
                largest = isfinite(value) && fabs(value) > largest ? fabs(value) : largest;
            }
        }
        if (!are_zero) {
            int exponent = 0;
            frexp(largest, &exponent);
            choose_cuts(fold, exponent + SJ_FOLD_HEADROOM);
        }
    }
}
