"""Lines: where the records of a text begin and end, and the search for broken records among many good ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.records import RawRecords, clipped

__all__ = ["LineFormat", "Lines", "Sifted", "parse_lines"]

_NEWLINE, _RETURN = 10, 13

# If the first records of a file, at least so many, all fail in one column, that column has another type now.
_DRIFT_RECORDS = 3
_DRIFT_SAMPLE = 64  # first records that are looked at for that, at most


class LineFormat(Protocol):
    """A format in which a record is a line."""

    def parse(self, data: bytes) -> pa.Table:
        """Return the records of whole lines, one row each; raise `pyarrow.ArrowInvalid` where one is broken."""

    def reason(self, line: bytes) -> tuple[str, str]:
        """Return the column (may be empty) and the reason why `parse` refuses this one line."""

    def sift(self, lines: Lines) -> Sifted:
        """Return the broken records that can be found all at once, and the others in groups. Some may be broken too."""


@dataclass(frozen=True, slots=True)
class Sifted:
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
    """The records of a text of whole lines. A blank line is no record.

    Attributes
    ----------
    data : bytes
        The text.
    starts, ends : numpy.ndarray of int64, shape (count,)
        Range of each record's bytes within `data`, its newline included.
    numbers : numpy.ndarray of int64, shape (count,)
        Line of each record, from 0, blank lines counted.
    lines : int
        Number of newlines in `data`.
    """

    data: bytes
    starts: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray
    lines: int

    @classmethod
    def of(cls, data: bytes) -> Lines:
        """Return the records of a text. A last line without a newline is a record too."""
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
        numbers = np.arange(len(ends), dtype=np.int64)
        if blank.any():
            starts, ends, numbers = starts[~blank], ends[~blank], numbers[~blank]
        return cls(data, starts, ends, numbers, lines)

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
        return self.text(record, record + 1).rstrip(b"\r\n").decode("utf-8", "replace")


def parse_lines(lines: Lines, form: LineFormat, *, file: str, at_file_start: bool) -> RawRecords:
    """Parse records. Where one is broken, `sift` finds what it can at once, and halving finds the rest.

    A record is broken iff the format's own parser refuses it alone: `sift` tells what that surely refuses, and why. So
    it does not depend on the way in which broken records were found.

    Raises
    ------
    SchemaDriftError
        At a file's start: every one of its first records (3 to 64 of them) fails in the same column.
    """
    try:
        return RawRecords(_parsed(lines, form, 0, lines.count), lines.count)
    except pa.ArrowInvalid:
        if at_file_start and lines.count >= _DRIFT_RECORDS:
            _check_drift(lines, form, file)
    sifted = form.sift(lines)
    broken = [
        (place, column, reason, clipped(lines.record_text(place))) for place, (column, reason) in sifted.broken.items()
    ]
    tables: list[pa.Table] = []
    read = [np.empty(0, np.int64)]  # the places of the records in each table
    for group in sifted.groups:
        rest = lines if len(group) == lines.count else lines.some(group)
        good: list[tuple[int, int, pa.Table]] = []
        found: list[tuple[int, str, str, str]] = []
        if rest.count:
            _search(rest, form, 0, rest.count, good, found)
        broken += [(int(group[place]), column, reason, text) for place, column, reason, text in found]
        tables += [table for _, _, table in good]
        read += [group[first:last] for first, last, _ in good]
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
    stray = data.count(b"\r") - data.count(b"\r\n") - data.endswith(b"\r")
    if table.num_rows != last - first or stray:
        msg = "the number of rows is not the number of lines"
        raise pa.ArrowInvalid(msg)
    return table


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
    for record in range(min(lines.count, _DRIFT_SAMPLE)):
        try:
            _parsed(lines, form, record, record + 1)
        except pa.ArrowInvalid:
            columns.add(form.reason(lines.text(record, record + 1).rstrip(b"\r\n"))[0])
            continue
        return
    if len(columns) == 1 and (column := columns.pop()):
        msg = f"column '{column}' of {file} has another type than in the join"
        raise SchemaDriftError(msg, name=column, hint="correct the file, or start a new join with the new type")


def first_line(data: bytes) -> bytes | None:
    """Return the first line with its newline, or None where there is no newline yet."""
    end = data.find(b"\n")
    return None if end < 0 else data[: end + 1]


def missing_columns(wanted: Sequence[str], found: Sequence[str], stream: str, file: str) -> None:
    """Refuse a file that lacks a column, or has it more than once.

    Raises
    ------
    SchemaDriftError
        The error names the column and the file.
    """
    for name in wanted:
        times = list(found).count(name)
        if times != 1:
            how = "has no column" if times == 0 else f"has {times} columns named"
            msg = f"the file {file} of stream {stream} {how} '{name}'"
            hint = f"its columns are {clipped(', '.join(found))}"
            raise SchemaDriftError(msg, name=name, hint=hint)
