# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The boundary between NumPy and the C kernels: everything is checked here once, nothing in the loops.

Semantics, order of output and error rules are documented with the readable twins (streamjoin_ds.engine.reference);
this file checks, takes addresses and lets go of the GIL.
"""
import operator
import time

import numpy as np

from streamjoin_ds.errors import KernelError

from cpython.buffer cimport (PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release,
                             PyObject_GetBuffer)
from libc.math cimport isfinite, isnan
from libc.stdint cimport (INT8_MAX, INT8_MIN, INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int8_t,
                          int16_t, int32_t, int64_t, uint64_t, uintptr_t)
from libc.string cimport memcpy, memset


cdef extern from "band.h" nogil:
    enum: SJ_MAX_CONDITIONS
    enum: SJ_MIN_CAPACITY
    enum: SJ_FENCE_ROWS
    enum: SJ_SCAN_TILE_ROWS
    enum: SJ_SORTED_NONE
    enum: SJ_SORTED_FLOAT
    enum: SJ_SORTED_INT

    ctypedef struct sj_wide:
        int64_t high
        uint64_t low

    ctypedef struct sj_band:
        int float_count
        int int_count
        const double *float_left[SJ_MAX_CONDITIONS]
        const double *float_right[SJ_MAX_CONDITIONS]
        double float_lo[SJ_MAX_CONDITIONS]
        double float_hi[SJ_MAX_CONDITIONS]
        const int64_t *int_left[SJ_MAX_CONDITIONS]
        const int64_t *int_right[SJ_MAX_CONDITIONS]
        sj_wide int_lo[SJ_MAX_CONDITIONS]
        sj_wide int_hi[SJ_MAX_CONDITIONS]
        int64_t probe_count
        int64_t run_count

    ctypedef struct sj_scan:
        sj_band band
        int64_t candidates
        int is_rolled

    ctypedef struct sj_steps:
        const int32_t *starts
        int64_t count

    ctypedef struct sj_grid:
        sj_band band
        int sorted
        sj_steps steps
        const double *float_fences
        const int64_t *int_fences
        const int32_t *probe_order
        const int64_t *bucket_from
        const int64_t *bucket_to
        const int64_t *bucket_ids
        const int64_t *bucket_starts
        int64_t bucket_count
        int64_t candidates

    ctypedef unsigned (*sj_scan_roof)(int is_float, int64_t rounds) noexcept
    ctypedef int64_t (*sj_scan_fill)(sj_scan *scan, int32_t *out_probe, int32_t *out_run, int64_t capacity) noexcept
    ctypedef int64_t (*sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_run, int64_t capacity) noexcept


cdef extern from "stdlib.h" nogil:
    void *calloc(size_t count, size_t size)
    void *malloc(size_t size)
    void free(void *memory)


cdef extern from "bucket_grid.h" nogil:
    ctypedef struct sj_bucket_probe:
        pass
    ctypedef int64_t (*sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_run,
                                       int64_t capacity) noexcept


cdef extern from "dispatch.h" nogil:
    ctypedef struct sj_implementation:
        const char *name
        sj_scan_fill scan_fill
        sj_grid_fill grid_fill
        sj_scan_roof scan_roof
        sj_bucket_fill bucket_fill

    ctypedef struct sj_cpu_feature:
        const char *name
        int present

    void sj_dispatch_init()
    int sj_implementation_count()
    const sj_implementation *sj_implementation_at(int index)
    int sj_cpu_feature_count()
    const sj_cpu_feature *sj_cpu_feature_at(int index)


cdef extern from "grid.h" nogil:
    void sj_float_buckets(const double *column, int64_t count, double width, double offset, int64_t *buckets)
    void sj_int_buckets(const int64_t *column, int64_t count, int64_t width, int64_t offset, int64_t *buckets)
    void sj_float_bucket_range(const double *left, int64_t count, double lo, double hi, double width, int64_t *first,
                               int64_t *last)
    void sj_int_bucket_range(const int64_t *left, int64_t count, sj_wide lo, sj_wide hi, int64_t width,
                             int64_t *first, int64_t *last)
    int sj_probes_sorted(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count)
    int64_t sj_directory_count(const int64_t *sorted_buckets, int64_t count)
    void sj_directory_fill(const int64_t *sorted_buckets, int64_t count, int64_t *ids, int64_t *starts)
    int sj_grid_order(const int64_t *buckets, const double *float_second, const int64_t *int_second, int64_t count,
                      int32_t *order)
    void sj_steps_plan(const double *float_sorted, const int64_t *int_sorted, int64_t count, sj_steps *steps)
    int sj_steps_fill(const double *float_sorted, const int64_t *int_sorted, int64_t count, const sj_steps *steps,
                      int32_t *starts)
    int sj_merge_order(const int64_t *const *buckets, const double *const *float_seconds,
                       const int64_t *const *int_seconds, const int64_t *run_rows, int64_t run_count, int32_t *places,
                       int32_t *rows)
    int sj_gather(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                  unsigned char *out)
    int sj_gather_check(const int64_t *run_rows, int64_t run_count, const int32_t *places, const int32_t *rows,
                        int64_t count)
    void sj_gather_run(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                       unsigned char *out)
    void sj_gather_runs(const unsigned char *const *columns, const int64_t *run_rows, int item_bytes,
                        const int32_t *places, const int32_t *rows, int64_t count, unsigned char *out)


sj_dispatch_init()

_NDARRAY = np.ndarray
_FLOAT = np.dtype(np.float64)
_INT = np.dtype(np.int64)
_INT32 = np.dtype(np.int32)
_BYTES = np.dtype(np.uint8)
_MAX_ROWS = 2**31 - 1
_WIDE_LIMIT = 2**64


def implementations():
    """Name what this CPU can run, slowest first."""
    return tuple(sj_implementation_at(index).name.decode() for index in range(sj_implementation_count()))


def cpu_features():
    """Tell which instruction sets were looked for, and which are there."""
    return {
        sj_cpu_feature_at(index).name.decode(): bool(sj_cpu_feature_at(index).present)
        for index in range(sj_cpu_feature_count())
    }


# ---- checks

cdef object _error(str message, str name, str hint=""):
    return KernelError(message + ".", name=name, hint=hint)


cdef int _check_array(array, str name, dtype, bint writeable=False) except -1:
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise _error(f"{name} must be an ndarray of {dtype}", name)
    flags = array.flags
    if array.ndim != 1 or not flags.c_contiguous or not flags.aligned:
        raise _error(f"{name} must be one-dimensional, C-contiguous and aligned", name, "numpy.ascontiguousarray")
    if writeable and not flags.writeable:
        raise _error(f"{name} must be writeable", name)
    return 0


cdef bint _is_float(array, str name) except -1:
    if not isinstance(array, np.ndarray) or (array.dtype != _FLOAT and array.dtype != _INT):
        raise _error(f"{name} must be a float64 or int64 ndarray", name)
    _check_array(array, name, array.dtype)
    return array.dtype == _FLOAT


cdef double _float_bound(value, str name) except? -1.0:
    cdef double number
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _error(f"{name} must be a number that float64 can hold", name) from None
    if isnan(number):
        raise _error(f"{name} must be a number that float64 can hold", name)
    return number


cdef object _integer(value, str name):
    try:
        return operator.index(value)
    except TypeError:
        raise _error(f"{name} must be an integer for an int64 column", name) from None


cdef sj_wide _wide_bound(value, str name):
    # A difference of two int64 has 65 bits: a wider bound says no more than this one.
    number = max(-_WIDE_LIMIT, min(_integer(value, name), _WIDE_LIMIT))
    cdef sj_wide wide
    wide.high = number >> 64
    wide.low = number & (_WIDE_LIMIT - 1)
    return wide


cdef double _float_width(value) except? -1.0:
    cdef double width = _float_bound(value, "width")
    if not (width > 0 and isfinite(width)):
        raise _error("width must be finite and > 0", "width")
    return width


cdef int64_t _int_width(value) except? -1:
    width = _integer(value, "width")
    if not 0 < width <= INT64_MAX:
        raise _error("width must be > 0 and within int64", "width")
    return width


# ---- addresses: the caller keeps the array, so the address outlives the view

cdef struct sj_view:
    void *items
    int64_t count
    char code  # d float64, q int64, i int32


cdef bint _look(array, bint writeable, sj_view *view) except -1:
    """Whether an array is a plain column of one of three dtypes, in one look: what calls cost a push of one tuple."""
    cdef Py_buffer buffer
    cdef bint fits
    if not isinstance(array, _NDARRAY):
        return False
    try:
        PyObject_GetBuffer(array, &buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (PyBUF_WRITABLE if writeable else 0))
    except (BufferError, ValueError):
        return False
    view.code = buffer.format[0] if buffer.format[1] == 0 else 0
    if view.code == b"l":
        view.code = b"q" if buffer.itemsize == 8 else b"i"
    fits = (buffer.ndim == 1 and view.code in (b"d", b"q", b"i")
            and <uintptr_t>buffer.buf % <uintptr_t>buffer.itemsize == 0)
    view.count = buffer.len // buffer.itemsize if fits else 0
    view.items = buffer.buf if view.count else NULL
    PyBuffer_Release(&buffer)
    return fits


cdef int _key_view(array, str name, sj_view *view) except -1:
    """A float64 or int64 column."""
    if not _look(array, False, view) or view.code == b"i":
        _is_float(array, name)  # says what is wrong
        raise _error(f"{name} must be a float64 or int64 ndarray", name)
    return 0


cdef int _int32_view(array, str name, bint writeable, sj_view *view) except -1:
    if not _look(array, writeable, view) or view.code != b"i":
        _check_array(array, name, _INT32, writeable)  # says what is wrong
        raise _error(f"{name} must be an ndarray of {_INT32}", name)
    return 0


cdef const double *_float_address(array) except? NULL:
    cdef const double[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef const int64_t *_int_address(array) except? NULL:
    cdef const int64_t[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef const int32_t *_order_address(array) except? NULL:
    cdef const int32_t[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef int32_t *_int32_out(array) except? NULL:
    cdef int32_t[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef int64_t *_int64_out(array) except? NULL:
    cdef int64_t[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef const unsigned char *_bytes_address(array) except? NULL:
    cdef const unsigned char[::1] view = array.view(np.uint8)
    return &view[0] if view.shape[0] else NULL


cdef unsigned char *_bytes_out(array) except? NULL:
    cdef unsigned char[::1] view = array.view(np.uint8)
    return &view[0] if view.shape[0] else NULL


# ---- laying a run out

def grid_buckets(column, width, offset):
    """Number each value's grid bucket, floor((x + offset) / width); see streamjoin_ds.engine.reference."""
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
    """Number the first bucket in which a probe can find a match; see streamjoin_ds.engine.reference."""
    return _bucket_range(left_first, lo, hi, width, False)[0]


include "crew.pxi"


def grid_order(buckets, second):
    """Sort by (bucket, second): a stable int32 permutation; see streamjoin_ds.engine.reference."""
    return grid_ordering(buckets, second).do()


def grid_ordering(buckets, second):
    """`grid_order` as a task for a crew."""
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
    """Sorts rows; the permutation."""

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
    """List the buckets that occur and where each starts; see streamjoin_ds.engine.reference."""
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
    """Copy column[order] for items of 1, 2, 4, 8 or 16 bytes; see streamjoin_ds.engine.reference."""
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


def sorted_steps(column):
    """Say where each of equally wide steps of a sorted column begins; see streamjoin_ds.engine.reference."""
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
        raise _error("steps does not fit the run", "steps", "sorted_steps(right[second])")
    steps.starts = _order_address(starts)
    return 0


def merge_order(buckets, seconds):
    """Say in which order the rows of several sorted runs are one sorted run; see streamjoin_ds.engine.reference."""
    cdef int64_t run, count
    cdef int64_t run_count = len(seconds)
    cdef const void **addresses
    cdef int64_t *run_rows
    cdef int32_t *to_places
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
    places, rows = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    to_places, to_rows = _int32_out(places), _int32_out(rows)
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
            status = sj_merge_order(bucket_numbers, floats, ints, run_rows, run_count, to_places, to_rows)
    finally:
        free(<void *>addresses)
        free(run_rows)
    if status:
        raise MemoryError
    return places, rows


# ---- joins

cdef const sj_implementation *_implementation(name) except NULL:
    if name is None:
        name = default_implementation()
    index = _numbers.get(name)
    if index is None:
        raise _error("this implementation is not available here", "implementation", ", ".join(_numbers))
    return sj_implementation_at(index)


cdef class _Join:
    """What both joins share: the conditions, the chosen implementation, the check of the output."""

    cdef const sj_implementation *_chosen
    cdef list _kept
    cdef bint _busy

    cdef int _choose(self, implementation) except -1:
        self._chosen = _implementation(implementation)
        return 0

    cdef int _fill_band(self, sj_band *band, list left, list right, list lo, list hi, int leading, left_count,
                        right_count) except -1:
        cdef int condition
        if not len(left) == len(right) == len(lo) == len(hi):
            raise _error("left, right, lo and hi differ in length", "left")
        if len(left) > SJ_MAX_CONDITIONS:
            raise _error("more than 16 conditions", "left")
        band.probe_count = _common_length(left, "left", left_count)
        band.run_count = _common_length(right, "right", right_count)
        self._kept = [left, right]
        conditions = list(range(len(left)))
        if leading >= 0:
            conditions.remove(leading)
            conditions.insert(0, leading)
        for condition in conditions:
            self._add_condition(band, left[condition], right[condition], lo[condition], hi[condition])
        return 0

    cdef int _add_condition(self, sj_band *band, left, right, lo, hi) except -1:
        cdef int index
        if left.dtype != right.dtype:
            raise _error("left and right differ in type", "right")
        if left.dtype == _FLOAT:
            index = band.float_count
            band.float_left[index] = _float_address(left)
            band.float_right[index] = _float_address(right)
            band.float_lo[index] = _float_bound(lo, "lo")
            band.float_hi[index] = _float_bound(hi, "hi")
            band.float_count = index + 1
        else:
            index = band.int_count
            band.int_left[index] = _int_address(left)
            band.int_right[index] = _int_address(right)
            band.int_lo[index] = _wide_bound(lo, "lo")
            band.int_hi[index] = _wide_bound(hi, "hi")
            band.int_count = index + 1
        return 0

    cdef int64_t _enter(self, out_probe, out_run) except -1:
        _check_array(out_probe, "out_probe", _INT32, True)
        _check_array(out_run, "out_run", _INT32, True)
        cdef int64_t capacity = len(out_probe)
        if len(out_run) != capacity or capacity < SJ_MIN_CAPACITY:
            raise _error("out_probe and out_run must be of one length, 64 at least", "out_probe")
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        return capacity


cdef int64_t _common_length(list columns, str name, count) except -1:
    for column in columns:
        _is_float(column, name)
        if count is not None and len(column) != count:
            raise _error(f"the columns of {name} differ in length", name)
        count = len(column)
    if count is None:
        raise _error("without conditions the counts are needed", name, "pass left_count and right_count")
    if not 0 <= count <= _MAX_ROWS:
        raise _error(f"{name} has more rows than int32 can number", name)
    return count


cdef class Scan(_Join):
    """Nested-loop join, SIMD; see streamjoin_ds.engine.reference.Scan."""

    cdef sj_scan _scan

    def __init__(self, left, right, lo, hi, implementation=None, *, unrolled=True, left_count=None,
                 right_count=None):
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        memset(&self._scan, 0, sizeof(self._scan))
        self._choose(implementation)
        self._fill_band(&self._scan.band, list(left), list(right), list(lo), list(hi), -1, left_count, right_count)
        self._scan.is_rolled = not unrolled

    @property
    def candidates(self):
        """Pairs tested so far."""
        return self._scan.candidates

    @property
    def implementation(self):
        """Name of the implementation in use."""
        return self._chosen.name.decode()

    def fill(self, out_probe, out_run):
        """Write the next pairs; 0 means there are no more."""
        cdef int64_t capacity = self._enter(out_probe, out_run)
        cdef int32_t *probes = _int32_out(out_probe)
        cdef int32_t *rows = _int32_out(out_run)
        cdef int64_t written
        cdef sj_scan_fill fill = self._chosen.scan_fill
        self._busy = True
        with nogil:
            written = fill(&self._scan, probes, rows, capacity)
        self._busy = False
        return written


def scan_roof(is_float=False, implementation=None):
    """Measure the roof of `Scan` on this core: pairs a second of its first condition's compares alone, rows in L1."""
    cdef const sj_implementation *chosen = _implementation(implementation)
    cdef int floats = bool(is_float)
    cdef int64_t rounds = 1 << 16
    cdef unsigned found
    began = time.perf_counter()
    with nogil:
        found = chosen.scan_roof(floats, rounds)
    elapsed = time.perf_counter() - began
    assert not found
    return rounds * SJ_SCAN_TILE_ROWS / elapsed


cdef class GridProbe(_Join):
    """Sorted probes against a run in grid order, SIMD; see streamjoin_ds.engine.reference.GridProbe."""

    cdef sj_grid _grid

    def __init__(self, left, right, lo, hi, *, first, second, width, bucket_ids, bucket_starts, probe_order,
                 fences=None, steps=None, implementation=None, left_count=None, right_count=None):
        cdef bint float_second = False
        cdef const double *second_floats = NULL
        cdef const int64_t *second_ints = NULL
        cdef const int64_t *starts
        cdef int sorted_probes
        if self._busy:
            raise _error("another thread is filling from this object", "fill", "one object per thread")
        memset(&self._grid, 0, sizeof(self._grid))
        self._choose(implementation)
        left, right, lo, hi = list(left), list(right), list(lo), list(hi)
        first, second = _integer(first, "first"), _integer(second, "second")
        for name, choice in (("first", first), ("second", second)):
            if not -1 <= choice < len(left):
                raise _error(f"{name} is not the number of a condition", name)
        _check_array(probe_order, "probe_order", _INT32)
        for name, array in (("bucket_ids", bucket_ids), ("bucket_starts", bucket_starts)):
            if array is not None:
                _check_array(array, name, _INT)
        if left_count is None and not left:
            left_count = len(probe_order)
        if right_count is None and not right and bucket_starts is not None and len(bucket_starts):
            right_count = int(bucket_starts[len(bucket_starts) - 1])
        self._fill_band(&self._grid.band, left, right, lo, hi, second, left_count, right_count)
        if len(probe_order) != self._grid.band.probe_count:
            raise _error("probe_order and left differ in length", "probe_order")
        if first >= 0:
            if bucket_ids is None or bucket_starts is None:
                raise _error("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
            bucket_from, bucket_to = _bucket_range(left[first], lo[first], hi[first], width, True)
        else:
            bucket_ids = np.zeros(1, dtype=np.int64)
            bucket_starts = np.array([0, self._grid.band.run_count], dtype=np.int64)
            bucket_from = bucket_to = np.zeros(self._grid.band.probe_count, dtype=np.int64)
        if len(bucket_starts) != len(bucket_ids) + 1 or bucket_starts[len(bucket_ids)] != self._grid.band.run_count:
            raise _error("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
        self._kept += [probe_order, bucket_ids, bucket_starts, bucket_from, bucket_to]
        self._grid.probe_order = _order_address(probe_order)
        self._grid.bucket_ids = _int_address(bucket_ids)
        self._grid.bucket_starts = _int_address(bucket_starts)
        self._grid.bucket_from = _int_address(bucket_from)
        self._grid.bucket_to = _int_address(bucket_to)
        self._grid.bucket_count = len(bucket_ids)
        self._grid.sorted = SJ_SORTED_NONE
        if second >= 0:
            float_second = left[second].dtype == _FLOAT
            self._grid.sorted = SJ_SORTED_FLOAT if float_second else SJ_SORTED_INT
            if float_second:
                second_floats = self._grid.band.float_left[0]
            else:
                second_ints = self._grid.band.int_left[0]
            self._set_fences(fences, right[second])
            if steps is not None and first < 0:
                _set_steps(&self._grid.steps, steps, right[second])
                self._kept.append(steps)
        starts = self._grid.bucket_from
        with nogil:
            sorted_probes = sj_probes_sorted(starts, second_floats, second_ints, self._grid.band.probe_count)
        if not sorted_probes:
            raise _error("the probes are not sorted by start bucket and second attribute", "left",
                         "permute left by grid_order(probe_buckets(...), left[second])")

    cdef int _set_fences(self, fences, column) except -1:
        if fences is None:
            return 0
        _check_fences(fences, column)
        self._kept.append(fences)
        if column.dtype == _FLOAT:
            self._grid.float_fences = _float_address(fences)
        else:
            self._grid.int_fences = _int_address(fences)
        return 0

    @property
    def candidates(self):
        """Pairs tested so far: rows of the visited buckets within the probe's band of the sort attribute."""
        return self._grid.candidates

    @property
    def implementation(self):
        """Name of the implementation in use."""
        return self._chosen.name.decode()

    def fill(self, out_probe, out_run):
        """Write the next pairs; 0 means there are no more."""
        cdef int64_t capacity = self._enter(out_probe, out_run)
        cdef int32_t *probes = _int32_out(out_probe)
        cdef int32_t *rows = _int32_out(out_run)
        cdef int64_t written
        cdef sj_grid_fill fill = self._chosen.grid_fill
        self._busy = True
        with nogil:
            written = fill(&self._grid, probes, rows, capacity)
        self._busy = False
        return written


include "bucket_grid.pxi"
include "runs_probe.pxi"
include "bucket_index.pxi"
include "arrow_rows.pxi"
include "result_rows.pxi"
include "sealing.pxi"
include "bytes.pxi"


FENCE_ROWS = SJ_FENCE_ROWS

_numbers = {name: number for number, name in enumerate(implementations())}
_default = implementations()[len(implementations()) - 1]  # the widest


def default_implementation():
    """Name what runs where no implementation is given."""
    return _default


def set_default_implementation(name):
    """Choose what runs where no implementation is given; called once, by the package's __init__."""
    global _default
    if name not in implementations():
        raise _error("this implementation is not available here", "STREAMJOIN_DS_KERNEL",
                     ", ".join(("reference", *implementations())))
    _default = name
