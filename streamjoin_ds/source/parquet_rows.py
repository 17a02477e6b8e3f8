"""Parquet files: complete when they appear, read by row number."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from streamjoin_ds.errors import ColumnError, FileFormatError, FileMissingError, SchemaDriftError
from streamjoin_ds.source.lines import missing_columns
from streamjoin_ds.source.listing import FileEntry
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.columns import NANOSECONDS, TIMESTAMP, result_type

__all__ = ["ParquetRows", "content_digest"]

_CHUNK_ROWS = 1 << 17

# Digests of whole files, by path and stamp: a hint that spares a second look at the same bytes.
_digests: OrderedDict[tuple[str, int, int, int], bytes] = OrderedDict()
_KEPT_DIGESTS = 1024


def content_digest(entry: FileEntry) -> bytes:
    """XXH3-128 over all of a file, 16 bytes."""
    key = (entry.path, *entry.stamp)
    if key not in _digests:
        with _opened(entry) as file:
            if entry.size:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    _digests[key] = xxhash.xxh3_128_digest(data)
            else:
                _digests[key] = xxhash.xxh3_128_digest(b"")
        while len(_digests) > _KEPT_DIGESTS:
            _digests.popitem(last=False)
    return _digests[key]


def _opened(entry: FileEntry) -> BinaryIO:
    try:
        return open(entry.path, "rb")
    except FileNotFoundError:
        msg = f"the file {entry.path} is not there any more"
        raise FileMissingError(msg, name=entry.path, hint="put it back as it was") from None


class ParquetRows:
    """The rows of one file, by number.

    Parameters
    ----------
    entry : FileEntry
        The file.
    schema : pyarrow.Schema
        The columns that travel, with their types inside the house; the time column may be anything that can be one.
    time, stream : str
        The event time's column; the stream, to name in errors.
    """

    def __init__(self, entry: FileEntry, schema: pa.Schema, time: str, stream: str) -> None:
        self._entry = entry
        self._schema = schema
        self._time = time
        try:
            self._file = pq.ParquetFile(entry.path, memory_map=True)
        except FileNotFoundError:
            _opened(entry)
            raise
        except (pa.ArrowInvalid, OSError):
            msg = f"the file {entry.path} is not Parquet, or is cut off"
            raise FileFormatError(msg, name=entry.path, hint="write it aside and rename it when it is whole") from None
        found = self._file.schema_arrow
        missing_columns(schema.names, found.names, stream, entry.path)
        for column in schema:
            if column.name != time and not _fits(found.field(column.name).type, column):
                kind = found.field(column.name).type
                msg = f"column '{column.name}' of {entry.path} is {kind}, the join was made with {column.type}"
                hint = "correct the file, or start a new join with the new type"
                raise SchemaDriftError(msg, name=column.name, hint=hint)

    @property
    def count(self) -> int:
        """Rows in the file."""
        return int(self._file.metadata.num_rows)

    def chunks(self, first: int, last: int, names: list[str]) -> Iterator[tuple[int, RawRecords]]:
        """Rows ``[first, last)`` of these columns, each piece with the number of its first row."""
        begin = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if begin < last and begin + rows > first:
                try:
                    table = self._file.read_row_group(group, columns=names, use_threads=False).select(names)
                except (pa.ArrowInvalid, OSError):
                    where = f"row group {group}, rows {begin} to {begin + rows}"
                    msg = f"the file {self._entry.path} cannot be read in {where}"
                    raise FileFormatError(msg, name=self._entry.path, hint="the file is damaged: restore it") from None
                low, high = max(first - begin, 0), min(last - begin, rows)
                for start in range(low, high, _CHUNK_ROWS):
                    piece = table.slice(start, min(_CHUNK_ROWS, high - start))
                    yield begin + start, RawRecords(piece, piece.num_rows)
            begin += rows

    def times(self, first: int, last: int) -> Iterator[pa.Array]:
        """The time column of rows ``[first, last)``, in pieces."""
        for _, raw in self.chunks(first, last, [self._time]):
            yield raw.table.column(0).combine_chunks()


def _fits(found: pa.DataType, column: pa.Field) -> bool:
    """Whether a file's type is, or widens without loss to, the type a column has inside the house."""
    try:
        kind = result_type(found, column.name)
    except ColumnError:
        return False
    if kind == (TIMESTAMP if column.type == NANOSECONDS else column.type):
        return True
    types, wanted = pa.types, column.type
    if types.is_integer(kind) and types.is_integer(wanted):
        return bool(kind.bit_width < wanted.bit_width)
    return bool(types.is_float32(kind) and types.is_float64(wanted))
