/* Columns that are read from Arrow, and rows that are handed to it, by its C data interface
 * (https://arrow.apache.org/docs/format/CDataInterface.html). Only what is asked for is copied.
 *
 *   record batch ──► sj_column[]  ──► columns with room (a tail), keys widened to float64 or int64
 *   runs ──► sj_rows, columns side by side in one piece of memory ──► struct ArrowArray ──► record batch
 */
#ifndef SJ_ARROW_ROWS_H
#define SJ_ARROW_ROWS_H

#include <stdint.h>

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

enum sj_number { SJ_NO_NUMBER = 0, SJ_SIGNED = 1, SJ_UNSIGNED = 2, SJ_FLOATING = 3 };

/* One column of a record batch. */
typedef struct {
    const unsigned char *validity; /* bits, from bit `offset` on; NULL: no nulls */
    const unsigned char *items;    /* from the first row on, where items have a fixed width */
    int64_t offset;
    int64_t rows;
    int64_t null_count; /* -1: not counted yet */
    int item_bytes;     /* 1, 2, 4, 8 or 16; 0: of no fixed width, or not whole bytes */
    int number;         /* the kind of number that an item is, of enum sj_number */
} sj_column;

/* Sets width and kind of a column's items, by its schema; all else is set to zero. */
void sj_column_kind(const struct ArrowSchema *schema, sj_column *column);
/* Sets where the items and the validity bits are; the column is child `place` of the record batch. */
void sj_column_place(const struct ArrowArray *batch, int64_t place, sj_column *column);

int sj_has_null(const sj_column *column);
/* Items under nulls count too. A column that is not SJ_FLOATING has no NaN. */
int sj_has_nan(const sj_column *column);

/* Writes the items as float64 or int64 (uint64 wraps). Returns 0 where the column has no such numbers. */
int sj_widen_float(const sj_column *column, double *to);
int sj_widen_int(const sj_column *column, int64_t *to);

/* Smallest and largest of `count` > 0 values, a zero without its sign; no NaN among them. */
void sj_float_range(const double *values, int64_t count, double range[2]);
void sj_int_range(const int64_t *values, int64_t count, int64_t range[2]);

/* Columns side by side in one allocation, each aligned to 64 bytes. All arrays that are exported from it share it. */
typedef struct sj_rows sj_rows;

/* NULL: no memory. */
sj_rows *sj_rows_new(int64_t rows, const int *item_bytes, int64_t columns);
unsigned char *sj_rows_column(sj_rows *rows, int64_t column);
void sj_rows_let_go(sj_rows *rows);

/* Keeps the first `count` rows: in the same memory, unless most of it would lie idle. Nobody else may hold the rows.
 * NULL: no memory, and the rows are as they were. */
sj_rows *sj_rows_cut(sj_rows *rows, int64_t count, const int *item_bytes, int64_t columns);

/* to[i] = the largest of columns[c][i]. */
void sj_greatest(const int64_t *const *columns, int64_t count, int64_t rows, int64_t *to);

/* A struct array of these columns, in this order, without nulls; one may be named twice. -1: no memory. */
int sj_rows_export(sj_rows *rows, const int32_t *columns, int64_t count, struct ArrowArray *array);

#endif
