"""Views Arrow columns as NumPy arrays and back, where possible without a copy, and gathers rows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import ByteColumn
from streamjoin_ds.spec.key_values import item_dtype, item_values
from streamjoin_ds.spec.nested_values import encoded, is_nested

__all__ = [
    "array_of",
    "byte_column",
    "bytes_of",
    "concatenated",
    "empty_items",
    "filtered",
    "fixed_width",
    "gathered",
    "has_bytes",
    "hashes_of",
    "item_dtype",
    "item_values",
    "one_batch",
    "taken_of",
]


# Bytes of an array from which on the system's allocator maps fresh memory for each array.
_POOLED_BYTES = 1 << 16

_OFFSET_BYTES = 4
_MOST_BYTES = 1 << 30  # of lists and structs that are hashed together; a column of bytes holds twice as many


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
