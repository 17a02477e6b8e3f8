# Columns that come from Arrow and go to it; semantics: streamjoin_ds.engine.reference.arrow_rows.

cdef extern from "Python.h":
    void *PyCapsule_GetPointer(object capsule, const char *name) except NULL
    int PyLong_CheckExact(object value)
    int PyFloat_CheckExact(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    double PyFloat_AsDouble(object value) except? -1.0


cdef extern from "arrow_rows.h" nogil:
    enum: SJ_FLOATING

    struct ArrowSchema:
        int64_t n_children
        ArrowSchema **children

    struct ArrowArray:
        int64_t length
        int64_t n_children
        void (*release)(ArrowArray *) noexcept

    ctypedef struct sj_column:
        const unsigned char *items
        int64_t rows
        int item_bytes
        int number

    ctypedef struct sj_rows:
        pass

    void sj_column_kind(const ArrowSchema *schema, sj_column *column)
    void sj_column_place(const ArrowArray *batch, int64_t place, sj_column *column)
    int sj_has_null(const sj_column *column)
    int sj_has_nan(const sj_column *column)
    int sj_widen_float(const sj_column *column, double *to)
    int sj_widen_int(const sj_column *column, int64_t *to)
    void sj_float_range(const double *values, int64_t count, double *range)
    void sj_int_range(const int64_t *values, int64_t count, int64_t *range)
    sj_rows *sj_rows_new(int64_t rows, const int *item_bytes, int64_t columns)
    unsigned char *sj_rows_column(sj_rows *rows, int64_t column)
    void sj_rows_let_go(sj_rows *rows)
    void sj_greatest(const int64_t *const *columns, int64_t count, int64_t rows, int64_t *to)
    int sj_rows_export(sj_rows *rows, const int32_t *columns, int64_t count, ArrowArray *array)


cdef class BatchForm:
    """The schema of record batches; see streamjoin_ds.engine.reference.arrow_rows.BatchForm."""

    cdef readonly object schema
    cdef sj_column *_columns
    cdef int64_t _count

    def __init__(self, schema):
        cdef const ArrowSchema *fields
        cdef int64_t place
        if self._columns != NULL:
            raise _error("this object has a schema already", "schema")
        self.schema = schema
        capsule = schema.__arrow_c_schema__()
        fields = <const ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
        self._count = fields.n_children
        self._columns = <sj_column *>calloc(self._count + 1, sizeof(sj_column))
        if self._columns == NULL:
            raise MemoryError
        for place in range(self._count):
            sj_column_kind(fields.children[place], &self._columns[place])

    def __dealloc__(self):
        free(self._columns)


cdef class BatchColumns:
    """The columns of a record batch; see streamjoin_ds.engine.reference.arrow_rows.BatchColumns."""

    cdef readonly object batch
    cdef readonly int64_t rows
    cdef sj_column *_columns
    cdef int64_t _count
    cdef ArrowArray _array

    def __init__(self, BatchForm form, batch):
        cdef int64_t place
        if self._columns != NULL:
            raise _error("this object has columns already", "batch")
        if not batch.schema.equals(form.schema):
            raise _error("the batch has another schema", "batch")
        self._columns = <sj_column *>calloc(form._count + 1, sizeof(sj_column))
        if self._columns == NULL:
            raise MemoryError
        batch._export_to_c(<uintptr_t>&self._array)
        self.batch, self.rows, self._count = batch, self._array.length, form._count
        for place in range(self._count):
            self._columns[place] = form._columns[place]
            sj_column_place(&self._array, place, &self._columns[place])

    def __dealloc__(self):
        if self._array.release != NULL:
            self._array.release(&self._array)
        free(self._columns)

    cdef sj_column *_at(self, int64_t place) except NULL:
        if not 0 <= place < self._count:
            raise _error("the batch has no such column", "places")
        return &self._columns[place]

    def has_null(self, tuple places):
        """Whether any of these columns holds a null."""
        for place in places:
            if sj_has_null(self._at(place)):
                return True
        return False

    def has_nan(self, tuple places):
        """Whether any of these columns holds a NaN."""
        for place in places:
            if sj_has_nan(self._at(place)):
                return True
        return False


cdef class RoomColumns:
    """Columns with room behind their rows; see streamjoin_ds.engine.reference.arrow_rows.RoomColumns."""

    cdef list _kept
    cdef int64_t _room
    cdef int64_t _value_count
    cdef int64_t _key_count
    cdef unsigned char **_values  # NULL: not one of them
    cdef int *_item_bytes
    cdef double **_float_keys     # one of the two is NULL
    cdef int64_t **_int_keys
    cdef int64_t *_sources        # -1: filled already

    def __init__(self, values, keys, sources):
        cdef int64_t place
        values, keys, sources = list(values), list(keys), list(sources)
        if self._kept is not None:
            raise _error("this object has columns already", "values")
        if len(keys) != len(sources):
            raise _error("keys and sources differ in length", "sources")
        self._kept = [values, keys]
        self._value_count, self._key_count = len(values), len(keys)
        self._values = <unsigned char **>calloc(self._value_count + 1, sizeof(void *))
        self._item_bytes = <int *>calloc(self._value_count + 1, sizeof(int))
        self._float_keys = <double **>calloc(self._key_count + 1, sizeof(void *))
        self._int_keys = <int64_t **>calloc(self._key_count + 1, sizeof(void *))
        self._sources = <int64_t *>calloc(self._key_count + 1, sizeof(int64_t))
        if (self._values == NULL or self._item_bytes == NULL or self._float_keys == NULL or self._int_keys == NULL
                or self._sources == NULL):
            raise MemoryError
        self._room = -1
        for place, array in enumerate(values):
            if array is not None:
                self._check_room(array, "values")
                if array.dtype.itemsize not in (1, 2, 4, 8, 16) or array.dtype.hasobject:
                    raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "values")
                self._values[place] = _bytes_out(array)
                self._item_bytes[place] = array.dtype.itemsize
        for place, array in enumerate(keys):
            self._check_room(array, "keys")
            if _is_float(array, "keys"):
                self._float_keys[place] = <double *>_bytes_out(array)
            else:
                self._int_keys[place] = <int64_t *>_bytes_out(array)
            self._sources[place] = sources[place]
            if not -1 <= self._sources[place] < self._value_count:
                raise _error("a source is not the number of a column", "sources")

    cdef int _check_room(self, array, str name) except -1:
        if not isinstance(array, np.ndarray):
            raise _error("a column is not an ndarray", name)
        _check_array(array, name, array.dtype, True)
        if self._room >= 0 and len(array) != self._room:
            raise _error("the columns differ in length", name)
        self._room = len(array)
        return 0

    def __dealloc__(self):
        free(self._values)
        free(self._item_bytes)
        free(self._float_keys)
        free(self._int_keys)
        free(self._sources)

    def append(self, BatchColumns batch, int64_t begin):
        """Copy a batch's rows to ``begin`` and after; the smallest and largest of each key of theirs."""
        cdef int64_t place, count = batch.rows
        cdef const sj_column *column
        cdef double floats[2]
        cdef int64_t ints[2]
        cdef int is_number
        if batch._count != self._value_count:
            raise _error("the batch has another number of columns", "batch")
        if begin < 0 or count < 1 or begin > self._room - count:
            raise _error("there is no room for the batch, or it is empty", "begin")
        for place in range(self._value_count):
            column = &batch._columns[place]
            if self._values[place] != NULL:
                if column.item_bytes != self._item_bytes[place]:
                    raise _error("a column of the batch has items of another width", "batch")
                memcpy(self._values[place] + begin * column.item_bytes, column.items, count * column.item_bytes)
        ranges = []
        for place in range(self._key_count):
            is_number = 1
            if self._sources[place] >= 0:
                column = &batch._columns[self._sources[place]]
                if self._float_keys[place] != NULL:
                    is_number = sj_widen_float(column, self._float_keys[place] + begin)
                else:
                    is_number = sj_widen_int(column, self._int_keys[place] + begin)
            if not is_number:
                raise _error("a key cannot be made of its column", "sources")
            if self._float_keys[place] != NULL:
                sj_float_range(self._float_keys[place] + begin, count, floats)
                ranges.append((floats[0], floats[1]))
            else:
                sj_int_range(self._int_keys[place] + begin, count, ints)
                ranges.append((ints[0], ints[1]))
        return tuple(ranges)


cdef class RowsForm:
    """Which columns rows have; see streamjoin_ds.engine.reference.arrow_rows.RowsForm."""

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
                raise _error("the greatest is of the parts' first columns, which must have 8 bytes", "parts")
            for width in widths:
                if width not in (1, 2, 4, 8, 16):
                    raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "parts")
                self._item_bytes[column] = width
                column += 1
        self._firsts[self._part_count] = column
        if greatest:
            if not parts:
                raise _error("the greatest of no parts", "parts")
            self._item_bytes[column] = 8
        for place, number in enumerate(exported):
            if not 0 <= number < self._column_count:
                raise _error("exported is not the number of a column", "exported")
            self._exported[place] = number

    def __dealloc__(self):
        free(self._item_bytes)
        free(self._exported)
        free(self._firsts)


cdef bint _put_int(value, int item_bytes, unsigned char *to) except -1:
    """A whole number, where it fits; bool is none."""
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
    """A float, rounded to the column's, or a whole number that this holds exactly."""
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


cdef class Rows:
    """Rows that are gathered and then handed to Arrow; see streamjoin_ds.engine.reference.arrow_rows.Rows."""

    cdef RowsForm _form
    cdef sj_rows *_rows
    cdef int64_t _count
    cdef int64_t *_filled  # rows of each column
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

    def gather(self, int64_t part, RunColumns columns, places, rows, int64_t begin=0):
        """Fill a part's columns from row `begin` on with ``columns[places[i]][rows[i]]``; as in `RunColumns.gather`."""
        cdef int64_t first, column
        cdef unsigned char **outs
        cdef sj_picks picks
        cdef RowsForm form = self._form
        if not 0 <= part < form._part_count:
            raise _error("there is no such part", "part")
        first = form._firsts[part]
        if columns._column_count != form._firsts[part + 1] - first:
            raise _error("the part has another number of columns", "columns")
        for column in range(columns._column_count):
            if columns._item_bytes[column] != form._item_bytes[first + column]:
                raise _error("the part has columns of other widths", "columns")
        columns._pick(places, rows, &picks)
        if begin < 0 or picks.count > self._count - begin:
            raise _error("there are other numbers of rows", "rows")
        outs = <unsigned char **>calloc(columns._column_count + 1, sizeof(void *))
        if outs == NULL:
            raise MemoryError
        for column in range(columns._column_count):
            outs[column] = sj_rows_column(self._rows, first + column) + begin * form._item_bytes[first + column]
        try:
            columns._copy(&picks, outs)
        finally:
            free(outs)
        for column in range(columns._column_count):
            self._filled[first + column] += picks.count

    def put(self, int64_t column, list values, *, bint floating):
        """Fill a column with Python's numbers; False, and zeros, where one is none that the column surely holds."""
        cdef int item_bytes
        cdef int64_t row
        cdef unsigned char *to
        if not 0 <= column < self._form._firsts[self._form._part_count]:
            raise _error("there is no such column", "column")
        if len(values) != self._count:
            raise _error("there are other numbers of rows", "values")
        item_bytes = self._form._item_bytes[column]
        if item_bytes > 8 or (floating and item_bytes < 4):
            raise _error("there are no such numbers of this width", "floating")
        to = sj_rows_column(self._rows, column)
        self._filled[column] = self._count
        for row in range(self._count):
            if not (_put_float if floating else _put_int)(values[row], item_bytes, to + row * item_bytes):
                memset(to, 0, self._count * item_bytes)
                return False
        return True

    def exported(self):
        """Address of an ArrowArray of the filled columns that are exported: good while this object is, once."""
        cdef const int64_t **columns
        cdef int64_t part, column
        cdef RowsForm form = self._form
        if self._is_exported:
            raise _error("these rows were exported already", "exported")
        for column in range(form._firsts[form._part_count]):
            if self._filled[column] != self._count:
                raise _error("a column of the rows was not filled", "exported")
        if form._with_greatest:
            columns = <const int64_t **>calloc(form._part_count, sizeof(void *))
            if columns == NULL:
                raise MemoryError
            for part in range(form._part_count):
                columns[part] = <const int64_t *>sj_rows_column(self._rows, form._firsts[part])
            with nogil:
                sj_greatest(columns, form._part_count, self._count,
                            <int64_t *>sj_rows_column(self._rows, form._column_count - 1))
            free(<void *>columns)
        if sj_rows_export(self._rows, form._exported, form._exported_count, &self._array):
            raise MemoryError
        self._is_exported = True
        return <uintptr_t>&self._array
