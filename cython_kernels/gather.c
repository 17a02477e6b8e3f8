#include <string.h>

#include "grid.h"

/* Checked and copied block by block: the block of order is then still in L1. */
#define BLOCK 2048

#define GATHER(item_bytes)                                                                               \
    for (int64_t row = from; row < to; row++) {                                                          \
        memcpy(out + row * (item_bytes), column + (int64_t)order[row] * (item_bytes), (item_bytes));     \
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
        switch (item_bytes) {
        case 1: GATHER(1) break;
        case 2: GATHER(2) break;
        case 4: GATHER(4) break;
        case 8: GATHER(8) break;
        default: GATHER(16) break;
        }
    }
    return 0;
}

#define GATHER_RUNS(item_bytes)                                                                                     \
    for (int64_t row = from; row < to; row++) {                                                                     \
        memcpy(out + row * (item_bytes), columns[places[row]] + (int64_t)rows[row] * (item_bytes), (item_bytes));   \
    }

int sj_gather_runs(const unsigned char *const *columns, const int64_t *run_rows, int64_t run_count, int item_bytes,
                   const int32_t *places, const int32_t *rows, int64_t count, unsigned char *out)
{
    for (int64_t from = 0; from < count; from += BLOCK) {
        const int64_t to = count - from < BLOCK ? count : from + BLOCK;
        int outside = 0;
        for (int64_t row = from; row < to; row++) {
            const uint64_t place = (uint64_t)(int64_t)places[row];
            if (place >= (uint64_t)run_count) {
                return -1;
            }
            outside |= (uint64_t)(int64_t)rows[row] >= (uint64_t)run_rows[place];
        }
        if (outside) {
            return -1;
        }
        switch (item_bytes) {
        case 1: GATHER_RUNS(1) break;
        case 2: GATHER_RUNS(2) break;
        case 4: GATHER_RUNS(4) break;
        case 8: GATHER_RUNS(8) break;
        default: GATHER_RUNS(16) break;
        }
    }
    return 0;
}
