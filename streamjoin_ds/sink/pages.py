"""A Parquet file of matches, whose pages are filled here and not by pyarrow's encoders.

::

    table ──► PageFile ──► row group ──► column: levels, values ──► page_values (C)
                              └──► footer, in Thrift's compact form

A match has columns of the tuple that probes, which stand still while it meets its partners, and columns of the window.
Each column of each row group lies in the shortest of three forms: as it is, written from Arrow's own buffer; whole
numbers as packed differences; runs of a dictionary. All are found out exactly, at 1.5 ns a value, but of many values
one that takes 1.5 times the bytes of another over the 4 096 values in their middle.

Of a column of texts the pages are pyarrow's: cut out of a file of that column, with the options of `parquet_options`.

`holds` says which schemas a `PageFile` takes. For all others, and where nothing was compiled, `TableWriter` has pyarrow
write the file. The bytes of a file follow from its rows alone.

What stands in the headers and in the footer is defined by parquet-format (``parquet.thrift``, ``Encodings.md``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import compute, parquet

from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.sink.page_values import Bytes, Numbers, compiled, signed, varint
from streamjoin_ds.sink.tables import BATCH_ID

__all__ = ["STATED", "PageFile", "holds", "parquet_options"]

STATED = (EVENT_TIME, "ts")
"""Columns of which a row group tells the smallest and the largest value."""

_MAGIC = b"PAR1"
_WRITER = b"streamjoin_ds version 1 (build pages)"  # in the form that parquet-java parses
# Thrift's types, and names of Parquet's numbers.
_FLAG, _BYTE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 3, 4, 5, 6, 8, 9, 12
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY = 0, 1, 2, 4, 5, 6
_PLAIN, _RLE, _DELTA_BINARY_PACKED, _RLE_DICTIONARY = 0, 3, 5, 8
_ENCODINGS = {"PLAIN": _PLAIN, "RLE": _RLE, "RLE_DICTIONARY": _RLE_DICTIONARY, "PLAIN_DICTIONARY": 2, "BIT_PACKED": 4}
_CODECS = {"UNCOMPRESSED": 0, "LZ4": 7}  # the codec that parquet-format calls LZ4_RAW
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_LARGE_ROWS = 1 << 16
_SAMPLE_ROWS, _FEWEST_ROWS = 1 << 12, 16  # by which encodings are chosen, at most; and at least
_LEAST_SAMPLES = 8  # values of a column, in samples, from which on a sample may rule a form out
_EQUAL_SHARE = 0.4  # of values that equal the one before, from which on they come in runs
_PACKED_SHARE = 0.75  # of a number's bits, below which differences are packed
_ENCODE_ROWS = 1 << 16  # values that Parquet encodes at a time: the fastest setting of the table above


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    """Return a struct of Thrift's compact form: each field's number, type and value; structs are given as bytes."""
    out, last = bytearray(), 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | (2 if kind == _FLAG and not value else kind))
        out += _value(kind, value)
        last = number
    return bytes(out + b"\0")


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I16, _I32, _I64):
        return signed(value)
    if kind == _BINARY:
        return varint(len(value)) + bytes(value)
    if kind == _LIST:
        item_kind, items = value
        head = (
            bytes([len(items) << 4 | item_kind]) if len(items) < 15 else bytes([0xF0 | item_kind]) + varint(len(items))
        )
        return head + b"".join(_value(item_kind, item) for item in items)
    return bytes([value]) if kind == _BYTE else b"" if kind == _FLAG else bytes(value)


class _Form(Struct, frozen=True):
    """How a type lies in a file.

    Attributes
    ----------
    physical : int
        Parquet's type.
    stored : pyarrow.DataType
        The Arrow type whose values have these bits.
    notes : tuple
        What the schema says of the type besides: fields of a ``SchemaElement``.
    """

    physical: int
    stored: pa.DataType
    notes: tuple[tuple[int, int, Any], ...] = ()


def _whole(bits: int) -> _Form:
    converted = {8: 15, 16: 16}[bits]
    logical = _struct((10, _STRUCT, _struct((1, _BYTE, bits), (2, _FLAG, True))))
    return _Form(_INT32, pa.int32(), ((6, _I32, converted), (10, _STRUCT, logical)))


def _moment(*, is_utc: bool) -> _Form:
    unit = _struct((2, _STRUCT, _struct()))  # microseconds
    logical = _struct((8, _STRUCT, _struct((1, _FLAG, is_utc), (2, _STRUCT, unit))))
    return _Form(_INT64, pa.int64(), (*([(6, _I32, 10)] if is_utc else []), (10, _STRUCT, logical)))


_FORMS = {
    pa.bool_(): _Form(_BOOLEAN, pa.bool_()),
    pa.int8(): _whole(8),
    pa.int16(): _whole(16),
    pa.int32(): _Form(_INT32, pa.int32()),
    pa.int64(): _Form(_INT64, pa.int64()),
    pa.float32(): _Form(_FLOAT, pa.int32()),
    pa.float64(): _Form(_DOUBLE, pa.int64()),
    pa.date32(): _Form(_INT32, pa.int32(), ((6, _I32, 6), (10, _STRUCT, _struct((6, _STRUCT, _struct()))))),
    pa.timestamp("us", tz="UTC"): _moment(is_utc=True),
    pa.timestamp("us"): _moment(is_utc=False),
    pa.string(): _Form(_BYTE_ARRAY, pa.string(), ((6, _I32, 0), (10, _STRUCT, _struct((1, _STRUCT, _struct()))))),
    pa.binary(): _Form(_BYTE_ARRAY, pa.binary()),
}


def holds(schema: pa.Schema, rows: int) -> bool:
    """Whether `PageFile` writes a file that begins with so many rows.

    The kernels must be compiled, and all columns of types that it knows. Texts are written so in large files only:
    pyarrow begins a file for each column of each row group then, which takes longer than a small one.
    """
    if compiled() is None or any(field.type not in _FORMS or field.metadata for field in schema):
        return False
    texts = [field for field in schema if _FORMS[field.type].physical == _BYTE_ARRAY]
    return not texts or (len(texts) < len(schema) and rows >= _LARGE_ROWS)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Where a column of a row group lies, and how; `plain_bytes` are those before a codec, where there is one."""

    began: int
    data_at: int  # where the pages after the dictionary begin
    encodings: set[int]
    statistics: bytes = b""
    codec: int = 0
    plain_bytes: int = 0

    def told(self, field: pa.Field, rows: int, end: int) -> bytes:
        """Return what the footer says of it."""
        size = end - self.began
        facts = _struct(
            (1, _I32, _FORMS[field.type].physical),
            (2, _LIST, (_I32, sorted(self.encodings))),
            (3, _LIST, (_BINARY, [field.name.encode()])),
            (4, _I32, self.codec),
            (5, _I64, rows),
            (6, _I64, self.plain_bytes or size),
            (7, _I64, size),
            (9, _I64, self.data_at),
            *([(11, _I64, self.began)] if self.data_at > self.began else []),
            *([(12, _STRUCT, self.statistics)] if self.statistics else []),
        )
        return _struct((2, _I64, self.began), (3, _STRUCT, facts))


class _Stream(Protocol):
    """Where the bytes of a file go."""

    def write(self, data: Any, /) -> int: ...


class PageFile:
    """One Parquet file, written from its beginning to its end.

    Parameters
    ----------
    stream : file-like
        It is not closed.
    schema : pyarrow.Schema
        One that `holds` takes.
    """

    def __init__(self, stream: _Stream, schema: pa.Schema) -> None:
        self._stream, self._schema = stream, schema
        self._kernels = compiled()
        self._at = 0
        self._rows = 0
        self._groups: list[bytes] = []
        self._is_open = True
        self._put(_MAGIC)

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Write the rows of a table, as row groups of at most so many rows."""
        for first in range(0, table.num_rows, row_group_size):
            self._write_group(table.slice(first, row_group_size))

    def close(self) -> None:
        """Write the footer, the first time; do nothing where that was tried before."""
        if not self._is_open:
            return
        self._is_open = False
        fields = [_struct((4, _BINARY, b"schema"), (5, _I32, len(self._schema)))]
        for field in self._schema:
            form = _FORMS[field.type]
            named = ((1, _I32, form.physical), (3, _I32, int(field.nullable)), (4, _BINARY, field.name.encode()))
            fields.append(_struct(*named, *form.notes))
        by_type = _struct((1, _STRUCT, _struct()))  # the order in which the statistics' bounds are meant
        footer = _struct(
            (1, _I32, 2),
            (2, _LIST, (_STRUCT, fields)),
            (3, _I64, self._rows),
            (4, _LIST, (_STRUCT, self._groups)),
            (6, _BINARY, _WRITER),
            (7, _LIST, (_STRUCT, [by_type] * len(self._schema))),
        )
        self._put(footer, struct.pack("<I", len(footer)), _MAGIC)

    def _write_group(self, rows: pa.Table) -> None:
        began, plain_bytes, chunks = self._at, 0, []
        for field, column in zip(self._schema, rows.columns, strict=True):
            is_text = _FORMS[field.type].physical == _BYTE_ARRAY
            chunk = (self._write_texts if is_text else self._write_numbers)(field, column)
            plain_bytes += chunk.plain_bytes or self._at - chunk.began
            chunks.append(chunk.told(field, len(column), self._at))
        self._groups.append(
            _struct(
                (1, _LIST, (_STRUCT, chunks)),
                (2, _I64, plain_bytes),
                (3, _I64, rows.num_rows),
                (5, _I64, began),
                (6, _I64, self._at - began),
            )
        )
        self._rows += rows.num_rows

    def _write_numbers(self, field: pa.Field, column: pa.ChunkedArray) -> _Chunk:
        """Write a column of a row group in the shortest form."""
        form, began = _FORMS[field.type], self._at
        is_whole = form.physical in (_INT32, _INT64)
        levels = _levels(column) if field.nullable else b""
        nulls = column.null_count
        values = _bits(column.drop_null() if nulls else column, form)
        encoding, dictionary, data = self._shortest(values, is_whole=is_whole)
        if dictionary is not None:
            inner = _struct((1, _I32, len(dictionary)), (2, _I32, _PLAIN))
            self._put_page(_DICTIONARY_PAGE, (7, _STRUCT, inner), dictionary)
        data_at = self._at
        counts = ((1, _I32, len(column)), (2, _I32, encoding), (3, _I32, _RLE), (4, _I32, _RLE))
        self._put_page(_DATA_PAGE, (5, _STRUCT, _struct(*counts)), levels, data)
        statistics = b""
        if field.name in STATED and is_whole:
            ends = [(5, values.max()), (6, values.min())] if len(values) else []
            statistics = _struct((3, _I64, nulls), *((number, _BINARY, end.tobytes()) for number, end in ends))
        return _Chunk(began, data_at, {_RLE, encoding} | ({_PLAIN} if dictionary is not None else set()), statistics)

    def _write_texts(self, field: pa.Field, column: pa.ChunkedArray) -> _Chunk:
        """Write a column of a row group as pyarrow encodes it, cut out of a file of that column alone."""
        table = pa.table([column], schema=pa.schema([field]))
        alone = pa.BufferOutputStream()
        with parquet.ParquetWriter(alone, table.schema, **parquet_options(table)) as writer:
            writer.write_table(table, row_group_size=len(column))
        file, began = alone.getvalue(), self._at
        chunk = parquet.read_metadata(pa.BufferReader(file)).row_group(0).column(0)
        first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        self._put(file.slice(first, chunk.total_compressed_size))
        return _Chunk(
            began,
            began + chunk.data_page_offset - first,
            {_ENCODINGS[name] for name in chunk.encodings},
            codec=_CODECS[chunk.compression],
            plain_bytes=chunk.total_uncompressed_size,
        )

    def _shortest(self, values: Numbers | Bytes, *, is_whole: bool) -> tuple[int, Numbers | None, Numbers | Bytes]:
        """Return the encoding of a column's values, its dictionary, and the bytes of its data page."""
        found: tuple[int, Numbers | None, Numbers | Bytes] = (_PLAIN, None, values)
        size = values.nbytes
        if values.dtype == np.uint8:  # truth values, which are bits already
            return found
        may_be_runs, may_be_packed = self._promising(values) if is_whole else (True, False)
        runs = self._kernels.pack_runs(values) if may_be_runs else None
        if runs is not None and (runs_bytes := _size(runs)) < size:
            found, size = (_RLE_DICTIONARY, *runs), runs_bytes
        is_plain = found[0] == _PLAIN  # then the sample was none of all values
        packed = self._kernels.pack_differences(values) if may_be_packed or (is_whole and is_plain) else None
        if packed is not None and packed.nbytes < size:
            found = (_DELTA_BINARY_PACKED, None, packed)
        return found

    def _promising(self, values: Numbers | Bytes) -> tuple[bool, bool]:
        """Return whether runs, and whether differences, may be the shortest form of whole numbers."""
        if len(values) < _LEAST_SAMPLES * _SAMPLE_ROWS:
            return True, True
        begin = len(values) // 2
        sample = values[begin : begin + _SAMPLE_ROWS]
        runs, packed = self._kernels.pack_runs(sample), self._kernels.pack_differences(sample)
        runs_bytes = sample.nbytes if runs is None else _size(runs)
        packed_bytes = sample.nbytes if packed is None else packed.nbytes
        return 2 * runs_bytes < 3 * packed_bytes, 2 * packed_bytes < 3 * runs_bytes

    def _put_page(self, kind: int, header: tuple[int, int, Any], *parts: Any) -> None:
        size = sum(memoryview(part).nbytes for part in parts)
        self._put(_struct((1, _I32, kind), (2, _I32, size), (3, _I32, size), header), *parts)

    def _put(self, *parts: Any) -> None:
        for part in parts:
            data = pa.py_buffer(part)  # bytes for any file, which numbers are not for one of Python's
            if data.size:
                self._stream.write(data)
                self._at += data.size


def _size(runs: tuple[Numbers, Bytes]) -> int:
    return sum(part.nbytes for part in runs)


def _bits(column: pa.ChunkedArray, form: _Form) -> Numbers | Bytes:
    """Return the values of a column without nulls as the bits that a page has."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if form.physical == _BOOLEAN:
        return np.packbits(array.to_numpy(zero_copy_only=False), bitorder="little")
    if array.type.bit_width < form.stored.bit_width:
        array = array.cast(form.stored)
    values: Numbers = np.require(array.view(form.stored).to_numpy(), requirements="A")  # foreign buffers may be askew
    return values


def _levels(column: pa.ChunkedArray) -> bytes:
    """Return which values of a column are there, as the runs that a data page begins with."""
    rows = len(column)
    if column.null_count == 0:
        levels = varint(rows << 1) + b"\1"
    else:
        bits = np.packbits(column.is_valid().to_numpy(), bitorder="little")
        levels = varint(len(bits) << 1 | 1) + bits.tobytes()
    return struct.pack("<I", len(levels)) + levels


def parquet_options(rows: pa.Table) -> dict[str, object]:
    """Return how a file is written that begins with these rows, by the first of them."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    looked_at = rows.column_names if rows.num_rows >= _FEWEST_ROWS else []
    runs = {BATCH_ID, *(name for name in looked_at if _comes_in_runs(sample.column(name)))}
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    packed = [name for name in looked_at if name not in runs and _is_packed(sample.column(name))]
    return {
        "version": "2.6",
        "compression": {name: "lz4" if name in runs else "none" for name in rows.column_names},
        "use_dictionary": [name for name in texts if name not in runs] or False,
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in rows.column_names if name in STATED] or False,
        "write_batch_size": _ENCODE_ROWS,
        "store_schema": False,
    }


def _comes_in_runs(values: pa.ChunkedArray) -> bool:
    """Whether many values equal the one before."""
    if pa.types.is_nested(values.type):
        return False
    equal = compute.equal(values.slice(1), values.slice(0, len(values) - 1))
    return bool((compute.mean(equal).as_py() or 0.0) >= _EQUAL_SHARE)


def _is_packed(values: pa.ChunkedArray) -> bool:
    """Whether the differences of whole numbers, or of times, take clearly fewer bits than the values."""
    types, kind = pa.types, values.type
    if not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date32(kind)):
        return False
    known = values.drop_null().cast(pa.int32() if types.is_date32(kind) else kind).combine_chunks()
    numbers = np.asarray(known.view(f"int{kind.bit_width}" if types.is_timestamp(kind) else known.type))
    if len(numbers) < _FEWEST_ROWS:
        return False
    physical = max(kind.bit_width, 32)  # Parquet has no narrower ones
    steps = np.diff(numbers.astype(np.float64))
    return bool(np.log2(float(steps.max()) - float(steps.min()) + 1) < _PACKED_SHARE * physical)
