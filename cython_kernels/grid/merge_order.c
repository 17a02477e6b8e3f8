#include <stdlib.h>

#include "grid/grid.h"
#include "grid/order_keys.h"

/* Rows of the longest run in a piece: all rows that are merged at a time then stay in the second-level cache. */
#define PIECE_ROWS 4096

/* Runs are merged two neighbours at a time, in passes over all of them. Which run the next row comes from cannot be
 * predicted, so it is computed without a branch. Two runs are merged from both ends at once, so that one wait hides the
 * other. The runs are merged in pieces that are cut at the same values.
 *
 *   run 0  run 1  run 2  run 3   ──►   0+1   2+3   ──►   0+1+2+3         of equal rows, the earlier run's come first
 */
typedef struct {
    uint64_t key;
    int32_t run_number;
    int32_t row;
} entry;

typedef struct {
    uint64_t bucket;
    uint64_t key;
    int32_t run_number;
    int32_t row;
} wide_entry;

SJ_INLINE int entry_before(const entry *first, const entry *second) { return first->key < second->key; }

SJ_INLINE int wide_entry_before(const wide_entry *first, const wide_entry *second)
{
    return (first->bucket < second->bucket) | ((first->bucket == second->bucket) & (first->key < second->key));
}

/* Returns `second` if `is_second`, else `first`. Compilers make ?: a branch here, mispredicted every other time. */
SJ_INLINE const void *chosen(const void *first, const void *second, int is_second)
{
    const uintptr_t mask = -(uintptr_t)is_second;
    return (const void *)(((uintptr_t)first & ~mask) | ((uintptr_t)second & mask));
}

/* Merges from:middle and middle:to. First as many rows as the shorter part has are taken from the front, and as many
 * from the back: meanwhile neither part can end, so the only question is which row is next. Then the rest is merged. */
#define DEFINE_MERGE(TYPE)                                                                                            \
    static void TYPE##_merge_two(const TYPE *from, const TYPE *middle, const TYPE *to, TYPE *out)                     \
    {                                                                                                                 \
        const TYPE *left = from, *right = middle, *left_end = middle - 1, *right_end = to - 1;                        \
        const int64_t count = to - from, half = middle - from < to - middle ? middle - from : to - middle;            \
        TYPE *out_end = out + count - 1;                                                                              \
        for (int64_t at = 0; at < half; at++) {                                                                       \
            const int is_right = TYPE##_before(right, left);                                                          \
            *out++ = *(const TYPE *)chosen(left, right, is_right);                                                    \
            right += is_right;                                                                                        \
            left += !is_right;                                                                                        \
            const int is_left = TYPE##_before(right_end, left_end);                                                   \
            *out_end-- = *(const TYPE *)chosen(right_end, left_end, is_left);                                         \
            left_end -= is_left;                                                                                      \
            right_end -= !is_left;                                                                                    \
        }                                                                                                             \
        while (out <= out_end) {                                                                                      \
            const int is_right = left > left_end || (right <= right_end && TYPE##_before(right, left));               \
            *out++ = *(is_right ? right++ : left++);                                                                  \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    static TYPE *TYPE##_merge_all(TYPE *rows, TYPE *spare, int64_t *starts, int64_t run_count)                        \
    {                                                                                                                 \
        while (run_count > 1) {                                                                                       \
            int64_t merged = 0;                                                                                       \
            for (int64_t run = 0; run < run_count; run += 2, merged++) {                                              \
                const int64_t from = starts[run], middle = starts[run + 1];                                           \
                const int64_t to = run + 1 < run_count ? starts[run + 2] : middle;                                    \
                TYPE##_merge_two(rows + from, rows + middle, rows + to, spare + from);                                \
                starts[merged] = from;                                                                                \
                starts[merged + 1] = to;                                                                              \
            }                                                                                                         \
            run_count = merged;                                                                                       \
            TYPE *swap = rows;                                                                                        \
            rows = spare;                                                                                             \
            spare = swap;                                                                                             \
        }                                                                                                             \
        return rows;                                                                                                  \
    }

DEFINE_MERGE(entry)
DEFINE_MERGE(wide_entry)

/* The columns that the runs are sorted by, and how far each run is merged. */
typedef struct {
    const int64_t *const *buckets;
    const double *const *floats;
    const int64_t *const *ints;
    const int64_t *run_rows;
    int64_t run_count;
    int64_t *from; /* of each run: its first row that is not merged yet, and its end in the piece in work */
    int64_t *to;
    int64_t *starts; /* where each run begins in the piece; run_count + 1 */
    int64_t longest;
} merge;

SJ_INLINE uint64_t merge_bucket(const merge *all, int64_t run, int64_t row)
{
    return all->buckets ? int_key(all->buckets[run][row]) : 0;
}

SJ_INLINE uint64_t merge_key(const merge *all, int64_t run, int64_t row)
{
    return second_key(all->floats ? all->floats[run] : NULL, all->ints ? all->ints[run] : NULL, row);
}

/* Returns the first row after (bucket, key) in the part of a run that is not merged yet. */
static int64_t row_after(const merge *all, int64_t run, uint64_t bucket, uint64_t key)
{
    int64_t row = all->from[run], end = all->run_rows[run];
    while (row < end) {
        const int64_t middle = row + (end - row) / 2;
        const uint64_t found = merge_bucket(all, run, middle);
        if (found < bucket || (found == bucket && merge_key(all, run, middle) <= key)) {
            row = middle + 1;
        } else {
            end = middle;
        }
    }
    return row;
}

/* Sets where each run ends in the next piece: equal rows are all in one piece. Returns how many rows the piece has. */
static int64_t next_piece(merge *all)
{
    const int64_t last = all->from[all->longest] + PIECE_ROWS;
    const int is_rest = last >= all->run_rows[all->longest];
    const uint64_t bucket = is_rest ? 0 : merge_bucket(all, all->longest, last);
    const uint64_t key = is_rest ? 0 : merge_key(all, all->longest, last);
    int64_t count = 0;
    for (int64_t run = 0; run < all->run_count; run++) {
        all->to[run] = is_rest ? all->run_rows[run] : row_after(all, run, bucket, key);
        all->starts[run] = count;
        count += all->to[run] - all->from[run];
    }
    all->starts[all->run_count] = count;
    return count;
}

static void merge_narrow_piece(const merge *all, entry *memory, int64_t count, int32_t *run_numbers, int32_t *rows)
{
    entry *made = memory;
    for (int64_t run = 0; run < all->run_count; run++) {
        for (int64_t row = all->from[run]; row < all->to[run]; row++, made++) {
            made->key = merge_key(all, run, row);
            made->run_number = (int32_t)run;
            made->row = (int32_t)row;
        }
    }
    const entry *sorted = entry_merge_all(memory, memory + count, all->starts, all->run_count);
    for (int64_t at = 0; at < count; at++) {
        run_numbers[at] = sorted[at].run_number;
        rows[at] = sorted[at].row;
    }
}

static void merge_wide_piece(const merge *all, wide_entry *memory, int64_t count, int32_t *run_numbers, int32_t *rows)
{
    wide_entry *made = memory;
    for (int64_t run = 0; run < all->run_count; run++) {
        for (int64_t row = all->from[run]; row < all->to[run]; row++, made++) {
            made->bucket = merge_bucket(all, run, row);
            made->key = merge_key(all, run, row);
            made->run_number = (int32_t)run;
            made->row = (int32_t)row;
        }
    }
    const wide_entry *sorted = wide_entry_merge_all(memory, memory + count, all->starts, all->run_count);
    for (int64_t at = 0; at < count; at++) {
        run_numbers[at] = sorted[at].run_number;
        rows[at] = sorted[at].row;
    }
}

int sj_merge_order(const int64_t *const *buckets, const double *const *float_seconds,
                   const int64_t *const *int_seconds, const int64_t *run_rows, int64_t run_count, int32_t *run_numbers,
                   int32_t *rows)
{
    int64_t *numbers = calloc(3 * (size_t)run_count + 1, sizeof *numbers);
    if (!numbers) {
        return -1;
    }
    merge all = {buckets, float_seconds, int_seconds, run_rows, run_count,
                 numbers, numbers + run_count, numbers + 2 * run_count, 0};
    int64_t left = 0, room = 0;
    for (int64_t run = 0; run < run_count; run++) {
        left += run_rows[run];
        all.longest = run_rows[run] > run_rows[all.longest] ? run : all.longest;
    }
    void *memory = NULL;
    int status = 0;
    while (left > 0) {
        const int64_t count = next_piece(&all);
        if (count > room) {
            free(memory);
            room = count + count / 2;
            memory = malloc(2 * (size_t)room * (buckets ? sizeof(wide_entry) : sizeof(entry)));
            if (!memory) {
                status = -1;
                break;
            }
        }
        if (buckets) {
            merge_wide_piece(&all, memory, count, run_numbers, rows);
        } else {
            merge_narrow_piece(&all, memory, count, run_numbers, rows);
        }
        run_numbers += count;
        rows += count;
        left -= count;
        for (int64_t run = 0; run < run_count; run++) {
            all.from[run] = all.to[run];
        }
    }
    free(memory);
    free(numbers);
    return status;
}
