"""The columns of a stream of many files: which files are looked at before a join begins, and which columns they give.

Files of one stream differ: a month without missing values has whole numbers where another one has doubles, a column
came or went. So the types are those that hold all that is there when the join begins (`spec.common_types`), and the
columns those of all files. Of a folder with many files some are looked at, evenly spread, with the first and the last
one; of a text some pieces. Where records of JSON contradict each other, most of them decide. It depends on nothing but
the files that are there, and what was found stays in the checkpoint.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from msgspec import Struct

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import FileFormatError, StreamJoinError
from streamjoin_ds.source.files.json_lines import check_nulls, told
from streamjoin_ds.source.files.listing import FileEntry, Location
from streamjoin_ds.source.files.text import Text
from streamjoin_ds.source.files.text_blocks import payload_lines
from streamjoin_ds.spec.common_types import LARGEST_EXACT, common_columns, name_there
from streamjoin_ds.spec.member.computed_columns import tried_columns
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.nested_path import inner_path, root_fields

__all__ = ["BEGIN_BYTES", "FoundColumns", "columns_of_files", "json_of_lines", "large_columns", "later_pieces"]

# Files that are looked at beside the first one, at most: here, and on another machine, where each is a request or two.
_MOST_TABLES, _MOST_TEXTS, _MOST_ELSEWHERE = 1000, 32, 16
SAMPLE_BYTES = 64 << 20  # of the first file's text, at most
PIECE_BYTES = 1 << 20  # of the beginning of a later file's text
BEGIN_BYTES = 8 << 20  # of the beginning of a text of which later pieces are looked at, too
_LATER_BYTES, _LATER_PIECES = 256 << 10, 32
_Kind: TypeAlias = tuple[tuple[str | None, ...], str]  # where in a record, None in a list, and what is there


class FoundColumns(Struct, frozen=True):
    """The columns of one file, or of a piece of it.

    Attributes
    ----------
    schema : pyarrow.Schema
    large : sequence of str
        The columns with whole numbers that no double holds.
    folded : bool
        Whether the names of the file's columns may differ in case from those of another file: they stand in its head.
    """

    schema: pa.Schema
    large: Sequence[str] = ()
    folded: bool = True


def large_columns(table: pa.Table) -> list[str]:
    """Return the columns of a table with whole numbers beyond `LARGEST_EXACT`."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.type.bit_width > 32:
            ends = pc.min_max(column)
            low, high = ends["min"].as_py(), ends["max"].as_py()
            if low is not None and max(-low, high) > LARGEST_EXACT:
                found.append(name)
    return found


def columns_of_files(
    entry: FileEntry, location: Location, time: str, look: Callable[[FileEntry, int], FoundColumns]
) -> pa.Schema:
    """Return the columns of all files of a stream.

    Parameters
    ----------
    entry : FileEntry
        The first file with content.
    location : Location
    time : str
        The time column. A later file without it gives no columns: it is refused when it is read.
    look : callable
        Returns the columns of a file, of a text from so many bytes of its beginning.

    Raises
    ------
    StreamJoinError
        No file has columns: why the first one has none.
    """
    found: list[FoundColumns] = []
    names, fault = location.names_listed, None
    try:
        found.append(look(entry, SAMPLE_BYTES))
    except FileFormatError as error:  # another file may have records
        fault = error
    later = names[names.index(entry.name) + 1 :] if entry.name in names else []
    for name in _spread(later, entry.path, is_table=location.has_rows(entry)):
        other = location.entry(name)
        if other is None or not other.size:
            continue
        try:
            columns = look(other, PIECE_BYTES)
        except (StreamJoinError, OSError, pa.ArrowException):  # it is reported when it is read
            continue
        if not time or name_there(time, columns.schema.names) is not None:
            found.append(columns)
    if fault is not None and not found:
        raise fault
    return merged(found)


def merged(found: Sequence[FoundColumns]) -> pa.Schema:
    """Return the columns of several files, or pieces; see `common_columns`."""
    if len(found) == 1:
        return found[0].schema
    folded = all(one.folded for one in found)
    return common_columns([one.schema for one in found], folded=folded, large=[one.large for one in found])


def _spread(names: Sequence[str], path: str, *, is_table: bool) -> list[str]:
    """Return some of the names, evenly spread, with the first and the last one."""
    most = _MOST_ELSEWHERE if not is_local(path) else _MOST_TABLES if is_table else _MOST_TEXTS
    if len(names) <= most:
        return list(names)
    return [names[place] for place in np.linspace(0, len(names) - 1, most).astype(int).tolist()]


def later_pieces(text: Text, path: str, begin: int) -> Iterator[bytes]:
    """Yield pieces of whole lines of a plain text that lie behind byte `begin`, up to its end, evenly spread."""
    last = os.path.getsize(path) - _LATER_BYTES
    places = {max(begin, int(at)) for at in np.linspace(begin, last, _LATER_PIECES)} if last > begin else {begin}
    for place in sorted(places):
        data = text.read(place, _LATER_BYTES)
        cut = data.find(b"\n") + 1 if place > begin else 0
        yield data[cut : data.rfind(b"\n") + 1]


def json_of_lines(data: bytes, stream: Stream) -> pa.Table | None:
    """Return records, a line each, as a table; None where none is an object.

    Broken ones are left out, and where records contradict each other those of the rarer types: they are rejects when
    they are read, and must not keep a join from its start. But a column that a computed one casts by TRY_CAST is a text
    then, so that none of them is a reject for it.
    """
    try:
        found = _json(data)
        # Arrow reads objects of several lines too; a stream has a record in each line.
        return found if 2 * found.num_rows >= sum(1 for line in data.split(b"\n") if line.strip()) else None
    except pa.ArrowInvalid:
        kept = [(line, kinds) for line in data.split(b"\n") if (kinds := _kinds(line)) is not None]
    try:
        return _json(payload_lines([line for line, _ in kept]).data)
    except pa.ArrowInvalid:
        usual = _usual_kinds(kinds for _, kinds in kept)
    if texts := _contradicted(tried_columns(stream.columns), kept):
        return json_of_lines(told(payload_lines([line for line, _ in kept]).data, texts), replace(stream, columns=None))
    try:
        return _json(payload_lines([line for line, kinds in kept if kinds.keys() <= usual]).data)
    except pa.ArrowInvalid:  # none is left
        return None


def _kinds(line: bytes) -> dict[_Kind, None] | None:
    """Return what the values of an object are, by their paths, nulls left out; None for what is no object."""
    try:
        found = json.loads(line.decode())  # bytes alone might be taken for UTF-16
    except (ValueError, RecursionError):
        return None
    return dict.fromkeys(_kinds_in(found, ())) if isinstance(found, dict) else None


def _kinds_in(value: Any, path: tuple[str | None, ...]) -> Iterator[_Kind]:
    if isinstance(value, dict | list):
        yield path, type(value).__name__
        for key, one in value.items() if isinstance(value, dict) else ((None, one) for one in value):
            yield from _kinds_in(one, (*path, key))
    elif value is not None:
        yield path, "number" if type(value) in (int, float) else type(value).__name__


def _usual_kinds(records: Iterable[Iterable[_Kind]]) -> set[_Kind]:
    """Return for each path what most records have there; of two that as many have, what came first."""
    counts: dict[tuple[str | None, ...], Counter[str]] = defaultdict(Counter)
    for kinds in records:
        for path, kind in kinds:
            counts[path][kind] += 1
    return {(path, count.most_common(1)[0][0]) for path, count in counts.items()}


def _contradicted(names: Iterable[str], records: Iterable[tuple[bytes, Iterable[_Kind]]]) -> pa.DataType | None:
    """Return those of some columns that records have in several types, as texts where they lie; None: there is none."""
    there = {kind for _, kinds in records for kind in kinds}
    found = []
    for name in names:
        inner = inner_path(name)
        parts = (name,) if inner is None else (inner[0], *inner[1])
        path = tuple(part if isinstance(part, str) else None for part in parts)
        if sum(path == other for other, _ in there) > 1:
            found.append(pa.field(name, pa.string()))
    return pa.struct(root_fields(found, [field.name for field in found])) if found else None


def _json(data: bytes) -> pa.Table:
    if not data.strip():
        msg = "no records"
        raise pa.ArrowInvalid(msg)
    check_nulls(data)
    return arrow_json.read_json(
        pa.BufferReader(data),
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(newlines_in_values=False),
    )
