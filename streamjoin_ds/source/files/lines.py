"""Lines: where the records of a text begin and end, and the search for broken records among many good ones.

Arrow reads a whole text or fails, so a broken record is found by reading parts of the text; each reading costs as much
as a hundred good records. A rule finds most broken values at once, without Arrow. It has three answers: a value is
`FINE` as far as the rule knows, `REFUSED` for sure, or `DOUBTFUL`. Arrow reads what is fine together, and decides what
is doubtful by itself. So a rule that says `FINE` of a broken value costs time; one that says `REFUSED` of a good value
would change what a record is. `tests/source/files/test_refused_values.py` compares each rule with Arrow.

Arrow's readers take some decimals that they ought to refuse. A whole number is scaled after its digits were counted, so
that 894536 becomes a decimal(6, 1) of seven digits, and another number in a file of Parquet: `check_digits` looks at
what was read. A number with more than 38 digits after its point is scaled by what lies behind a table in memory
(apache/arrow#50964): no reader gets it (`is_too_fine`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.files.decoders import with_inner_lines
from streamjoin_ds.source.records import RawRecords, clipped
from streamjoin_ds.spec.columns import needed_columns
from streamjoin_ds.spec.common_types import name_there
from streamjoin_ds.spec.nested_values import is_list

__all__ = [
    "DOUBTFUL",
    "DRIFT_RECORDS",
    "DRIFT_SAMPLE",
    "FINE",
    "REFUSED",
    "LineFormat",
    "Lines",
    "Rule",
    "Sifted",
    "check_digits",
    "csv_refuses",
    "has_small_exponent",
    "has_stray_returns",
    "holds_decimals",
    "is_too_fine",
    "json_rule",
    "names_there",
    "parse_lines",
]

FINE, DOUBTFUL, REFUSED = range(3)

# Of a value as Python's `json` gives it, numbers with a point or an exponent as `Decimal`.
Rule: TypeAlias = Callable[[Any], int]

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LARGEST_EXPONENT = 308  # of a float64, in decimal digits
_LONG_TEXT = 64  # bytes of a number's text; a longer one is doubtful
_WHOLE = re.compile(rb"-?[0-9]+")
_WHOLE_OR_HEX = re.compile(rb"[+-]?(0[xX][0-9a-fA-F]*|[0-9]*)")
_FLOAT = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?([iI][nN][fF]|[nN][aA][nN]).*")
_DECIMAL = re.compile(rb"[+-]?0*([0-9]*)\.?([0-9]*?)0*")
_DECIMAL_BYTES = re.compile(rb"[0-9+\-.eE]*")
_BOOLEANS = (b"0", b"1", b"true", b"false")
_MINUS, _EXPONENT, _TO_LOWER = b"-e "
_MOST_FRACTION = 38  # digits after the point of a decimal, at most
_NEWLINE, _RETURN = 10, 13
# If the first records of a file, at least so many, all fail in one column, that column has another type now.
DRIFT_RECORDS = 3
DRIFT_SAMPLE = 64  # first records that are looked at for that, at most
_PART_RECORDS = 1024  # of many, which are read together where none of them is broken


def holds_decimals(kind: pa.DataType) -> bool:
    """Whether values of a type are, or hold, decimals."""
    if is_list(kind):
        return holds_decimals(kind.value_type)
    if pa.types.is_struct(kind):
        return any(holds_decimals(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind))


def check_digits(table: pa.Table) -> pa.Table:
    """Return a table that one of Arrow's readers gave.

    Raises
    ------
    pyarrow.ArrowInvalid
        A decimal has more digits than its type.
    """
    for column in table.columns:
        if holds_decimals(column.type):
            column.validate(full=True)
    return table


def has_small_exponent(data: bytes) -> bool:
    """Whether a text may hold a number with a negative exponent: without one, Arrow counts the digits of a fraction."""
    text = np.frombuffer(data, np.uint8)
    before = text[np.flatnonzero(text == _MINUS) - 1]  # a search for two bytes takes five times as long
    return bool(((before | _TO_LOWER) == _EXPONENT).any())


def is_too_fine(text: str) -> bool:
    """Whether a number, as it is written, has more digits after its point than any decimal."""
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:  # no number, or an exponent that is none of Python's
        return "e-" in text.lower()
    return isinstance(exponent, int) and exponent < -_MOST_FRACTION


def json_rule(kind: pa.DataType) -> Rule:
    """Return the rule for a column's values in JSON. `event_times` tells texts of timestamps that it calls fine."""
    types = pa.types
    if types.is_integer(kind):
        return _whole_rule(kind)
    if types.is_float32(kind) or types.is_float64(kind):
        return _float_rule
    if types.is_boolean(kind):
        return lambda value: FINE if value is None or type(value) is bool else REFUSED
    if types.is_string(kind):  # anything else is its own text there
        return lambda value: FINE
    if types.is_binary(kind):
        return lambda value: FINE if value is None or type(value) is str else REFUSED
    if types.is_timestamp(kind):
        return _timestamp_rule
    if types.is_date32(kind):
        return _date_rule
    if types.is_decimal(kind):
        return _decimal_rule(kind)
    if types.is_list(kind):
        return _list_rule(json_rule(kind.value_type))
    if types.is_struct(kind):
        return _struct_rule({field.name: json_rule(field.type) for field in kind})
    return lambda value: FINE if value is None else DOUBTFUL


def _whole_rule(kind: pa.DataType) -> Rule:
    is_signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width - is_signed
    low, high = -(1 << bits) if is_signed else 0, (1 << bits) - 1

    def rule(value: Any) -> int:
        if type(value) is int:
            return FINE if low <= value <= high else REFUSED
        return FINE if value is None else REFUSED

    return rule


def _float_rule(value: Any) -> int:
    if type(value) is Decimal:
        return FINE if value.adjusted() < _LARGEST_EXPONENT else DOUBTFUL
    if type(value) is float:  # NaN or Infinity
        return FINE
    if type(value) is int:
        return FINE if -(1 << _LARGEST_EXPONENT) < value < 1 << _LARGEST_EXPONENT else DOUBTFUL
    return FINE if value is None else REFUSED


def _timestamp_rule(value: Any) -> int:
    if type(value) is str:  # every form of `event_times` begins with a digit or a sign
        return REFUSED if value[:1].isascii() and value[:1].isalpha() else FINE
    return FINE if value is None else REFUSED


def _date_rule(value: Any) -> int:
    if type(value) is str:
        return _date_verdict(value)
    return FINE if value is None else REFUSED


def _date_verdict(text: str) -> int:
    if not _DATE.fullmatch(text):
        return DOUBTFUL if text.strip() != text else REFUSED
    if text < "0001":
        return DOUBTFUL
    try:
        date.fromisoformat(text)
    except ValueError:
        return REFUSED
    return FINE


def _decimal_rule(kind: pa.DataType) -> Rule:
    precision, scale = kind.precision, kind.scale

    def rule(value: Any) -> int:
        if type(value) is int:
            return REFUSED if abs(value) >= 10 ** (precision - scale) else FINE
        if type(value) is Decimal:
            digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
            if exponent < -_MOST_FRACTION:
                return REFUSED
            if exponent > 0:
                return DOUBTFUL
            if any(digits) and len(digits) + exponent > precision - scale:
                return REFUSED
            needed = -exponent  # digits after the point, less its last zeros
            for digit in reversed(digits):
                if digit:
                    break
                needed -= 1
            return REFUSED if len(digits) > precision or (needed > scale and any(digits)) else FINE
        if value is None:
            return FINE
        if type(value) is str and is_too_fine(value):
            return REFUSED
        return DOUBTFUL if type(value) in (float, str) else REFUSED

    return rule


def _list_rule(item: Rule) -> Rule:
    def rule(value: Any) -> int:
        if type(value) is list:
            return max(map(item, value), default=FINE)
        return FINE if value is None else REFUSED

    return rule


def _struct_rule(fields: dict[str, Rule]) -> Rule:
    def rule(value: Any) -> int:
        if type(value) is dict:
            return max((fields[name](one) for name, one in value.items() if name in fields), default=FINE)
        return FINE if value is None else REFUSED

    return rule


def csv_refuses(kind: pa.DataType) -> Callable[[bytes], bool]:
    """Return what tells that a column of a CSV text surely refuses a field, which is no null."""
    types = pa.types
    if types.is_integer(kind):
        return _whole_field(kind)
    if types.is_float32(kind) or types.is_float64(kind):
        return lambda field: _FLOAT.fullmatch(field.strip(b" \t")) is None
    if types.is_boolean(kind):
        return lambda field: field.strip(b" \t").lower() not in _BOOLEANS
    if types.is_string(kind):
        return _is_no_utf8
    if types.is_date32(kind):
        return lambda field: _date_verdict(field.decode("latin-1")) == REFUSED
    if types.is_decimal(kind):
        return _decimal_field(kind)
    return lambda field: False


def _whole_field(kind: pa.DataType) -> Callable[[bytes], bool]:
    rule = _whole_rule(kind)

    def refuses(field: bytes) -> bool:
        text = field.strip(b" \t")
        if _WHOLE.fullmatch(text):
            return len(text) < _LONG_TEXT and rule(int(text)) == REFUSED
        return _WHOLE_OR_HEX.fullmatch(text) is None

    return refuses


def _decimal_field(kind: pa.DataType) -> Callable[[bytes], bool]:
    precision, scale = kind.precision, kind.scale

    def refuses(field: bytes) -> bool:
        text = field.strip(b" \t")
        if not _DECIMAL_BYTES.fullmatch(text) or (b"-" in text[1:] and is_too_fine(text.decode())):
            return True
        found = _DECIMAL.fullmatch(text)
        return found is not None and (len(found[2]) > scale or len(found[1]) > precision - scale)

    return refuses


def _is_no_utf8(field: bytes) -> bool:
    try:
        field.decode()
    except UnicodeDecodeError:
        return True
    return False


class LineFormat(Protocol):
    """A format in which a record is a line."""

    def parse(self, data: bytes) -> pa.Table:
        """Return the records of whole lines, one row each; raise `pyarrow.ArrowInvalid` where one is broken."""

    def reason(self, line: bytes) -> tuple[str, str]:
        """Return the column (may be empty) and the reason why `parse` refuses this one line."""

    def sift(self, lines: Lines) -> Sifted:
        """Return the broken records that can be found all at once, and the others in groups. Some may be broken too."""


class Sifted(Struct, frozen=True):
    """Records of a text in which some are broken.

    Attributes
    ----------
    broken : dict of int to (column, reason)
        Records that `LineFormat.parse` refuses.
    groups : sequence of numpy.ndarray of int64
        The other records, ascending in each group. Those of a group are likely to be read together.
    """

    broken: dict[int, tuple[str, str]]
    groups: Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class Lines:
    """The records of a text of whole lines. A blank line is no record, and neither is a comment.

    Attributes
    ----------
    data : bytes
        The text; in a comment's place are newlines, so that a parser sees none.
    starts, ends : numpy.ndarray of int64, shape (count,)
        Range of each record's bytes within `data`, its newline included.
    numbers : numpy.ndarray of int64, shape (count,)
        Line of each record, from 0, blank lines counted.
    lines : int
        Number of newlines in the text.
    written : bytes
        The text as it was written, comments too; empty where there are none, and it is `data`.
    """

    data: bytes
    starts: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray
    lines: int
    written: bytes

    @classmethod
    def of(cls, data: bytes, comment: str | None = None) -> Lines:
        """Return the records of a text. A last line without a newline is one too; a line with `comment` is none."""
        array = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(array == _NEWLINE) + 1
        lines = len(ends)
        if len(data) and (not lines or ends[-1] != len(data)):
            ends = np.append(ends, len(data))
        starts = np.empty_like(ends)
        starts[:1] = 0
        starts[1:] = ends[:-1]
        lengths = ends - starts
        first = array[starts] if len(starts) else array[:0]
        blank = (lengths == 1) & ((first == _NEWLINE) | (first == _RETURN))
        pairs = np.flatnonzero(lengths == 2)
        blank[pairs] = (first[pairs] == _RETURN) & (array[starts[pairs] + 1] == _NEWLINE)
        numbers, written = np.arange(len(ends), dtype=np.int64), b""
        comments = np.flatnonzero(first == ord(comment)) if comment else pairs[:0]
        if len(comments):
            plain, written = array.copy(), data
            for begin, end in zip(starts[comments].tolist(), ends[comments].tolist(), strict=True):
                plain[begin:end] = _NEWLINE
            data, blank[comments] = plain.tobytes(), True
        if blank.any():
            starts, ends, numbers = starts[~blank], ends[~blank], numbers[~blank]
        return cls(data, starts, ends, numbers, lines, written)

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.ends)

    def text(self, first: int, last: int) -> bytes:
        """Return the bytes of records ``[first, last)`` and of the blank lines between them."""
        if first == last:
            return b""
        return self.data[int(self.starts[first]) : int(self.ends[last - 1])]

    def some(self, records: np.ndarray) -> Lines:
        """Return some of the records, as a text of their own."""
        starts, ends = self.starts[records].tolist(), self.ends[records].tolist()
        return Lines.of(b"".join([self.data[begin:end] for begin, end in zip(starts, ends, strict=True)]))

    def record_text(self, record: int) -> str:
        """Return one record as text, without its newline. Bytes that are not UTF-8 are replaced."""
        return with_inner_lines(self.text(record, record + 1).rstrip(b"\r\n").decode("utf-8", "replace"))


def parse_lines(lines: Lines, form: LineFormat, *, file: str, at_file_start: bool) -> RawRecords:
    """Parse records. Where one is broken, `sift` finds what it can at once, and halving finds the rest.

    A record is broken iff the format's own parser refuses it alone: `sift` tells what that surely refuses, and why. So
    it does not depend on the way in which broken records were found. Of many records only those are sifted that lie
    near a broken one.

    Raises
    ------
    SchemaDriftError
        At a file's start: every one of its first records (3 to 64 of them) fails in the same column.
    """
    try:
        return RawRecords(_parsed(lines, form, 0, lines.count), lines.count)
    except pa.ArrowInvalid:
        if at_file_start and lines.count >= DRIFT_RECORDS:
            _check_drift(lines, form, file)
    tables: list[pa.Table] = []
    read = [np.empty(0, np.int64)]  # the places of the records in each table
    places = np.arange(lines.count)  # of the records to look at closely
    if lines.count > _PART_RECORDS:
        doubtful = [np.empty(0, np.int64)]
        for part in np.split(places, range(_PART_RECORDS, lines.count, _PART_RECORDS)):
            try:
                tables.append(_parsed(lines, form, part[0], part[-1] + 1))
                read.append(part)
            except pa.ArrowInvalid:  # noqa: PERF203 - a thousand records each
                doubtful.append(part)
        places = np.concatenate(doubtful)
    near = lines if len(places) == lines.count else lines.some(places)
    sifted = form.sift(near)
    broken = [
        (int(places[at]), column, reason, clipped(near.record_text(at)))
        for at, (column, reason) in sifted.broken.items()
    ]
    for group in sifted.groups:
        rest = near if len(group) == near.count else near.some(group)
        good: list[tuple[int, int, pa.Table]] = []
        found: list[tuple[int, str, str, str]] = []
        if rest.count:
            _search(rest, form, 0, rest.count, good, found)
        broken += [(int(places[group[at]]), column, reason, text) for at, column, reason, text in found]
        tables += [table for _, _, table in good]
        read += [places[group[first:last]] for first, last, _ in good]
    index = np.concatenate(read)
    table = _joined(tables) if tables else form.parse(b"")
    if (np.diff(index) < 0).any():  # groups lie among each other
        order = np.argsort(index)
        index, table = index[order], table.take(pa.array(order))
    return RawRecords(table, lines.count, index, sorted(broken))


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of all tables. A column that is a text in one of them is a text in all."""
    texts = {field.name for table in tables for field in table.schema if pa.types.is_string(field.type)}
    alike = []
    for table in tables:
        fields = [pa.field(f.name, pa.string()) if f.name in texts else f for f in table.schema]
        alike.append(table.cast(pa.schema(fields)))
    return pa.concat_tables(alike)


def _parsed(lines: Lines, form: LineFormat, first: int, last: int) -> pa.Table:
    data = lines.text(first, last)
    table = form.parse(data)
    # An unclosed quote swallows lines, and a lone carriage return makes more of them. Neither may pass.
    if table.num_rows != last - first or has_stray_returns(data.removesuffix(b"\r")):
        msg = "the number of rows is not the number of lines"
        raise pa.ArrowInvalid(msg)
    return table


def has_stray_returns(data: bytes) -> bool:
    """Whether a text has carriage returns that no newline follows. Two bytes are searched for only where one is."""
    return b"\r" in data and data.count(b"\r") != data.count(b"\r\n")


def _search(
    lines: Lines,
    form: LineFormat,
    first: int,
    last: int,
    good: list[tuple[int, int, pa.Table]],
    broken: list[tuple[int, str, str, str]],
) -> None:
    try:
        good.append((first, last, _parsed(lines, form, first, last)))
    except pa.ArrowInvalid:
        if last - first > 1:
            middle = (first + last) // 2
            _search(lines, form, first, middle, good, broken)
            _search(lines, form, middle, last, good, broken)
            return
        column, reason = form.reason(lines.text(first, last).rstrip(b"\r\n"))
        broken.append((first, column, reason, clipped(lines.record_text(first))))


def _check_drift(lines: Lines, form: LineFormat, file: str) -> None:
    columns: set[str] = set()
    for record in range(min(lines.count, DRIFT_SAMPLE)):
        try:
            _parsed(lines, form, record, record + 1)
        except pa.ArrowInvalid:
            columns.add(form.reason(lines.text(record, record + 1).rstrip(b"\r\n"))[0])
            continue
        return
    if len(columns) == 1 and (column := columns.pop()):
        msg = f"column '{column}' of {file} has another type than in the join"
        raise SchemaDriftError(
            msg,
            name=column,
            hint=f"correct the file, or declare {column} in the schema of a new join, as double or string",
        )


def names_there(
    schema: pa.Schema, time: str, found: Sequence[str], stream: str, file: str, more: str = ""
) -> dict[str, str]:
    """Return for each column of `schema` its name in a file; those that the file lacks are left out: they are null.

    A name may differ in case, where the file has one such name alone. `more` is what a refusal's hint says before all.

    Raises
    ------
    SchemaDriftError
        The file lacks the time or a column that the join needs (`needed_columns`), or has a column more than once.
    """
    there, needed = {}, needed_columns(schema)
    for name in schema.names:
        times, other = list(found).count(name), name_there(name, found)
        if times <= 1 and other is not None:
            there[name] = other
        elif times or name == time or name in needed:
            alike = [one for one in found if one.lower() == name.lower()]
            how = f"has {times} columns named" if times else "has no column"
            msg = f"the file {file} of stream {stream} {how} '{name}'"
            hint = more or f"its columns are {clipped(', '.join(found))}"
            if len(alike) > 1 and not times:
                hint = f"{' and '.join(alike)} differ from it in case, and it may be either: rename one; {hint}"
            raise SchemaDriftError(msg, name=name, hint=hint)
    return there
