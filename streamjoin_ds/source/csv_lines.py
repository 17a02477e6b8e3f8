"""CSV, line by line: a header in each file, columns found by name, only those that travel are parsed."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.csv as arrow_csv

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.event_time import event_times
from streamjoin_ds.source.lines import missing_columns
from streamjoin_ds.source.records import clipped, empty_as_null

__all__ = ["NULL_TEXTS", "CsvLines", "csv_header"]

# An empty field is null in every column; these are null in columns that are not text (NaN stays NaN).
NULL_TEXTS = ("", " ", "null", "NULL", "NA", "N/A", "None")


def csv_header(line: bytes, file: str) -> list[str]:
    """The column names in a file's first line.

    Raises
    ------
    FileFormatError
        It is empty or not UTF-8.
    """
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        names = next(csv.reader(io.StringIO(text)), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    if not any(names):
        msg = f"the first line of {file} does not name its columns"
        raise FileFormatError(msg, name=file, hint="a CSV file begins with a line of column names, in UTF-8")
    return names


class CsvLines:
    """Lines of one CSV file (a record is one line: a newline inside quotes breaks both lines).

    Parameters
    ----------
    header : list of str
        The file's columns, in its order.
    schema : pyarrow.Schema
        Those that travel, with their types inside the house.
    time : str
        The event time's column: read as text, because every line may write it in its own way.
    stream, file : str
        To name in errors.
    """

    def __init__(self, header: list[str], schema: pa.Schema, time: str, stream: str, file: str) -> None:
        missing_columns(schema.names, header, stream, file)
        # Columns that are not wanted may be named twice, or not at all; Arrow wants names that differ.
        self._names = [name if name in schema.names else f"\0{number}" for number, name in enumerate(header)]
        self._schema = schema
        self._time = time
        self._texts = {f.name for f in schema if f.name == time or pa.types.is_timestamp(f.type)}
        self._types = {f.name: pa.string() if f.name in self._texts else f.type for f in schema}

    def parse(self, data: bytes) -> pa.Table:
        """See `LineFormat.parse`."""
        table = self._read(data, self._types) if data else _empty(self._types)
        for number, column in enumerate(self._schema):
            values = table.column(number)
            if column.name == self._time:
                continue
            if column.name in self._texts:
                values = _timestamps(values)
                table = table.set_column(number, column.name, values)
            elif pa.types.is_string(column.type):
                table = table.set_column(number, column.name, empty_as_null(values))
        return table

    def reason(self, line: bytes) -> tuple[str, str]:
        """See `LineFormat.reason`."""
        if b"\r" in line:
            return "", "a carriage return inside the line"
        try:
            self._read(line, dict.fromkeys(self._types, pa.binary()))
        except pa.ArrowInvalid:
            return "", self._shape(line)
        for column in self._schema:
            try:
                table = self._read(line, {column.name: self._types[column.name]})
                if column.name in self._texts and column.name != self._time:
                    _timestamps(table.column(0))
            except pa.ArrowInvalid:  # noqa: PERF203 - one line, already known to be broken
                valid = "UTF-8" if self._types[column.name] == pa.string() else f"of type {column.type}"
                return column.name, f"the value is not {valid}"
        return "", "the line cannot be read"

    def _shape(self, line: bytes) -> str:
        try:
            fields = len(next(csv.reader([line.decode("utf-8", "replace")]), []))
        except csv.Error:
            return "a field that is too long"
        wanted = len(self._names)
        return "quotes that do not match" if fields == wanted else f"{fields} fields instead of {wanted}"

    def _read(self, data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1),
            arrow_csv.ParseOptions(newlines_in_values=False),
            arrow_csv.ConvertOptions(
                include_columns=list(types), column_types=types, null_values=NULL_TEXTS, strings_can_be_null=False
            ),
        )


def _empty(types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def _timestamps(texts: pa.ChunkedArray) -> pa.Array:
    """A column of timestamps that is not the event time: empty is null, unreadable is broken."""
    texts = empty_as_null(texts).combine_chunks()
    ts, valid = event_times(texts, "us")
    if (~valid & texts.is_valid().to_numpy(zero_copy_only=False)).any():
        msg = f"not a timestamp: {clipped('')}"
        raise pa.ArrowInvalid(msg)
    return pa.array(ts, mask=~valid).cast(pa.timestamp("us", tz="UTC"))
