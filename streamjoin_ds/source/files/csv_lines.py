"""CSV, line by line. Each file has a header, columns are found by name, and only those that travel are parsed."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.errors import ColumnError, FileFormatError
from streamjoin_ds.source.files.csv_dialect import PLAIN, CsvDialect
from streamjoin_ds.source.files.decoders import INNER_LINES, has_inner_lines
from streamjoin_ds.source.files.lines import Lines, Sifted, csv_refuses, has_stray_returns, names_there
from streamjoin_ds.source.records import clipped, empty_as_null
from streamjoin_ds.spec.columns import not_of_type
from streamjoin_ds.spec.common_types import name_there
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.nested_values import is_nested, type_text
from streamjoin_ds.spec.time_text import event_times, no_timestamps, timestamps

__all__ = ["CsvHead", "CsvLines", "check_csv_types", "csv_header"]

_BOM = b"\xef\xbb\xbf"
_SHOWN = 200  # characters of a line that an error shows
_OPEN_QUOTE = "quotes that do not match"
_SIGN = re.compile(rb'^(?:\xef\xbb\xbf)?("?)#+[ \t]*')  # before the first name
# Of a line of names that looks like a record.
_HEADER_HINT = "header=0 says that there is none: the columns are column_1, column_2, ... then, or those of schema"


def csv_header(line: bytes, file: str, dialect: CsvDialect = PLAIN) -> list[str]:
    """Return the column names in a file's first line.

    Raises
    ------
    FileFormatError
        The line names no column or is not UTF-8.
    """
    hint = "a CSV file begins with a line of column names, in UTF-8"
    try:
        names = dialect.fields(line.decode("utf-8-sig").rstrip("\r\n"))
    except UnicodeDecodeError:
        names, hint = [], f"{hint}; encoding=cp1252, latin-1, ... reads files that are not"
    except csv.Error:
        names = []
    if any("\0" in name for name in names):
        names, hint = [], f"{hint}; encoding=utf-16-le or utf-16-be reads files that are not, and do not say so"
    if not any(names):
        msg = f"the first line of {file} does not name its columns"
        raise FileFormatError(msg, name=file, hint=hint)
    return names


def _is_datum(field: str) -> bool:
    """Whether a text has no letter, or is a number or a time, and so is hardly the name of a column."""
    return not any(map(str.isalpha, field)) or bool(event_times(pa.array([field]), "s")[1][0])


def _looks_like_data(names: Sequence[str]) -> bool:
    """Whether most of the names of a file's columns look like the values of a record."""
    return 2 * sum(map(_is_datum, names)) > len(names)


class CsvHead(Struct, frozen=True):
    """What stands before the records of a CSV file.

    Attributes
    ----------
    names : list of str
        The file's columns, in its order. Names that differ from all before them: the second ``T`` is ``T_2``.
    size_bytes, lines : int
        How much of the file it takes.
    written : list of str
        The same with the ``#`` before the first name; none where there is no such sign.
    first : list of str
        The fields of the first record; none where it is not there yet.
    """

    names: list[str]
    size_bytes: int
    lines: int
    written: list[str]
    first: list[str]

    def names_for(self, wanted: Collection[str]) -> list[str]:
        """Return the names of the columns: with the ``#`` if that is how the first one is wanted."""
        return self.written if self.written and self.written[0] in wanted else self.names

    @classmethod
    def of(
        cls,
        data: bytes,
        files: Files,
        declared: Sequence[str],
        path: str,
        *,
        complete: bool,
        made: Sequence[str] = (),
    ) -> CsvHead | None:
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
        made : sequence of str
            Columns that are made beside those of a file without a header, and stand before them.

        Raises
        ------
        FileFormatError
            The file ends before its records begin, or the header names no column or is not UTF-8.
        """
        dialect = CsvDialect.of(files)
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
        count = records[-1] + 1 if files.header else min(files.skip_lines, len(lines))
        rest_of = (lines[n] for n in range(count, len(lines)) if not _is_comment(lines[n], n, files))
        first = _fields(next((line for line in rest_of if line.strip()), b""), dialect)
        written: list[str] = []
        if files.header:
            names = csv_header(lines[records[0]], path, dialect)
            names, written = _without_sign(lines[records[0]], names, len(first), dialect)
        else:
            names = [*declared] or [*made, *_numbered(lines[records[0]], path, dialect)[: -len(made) or None]]
        size = min(sum(len(line) + 1 for line in lines[:count]), len(data))
        if not size and data.startswith(_BOM):
            size = len(_BOM)
        names, written = (_with_last(each, first) for each in (names, written))
        return cls(_numbered_names(names) if files.header else names, size, count, _numbered_names(written), first)

    def check(self, records: bytes, files: Files, path: str, missing: str | None) -> None:
        """Refuse a head that is none, where that can be told.

        Parameters
        ----------
        records : bytes
            What comes after it.
        files : Files
        path : str
            The file's path, for errors.
        missing : str or None
            The event time, where the names lack it.

        Raises
        ------
        FileFormatError
            A record stands where the names should be, or a note, or names where there should be none.
        """
        if missing is not None and files.header and _looks_like_data(self.names):
            msg = f"the line of {path} that should name its columns looks like data: {_shown(self.names)}"
            raise FileFormatError(msg, name=path, hint=_HEADER_HINT)
        if missing is not None and self.written:
            msg = f"the line of {path} that should name its columns begins with # and does not name '{missing}'"
            hint = f"comment=# passes over such lines; or set time to one of its names: {_shown(self.names)}"
            raise FileFormatError(msg, name=path, hint=hint)
        if not (files.header or any(map(_is_datum, self.first))):
            second = _fields(b"".join(records.split(b"\n", 2)[1:2]), CsvDialect.of(files))
            if any(field.strip() and _is_datum(field) for field in second):
                told = _shown(self.first)
                msg = f"the first line of {path} looks like names, and header says that there are none: {told}"
                raise FileFormatError(msg, name=path, hint="leave header out, or set it to 1")


def _shown(fields: Sequence[str]) -> str:
    return clipped(", ".join(fields)[:_SHOWN])


def _fields(record: bytes, dialect: CsvDialect) -> list[str]:
    try:
        return dialect.fields(record.decode("utf-8-sig", "replace").rstrip("\r"))
    except csv.Error:
        return []


def _without_sign(line: bytes, names: list[str], fields: int, dialect: CsvDialect) -> tuple[list[str], list[str]]:
    """Return names without a ``#`` before the first one, and as they are written; none of these without the sign.

    Where blanks are the delimiter, the sign may be a name of its own: the first record has as many fields then.
    """
    if not names[0].startswith("#"):
        return names, []
    plain = _fields(_SIGN.sub(rb"\1", line, count=1), dialect)
    if not any(plain) or (len(plain) != len(names) == fields):
        return names, []
    return plain, names


def _with_last(names: list[str], first: list[str]) -> list[str]:
    """Return names with, or without, one that is empty: for a delimiter at the end of each record, or of the header."""
    if names and len(first) == len(names) + 1 and not first[-1].strip():
        return [*names, ""]
    return names[:-1] if names and not names[-1].strip() and len(first) == len(names) - 1 else names


def _numbered_names(names: list[str]) -> list[str]:
    """Return names that differ: one that stands there before has a number."""
    taken, found = set(names), list[str]()
    for name in names:
        number = 2
        while name and name in found:
            numbered = f"{name}_{number}"
            name = numbered if numbered not in taken else name
            number += 1
        taken.add(name)
        found.append(name)
    return found


def _is_comment(line: bytes, number: int, files: Files) -> bool:
    if files.comment is None:
        return False
    return (line if number else line.removeprefix(_BOM)).startswith(files.comment.encode())


def _numbered(record: bytes, path: str, dialect: CsvDialect) -> list[str]:
    """Return names for the columns of a file without a header, of which this is the first record."""
    fields = csv_header(record.removeprefix(_BOM), path, dialect)
    return [f"column_{number}" for number in range(1, len(fields) + 1)]


def check_csv_types(schema: pa.Schema, stream: str) -> None:
    """Refuse columns of lists and structs, which no field of a CSV line holds."""
    for column in schema:
        if is_nested(column.type):
            msg = f"column '{column.name}' of {stream} is {type_text(column.type)}, which no CSV field holds"
            raise ColumnError(msg, name=column.name, hint="read JSON lines or Parquet, or leave it out with select")


class CsvLines:
    """The format of one CSV file's lines. A record is one line: a newline inside quotes breaks both lines.

    Where fields may hold line ends (`QuotedLines`), signs for these stand in the lines that are read.

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
    dialect : CsvDialect
        How the lines are written.
    """

    def __init__(
        self,
        header: list[str],
        schema: pa.Schema,
        time: str,
        stream: str,
        file: str,
        dialect: CsvDialect = PLAIN,
    ) -> None:
        has_time = name_there(time, header) is not None or time not in schema.names
        more = "" if has_time or not _looks_like_data(header) else _HEADER_HINT
        there = {other: name for name, other in names_there(schema, time, header, stream, file, more).items()}
        check_csv_types(schema, stream)
        # Columns that are not wanted may have equal or empty names. Arrow wants names that differ.
        self._names = [there.get(name, f"\0{number}") for number, name in enumerate(header)]
        self._whole = schema
        self._schema = pa.schema([column for column in schema if column.name in there.values()])
        self._time = time
        self._dialect = dialect
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
        if self._dialect.may_hide_delimiters(data) and any(_has_line_end(column) for column in table.columns):
            # The last line's quote is not closed: Arrow gives a text with the line end in it.
            raise pa.ArrowInvalid(_OPEN_QUOTE)
        has_lines = self._dialect.has_inner_lines and has_inner_lines(data)
        for number, column in enumerate(self._schema):
            values = table.column(number)
            if column.name == self._time:
                if self._dialect.decimal != ".":  # numbers; in a time of day a comma is a point anyway
                    values = pc.replace_substring_regex(values, r"^(\s*[+-]?[0-9]*),([0-9]*\s*)$", r"\1.\2")
                values = self._named_as_null(values, column.name)
            elif column.name in self._texts:
                values = timestamps(self._text_as_null(values, column.name), column.type)
            elif pa.types.is_string(column.type):
                values = self._text_as_null(values, column.name)
            if has_lines and (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
                for sign, end in INNER_LINES.items():
                    values = pc.replace_substring(values, chr(sign), end)
            if values is not table.column(number):
                table = table.set_column(number, column.name, values)
        return table

    def _text_as_null(self, values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
        """Return texts with null for what is empty, or named as null."""
        return self._named_as_null(empty_as_null(values), column)

    def _named_as_null(self, values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
        named = self._dialect.named_nulls(column)
        if not named:
            return values
        return pc.if_else(pc.is_in(values, pa.array(named, values.type)), pa.scalar(None, values.type), values)

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
        return "", _OPEN_QUOTE if self._dialect.may_hide_delimiters(line) else "the line cannot be read"

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
        if has_stray_returns(data):
            return {}
        found: dict[int, tuple[str, str]] = {}
        has_quotes = self._dialect.may_hide_delimiters(data)
        if not has_quotes:
            between = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(self._dialect.delimiter))
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
        refuses, kind, dialect = csv_refuses(self._types[column.name]), column.type, self._dialect
        nulls = {text.encode() for text in dialect.null_texts(column.name)}
        found = {
            place
            for place in places
            if values[place] not in nulls and refuses(dialect.refused_form(values[place], column))
        }
        if column.name in self._texts and column.name != self._time:
            named = {text.encode() for text in dialect.named_nulls(column.name)}
            texts = [place for place in places if place not in found and values[place] not in named]
            told = pa.array([values[place] for place in texts], pa.binary()).cast(pa.string())
            found.update(texts[place] for place in no_timestamps(told, kind).tolist())
        return found

    def _convert(self, data: bytes, column: pa.Field, *, alone: bool) -> None:
        """Convert one column of `data`, or raise `ArrowInvalid`. With `alone`, `data` holds only this column."""
        names = [column.name] if alone else self._names
        table = self._read(data, {column.name: self._types[column.name]}, names)
        if column.name in self._texts and column.name != self._time:
            timestamps(self._text_as_null(table.column(0), column.name), column.type)

    def _not_valid(self, column: pa.Field) -> str:
        is_text = self._types[column.name] == pa.string() and not pa.types.is_timestamp(column.type)
        return f"the value is not {self._dialect.encoding.upper()}" if is_text else not_of_type(column.type)

    def _shape(self, line: bytes) -> str:
        try:
            fields = len(self._dialect.fields(line.decode("utf-8", "replace")))
        except csv.Error:
            return "a field that is too long"
        wanted = len(self._names)
        return _OPEN_QUOTE if fields == wanted else f"{fields} fields instead of {wanted}"

    def _read(self, data: bytes, types: dict[str, pa.DataType], names: list[str] | None = None) -> pa.Table:
        return self._dialect.read(data, names or self._names, types)


def _has_line_end(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    return bool(pc.any(pc.match_substring(column, "\n")).as_py())


def _empty(types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([], kind) for name, kind in types.items()})
