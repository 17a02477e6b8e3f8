#include <stdlib.h>
#include <string.h>

#include "grid/grid.h"
#include "grid/order_keys.h"

/* Stable order by (bucket, second). If both fit into one short number, rows are sorted by that number. Else they are
 * sorted into buckets first, and then each bucket by itself, in cache.
 *
 * Bucket and second become unsigned integers of the same order. Their smallest value is subtracted, and last bits that
 * are the same everywhere are cut off (a widened float32 has 29 of them). So only the digits that differ are sorted. A
 * radix pass costs 2-3 ns a row where its target is out of cache, and below 1 ns inside; a bucket of a few thousand
 * rows is inside. */
typedef struct {
    uint64_t key;
    uint32_t row;
    uint32_t unused;
} entry;

typedef struct {
    uint64_t bucket;
    uint64_t key;
    uint32_t row;
    uint32_t unused;
} wide_entry;

/* A row, and the highest bits of the number that it is sorted by. */
typedef struct {
    uint32_t head;
    uint32_t row;
} head_entry;

#define INSERTION_ROWS 32 /* up to so many rows are sorted by insertion */
#define SMALL_ROWS 2048   /* up to so many rows have digits of 8 bits, more rows of WIDE_DIGIT bits */
#define WIDE_DIGIT 11
#define HEAD_BITS 32  /* bits of a number that rows are sorted by first, at most */
#define SPREAD_BITS 8 /* how many more bits than the rows have numbers, so that few rows have the same */
#define MOST_PASSES 4 /* HEAD_BITS in digits of 8 bits; of WIDE_DIGIT bits there are three */
#define BLOCK_ROWS 256 /* rows that are compared before the first question whether they are in order */
/* Bits of a bucket and a key that are sorted as one number, at most: three passes. */
#define SHORT_BITS (3 * WIDE_DIGIT)

SJ_INLINE int bit_length(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }

/* The bits in which numbers differ: (number - smallest) >> low has `bits` of them. */
typedef struct {
    uint64_t smallest;
    uint64_t largest;
    uint64_t first;
    uint64_t differing; /* the bits in which a number differs from the first one */
    int low;
    int bits;
} differences;

SJ_INLINE void differ_begin(differences *all, uint64_t first)
{
    all->smallest = all->largest = all->first = first;
    all->differing = 0;
}

SJ_INLINE void differ_add(differences *all, uint64_t number)
{
    all->smallest = number < all->smallest ? number : all->smallest;
    all->largest = number > all->largest ? number : all->largest;
    all->differing |= number ^ all->first;
}

SJ_INLINE void differ_end(differences *all)
{
    all->low = all->differing ? __builtin_ctzll(all->differing) : 0;
    all->bits = bit_length((all->largest - all->smallest) >> all->low);
}

static void insertion_sort(entry *rows, int64_t count)
{
    for (int64_t at = 1; at < count; at++) {
        const entry moved = rows[at];
        int64_t to = at;
        for (; to > 0 && rows[to - 1].key > moved.key; to--) {
            rows[to] = rows[to - 1];
        }
        rows[to] = moved;
    }
}

/* Turns the counts of the values 0 to `last` into where each value's rows begin. */
static void begin_at(uint32_t *starts, uint64_t last)
{
    uint32_t sum = 0;
    for (uint64_t value = 0; value <= last; value++) {
        const uint32_t here = starts[value];
        starts[value] = sum;
        sum += here;
    }
}

/* Sorts rows by the bits low:end of key - smallest, with LSD radix. The result is in rows; `spare` has as much room. */
static void radix_sort(entry *rows, entry *spare, int64_t count, uint64_t smallest, int low, int end)
{
    const int digit = count <= SMALL_ROWS ? 8 : WIDE_DIGIT;
    const uint64_t digit_mask = ((uint64_t)1 << digit) - 1;
    uint32_t starts[1 << WIDE_DIGIT];
    entry *from = rows, *to = spare;
    for (int shift = low; shift < end; shift += digit) {
        memset(starts, 0, ((size_t)1 << digit) * sizeof starts[0]);
        for (int64_t at = 0; at < count; at++) {
            starts[((from[at].key - smallest) >> shift) & digit_mask]++;
        }
        if (starts[((from[0].key - smallest) >> shift) & digit_mask] == (uint64_t)count) {
            continue; /* the digit is the same everywhere */
        }
        begin_at(starts, digit_mask);
        for (int64_t at = 0; at < count; at++) {
            to[starts[((from[at].key - smallest) >> shift) & digit_mask]++] = from[at];
        }
        entry *swap = from;
        from = to;
        to = swap;
    }
    if (from != rows) {
        memcpy(rows, from, (size_t)count * sizeof *rows);
    }
}

/* Sorts the rows of one bucket. */
static void sort_bucket(entry *rows, entry *spare, int64_t count)
{
    if (count <= INSERTION_ROWS) {
        insertion_sort(rows, count);
        return;
    }
    differences keys;
    differ_begin(&keys, rows[0].key);
    for (int64_t at = 1; at < count; at++) {
        differ_add(&keys, rows[at].key);
    }
    differ_end(&keys);
    radix_sort(rows, spare, count, keys.smallest, keys.low, keys.low + keys.bits);
}

/* Sorts rows by the lowest `bits` bits of their buckets, with LSD radix; returns where the result is: rows or spare. */
static wide_entry *sort_by_bucket(wide_entry *rows, wide_entry *spare, int64_t count, int bits)
{
    uint32_t starts[1 << WIDE_DIGIT];
    const uint64_t digit_mask = ((uint64_t)1 << WIDE_DIGIT) - 1;
    for (int shift = 0; shift < bits; shift += WIDE_DIGIT) {
        memset(starts, 0, sizeof starts);
        for (int64_t at = 0; at < count; at++) {
            starts[(rows[at].bucket >> shift) & digit_mask]++;
        }
        begin_at(starts, digit_mask);
        for (int64_t at = 0; at < count; at++) {
            spare[starts[(rows[at].bucket >> shift) & digit_mask]++] = rows[at];
        }
        wide_entry *swap = rows;
        rows = spare;
        spare = swap;
    }
    return rows;
}

/* What rows are sorted by: the second key in the low bits, and the bucket, where there are buckets, in the high bits. */
typedef struct {
    const int64_t *buckets;
    const double *float_second;
    const int64_t *int_second;
    differences numbers; /* of the buckets */
    differences keys;
} one_number;

SJ_INLINE uint64_t number_of(const one_number *of, int64_t row)
{
    const uint64_t key = (second_key(of->float_second, of->int_second, row) - of->keys.smallest) >> of->keys.low;
    const uint64_t bucket = of->buckets ? int_key(of->buckets[row]) - of->numbers.smallest : 0;
    return of->keys.bits < 64 ? bucket << of->keys.bits | key : key;
}

/* Sorts rows whose heads are equal, from `rows` on, by the whole number. `spare` has room for `room` entries. */
static int order_equal_heads(const one_number *of, head_entry *rows, int64_t count, entry *spare, int64_t room)
{
    entry few[2 * INSERTION_ROWS];
    entry *whole = count <= INSERTION_ROWS ? few : 2 * count <= room ? spare : malloc(2 * (size_t)count * sizeof *whole);
    if (!whole) {
        return -1;
    }
    for (int64_t at = 0; at < count; at++) {
        whole[at].key = number_of(of, rows[at].row);
        whole[at].row = rows[at].row;
    }
    sort_bucket(whole, whole + count, count);
    for (int64_t at = 0; at < count; at++) {
        rows[at].row = whole[at].row;
    }
    if (whole != few && whole != spare) {
        free(whole);
    }
    return 0;
}

/* Sorts by one number: by its highest bits first, with LSD radix. These are so many that few rows have them alike; what
 * has is sorted by the whole number. A number of 57 bits, as floats have, takes six passes over 16 bytes a row otherwise,
 * and three over 8 this way. */
static int order_by_one(const one_number *of, int64_t count, int32_t *order)
{
    const int digit = count <= SMALL_ROWS ? 8 : WIDE_DIGIT;
    const int bucket_bits = of->buckets ? bit_length(of->numbers.largest - of->numbers.smallest) : 0;
    const int bits = of->keys.bits + bucket_bits, spread = bit_length((uint64_t)count) + SPREAD_BITS;
    const int wanted = spread < HEAD_BITS ? spread : HEAD_BITS, passes = (wanted + digit - 1) / digit;
    int head_bits = passes * digit < HEAD_BITS ? passes * digit : HEAD_BITS;
    head_bits = bits < head_bits ? bits : head_bits;
    const int shift = bits - head_bits;
    head_entry *memory = malloc(2 * (size_t)count * sizeof *memory);
    if (!memory) {
        return -1;
    }
    const uint32_t digit_mask = ((uint32_t)1 << digit) - 1;
    uint32_t starts[MOST_PASSES][1 << WIDE_DIGIT];
    for (int pass = 0; pass < passes; pass++) {
        memset(starts[pass], 0, ((size_t)1 << digit) * sizeof starts[pass][0]);
    }
    head_entry *from = memory, *to = memory + count;
    for (int64_t row = 0; row < count; row++) {
        const uint32_t head = (uint32_t)(number_of(of, row) >> shift);
        from[row].head = head;
        from[row].row = (uint32_t)row;
        for (int pass = 0; pass < passes; pass++) {
            starts[pass][(head >> pass * digit) & digit_mask]++;
        }
    }
    for (int pass = 0; pass < passes; pass++) {
        const int low = pass * digit;
        if (starts[pass][(from[0].head >> low) & digit_mask] == (uint64_t)count) {
            continue; /* the digit is the same everywhere */
        }
        begin_at(starts[pass], digit_mask);
        for (int64_t at = 0; at < count; at++) {
            to[starts[pass][(from[at].head >> low) & digit_mask]++] = from[at];
        }
        head_entry *swap = from;
        from = to;
        to = swap;
    }
    int status = 0;
    for (int64_t begin = 0, end; shift && begin < count && !status; begin = end) {
        for (end = begin + 1; end < count && from[end].head == from[begin].head; end++) {
        }
        if (end - begin > 1) {
            status = order_equal_heads(of, from + begin, end - begin, (entry *)to, count / 2);
        }
    }
    for (int64_t row = 0; row < count; row++) {
        order[row] = (int32_t)from[row].row;
    }
    free(memory);
    return status;
}

/* Whether the rows are in order already. A batch's probes often are: the batch has become a run in the same order. A
 * look costs less than a sort. */
static int is_in_order(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count)
{
    for (int64_t from = 1; from < count; from += BLOCK_ROWS) {
        const int64_t to = count - from < BLOCK_ROWS ? count : from + BLOCK_ROWS;
        int ascending = 1;
        for (int64_t row = from; row < to; row++) {
            const uint64_t before = second_key(float_second, int_second, row - 1);
            const int is_kept = before <= second_key(float_second, int_second, row);
            ascending &= !buckets ? is_kept
                                  : (buckets[row - 1] < buckets[row]) | ((buckets[row - 1] == buckets[row]) & is_kept);
        }
        if (!ascending) {
            return 0;
        }
    }
    return 1;
}

int sj_grid_order(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count,
                  int32_t *order)
{
    if (is_in_order(buckets, float_second, int_second, count)) {
        for (int64_t row = 0; row < count; row++) {
            order[row] = (int32_t)row;
        }
        return 0;
    }
    one_number of = {.buckets = buckets, .float_second = float_second, .int_second = int_second};
    differ_begin(&of.numbers, int_key(buckets ? buckets[0] : 0));
    differ_begin(&of.keys, second_key(float_second, int_second, 0));
    for (int64_t row = 0; row < count; row++) {
        if (buckets) {
            differ_add(&of.numbers, int_key(buckets[row]));
        }
        differ_add(&of.keys, second_key(float_second, int_second, row));
    }
    differ_end(&of.keys);
    const uint64_t smallest = of.numbers.smallest, largest = of.numbers.largest;
    if (smallest == largest) {
        of.buckets = NULL;
        return order_by_one(&of, count, order);
    }
    if (of.keys.bits < SHORT_BITS && bit_length(largest - smallest) + of.keys.bits <= SHORT_BITS) {
        return order_by_one(&of, count, order);
    }
    wide_entry *memory = malloc(2 * (size_t)count * sizeof *memory);
    if (!memory) {
        return -1;
    }
    for (int64_t row = 0; row < count; row++) {
        memory[row].bucket = int_key(buckets[row]) - smallest;
        memory[row].key = second_key(float_second, int_second, row);
        memory[row].row = (uint32_t)row;
    }
    wide_entry *sorted = sort_by_bucket(memory, memory + count, count, bit_length(largest - smallest));
    entry *scratch = (entry *)(sorted == memory ? memory + count : memory); /* room for 1.5 * count */
    int64_t from = 0;
    int status = 0;
    while (from < count) {
        int64_t to = from + 1;
        while (to < count && sorted[to].bucket == sorted[from].bucket) {
            to++;
        }
        const int64_t rows = to - from;
        entry *spare = scratch + rows, *own = NULL;
        if (2 * rows > count + count / 2) {
            own = malloc((size_t)rows * sizeof *own);
            if (!own) {
                status = -1;
                break;
            }
            spare = own;
        }
        for (int64_t at = 0; at < rows; at++) {
            scratch[at].key = sorted[from + at].key;
            scratch[at].row = sorted[from + at].row;
        }
        sort_bucket(scratch, spare, rows);
        for (int64_t at = 0; at < rows; at++) {
            order[from + at] = (int32_t)scratch[at].row;
        }
        free(own);
        from = to;
    }
    free(memory);
    return status;
}
