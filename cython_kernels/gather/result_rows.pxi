# Rows gathered from several runs and handed to Arrow; semantics: streamjoin_ds.engine.kernels.twins.arrow_rows.

cdef struct sj_part:
    const sj_run_columns *columns
    sj_selection selection


cdef class RowsForm:
    """The columns of rows; see streamjoin_ds.engine.kernels.twins.arrow_rows.RowsForm."""

    cdef int *_item_bytes
    cdef int32_t *_exported
    cdef int64_t *_firsts
    cdef int64_t _column_count
    cdef int64_t _exported_count
    cdef int64_t _part_count
    cdef bint _with_greatest

    def __init__(self, parts, exported, *, greatest=False):
        cdef int64_t column = 0
        parts = [list(widths) for widths in parts]
        exported = list(exported)
        if self._item_bytes != NULL:
            raise _error("this object has columns already", "parts")
        self._with_greatest = greatest
        self._part_count, self._exported_count = len(parts), len(exported)
        self._column_count = sum(map(len, parts)) + self._with_greatest
        self._item_bytes = <int *>calloc(self._column_count + 1, sizeof(int))
        self._exported = <int32_t *>calloc(self._exported_count + 1, sizeof(int32_t))
        self._firsts = <int64_t *>calloc(self._part_count + 1, sizeof(int64_t))
        if self._item_bytes == NULL or self._exported == NULL or self._firsts == NULL:
            raise MemoryError
        for part, widths in enumerate(parts):
            self._firsts[part] = column
            if greatest and (not widths or widths[0] != 8):
                raise _error("the greatest needs items of 8 bytes in each first column", "parts")
            for width in widths:
                if width not in (1, 2, 4, 8, 16):
                    raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "parts")
                self._item_bytes[column] = width
                column += 1
        self._firsts[self._part_count] = column
        if greatest:
            if not parts:
                raise _error("the greatest needs at least one part", "parts")
            self._item_bytes[column] = 8
        for place, number in enumerate(exported):
            if not 0 <= number < self._column_count:
                raise _error("exported is not the number of a column", "exported")
            self._exported[place] = number

    @property
    def columns(self):
        """Number of columns of all parts, the one of the greatest included."""
        return self._column_count

    def __dealloc__(self):
        free(self._item_bytes)
        free(self._exported)
        free(self._firsts)


cdef bint _put_int(value, int item_bytes, unsigned char *to) except -1:
    """Write an `int` if it fits; return whether it did. A bool is not taken."""
    cdef int overflow = 0
    cdef int64_t number
    cdef int32_t four
    cdef int16_t two
    cdef int8_t one
    if not PyLong_CheckExact(value):
        return False
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return False
    if item_bytes == 8:
        memcpy(to, &number, 8)
    elif item_bytes == 4 and INT32_MIN <= number <= INT32_MAX:
        four = <int32_t>number
        memcpy(to, &four, 4)
    elif item_bytes == 2 and INT16_MIN <= number <= INT16_MAX:
        two = <int16_t>number
        memcpy(to, &two, 2)
    elif item_bytes == 1 and INT8_MIN <= number <= INT8_MAX:
        one = <int8_t>number
        memcpy(to, &one, 1)
    else:
        return False
    return True


cdef bint _put_float(value, int item_bytes, unsigned char *to) except -1:
    """Write a `float`, rounded to the column's type, or an `int` that the type surely holds; return whether it did."""
    cdef double number
    cdef float four
    cdef int overflow = 0
    cdef int64_t whole, limit = (<int64_t>1 << 53) if item_bytes == 8 else (<int64_t>1 << 24)
    if PyFloat_CheckExact(value):
        number = PyFloat_AsDouble(value)
    elif PyLong_CheckExact(value):
        whole = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or not -limit <= whole <= limit:
            return False
        number = <double>whole
    else:
        return False
    if item_bytes == 8:
        memcpy(to, &number, 8)
    else:
        four = <float>number
        memcpy(to, &four, 4)
    return True


cdef class ArrowRows:
    """Rows that are gathered and then handed to Arrow; see streamjoin_ds.engine.kernels.twins.arrow_rows.ArrowRows."""

    cdef RowsForm _form
    cdef sj_rows *_rows
    cdef int64_t _count
    cdef int64_t *_filled  # how many rows of each column are filled
    cdef bint _is_exported
    cdef ArrowArray _array

    def __init__(self, RowsForm form, int64_t count):
        if self._rows != NULL:
            raise _error("this object has rows already", "form")
        if not 0 <= count <= _MAX_ROWS:
            raise _error("more rows than int32 can number", "count")
        self._form, self._count = form, count
        self._rows = sj_rows_new(count, form._item_bytes, form._column_count)
        self._filled = <int64_t *>calloc(form._column_count + 1, sizeof(int64_t))
        if self._rows == NULL or self._filled == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._array.release != NULL:
            self._array.release(&self._array)
        sj_rows_let_go(self._rows)
        free(self._filled)

    def gather(self, parts, int64_t begin=0):
        """Fill the rows from `begin` on with rows of each part's columns; see `RunColumns.gather`."""
        cdef Gathering task = self._gathering(parts, begin)
        task._do_rows(task._count)

    def gathering(self, parts, int64_t begin=0):
        """`gather` as a task for a pool."""
        return self._gathering(parts, begin)

    cdef Gathering _gathering(self, parts, int64_t begin):
        cdef int64_t part, column, first
        cdef RunColumns columns
        cdef sj_selection *selection
        cdef Gathering task = Gathering.__new__(Gathering)
        cdef RowsForm form = self._form
        if begin < 0 or len(parts) != form._part_count:
            raise _error("the number of parts is not that of the form", "parts")
        task._to, task._kept, task._form = self, parts, form
        task._parts = <sj_part *>calloc(form._part_count + 1, sizeof(sj_part))
        task._outs = <unsigned char **>calloc(form._column_count + form._part_count + 1, sizeof(void *))
        if task._parts == NULL or task._outs == NULL:
            raise MemoryError
        for column in range(form._column_count):
            task._outs[column] = sj_rows_column(self._rows, column) + begin * form._item_bytes[column]
        for part in range(form._part_count):
            columns, run_numbers, rows = parts[part]
            if columns is None:
                raise _error("a part has no columns", "columns")
            first, selection = form._firsts[part], &task._parts[part].selection
            self._check_columns(part, columns)
            columns._select(run_numbers, rows, selection)
            if part == 0:
                task._count = selection.count
            if selection.count != task._count or selection.count > self._count - begin:
                raise _error("the arrays and the rows differ in number", "rows")
            task._parts[part].columns = &columns._columns
            task._outs[form._column_count + part] = task._outs[first]
        return task

    def matching(self, RunsProbe probing, int part, RunColumns window, own_part):
        """Return a task in which a probing writes the rows, those of its window as one part; see the twin."""
        cdef Matching task = Matching.__new__(Matching)
        task._begin(self, probing, part, window, own_part)
        return task

    cdef int _check_columns(self, int64_t part, RunColumns columns) except -1:
        """Refuse columns that are not those of a part."""
        cdef int64_t column, first = self._form._firsts[part]
        if columns._columns.column_count != self._form._firsts[part + 1] - first:
            raise _error("the part has another number of columns", "columns")
        for column in range(columns._columns.column_count):
            if columns._columns.item_bytes[column] != self._form._item_bytes[first + column]:
                raise _error("the part has columns of other widths", "columns")
        return 0

    cdef bint _exports(self, int64_t column):
        """Whether Arrow is given a column."""
        cdef int64_t place
        for place in range(self._form._exported_count):
            if self._form._exported[place] == column:
                return True
        return False

    cdef int _cut(self, int64_t count) noexcept nogil:
        """Keep the first rows alone; return -1 where there is no memory."""
        cdef sj_rows *made = sj_rows_cut(self._rows, count, self._form._item_bytes, self._form._column_count)
        if made == NULL:
            return -1
        self._rows, self._count = made, count
        return 0

    def put(self, int64_t column, list values, *, bint floating):
        """Fill a column with Python's numbers; return False, and fill it with zeros, where a value does not fit."""
        cdef int item_bytes
        cdef int64_t row
        cdef unsigned char *to
        if not 0 <= column < self._form._firsts[self._form._part_count]:
            raise _error("there is no such column", "column")
        if len(values) != self._count:
            raise _error("the arrays and the rows differ in number", "values")
        item_bytes = self._form._item_bytes[column]
        if item_bytes > 8 or (floating and item_bytes < 4):
            raise _error("no number of this kind has this width", "floating")
        to = sj_rows_column(self._rows, column)
        self._filled[column] = self._count
        for row in range(self._count):
            if not (_put_float if floating else _put_int)(values[row], item_bytes, to + row * item_bytes):
                memset(to, 0, self._count * item_bytes)
                return False
        return True

    def exported(self):
        """Return the address of an ArrowArray of the exported columns, for one import while this object lives."""
        cdef int64_t column
        cdef RowsForm form = self._form
        if self._is_exported:
            raise _error("these rows were exported already", "exported")
        for column in range(form._column_count):
            if self._filled[column] != self._count:
                raise _error("a column of the rows was not filled", "exported")
        if sj_rows_export(self._rows, form._exported, form._exported_count, &self._array):
            raise MemoryError
        self._is_exported = True
        return <uintptr_t>&self._array


cdef class Gathering(Task):
    """The task that gathers some rows of all parts, and in each the greatest of the parts' first columns."""

    cdef ArrowRows _to
    cdef RowsForm _form
    cdef int64_t _count
    cdef sj_part *_parts
    cdef unsigned char **_outs  # addresses of all columns, then those of each part's first column again
    cdef int _status

    def __dealloc__(self):
        free(self._parts)
        free(self._outs)

    cdef void _work(self) noexcept nogil:
        cdef int64_t part, parts = self._form._part_count, columns = self._form._column_count
        for part in range(parts):
            self._status = sj_gather_columns(self._parts[part].columns, &self._parts[part].selection,
                                             self._outs + self._form._firsts[part])
            if self._status < 0:
                return
        if self._form._with_greatest:
            sj_greatest(<const int64_t **>self._outs + columns, parts, self._count,
                        <int64_t *>self._outs[columns - 1])

    cdef object _done(self):
        cdef int64_t column
        if self._status < 0:
            raise _error("rows or run_numbers point outside the runs", "rows")
        for column in range(self._form._column_count):
            self._to._filled[column] += self._count
        return None
