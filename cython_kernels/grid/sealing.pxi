# A batch put in grid order by one task; semantics: streamjoin_ds.engine.kernels.twins.arrow_rows.

cdef class SealForm:
    """The columns of batches that are keys; see streamjoin_ds.engine.kernels.twins.arrow_rows.SealForm."""

    cdef readonly tuple keys
    cdef int64_t *_places
    cdef bint *_are_floats
    cdef int64_t _key_count

    def __init__(self, keys):
        cdef int64_t number
        if self._places != NULL:
            raise _error("this object has keys already", "keys")
        self.keys = tuple((_integer(place, "keys"), bool(is_float)) for place, is_float in keys)
        self._key_count = len(self.keys)
        self._places = <int64_t *>calloc(self._key_count + 1, sizeof(int64_t))
        self._are_floats = <bint *>calloc(self._key_count + 1, sizeof(bint))
        if self._places == NULL or self._are_floats == NULL:
            raise MemoryError
        for number, (place, is_float) in enumerate(self.keys):
            self._places[number], self._are_floats[number] = place, is_float

    def __dealloc__(self):
        free(self._places)
        free(self._are_floats)

    def sealing(self, BatchColumns batch, values, keys, first, second, width):
        """Return a task that writes a batch's rows in grid order; see streamjoin_ds.engine.kernels.twins.arrow_rows."""
        cdef Sealing task = Sealing.__new__(Sealing)
        cdef int64_t place
        values, keys = list(values), list(keys)
        if len(values) != batch._count or len(keys) != self._key_count:
            raise _error("there must be an array for each column and each key", "values")
        first, second = _integer(first, "first"), _integer(second, "second")
        if not -1 <= first < self._key_count or not 0 <= second < self._key_count:
            raise _error("first and second must be numbers of keys; first may be -1", "second")
        if first >= 0 and self._are_floats[first]:
            task._float_width = _float_width(width)
        elif first >= 0:
            task._int_width = _int_width(width)
        task._form, task._batch, task._first, task._second = self, batch, first, second
        task._kept = (values, keys)
        task._outs = <unsigned char **>calloc(batch._count + self._key_count + 1, sizeof(void *))
        task._ranges = <sj_ends *>calloc(self._key_count + 1, sizeof(sj_ends))
        if task._outs == NULL or task._ranges == NULL:
            raise MemoryError
        if not 1 <= batch.rows <= _MAX_ROWS:
            raise _error("the batch is empty, or has more rows than int32 can number", "batch")
        for place, array in enumerate(values):
            self._check_out(batch, array, "values")
            if not batch._columns[place].item_bytes or array.dtype.itemsize != batch._columns[place].item_bytes:
                raise _error("a column of the batch has items of another width", "values")
            task._outs[place] = _bytes_out(array)
        for place, array in enumerate(keys):
            if not 0 <= self._places[place] < batch._count:
                raise _error("a key is not the number of a column", "keys")
            if array is not None:
                self._check_out(batch, array, "keys")
                if array.dtype != (_FLOAT if self._are_floats[place] else _INT):
                    raise _error("a key is of another type", "keys")
                task._outs[batch._count + place] = _bytes_out(array)
        return task

    cdef int _check_out(self, BatchColumns batch, array, str name) except -1:
        if not isinstance(array, np.ndarray) or len(array) != batch.rows:
            raise _error("the arrays are not as long as the batch", name)
        _check_array(array, name, array.dtype, True)
        return 0


cdef union sj_ends:
    double floats[2]
    int64_t ints[2]


cdef enum:
    _IS_SEALED = 0
    _NO_MEMORY = 1
    _NO_NUMBER = 2


cdef class Sealing(Task):
    """The task that sorts a batch and copies its columns in order; its result is each key's smallest and largest."""

    cdef SealForm _form
    cdef BatchColumns _batch
    cdef int64_t _first
    cdef int64_t _second
    cdef double _float_width
    cdef int64_t _int_width
    cdef unsigned char **_outs
    cdef sj_ends *_ranges
    cdef int _status

    def __dealloc__(self):
        free(self._outs)
        free(self._ranges)

    cdef void _work(self) noexcept nogil:
        cdef int64_t count = self._batch.rows, keys = self._form._key_count
        cdef int64_t *room = <int64_t *>malloc((keys + 2) * count * sizeof(int64_t))
        cdef const void **key_items = <const void **>calloc(keys + 1, sizeof(void *))
        self._status = _NO_MEMORY
        if room != NULL and key_items != NULL:
            self._status = self._sealed(room, key_items, count)
        free(room)
        free(<void *>key_items)

    cdef int _sealed(self, int64_t *room, const void **key_items, int64_t count) noexcept nogil:
        cdef int64_t key, place, keys = self._form._key_count
        cdef int64_t *buckets = NULL
        cdef int32_t *order = <int32_t *>(room + keys * count)
        cdef const sj_column *column
        cdef bint is_float
        for key in range(keys):
            column = &self._batch._columns[self._form._places[key]]
            key_items[key] = self._key(column, self._form._are_floats[key], room + key * count)
            if key_items[key] == NULL:
                return _NO_NUMBER
            if self._form._are_floats[key]:
                sj_float_range(<const double *>key_items[key], count, self._ranges[key].floats)
            else:
                sj_int_range(<const int64_t *>key_items[key], count, self._ranges[key].ints)
        if self._first >= 0:
            buckets = room + (keys + 1) * count
            if self._form._are_floats[self._first]:
                sj_float_buckets(<const double *>key_items[self._first], count, self._float_width, 0.0, buckets)
            else:
                sj_int_buckets(<const int64_t *>key_items[self._first], count, self._int_width, 0, buckets)
        is_float = self._form._are_floats[self._second]
        if sj_grid_order(buckets, <const double *>key_items[self._second] if is_float else NULL,
                         NULL if is_float else <const int64_t *>key_items[self._second], count, order):
            return _NO_MEMORY
        for place in range(self._batch._count):
            column = &self._batch._columns[place]
            sj_gather_run(column.items, count, column.item_bytes, order, count, self._outs[place])
        for key in range(keys):
            if self._outs[self._batch._count + key] != NULL:
                sj_gather_run(<const unsigned char *>key_items[key], count, sizeof(int64_t), order, count,
                              self._outs[self._batch._count + key])
        return _IS_SEALED

    cdef const void *_key(self, const sj_column *column, bint is_float, int64_t *room) noexcept nogil:
        """Return a key's values: the column's own items where they have the key's type, else widened ones in `room`.

        NULL: the column has no numbers that can be widened to the key's type.
        """
        if column.item_bytes == sizeof(int64_t) and column.number and (column.number == SJ_FLOATING) == is_float:
            return column.items
        if sj_widen_float(column, <double *>room) if is_float else sj_widen_int(column, room):
            return room
        return NULL

    cdef object _done(self):
        cdef int64_t key
        if self._status == _NO_MEMORY:
            raise MemoryError
        if self._status == _NO_NUMBER:
            raise _error("a key cannot be made of its column", "keys")
        zone = []
        for key in range(self._form._key_count):
            if self._form._are_floats[key]:
                zone.append((self._ranges[key].floats[0], self._ranges[key].floats[1]))
            else:
                zone.append((self._ranges[key].ints[0], self._ranges[key].ints[1]))
        return tuple(zone)
