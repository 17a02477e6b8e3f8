"""Files of rows, such as Parquet: each is complete when it appears, and is read by row number."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.blocks.files import OpenFile, files_at
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import FileFormatError, FileMissingError, SchemaDriftError
from streamjoin_ds.source.files.lines import DRIFT_RECORDS, DRIFT_SAMPLE, names_there
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.files.row_formats import row_groups
from streamjoin_ds.source.records import RawRecords, record_text
from streamjoin_ds.spec.columns import foreign_zone, lacks_zone, without_zone
from streamjoin_ds.spec.common_types import common_type, exactly, fits, is_alike
from streamjoin_ds.spec.nested_path import column_of, inner_path, is_inner, leaf_name, with_paths

__all__ = ["RowFile", "content_digest", "first_rows", "footer_of", "row_columns"]

_NAMES = {
    "parquet": "Parquet",
    "orc": "ORC",
    "avro": "an Avro object container file",
    "arrow": "an Arrow file or stream",
}
_FOOTER_END = 8  # bytes at the end of a file: the length of its footer, and "PAR1"
_PARQUET_END = b"PAR1"
_READ_ROWS = 1 << 17  # rows in one piece, at most

# Digests of whole files, by path and stamp. They are a hint, which spares reading the same bytes again.
_digests: OrderedDict[tuple[str, int, int, int], bytes] = OrderedDict()
_KEPT_DIGESTS = 1024  # files whose digests are kept


def content_digest(entry: FileEntry) -> bytes:
    """Return the XXH3-128 of a whole file, 16 bytes.

    Of an object in a store it is that of its size, its entity tag and its footer, which says where and what its columns
    are: the store tells by the tag that the object was replaced, and its bytes need not all be fetched.
    """
    if not is_local(entry.path):  # only the file that is open tells the tag; a time is in whole seconds there
        return _digest_elsewhere(entry)
    key = (entry.path, *entry.stamp)
    if key not in _digests:
        _digests[key] = _digest_here(entry)
        while len(_digests) > _KEPT_DIGESTS:
            _digests.popitem(last=False)
    return _digests[key]


def _digest_here(entry: FileEntry) -> bytes:
    with _opened(entry) as file:
        if not entry.size:
            return xxhash.xxh3_128_digest(b"")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return xxhash.xxh3_128_digest(data)


def _digest_elsewhere(entry: FileEntry) -> bytes:
    try:
        file = files_at(entry.path).open(entry.path)
    except FileNotFoundError:
        raise _gone(entry) from None
    size, _, tag = file.stamp
    try:
        return xxhash.xxh3_128_digest(f"{size}/{tag}/".encode() + footer_of(file))
    finally:
        file.close()


def footer_of(file: OpenFile) -> bytes:
    """Return the footer of a Parquet file; the last bytes of what is none."""
    size = file.stamp[0]
    told = file.read_at(max(size - _FOOTER_END, 0), _FOOTER_END)
    length = int.from_bytes(told[:4], "little") if told.endswith(_PARQUET_END) else 0
    begin = max(size - _FOOTER_END - length, 0)
    return file.read_at(begin, size - _FOOTER_END - begin)


def _opened(entry: FileEntry) -> BinaryIO:
    try:
        return open(entry.path, "rb")
    except FileNotFoundError:
        raise _gone(entry) from None


def _gone(entry: FileEntry) -> FileMissingError:
    msg = f"the file {entry.path} is not there any more"
    return FileMissingError(msg, name=entry.path, hint="put it back as it was")


def row_columns(path: str, kind: str = "parquet") -> tuple[pa.Schema, list[str]]:
    """Return the columns of a file, and those with whole numbers that no double holds, as far as its footer tells.

    Raises
    ------
    pyarrow.ArrowInvalid, OSError
        The file is not of this format.
    """
    groups = row_groups(lambda: _input(path, kind), kind, None)
    return groups.schema, groups.large()


def first_rows(path: str, kind: str, most: int) -> pa.Table:
    """Return the first rows of a file, at most `most`, in all columns; errors as those of `row_columns`."""
    groups = row_groups(lambda: _input(path, kind), kind, None)
    group = next((number for number, rows in enumerate(groups.rows) if rows), None)
    return groups.schema.empty_table() if group is None else groups.read(group, groups.schema.names)[:most]


def _input(path: str, kind: str) -> Any:
    # Batches of Arrow lie in memory as they lie in the file: a map of it would fail where the file is cut.
    return files_at(path).input(path, ahead=kind in ("arrow", "avro"))


class RowFile:
    """The rows of one file, by number.

    Parameters
    ----------
    entry : FileEntry
        The file.
    kind : str
        Its format, one of `ROW_FORMATS`.
    schema : pyarrow.Schema
        The columns that travel, with their inside types. In the file the time column may have any type that can be an
        event time.
    time, stream : str
        The name of the time column, and that of the stream for errors.
    timed : sequence of str
        The columns of which event times are made, where a record has its time though it is broken in another column.
    origin : callable, optional
        Returns the path of a file before this one in which a column has its type in the join, for errors.
    """

    def __init__(
        self,
        entry: FileEntry,
        kind: str,
        schema: pa.Schema,
        time: str,
        stream: str,
        timed: Sequence[str] = (),
        origin: Callable[[pa.Field, FileEntry], str | None] = lambda *_: None,
    ) -> None:
        self._entry, self._origin = entry, origin
        self._schema, self._timed = schema, timed
        try:
            self._groups = row_groups(lambda: _input(entry.path, kind), kind, (entry.path, entry.stamp))
        except FileNotFoundError:
            raise _gone(entry) from None
        except (pa.ArrowInvalid, OSError):
            msg = f"the file {entry.path} is not {_NAMES[kind]}, or is cut off"
            raise FileFormatError(
                msg, name=entry.path, hint="write it under another name, and rename it when it is complete"
            ) from None
        found = self._found = with_paths(self._groups.schema, schema.names)
        self._there = names_there(schema, time, found.names, stream, entry.path)
        self._others: dict[str, pa.DataType] = {}  # inside types of columns that have another type in the file
        for column in schema:
            if column.name not in self._there:
                continue
            given, zone = found.field(self._there[column.name]).type, foreign_zone(column.type)
            if zone is not None and lacks_zone(given):
                raise without_zone(column.name, f"{stream} in {entry.path}", zone)
            if column.name == time or is_alike(given, column.type):
                continue
            if not fits(given, column.type):
                raise self._other_type(column, given)
            self._others[column.name] = column.type
        self._check_drift()

    @property
    def lacking(self) -> list[str]:
        """The columns that the file lacks: they are null."""
        return [name for name in self._schema.names if name not in self._there]

    def _check_drift(self) -> None:
        """Refuse a file in which every one of the first values of a column is none of its type in the join."""
        groups = [group for group, rows in enumerate(self._groups.rows) if rows]
        for name, kind in self._others.items() if groups else ():
            try:
                table = self._read(groups[0], [self._there[name]], 0)
            except FileFormatError:  # whoever reads the rows reports it
                return
            values = table.column(0).combine_chunks().drop_null()[:DRIFT_SAMPLE]
            _, misfits = exactly(values, kind)
            if len(values) >= DRIFT_RECORDS and misfits is not None and misfits.all():
                found = self._found.field(self._there[name]).type
                raise self._other_type(self._schema.field(name), found)

    def _other_type(self, column: pa.Field, found: pa.DataType) -> SchemaDriftError:
        origin = self._origin(column, self._entry)
        msg = f"column '{column.name}' of {self._entry.path} has the type {found}, but {column.type} in the join"
        msg += f", as in {origin}" if origin else ""
        common = common_type(found, column.type)
        hint = "write the file again with that type, or leave the column out with select"
        if common is not None:
            hint = f"declare {column.name} as {common} in the schema of a new join, which reads both"
        return SchemaDriftError(msg, name=column.name, hint=hint)

    @property
    def count(self) -> int:
        """Rows in the file."""
        return sum(self._groups.rows)

    def chunks(self, first: int, last: int, names: list[str]) -> Iterator[tuple[int, RawRecords]]:
        """Yield rows ``[first, last)`` of the columns `names` in pieces, each with the number of its first row."""
        for number, piece, wrapped in self._pieces(first, last, names):
            yield number, self._records(piece, names, wrapped)

    def _pieces(self, first: int, last: int, names: list[str]) -> Iterator[tuple[int, pa.Table, dict[str, np.ndarray]]]:
        """Yield pieces of rows as they are written, each with masks of times that are out of range (`RowGroups`)."""
        begin = 0
        for group, rows in enumerate(self._groups.rows):
            if begin < last and begin + rows > first:
                table = self._read(group, [self._there[name] for name in names if name in self._there], begin)
                wrapped = self._groups.wrapped(table, group)
                low, high = max(first - begin, 0), min(last - begin, rows)
                for start in range(low, high, _READ_ROWS):
                    piece = table.slice(start, min(_READ_ROWS, high - start))
                    inside = {name: places[start : start + piece.num_rows] for name, places in wrapped.items()}
                    yield begin + start, piece, inside
            begin += rows

    def _read(self, group: int, columns: list[str], begin: int) -> pa.Table:
        inner = {name: path for name in columns if is_inner(self._found.field(name)) and (path := inner_path(name))}
        held = [*dict.fromkeys(inner[name][0] if name in inner else name for name in columns)]
        leaves = [leaf_name(name) if name in inner else name for name in columns] if inner else []
        try:
            table = self._groups.read(group, held, leaves)
            return pa.table({name: column_of(table, self._found.field(name)) for name in columns}) if inner else table
        except (pa.ArrowInvalid, OSError):
            msg = f"the file {self._entry.path} cannot be read in rows {begin} to {begin + self._groups.rows[group]}"
            raise FileFormatError(msg, name=self._entry.path, hint="the file is damaged: restore it") from None

    def _records(self, table: pa.Table, names: list[str], wrapped: dict[str, np.ndarray]) -> RawRecords:
        """Return rows as records: under the join's names, with null columns where the file has none."""
        rows, columns, misfits = table.num_rows, [], {}
        if not names:  # made of no columns, a table would have no rows
            return RawRecords(table, rows)
        for name in names:
            if name not in self._there:
                columns.append(pa.nulls(rows, self._schema.field(name).type))
                continue
            values = table.column(self._there[name])
            if name in self._others:
                values, unlike = exactly(_one_array(values), self._others[name])
                if unlike is not None:
                    misfits[name] = unlike
            columns.append(values)
        found = pa.table(columns, names=names)
        broken = {name: wrapped[other] for name, other in self._there.items() if other in wrapped and name in names}
        if not (broken or misfits):
            return RawRecords(found, rows)
        there = [name for name in names if name in self._there]
        written = pa.table([table.column(self._there[name]) for name in there], names=there)
        raw = _without(found, written, broken, misfits, self._schema)
        timed = [name for name in self._timed if name in there]
        return replace(raw, timed=self._records(table, timed, wrapped)) if timed and timed != names else raw


def _one_array(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _without(
    table: pa.Table,
    written: pa.Table,
    wrapped: dict[str, np.ndarray],
    misfits: dict[str, np.ndarray],
    schema: pa.Schema,
) -> RawRecords:
    """Return a table's records. Those with a time out of range, or a value of another type, are broken."""
    broken: dict[int, tuple[str, str]] = {}
    for name in written.column_names:
        for masks, reason in ((wrapped, "a time that is out of range"), (misfits, "")):
            for place in np.flatnonzero(masks[name]).tolist() if name in masks else ():
                broken.setdefault(place, (name, reason or not_exactly(schema.field(name).type)))
    index = np.setdiff1d(np.arange(table.num_rows, dtype=np.int64), np.fromiter(broken, np.int64, len(broken)))
    found = []
    for place, (name, reason) in sorted(broken.items()):
        told = written.drop_columns([other for other in wrapped if wrapped[other][place]])
        found.append((place, name, reason, record_text(told, place)))
    return RawRecords(table.take(pa.array(index)), table.num_rows, index, found)


def not_exactly(kind: pa.DataType) -> str:
    """Return why a value of another type is none of a column's."""
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        return f"a number that {kind} does not hold exactly"
    return f"the value is not of type {kind}"
