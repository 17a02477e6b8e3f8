"""Columns of a stream: their names and types as they are written, inside this package, and in a Delta table.

A type is written by Arrow's name, in a mapping, a join file or a flag. Inside, and in a table, a column has one of
Delta's types (`result_type`). `JoinEngine` carries some types more (`carried_type`), and a compared column keeps its
nanoseconds (`compared_type`). A column that is declared in a zone other than UTC takes no time without an offset. A
name that is not there is refused with the nearest names.
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Callable, Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.errors import ColumnError, SchemaDriftError
from streamjoin_ds.spec.nested_values import is_list

if TYPE_CHECKING:
    import pandas

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MOST_PRECISION",
    "NANOSECONDS",
    "OTHER_NAME",
    "SEQ",
    "TIMESTAMP",
    "TS",
    "Float64",
    "Int64",
    "Mask",
    "arrow_type",
    "as_declared",
    "carried_type",
    "check_result_name",
    "compared_type",
    "foreign_zone",
    "is_text",
    "lacks_zone",
    "marked_needed",
    "names_hint",
    "needed_columns",
    "not_of_type",
    "pandas_table",
    "parts_of",
    "result_name",
    "result_type",
    "says_no_zone",
    "schema_facts",
    "schema_from_text",
    "schema_text",
    "without_zone",
    "zones_of",
]

# The values of a column in NumPy, and the least and the largest that int64 has.
Int64: TypeAlias = npt.NDArray[np.int64]
Float64: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
MOST_PRECISION = 38  # digits of a decimal in Spark and Delta
_ALIASES = {"timestamp": "timestamp[us]", "float": "float32"}
_OPEN, _CLOSE = "<[(", ">])"
_NOT_NULL = " not null"
_MOST_DEPTH = 32  # of lists and structs in each other
# Names of the two columns that every tuple has in the inside form; no column of a user may have them.
TS = "_ts"  # event time, int64 microseconds UTC
SEQ = "_seq"  # number within its stream, int64
# The type of an event time in a result.
TIMESTAMP = pa.timestamp("us", tz="UTC")
# The type in which a column of nanoseconds is compared; a Delta table has no such type.
NANOSECONDS = pa.timestamp("ns", tz="UTC")
_OF_UTC = frozenset(
    {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Z", "Universal", "Etc/Universal"}
    | {f"{sign}{zero}" for sign in "+-" for zero in ("00", "0000", "00:00")}
)  # names of zones whose clock shows UTC
# What makes local times UTC where they are: Spark's function, for start(frames=...).
_LOCAL = "to_utc_timestamp(column, '{zone}') of Spark, with start(frames=...)"
_MOST_NAMES = 20  # names that a hint lists
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}  # by which a line of names that is not cut is known
# How a result column gets a name that it can have.
OTHER_NAME = "give it another name, as select='e.x AS name' does, or leave it out with select"
_NEEDED = {b"needed": b"1"}
_REFUSED_CHARACTERS = frozenset(" ,;{}()\n\t=")  # Delta refuses these in a name, without column mapping


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that ``str(type)`` printed: also timestamps, decimals, lists and structs.

    Of a list the name of its items may be left out: ``list<int32>`` is ``list<item: int32>``.

    Raises
    ------
    ValueError, KeyError
        There is no such type.
    """
    return _type(text, 0)


def _type(text: str, depth: int) -> pa.DataType:
    text = text.strip()
    if depth > _MOST_DEPTH:
        msg = "lists and structs lie too deep in each other"
        raise ValueError(msg)
    for prefix, made in (("list<", pa.list_), ("large_list<", pa.large_list)):
        if text.startswith(prefix) and text.endswith(">"):
            return made(_item(text[len(prefix) : -1], depth))
    if text.startswith("fixed_size_list<") and text.endswith("]"):
        inner, _, size = text[len("fixed_size_list<") : -1].rpartition(">[")
        return pa.list_(_item(inner, depth), int(size))
    if text.startswith("struct<") and text.endswith(">"):
        return pa.struct([_field(part, depth) for part in parts_of(text[len("struct<") : -1], ",")])
    if text.startswith("timestamp[") and text.endswith("]"):
        unit, _, zone = text[len("timestamp[") : -1].partition(",")
        return pa.timestamp(unit.strip(), tz=zone.strip().removeprefix("tz=").strip() or None)
    prefix, _, digits = text.partition("(")
    if prefix in ("decimal", "decimal128") and digits.endswith(")"):
        precision, scale = (int(part) for part in digits[:-1].split(","))
        return pa.decimal128(precision, scale)
    return pa.type_for_alias(_ALIASES.get(text, text))


def _item(text: str, depth: int) -> pa.Field:
    named = text if len(parts_of(text, ":")) > 1 else f"item: {text}"
    return _field(named, depth)


def _field(text: str, depth: int) -> pa.Field:
    name, *rest = parts_of(text, ":")
    kind = ":".join(rest).strip()
    plain = kind.removesuffix(_NOT_NULL)
    return pa.field(name.strip(), _type(plain, depth + 1), nullable=plain == kind)


def pandas_table(frame: pandas.DataFrame, whose: str, time: str | None) -> pa.Table:
    """Return a pandas frame as a table; its index is a column if it is the event time, or times.

    Raises
    ------
    ColumnError
        A column holds values of several types.
    """
    index = frame.index
    if time is not None and time not in frame.columns and (time in index.names or index.dtype.kind == "M"):
        frame = (frame if any(index.names) else frame.rename_axis(time)).reset_index()
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        found = re.search("column (.*) with type", str(error.args[-1]))
        if found is None:
            raise
        msg = f"column '{found[1]}' of {whose} holds values of several types"
        hint = f"make them one, such as frame.astype({{{found[1]!r}: str}}), or drop the column"
        raise ColumnError(msg, name=found[1], hint=hint) from None


def parts_of(text: str, separator: str) -> list[str]:
    """Return a text's parts between separators that stand in no brackets."""
    parts, level, begin = [], 0, 0
    for place, character in enumerate(text):
        level += (character in _OPEN) - (character in _CLOSE)
        if character == separator and not level:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


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
    marks = [told for mark, told in _OTHER_DELIMITERS.items() if len(valid) == 1 and mark in valid[0]]
    if marks:
        return f"each line is one column there, '{valid[0]}': set the delimiter to {marks[0]}"
    first = re.split(r"[.\[]", name, maxsplit=1)[0]
    if first != name and first in valid:
        return f"'{name}' leads to nothing in '{first}'; {listed}"
    if not near:
        return listed
    meant = " or ".join(f"'{other}'" for other in near)
    return f"did you mean {meant}{', as names are case-sensitive' if same else ''}? {listed}"


def result_name(member: str, column: str) -> str:
    """Return the name of a column in a result where none is given: ``e_x``; ``w_Temp_C`` of ``Temp (C)``."""
    name = f"{member}_{column}"
    if not set(name) & _REFUSED_CHARACTERS:
        return name
    return re.sub(f"[{re.escape(''.join(_REFUSED_CHARACTERS))}]+", "_", name).rstrip("_")


def check_result_name(name: str, source: str) -> None:
    """Refuse a name that a column of a Delta table cannot have."""
    if not name or set(name) & _REFUSED_CHARACTERS:
        msg = f"the result column '{name}' of {source} has a name that Delta does not allow for a column"
        raise ColumnError(msg, name=name, hint=f"{OTHER_NAME}; it has no spaces and none of , ; {{ }} ( ) =")


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


def marked_needed(schema: pa.Schema, needed: Collection[str]) -> pa.Schema:
    """Return columns of which those that a condition or a key of the join needs are known by `needed_columns`."""
    return pa.schema([column.with_metadata(_NEEDED) if column.name in needed else column for column in schema])


def needed_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns that every file must have: those that are marked, and those that allow no nulls."""
    return frozenset(column.name for column in schema if not column.nullable or column.metadata == _NEEDED)


def foreign_zone(kind: pa.DataType) -> str | None:
    """Return the zone other than UTC that a type of timestamps names, also inside lists and structs; else None."""
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None or kind.tz in _OF_UTC else str(kind.tz)
    if not kind.num_fields:
        return None
    if is_list(kind):
        return foreign_zone(kind.value_type)
    if pa.types.is_struct(kind):
        return next((zone for field in kind if (zone := foreign_zone(field.type))), None)
    return None


def zones_of(declared: object) -> dict[str, str]:
    """Return the foreign zones of declared columns by their names; none where nothing is declared."""
    if not isinstance(declared, pa.Schema):
        return {}
    return {field.name: zone for field in declared if (zone := foreign_zone(field.type))}


def lacks_zone(kind: pa.DataType) -> bool:
    """Whether values of a type are, or hold, times that say no zone: timestamps without one, and dates."""
    if is_list(kind):
        return lacks_zone(kind.value_type)
    if pa.types.is_struct(kind):
        return any(lacks_zone(field.type) for field in kind)
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def not_of_type(kind: pa.DataType) -> str:
    """Return why a text is no value of a column of this type, as `as_declared` gives it."""
    return f"the value is not of type {kind}" + ", with an offset" * (foreign_zone(kind) is not None)


def says_no_zone(value: object) -> bool:
    """Whether a Python value is, or holds, a time that says no zone: a datetime without one, or a date."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(says_no_zone, value.values() if isinstance(value, dict) else value))
    return isinstance(value, np.datetime64) or (isinstance(value, date) and getattr(value, "tzinfo", None) is None)


def without_zone(column: str, whose: str, zone: str) -> SchemaDriftError:
    """Return the error for times without a zone in a column that is declared in a foreign one."""
    msg = f"column '{column}' of {whose} is declared in the zone {zone}, but its values say no zone"
    hint = "timezone='{zone}' says so of event times; declare others timestamp[us] if they are UTC; else give them "
    hint += f"their offset, or make them UTC before: {_LOCAL}"
    return SchemaDriftError(msg, name=column, hint=hint.format(zone=zone))


def as_declared(schema: pa.Schema, declared: object) -> pa.Schema:
    """Return columns of inside types with the foreign zones that were declared for them.

    What reads values goes by it: a text without an offset is no time of a column in such a zone.
    """
    if not zones_of(declared):
        return schema
    assert isinstance(declared, pa.Schema)
    kinds = {field.name: field.type for field in declared}
    return pa.schema([field.with_type(_zoned(field.type, kinds.get(field.name))) for field in schema])


def _zoned(kind: pa.DataType, declared: pa.DataType | None) -> pa.DataType:
    if declared is None or (zone := foreign_zone(declared)) is None:
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, tz=zone)
    if is_list(kind):
        return pa.list_(_zoned(kind.value_type, declared.value_type))
    inner = {field.name: field.type for field in declared}
    return pa.struct([field.with_type(_zoned(field.type, inner.get(field.name))) for field in kind])


def schema_facts(schema: pa.Schema) -> list[list[str]]:
    """Return the names and type names of a schema: the part of it that can change a result."""
    return [[field.name, str(field.type)] for field in schema]


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as a text for JSON; names of types alone cannot say lists, structs and nullability."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """Return the schema that `schema_text` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
