/* Distances of pairs, calculated where their columns lie: no column is gathered first.
 *
 *   steps of an expression ──► a block of pairs ──► registers of 256 values ──► distances
 *
 * A step reads registers that steps before it wrote. A register has float64 or int64 values; the step says which.
 */
#ifndef SJ_DISTANCES_H
#define SJ_DISTANCES_H

#include "grid/grid.h"

enum { SJ_BLOCK_PAIRS = 256, SJ_MAX_STEPS = 24 };

typedef enum {
    SJ_STEP_OWN,   /* `left` is a column of the probes */
    SJ_STEP_OTHER, /* `left` is a column of the runs */
    SJ_STEP_FLOAT, /* the number */
    SJ_STEP_INT,   /* the whole number */
    SJ_STEP_WIDEN, /* int64 to float64 */
    SJ_STEP_ADD,   /* from here on float64 */
    SJ_STEP_SUB,
    SJ_STEP_MUL,
    SJ_STEP_DIV, /* NaN where the divisor is 0 */
    SJ_STEP_ABS,
    SJ_STEP_NEG,
    SJ_STEP_SQRT,
    SJ_STEP_INT_ADD, /* from here on int64 */
    SJ_STEP_INT_SUB,
    SJ_STEP_INT_MUL,
    SJ_STEP_INT_ABS,
    SJ_STEP_INT_NEG,
    SJ_STEP_COUNT
} sj_step_op;

typedef struct {
    sj_step_op op;
    int left;  /* a column, or the number of an earlier step */
    int right; /* the number of an earlier step */
    int is_float; /* of a column: whether its items are floats */
    int is_wide;  /* of a column: whether its items become float64 */
    double real;
    int64_t whole;
} sj_step;

typedef struct {
    int64_t step_count;
    sj_step steps[SJ_MAX_STEPS];
    const unsigned char *own[SJ_MAX_STEPS]; /* columns of the probes */
    int own_bytes[SJ_MAX_STEPS];            /* of one item */
    int64_t probe_count;
    const sj_run_columns *runs;
    sj_selection selection; /* the other tuple of each pair */
    const int32_t *positions;
    int is_whole; /* whether the last step gives int64 */
} sj_distances;

/* Writes the distance of each pair. Returns 0; -1 where a pair points outside; 1 where an int64 overflows, or the
 * result is beyond 2^53, which a float64 does not hold exactly. */
int sj_distances_fill(const sj_distances *distances, double *out);

#endif
