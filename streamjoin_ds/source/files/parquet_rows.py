"""Parquet files: each is complete when it appears, and is read by row number."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from streamjoin_ds.blocks.files import OpenFile, files_at
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import ColumnError, FileFormatError, FileMissingError, SchemaDriftError
from streamjoin_ds.source.files.lines import missing_columns
from streamjoin_ds.source.files.listing import FileEntry
from streamjoin_ds.source.records import RawRecords, record_text
from streamjoin_ds.spec.columns import TIMESTAMP, foreign_zone, lacks_zone, result_type, without_zone

__all__ = ["ParquetRows", "content_digest", "footer_of", "parquet_schema"]

_FOOTER_END = 8  # bytes at the end of a file: the length of its footer, and "PAR1"
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
    """Return the footer of a Parquet file; fewer bytes, or other ones, of what is no Parquet file."""
    size = file.stamp[0]
    told = file.read_at(max(size - _FOOTER_END, 0), _FOOTER_END)
    length = int.from_bytes(told[:4], "little") if len(told) == _FOOTER_END else 0
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


def parquet_schema(path: str) -> pa.Schema:
    """Return the columns of a file; raise `pyarrow.ArrowInvalid` or `OSError` where it is not Parquet."""
    with _parquet(path) as file:
        return file.schema_arrow


def _parquet(path: str, unit: str = "us") -> pq.ParquetFile:
    # INT96, Spark's timestamps, hold days and nanoseconds: Arrow's nanoseconds would wrap outside of 1677 to 2262.
    return pq.ParquetFile(files_at(path).input(path), pre_buffer=not is_local(path), coerce_int96_timestamp_unit=unit)


class ParquetRows:
    """The rows of one file, by number.

    Parameters
    ----------
    entry : FileEntry
        The file.
    schema : pyarrow.Schema
        The columns that travel, with their inside types. In the file the time column may have any type that can be an
        event time.
    time, stream : str
        The name of the time column, and that of the stream for errors.
    """

    def __init__(self, entry: FileEntry, schema: pa.Schema, time: str, stream: str) -> None:
        self._entry = entry
        self._schema = schema
        try:
            self._file = _parquet(entry.path)
        except FileNotFoundError:
            raise _gone(entry) from None
        except (pa.ArrowInvalid, OSError):
            msg = f"the file {entry.path} is not Parquet, or is cut off"
            raise FileFormatError(
                msg, name=entry.path, hint="write it under another name, and rename it when it is complete"
            ) from None
        found = self._file.schema_arrow
        missing_columns(schema.names, found.names, stream, entry.path)
        for column in schema:
            zone = foreign_zone(column.type)
            if zone is not None and lacks_zone(found.field(column.name).type):
                raise without_zone(column.name, f"{stream} in {entry.path}", zone)
            if column.name != time and not _fits(found.field(column.name).type, column):
                kind = found.field(column.name).type
                msg = f"column '{column.name}' of {entry.path} has the type {kind}, but {column.type} in the join"
                hint = "correct the file, or start a new join with the new type"
                raise SchemaDriftError(msg, name=column.name, hint=hint)
        physical = (self._file.schema.column(place) for place in range(len(self._file.schema)))
        self._int96 = {column.path for column in physical if column.physical_type == "INT96"} & set(schema.names)
        self._coarse = _parquet(entry.path, "s") if self._int96 else None

    @property
    def count(self) -> int:
        """Rows in the file."""
        return int(self._file.metadata.num_rows)

    def chunks(self, first: int, last: int, names: list[str]) -> Iterator[tuple[int, RawRecords]]:
        """Yield rows ``[first, last)`` of the columns `names` in pieces, each with the number of its first row."""
        begin = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if begin < last and begin + rows > first:
                try:
                    table = self._file.read_row_group(group, columns=names, use_threads=False).select(names)
                    wrapped = self._wrapped(table, group)
                except (pa.ArrowInvalid, OSError):
                    where = f"row group {group}, rows {begin} to {begin + rows}"
                    msg = f"the file {self._entry.path} cannot be read in {where}"
                    raise FileFormatError(msg, name=self._entry.path, hint="the file is damaged: restore it") from None
                low, high = max(first - begin, 0), min(last - begin, rows)
                for start in range(low, high, _READ_ROWS):
                    piece = table.slice(start, min(_READ_ROWS, high - start))
                    inside = {name: places[start : start + piece.num_rows] for name, places in wrapped.items()}
                    yield begin + start, _without(piece, inside)
            begin += rows

    def _wrapped(self, table: pa.Table, group: int) -> dict[str, np.ndarray]:
        """Return, by INT96 column, a mask of a row group's rows whose time int64 microseconds cannot hold.

        Columns without such a row are left out.
        """
        names = [name for name in table.column_names if name in self._int96]
        if self._coarse is None or not names:
            return {}
        seconds = self._coarse.read_row_group(group, columns=names, use_threads=False)
        found = {}
        for name in names:
            fine, coarse = (_integers(part.column(name)) for part in (table, seconds))
            found[name] = fine // 1_000_000 != coarse
        return {name: places for name, places in found.items() if places.any()}


def _integers(times: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
    return numbers


def _without(table: pa.Table, wrapped: dict[str, np.ndarray]) -> RawRecords:
    """Return a table's records; those with a time out of range are broken."""
    broken: dict[int, str] = {}
    for name, places in wrapped.items():
        for place in np.flatnonzero(places).tolist():
            broken.setdefault(place, name)
    if not broken:
        return RawRecords(table, table.num_rows)
    index = np.setdiff1d(np.arange(table.num_rows, dtype=np.int64), np.fromiter(broken, np.int64, len(broken)))
    reason = "a time that is out of range"
    found = [
        (
            place,
            name,
            reason,
            record_text(table.drop_columns([other for other in wrapped if wrapped[other][place]]), place),
        )
        for place, name in sorted(broken.items())
    ]
    return RawRecords(table.take(pa.array(index)), table.num_rows, index, found)


def _fits(found: pa.DataType, column: pa.Field) -> bool:
    """Whether the type `found` in a file is the inside type of a column, or widens to it without loss."""
    try:
        kind = result_type(found, column.name)
    except ColumnError:
        return False
    if kind == (TIMESTAMP if pa.types.is_timestamp(column.type) else column.type):
        return True
    types, wanted = pa.types, column.type
    if types.is_integer(kind) and types.is_integer(wanted):
        return bool(kind.bit_width < wanted.bit_width)
    return bool(types.is_float32(kind) and types.is_float64(wanted))
