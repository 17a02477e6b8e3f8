"""Tables beside streams: which version there is, which one a batch joins, and its rows.

ARCHITECTURE.md, "A stream and a table", has the rules.

::

    Table ──► open_table ──► DeltaVersions │ FileVersions       newest version, its rows
                                  └──► TableVersions ──► a block for each version, its name in the offset

The version of a Delta table is that of its log. The version of a file is what its bytes are, once it is finished. The
block of a version stands under the checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import xxhash

from streamjoin_ds.blocks import BlockStore, NamedBlocks
from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.place import below, local_path
from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import ArgumentError, FileFormatError, FileMissingError
from streamjoin_ds.source.batch_plan import TableVersion
from streamjoin_ds.source.delta.data_file import DataFile, FileRows
from streamjoin_ds.source.files.csv_dialect import NULL_TEXTS, CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvHead, CsvLines
from streamjoin_ds.source.files.file_names import EXTENSIONS, ROW_FORMATS, archive_of, format_of
from streamjoin_ds.source.files.file_watch import FinishRule
from streamjoin_ds.source.files.json_lines import JsonLines, check_nulls
from streamjoin_ds.source.files.lines import LineFormat, Lines
from streamjoin_ds.source.files.row_formats import row_groups
from streamjoin_ds.source.files.text import whole_text
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import as_declared, foreign_zone, without_zone
from streamjoin_ds.spec.common_types import name_there
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.nested_path import column_of, root_fields
from streamjoin_ds.spec.nested_values import without_empty
from streamjoin_ds.spec.table_rows import table_rows

__all__ = ["DeltaVersions", "FileVersions", "TableVersions", "Versions", "open_table", "table_schema", "tables_folder"]

_log = logging.getLogger(__name__)
# Who needs a version waits so much longer than `finished_after`, and looks so often.
_FORMATS = (*ROW_FORMATS, "csv", "json")  # of files
_WAIT_NS = 60_000_000_000
_LOOK_S = 0.1
_Stamp = tuple[int, int, int]  # size, time of change and inode


class DeltaVersions:
    """A Delta table: a version is one of its log.

    Parameters
    ----------
    path : str
        The table's folder.
    name : str
        The name of the table in the join, for errors.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name

    def schema(self) -> pa.Schema:
        """Return the columns of the newest version."""
        return TableState(self._path).columns().schema

    def newest(self, known: str | None) -> str:
        """Return the name of the newest version.

        Raises
        ------
        TableError
            There is no table, or it needs another reader.
        """
        del known
        return str(TableState(self._path).version)

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a version: its files in the order of their paths, each in its own order.

        Parameters
        ----------
        version : str
            As `newest` returned it.
        schema : pyarrow.Schema
            The columns that are read, one of `BoundJoin.read_schemas`.

        Raises
        ------
        FileMissingError, FileFormatError, SchemaDriftError
            A file is gone, cannot be read, or has a column of another type.
        """
        state = TableState(self._path, int(version), with_files=True)
        columns, parts = state.columns(), []
        for number, (_, action) in enumerate(sorted(state.files.items())):
            file = DataFile.of_action(int(version), number, action, columns).only(schema.names)
            found = FileRows(self._path, file, schema, "", self._name)
            for _, raw in found.chunks(0, found.count):
                if raw.broken:
                    _, column, reason, _ = raw.broken[0]
                    msg = f"column '{column}' of table {self._name} holds {reason}"
                    raise FileFormatError(msg, name=found.path, hint="mend the table: it has no rejects")
                parts.append(raw.table)
        return pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()


class FileVersions:
    """A file of rows (Parquet and others), CSV with a header, or JSON lines. Its version is the digest of its bytes.

    A file is a version when it is finished: it has bytes, and was not changed for `finished_after_us`, by its time of
    change or by what was seen of it. The folder's rule (`FinishRule`) trusts the time alone, which another machine's
    clock may have written ahead.

    Parameters
    ----------
    path : str
    kind : {"parquet", "orc", "avro", "arrow", "csv", "json"}
    table : Table
        Its name, how its file is written, and `finished_after`, which does not count where files are whole when they
        appear.
    clock : callable
        Returns the time in nanoseconds since 1970.
    sleep : callable
        Waits for so many seconds.
    """

    def __init__(
        self,
        path: str,
        kind: str,
        table: Table,
        clock: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path, self._kind, self._name, self._table = path, kind, table.name, table
        self._clock, self._sleep = clock, sleep
        self._after_ns = 0 if files_at(path).appears_whole else table.finished_after_us * 1000
        self._rule = FinishRule(self._after_ns // 1000, clock)
        self._stamp: _Stamp | None = None  # of the version that was found last
        self._unfinished: tuple[_Stamp, int] | None = None  # as it was seen last, and since when it has looked so
        self._is_told = False  # whether it was said that it is not finished
        self._data: tuple[str, bytes] | None = None

    def schema(self) -> pa.Schema:
        """Return the columns of the file as it is; of text their types are inferred from all of it.

        It waits for a file that is being written, as `newest` does without a known version.
        """
        return without_empty(self._parsed(self._waited()[1], None).schema)

    def newest(self, known: str | None) -> str | None:
        """Return the name of the version that the file has now; None: it is not finished, and the known one goes on.

        A file whose size and time of change are those of the last look is taken to be the `known` version.

        Raises
        ------
        FileMissingError
            There is no file; or no version is known, and it is not finished in time.
        """
        if known is not None and self._stamped() == self._stamp:
            return known
        found = self._waited() if known is None else self._finished(is_known=True)
        if found is None:
            return None
        self._data = None if found[0] == known else found
        return found[0]

    def _waited(self) -> tuple[str, bytes]:
        """Return the digest and the bytes of the file once it is finished."""
        begun_ns = self._clock()
        while (found := self._finished(is_known=False)) is None:
            if self._clock() - begun_ns > self._after_ns + _WAIT_NS:
                size = self._stamped()[0]
                why = "changes all the time" if size else "is empty"
                msg = f"the file of table {self._name} is not finished: {self._path} {why}"
                hint = "rename a whole file into place; finished_after=0s takes one as it is"
                if not size:
                    hint = "write it; a table without rows has a header, of CSV, or a blank line, of JSON"
                raise FileMissingError(msg, name=self._path, hint=hint)
            self._sleep(_LOOK_S)
        return found

    def _finished(self, *, is_known: bool) -> tuple[str, bytes] | None:
        """Return the digest and the bytes of the file; None where it is not finished."""
        before = self._stamped()
        if self._is_finished(before):
            found = self._read()
            if self._stamped() == before:
                self._stamp, self._unfinished, self._is_told = before, None, False
                return found
        seen = None if self._unfinished is None else self._unfinished[0]
        if not self._is_told and (not before[0] or seen not in (None, before)):  # more than just renamed into place
            what = "is being written" if before[0] else "is empty"
            goes_on = "the version before is joined until it is finished" if is_known else "it is waited for"
            _log.warning("table %s: its file %s: %s", self._name, what, goes_on)
            self._is_told = True
        if seen != before:
            self._unfinished = before, self._clock()
        return None

    def _is_finished(self, stamp: _Stamp) -> bool:
        size, mtime_ns, _ = stamp
        seen, since_ns = self._unfinished or (None, 0)
        looks_so = stamp == seen and self._clock() - since_ns >= self._after_ns
        return size > 0 and (looks_so or self._rule.is_finished(mtime_ns))

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a version, in the file's order.

        Parameters
        ----------
        version : str
            As `newest` returned it last.
        schema : pyarrow.Schema
            The columns that are read.

        Raises
        ------
        FileFormatError
            The file is in another format, is cut off, or has a value that is not of its column's type.
        """
        found, data = self._data or self._read()
        self._data = None  # it is asked for once
        if found != version:
            msg = f"the file of table {self._name} was replaced while it was read"
            raise FileFormatError(msg, name=self._path, hint="write it under another name, and rename it then")
        return self._parsed(data, schema)

    def _stamped(self) -> _Stamp:
        try:
            found = files_at(self._path).stat(self._path)
        except FileNotFoundError:
            raise self._gone() from None
        return found.st_size, found.st_mtime_ns, found.st_ino

    def _read(self) -> tuple[str, bytes]:
        try:
            file = files_at(self._path).open(self._path)
        except FileNotFoundError:
            raise self._gone() from None
        try:
            data = file.read_at(0, file.stamp[0])
        finally:
            file.close()
        digest = xxhash.xxh3_64(data)
        if written := self._table.text_facts:  # read in another way it is another version
            digest.update(json.dumps(written, sort_keys=True).encode())
        return digest.hexdigest(), data

    def _gone(self) -> FileMissingError:
        msg = f"the file of table {self._name} is not there: {self._path}"
        return FileMissingError(msg, name=self._path, hint="put it back; batches go on from where they are")

    def _parsed(self, data: bytes, schema: pa.Schema | None) -> pa.Table:
        try:
            return _table(data, self._kind, os.path.basename(self._path), schema, self._table)
        except (pa.ArrowException, KeyError, OSError) as error:
            msg = f"the file of table {self._name} cannot be read as {self._kind}, or lacks a column of the join"
            hint = "mend the file, set its format, or correct the schema"
            raise FileFormatError(msg, name=self._path, hint=hint) from error


def _table(data: bytes, kind: str, path: str, schema: pa.Schema | None, table: Table) -> pa.Table:
    if kind in ROW_FORMATS:
        groups = row_groups(lambda: pa.BufferReader(data), kind, None)
        wanted = groups.schema if schema is None else schema
        paths = [] if schema is None else [name for name in table.nested if name in schema.names]
        names = [field.name for field in root_fields(wanted, paths)]
        parts = [groups.read(group, names) for group in range(len(groups.rows))]
        found = pa.concat_tables(parts) if parts else groups.schema.empty_table().select(names)
        return _with_paths(found, wanted) if paths else found
    text = whole_text(data, table.files, kind, path)
    if kind == "csv":
        return _csv(text, table, path, schema)
    if not text.strip():
        return pa.table({}) if schema is None else schema.empty_table()
    if schema is not None:
        return _lines(text, lambda columns: JsonLines(columns, "", table.nested), schema, path)
    check_nulls(text)
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    return arrow_json.read_json(pa.BufferReader(text), options, arrow_json.ParseOptions(newlines_in_values=False))


def _csv(text: bytes, table: Table, path: str, schema: pa.Schema | None) -> pa.Table:
    """Return the records of CSV: all columns as Arrow infers them, or those of a schema.

    In columns of text too what stands for a null is one.
    """
    declared = table.schema.names if isinstance(table.schema, pa.Schema) else []
    head = CsvHead.of(text, table.files, declared, path, complete=True)
    if head is None:
        msg = "no header"
        raise pa.ArrowInvalid(msg)
    dialect, names = CsvDialect.of(table.files), [name or f"\0{place}" for place, name in enumerate(head.names)]
    body = Lines.of(text[head.size_bytes :], table.comment).data
    if schema is None:
        plain = [name for name in names if not name.startswith("\0")]
        if not body.strip():
            return pa.table({name: pa.nulls(0) for name in plain})
        return dialect.infer(body, names, {}, skips=False).select(plain)

    def form(columns: pa.Schema) -> CsvLines:
        if lost := [name for name in columns.names if name_there(name, head.names) is None]:
            raise KeyError(lost[0])
        return CsvLines(head.names, columns, "", table.name, path, dialect)

    found = _lines(body if body.strip() else b"", form, schema, path)
    for place, column in enumerate(found.columns):
        if pa.types.is_string(column.type):
            is_null = pc.is_in(column, pa.array(NULL_TEXTS, column.type))
            found = found.set_column(place, schema.field(place), pc.if_else(is_null, None, column))
    return found


def _lines(data: bytes, form: Callable[[pa.Schema], LineFormat], schema: pa.Schema, path: str) -> pa.Table:
    """Return the columns of a schema, as a format of lines reads them."""
    try:
        return form(schema).parse(data)
    except pa.ArrowInvalid:
        for field in schema:
            zone = foreign_zone(field.type)
            if zone is not None and _is_refused(data, form(pa.schema([field]))):
                raise without_zone(field.name, f"file {path}", zone) from None
        raise


def _is_refused(data: bytes, form: LineFormat) -> bool:
    try:
        form.parse(data)
    except pa.ArrowInvalid:
        return True
    return False


def _with_paths(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, of which some are paths into those of a table.

    Raises
    ------
    KeyError
        A path leads nowhere.
    """
    columns = [column_of(table, field) for field in schema]
    if lost := [name for name, column in zip(schema.names, columns, strict=True) if column is None]:
        raise KeyError(lost[0])
    return pa.table(columns, names=schema.names)


class Versions(Protocol):
    """A table whose rows change."""

    def schema(self) -> pa.Schema:
        """Return the columns that it has now."""

    def newest(self, known: str | None) -> str | None:
        """Return the name of the version that it has now, given the one that was last found.

        None: it is being written, so the `known` one goes on. Without a known one it is waited for.
        """

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return all rows of the version that `newest` returned last, in an order that is the version's own."""


def open_table(table: Table, clock: Callable[[], int] = time.time_ns) -> Versions:
    """Return what a table's source holds.

    Parameters
    ----------
    table : Table
    clock : callable
        Returns the time in nanoseconds since 1970, by which a file is finished.

    Raises
    ------
    ArgumentError
        The table has no source.
    FileMissingError, FileFormatError
        There is nothing at that place, or its format is not known.
    """
    if table.source is None:
        msg = f"table {table.name} has no source"
        hint = "give a Delta table or a file, or its rows: frames= of start(), dataframe() or JoinEngine"
        raise ArgumentError(msg, name=table.name, hint=hint)
    local = local_path(table.source)
    path = table.source.rstrip("/") if local is None else os.path.normpath(str(local))
    kind = format_of(path, table.format)
    is_delta = table.format in ("auto", "delta") and _is_folder(f"{path}/_delta_log")
    for option in table.text_facts if is_delta or kind in ROW_FORMATS else ():
        msg = f"table {table.name} is no file of text, so it cannot have {option}"
        raise ArgumentError(msg, name=option, hint=f"leave {option} out")
    if is_delta:
        return DeltaVersions(path, table.name)
    if table.format == "delta":
        msg = f"table {table.name} is no Delta table: {path}"
        raise FileFormatError(msg, name=path, hint="give the folder that holds _delta_log")
    if kind not in _FORMATS or (archive_of(path) and kind in ROW_FORMATS) or _is_folder(path):
        known = ", ".join(end for name in _FORMATS for end in EXTENSIONS[name])
        msg = f"table {table.name} is neither a Delta table nor a file of a known format: {path}"
        raise FileFormatError(msg, name=path, hint=f"set format, or end the file's name with one of {known}")
    return FileVersions(path, kind, table, clock)


def table_schema(table: Table, recorded: pa.Schema | None = None) -> pa.Schema:
    """Return the columns of a table: those declared, or those that its source has now. Errors as `open_table`.

    `recorded` has the columns that a checkpoint knows: a restart does not wait for a file that is being written.
    """
    if table.source is None and isinstance(table.schema, pa.Schema):
        return table.schema
    source = open_table(table)
    if isinstance(table.schema, pa.Schema):
        return table.schema
    return recorded if recorded and source.newest("") is None else source.schema()


def tables_folder(checkpoint: object) -> str:
    """Return the folder of the blocks of a checkpoint's tables."""
    return below(checkpoint, "tables")


class TableVersions:
    """The versions of all tables of a join, in Spark's planner process.

    Parameters
    ----------
    bound : BoundJoin
    checkpoint : str
        The checkpoint's folder, under which the blocks are.
    retain_batches : int
        How many batches Spark can go back by.
    given : mapping of str to TableVersion, optional
        By a table's name what its frame held at this start, for tables without a source. Its block is there.
    durable : bool
        Whether a block is on the device before its name is in an offset.
    clock : callable, optional
        Returns seconds and never goes back.
    wall : callable, optional
        See `open_table`.
    """

    def __init__(
        self,
        bound: BoundJoin,
        checkpoint: str,
        retain_batches: int,
        given: Mapping[str, TableVersion] | None = None,
        *,
        durable: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bound, self._clock, self._wall = bound, clock, wall
        self._store = BlockStore(tables_folder(checkpoint), durable=durable)
        self._given = dict(given or {})
        self._sources: dict[str, Versions] = {}
        self._looked_s: dict[str, float] = {}
        self._blocks = NamedBlocks(self._store, retain_batches)

    def decided(self, before: Mapping[str, TableVersion]) -> dict[str, TableVersion]:
        """Return the version of each table that the batch joins that is being planned.

        Parameters
        ----------
        before : mapping of str to TableVersion
            Those of the batch before; empty for the first one.

        Raises
        ------
        FileMissingError, FileFormatError, TableError, SchemaDriftError, ColumnError, BlockWriteError
            A table is gone, or its new version cannot be joined. The error names it.
        """
        found = {}
        for number, table in enumerate(self._bound.join.tables, len(self._bound.names)):
            if table.name in self._given:
                found[table.name] = self._given[table.name]
                continue
            known, now_s = before.get(table.name), self._clock()
            looked_s = self._looked_s.get(table.name)
            is_due = looked_s is None or now_s - looked_s >= table.refresh_us / 1e6
            if known is None or is_due:
                source = self._sources.get(table.name) or open_table(table, self._wall)
                self._sources[table.name] = source
                if known is not None and self._store.size_bytes(known.block) is None:
                    known = None  # its block is lost
                newest = source.newest(None if known is None else known.version)
                if newest is not None:  # else the next batch looks again
                    self._looked_s[table.name] = now_s
                if newest is not None and (known is None or newest != known.version):
                    known = self._written(number, table.name, newest, source)
                assert known is not None  # without a known one `newest` is a version
            found[table.name] = known
        return found

    def _written(self, number: int, name: str, version: str, source: Versions) -> TableVersion:
        read = as_declared(self._bound.read_schemas[number], self._bound.join.members[number].schema)
        rows = table_rows(self._bound, number, source.rows(version, read))
        facts = {"table": name, "version": version}
        ref = self._store.write(f"{name}/{version}", pa.Table.from_batches([rows]), facts)
        _log.info("table %s: version %s of %d rows is joined from the next batch on", name, version, ref.rows)
        return TableVersion(version, ref.name, ref.rows)

    def committed(self, joined: Mapping[str, TableVersion]) -> None:
        """Hear that a batch is committed; remove the blocks that no offset names to which Spark may come back.

        Parameters
        ----------
        joined : mapping of str to TableVersion
            The versions that the batch joined.
        """
        self._blocks.committed({version.block for version in joined.values()})


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(files_at(path).stat(path).st_mode)
    except (ArgumentError, OSError):
        return False
