"""Lists and structs as bytes: two values are equal iff their bytes are, so what compares strings compares them too.

::

    value                  bytes
    ──────────────────     ─────────────────────────────────────────────────────────────────────────────
    null inside            0, then zeros in the place of a fixed width and of a length
    number, boolean,       1, then the item: -0.0 as 0.0, each NaN as one NaN
      date, time, decimal
    string, binary         1, the length in 4 bytes, then the bytes
    list                   1, the count in 4 bytes, then the elements
    struct                 1, then the fields in their order; their names do not count

Equal are what Spark calls equal (ARCHITECTURE.md, "Lists and structs"). Inside a list or struct null equals null and
NaN equals NaN. A list that is null itself has no bytes: it is null. The bytes depend on the values alone, not on how
an array was cut or chunked, nor on the kind of list. They are made of whole arrays, level by level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "encoded",
    "has_fine_times",
    "is_list",
    "is_nested",
    "shape_text",
    "type_text",
    "with_leaves",
    "without_empty",
]

_VALUES_AT_ONCE = pa.large_binary()  # 64-bit offsets: the bytes are more than the values
_LENGTH = np.dtype("<u4")


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists, of whatever kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of a type are lists or structs."""
    return is_list(kind) or bool(pa.types.is_struct(kind))


def type_text(kind: pa.DataType, *, named: bool = True) -> str:
    """Return a type for people: ``list<struct<x: int32>>``; without the names of fields where they are not `named`."""
    if is_list(kind):
        return f"list<{type_text(kind.value_type, named=named)}>"
    if pa.types.is_struct(kind):
        fields = (f"{f'{field.name}: ' if named else ''}{type_text(field.type, named=named)}" for field in kind)
        return f"struct<{', '.join(fields)}>"
    return str(kind)


def without_empty(columns: pa.Schema) -> pa.Schema:
    """Return columns without structs that have no field, also inside: ``{}`` in each record of JSON holds no value."""
    kinds = [_without_empty(column.type) for column in columns]
    return pa.schema([column.with_type(kind) for column, kind in zip(columns, kinds, strict=True) if kind is not None])


def _without_empty(kind: pa.DataType) -> pa.DataType | None:
    if is_list(kind):
        inner = _without_empty(kind.value_type)
        return kind if inner == kind.value_type else None if inner is None else pa.list_(inner)
    if not pa.types.is_struct(kind):
        return kind
    kept = [(field.name, inner) for field in kind if (inner := _without_empty(field.type)) is not None]
    return pa.struct(kept) if kept else None


def shape_text(kind: pa.DataType) -> str:
    """Return what two types of lists or structs have in common whose values can be compared: all but fields' names."""
    return type_text(kind, named=False)


def has_fine_times(kind: pa.DataType) -> bool:
    """Whether a list or struct holds timestamps in nanoseconds, which it carries as microseconds."""
    if is_list(kind):
        return has_fine_times(kind.value_type)
    if pa.types.is_struct(kind):
        return any(has_fine_times(field.type) for field in kind)
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def encoded(values: pa.Array) -> pa.Array:
    """Return lists or structs as bytes (large_binary), null where they are.

    Parameters
    ----------
    values : pyarrow.Array
        Of lists or structs of any depth, of the types of `streamjoin_ds.spec.columns.result_type`.
    """
    found = _bytes_of(values)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, found.type)) if values.null_count else found


def with_leaves(values: pa.Array, kind: pa.DataType, change: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return values of a type, whose innermost ones come of others by `change`, which is given those and their type.

    `values` have the lists and structs of `kind`; lists become plain ones.
    """
    missing = values.is_null() if values.null_count else None
    if is_list(kind):
        lengths = np.where(_valid(values), pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False), 0)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        items = with_leaves(values.flatten(), kind.value_type, change)
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=missing)
    if pa.types.is_struct(kind):
        children = zip(values.flatten(), kind, strict=True)
        made = [with_leaves(child, field.type, change) for child, field in children]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=missing)
    return change(values, kind)


def _bytes_of(values: pa.Array) -> pa.Array:
    """Return the bytes of each value, for a null too."""
    kind = values.type
    if is_list(kind):
        return _lists(values)
    if pa.types.is_struct(kind):
        return _joined([_items(_valid(values)[:, None]), *map(_bytes_of, values.flatten())])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        plain = values.fill_null(b"" if pa.types.is_binary(kind) else "").cast(_VALUES_AT_ONCE)
        return _joined([_lengths(_valid(values), pc.binary_length(plain)), plain])
    return _items(np.concatenate([_valid(values)[:, None], _fixed(values)], axis=1))


def _lists(values: pa.Array) -> pa.Array:
    valid = _valid(values)
    lengths = np.where(valid, pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False), 0)
    elements = _bytes_of(values.flatten())  # without those in the slots of nulls
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # The elements of a list lie one after the other, so their bytes are one stretch.
    _, offsets, data = elements.buffers()
    starts = np.frombuffer(offsets, np.int64, len(elements) + 1) if len(elements) else np.zeros(1, np.int64)
    stretches = starts[ends]
    together = pa.Array.from_buffers(
        _VALUES_AT_ONCE, len(values), [None, pa.py_buffer(np.ascontiguousarray(stretches)), data], null_count=0
    )
    return _joined([_lengths(valid, pa.array(lengths)), together])


def _joined(parts: list[pa.Array]) -> pa.Array:
    """Return the bytes of several arrays, row by row one after the other."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _VALUES_AT_ONCE))


def _lengths(valid: npt.NDArray[np.bool_], lengths: pa.Array) -> pa.Array:
    counts = np.ascontiguousarray(lengths.to_numpy(zero_copy_only=False), dtype=_LENGTH)
    return _items(np.concatenate([valid[:, None], counts.view(np.uint8).reshape(-1, _LENGTH.itemsize)], axis=1))


def _items(rows: npt.NDArray[Any]) -> pa.Array:
    """Return the rows of a matrix of bytes as binary values."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    data = np.ascontiguousarray(rows, dtype=np.uint8)
    return pa.Array.from_buffers(
        _VALUES_AT_ONCE, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _fixed(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the items of a type of fixed width as bytes, zeros for nulls."""
    kind, count = values.type, len(values)
    if pa.types.is_boolean(kind):
        return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint8).reshape(-1, 1)
    if pa.types.is_floating(kind):
        plain = values.fill_null(0).to_numpy(zero_copy_only=False) + kind.to_pandas_dtype()(0)  # -0.0 becomes 0.0
        items = np.where(np.isnan(plain), kind.to_pandas_dtype()("nan"), plain)
        return np.ascontiguousarray(items).view(np.uint8).reshape(count, kind.bit_width // 8)
    width = kind.bit_width // 8
    data = values.buffers()[1]
    if data is None or not count:
        return np.zeros((count, width), np.uint8)
    items = np.frombuffer(data, np.uint8, count * width, values.offset * width).reshape(count, width)
    return np.where(_valid(values)[:, None], items, np.uint8(0)) if values.null_count else items
