# Columns that are read from Arrow; semantics: streamjoin_ds.engine.kernels.twins.arrow_rows.

cdef extern from "Python.h":
    void *PyCapsule_GetPointer(object capsule, const char *name) except NULL
    int PyLong_CheckExact(object value)
    int PyFloat_CheckExact(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    double PyFloat_AsDouble(object value) except? -1.0


cdef extern from "gather/arrow_rows.h" nogil:
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
    sj_rows *sj_rows_cut(sj_rows *rows, int64_t count, const int *item_bytes, int64_t columns)
    void sj_greatest(const int64_t *const *columns, int64_t count, int64_t rows, int64_t *to)
    int sj_rows_export(sj_rows *rows, const int32_t *columns, int64_t count, ArrowArray *array)


cdef class BatchForm:
    """The schema of record batches; see streamjoin_ds.engine.kernels.twins.arrow_rows.BatchForm."""

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
    """The columns of a record batch; see streamjoin_ds.engine.kernels.twins.arrow_rows.BatchColumns."""

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
            raise _error("the batch has no such column", "column_numbers")
        return &self._columns[place]

    def has_null(self, tuple column_numbers):
        """Whether any of these columns holds a null."""
        for place in column_numbers:
            if sj_has_null(self._at(place)):
                return True
        return False

    def has_nan(self, tuple column_numbers):
        """Whether any of these columns holds a NaN."""
        for place in column_numbers:
            if sj_has_nan(self._at(place)):
                return True
        return False


cdef class RoomColumns:
    """Columns with room behind their rows; see streamjoin_ds.engine.kernels.twins.arrow_rows.RoomColumns."""

    cdef list _kept
    cdef int64_t _room
    cdef int64_t _value_count
    cdef int64_t _key_count
    cdef unsigned char **_values  # NULL: the column is not copied
    cdef int *_item_bytes
    cdef double **_float_keys     # of each key, one of these two is NULL
    cdef int64_t **_int_keys
    cdef int64_t *_sources        # -1: the caller has filled the key

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
        """Copy a batch's rows to ``begin`` and after; return the smallest and largest of each key in them."""
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
