# cython: language_level=3, cdivision=True, embedsignature=True
"""What fills Parquet's pages. The readable twin (streamjoin_ds.sink.page_values) documents semantics.

This file checks arguments, takes addresses and releases the GIL.
"""
import numpy as np

from streamjoin_ds._kernels import default_implementation
from streamjoin_ds.errors import KernelError

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "pages/pages.h" nogil:
    enum: SJ_PAGES_SLACK
    int64_t sj_pack_differences(const void *values, int64_t count, int item_bytes, int is_wide, uint8_t *out)
    int64_t sj_find_runs(const void *values, int64_t count, int item_bytes, int64_t most, void *firsts,
                         int32_t *starts)
    int64_t sj_number_runs(const int32_t *starts, int64_t runs, int id_bytes, uint8_t *out)


_IS_WIDE = default_implementation() in ("avx2", "avx512")


cdef int _item_bytes(values) except -1:
    """Refuse anything but a plain array of int32 or int64 that int32 can number."""
    if (not isinstance(values, np.ndarray) or values.dtype not in (np.dtype(np.int32), np.dtype(np.int64))
            or values.ndim != 1 or not values.flags.c_contiguous or not values.flags.aligned):
        raise KernelError("values must be a plain ndarray of int32 or int64", name="values",
                          hint="numpy.ascontiguousarray")
    if len(values) >= 2**31:
        raise KernelError("values has more rows than int32 can number", name="values")
    return values.dtype.itemsize


def pack_differences(values, bint is_wide=_IS_WIDE):
    """Return whole numbers as packed differences; see streamjoin_ds.sink.page_values.pack_differences.

    `is_wide` has the processor's wide registers used; by default that is so where the other kernels use them.
    """
    cdef int item_bytes = _item_bytes(values)
    cdef int64_t count = len(values), size = 0
    cdef const uint8_t[::1] items = values.view(np.uint8)
    if not count:
        return None
    out = np.empty(count * item_bytes + SJ_PAGES_SLACK, np.uint8)
    cdef uint8_t[::1] to = out
    with nogil:
        size = sj_pack_differences(&items[0], count, item_bytes, is_wide, &to[0])
    return out[:size] if size else None


def pack_runs(values):
    """Return values as runs of a dictionary; see streamjoin_ds.sink.page_values.pack_runs."""
    cdef int item_bytes = _item_bytes(values)
    cdef int64_t count = len(values), most = count // 2, runs = 0, size = 0
    cdef int id_bits, id_bytes
    cdef const uint8_t[::1] items = values.view(np.uint8)
    if not most:
        return None
    firsts, starts = np.empty(most + 1, values.dtype), np.empty(most + 1, np.int32)
    cdef uint8_t[::1] to_firsts = firsts.view(np.uint8)
    cdef int32_t[::1] to_starts = starts
    with nogil:
        runs = sj_find_runs(&items[0], count, item_bytes, most, &to_firsts[0], &to_starts[0])
    if not runs:
        return None
    to_starts[runs] = <int32_t>count
    id_bits = max(1, (runs - 1).bit_length())
    id_bytes = (id_bits + 7) // 8
    out = np.empty(1 + 10 * runs, np.uint8)
    cdef uint8_t[::1] to = out
    to[0] = <uint8_t>id_bits
    with nogil:
        size = sj_number_runs(&to_starts[0], runs, id_bytes, &to[1])
    return firsts[:runs], out[:1 + size]
