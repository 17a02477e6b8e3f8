"""One data file of a table as a stretch of a stream: which of its rows count, and the rows by their numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.delta.columns import TableColumns, partition_value
from streamjoin_ds.delta.deletion_vectors import deleted_rows
from streamjoin_ds.delta.log_files import filesystem_of, reached
from streamjoin_ds.delta.table_state import file_path
from streamjoin_ds.errors import FileFormatError, FileMissingError, SchemaDriftError
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.files.row_files import RowFile, footer_of, row_columns
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.nested_path import inner_path, path_text

__all__ = ["DataFile", "FileRows", "place_of"]

_CHANGE_TYPE = "_change_type"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a version added, as the planner tells it to a task.

    Attributes
    ----------
    version, number : int
        The version, and the file's number in it (see `VersionPosition.file`).
    path : str
        The file's path, as the log writes it.
    size : int
        Its size in bytes.
    values : dict of str to str or None
        Values of the partition columns, as the log writes them.
    names : dict of str to str
        Names of columns in the file, where they are others; "" for a nested column, whose fields have other names.
    vector : dict or None
        Its deletion vector.
    is_changes : bool
        Whether it is a file of the change feed: then only the rows that were inserted count.
    """

    version: int
    number: int
    path: str
    size: int
    values: dict[str, str | None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    vector: dict[str, Any] | None = None
    is_changes: bool = False

    @classmethod
    def of_action(
        cls, version: int, number: int, action: Mapping[str, Any], columns: TableColumns, *, is_changes: bool = False
    ) -> DataFile:
        """Return the file of an ``add`` or ``cdc`` action."""
        values = dict(action.get("partitionValues") or {})
        physical = {name: columns.physical.get(name) or name for name in columns.partition}
        by_name = {name: values.get(physical[name]) for name in columns.partition}
        return cls(
            version, number, action["path"], action["size"], by_name, columns.physical,
            action.get("deletionVector") or None, is_changes,
        )  # fmt: skip

    @property
    def place(self) -> tuple[int, int]:
        """The version, and the file's number in it."""
        return self.version, self.number

    def to_text(self) -> str:
        """Return the file as a JSON text, without what is at its default."""
        facts = {name: value for name, value in asdict(self).items() if value or name in ("version", "number", "size")}
        return json.dumps(facts, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> DataFile:
        """Return the file that `to_text` wrote."""
        return cls(**json.loads(text))

    def only(self, columns: Sequence[str]) -> DataFile:
        """Return the file with what concerns these columns, so that its text is short."""
        kept = {*columns, *(path[0] for path in map(inner_path, columns) if path is not None)}
        values = {name: text for name, text in self.values.items() if name in kept}
        return replace(self, values=values, names={name: at for name, at in self.names.items() if name in kept})


def place_of(file: DataFile) -> tuple[int, int]:
    """Return a file's place in the stream."""
    return file.place


class FileRows:
    """The rows of a data file that count, numbered from 0.

    Parameters
    ----------
    table : str
        The table's folder.
    file : DataFile
        The file.
    schema : pyarrow.Schema
        The columns that are read, with their inside types (see `RowFile`). A column that the file lacks was added
        to the table later: its values are null.
    time, stream : str
        The name of the time column, and that of the stream for errors.

    Raises
    ------
    FileMissingError, FileFormatError, SchemaDriftError
        The file is gone, cannot be read, or has a column of another type.
    """

    def __init__(self, table: str, file: DataFile, schema: pa.Schema, time: str, stream: str) -> None:
        self._file = file
        self._schema = schema
        self.path = file_path(table, file.path)
        self._table = table
        try:
            size, self.mark = self._marked()
            there, _ = row_columns(self.path)
            if size != file.size:
                raise self._unreadable()
        except FileNotFoundError:
            raise self._gone() from None
        except (pa.ArrowInvalid, OSError):
            raise self._unreadable() from None
        self._physical: dict[str, str] = {}
        for column in schema:
            path = None if column.name in file.names or column.name in there.names else inner_path(column.name)
            name, inside = (column.name, ()) if path is None else path
            root = file.names.get(name, name)
            other = path_text((root, *inside)) if root and inside else root
            if not other:
                msg = f"column '{column.name}' of {self.path} is nested, and the table maps columns by name"
                hint = "leave the column out, or read the table with spark.readStream.format('delta')"
                raise SchemaDriftError(msg, name=column.name, hint=hint)
            if column.name not in file.values and root in there.names:
                self._physical[column.name] = other
        inside = pa.schema([schema.field(name).with_name(other) for name, other in self._physical.items()])
        entry = FileEntry(os.path.basename(self.path), self.path, size, 0, 0)
        self._rows = RowFile(entry, "parquet", inside, self._physical.get(time, time), stream)
        self._kept = self._kept_rows(stream)
        self._constants = self._partition_values(time)

    @property
    def count(self) -> int:
        """How many rows count."""
        return self._rows.count if self._kept is None else len(self._kept)

    def chunks(self, first: int, last: int) -> Iterator[tuple[np.ndarray, RawRecords]]:
        """Yield the rows ``[first, last)`` in pieces, each with its rows' numbers in the file, which count from 1."""
        if first >= last:
            return
        if self._kept is None:
            low, high, kept = first, last, None
        else:
            kept = self._kept[first:last]
            low, high = int(kept[0]), int(kept[-1]) + 1
        for begin, raw in self._rows.chunks(low, high, [*self._physical.values()]):
            numbers = np.arange(begin, begin + raw.count, dtype=np.int64)
            if kept is not None:
                mask = np.isin(numbers, kept, assume_unique=True)
                numbers, raw = numbers[mask], _filtered(raw, mask)
            if len(numbers):
                yield numbers + 1, replace(raw, table=self._completed(raw.table))

    def _completed(self, read: pa.Table) -> pa.Table:
        """Return the columns of the schema: those that were read, the partition's values, and nulls."""
        found = {name: read.column(other) for name, other in self._physical.items()}
        columns = []
        for column in self._schema:
            if column.name in self._constants:
                columns.append(pa.repeat(self._constants[column.name], read.num_rows))
            else:
                columns.append(found[column.name] if column.name in found else pa.nulls(read.num_rows, column.type))
        return pa.table(columns, names=self._schema.names)

    def _partition_values(self, time: str) -> dict[str, pa.Scalar]:
        """Return the values of the partition columns; an event time stays the text that the log has."""
        found = {}
        for name, text in self._file.values.items():
            if name in self._schema.names:
                try:
                    found[name] = partition_value(text, pa.string() if name == time else self._schema.field(name).type)
                except pa.ArrowInvalid:
                    msg = f"the partition column '{name}' of {self.path} has a value that is not of its type"
                    hint = "correct the table, or start a new join with the new type"
                    raise SchemaDriftError(msg, name=name, hint=hint) from None
        return found

    def _kept_rows(self, stream: str) -> np.ndarray | None:
        """Return the numbers of the rows that count; None: all do."""
        if self._file.is_changes:
            kind = pa.schema([pa.field(_CHANGE_TYPE, pa.string())])
            entry = FileEntry(os.path.basename(self.path), self.path, self._file.size, 0, 0)
            rows = RowFile(entry, "parquet", kind, "", stream)
            found = [raw.table.column(0).combine_chunks() for _, raw in rows.chunks(0, rows.count, [_CHANGE_TYPE])]
            told = np.concatenate([np.empty(0, object), *(part.to_numpy(zero_copy_only=False) for part in found)])
            return np.flatnonzero(told == "insert")
        if self._file.vector is None:
            return None
        filesystem, folder = filesystem_of(self._table)
        try:
            with reached(self._table):
                gone = deleted_rows(filesystem, folder, self._file.vector)
        except FileNotFoundError:
            raise self._gone() from None
        return np.setdiff1d(np.arange(self._rows.count), gone, assume_unique=True)

    def _marked(self) -> tuple[int, str]:
        """Return the file's size; and a digest of path, size and footer, which says where and what its columns are."""
        stream = files_at(self.path).open(self.path)
        try:
            footer = footer_of(stream)
        finally:
            stream.close()
        told = f"{self._file.path}/{self._file.size}/{self._file.vector}".encode()
        return stream.stamp[0], xxhash.xxh3_64_hexdigest(told + footer)

    def _gone(self) -> FileMissingError:
        msg = f"the file {self.path} is gone before the stream has read it, although its table had it"
        hint = "VACUUM removed it: keep files for longer, and run the join more often; begin with a new checkpoint"
        return FileMissingError(msg, name=self.path, hint=hint)

    def _unreadable(self) -> FileFormatError:
        msg = f"the file {self.path} is not the Parquet file that its table's log names"
        return FileFormatError(msg, name=self.path, hint="restore it from a copy of the table")


def _filtered(raw: RawRecords, mask: np.ndarray) -> RawRecords:
    """Return the records of a mask."""
    raw = replace(raw, table=raw.table.cast(pa.schema([_without_views(column) for column in raw.table.schema])))
    places = np.cumsum(mask) - 1  # where a record that stays will be
    if raw.index is None:
        return RawRecords(raw.table.filter(pa.array(mask)), int(mask.sum()))
    stays = mask[raw.index]
    broken = [(int(places[at]), name, reason, text) for at, name, reason, text in raw.broken if mask[at]]
    return RawRecords(raw.table.filter(pa.array(stays)), int(mask.sum()), places[raw.index[stays]], broken)


def _without_views(column: pa.Field) -> pa.Field:
    """Return a column with a type that Arrow can filter: delta-rs writes texts as views."""
    if pa.types.is_string_view(column.type):
        return column.with_type(pa.string())
    return column.with_type(pa.binary()) if pa.types.is_binary_view(column.type) else column
