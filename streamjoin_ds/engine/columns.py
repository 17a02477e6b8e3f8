"""Columns and keys as kernels read them, and the memory of large runs.

::

    Arrow column ──► items, bytes ──► keys: float64 or int64 ──► kernels

Arrow columns are viewed as NumPy arrays and back without a copy where that is possible.

Keys are compared columns in the only two forms that kernels know::

    kind    from                                         becomes
    ─────   ─────────────────────────────────────────   ───────────────────────────────────────
    float   float32, float64, integers beside floats     float64
    int     integers, dates (days), timestamps (us),     int64
            decimals (scaled), booleans (0, 1)
    ns      timestamps (ns), from a column beside them   int64
    hash    strings, binary, lists, structs              xxh3 of the bytes, as int64
    limit   expressions that only find (`Limit`)         float64

A tuple with a null or NaN in any compared column has no partner. Such tuples are counted and no window keeps them.

Large runs lie in huge pages where the system has them, because probes jump about in a run.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns, ByteColumn
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.expression.evaluation import holds
from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.key_values import item_dtype, item_values, key_dtype, key_values
from streamjoin_ds.spec.nested_values import encoded, is_nested

__all__ = [
    "ColumnMemory",
    "NullKeyMask",
    "array_of",
    "byte_column",
    "bytes_of",
    "compared_columns",
    "concatenated",
    "empty_items",
    "filtered",
    "fixed_width",
    "gathered",
    "has_bytes",
    "hashes_of",
    "is_stored",
    "is_widened",
    "item_dtype",
    "item_values",
    "key_dtype",
    "key_values",
    "one_batch",
    "taken_of",
    "widened",
]

# Bytes of an array from which on the system's allocator maps fresh memory for each array.
_POOLED_BYTES = 1 << 16

_OFFSET_BYTES = 4
_MOST_BYTES = 1 << 30  # of lists and structs that are hashed together; a column of bytes holds twice as many
_HUGE_PAGE_BYTES = 1 << 21
_ALIGNMENT = 64


def empty_items(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an uninitialised array; a large one comes from Arrow's pool, whose pages are used again.

    Otherwise the system would fault in and clear each page of a result column of a megabyte, for each column anew
    (measured: an item gathered from cache takes 4.1 ns then, and 0.9 ns from the pool).
    """
    size_bytes = count * dtype.itemsize
    if size_bytes < _POOLED_BYTES:
        return np.empty(count, dtype=dtype)
    return np.frombuffer(pa.allocate_buffer(size_bytes), dtype=dtype)


def array_of(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """View NumPy items as an Arrow array of a type of the same width, without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def gathered(array: pa.Array, rows: npt.NDArray[np.int32], kernels: Kernels) -> pa.Array:
    """Copy ``array[rows]``; any type, nulls kept."""
    if array.null_count == 0 and fixed_width(array.type):
        return array_of(kernels.module.gather(item_values(array), rows), array.type)
    return array.take(pa.array(rows))


def has_bytes(kind: pa.DataType) -> bool:
    """Whether a type's values are strings or binary."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def byte_column(array: pa.Array, kernels: Kernels) -> ByteColumn:
    """View an array of strings or binary values as kernels read it (`ByteColumn`)."""
    valid, offsets, data = array.buffers()
    rows, first = len(array), array.offset
    ends = np.zeros(1, np.int32) if not rows else np.frombuffer(offsets, np.int32, rows + 1, first * _OFFSET_BYTES)
    values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    bits = None if valid is None or not array.null_count else np.frombuffer(valid, np.uint8)
    return kernels.module.ByteColumn(ends, values, bits, first)


def hashes_of(array: pa.Array, kernels: Kernels) -> npt.NDArray[np.int64]:
    """Return the XXH3 hash of each string, binary value, list or struct; of a null any number."""
    if not is_nested(array.type):
        return byte_column(array, kernels).hashes()
    values, found, begin = encoded(array), [np.empty(0, np.int64)], 0
    ends = np.cumsum(pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    while begin < len(values):
        before = ends[begin - 1] if begin else 0
        end = max(int(np.searchsorted(ends, before + _MOST_BYTES, side="right")), begin + 1)
        found.append(byte_column(values[begin:end].cast(pa.binary()), kernels).hashes())
        begin = end
    return np.concatenate(found)


def bytes_of(
    columns: Sequence[ByteColumn],
    column_numbers: npt.NDArray[np.int32] | int,
    rows: npt.NDArray[np.int32],
    kind: pa.DataType,
    kernels: Kernels,
) -> pa.Array:
    """Copy ``columns[column_numbers[i]][rows[i]]`` of columns made by `byte_column`, nulls kept."""
    offsets, data, valid, nulls = kernels.module.gather_bytes(columns, column_numbers, rows)
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(rows), buffers, null_count=nulls)


def taken_of(
    sources: int,
    source_numbers: npt.NDArray[np.int32],
    take: Callable[[int, npt.NDArray[np.int64]], pa.Array],
    kernels: Kernels,
) -> pa.Array:
    """Return one array of values that come from several sources.

    Parameters
    ----------
    sources : int
        How many sources there are.
    source_numbers : ndarray, shape (count,), int32
        Number of the source of each value.
    take : callable
        It is given the number of a source and positions in the array, and returns the values there, all of that source.
    """
    ends = np.cumsum(np.bincount(source_numbers, minlength=sources))
    is_ascending = bool(np.all(source_numbers[1:] >= source_numbers[:-1]))
    # NumPy sorts integers of 16 bits without comparisons.
    short = source_numbers.astype(np.int16) if sources <= 1 << 15 else source_numbers
    order = np.arange(len(source_numbers)) if is_ascending else np.argsort(short, kind="stable")
    pieces = [
        take(source, order[begin:end])
        for source, (begin, end) in enumerate(pairwise([0, *ends.tolist()]))
        if begin < end or end == len(source_numbers) == 0
    ]
    together = concatenated(pieces)
    if is_ascending:
        return together
    back = np.empty(len(source_numbers), dtype=np.int32)
    back[order] = np.arange(len(source_numbers), dtype=np.int32)
    return gathered(together, back, kernels)


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return one array of the values of several arrays of one type."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def one_batch(tables: Sequence[pa.Table | pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return one record batch of exactly `schema` with the rows of tables that have its columns, in order."""
    if len(tables) == 1 and isinstance(tables[0], pa.RecordBatch) and tables[0].schema.equals(schema):
        return tables[0]
    columns = []
    for field in schema:
        chunks: list[pa.Array] = []
        for table in tables:
            column = table.column(field.name)
            chunks.extend(column.chunks if isinstance(column, pa.ChunkedArray) else [column])
        chunks = [chunk for chunk in chunks if len(chunk)]
        columns.append(concatenated(chunks) if chunks else pa.array([], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def filtered(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch where the mask is true."""
    return batch.filter(pa.array(mask))


def not_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values are not null."""
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False))


def fixed_width(kind: pa.DataType) -> bool:
    """Whether a type's values are items of whole bytes."""
    types = pa.types
    if types.is_boolean(kind) or types.is_null(kind):
        return False
    return bool(types.is_primitive(kind) or types.is_decimal128(kind))


def compared_columns(bound: BoundJoin, stream: int, other: int | None = None) -> tuple[str, ...]:
    """Return the inside columns of a stream where a null keeps a tuple out of every result.

    These are the columns of its keys, and the columns in which a null keeps some term from being TRUE. With `other`
    they are those that are compared with that stream: a null keeps a tuple from having a partner there.
    """
    keys, terms = bound.keys[stream], bound.terms
    if other is not None:
        pair = {stream, other}
        between = [one for one in bound.conditions if {one.left_stream, one.right_stream} == pair]
        met = {one.left_key if stream < other else one.right_key for one in between}
        keys = tuple(keys[number] for number in sorted(met))
        terms = tuple(term for term in terms if set(term.streams) == pair)
    names = [bound.key_name(stream, key) for key in keys]
    rejecting = [c.name for term in terms for c in term.rejecting if c.stream == bound.member_names[stream]]
    return tuple(dict.fromkeys([*names, *(bound.compared_name(stream, name) for name in rejecting)]))


class NullKeyMask:
    """Tells which tuples of one stream may have partners.

    They have a value in every compared column, no NaN in a column of a band, also of one that a residual decides, and
    the stream's bars are TRUE for them (`BoundJoin.bars`). With `other` it tells which may have partners in that
    stream, and only what is compared with it counts.
    """

    def __init__(self, bound: BoundJoin, stream: int, other: int | None = None) -> None:
        names = bound.tuple_schema(stream).names
        self._compared = tuple(names.index(name) for name in compared_columns(bound, stream, other))
        bands = [predicate for predicate in bound.join.predicates if isinstance(predicate, Band)]
        own = bound.member_names[stream]
        if other is not None:
            pair = {own, bound.member_names[other]}
            bands = [band for band in bands if {band.left.stream, band.right.stream} == pair]
        ends = [column for band in bands for column in (band.left, band.right) if column.stream == own]
        floats = dict.fromkeys(bound.compared_name(stream, column.name) for column in ends)
        kinds = bound.tuple_schema(stream)
        self._floats = tuple(names.index(name) for name in floats if pa.types.is_floating(kinds.field(name).type))
        self._bars = bound.bars[stream] if bound.bars else ()
        self._places = {
            column: names.index(bound.compared_name(stream, column.name))
            for term in self._bars
            for column in term.columns
        }

    def mask(self, arrived: BatchColumns) -> npt.NDArray[np.bool_] | None:
        """Return which tuples do; None: all of them.

        Parameters
        ----------
        arrived : BatchColumns
            Of the stream's tuple schema.
        """
        if not self._bars and not arrived.has_null(self._compared) and not arrived.has_nan(self._floats):
            return None
        mask = np.ones(arrived.rows, dtype=np.bool_)
        for place in self._compared:
            mask &= not_null(arrived.batch.column(place))
        for place in self._floats:
            mask &= ~np.isnan(arrived.batch.column(place).to_numpy(zero_copy_only=False))
        for term in self._bars:
            mask &= holds(term.condition, arrived.rows, lambda column: arrived.batch.column(self._places[column]))
        return None if mask.all() else mask


def is_stored(kind: str) -> bool:
    """Whether a key is a column of a run: hashes and limits are. All other keys are made from their column again."""
    return kind in ("hash", "limit")


def is_widened(kind: pa.DataType) -> bool:
    """Whether kernels can widen a type's items to keys."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date32(kind))


def widened(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values of a key as float64 or int64."""
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)


class ColumnMemory:
    """Room for the columns of one run, side by side; it lives as long as any of them.

    A probe of a run of a million rows misses the caches at each row that it looks at, and with small pages it misses
    the cached page tables too. With pages of 2 MiB the page tables stay in cache (measured: a probe takes a third
    less), and there are 512 times fewer pages to fault in.

    Parameters
    ----------
    size_bytes : int
        All columns together. Each is given up to 64 bytes more, so that it begins on a cache line.
    columns : int
        How many columns there will be.
    is_sparse : bool
        Most of the room will never be written to. What is written whole comes from the heap, where a process that
        reuses freed memory has it from the batch before; NumPy asks for the large pages there.
    """

    def __init__(self, size_bytes: int, columns: int, *, is_sparse: bool = False) -> None:
        size_bytes += (columns + 1) * _ALIGNMENT
        self._free = _sparse_memory(size_bytes) if is_sparse else np.empty(size_bytes, np.uint8)
        self._used = -self._free.ctypes.data % _ALIGNMENT

    def column(self, rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the next column, uninitialised."""
        size = rows * dtype.itemsize
        column = self._free[self._used : self._used + size].view(dtype)
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return column


def _sparse_memory(size_bytes: int) -> npt.NDArray[np.uint8]:
    if size_bytes < _HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size_bytes, dtype=np.uint8)
    # Without a reservation it does not count as memory until it is written to.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        area = mmap.mmap(-1, -(-size_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, flags)
    except (OSError, OverflowError) as error:  # mmap raises these where NumPy raises MemoryError
        msg = f"no memory for {size_bytes} bytes"
        raise MemoryError(msg) from error
    with contextlib.suppress(OSError):  # a system without huge pages: it gives small ones
        area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, dtype=np.uint8)
