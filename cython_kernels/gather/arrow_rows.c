#include "gather/arrow_rows.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

/* ---- columns read from Arrow */

/* Bytes of an item and its kind of number, by the format string of the C data interface. */
void sj_column_kind(const struct ArrowSchema *schema, sj_column *column)
{
    memset(column, 0, sizeof *column);
    static const char formats[] = "cCsSiIlLefg";
    static const char bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
    const char *format = schema->format;
    if (schema->dictionary) {
        return;
    }
    const char *found = format[0] && !format[1] ? strchr(formats, format[0]) : NULL;
    if (found) {
        const int at = (int)(found - formats);
        column->item_bytes = bytes[at];
        column->number = at >= 8 ? SJ_FLOATING : at % 2 ? SJ_UNSIGNED : SJ_SIGNED;
    } else if (format[0] == 't') {
        /* dates in days, and times of day in seconds or milliseconds, have 4 bytes; other times and durations have 8 */
        const int is_short = !strcmp(format, "tdD") || !strcmp(format, "tts") || !strcmp(format, "ttm");
        const int is_interval = format[1] == 'i';
        column->item_bytes = is_interval ? 0 : is_short ? 4 : 8;
        column->number = is_interval ? SJ_NO_NUMBER : SJ_SIGNED;
    } else if (format[0] == 'd' && format[1] == ':') {
        const char *comma = strchr(format, ',');
        const char *width = comma ? strchr(comma + 1, ',') : NULL;
        column->item_bytes = width && strcmp(width, ",128") ? 0 : 16;
    }
}

void sj_column_place(const struct ArrowArray *batch, int64_t place, sj_column *column)
{
    const struct ArrowArray *array = batch->children[place];
    column->rows = batch->length;
    column->offset = batch->offset + array->offset;
    column->null_count = array->null_count;
    if (array->n_buffers > 0) {
        column->validity = array->buffers[0];
    }
    if (column->item_bytes && array->n_buffers > 1 && array->buffers[1]) {
        column->items = (const unsigned char *)array->buffers[1] + column->offset * column->item_bytes;
    }
}

int sj_has_null(const sj_column *column)
{
    if (column->null_count >= 0 || !column->validity) {
        return column->null_count > 0;
    }
    for (int64_t row = column->offset; row < column->offset + column->rows; row++) {
        if (!(column->validity[row >> 3] >> (row & 7) & 1)) {
            return 1;
        }
    }
    return 0;
}

/* Does `what` for each `value` of the column, at `row`, then breaks. It copies, as foreign memory may be unaligned. */
#define EACH_ITEM(type, what)                              \
    for (int64_t row = 0; row < column->rows; row++) {     \
        type value;                                        \
        memcpy(&value, column->items + row * (int64_t)sizeof value, sizeof value); \
        what;                                              \
    }                                                      \
    break

int sj_has_nan(const sj_column *column)
{
    int found = 0;
    switch (column->number == SJ_FLOATING ? column->item_bytes : 0) {
    case 2: EACH_ITEM(uint16_t, found |= (value & 0x7fff) > 0x7c00);
    case 4: EACH_ITEM(float, found |= value != value);
    case 8: EACH_ITEM(double, found |= value != value);
    }
    return found;
}

#define WIDEN(target)                                                      \
    switch (column->number * 16 + column->item_bytes) {                    \
    case SJ_SIGNED * 16 + 1: EACH_ITEM(int8_t, to[row] = (target)value);   \
    case SJ_SIGNED * 16 + 2: EACH_ITEM(int16_t, to[row] = (target)value);  \
    case SJ_SIGNED * 16 + 4: EACH_ITEM(int32_t, to[row] = (target)value);  \
    case SJ_SIGNED * 16 + 8: EACH_ITEM(int64_t, to[row] = (target)value);  \
    case SJ_UNSIGNED * 16 + 1: EACH_ITEM(uint8_t, to[row] = (target)value);  \
    case SJ_UNSIGNED * 16 + 2: EACH_ITEM(uint16_t, to[row] = (target)value); \
    case SJ_UNSIGNED * 16 + 4: EACH_ITEM(uint32_t, to[row] = (target)value); \
    case SJ_UNSIGNED * 16 + 8: EACH_ITEM(uint64_t, to[row] = (target)value)

int sj_widen_float(const sj_column *column, double *to)
{
    WIDEN(double);
    case SJ_FLOATING * 16 + 4: EACH_ITEM(float, to[row] = value);
    case SJ_FLOATING * 16 + 8: EACH_ITEM(double, to[row] = value);
    default: return 0;
    }
    return 1;
}

int sj_widen_int(const sj_column *column, int64_t *to)
{
    WIDEN(int64_t);
    default: return 0;
    }
    return 1;
}

void sj_float_range(const double *values, int64_t count, double range[2])
{
    range[0] = range[1] = values[0];
    for (int64_t row = 1; row < count; row++) {
        range[0] = values[row] < range[0] ? values[row] : range[0];
        range[1] = values[row] > range[1] ? values[row] : range[1];
    }
    range[0] += 0.0;
    range[1] += 0.0;
}

void sj_int_range(const int64_t *values, int64_t count, int64_t range[2])
{
    range[0] = range[1] = values[0];
    for (int64_t row = 1; row < count; row++) {
        range[0] = values[row] < range[0] ? values[row] : range[0];
        range[1] = values[row] > range[1] ? values[row] : range[1];
    }
}

/* ---- rows handed to Arrow */

struct sj_rows {
    atomic_int owners;
    size_t size; /* bytes of the whole allocation */
    int64_t rows;
    unsigned char *items; /* of the first column */
    int64_t starts[];     /* of each column, in bytes from `items` on */
};

/* Large allocations that were let go lie on a shelf for the next ones: a chunk of results then takes the place of one
 * before it. Fresh memory would cost a page fault every 4 KB, which takes longer than filling it. Several threads hold
 * several chunks at a time, and let them go together; so there are several places, filled in turn. */
#define SHELVED_BYTES ((size_t)64 << 10) /* smaller ones are not kept */
#define SHELF_BYTES ((size_t)128 << 20)  /* that lie there at most, unless it is a single one */
#define SHELF_PLACES 32
static _Atomic(sj_rows *) shelf[SHELF_PLACES];
static atomic_size_t shelf_bytes;
static atomic_uint next_place;

/* Sizes are rounded up by an eighth at most, so that chunks of nearly the same size fit each other's places. Memory
 * that is never touched costs nothing. */
static size_t rounded_up(size_t size)
{
    size_t step = SHELVED_BYTES / 8;
    while (step * 16 < size) {
        step *= 2;
    }
    return (size + step - 1) / step * step;
}

static sj_rows *taken_from(unsigned place)
{
    sj_rows *found = atomic_exchange(&shelf[place % SHELF_PLACES], NULL);
    if (found) {
        atomic_fetch_sub(&shelf_bytes, found->size);
    }
    return found;
}

static void put_on(unsigned place, sj_rows *rows)
{
    atomic_fetch_add(&shelf_bytes, rows->size);
    sj_rows *before = atomic_exchange(&shelf[place % SHELF_PLACES], rows);
    if (before) {
        atomic_fetch_sub(&shelf_bytes, before->size);
        free(before);
    }
}

/* Keeps an allocation, and frees those that have lain there longest if there are too many. */
static void shelve(sj_rows *rows)
{
    if (rows->size < SHELVED_BYTES) {
        free(rows);
        return;
    }
    const unsigned place = atomic_fetch_add(&next_place, 1);
    put_on(place, rows);
    for (unsigned older = 1; older < SHELF_PLACES && atomic_load(&shelf_bytes) > SHELF_BYTES; older++) {
        free(taken_from(place + older));
    }
}

static sj_rows *memory_of(size_t size)
{
    if (size >= SHELVED_BYTES) {
        size = rounded_up(size);
        const unsigned newest = atomic_load(&next_place) + SHELF_PLACES - 1;
        for (unsigned age = 0; age < SHELF_PLACES; age++) {
            sj_rows *found = taken_from(newest - age);
            if (found && found->size >= size && found->size / 2 <= size) {
                return found;
            }
            if (found) {
                put_on(newest - age, found);
            }
        }
    }
    sj_rows *made = malloc(size);
    if (made) {
        made->size = size;
    }
    return made;
}

sj_rows *sj_rows_new(int64_t rows, const int *item_bytes, int64_t columns)
{
    const size_t head = sizeof(sj_rows) + (size_t)columns * sizeof(int64_t);
    size_t size = head + ALIGNMENT;
    for (int64_t column = 0; column < columns; column++) {
        size += (size_t)(rows * item_bytes[column]) + ALIGNMENT;
    }
    sj_rows *made = memory_of(size);
    if (!made) {
        return NULL;
    }
    atomic_init(&made->owners, 1);
    made->rows = rows;
    unsigned char *begin = (unsigned char *)made + head;
    made->items = begin + (ALIGNMENT - (uintptr_t)begin % ALIGNMENT) % ALIGNMENT;
    int64_t start = 0;
    for (int64_t column = 0; column < columns; column++) {
        made->starts[column] = start;
        start += (rows * item_bytes[column] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return made;
}

unsigned char *sj_rows_column(sj_rows *rows, int64_t column)
{
    return rows->items + rows->starts[column];
}

void sj_rows_let_go(sj_rows *rows)
{
    if (rows && atomic_fetch_sub(&rows->owners, 1) == 1) {
        shelve(rows);
    }
}

sj_rows *sj_rows_cut(sj_rows *rows, int64_t count, const int *item_bytes, int64_t columns)
{
    if (count >= rows->rows / 2) {
        rows->rows = count;
        return rows;
    }
    sj_rows *made = sj_rows_new(count, item_bytes, columns);
    if (made) {
        for (int64_t column = 0; column < columns; column++) {
            memcpy(sj_rows_column(made, column), sj_rows_column(rows, column), (size_t)(count * item_bytes[column]));
        }
        sj_rows_let_go(rows);
    }
    return made;
}

void sj_greatest(const int64_t *const *columns, int64_t count, int64_t rows, int64_t *to)
{
    memcpy(to, columns[0], (size_t)rows * sizeof *to);
    for (int64_t column = 1; column < count; column++) {
        const int64_t *values = columns[column];
        for (int64_t row = 0; row < rows; row++) {
            to[row] = values[row] > to[row] ? values[row] : to[row];
        }
    }
}

/* An exported array and its columns' arrays, in one allocation; a consumer may keep any of them and drop the rest. */
typedef struct {
    atomic_int owners;
    sj_rows *rows;
    const void *no_validity;
    struct ArrowArray **children;
    struct exported_column {
        struct ArrowArray array;
        const void *buffers[2];
    } columns[];
} exported;

static void release(struct ArrowArray *array)
{
    exported *all = array->private_data;
    for (int64_t child = 0; child < array->n_children; child++) {
        if (array->children[child]->release) {
            array->children[child]->release(array->children[child]);
        }
    }
    array->release = NULL;
    if (atomic_fetch_sub(&all->owners, 1) == 1) {
        sj_rows_let_go(all->rows);
        free(all);
    }
}

int sj_rows_export(sj_rows *rows, const int32_t *columns, int64_t count, struct ArrowArray *array)
{
    const size_t each = sizeof(struct exported_column) + sizeof(struct ArrowArray *);
    exported *all = calloc(1, sizeof(exported) + (size_t)count * each);
    if (!all) {
        return -1;
    }
    atomic_init(&all->owners, 1 + (int)count);
    atomic_fetch_add(&rows->owners, 1);
    all->rows = rows;
    all->children = (struct ArrowArray **)(all->columns + count);
    for (int64_t place = 0; place < count; place++) {
        struct exported_column *column = &all->columns[place];
        column->buffers[1] = sj_rows_column(rows, columns[place]);
        column->array = (struct ArrowArray){.length = rows->rows, .n_buffers = 2, .buffers = column->buffers,
                                            .release = release, .private_data = all};
        all->children[place] = &column->array;
    }
    *array = (struct ArrowArray){.length = rows->rows, .n_buffers = 1, .n_children = count,
                                 .buffers = &all->no_validity, .children = all->children,
                                 .release = release, .private_data = all};
    return 0;
}
