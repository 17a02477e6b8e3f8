"""CSV, line by line. Each file has a header, columns are found by name, and only those that travel are parsed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from streamjoin_ds.errors import ColumnError, FileFormatError
from streamjoin_ds.source.files.lines import (
    Lines,
    Sifted,
    check_digits,
    csv_refuses,
    has_small_exponent,
    is_too_fine,
    names_there,
)
from streamjoin_ds.source.records import empty_as_null
from streamjoin_ds.spec.columns import not_of_type
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.nested_values import is_nested, type_text
from streamjoin_ds.spec.time_text import no_timestamps, timestamps

__all__ = ["NULL_TEXTS", "CsvHead", "CsvLines", "check_csv_scales", "check_csv_types", "csv_header"]

# These texts are null in columns that are not text (NaN stays NaN). In columns of text only an empty field is null.
NULL_TEXTS = ("", " ", "null", "NULL", "NA", "N/A", "None")
_NULLS = frozenset(text.encode() for text in NULL_TEXTS)

_BOM = b"\xef\xbb\xbf"
_SWAPPED = bytes.maketrans(b",.", b".,")  # a number with a comma as one with a point, and the other way round
_OPEN_QUOTE = "quotes that do not match"


def csv_header(line: bytes, file: str, delimiter: str = ",") -> list[str]:
    """Return the column names in a file's first line.

    Raises
    ------
    FileFormatError
        The line names no column or is not UTF-8.
    """
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        names = next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        names = []
    if not any(names):
        msg = f"the first line of {file} does not name its columns"
        raise FileFormatError(msg, name=file, hint="a CSV file begins with a line of column names, in UTF-8")
    return names


@dataclass(frozen=True, slots=True)
class CsvHead:
    """What stands before the records of a CSV file.

    Attributes
    ----------
    names : list of str
        The file's columns, in its order.
    size_bytes, lines : int
        How much of the file it takes.
    """

    names: list[str]
    size_bytes: int
    lines: int

    @classmethod
    def of(cls, data: bytes, files: Files, declared: Sequence[str], path: str, *, complete: bool) -> CsvHead | None:
        """Return the head of a file that begins with `data`; None where it is not whole yet.

        Parameters
        ----------
        data : bytes
        files : Files
            Its `skip_lines`, `header`, `comment` and `delimiter`.
        declared : sequence of str
            The columns that are declared, which name those of a file without a header; empty: none are.
        path : str
            The file's path, for errors.
        complete : bool
            Whether the last line counts although it has no newline.

        Raises
        ------
        FileFormatError
            The file ends before its records begin, or the header names no column or is not UTF-8.
        """
        *lines, rest = data.split(b"\n")
        lines += [rest] if complete and rest else []
        wanted = files.header or int(not declared)  # without a header the first record tells how many columns there are
        places = range(files.skip_lines, len(lines))
        records = list(islice((n for n in places if not _is_comment(lines[n], n, files)), wanted))
        if len(records) < wanted or len(lines) < files.skip_lines:
            if not (complete and data):
                return None
            if not records and wanted:
                msg = f"the file {path} ends before its records begin"
                raise FileFormatError(
                    msg, name=path, hint="check skip_lines and header: so many lines stand before them"
                )
        if files.header:
            names = csv_header(lines[records[0]], path, files.delimiter)
            count = records[-1] + 1
        else:
            names = [*declared] or _numbered(lines[records[0]], path, files.delimiter)
            count = min(files.skip_lines, len(lines))
        size = min(sum(len(line) + 1 for line in lines[:count]), len(data))
        if not size and data.startswith(_BOM):
            size = len(_BOM)
        return cls(names, size, count)


def _is_comment(line: bytes, number: int, files: Files) -> bool:
    if files.comment is None:
        return False
    return (line if number else line.removeprefix(_BOM)).startswith(files.comment.encode())


def _numbered(record: bytes, path: str, delimiter: str) -> list[str]:
    """Return names for the columns of a file without a header, of which this is the first record."""
    fields = csv_header(record.removeprefix(_BOM), path, delimiter)
    return [f"column_{number}" for number in range(1, len(fields) + 1)]


def check_csv_types(schema: pa.Schema, stream: str) -> None:
    """Refuse columns of lists and structs, which no field of a CSV line holds."""
    for column in schema:
        if is_nested(column.type):
            msg = f"column '{column.name}' of {stream} is {type_text(column.type)}, which no CSV field holds"
            raise ColumnError(msg, name=column.name, hint="read JSON lines or Parquet, or leave it out with select")


class CsvLines:
    """The format of one CSV file's lines. A record is one line: a newline inside quotes breaks both lines.

    Parameters
    ----------
    header : list of str
        The file's columns, in its order.
    schema : pyarrow.Schema
        The columns that travel, with their inside types.
    time : str
        The time column. It is read as text, because every line may write it in its own way.
    stream, file : str
        The names of the stream and the file, for errors.
    delimiter : str
        One ASCII character.
    decimal : {".", ","}
        The sign between a number's whole part and its fraction.
    """

    def __init__(
        self,
        header: list[str],
        schema: pa.Schema,
        time: str,
        stream: str,
        file: str,
        delimiter: str = ",",
        decimal: str = ".",
    ) -> None:
        there = {other: name for name, other in names_there(schema, time, header, stream, file).items()}
        check_csv_types(schema, stream)
        # Columns that are not wanted may have equal or empty names. Arrow wants names that differ.
        self._names = [there.get(name, f"\0{number}") for number, name in enumerate(header)]
        self._whole = schema
        self._schema = pa.schema([column for column in schema if column.name in there.values()])
        self._time = time
        self._delimiter, self._decimal = delimiter, decimal
        self._texts = {f.name for f in self._schema if f.name == time or pa.types.is_timestamp(f.type)}
        self._types = {f.name: pa.string() if f.name in self._texts else f.type for f in self._schema}

    @property
    def lacking(self) -> list[str]:
        """The columns that the file lacks."""
        return [name for name in self._whole.names if name not in self._schema.names]

    def parse(self, data: bytes) -> pa.Table:
        """See `LineFormat.parse`. Columns that the file lacks are null."""
        table = self._parsed(data)
        for name in self.lacking:
            column = self._whole.field(name)
            table = table.append_column(name, pa.nulls(table.num_rows, column.type))
        return table if table.num_columns == len(self._schema) else table.select(self._whole.names)

    def _parsed(self, data: bytes) -> pa.Table:
        table = self._read(data, self._types) if data else _empty(self._types)
        if b'"' in data and any(_has_line_end(column) for column in table.columns):
            # The last line's quote is not closed: Arrow gives a text with the line end in it.
            raise pa.ArrowInvalid(_OPEN_QUOTE)
        for number, column in enumerate(self._schema):
            values = table.column(number)
            if column.name == self._time:
                if self._decimal != ".":  # numbers; in a time of day a comma is a point anyway
                    values = pc.replace_substring_regex(values, r"^(\s*[+-]?[0-9]*),([0-9]*\s*)$", r"\1.\2")
                    table = table.set_column(number, column.name, values)
                continue
            if column.name in self._texts:
                values = timestamps(empty_as_null(values), column.type)
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
                self._convert(line, column, alone=False)
            except pa.ArrowInvalid:  # noqa: PERF203 - one line, already known to be broken
                return column.name, self._not_valid(column)
        return "", _OPEN_QUOTE if b'"' in line else "the line cannot be read"

    def sift(self, lines: Lines) -> Sifted:
        """See `LineFormat.sift`: finds wrong numbers of fields, then values that cannot be converted.

        In a text with quotes fields cannot be counted by delimiters: there it finds what is refused for sure alone, and
        in one with lone carriage returns nothing.
        """
        broken = self._found(lines)
        kept = np.setdiff1d(np.arange(lines.count, dtype=np.int64), np.fromiter(broken, np.int64, len(broken)))
        return Sifted(broken, [kept])

    def _found(self, lines: Lines) -> dict[int, tuple[str, str]]:
        data, kept = lines.data, np.arange(lines.count, dtype=np.int64)
        if data.count(b"\r") != data.count(b"\r\n"):
            return {}
        found: dict[int, tuple[str, str]] = {}
        has_quotes = b'"' in data
        if not has_quotes:
            between = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(self._delimiter))
            fields = np.searchsorted(between, lines.ends) - np.searchsorted(between, lines.starts) + 1
            wanted = len(self._names)
            for k in np.flatnonzero(fields != wanted).tolist():
                found[k] = "", f"{fields[k]} fields instead of {wanted}"
            kept = np.flatnonzero(fields == wanted)
        rest = lines.some(kept).data if found else data
        try:
            table = self._read(rest, dict.fromkeys(self._types, pa.binary())) if rest else None
        except pa.ArrowInvalid:
            return found
        if table is None or table.num_rows != len(kept):
            return found
        for column in self._schema:
            if self._converts(rest, column):
                continue
            values = table.column(column.name).combine_chunks().dictionary_encode()
            broken = self._unreadable(column, values.dictionary.to_pylist(), only_sure=has_quotes)
            told = column.name, self._not_valid(column)
            is_broken = np.isin(values.indices.to_numpy(), broken)
            for place in kept[is_broken].tolist():
                found.setdefault(place, told)
            if has_quotes and not self._converts(lines.some(kept[~is_broken]).data, column):
                break  # more is broken in this column, which is named before later ones
        return found

    def _converts(self, data: bytes, column: pa.Field, *, alone: bool = False) -> bool:
        try:
            self._convert(data, column, alone=alone)
        except pa.ArrowInvalid:
            return False
        return True

    def _unreadable(self, column: pa.Field, values: list[bytes], *, only_sure: bool) -> list[int]:
        """Return the places of those of a column's distinct values that its converter refuses.

        Rules tell what is refused for sure. The rest is converted at once, and where that fails each half of it, down
        to one value; but not if only what is sure is asked for, since a value that was quoted may hold a delimiter.
        """
        places = [place for place, value in enumerate(values) if value]  # an empty field is a null
        found = self._surely_refused(column, values, places)
        parts = [] if only_sure else [[place for place in places if place not in found]]
        while parts:
            part = parts.pop()
            if not part or self._converts(b"\n".join([values[place] for place in part]), column, alone=True):
                continue
            if len(part) == 1:
                found.update(part)
            else:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
        return sorted(found)

    def _surely_refused(self, column: pa.Field, values: list[bytes], places: list[int]) -> set[int]:
        refuses, kind = csv_refuses(self._types[column.name]), column.type
        table = None if self._decimal == "." else _SWAPPED
        found = {place for place in places if values[place] not in _NULLS and refuses(values[place].translate(table))}
        if column.name in self._texts and column.name != self._time:
            texts = [place for place in places if place not in found]
            told = pa.array([values[place] for place in texts], pa.binary()).cast(pa.string())
            found.update(texts[place] for place in no_timestamps(told, kind).tolist())
        return found

    def _convert(self, data: bytes, column: pa.Field, *, alone: bool) -> None:
        """Convert one column of `data`, or raise `ArrowInvalid`. With `alone`, `data` holds only this column."""
        names = [column.name] if alone else self._names
        table = self._read(data, {column.name: self._types[column.name]}, names)
        if column.name in self._texts and column.name != self._time:
            timestamps(empty_as_null(table.column(0)), column.type)

    def _not_valid(self, column: pa.Field) -> str:
        is_text = self._types[column.name] == pa.string() and not pa.types.is_timestamp(column.type)
        return "the value is not UTF-8" if is_text else not_of_type(column.type)

    def _shape(self, line: bytes) -> str:
        try:
            fields = len(next(csv.reader([line.decode("utf-8", "replace")], delimiter=self._delimiter), []))
        except csv.Error:
            return "a field that is too long"
        wanted = len(self._names)
        return _OPEN_QUOTE if fields == wanted else f"{fields} fields instead of {wanted}"

    def _read(self, data: bytes, types: dict[str, pa.DataType], names: list[str] | None = None) -> pa.Table:
        decimals = [name for name, kind in types.items() if pa.types.is_decimal(kind)]
        if decimals and has_small_exponent(data):
            check_csv_scales(self._read(data, dict.fromkeys(decimals, pa.string()), names), self._decimal)
        return check_digits(
            arrow_csv.read_csv(
                pa.BufferReader(data),
                arrow_csv.ReadOptions(column_names=names or self._names, use_threads=False, block_size=len(data) + 1),
                arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=False),
                arrow_csv.ConvertOptions(
                    include_columns=list(types),
                    column_types=types,
                    null_values=NULL_TEXTS,
                    strings_can_be_null=False,
                    decimal_point=self._decimal,
                ),
            )
        )


def check_csv_scales(texts: pa.Table, decimal: str = ".") -> None:
    """Raise ArrowInvalid where a decimal, read as text, has more digits after its point than Arrow can count."""
    for column in texts.columns:
        small = column.filter(pc.match_substring(column, "e-", ignore_case=True))
        if any(is_too_fine(text.replace(decimal, ".")) for text in small.to_pylist()):
            msg = "a number that no decimal holds"
            raise pa.ArrowInvalid(msg)


def _has_line_end(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    return bool(pc.any(pc.match_substring(column, "\n")).as_py())


def _empty(types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([], kind) for name, kind in types.items()})
