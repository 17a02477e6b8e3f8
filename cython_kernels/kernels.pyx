# cython: language_level=3, cdivision=True, embedsignature=True
"""The boundary between NumPy and the C kernels: arguments are checked here once, and nothing is checked in loops.

The readable twins (streamjoin_ds.engine.kernels.twins) document semantics, order of output and errors. This file checks
arguments, takes addresses and releases the GIL.
"""
import operator
import threading
import time

import numpy as np

from streamjoin_ds.errors import KernelError

from cpython.buffer cimport (PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release,
                             PyObject_GetBuffer)
from libc.math cimport isfinite, isnan
from libc.stdint cimport (INT8_MAX, INT8_MIN, INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int8_t,
                          int16_t, int32_t, int64_t, uint8_t, uint64_t, uintptr_t)
from libc.string cimport memcpy, memset


cdef extern from "scan/band.h" nogil:
    enum: SJ_MAX_CONDITIONS
    enum: SJ_MIN_CAPACITY
    enum: SJ_FENCE_ROWS
    enum: SJ_SCAN_TILE_PROBES
    enum: SJ_SCAN_TILE_ROWS
    enum: SJ_SORTED_NONE
    enum: SJ_SORTED_FLOAT
    enum: SJ_SORTED_INT
    enum: SJ_SORTED_INTERVAL

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
        int float_equal[SJ_MAX_CONDITIONS]
        const int64_t *int_left[SJ_MAX_CONDITIONS]
        const int64_t *int_right[SJ_MAX_CONDITIONS]
        sj_wide int_lo[SJ_MAX_CONDITIONS]
        sj_wide int_hi[SJ_MAX_CONDITIONS]
        double interval_lo
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
        int first_slot
        double float_width
        int64_t int_width

    ctypedef unsigned (*sj_scan_roof)(int is_float, int64_t rounds) noexcept
    ctypedef int64_t (*sj_scan_fill)(sj_scan *scan, int32_t *out_probe, int32_t *out_row, int64_t capacity) noexcept
    ctypedef int64_t (*sj_grid_fill)(sj_grid *grid, int32_t *out_probe, int32_t *out_row, int64_t capacity) noexcept
    ctypedef struct sj_partner_sums

    ctypedef void (*sj_scan_count)(sj_scan *scan, int64_t *counts, sj_partner_sums *sums) noexcept
    ctypedef void (*sj_grid_count)(sj_grid *grid, int64_t *counts, sj_partner_sums *sums) noexcept


cdef extern from "stdlib.h" nogil:
    void *calloc(size_t count, size_t size)
    void *malloc(size_t size)
    void free(void *memory)


cdef extern from "bucket/bucket_grid.h" nogil:
    ctypedef struct sj_bucket_probe:
        pass
    ctypedef int64_t (*sj_bucket_fill)(sj_bucket_probe *probe, int32_t *out_probe, int32_t *out_row,
                                       int64_t capacity) noexcept
    ctypedef void (*sj_bucket_count)(sj_bucket_probe *probe, int64_t *counts, sj_partner_sums *sums) noexcept


cdef extern from "simd/dispatch.h" nogil:
    ctypedef struct sj_near_bounds:
        double eccentricity
        double inverse
        double low
        double high
        double most_latitude

    ctypedef struct sj_near_block:
        pass

    ctypedef void (*sj_near_fill)(const sj_near_bounds *bounds, const sj_near_block *block, uint8_t *out) noexcept

    ctypedef struct sj_implementation:
        const char *name
        sj_scan_fill scan_fill
        sj_grid_fill grid_fill
        sj_scan_roof scan_roof
        sj_bucket_fill bucket_fill
        sj_near_fill near_fill
        sj_scan_count scan_count
        sj_grid_count grid_count
        sj_bucket_count bucket_count
        void (*fold)(sj_partner_sums *sums) noexcept

    ctypedef struct sj_cpu_feature:
        const char *name
        int present

    void sj_dispatch_init()
    int sj_implementation_count()
    const sj_implementation *sj_implementation_at(int index)
    int sj_cpu_feature_count()
    const sj_cpu_feature *sj_cpu_feature_at(int index)


cdef extern from "grid/grid.h" nogil:
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
                       const int64_t *const *int_seconds, const int64_t *run_rows, int64_t run_count,
                       int32_t *run_numbers, int32_t *rows)
    int sj_gather(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                  unsigned char *out)
    void sj_gather_run(const unsigned char *column, int64_t rows, int item_bytes, const int32_t *order, int64_t count,
                       unsigned char *out)

    ctypedef struct sj_run_columns:
        const unsigned char **addresses
        int64_t *run_rows
        int *item_bytes
        int64_t run_count
        int64_t column_count

    ctypedef struct sj_selection:
        int64_t count
        const int32_t *rows
        const int32_t *run_numbers
        int64_t run_number

    int sj_gather_columns(const sj_run_columns *source, const sj_selection *selection, unsigned char **outs)


sj_dispatch_init()

_NDARRAY = np.ndarray
_FLOAT = np.dtype(np.float64)
_INT = np.dtype(np.int64)
_INT32 = np.dtype(np.int32)
_BYTES = np.dtype(np.uint8)
_MAX_ROWS = 2**31 - 1
_WIDE_LIMIT = 2**64


def implementations():
    """Return the names of the implementations that this CPU can run, slowest first."""
    return tuple(sj_implementation_at(index).name.decode() for index in range(sj_implementation_count()))


def cpu_features():
    """Return for each instruction set that was looked for, whether it can be used here."""
    return {
        sj_cpu_feature_at(index).name.decode(): bool(sj_cpu_feature_at(index).present)
        for index in range(sj_cpu_feature_count())
    }


# ---- checks

cdef object _error(str message, str name, str hint=""):
    return KernelError(message, name=name, hint=hint)


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


cdef int _set_float_ends(sj_band *band, int slot, lo, hi) except -1:
    """Set the bounds of a condition on floats; None for both: an equality."""
    if (lo is None) != (hi is None):
        raise _error("lo and hi must both be None, or neither", "lo")
    band.float_equal[slot] = lo is None
    band.float_lo[slot] = 0.0 if lo is None else _float_bound(lo, "lo")
    band.float_hi[slot] = 0.0 if hi is None else _float_bound(hi, "hi")
    return 0


cdef object _integer(value, str name):
    try:
        return operator.index(value)
    except TypeError:
        raise _error(f"{name} must be an integer for an int64 column", name) from None


cdef sj_wide _wide_bound(value, str name):
    # A difference of two int64 lies within +-2^64, so a bound beyond that says no more than one of 2^64.
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
    """Whether an array is a plain column of float64, int64 or int32; if so, `view` gets its address, length and type.

    It takes one look at the buffer: a push of one tuple would be slowed down by a call for each of these facts.
    """
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
    """Look at a float64 or int64 column; raise KernelError where the array is none."""
    if not _look(array, False, view) or view.code == b"i":
        _is_float(array, name)  # raises an error that says what is wrong
        raise _error(f"{name} must be a float64 or int64 ndarray", name)
    return 0


cdef int _int32_view(array, str name, bint writeable, sj_view *view) except -1:
    if not _look(array, writeable, view) or view.code != b"i":
        _check_array(array, name, _INT32, writeable)  # raises an error that says what is wrong
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


include "threads/gate.pxi"
include "threads/thread_pool.pxi"
include "gather/run_columns.pxi"
include "sums/partner_sums.pxi"
include "grid/layout.pxi"
include "joins.pxi"
include "bucket/bucket_grid.pxi"
include "grid/runs_probe.pxi"
include "periodic/windows.pxi"
include "nearest/distances.pxi"
include "nearest/nearest.pxi"
include "sums/sums.pxi"
include "globe/near_places.pxi"
include "bucket/bucket_index.pxi"
include "gather/arrow_rows.pxi"
include "gather/result_rows.pxi"
include "gather/match_rows.pxi"
include "grid/sealing.pxi"
include "gather/bytes.pxi"


FENCE_ROWS = SJ_FENCE_ROWS
SCAN_PAIRS = SJ_SCAN_PAIRS
SCAN_ROWS_ALONE = SJ_SCAN_ROWS_ALONE
SCAN_TILE_PROBES = SJ_SCAN_TILE_PROBES
SCAN_TILE_ROWS = SJ_SCAN_TILE_ROWS

_numbers = {name: number for number, name in enumerate(implementations())}
_default = implementations()[len(implementations()) - 1]  # the widest


def default_implementation():
    """Return the name of the implementation that runs where none is given."""
    return _default


def set_default_implementation(name):
    """Choose the implementation that runs where none is given; the package's __init__ calls this once."""
    global _default
    if name not in implementations():
        raise _error("this implementation is not available here", "STREAMJOIN_DS_KERNEL",
                     ", ".join(("reference", *implementations())))
    _default = name
