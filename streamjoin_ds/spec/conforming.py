"""Brings columns to the types that they have inside this package; nothing overflows or is rounded silently."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US, counted_times, fine_times
from streamjoin_ds.spec.nested_values import is_list

__all__ = ["conformed", "holds_times"]

Mask = npt.NDArray[np.bool_]


def holds_times(kind: pa.DataType) -> bool:
    """Whether values of a type are, or hold, timestamps or dates."""
    types = pa.types
    if types.is_list(kind):
        return holds_times(kind.value_type)
    if types.is_struct(kind):
        return any(holds_times(field.type) for field in kind)
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def conformed(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Return a column brought to the type that it has inside this package, and the rows with a time out of range.

    Parameters
    ----------
    values : pyarrow.Array
        The column as it was read.
    kind : pyarrow.DataType
        A type of `compared_type` or `result_type`. Times are cut off to its unit, towards the past.

    Returns
    -------
    array : pyarrow.Array
        The values; null where a time is out of range.
    out_of_range : ndarray of bool, shape (n,), or None
        Rows with a time outside the years 1 to 9999 (for nanoseconds: 1678 to 2261), also inside a list or struct;
        None if there is none.

    Raises
    ------
    pyarrow.ArrowException
        The values do not fit: they are of another type, or digits would be lost (float64 for float32).
    """
    if values.type == kind and not holds_times(kind):
        return values, None
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_timestamp(kind) and (types.is_timestamp(values.type) or types.is_date(values.type)):
        return _as_timestamps(values, kind)
    if types.is_date32(kind) and types.is_date(values.type):
        return _as_dates(values)
    if types.is_list(kind) and holds_times(kind) and is_list(values.type):
        return _as_lists(values, kind)
    if types.is_struct(kind) and holds_times(kind) and types.is_struct(values.type):
        return _as_structs(values, kind)
    if values.type == kind:
        return values, None
    if _loses_digits(values.type, kind):
        msg = f"a conversion from {values.type} to {kind} would lose digits"
        raise pa.ArrowInvalid(msg)
    cast = values.cast(kind, safe=not types.is_timestamp(values.type))
    return conformed(cast, kind) if holds_times(kind) else (cast, None)  # a cast to times may be out of range


def _loses_digits(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's cast from one type to another would round silently."""
    types = pa.types
    if types.is_list(kind) and is_list(given):
        return _loses_digits(given.value_type, kind.value_type)
    if types.is_struct(kind) and types.is_struct(given):
        names = [field.name for field in given]
        return any(_loses_digits(given.field(f.name).type, f.type) for f in kind if names.count(f.name) == 1)
    if types.is_floating(given):
        return bool(types.is_floating(kind) and kind.bit_width < given.bit_width) or types.is_decimal(kind)
    return bool(types.is_decimal(given) and types.is_floating(kind))


def _nothing_or(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def _as_timestamps(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    given = values.type
    if kind == TIMESTAMP and pa.types.is_timestamp(given) and given.unit == "us":
        ends = pc.min_max(values.view(pa.int64()))
        low, high = ends["min"], ends["max"]
        if not low.is_valid or (low.as_py() >= MIN_TS_US and high.as_py() <= MAX_TS_US):
            return values.view(kind), None
    if kind.unit == "ns" and pa.types.is_timestamp(given) and given.unit == "ns":
        return values.view(kind), None
    times, valid = (fine_times if kind.unit == "ns" else counted_times)(values, "us")
    out = ~valid & np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    return pa.array(times, mask=None if valid.all() else ~valid).cast(kind), _nothing_or(out)


def _as_dates(values: pa.Array) -> tuple[pa.Array, Mask | None]:
    ts, valid = counted_times(values, "us")
    days = pa.array((ts // DAY_US).astype(np.int32), mask=None if valid.all() else ~valid)
    return days.cast(pa.date32()), _nothing_or(~valid & np.asarray(values.is_valid().to_numpy(zero_copy_only=False)))


def _as_lists(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    rows = len(values)
    plain = values.cast(pa.list_(values.type.value_type)) if not pa.types.is_list(values.type) else values
    items, out = conformed(plain.flatten(), kind.value_type)
    lengths = np.asarray(pc.list_value_length(plain).fill_null(0).to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    missing = plain.is_null() if plain.null_count else None
    made = pa.ListArray.from_arrays(offsets, items, type=kind, mask=missing)
    if out is None:
        return made, None
    parents = np.repeat(np.arange(rows), lengths)
    return made, np.isin(np.arange(rows), parents[out])


def _as_structs(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    children = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    out = np.zeros(len(values), np.bool_)
    made = []
    for wanted in kind:
        if wanted.name not in children:
            msg = f"a struct lacks the field {wanted.name}"
            raise pa.ArrowInvalid(msg)
        child, child_out = conformed(children[wanted.name], wanted.type)
        out |= False if child_out is None else child_out
        made.append(child)
    missing = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(made, fields=list(kind), mask=missing), _nothing_or(out)
