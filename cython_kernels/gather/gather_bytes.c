#include <string.h>

#include "gather/bytes.h"

/* Values lie anywhere in memory, so those of later rows are prefetched: the offsets FAR_OFFSETS rows ahead, while sizes
 * are summed up, and the data FAR_DATA rows ahead, while values are copied. */
#define FAR_OFFSETS 64
#define FAR_DATA 24

/* A short value is copied as two overlapping words: to call memcpy would cost as much as all the rest. */
SJ_INLINE void copy_bytes(unsigned char *to, const unsigned char *from, int64_t size)
{
    if (size > 16) {
        memcpy(to, from, (size_t)size);
    } else if (size >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + size - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + size - 8, &last, 8);
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + size - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + size - 4, &last, 4);
    } else {
        for (int64_t at = 0; at < size; at++) {
            to[at] = from[at];
        }
    }
}

SJ_INLINE int is_valid(const sj_byte_column *column, int64_t row)
{
    const int64_t bit = column->valid_from + row;
    return !column->valid || (column->valid[bit >> 3] >> (bit & 7) & 1);
}

int sj_offsets_fit(const int32_t *offsets, int64_t count, int64_t size_bytes)
{
    int descends = offsets[0] < 0;
    for (int64_t row = 0; row < count; row++) {
        descends |= offsets[row + 1] < offsets[row];
    }
    return !descends && offsets[count] <= size_bytes;
}

int64_t sj_gathered_bytes(const sj_byte_column *const *columns, int64_t column_count, const int32_t *sources,
                          int64_t source, const int32_t *rows, int64_t count, int32_t *offsets, int64_t *nulls)
{
    int64_t size = 0;
    *nulls = 0;
    for (int64_t at = 0; at < count; at++) {
        const int64_t from = sources ? sources[at] : source;
        if ((uint64_t)from >= (uint64_t)column_count || (uint64_t)(int64_t)rows[at] >= (uint64_t)columns[from]->rows) {
            return -1;
        }
    }
    for (int64_t at = 0; at < count && size <= INT32_MAX; at++) {
        if (at + FAR_OFFSETS < count) {
            __builtin_prefetch(columns[sources ? sources[at + FAR_OFFSETS] : source]->offsets + rows[at + FAR_OFFSETS]);
        }
        const sj_byte_column *column = columns[sources ? sources[at] : source];
        offsets[at] = (int32_t)size;
        if (is_valid(column, rows[at])) {
            size += column->offsets[rows[at] + 1] - column->offsets[rows[at]];
        } else {
            ++*nulls;
        }
    }
    offsets[count] = (int32_t)size;
    return size;
}

void sj_gather_bytes(const sj_byte_column *const *columns, const int32_t *sources, int64_t source, const int32_t *rows,
                     int64_t count, const int32_t *offsets, unsigned char *data, unsigned char *valid)
{
    for (int64_t at = 0; at < count; at++) {
        if (at + FAR_DATA < count) {
            const sj_byte_column *far = columns[sources ? sources[at + FAR_DATA] : source];
            __builtin_prefetch(far->data + far->offsets[rows[at + FAR_DATA]]);
        }
        const sj_byte_column *column = columns[sources ? sources[at] : source];
        copy_bytes(data + offsets[at], column->data + column->offsets[rows[at]], offsets[at + 1] - offsets[at]);
        if (valid && is_valid(column, rows[at])) {
            valid[at >> 3] |= (unsigned char)(1 << (at & 7));
        }
    }
}
