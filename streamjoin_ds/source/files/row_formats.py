"""Formats of rows: Parquet, ORC, Avro and Arrow files. Each is complete when it appears, and is read by groups of rows.

==========  ==============================================  =======================================
format      a group                                         read by
==========  ==============================================  =======================================
parquet     a row group                                     `pyarrow.parquet`
orc         a stripe                                        `pyarrow.orc`
arrow       a record batch of a file (Feather) or a stream  `pyarrow.ipc`
avro        some blocks of an object container file         fastavro, a record after the other
==========  ==============================================  =======================================

Where a file does not tell how many rows its groups have, that is found once and kept beside the file's stamp.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.spec.common_types import LARGEST_EXACT, common_type

__all__ = ["RowGroups", "row_groups"]

# How many rows the groups of files have, by path and stamp. They are hints: they change no result.
_counts: OrderedDict[tuple[str, tuple[int, int, int]], list[int]] = OrderedDict()
_COUNTED_FILES = 1024
_WINDOW_BYTES = 1 << 20  # of an Avro file, read at once where blocks are looked for
_GROUP_BYTES = 1 << 16  # of blocks of an Avro file that are one group, at least
_MOST_BYTES = 1 << 28  # of a block of an Avro file
_EPOCH_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


class RowGroups:
    """The rows of one file, group by group.

    Attributes
    ----------
    schema : pyarrow.Schema
    rows : sequence of int
        The number of rows of each group.
    """

    schema: pa.Schema
    rows: Sequence[int]

    def counted(self) -> list[int]:
        """Return the number of rows of each group, where the file has to be read for it."""
        raise NotImplementedError

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        """Return columns of a group; raise `pyarrow.ArrowInvalid` or `OSError` where it is damaged.

        `leaves` are the paths into them that are needed, if not all is: Parquet reads no more.
        """
        raise NotImplementedError

    def wrapped(self, table: pa.Table, group: int) -> dict[str, np.ndarray]:
        """Return masks of a group's rows, by column, whose time int64 microseconds cannot hold; mostly none."""
        del table, group
        return {}

    def large(self) -> list[str]:
        """Return the columns with whole numbers that no double holds, as far as the file's own notes tell."""
        return []


def row_groups(source: Callable[[], Any], kind: str, known: tuple[str, tuple[int, int, int]] | None) -> RowGroups:
    """Open a file of one of the `ROW_FORMATS`.

    Parameters
    ----------
    source : callable
        Opens the file once more, as Arrow reads it.
    kind : str
        Its format.
    known : tuple, optional
        Its path and stamp, under which the counts of rows are kept.

    Raises
    ------
    pyarrow.ArrowInvalid, OSError
        It is not of this format, or is cut off.
    DependencyMissingError
        What reads the format is not installed.
    """
    if kind == "parquet":
        return _ParquetGroups(source)
    made: RowGroups = {"orc": _OrcGroups, "arrow": _arrow_groups, "avro": _AvroGroups}[kind](source)
    if known not in _counts or known is None:
        counted = made.counted()
        if known is None:
            made.rows = counted
            return made
        _counts[known] = counted
        while len(_counts) > _COUNTED_FILES:
            _counts.popitem(last=False)
    made.rows = _counts[known]
    return made


class _ParquetGroups(RowGroups):
    def __init__(self, source: Callable[[], Any]) -> None:
        # INT96, Spark's timestamps, hold days and nanoseconds: Arrow's nanoseconds would wrap outside of 1677 to 2262.
        self._file, self._source = _parquet(source, "us"), source
        self.schema, self._facts = self._file.schema_arrow, self._file.metadata
        self.rows = [self._facts.row_group(group).num_rows for group in range(self._facts.num_row_groups)]
        physical = (self._file.schema.column(place) for place in range(len(self._file.schema)))
        self._int96 = {column.path for column in physical if column.physical_type == "INT96"}
        self._coarse: pq.ParquetFile | None = None

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        return self._file.read_row_group(group, columns=[*leaves] or columns, use_threads=False).select(columns)

    def wrapped(self, table: pa.Table, group: int) -> dict[str, np.ndarray]:
        names = [name for name in table.column_names if name in self._int96 and name in self.schema.names]
        if not names:
            return {}
        self._coarse = self._coarse or _parquet(self._source, "s")
        seconds = self._coarse.read_row_group(group, columns=names, use_threads=False)
        found = {}
        for name in names:
            fine, coarse = (_integers(part.column(name)) for part in (table, seconds))
            found[name] = fine // 1_000_000 != coarse
        return {name: places for name, places in found.items() if places.any()}

    def large(self) -> list[str]:
        found = set()
        for place in range(self._facts.num_columns):
            column = self._facts.schema.column(place)
            if column.physical_type != "INT64" or column.logical_type.type not in ("NONE", "INT"):
                continue
            for group in range(self._facts.num_row_groups):
                told = self._facts.row_group(group).column(place).statistics
                ends = (told.min, told.max) if told is not None and told.has_min_max else ()
                if any(isinstance(end, int) and abs(end) > LARGEST_EXACT for end in ends):
                    found.add(column.path)
        return sorted(found)


def _parquet(source: Callable[[], Any], unit: str) -> pq.ParquetFile:
    file = source()
    return pq.ParquetFile(file, pre_buffer=not isinstance(file, pa.NativeFile), coerce_int96_timestamp_unit=unit)


def _integers(times: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
    return numbers


class _OrcGroups(RowGroups):
    def __init__(self, source: Callable[[], Any]) -> None:
        from pyarrow import orc  # some builds of Arrow lack it

        self._file = orc.ORCFile(source())
        self.schema = self._file.schema

    def counted(self) -> list[int]:
        names = [min(self.schema, key=lambda field: (field.type.num_fields, str(field.type))).name]
        found: list[int] = []
        for group in range(self._file.nstripes - 1):
            try:
                found.append(self._file.read_stripe(group, names).num_rows)
            except (pa.ArrowInvalid, OSError):  # noqa: PERF203 - it stands for all rows that are left
                break
        return [*found, self._file.nrows - sum(found)] if self._file.nstripes else found

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        return pa.Table.from_batches([self._file.read_stripe(group, columns)]).select(columns)


def _arrow_groups(source: Callable[[], Any]) -> _ArrowFile | _ArrowStream:
    file = source()
    begin = file.read(6)
    file.seek(0)
    return _ArrowFile(file) if begin == b"ARROW1" else _ArrowStream(source)


class _ArrowFile(RowGroups):
    """A file of Arrow's, which is also Feather's second version: batches are read by number."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.schema = ipc.open_file(file).schema

    def _reader(self, columns: Sequence[str]) -> ipc.RecordBatchFileReader:
        return ipc.open_file(self._file, options=_only(self.schema, columns))

    def counted(self) -> list[int]:
        reader = self._reader(self.schema.names[:1])
        return [reader.get_batch(group).num_rows for group in range(reader.num_record_batches)]

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        return pa.Table.from_batches([self._reader(columns).get_batch(group)]).select(columns)


class _ArrowStream(RowGroups):
    """A stream of Arrow's: batches are read one after the other."""

    def __init__(self, source: Callable[[], Any]) -> None:
        self._source = source
        self.schema = ipc.open_stream(source()).schema
        self._open: tuple[list[str], int, ipc.RecordBatchStreamReader] | None = None

    def _reader(self, columns: Sequence[str]) -> ipc.RecordBatchStreamReader:
        return ipc.open_stream(self._source(), options=_only(self.schema, columns))

    def counted(self) -> list[int]:
        return [batch.num_rows for batch in self._reader(self.schema.names[:1])]

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        names, at, reader = self._open or ([], 0, None)
        if reader is None or names != columns or at > group:
            at, reader = 0, self._reader(columns)
        batch = None
        while at <= group:
            batch, at = reader.read_next_batch(), at + 1
        self._open = columns, at, reader
        return pa.Table.from_batches([batch]).select(columns)


def _only(schema: pa.Schema, columns: Sequence[str]) -> ipc.IpcReadOptions:
    places = [schema.get_field_index(name) for name in columns]
    return ipc.IpcReadOptions(included_fields=places or None, use_threads=False)


class _AvroGroups(RowGroups):
    """An object container file of Avro 1.11, "Object Container Files": blocks, each with its count of records."""

    def __init__(self, source: Callable[[], Any]) -> None:
        try:
            self._avro: Any = import_module("fastavro")
        except ImportError as error:
            msg = "files of Avro need fastavro"
            raise DependencyMissingError(msg, name="fastavro", hint="pip install 'streamjoin-ds[avro]'") from error
        self._file = _Windowed(source())
        if self._file.read(4) != b"Obj\x01":
            msg = "not Avro"
            raise pa.ArrowInvalid(msg)
        facts = self._facts()
        self._codec = facts.get("avro.codec", b"null").decode("latin-1")
        self._sync = self._file.read(16)
        self._begin = self._file.at
        try:
            self._parsed = self._avro.parse_schema(json.loads(facts["avro.schema"]))
        except (KeyError, ValueError, self._avro.schema.SchemaParseException) as error:
            raise pa.ArrowInvalid(str(error)) from None
        columns = _Columns()
        kind = columns.kind(self._parsed)
        if not pa.types.is_struct(kind):
            msg = "an Avro file whose values are no records"
            raise pa.ArrowInvalid(msg)
        self.schema = pa.schema(list(kind))
        self._blocks: list[list[tuple[int, int, int]]] | None = (
            None  # count, place and size of the blocks of each group
        )

    def _facts(self) -> dict[str, bytes]:
        found = {}
        while count := self._file.number():
            if count < 0:  # then the size of the block follows
                self._file.number()
            for _ in range(abs(count)):
                name = self._file.read(self._file.length()).decode()
                found[name] = self._file.read(self._file.length())
        return found

    def counted(self) -> list[int]:
        return [sum(count for count, _, _ in group) for group in self._groups()]

    def _groups(self) -> list[list[tuple[int, int, int]]]:
        if self._blocks is not None:
            return self._blocks
        found: list[list[tuple[int, int, int]]] = []
        self._file.at, held = self._begin, _GROUP_BYTES
        while not self._file.has_ended():
            count, size = self._file.length(), self._file.length()
            place = self._file.at
            self._file.at += size
            if self._file.read(16) != self._sync:
                msg = f"the block of Avro before byte {self._file.at} is damaged or cut off"
                raise pa.ArrowInvalid(msg)
            if held >= _GROUP_BYTES:
                found.append([])
                held = 0
            found[-1].append((count, place, size))
            held += size
        self._blocks = found
        return found

    def read(self, group: int, columns: list[str], leaves: Sequence[str] = ()) -> pa.Table:
        values: dict[str, list[Any]] = {name: [] for name in columns}
        for count, place, size in self._groups()[group]:
            self._file.at = place
            data = BytesIO(_uncompressed(self._file.read(size), self._codec))
            for _ in range(count):
                record = self._decoded(data)
                for name, column in values.items():
                    column.append(record[name])
            if data.read(1):
                msg = f"the block of Avro at byte {place} has more than its records"
                raise pa.ArrowInvalid(msg)
        fields = [self.schema.field(name) for name in columns]
        try:
            made = [_array(values[field.name], field.type) for field in fields]
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            raise pa.ArrowInvalid(str(error)) from None
        return pa.table(made, schema=pa.schema(fields))

    def _decoded(self, data: BytesIO) -> dict[str, Any]:
        try:
            record: dict[str, Any] = self._avro.schemaless_reader(data, self._parsed)
        except Exception as error:  # what damaged bytes raise is any of a dozen
            raise pa.ArrowInvalid(str(error)) from None
        return record


class _Windowed:
    """A file that is read in small steps: what lies ahead is read at once."""

    def __init__(self, file: Any) -> None:
        self._file, self.at = file, 0
        self._window, self._from = b"", 0
        file.seek(0, 2)
        self._size = file.tell()

    def has_ended(self) -> bool:
        return bool(self.at >= self._size)

    def read(self, size: int) -> bytes:
        """Return the next bytes; raise `pyarrow.ArrowInvalid` where the file has fewer."""
        if size > _MOST_BYTES or self.at + size > self._size:
            msg = "cut off"
            raise pa.ArrowInvalid(msg)
        begin = self.at - self._from
        if not 0 <= begin <= len(self._window) - size:
            self._file.seek(self.at)
            self._window, self._from, begin = self._file.read(max(size, _WINDOW_BYTES)), self.at, 0
            while len(self._window) < size:  # a file of another machine may give less than was asked for
                self._window += self._file.read(size - len(self._window))
        self.at += size
        return self._window[begin : begin + size]

    def number(self) -> int:
        """Return a long, in zig-zag and groups of seven bits."""
        found = shift = 0
        while True:
            byte = self.read(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            if shift > 63:
                msg = "a number that is too long"
                raise pa.ArrowInvalid(msg)

    def length(self) -> int:
        """Return a number that counts something."""
        found = self.number()
        if found < 0:
            msg = "a length below zero"
            raise pa.ArrowInvalid(msg)
        return found


def _uncompressed(data: bytes, codec: str) -> bytes:
    """Return a block's bytes as they were before its codec, one of Avro 1.11."""
    try:
        if codec == "deflate":
            return zlib.decompress(data, -15)
        if codec == "snappy":  # the last four bytes are a checksum of the text
            size, _ = _varint(data)
            text: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
            if zlib.crc32(text) != int.from_bytes(data[-4:], "big"):
                msg = "a checksum that is not that of its block"
                raise pa.ArrowInvalid(msg)
            return text
        if codec == "zstandard":
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return bytes(stream.read())
        if codec in ("bzip2", "xz"):
            return bz2.decompress(data) if codec == "bzip2" else lzma.decompress(data)
    except (zlib.error, ValueError, EOFError, lzma.LZMAError) as error:
        raise pa.ArrowInvalid(str(error)) from None
    if codec == "null":
        return data
    msg = f"the codec {codec} of Avro is not known"
    raise pa.ArrowInvalid(msg)


def _varint(data: bytes) -> tuple[int, int]:
    """Return the number without a sign that bytes begin with, and the place after it."""
    found = 0
    for place, byte in enumerate(data[:5]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found, place + 1
    msg = "a length that is too long"
    raise pa.ArrowInvalid(msg)


class _Columns:
    """Arrow's types of a parsed schema of Avro."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._open: set[str] = set()

    def kind(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._plain(schema)
        kind, logical = schema["type"], schema.get("logicalType", "")
        if not isinstance(kind, str):
            return self.kind(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return pa.list_(self.kind(schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self.kind(schema["values"]))
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = pa.string() if kind == "enum" else pa.binary()
        if logical == "decimal" and kind in ("bytes", "fixed") and schema.get("precision", 99) <= 76:
            precision, scale = schema["precision"], schema.get("scale", 0)
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        stamp, _, unit = logical.rpartition("-")
        if kind == "long" and stamp in ("timestamp", "local-timestamp") and unit in _EPOCH_UNITS:
            return pa.timestamp(_EPOCH_UNITS[unit], tz=None if stamp.startswith("local") else "UTC")
        if logical == "date" and kind == "int":
            return pa.date32()
        if logical == "time-millis" and kind == "int":
            return pa.time32("ms")
        if logical == "time-micros" and kind == "long":
            return pa.time64("us")
        return self._plain(schema["name"] if kind in ("enum", "fixed") else kind)

    def _plain(self, name: str) -> pa.DataType:
        plain = {
            "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
            "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
        }  # fmt: skip
        if name in self._open:
            msg = f"the type {name} of Avro holds itself"
            raise pa.ArrowInvalid(msg)
        return plain[name] if name in plain else self._named[name]

    def _union(self, branches: Sequence[Any]) -> pa.DataType:
        found = pa.null()
        for branch in branches:
            kind = common_type(found, self.kind(branch))
            if kind is None:  # it is refused where the column is wanted
                return pa.map_(pa.string(), pa.string())
            found = kind
        return found

    def _record(self, schema: Any) -> pa.DataType:
        name = schema["name"]
        self._open.add(name)
        fields = [pa.field(field["name"], self.kind(field["type"])) for field in schema["fields"]]
        self._open.remove(name)
        self._named[name] = pa.struct(fields)
        return self._named[name]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as fastavro gives them as an array; what Arrow does not take as it is, is brought to its type."""
    if pa.types.is_string(kind):
        return pa.array([one if one is None or type(one) is str else str(one) for one in values], kind)
    if pa.types.is_timestamp(kind) and any(type(one) is int for one in values):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([one if one is None or isinstance(one, Decimal) else Decimal(one) for one in values], kind)
    return pa.array(values, kind)
