# Laying a run out, and copying its rows; semantics: streamjoin_ds.engine.kernels.twins.grid.

def grid_buckets(column, width, offset):
    """Number each value's grid bucket, floor((x + offset) / width); see streamjoin_ds.engine.kernels.twins."""
    cdef int64_t count, int_width, int_offset
    cdef double float_width, float_offset
    cdef const double *floats
    cdef const int64_t *ints
    cdef int64_t *out
    cdef bint is_float = _is_float(column, "column")
    count = len(column)
    buckets = np.empty(count, dtype=np.int64)
    out = _int64_out(buckets)
    if is_float:
        float_width = _float_width(width)
        float_offset = _float_bound(offset, "offset")
        if not isfinite(float_offset):
            raise _error("offset must be finite", "offset")
        floats = _float_address(column)
        with nogil:
            sj_float_buckets(floats, count, float_width, float_offset, out)
    else:
        int_width = _int_width(width)
        offset = _integer(offset, "offset")
        if not INT64_MIN <= offset <= INT64_MAX:
            raise _error("offset must be within int64", "offset")
        int_offset = offset
        ints = _int_address(column)
        with nogil:
            sj_int_buckets(ints, count, int_width, int_offset, out)
    return buckets


cdef tuple _bucket_range(column, lo, hi, width, bint with_last):
    cdef int64_t count, int_width
    cdef double float_lo, float_hi, float_width
    cdef sj_wide wide_lo, wide_hi
    cdef const double *floats
    cdef const int64_t *ints
    cdef int64_t *first
    cdef int64_t *last
    cdef bint is_float = _is_float(column, "left_first")
    count = len(column)
    bucket_from = np.empty(count, dtype=np.int64)
    bucket_to = np.empty(count if with_last else 0, dtype=np.int64)
    first = _int64_out(bucket_from)
    last = _int64_out(bucket_to)
    if is_float:
        if lo is None and hi is None:
            lo = hi = 0.0
        float_lo, float_hi, float_width = _float_bound(lo, "lo"), _float_bound(hi, "hi"), _float_width(width)
        floats = _float_address(column)
        with nogil:
            sj_float_bucket_range(floats, count, float_lo, float_hi, float_width, first, last)
    else:
        wide_lo, wide_hi, int_width = _wide_bound(lo, "lo"), _wide_bound(hi, "hi"), _int_width(width)
        ints = _int_address(column)
        with nogil:
            sj_int_bucket_range(ints, count, wide_lo, wide_hi, int_width, first, last)
    return bucket_from, bucket_to


def probe_buckets(left_first, lo, hi, width):
    """Number the first bucket in which a probe can find a match; see streamjoin_ds.engine.kernels.twins."""
    return _bucket_range(left_first, lo, hi, width, False)[0]


def grid_order(buckets, second):
    """Sort by (bucket, second): a stable int32 permutation; see streamjoin_ds.engine.kernels.twins."""
    return grid_ordering(buckets, second).do()


def grid_ordering(buckets, second):
    """`grid_order` as a task for a pool."""
    cdef Ordering task = Ordering.__new__(Ordering)
    if _is_float(second, "second"):
        task._floats = _float_address(second)
    else:
        task._ints = _int_address(second)
    task._count = len(second)
    if task._count > _MAX_ROWS:
        raise _error("second has more rows than int32 can number", "second")
    if buckets is not None:
        _check_array(buckets, "buckets", _INT)
        if len(buckets) != task._count:
            raise _error("buckets and second differ in length", "buckets")
        task._buckets = _int_address(buckets)
    task._order = np.empty(task._count, dtype=np.int32)
    task._out = _int32_out(task._order)
    task._kept = (buckets, second)
    return task


cdef class Ordering(Task):
    """The task that sorts rows; its result is the permutation."""

    cdef const double *_floats
    cdef const int64_t *_ints
    cdef const int64_t *_buckets
    cdef int64_t _count
    cdef int32_t *_out
    cdef object _order
    cdef int _status

    cdef void _work(self) noexcept nogil:
        self._status = sj_grid_order(self._buckets, self._floats, self._ints, self._count, self._out)

    cdef object _done(self):
        if self._status:
            raise MemoryError
        return self._order


def bucket_directory(sorted_buckets):
    """List the buckets that occur and where each starts; see streamjoin_ds.engine.kernels.twins."""
    cdef const int64_t *numbers
    cdef int64_t count, entries
    cdef int64_t *id_numbers
    cdef int64_t *start_numbers
    _check_array(sorted_buckets, "sorted_buckets", _INT)
    count = len(sorted_buckets)
    numbers = _int_address(sorted_buckets)
    with nogil:
        entries = sj_directory_count(numbers, count)
    if entries < 0:
        raise _error("sorted_buckets is not ascending", "sorted_buckets")
    ids = np.empty(entries, dtype=np.int64)
    starts = np.empty(entries + 1, dtype=np.int64)
    id_numbers, start_numbers = _int64_out(ids), _int64_out(starts)
    with nogil:
        sj_directory_fill(numbers, count, id_numbers, start_numbers)
    return ids, starts


def gather(column, order, out=None):
    """Copy column[order] for items of 1, 2, 4, 8 or 16 bytes; see streamjoin_ds.engine.kernels.twins."""
    cdef const unsigned char *source
    cdef unsigned char *target
    cdef const int32_t *rows
    cdef int64_t source_rows, count
    cdef int item_bytes, status
    if not isinstance(column, np.ndarray):
        raise _error("column must be an ndarray", "column")
    _check_array(column, "column", column.dtype)
    item_bytes = column.dtype.itemsize
    if item_bytes not in (1, 2, 4, 8, 16) or column.dtype.hasobject:
        raise _error("column items must have 1, 2, 4, 8 or 16 bytes", "column")
    _check_array(order, "order", _INT32)
    count, source_rows = len(order), len(column)
    if out is None:
        out = np.empty(count, dtype=column.dtype)
    else:
        _check_array(out, "out", column.dtype, True)
        if len(out) != count:
            raise _error("out and order differ in length", "out")
    source, target, rows = _bytes_address(column), _bytes_out(out), _order_address(order)
    with nogil:
        status = sj_gather(source, source_rows, item_bytes, rows, count, target)
    if status:
        raise _error("order points outside the column", "order")
    return out


def step_starts(column):
    """Return where the equally wide steps of a sorted column begin; see streamjoin_ds.engine.kernels.twins."""
    cdef const double *floats = NULL
    cdef const int64_t *ints = NULL
    cdef int32_t *to
    cdef int64_t count
    cdef int is_even
    cdef sj_steps steps
    if _is_float(column, "column"):
        floats = _float_address(column)
    else:
        ints = _int_address(column)
    count = len(column)
    if count > _MAX_ROWS:
        raise _error("column has more rows than int32 can number", "column")
    sj_steps_plan(floats, ints, count, &steps)
    if not steps.count:
        return None
    starts = np.empty(steps.count + 1, dtype=np.int32)
    to = _int32_out(starts)
    with nogil:
        is_even = sj_steps_fill(floats, ints, count, &steps, to)
    return starts if is_even else None


cdef int _set_steps(sj_steps *steps, starts, column) except -1:
    cdef const double *floats = NULL
    cdef const int64_t *ints = NULL
    _check_array(starts, "steps", _INT32)
    if column.dtype == _FLOAT:
        floats = _float_address(column)
    else:
        ints = _int_address(column)
    sj_steps_plan(floats, ints, len(column), steps)
    if not steps.count or len(starts) != steps.count + 1:
        raise _error("steps does not fit the run", "steps", "step_starts(right[second])")
    steps.starts = _order_address(starts)
    return 0


def merge_order(buckets, seconds):
    """Return the order in which the rows of several sorted runs are one; see streamjoin_ds.engine.kernels.twins."""
    cdef int64_t run, count
    cdef int64_t run_count = len(seconds)
    cdef const void **addresses
    cdef int64_t *run_rows
    cdef int32_t *to_run_numbers
    cdef int32_t *to_rows
    cdef const int64_t **bucket_numbers
    cdef const double **floats
    cdef const int64_t **ints
    cdef bint is_float
    cdef int status
    if not run_count or (buckets is not None and len(buckets) != run_count):
        raise _error("there must be a second, and the buckets or none, of each run", "seconds")
    is_float = _is_float(seconds[0], "seconds")
    count = 0
    for run in range(run_count):
        if bool(_is_float(seconds[run], "seconds")) != bool(is_float):
            raise _error("the runs differ in type", "seconds")
        if buckets is not None:
            _check_array(buckets[run], "buckets", _INT)
            if len(buckets[run]) != len(seconds[run]):
                raise _error("buckets and seconds differ in length", "buckets")
        count += len(seconds[run])
    if count > _MAX_ROWS:
        raise _error("the runs have more rows than int32 can number", "seconds")
    run_numbers, rows = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    to_run_numbers, to_rows = _int32_out(run_numbers), _int32_out(rows)
    addresses = <const void **>calloc(2 * run_count, sizeof(void *))
    run_rows = <int64_t *>calloc(run_count, sizeof(int64_t))
    try:
        if addresses == NULL or run_rows == NULL:
            raise MemoryError
        bucket_numbers = <const int64_t **>addresses if buckets is not None else NULL
        floats = <const double **>(addresses + run_count) if is_float else NULL
        ints = NULL if is_float else <const int64_t **>(addresses + run_count)
        for run in range(run_count):
            run_rows[run] = len(seconds[run])
            if buckets is not None:
                bucket_numbers[run] = _int_address(buckets[run])
            if is_float:
                floats[run] = _float_address(seconds[run])
            else:
                ints[run] = _int_address(seconds[run])
        with nogil:
            status = sj_merge_order(bucket_numbers, floats, ints, run_rows, run_count, to_run_numbers, to_rows)
    finally:
        free(<void *>addresses)
        free(run_rows)
    if status:
        raise MemoryError
    return run_numbers, rows
