/* What fills Parquet's pages: whole numbers as packed differences, and columns in runs.
 *
 * Semantics: streamjoin_ds.sink.page_values, the readable twin. Numbers are stored with their lowest byte first, as in
 * Arrow and Parquet.
 */
#ifndef SJ_PAGES_H
#define SJ_PAGES_H

#include <stdint.h>

/* Room that the packed differences may take behind the bytes of their values: one block more than fits. */
enum { SJ_PAGES_SLACK = 2048 };

/* Writes the DELTA_BINARY_PACKED form of `count` values of 4 or 8 bytes and returns its length; or returns 0 where that
 * is not shorter than the values. `out` has room for the values and SJ_PAGES_SLACK. `is_wide`: the processor has AVX2,
 * BMI and BMI2; then it takes half the time. */
int64_t sj_pack_differences(const void *values, int64_t count, int item_bytes, int is_wide, uint8_t *out);

/* Writes the first value of each run of equal bytes into `firsts` and where it stands into `starts`, and returns how
 * many runs there are; or returns 0 where there are more than `most`. Both have room for `most` + 1. */
int64_t sj_find_runs(const void *values, int64_t count, int item_bytes, int64_t most, void *firsts, int32_t *starts);

/* Writes run number i as `starts[i + 1] - starts[i]` times i, numbers of `id_bytes`, and returns the length. `starts`
 * ends with the count of the rows. `out` has room for 10 bytes a run. */
int64_t sj_number_runs(const int32_t *starts, int64_t runs, int id_bytes, uint8_t *out);

#endif
