#include "nearest/distances.h"

#include <math.h>
#include <string.h>

/* The steps are plain loops over a block, and no loop has a scalar twin to be compared with. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("tree-vectorize")
#endif

#define EXACT (INT64_C(1) << 53)

typedef union {
    double real[SJ_BLOCK_PAIRS];
    int64_t whole[SJ_BLOCK_PAIRS];
} sj_register;

/* Loads item `at(i)` of a column for each pair of a block. */
#define LOAD(type, member, at)                                 \
    for (int64_t i = 0; i < count; i++) {                      \
        to->member[i] = ((const type *)column)[at];            \
    }

#define LOAD_TYPES(at)                                      \
    if (step->is_float) {                                   \
        if (item_bytes == 8) { LOAD(double, real, at) }     \
        else { LOAD(float, real, at) }                      \
    } else if (step->is_wide) {                             \
        switch (item_bytes) {                               \
        case 1: LOAD(int8_t, real, at) break;               \
        case 2: LOAD(int16_t, real, at) break;              \
        case 4: LOAD(int32_t, real, at) break;              \
        default: LOAD(int64_t, real, at) break;             \
        }                                                   \
    } else {                                                \
        switch (item_bytes) {                               \
        case 1: LOAD(int8_t, whole, at) break;              \
        case 2: LOAD(int16_t, whole, at) break;             \
        case 4: LOAD(int32_t, whole, at) break;             \
        default: LOAD(int64_t, whole, at) break;            \
        }                                                   \
    }

static void load(const sj_step *step, const unsigned char *column, int item_bytes, const int32_t *rows, int64_t count,
                 sj_register *to)
{
    LOAD_TYPES(rows[i])
}

/* Loads a column of the runs for pairs that lie in several runs. */
static void load_runs(const sj_step *step, const unsigned char *const *addresses, int item_bytes,
                      const int32_t *run_numbers, const int32_t *rows, int64_t count, sj_register *to)
{
    for (int64_t first = 0, end; first < count; first = end) {
        sj_register some;
        for (end = first + 1; end < count && run_numbers[end] == run_numbers[first]; end++) {
        }
        load(step, addresses[run_numbers[first]], item_bytes, rows + first, end - first, &some);
        memcpy(to->whole + first, some.whole, (size_t)(end - first) * sizeof(int64_t));
    }
}

#define EACH(expression)                  \
    for (int64_t i = 0; i < count; i++) { \
        expression;                       \
    }

/* Does one step for a block; returns whether an int64 overflowed. */
static int calculate(const sj_step *step, sj_register *registers, sj_register *to, int64_t count)
{
    const sj_register *left = &registers[step->left], *right = &registers[step->right];
    int overflows = 0;
    switch (step->op) {
    case SJ_STEP_FLOAT: EACH(to->real[i] = step->real) break;
    case SJ_STEP_INT: EACH(to->whole[i] = step->whole) break;
    case SJ_STEP_WIDEN: EACH(to->real[i] = (double)left->whole[i]) break;
    case SJ_STEP_ADD: EACH(to->real[i] = left->real[i] + right->real[i]) break;
    case SJ_STEP_SUB: EACH(to->real[i] = left->real[i] - right->real[i]) break;
    case SJ_STEP_MUL: EACH(to->real[i] = left->real[i] * right->real[i]) break;
    case SJ_STEP_DIV: EACH(to->real[i] = right->real[i] == 0.0 ? NAN : left->real[i] / right->real[i]) break;
    case SJ_STEP_ABS: EACH(to->real[i] = fabs(left->real[i])) break;
    case SJ_STEP_NEG: EACH(to->real[i] = -left->real[i]) break;
    case SJ_STEP_SQRT: EACH(to->real[i] = sqrt(left->real[i])) break;
    case SJ_STEP_INT_ADD:
        EACH(overflows |= __builtin_add_overflow(left->whole[i], right->whole[i], &to->whole[i])) break;
    case SJ_STEP_INT_SUB:
        EACH(overflows |= __builtin_sub_overflow(left->whole[i], right->whole[i], &to->whole[i])) break;
    case SJ_STEP_INT_MUL:
        EACH(overflows |= __builtin_mul_overflow(left->whole[i], right->whole[i], &to->whole[i])) break;
    case SJ_STEP_INT_ABS:
        EACH(overflows |= left->whole[i] == INT64_MIN;
             to->whole[i] = (int64_t)(left->whole[i] < 0 ? 0 - (uint64_t)left->whole[i] : (uint64_t)left->whole[i])) break;
    case SJ_STEP_INT_NEG:
        EACH(overflows |= left->whole[i] == INT64_MIN; to->whole[i] = (int64_t)(0 - (uint64_t)left->whole[i])) break;
    default: break;
    }
    return overflows;
}

/* Whether all pairs of a block are of probes and rows that there are; `one_run` gets their run, -1 if they have several. */
static int are_inside(const sj_distances *distances, int64_t from, int64_t count, int64_t *one_run)
{
    const sj_selection *selection = &distances->selection;
    const int32_t *run_numbers = selection->run_numbers ? selection->run_numbers + from : 0;
    int outside = 0;
    int several = 0;
    *one_run = run_numbers ? run_numbers[0] : selection->run_number;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t run = run_numbers ? (uint64_t)(int64_t)run_numbers[i] : (uint64_t)*one_run;
        if (run >= (uint64_t)distances->runs->run_count) {
            return 0;
        }
        several |= (int64_t)run != *one_run;
        outside |= (uint64_t)(int64_t)selection->rows[from + i] >= (uint64_t)distances->runs->run_rows[run];
        outside |= (uint64_t)(int64_t)distances->positions[from + i] >= (uint64_t)distances->probe_count;
    }
    *one_run = several ? -1 : *one_run;
    return !outside;
}

int sj_distances_fill(const sj_distances *distances, double *out)
{
    const sj_run_columns *runs = distances->runs;
    const sj_selection *selection = &distances->selection;
    sj_register registers[SJ_MAX_STEPS];
    for (int64_t from = 0; from < selection->count; from += SJ_BLOCK_PAIRS) {
        const int64_t left = selection->count - from;
        const int64_t count = left < SJ_BLOCK_PAIRS ? left : SJ_BLOCK_PAIRS;
        int64_t run;
        if (!are_inside(distances, from, count, &run)) {
            return -1;
        }
        for (int64_t number = 0; number < distances->step_count; number++) {
            const sj_step *step = &distances->steps[number];
            sj_register *to = &registers[number];
            if (step->op == SJ_STEP_OWN) {
                load(step, distances->own[step->left], distances->own_bytes[step->left], distances->positions + from, count,
                     to);
            } else if (step->op == SJ_STEP_OTHER) {
                const unsigned char *const *addresses = runs->addresses + (int64_t)step->left * runs->run_count;
                if (run < 0) {
                    load_runs(step, addresses, runs->item_bytes[step->left], selection->run_numbers + from,
                              selection->rows + from, count, to);
                } else {
                    load(step, addresses[run], runs->item_bytes[step->left], selection->rows + from, count, to);
                }
            } else if (calculate(step, registers, to, count)) {
                return 1;
            }
        }
        const sj_register *result = &registers[distances->step_count - 1];
        int inexact = 0;
        if (distances->is_whole) {
            EACH(inexact |= result->whole[i] > EXACT || result->whole[i] < -EXACT; out[from + i] = (double)result->whole[i])
        } else {
            EACH(out[from + i] = result->real[i])
        }
        if (inexact) {
            return 1;
        }
    }
    return 0;
}
