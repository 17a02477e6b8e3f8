# Strings and binary values: hashed, and gathered from several columns at once. Included by kernels.pyx.

cdef extern from "gather/bytes.h" nogil:
    ctypedef struct sj_byte_column:
        int64_t rows
        const int32_t *offsets
        const unsigned char *data
        const unsigned char *valid
        int64_t valid_from

    void sj_hash_bytes(const sj_byte_column *column, int64_t *hashes)
    int sj_offsets_fit(const int32_t *offsets, int64_t count, int64_t size_bytes)
    int64_t sj_gathered_bytes(const sj_byte_column *const *columns, int64_t column_count, const int32_t *sources,
                              int64_t source, const int32_t *rows, int64_t count, int32_t *offsets, int64_t *nulls)
    void sj_gather_bytes(const sj_byte_column *const *columns, const int32_t *sources, int64_t source,
                         const int32_t *rows, int64_t count, const int32_t *offsets, unsigned char *data,
                         unsigned char *valid)


cdef class ByteColumn:
    """Strings or binary values in Arrow's form; see streamjoin_ds.engine.kernels.twins.arrow_rows.ByteColumn."""

    cdef sj_byte_column _column
    cdef list _kept

    def __init__(self, offsets, data, valid=None, valid_from=0):
        cdef int64_t first
        cdef int64_t size_bytes
        cdef int fits
        if self._kept is not None:
            raise _error("this object has a column already", "offsets")
        _check_array(offsets, "offsets", _INT32)
        _check_array(data, "data", _BYTES)
        if not len(offsets):
            raise _error("offsets has one item more than there are rows", "offsets")
        first, size_bytes = _integer(valid_from, "valid_from"), len(data)
        self._column.rows = len(offsets) - 1
        self._column.offsets = _order_address(offsets)
        self._column.data = _bytes_address(data)
        with nogil:
            fits = sj_offsets_fit(self._column.offsets, self._column.rows, size_bytes)
        if not fits:
            raise _error("offsets must ascend, and stay within data", "offsets")
        if valid is not None:
            _check_array(valid, "valid", _BYTES)
            if first < 0 or first + self._column.rows > 8 * <int64_t>len(valid):
                raise _error("valid has a bit for each row, from valid_from on", "valid")
            self._column.valid = _bytes_address(valid)
        self._column.valid_from = first
        self._kept = [offsets, data, valid]

    def __len__(self):
        return self._column.rows

    def hashes(self):
        """Return the XXH3 hash of each value, as int64. A null has the hash of the bytes that stand in its place."""
        out = np.empty(self._column.rows, dtype=np.int64)
        cdef int64_t *hashes = _int64_out(out)
        with nogil:
            sj_hash_bytes(&self._column, hashes)
        return out


def gather_bytes(columns, column_numbers, rows):
    """Copy columns[column_numbers[i]][rows[i]] to offsets, data, valid bits; see streamjoin_ds.engine.kernels.twins."""
    cdef ByteColumn column
    cdef int64_t source = 0, size, nulls = 0, count, column_count, at
    cdef const int32_t *sources = NULL
    cdef const int32_t *from_rows
    cdef const sj_byte_column **addresses
    cdef int32_t *ends
    cdef unsigned char *to_data
    cdef unsigned char *to_valid = NULL
    columns = list(columns)
    _check_array(rows, "rows", _INT32)
    count, column_count = len(rows), len(columns)
    if isinstance(column_numbers, int):
        source = _integer(column_numbers, "column_numbers")
    else:
        _check_array(column_numbers, "column_numbers", _INT32)
        if len(column_numbers) != count:
            raise _error("column_numbers and rows differ in length", "column_numbers")
        sources = _order_address(column_numbers)
    from_rows = _order_address(rows)
    offsets = np.empty(count + 1, dtype=np.int32)
    ends = _int32_out(offsets)
    addresses = <const sj_byte_column **>calloc(column_count + 1, sizeof(void *))
    if addresses == NULL:
        raise MemoryError
    try:
        for at in range(column_count):
            column = columns[at]
            addresses[at] = &column._column
        with nogil:
            size = sj_gathered_bytes(addresses, column_count, sources, source, from_rows, count, ends, &nulls)
        if size < 0:
            raise _error("rows or column_numbers point outside the columns", "rows")
        if size > INT32_MAX:
            raise _error("the values are too long for one column", "rows", "fewer rows at a time")
        data = np.empty(size, dtype=np.uint8)
        valid = np.zeros((count + 7) // 8, dtype=np.uint8) if nulls else None
        to_data = _bytes_out(data)
        if nulls:
            to_valid = _bytes_out(valid)
        with nogil:
            sj_gather_bytes(addresses, sources, source, from_rows, count, ends, to_data, to_valid)
    finally:
        free(addresses)
    return offsets, data, valid, nulls
