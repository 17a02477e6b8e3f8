/* Whether the two places of each pair are near each other, decided where their columns lie.
 *
 *   rows of pairs ──► a block of pairs ──► half a chord, squared, of a lane of pairs ──► far, near or open
 *
 * Each pair is decided by sums and products alone, in one order, so all implementations give the same answers. What
 * they mean, and why an answer is right: streamjoin_ds.spec.functions.globe.
 */
#ifndef SJ_NEAR_PLACES_H
#define SJ_NEAR_PLACES_H

#include "grid/grid.h"

enum { SJ_NEAR_PAIRS = 256, SJ_NEAR_COLUMNS = 4 };

typedef struct {
    double eccentricity; /* of the ellipsoid, squared; 0 of a sphere */
    double inverse;      /* 1 / (1 - eccentricity) */
    double low;          /* near below it, times the third power of how much the ellipsoid is curved there */
    double high;         /* far above it, likewise */
    double most_latitude;
} sj_near_bounds;

/* Latitudes and longitudes of both places of SJ_NEAR_PAIRS pairs. */
typedef struct {
    double column[SJ_NEAR_COLUMNS][SJ_NEAR_PAIRS];
} sj_near_block;

/* Writes 0 (far, or no places), 1 (near) or 2 (open) for each pair of a block. */
typedef void (*sj_near_fill)(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out);

void sj_near_fill_scalar(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out);
#if defined(__x86_64__)
void sj_near_fill_avx2(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out);
void sj_near_fill_avx512(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out);
#endif

typedef struct {
    sj_near_bounds bounds;
    sj_near_fill fill;
    const sj_run_columns *left; /* two columns of float64: latitudes, longitudes */
    const sj_run_columns *right;
    sj_selection left_rows;
    sj_selection right_rows; /* as many */
} sj_near_places;

/* Writes an answer for each pair; returns -1 where a pair points outside. */
int sj_near_places_fill(const sj_near_places *places, uint8_t *out);

#endif
