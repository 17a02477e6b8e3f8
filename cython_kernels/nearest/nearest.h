/* The k nearest partners of each of some probes, kept while pairs come.
 *
 *   pairs with distances ──► select ──► those that may be among the k ──► keep ──► ... ──► rank
 *                            by distance alone: most pairs end here       all keys         ascending
 *
 * For each probe there are two heaps with the greatest on top: the k smallest distances that were seen, and the k
 * nearest pairs that were kept.
 */
#ifndef SJ_NEAREST_H
#define SJ_NEAREST_H

#include <stdint.h>

enum { SJ_TIES = 3 };

typedef struct {
    double distance;
    int64_t ties[SJ_TIES]; /* the first that differs decides between equal distances */
    int32_t run_number;
    int32_t row;
} sj_near;

typedef struct {
    int64_t count; /* probes */
    int64_t k;
    int32_t *seen;     /* of each probe: distances in its heap */
    double *distances; /* k for each probe */
    int32_t *used;     /* of each probe: pairs in its heap */
    sj_near *kept;     /* k for each probe */
} sj_nearest;

typedef struct {
    int64_t count;
    const int32_t *positions; /* the probe of each pair */
    const double *distances;
    const int64_t *ties[SJ_TIES];
    const int32_t *run_numbers;
    const int32_t *rows;
} sj_near_pairs;

/* Writes the numbers of the pairs whose distance is not above the k-th smallest of their probe so far, these pairs
 * among them; NaN is never written. Returns how many. -1: a position is outside. */
int64_t sj_nearest_select(sj_nearest *nearest, const sj_near_pairs *pairs, int32_t *selected);

/* Keeps the pairs that are among the k nearest of their probe. Returns -1 where a position is outside, else 0. */
int sj_nearest_keep(sj_nearest *nearest, const sj_near_pairs *pairs);

/* Returns how many pairs are kept. */
int64_t sj_nearest_total(const sj_nearest *nearest);

/* Writes the kept pairs, probe after probe, each probe's nearest first. Nothing can be kept after that. */
void sj_nearest_rank(sj_nearest *nearest, int32_t *run_numbers, int32_t *rows);

#endif
