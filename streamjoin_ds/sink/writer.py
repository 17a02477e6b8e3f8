"""The writer of a table's Parquet files, where the rows are found; its reports and statistics of each file.

A report (`FileReport`) tells the driver about a file; the rows themselves stay in the file. Delta's statistics are
gathered while the rows are written. They cover only the columns by which readers skip files: times and the batch id.
Statistics of every column cost the writer a third of its speed (ARCHITECTURE.md, "Matches as files"), and float bounds
would need care with NaN.

`streamjoin_ds.sink.pages` fills the pages of matches. Where a schema has columns that it does not know (nested ones,
decimals), pyarrow writes the files, and how a column is encoded is seen in the first rows of each file. The columns of
the tuple that probes come in runs: lz4. The window's numbers and times lie in a range: their differences, packed. Other
columns stay as they are. Both streams probe, so the columns that come in runs change within a batch: then the next file
begins, unless this one is small. Four million matches of two streams, two numbers, two times and ``event_time``, some
for each probe, on one core (CPU):

=====================================================  =============  =======
settings                                               M rows/s       B/row
=====================================================  =============  =======
pages filled here, 19 for each probe                   **70**         **8.2**
the same by pyarrow                                    31 to 35       8.3
pages filled here, 4 for each probe                    **70**         **9.1**
the same by pyarrow                                    24             13.3
pyarrow, 19 for each probe, no compression             25 to 37       40.0
=====================================================  =============  =======

In pyarrow's files numbers never profit from a dictionary. Strings do (0.4 to 18 bytes a row less, at the same speed),
unless equal values come in runs: there plain values under lz4 are twice as fast and smaller still.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.delta.log_files import filesystem_of
from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.errors import ArgumentError, ColumnError, TableWriteError
from streamjoin_ds.machine import open_files_hint
from streamjoin_ds.sink.durability import ForceBehind, force
from streamjoin_ds.sink.pages import PageFile, holds, parquet_options
from streamjoin_ds.sink.tables import BATCH_ID

if TYPE_CHECKING:
    from pyarrow import fs

__all__ = ["REPORT_TABLES", "WRITING_FOLDER", "FileReport", "FileStatistics", "TableWriter", "check_reports"]

REPORT_TABLES = ("matches", "late", "rejects")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet")
_COLUMNS = (EVENT_TIME, "ts", BATCH_ID)
_YEAR_1_US = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_YEAR_10000_US = int(np.datetime64("10000-01-01", "us").astype(np.int64))
WRITING_FOLDER = "_writing"
"""Files being written lie here, inside the table's folder: Delta and VACUUM overlook names that begin with "_"."""
ROW_GROUP_ROWS = 1 << 20  # most rows of a row group
SMALL_ROWS = 1 << 16  # tables of fewer rows wait until so many rows are together
_LEAST_ROWS = 1 << 20  # of a file that ends because later rows are encoded otherwise
_LABEL = re.compile(r"[A-Za-z0-9._-]{0,64}")


@dataclass(frozen=True, slots=True)
class FileReport:
    """The facts of one Parquet file that is written whole and not yet part of a table.

    Parameters
    ----------
    table : str
        ``matches``, ``late`` or ``rejects``.
    path : str
        File name inside that table's folder.
    rows, size_bytes : int
        Rows and bytes of the file, both positive.
    stats : str
        Delta's statistics of the file, a JSON object.

    Raises
    ------
    ArgumentError
        One of them is not of that form.
    """

    table: str
    path: str
    rows: int
    size_bytes: int
    stats: str

    def __post_init__(self) -> None:
        if self.table not in REPORT_TABLES:
            _refuse("table", f"one of {', '.join(REPORT_TABLES)}")
        # A worker may name files of its own table only: no folder, no "..", nothing that Delta would have to escape.
        if not isinstance(self.path, str) or not _PATH.fullmatch(self.path):
            _refuse("path", "a plain file name ending in .parquet")
        for name in ("rows", "size_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                _refuse(name, "a positive whole number")
        if not isinstance(self.stats, str) or not isinstance(_loaded(self.stats), dict):
            _refuse("stats", "a JSON object")

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> FileReport:
        """Return the report that :meth:`to_json` wrote as a text.

        Raises
        ------
        ArgumentError
            The text is not what :meth:`to_json` writes.
        """
        value = _loaded(text)
        if isinstance(value, dict) and set(value) == {"table", "path", "rows", "size_bytes", "stats"}:
            return cls(**value)
        _refuse("report", "the JSON of table, path, rows, size_bytes and stats")


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _refuse(name: str, hint: str) -> NoReturn:
    message = f"a file report's {name} has a form that is not valid"
    raise ArgumentError(message, name=name, hint=hint)


def check_reports(reports: Sequence[FileReport], batch_id: int) -> None:
    """Refuse reports that name a file twice, or whose files hold rows of another batch.

    Raises
    ------
    ArgumentError
        They do; the error's ``name`` is the file's.
    """
    paths = [(report.table, report.path) for report in reports]
    if len(set(paths)) != len(paths):
        doubled = next(path for path in paths if paths.count(path) > 1)
        message = f"the file {doubled[1]} is reported twice"
        raise ArgumentError(message, name=doubled[1], hint="each file of a batch is reported once")
    for report in reports:
        stats = json.loads(report.stats)
        bounds = {stats.get(side, {}).get(BATCH_ID, batch_id) for side in ("minValues", "maxValues")}
        if bounds != {batch_id}:
            message = f"the file {report.path} holds rows of another batch than {batch_id}"
            raise ArgumentError(message, name=report.path, hint="report the files of the batch being committed")


class FileStatistics:
    """The statistics of one file: number of rows; bounds and nulls of ``event_time``, ``ts`` and ``batch_id``.

    Bounds include both ends. They are exact, times in microseconds. A time outside the years 1 to 9999 has no text in
    Delta's JSON: the bounds of its column are then left out, which readers take as "unknown".
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._columns = [name for name in _COLUMNS if schema.get_field_index(name) >= 0]
        self._bounds: dict[str, tuple[int, int]] = {}
        self._nulls = dict.fromkeys(self._columns, 0)
        self._timestamps = {name for name in self._columns if pa.types.is_timestamp(schema.field(name).type)}

    def add(self, table: pa.Table) -> None:
        """Take in the rows of one table (or of a record batch)."""
        self.rows += table.num_rows
        for name in self._columns:
            column = table.column(name)
            self._nulls[name] += column.null_count
            if name in self._timestamps:
                column = column.cast(pa.int64())
            bounds = compute.min_max(column)
            smallest, largest = bounds["min"].as_py(), bounds["max"].as_py()
            if smallest is None:
                continue
            known = self._bounds.get(name)
            self._bounds[name] = (
                (smallest, largest) if known is None else (min(known[0], smallest), max(known[1], largest))
            )

    def to_json(self) -> str:
        """Return the statistics as the JSON text of an add action."""
        smallest: dict[str, Any] = {}
        largest: dict[str, Any] = {}
        for name, bounds in self._bounds.items():
            texts = [self._text(name, value) for value in bounds]
            if None not in texts:
                smallest[name], largest[name] = texts
        value = {"numRecords": self.rows, "minValues": smallest, "maxValues": largest, "nullCount": self._nulls}
        return json.dumps(value, separators=(",", ":"))

    def _text(self, name: str, value: int) -> str | int | None:
        if name not in self._timestamps:
            return value
        if not _YEAR_1_US <= value < _YEAR_10000_US:
            return None
        return f"{np.datetime_as_string(np.datetime64(value, 'us'), unit='us')}Z"


class TableWriter:
    """Writes the rows of one batch and label (a cell) to one table, as one or more Parquet files.

    A file appears under its final name when it is complete. It belongs to the table only when the driver commits its
    report; a file that is never committed is an orphan for VACUUM. Names are unique per attempt. As a context manager
    the writer closes at the end; on an exception it removes every file that it wrote.

    Parameters
    ----------
    table_path : str
        Folder of the table (a path of :class:`~streamjoin_ds.sink.tables.TableSet`).
    schema : pyarrow.Schema
        Names, types and nullability of the columns; every table written must have them in this order.
    table : str, keyword-only
        ``matches``, ``late`` or ``rejects``; written into the reports.
    batch_id : int, keyword-only
        Part of the file names. If the table has a column ``batch_id``, its values must be this (not checked row by
        row; the driver compares the file's statistics).
    label : str, keyword-only
        Who writes, such as the cell's number: at most 64 letters, digits, ``.``, ``_`` or ``-``.
    rows_per_file : int, keyword-only
        Rows after which the next file is begun.
    durable : bool, keyword-only
        Whether a file is forced to the disk: its bytes before its final name appears, then the name. Only for local
        paths.
    behind : bool, keyword-only
        Whether a large file is forced part by part while it is written (`ForceBehind`). Only for local paths.

    Raises
    ------
    ArgumentError
        ``table``, ``label``, ``rows_per_file`` or ``batch_id`` is out of range.

    Notes
    -----
    Memory: a table of at least 65 536 rows is encoded at once, in row groups of at most 2**20 rows, and no reference to
    it is kept. Smaller tables are copied and wait until 65 536 rows are together. So the buffers behind a table may be
    used again as soon as :meth:`write` returns.
    """

    def __init__(
        self,
        table_path: str,
        schema: pa.Schema,
        *,
        table: str,
        batch_id: int,
        label: str,
        rows_per_file: int = 4_000_000,
        durable: bool = True,
        behind: bool = False,
    ) -> None:
        if table not in REPORT_TABLES:
            message = "a writer writes the matches, the late tuples or the rejects, and no other table"
            raise ArgumentError(message, name="table", hint=f"one of {', '.join(REPORT_TABLES)}")
        if not _LABEL.fullmatch(label):
            message = "a writer's label cannot be part of a file name"
            raise ArgumentError(message, name="label", hint="at most 64 letters, digits, '.', '_' or '-'")
        if rows_per_file < 1 or batch_id < 0:
            message = "rows_per_file must be at least 1 and batch_id at least 0"
            raise ArgumentError(message, name="rows_per_file" if rows_per_file < 1 else "batch_id")
        self._schema = schema
        self._table = table
        self._stem = f"batch-{batch_id:08d}-{label}-"
        self._rows_per_file = rows_per_file
        self._durable = durable and is_local(table_path)
        self._behind = behind and is_local(table_path)
        self._filesystem, self._folder = filesystem_of(table_path)
        self._options: dict[str, object] = {}  # of the file that is open
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._file: _OpenFile | None = None
        self._complete: list[_OpenFile] = []
        self._reports: list[FileReport] = []
        self._closed = False

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @property
    def reports(self) -> list[FileReport]:
        """Reports of the files that are complete: of all files once the writer is closed."""
        return list(self._reports)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows.

        Parameters
        ----------
        rows : pyarrow.Table or pyarrow.RecordBatch
            Columns as in the schema, in its order. There may be no rows.

        Raises
        ------
        ArgumentError
            The writer is closed.
        ColumnError
            A column is missing, surplus, of another type, or null where the schema requires a value. The rows of this
            call are then not written.
        TableWriteError
            There is no room, or no right to write.
        """
        if self._closed:
            message = "the writer is closed"
            raise ArgumentError(message, name=self._table)
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        table = self._checked(table)
        if table.num_rows == 0:
            return
        if table.num_rows < SMALL_ROWS:
            self._pending.append(_copied(table))
            self._pending_rows += table.num_rows
            if self._pending_rows >= SMALL_ROWS:
                self._flush()
            return
        self._flush()
        self._encode(table)

    def close(self) -> list[FileReport]:
        """Finish the last file and return the reports of all files.

        Without rows there is no file. Closing again gives the same reports.

        Returns
        -------
        list of FileReport
            The reports, in the order of writing.

        Raises
        ------
        TableWriteError
            As in :meth:`write`; every file of this writer is removed.
        """
        if not self._closed:
            try:
                self._flush()
                self._finish_file()
                self._settle_files()
            except BaseException:
                self.abort()
                raise
            self._closed = True
        return self.reports

    def abort(self) -> None:
        """Remove every file of this writer, finished or not."""
        self._closed = True
        self._pending.clear()
        if self._file is not None:
            self._file.discard()
            self._file = None
        for file in self._complete:
            file.discard()
        self._complete.clear()
        self._reports.clear()

    def _checked(self, table: pa.Table) -> pa.Table:
        expected = self._schema
        if table.schema.names != expected.names:
            wrong = [name for name in expected.names if name not in table.schema.names]
            wrong += [name for name in table.schema.names if name not in expected.names]
            name = wrong[0] if wrong else expected.names[0]
            message = f"the rows' columns are not the table's: {name} is missing, surplus or out of place"
            raise ColumnError(message, name=name, hint=f"give, in this order, {', '.join(expected.names)}")
        for column, wanted in zip(table.columns, expected, strict=True):
            if column.type != wanted.type:
                message = f"the column {wanted.name} is {column.type}, the table has {wanted.type}"
                raise ColumnError(message, name=wanted.name, hint=f"cast it to {wanted.type}")
            if not wanted.nullable and column.null_count:
                message = f"the column {wanted.name} holds a null, but the table requires a value"
                raise ColumnError(message, name=wanted.name, hint="declare the column nullable")
        return pa.Table.from_arrays(table.columns, schema=expected)

    def _flush(self) -> None:
        if self._pending:
            # One Arrow chunk a column: a chunk of ten rows costs the encoder as much as one of ten thousand.
            table = pa.concat_tables(self._pending).combine_chunks()
            self._pending.clear()
            self._pending_rows = 0
            self._encode(table)

    def _encode(self, table: pa.Table) -> None:
        there = 0 if self._file is None else self._file.statistics.rows
        options = {} if holds(self._schema, there + table.num_rows) else parquet_options(table)
        if options != self._options and self._file is not None and self._file.statistics.rows >= _LEAST_ROWS:
            self._finish_file()
        if self._file is None:
            self._options = options
        offset = 0
        while offset < table.num_rows:
            with self._named():
                if self._file is None:
                    self._file = self._begin_file()
                part = table.slice(offset, self._rows_per_file - self._file.statistics.rows)
                self._file.write(part)
            offset += part.num_rows
            if self._file.statistics.rows >= self._rows_per_file:
                self._finish_file()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turn an error of the file system into one that says which table could not be written."""
        try:
            yield
        except OSError as error:
            message = f"a file of {self._folder} cannot be written: {error.strerror or 'the file system refuses'}"
            hint = open_files_hint(error) or "free some space, or allow writing, where the folder lies"
            raise TableWriteError(message, name=self._folder, hint=hint) from error

    def _begin_file(self) -> _OpenFile:
        name = f"{self._stem}{uuid.uuid4().hex}.parquet"
        return _OpenFile(
            self._filesystem,
            self._folder,
            name,
            self._schema,
            self._options,
            durable=self._durable,
            behind=self._behind,
        )

    def _finish_file(self) -> None:
        if self._file is None:
            return
        with self._named():
            size_bytes = self._file.finish()
        statistics = self._file.statistics
        self._complete.append(self._file)
        self._reports.append(
            FileReport(self._table, self._file.name, statistics.rows, size_bytes, statistics.to_json())
        )
        self._file = None

    def _settle_files(self) -> None:
        """Give the complete files their names. Where they are forced, all are so behind the last one's rows."""
        with self._named():
            for file in self._complete:
                file.settle()
            if self._complete and self._durable:
                force(self._folder)


class _OpenFile:
    """One Parquet file until it is complete."""

    def __init__(
        self,
        filesystem: fs.FileSystem,
        folder: str,
        name: str,
        schema: pa.Schema,
        options: dict[str, object],
        *,
        durable: bool,
        behind: bool,
    ) -> None:
        self.name = name
        self.statistics = FileStatistics(schema)
        self._filesystem = filesystem
        self._durable = durable
        self._path = f"{folder}/{name}"
        # An object store shows only complete files. Elsewhere a half-written file must not have the final name.
        self._aside = f"{folder}/{WRITING_FOLDER}/{name}" if filesystem.type_name == "local" else self._path
        filesystem.create_dir(os.path.dirname(self._aside), recursive=True)
        self._stream = filesystem.open_output_stream(self._aside)
        self._behind = ForceBehind(self._aside) if behind else None
        self._is_behind = False  # whether all of the complete file is forced by that
        # Without options the pages are filled here.
        self._parquet = (
            parquet.ParquetWriter(self._stream, schema, **options) if options else PageFile(self._stream, schema)
        )

    def write(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self.statistics.add(table)
        if self._behind is not None:
            self._behind.grown(self._stream.tell())

    def finish(self) -> int:
        """Complete the file, and return its size in bytes."""
        self._parquet.close()
        size_bytes = int(self._stream.tell())
        self._stream.close()
        self._is_behind = self._behind is not None and self._behind.end()
        return size_bytes

    def settle(self) -> None:
        """Wait until the complete file is on the disk, where it is to be, and give it its final name."""
        if self._behind is not None and (self._durable or not self._is_behind):
            self._behind.wait()
        if self._durable and not self._is_behind:
            force(self._aside)
        if self._aside != self._path:
            self._filesystem.move(self._aside, self._path)
        if self._behind is not None and self._is_behind and not self._durable:
            self._behind.leave(self._path)

    def discard(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._parquet.close()
        with contextlib.suppress(OSError):
            self._stream.close()
        for path in {self._aside, self._path}:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.delete_file(path)


def _copied(table: pa.Table) -> pa.Table:
    """Return a copy with buffers of its own: every other way to keep a table shares Arrow's memory."""
    batches = [pa.ipc.read_record_batch(batch.serialize(), table.schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=table.schema)
