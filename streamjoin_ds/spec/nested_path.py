"""Paths into nested values: ``payload.after.temp``, ``params.`switch:0`.apower``, ``values[0].v``.

A part is a field of a struct, or a place in a list, from 0. A name with a dot, a bracket or a back-tick stands in
back-ticks; any other name may.

A path is a column of its stream, whose name is the path: `with_paths` adds it to the columns that are written, and what
reads a source finds it there. A column whose own name is the text of a path comes before the path. What is not there is
null: a key, a place in a list, or what holds it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.spec.nested_values import is_list

__all__ = [
    "EACH",
    "METRIC_LINES",
    "SENML",
    "Path",
    "RecordsForm",
    "column_of",
    "inner_column",
    "inner_hint",
    "inner_path",
    "inner_type",
    "inner_value",
    "is_inner",
    "leaf_name",
    "path_name",
    "path_of",
    "path_text",
    "plain_name",
    "records_form",
    "root_fields",
    "with_inner",
    "with_paths",
]

Path: TypeAlias = tuple[str | int, ...]
_PART = re.compile(r"(?:^|\.)(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([^.`\"\[\]]+))|\[([0-9]{1,9})\]")
_QUOTED = re.compile(r"[.\[\]`\"]")


def path_of(text: str) -> Path | None:
    """Return the parts of a path; None where a text is none."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or (not at and text[0] in ".["):
            return None
        ticked, quoted, plain, place = found.groups()
        if ticked is not None:
            plain = ticked.replace("``", "`")
        elif quoted is not None:
            plain = quoted.replace('""', '"')
        parts.append(int(place) if place is not None else plain)
        at = found.end()
    return tuple(parts) or None


def path_name(text: str) -> str:
    """Return the name of a column; that of a path in the one form that a path has."""
    path = path_of(text)
    return text if path is None or len(path) < 2 else path_text(path)


def leaf_name(path: str) -> str:
    """Return the beginning of a path, up to a list, as Parquet names what is nested."""
    parts = path_of(path) or ()
    place = next((place for place, part in enumerate(parts) if isinstance(part, int)), len(parts))
    return ".".join(map(str, parts[:place]))


def plain_name(path: str) -> str:
    """Return the name that a path gives to a column of a result: its parts, of letters, digits and underscores."""
    return "_".join(filter(None, re.split(r"\W+", path)))


def path_text(parts: Sequence[str | int]) -> str:
    """Return the text of a path, as `path_of` reads it."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = "`" + part.replace("`", "``") + "`" if _QUOTED.search(part) else part
            text += f".{name}" if text else name
    return text


_MARK = {b"streamjoin_ds.inner": b""}  # the metadata of a column that is a path, while a join is bound


@lru_cache(maxsize=4096)
def inner_path(name: str) -> tuple[str, Path] | None:
    """Return the column and the path in it that a name says; None where it is a plain name."""
    path = path_of(name)
    return None if path is None or len(path) < 2 else (str(path[0]), path[1:])


def inner_type(columns: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of what a path leads to among columns; None where it leads nowhere."""
    found = inner_path(name)
    if found is None or columns.names.count(found[0]) != 1:
        return None
    kind = columns.field(found[0]).type
    for part in found[1]:
        place = kind.get_field_index(part) if isinstance(part, str) and pa.types.is_struct(kind) else -1
        if place < 0 and not (isinstance(part, int) and is_list(kind)):
            return None
        kind = kind.field(place).type if isinstance(part, str) else kind.value_type
    return kind


def inner_hint(columns: pa.Schema, name: str) -> str | None:
    """Return what there is where a name leads to nothing; None where no column has anything to do with it."""
    found = inner_path(name)
    if found is None:
        paths = [path_text(path) for path in _paths_within(columns) if path[-1] == name]
        return f"did you mean {' or '.join(map(repr, paths[:3]))}? It lies within a column" if paths else None
    if columns.names.count(found[0]) != 1:
        return None
    kind = columns.field(found[0]).type
    for place in range(len(found[1])):
        inner = inner_type(columns, path_text((found[0], *found[1][: place + 1])))
        if inner is None:
            held = path_text((found[0], *found[1][:place]))
            if pa.types.is_struct(kind):
                return f"'{held}' holds {', '.join(field.name for field in kind)}"
            return f"'{held}' is {'a list: its elements are ' + held + '[0], ...' if is_list(kind) else str(kind)}"
        kind = inner
    return None


def _paths_within(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the paths to the fields of structs."""
    for field in fields:
        if above:
            yield (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _paths_within(field.type, (*above, field.name))


def with_paths(columns: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return columns with those that names say which are paths into them, each once."""
    there = {*columns.names}
    kinds = {name: inner_type(columns, name) for name in names if name not in there}
    added = [pa.field(name, kind, metadata=_MARK) for name, kind in kinds.items() if kind is not None]
    return pa.schema([*columns, *added]) if added else columns


def with_inner(columns: pa.Schema, known: pa.Schema, nested: Collection[str]) -> pa.Schema:
    """Return columns with the paths among some that were known, in the types that these had."""
    kept = [field for field in columns if field.name not in nested]
    inner = [field.with_metadata(_MARK) for field in known if field.name in nested]
    return pa.schema([*kept, *inner]) if nested else columns


def is_inner(column: pa.Field) -> bool:
    """Whether a column among those of `with_paths` is a path."""
    return bool(column.metadata) and _MARK.keys() <= column.metadata.keys()


def column_of(columns: pa.Table | pa.RecordBatch, wanted: pa.Field) -> pa.Array | None:
    """Return the column of a name, or what it leads to as a path; None where there is neither."""
    if wanted.name in columns.schema.names:
        return columns.column(wanted.name)
    return inner_column(columns, wanted.name)


def inner_column(columns: pa.Table | pa.RecordBatch, name: str) -> pa.Array | None:
    """Return the values that a path leads to; None where it leads nowhere."""
    found = inner_path(name)
    if found is None or columns.schema.names.count(found[0]) != 1:
        return None
    values = columns.column(found[0])
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    for part in found[1]:
        if isinstance(part, str):
            place = values.type.get_field_index(part) if pa.types.is_struct(values.type) else -1
            if place < 0:
                return None
            values = pc.struct_field(values, [place])  # by its place: Arrow takes a dot in a name for a path
        elif is_list(values.type):
            values = _elements_at(values, part)
        else:
            return None
    return values


def _elements_at(lists: pa.Array, place: int) -> pa.Array:
    """Return one element of each list, null where it is shorter."""
    lengths = pc.list_value_length(lists)
    if len(lists) and pc.all(pc.greater(lengths, place), min_count=0).as_py() and not lists.null_count:
        return pc.list_element(lists, place)
    long = pc.fill_null(pc.greater(lengths, place), False)
    places = pc.if_else(long, pc.subtract(pc.cumulative_sum(long.cast(pa.int64())), 1), None)
    kept = lists.filter(long)
    return (pc.list_element(kept, place) if len(kept) else pa.nulls(0, lists.type.value_type)).take(places)


def inner_value(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a record that a name says: the one of that name, or what a path leads to."""
    if name in record:
        return record[name]
    found = inner_path(name)
    value: Any = record if found is None else record.get(found[0])
    for part in (name,) if found is None else found[1]:
        if isinstance(part, str):
            value = value.get(part) if isinstance(value, Mapping) else None
        else:
            value = (
                value[part]
                if isinstance(value, Sequence) and not isinstance(value, str) and part < len(value)
                else None
            )
    return value


def root_fields(columns: Iterable[pa.Field], paths: Collection[str]) -> list[pa.Field]:
    """Return columns, and in the places of paths those in which they lie, with no more inside than is wanted.

    A column that is wanted itself keeps its type.
    """
    kinds: dict[str, pa.DataType] = {}
    plain = {}
    for column in columns:
        found = inner_path(column.name) if column.name in paths else None
        if found is None:
            plain[column.name] = column
        else:
            kinds[found[0]] = _with_inner(kinds.get(found[0]), found[1], column.type)
    return [
        *(column.with_type(_merged(column.type, kinds.get(name))) for name, column in plain.items()),
        *(pa.field(name, kind) for name, kind in kinds.items() if name not in plain),
    ]


def _with_inner(kind: pa.DataType | None, path: Path, leaf: pa.DataType) -> pa.DataType:
    """Return a type that holds a path and what another one holds."""
    if not path:
        return _merged(leaf, kind)
    part, *rest = path
    if isinstance(part, int):
        return pa.list_(_with_inner(kind.value_type if kind is not None and is_list(kind) else None, tuple(rest), leaf))
    fields = {field.name: field for field in kind} if kind is not None and pa.types.is_struct(kind) else {}
    known = fields[part].type if part in fields else None
    fields[part] = pa.field(part, _with_inner(known, tuple(rest), leaf))
    return pa.struct([*fields.values()])


def _merged(kind: pa.DataType, other: pa.DataType | None) -> pa.DataType:
    """Return a type that holds what two types of one value hold; where they differ, as the first one says."""
    if other is None:
        return kind
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        fields = {field.name: field for field in kind}
        for field in other:
            known = fields.get(field.name, field)
            fields[field.name] = known.with_type(_merged(known.type, field.type))
        return pa.struct([*fields.values()])
    if is_list(kind) and is_list(other):
        return pa.list_(_merged(kind.value_type, other.value_type))
    return kind


class RecordsForm(Struct, frozen=True):
    """Where a text of JSON values has its records: what ``records`` of `Files` says.

    Attributes
    ----------
    rows : tuple of str
        The path of the array of them; empty in the two named forms.
    names : tuple of str
        The path of an array with the names of columns; empty if records have their own.
    kind : str
        "array", or a named form: "$" (each value), "senml", "influx" or "prometheus" (the lines of a message).
    """

    rows: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    kind: str = "array"


EACH, SENML = RecordsForm(kind="$"), RecordsForm(kind="senml")
METRIC_LINES = {kind: RecordsForm(kind=kind) for kind in ("influx", "prometheus")}
_STROKE = re.compile(r"/(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside of back-ticks


def records_form(text: str) -> RecordsForm | None:
    """Return the form of records that a text names; None where it names none."""
    text = text.strip()
    named = {"$": EACH, "$[*]": EACH, "senml": SENML, **METRIC_LINES}.get(text)
    if named is not None:
        return named
    paths = [_array_path(part) for part in _STROKE.split(text)]
    if len(paths) > 2 or not all(paths):
        return None
    *names, rows = [path for path in paths if path is not None]
    return RecordsForm(rows, names[0] if names else ())


def _array_path(text: str) -> tuple[str, ...] | None:
    """Return the path of an array, which JSONPath writes ``$.values[*]``."""
    path = path_of(text.strip().removeprefix("$.").replace("[*]", ""))
    names = tuple(part for part in path or () if isinstance(part, str))
    return names if path is not None and len(names) == len(path) else None
