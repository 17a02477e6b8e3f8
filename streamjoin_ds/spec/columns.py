"""Columns of a stream: hints for a name that is not there, and a column's type inside this package and in a table."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec.nested_values import is_list

__all__ = [
    "NANOSECONDS",
    "SEQ",
    "TIMESTAMP",
    "TS",
    "carried_type",
    "check_result_name",
    "compared_type",
    "names_hint",
    "result_type",
    "schema_facts",
]

# Names of the two columns that every tuple has in the inside form; no column of a user may have them.
TS = "_ts"  # event time, int64 microseconds UTC
SEQ = "_seq"  # number within its stream, int64

# The type of an event time in a result.
TIMESTAMP = pa.timestamp("us", tz="UTC")
# The type in which a column of nanoseconds is compared; a Delta table has no such type.
NANOSECONDS = pa.timestamp("ns", tz="UTC")

_MOST_NAMES = 20  # names that a hint lists
_REFUSED_CHARACTERS = frozenset(" ,;{}()\n\t=")  # Delta refuses these in a name, without column mapping


def names_hint(name: str, valid: Sequence[str], what: str) -> str:
    """Return a hint for a name that is not there: the nearest names, then the valid ones after `what`.

    `what` is a beginning such as "its columns are".
    """
    same = [other for other in valid if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, valid, 3)
    known = ", ".join(valid[:_MOST_NAMES]) + (
        f" and {len(valid) - _MOST_NAMES} more" if len(valid) > _MOST_NAMES else ""
    )
    listed = f"{what} {known}" if valid else f"{what} none"
    if not near:
        return listed
    meant = " or ".join(f"'{other}'" for other in near)
    return f"did you mean {meant}{', as names are case-sensitive' if same else ''}? {listed}"


def check_result_name(name: str, source: str) -> None:
    """Refuse a name that a column of a Delta table cannot have."""
    if not name or set(name) & _REFUSED_CHARACTERS:
        msg = f"the result column '{name}' of {source} has a name that Delta does not allow for a column"
        raise ColumnError(msg, name=name, hint="leave it out with select, or rename the column")


def result_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type that a column has inside this package and in the table: one of Delta's types.

    Unsigned integers widen, float16 becomes float32, narrow decimals become decimal128. Large, fixed-size and
    dictionary-encoded values become plain ones. Timestamps become microseconds UTC; those without a zone are UTC.

    Raises
    ------
    ColumnError
        Delta does not have the type: uint64, time of day, durations, unions, decimals of more than 38 digits.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return result_type(kind.value_type, name)
    widened = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}
    if kind in widened:
        return widened[kind]
    if types.is_timestamp(kind):
        return TIMESTAMP
    if types.is_date(kind):
        return pa.date32()
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.bit_width <= 128 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    plain = types.is_signed_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if plain or types.is_string(kind) or types.is_binary(kind):
        return kind
    if _has_inner(kind):
        return _with_inner(kind, name, result_type)
    msg = f"column '{name}' has the type {kind}, which a Delta table cannot hold"
    raise ColumnError(msg, name=name, hint="leave it out with select, or cast it first")


def carried_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type that a column has inside this package: its `result_type`, or one that no Delta table has.

    These are uint64, and durations and times of day in microseconds, or in nanoseconds where the column has these, also
    inside lists and structs. `JoinEngine` carries and compares them; where there are tables, the plan refuses them.

    Raises
    ------
    ColumnError
        It is none of these types.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return carried_type(kind.value_type, name)
    if types.is_uint64(kind):
        return kind
    if types.is_duration(kind):
        return pa.duration("ns" if kind.unit == "ns" else "us")
    if types.is_time(kind):
        return pa.time64("ns" if kind.unit == "ns" else "us")
    return _with_inner(kind, name, carried_type) if _has_inner(kind) else result_type(kind, name)


def _has_inner(kind: pa.DataType) -> bool:
    return is_list(kind) or bool(pa.types.is_struct(kind) and kind.num_fields)


def _with_inner(kind: pa.DataType, name: str, inner: Callable[[pa.DataType, str], pa.DataType]) -> pa.DataType:
    """Return a type of lists or structs with the types inside that `inner` gives; lists become plain ones."""
    if is_list(kind):
        return pa.list_(inner(kind.value_type, name))
    for field in kind:
        check_result_name(field.name, name)
    return pa.struct([pa.field(field.name, inner(field.type, name), field.nullable) for field in kind])


def compared_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which a column is compared: its `carried_type`, but nanoseconds stay nanoseconds."""
    if pa.types.is_dictionary(kind):
        return compared_type(kind.value_type, name)
    return NANOSECONDS if pa.types.is_timestamp(kind) and kind.unit == "ns" else carried_type(kind, name)


def schema_facts(schema: pa.Schema) -> list[list[str]]:
    """Return the names and type names of a schema: the part of it that can change a result."""
    return [[field.name, str(field.type)] for field in schema]
