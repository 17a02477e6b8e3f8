/* Strings and binary values: hashed, and gathered from several columns at once. */
#ifndef SJ_BYTES_H
#define SJ_BYTES_H

#include "scan/band.h"

/* A column in Arrow's form, checked: offsets ascend from 0 or more to within the data. */
typedef struct {
    int64_t rows;
    const int32_t *offsets;       /* rows + 1 */
    const unsigned char *data;
    const unsigned char *valid;   /* one bit for each row, from bit `valid_from` on; NULL: there is no null */
    int64_t valid_from;
} sj_byte_column;

/* XXH3 of each value, 64 bits, without a seed. */
void sj_hash_bytes(const sj_byte_column *column, int64_t *hashes);

/* Whether offsets ascend from 0 or more to `size_bytes` at most. */
int sj_offsets_fit(const int32_t *offsets, int64_t count, int64_t size_bytes);

/* Writes to `offsets` where each picked value will begin in the output of `sj_gather_bytes`, and the end of the last.
 * Counts the nulls. `sources` NULL: all values are of column `source`. Returns the size of the output in bytes; more
 * than INT32_MAX: the values are too long for one column; -1: rows or sources point outside the columns. */
int64_t sj_gathered_bytes(const sj_byte_column *const *columns, int64_t column_count, const int32_t *sources,
                          int64_t source, const int32_t *rows, int64_t count, int32_t *offsets, int64_t *nulls);

/* Copies the values to the offsets that `sj_gathered_bytes` wrote, and sets their bits in `valid`, which must be 0
 * before; `valid` NULL: there is no null. */
void sj_gather_bytes(const sj_byte_column *const *columns, const int32_t *sources, int64_t source, const int32_t *rows,
                     int64_t count, const int32_t *offsets, unsigned char *data, unsigned char *valid);

#endif
