#include <string.h>

#include "grid/grid.h"

/* Rows that are checked, and then copied, at a time: the block of `order` is then still in L1. */
#define BLOCK 2048

/* Rows of a column of more than FAR_BYTES come from memory, a few from each cache line. While a row is copied, the line
 * of the row FAR_ROWS later is prefetched. 256 rows are some 70 lines, more than a core prefetches by itself. */
#define FAR_BYTES (1 << 20)
#define FAR_ROWS 256

#define COPY_ROW(item_bytes, row) \
    memcpy(out + (row) * (item_bytes), column + (int64_t)order[row] * (item_bytes), (item_bytes))

/* The prefetched address is computed as an integer, because nobody has checked yet that the row exists. */
#define COPY(item_bytes)                                                                                   \
    for (; row < far_to; row++) {                                                                          \
        const uintptr_t far = (uintptr_t)column + (uintptr_t)((int64_t)order[row + FAR_ROWS] * (item_bytes)); \
        __builtin_prefetch((const void *)far);                                                             \
        COPY_ROW(item_bytes, row);                                                                         \
    }                                                                                                      \
    for (; row + 4 <= to; row += 4) {                                                                      \
        COPY_ROW(item_bytes, row);                                                                         \
        COPY_ROW(item_bytes, row + 1);                                                                     \
        COPY_ROW(item_bytes, row + 2);                                                                     \
        COPY_ROW(item_bytes, row + 3);                                                                     \
    }                                                                                                      \
    for (; row < to; row++) {                                                                              \
        COPY_ROW(item_bytes, row);                                                                         \
    }

/* Copies the checked rows order[from:to] of a column of `rows` rows; `order` goes on to `count`. */
static void copy_rows(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t from,
                      int64_t to, int64_t count, unsigned char *out)
{
    const int64_t far_count = rows * item_bytes > FAR_BYTES ? count - FAR_ROWS : from;
    const int64_t far_to = far_count < to ? far_count : to;
    int64_t row = from;
    switch (item_bytes) {
    case 1: COPY(1) break;
    case 2: COPY(2) break;
    case 4: COPY(4) break;
    case 8: COPY(8) break;
    default: COPY(16) break;
    }
}

int sj_gather(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
              unsigned char *out)
{
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = count - from < BLOCK ? count : from + BLOCK;
        int outside = 0;
        for (int64_t row = from; row < to; row++) {
            outside |= (uint64_t)(int64_t)order[row] >= (uint64_t)rows;
        }
        if (outside) {
            return -1;
        }
        copy_rows(column, rows, item_bytes, order, from, to, count, out);
    }
    return 0;
}

/* Checks that each rows[i] is a row of run run_numbers[i]; `run_numbers` NULL: of run 0. Returns -1 where one is not, 0
 * where all are of one run, 1 where they are of several. */
static int check(const int64_t *run_rows, int64_t run_count, const int32_t *run_numbers, const int32_t *rows,
                 int64_t count)
{
    int outside = 0;
    int other = 0;
    for (int64_t row = 0; row < count; row++) {
        const uint64_t run_number = run_numbers ? (uint64_t)(int64_t)run_numbers[row] : 0;
        if (run_number >= (uint64_t)run_count) {
            return -1;
        }
        other |= run_numbers && run_numbers[row] != run_numbers[0];
        outside |= (uint64_t)(int64_t)rows[row] >= (uint64_t)run_rows[run_number];
    }
    return outside ? -1 : other;
}

void sj_gather_run(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                   unsigned char *out)
{
    copy_rows(column, rows, item_bytes, order, 0, count, count, out);
}

#define GATHER_RUNS(item_bytes)                                                                                     \
    for (int64_t row = from; row < to; row++) {                                                                     \
        const unsigned char *items = columns[run_numbers[row]];                                                     \
        memcpy(out + row * (item_bytes), items + (int64_t)rows[row] * (item_bytes), (item_bytes));                  \
    }

/* out[i] = columns[run_numbers[i]][rows[i]] */
static void gather_runs(const unsigned char *const *columns, const int64_t *run_rows, int item_bytes,
                        const int32_t *run_numbers, const int32_t *rows, int64_t count, unsigned char *out)
{
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = count - from < BLOCK ? count : from + BLOCK;
        const int32_t first = run_numbers[from];
        int other = 0;
        for (int64_t row = from; row < to; row++) {
            other |= run_numbers[row] ^ first;
        }
        if (!other) { /* mostly so: runs are probed one after the other */
            copy_rows(columns[first], run_rows[first], item_bytes, rows, from, to, count, out);
            continue;
        }
        switch (item_bytes) {
        case 1: GATHER_RUNS(1) break;
        case 2: GATHER_RUNS(2) break;
        case 4: GATHER_RUNS(4) break;
        case 8: GATHER_RUNS(8) break;
        default: GATHER_RUNS(16) break;
        }
    }
}

int sj_gather_columns(const sj_run_columns *from, const sj_selection *selection, unsigned char *const *outs)
{
    const int32_t *run_numbers = selection->run_numbers;
    int64_t run_number = selection->run_number;
    const int32_t *rows = selection->rows;
    const int found = check(from->run_rows + run_number, from->run_count, run_numbers, rows, selection->count);
    if (found < 0) {
        return -1;
    }
    if (found == 0 && run_numbers && selection->count) {
        run_number = run_numbers[0];
        run_numbers = NULL;
    }
    for (int64_t column = 0; column < from->column_count; column++) {
        const unsigned char *const *addresses = from->addresses + column * from->run_count;
        if (!outs[column]) {
            continue;
        }
        if (run_numbers) {
            gather_runs(addresses, from->run_rows, from->item_bytes[column], run_numbers, rows, selection->count,
                        outs[column]);
        } else {
            sj_gather_run(addresses[run_number], from->run_rows[run_number], from->item_bytes[column], rows,
                          selection->count, outs[column]);
        }
    }
    return 0;
}
