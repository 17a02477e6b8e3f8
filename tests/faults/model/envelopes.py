"""Input as it lies: whose columns are computed of others, which stand in the records or deep within JSON.

::

    record          {ts, x, y, k}                                     what the oracle is given
    columns         day,clock,u,y    ts = CAST(day || ' ' || clock AS TIMESTAMP), x = CAST(split_part(u, ...))
    nested          {"at": {"t": ...}, "p": {"x": 1, "l": [0.5]}}     x = p.x, y = p.l[0]
    unfolded        {"k": "a", "values": [{...}, {...}]}              the same, and a record is an element

What is written is made of the record by Python alone, and the product's expressions have to find the record again. A
record that cannot be read is written as one that the form cannot read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any

import pyarrow as pa

from tests.faults.model.poison import BROKEN, line_at, text_of
from tests.faults.model.schedule import ENVELOPES_FROM, Schedule

__all__ = ["Envelope", "Written", "envelope_of", "give_devices"]

Row = dict[str, Any]
Writer = Callable[[Row], Row]
_START = datetime(1970, 1, 1, tzinfo=timezone.utc)
_HEAD_LINES = ("skip_lines", "header", "comment")

# For a column what is written in its place, the types of that, and the expression that gives it back.
_X = (
    ("x", pa.int64(), lambda x: x - 7, "x + 7"),
    ("u", pa.string(), lambda x: f"v{x};7", "CAST(split_part(replace(u, 'v', ''), ';', 1) AS BIGINT)"),
    ("x", pa.int64(), lambda x: 5 - x, "CASE WHEN x IS NULL THEN NULL ELSE 5 - x END"),
    ("u", pa.string(), lambda x: f"{x:03d}!", "TRY_CAST(regexp_extract(u, '([0-9]+)!', 1) AS BIGINT)"),
)
_Y = (
    ("w", pa.float64(), lambda y: y * 4, "w / 4"),
    ("w", pa.string(), lambda y: f" {y} ", "CAST(trim(w) AS DOUBLE)"),
    ("y", pa.float64(), lambda y: y, "nullif(y, -999)"),
)
_NESTED = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.float64()))])


@dataclass(frozen=True)
class Written:
    """A stream's records as a text.

    Attributes
    ----------
    data : bytes
    ends : list of int
        For each record how much of the text must be there before it can be read.
    lines : list of int
        For each record the line that a reject names.
    """

    data: bytes
    ends: list[int]
    lines: list[int]

    def there(self, size: int) -> int:
        """Return how many records can be read of so many bytes."""
        return sum(end <= size for end in self.ends)


@dataclass(frozen=True)
class Envelope:
    """The form in which an input's records are written.

    Attributes
    ----------
    form : {"", "columns", "nested", "unfolded"}
        The first: as they are.
    head : mapping
        The options of the text of a CSV file; see `text_of`.
    columns : dict of str to str
        The computed columns.
    types : dict of str to pyarrow.DataType
        The types of columns that stand in place of others.
    gone : tuple of str
        Columns that are not written themselves.
    writers : tuple of callable
        Each makes of a record what is written of some columns.
    clock : sequence of datetime or None
        What the clock of the zone shows for each record, where it changes.
    """

    form: str = ""
    head: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    writers: tuple[Writer, ...] = ()
    clock: Sequence[datetime | None] | None = None

    @property
    def ending(self) -> str:
        """The ending of the file's name."""
        return "json" if self.form in ("nested", "unfolded") else "csv"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the stream."""
        records = {"records": "values"} if self.form == "unfolded" else {}
        return {**self.head, **records, **({"columns": dict(self.columns)} if self.columns else {})}

    def schema(self, types: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return what a stream declares whose records have these columns."""
        written = {name: kind for name, kind in types.items() if name not in self.gone}
        stated = {name: types[name] for name in self.gone}
        first = {name: kind for name, kind in written.items() if name == "ts"}
        every = {**first, **self.types, **written, **stated}  # those that are written in their order
        return pa.schema([pa.field(name, kind, name != "ts") for name, kind in every.items()])

    def written(self, rows: Sequence[Row]) -> Written:
        """Return records as a text."""
        if self.form in ("nested", "unfolded"):
            return self._json(rows)
        given = [self._written(row | {"ts": at}) for row, at in zip(rows, self._times(rows), strict=True)]
        ends = [len(text_of(given[: number + 1], **self.head)) for number in range(len(rows))]
        head = {name: self.head[name] for name in _HEAD_LINES if name in self.head}
        lines = [line_at(number, **head) for number in range(len(rows))]
        return Written(text_of(given, **self.head), ends, lines)

    def _times(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [row["ts"] for row in rows] if self.clock is None else self.clock

    def _written(self, row: Row) -> Row:
        made: Row = {}
        for writer in self.writers:
            made |= dict.fromkeys(writer({**row, "ts": 0})) if row["ts"] is None else writer(row)
        left = {name: value for name, value in row.items() if name not in (*self.gone, *made)}
        return {"ts": row["ts"], **made, **left} if "ts" in left else {**made, **left}  # the time is first

    def _json(self, rows: Sequence[Row]) -> Written:
        elements = [self._written(row) for row in rows]
        if self.form == "nested":
            lines = [BROKEN if row["ts"] is None else json.dumps(one) for row, one in zip(rows, elements, strict=True)]
            groups = [[line] for line in lines]
        else:
            groups, lines = [], []
            for _, found in groupby(range(len(rows)), lambda number: (rows[number].get("k"), number // 3)):
                numbers = list(found)
                beside = {name: value for name, value in elements[numbers[0]].items() if name == "k"}
                apart = [{name: value for name, value in elements[n].items() if name != "k"} for n in numbers]
                read = zip(numbers, apart, strict=True)
                groups.append([_broken(n) if rows[n]["ts"] is None else one for n, one in read])
                lines.append(json.dumps({**beside, "values": groups[-1]}))
        ends: list[int] = []
        data = b""
        for group, line in zip(groups, lines, strict=True):
            data += f"{line}\n".encode()
            # What is unfolded can be read when it is whole; a line, when it has ended.
            ends += [len(data) - (self.form == "unfolded")] * len(group)
        return Written(data, ends, list(range(1, len(rows) + 1)))  # a reject names the line that was made


def _broken(number: int) -> object:
    """Return an element of an array that is no record: no object, or one without a time that can be read."""
    return number if number % 2 else {"at": {"t": "soon"}, "p": None}


def envelope_of(schedule: Schedule, source: str, head: Mapping[str, Any]) -> Envelope:
    """Return how an input is written, as its seed says; `head` has the options of its text of CSV."""
    if schedule.seed < ENVELOPES_FROM or schedule.source != "csv" or {"quarantine", "parted"} & {*schedule.asks}:
        return Envelope(head=head)
    dice = random.Random(f"envelope {source} {schedule.seed}")
    form = dice.choice(("", "columns", "columns", "nested", "unfolded"))
    if form == "columns" or (form and "values" in schedule.asks):  # JSON has no NaN
        return _of_columns(dice, head)
    if not form:
        return Envelope(head=head)
    columns = {"ts": "CAST(at.t AS TIMESTAMP)", "x": "p.x", "y": "p.l[0]"}
    types = {"at": pa.struct([("t", pa.string())]), "p": _NESTED}
    return Envelope(form, {}, columns, types, ("ts", "x", "y"), (_nested,))


def _nested(row: Row) -> Row:
    inner = {"x": row["x"], "l": [] if row["y"] is None else [row["y"], 7.5]}
    return {"at": {"t": _moment(row["ts"]).isoformat()}, "p": inner}


def _of_columns(dice: random.Random, head: Mapping[str, Any]) -> Envelope:
    columns: dict[str, str] = {}
    types: dict[str, pa.DataType] = {}
    gone: list[str] = []
    writers: list[Writer] = []
    if not head.get("time_format") and not head.get("timezone") and dice.random() < 0.5:
        columns["ts"] = "CAST(day || ' ' || clock AS TIMESTAMP)"
        types |= {"day": pa.string(), "clock": pa.string()}
        gone.append("ts")
        writers.append(
            lambda row: {"day": f"{_moment(row['ts']):%Y-%m-%d}", "clock": f"{_moment(row['ts']):%H:%M:%S.%f}"}
        )
    for column, ways in (("x", _X), ("y", _Y)):
        name, kind, write, expression = dice.choice(ways)
        columns[column], types[name] = expression, kind
        gone.append(column)
        nothing = -999.0 if expression.startswith("nullif") else None
        writers.append(
            lambda row, column=column, name=name, write=write, nothing=nothing: {
                name: nothing if row[column] is None else write(row[column])
            }
        )
    return Envelope("columns", head, columns, types, tuple(gone), tuple(writers))


def _moment(us: int) -> datetime:
    return _START + timedelta(microseconds=us)


def give_devices(rows: Sequence[Row], source: str, seed: int) -> None:
    """Give each record its device: one is slow, one falls silent, one comes late. A null may be one, too.

    What comes twice comes of one device.
    """
    dice = random.Random(f"devices of {source} {seed}")
    slow_us = dice.choice((0, 1_000_000, 3_000_000, 20_000_000))
    silent, late = len(rows) * dice.choice((2, 3)) // 4, len(rows) * dice.choice((1, 2)) // 3
    names = ["fast", "slow", "silent", "late", *([None] * dice.choice((0, 1)))]
    known: dict[str, str | None] = {}
    for number, row in enumerate(rows):
        may = [name for name in names if name not in (*["silent"] * (number >= silent), *["late"] * (number < late))]
        name = known.setdefault(repr(row), dice.choice(may))
        if row["ts"] is not None and name == "slow":
            row["ts"] -= slow_us
        row["k"] = None if row["ts"] is None else name
