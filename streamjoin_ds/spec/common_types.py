"""Types that differ between the files of one stream: the type that holds both, and values brought to it exactly.

::

    null                            any type
    whole numbers                   the larger one; with floats the float that holds them: double beside int32 and int64
    float, double                   double
    decimals, whole numbers         the decimal that has the digits of both
    date, timestamps of all units   the timestamp in the finest unit
    string, large_string, ...       string; binary likewise; a dictionary is its values
    lists, structs                  the same inside them; a struct has the fields of both

What a stream's columns are is decided once, when it begins. A file that comes later may have another type: each of its
values is taken where it is the same number in the column's type, and a record with another one is a reject. So an int64
beyond 2^53 is none of a double, and 16.81 is none of an int64. A decimal and a float never are the same column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.columns import MOST_PRECISION, TIMESTAMP, Mask, carried_type
from streamjoin_ds.spec.nested_values import is_list, is_nested

__all__ = ["LARGEST_EXACT", "common_columns", "common_type", "exactly", "fits", "is_alike", "name_there"]

LARGEST_EXACT = 1 << 53  # up to here a double holds each whole number
_UNITS = ("s", "ms", "us", "ns")
_MOST_DIGITS = 76  # of Arrow's widest decimal
_FLOAT32_BITS = 24  # of a whole number that a float32 holds
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of a whole number, by its bits


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that has these two types in two files; None where no type holds both exactly."""
    types = pa.types
    one, other = (kind.value_type if types.is_dictionary(kind) else kind for kind in (one, other))
    both = one, other
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if all(types.is_integer(kind) for kind in both):
        return _common_integer(one, other)
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in both):
        is_small = all(kind.bit_width <= (16 if types.is_integer(kind) else 32) for kind in both)
        return pa.float32() if is_small else pa.float64()
    if all(types.is_integer(kind) or types.is_decimal(kind) for kind in both):
        return _common_decimal(one, other)
    if all(types.is_temporal(kind) and not (types.is_time(kind) or types.is_duration(kind)) for kind in both):
        return _common_time(one, other)
    if all(map(_is_text, both)):
        return pa.string()
    if all(map(_is_binary, both)):
        return pa.binary()
    if all(map(is_list, both)):
        inner = common_type(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if all(map(types.is_struct, both)):
        found = common_columns([pa.schema(list(one)), pa.schema(list(other))], folded=False)
        return pa.struct(list(found)) if all(_is_common(found.field(f.name).type, f.type) for f in other) else None
    return None


def _is_common(found: pa.DataType, given: pa.DataType) -> bool:
    return bool(common_type(found, given) == found)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(plain or types.is_fixed_size_binary(kind) or types.is_binary_view(kind))


def _common_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = [pa.types.is_signed_integer(kind) for kind in (one, other)]
    if signed[0] == signed[1]:
        return max(one, other, key=lambda kind: kind.bit_width)
    bits = max(kind.bit_width * (1 if is_signed else 2) for kind, is_signed in zip((one, other), signed, strict=True))
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(bits)


def _common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    parts = [
        (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else (_DIGITS[kind.bit_width], 0)
        for kind in (one, other)
    ]
    whole, scale = (max(part) for part in zip(*parts, strict=True))
    return pa.decimal128(whole + scale, scale) if scale >= 0 and whole + scale <= MOST_PRECISION else None


def _common_time(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    stamps = [kind for kind in (one, other) if pa.types.is_timestamp(kind)]
    if not stamps:
        return pa.date32()
    zone = next((kind.tz for kind in stamps if kind.tz is not None), None)
    return pa.timestamp(max((kind.unit for kind in stamps), key=_UNITS.index), tz=zone)


def name_there(name: str, names: Sequence[str]) -> str | None:
    """Return which of a file's names a column has there: its own, or the only one that differs in case; else None."""
    if name in names:
        return name
    alike = [other for other in names if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def common_columns(
    schemas: Iterable[pa.Schema], *, folded: bool = True, large: Iterable[Sequence[str]] = ()
) -> pa.Schema:
    """Return the columns of all files, in the order in which they come: each with the type that holds all of its own.

    Where no type does, the first file's stays. Of names that differ in case alone, and never are in one file, the first
    one counts.

    Parameters
    ----------
    schemas : iterable of pyarrow.Schema
        The columns of each file.
    folded : bool
        Whether names may differ in case.
    large : iterable of sequence of str
        For each file the columns with whole numbers beyond `LARGEST_EXACT`: such a column becomes no column of floats.
    """
    schemas, beyond = list(schemas), {name.lower() for names in large for name in names}
    found: dict[str, pa.Field] = {}
    for schema in schemas:
        taken = [*found]
        for column in schema:
            known = name_there(column.name, taken) if folded and column.name not in found else column.name
            name = known if known is not None and (known == column.name or known not in schema.names) else column.name
            before = found.get(name)
            if before is None:
                found[name] = column.with_name(name).remove_metadata()
                continue
            kind = common_type(before.type, column.type)
            if kind is not None and pa.types.is_floating(kind) and name.lower() in beyond:
                kind = next((one for one in (before.type, column.type) if pa.types.is_integer(one)), kind)
            found[name] = pa.field(name, before.type if kind is None else kind, before.nullable or column.nullable)
    missing = {name for name in found if any(name_there(name, schema.names) is None for schema in schemas)}
    return pa.schema([column.with_nullable(column.nullable or name in missing) for name, column in found.items()])


def fits(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a type may be values of a column with the inside type `kind`; see `exactly`."""
    try:
        carried = carried_type(given, "")
    except ColumnError:
        return False
    if is_alike(given, kind) or pa.types.is_null(given):
        return True
    common = common_type(carried, kind)
    if is_nested(kind):
        return bool(common == kind)
    return common is not None and not (pa.types.is_timestamp(carried) and pa.types.is_date(kind))


def is_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column of this type is one of the inside type `kind` as it is."""
    try:
        return bool(carried_type(given, "") == (TIMESTAMP if pa.types.is_timestamp(kind) else kind))
    except ColumnError:
        return False


def exactly(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Return values of another type as values of a column, and which of them are none.

    Parameters
    ----------
    values : pyarrow.Array
        Of a type that `fits`.
    kind : pyarrow.DataType
        The inside type of the column. Times are left as they are: each stream brings them to its units.

    Returns
    -------
    array : pyarrow.Array
        The values; null where a value is none of `kind`.
    misfits : ndarray of bool, shape (n,), or None
        The values that `kind` does not hold exactly; None: all are held.
    """
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    given = values.type
    if given == kind or types.is_temporal(kind):
        return (values.cast(kind) if types.is_null(given) else values), None
    if (types.is_integer(given) or types.is_floating(given)) and (types.is_integer(kind) or types.is_floating(kind)):
        return _numbers(values, kind)
    if types.is_integer(given) and types.is_decimal(kind):  # Arrow goes by the type, not by its values
        values = values.cast(pa.decimal256(_MOST_DIGITS, kind.scale))
    try:
        return values.cast(kind), None
    except pa.ArrowInvalid:
        misfits = np.zeros(len(values), np.bool_)
        _search(values, kind, 0, misfits)
        return pc.if_else(pa.array(misfits), pa.scalar(None, values.type), values).cast(kind), misfits


def _numbers(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert whole numbers and floats: a value is held where the way back gives it again."""
    types, given = pa.types, values.type
    if types.is_integer(given) and types.is_integer(kind):
        try:
            return values.cast(kind), None
        except pa.ArrowInvalid:
            cast = values.cast(kind, safe=False)
            back = cast.cast(given, safe=False)
            # uint64 and int64 have each other's bits: the way back hides a changed sign.
            zero, there = pa.scalar(0, given), pa.scalar(0, kind)
            misfit = pc.or_(pc.not_equal(back, values), pc.xor(pc.less(values, zero), pc.less(cast, there)))
    elif types.is_integer(given):
        cast, whole = values.cast(kind, safe=False), values.cast(pa.decimal128(20, 0))
        bound = pa.scalar(1 << (53 if types.is_float64(kind) else _FLOAT32_BITS), pa.int64()).cast(whole.type)
        misfit = pc.greater(pc.abs(whole), bound)
    elif types.is_integer(kind):
        end = float(1 << (kind.bit_width - types.is_signed_integer(kind)))
        low = -end if types.is_signed_integer(kind) else 0.0
        inside = pc.and_(pc.greater_equal(values, low), pc.less(values, end))  # false for NaN
        misfit = pc.invert(pc.and_(inside, pc.equal(pc.floor(values), values)))
        cast = pc.if_else(misfit, pa.scalar(0, given), values).cast(kind)
    else:
        cast = values.cast(kind, safe=False)
        misfit = pc.and_(pc.not_equal(cast.cast(given), values), pc.invert(pc.is_nan(values)))
    told = np.asarray(pc.fill_null(misfit, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    if not told.any():
        return cast, None
    return pc.if_else(pa.array(told), pa.scalar(None, kind), cast), told


def _search(values: pa.Array, kind: pa.DataType, begin: int, misfits: Mask) -> None:
    """Mark the values that cannot be cast: halve them until each is alone."""
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        if len(values) == 1:
            misfits[begin] = True
            return
        middle = len(values) // 2
        _search(values[:middle], kind, begin, misfits)
        _search(values[middle:], kind, begin + middle, misfits)
