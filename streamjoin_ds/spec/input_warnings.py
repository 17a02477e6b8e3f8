"""Warnings about the first records of a join's inputs: what is likely to be a mistake, in words, each said once.

::

    records of a batch, or the first ones      said
    ──────────────────────────────────────     ───────────────────────────────────────────────────────────────
    that are no tuples                         the first of each kind
    that are late                              the first time, and when they are more than 1 % of their stream
    with times before 1990 or in the future    when a stream is seen first
    with days alone as times                   when a stream is seen first
    of two streams, never near in time         when both are seen

Nothing is decided here: a clock that is wrong gives a needless warning, and no other row.

What event times show (`TimesSeen`, `LateSeen`) is small enough to travel from a task or a cell to the driver: how they
lie, and how late the late ones are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from streamjoin_ds.duration import duration_text
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import Int64, result_name
from streamjoin_ds.spec.event_time import DAY_US, MAX_TS_US, MIN_TS_US, UNITS_US
from streamjoin_ds.spec.member.source import DeltaRows, Generator
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["InputWarnings", "LateSeen", "TimesSeen", "holding_devices", "other_names"]


_FIRST = 3  # records of which number and time are kept
_STEPS = 4  # buckets for each doubling of how late a record is
_MOST_KINDS = 20  # of rejects, that are told of one stream
_MANY = 0.01  # the share of a stream's records from which on late ones are told a second time
_KEPT = 0.999  # the share of records that the delay which is named would have kept
_EARLY_US = int(np.datetime64("1990-01-01", "us").astype(np.int64))
_YEAR_US = 365 * DAY_US
_HOUR_US = 3_600_000_000
_LEAST_ROWS = 10  # of each of two streams, before they are said to be apart by less than an hour
_MOST_ZONE_US = 14 * _HOUR_US  # a zone's clock is that far from UTC, at most
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Event times at which other counts begin, in microseconds, the length of what they count, and their `time_format`.
_OTHER_COUNTS = (
    ("days of Excel", -25_569 * DAY_US, DAY_US, "excel"),
    ("seconds since 1904", -2_082_844_800_000_000, 1_000_000, "labview"),
)


@dataclass(frozen=True, slots=True)
class TimesSeen:
    """The event times of some records of a stream.

    Attributes
    ----------
    rows : int
        How many records there are, at least one.
    least_us, most_us : int
        The smallest and the largest event time, in microseconds.
    first : tuple of (int, int)
        Number and event time of the records with the smallest numbers.
    are_midnights : bool
        Whether all times are whole days UTC.
    """

    rows: int
    least_us: int
    most_us: int
    first: tuple[tuple[int, int], ...]
    are_midnights: bool

    @classmethod
    def of(cls, times_us: Int64, numbers: Int64) -> TimesSeen | None:
        """Return what records show, in any order; None where there are none."""
        if not len(times_us):
            return None
        places = np.argpartition(numbers, min(_FIRST, len(numbers)) - 1)[:_FIRST]
        first = sorted(zip(numbers[places].tolist(), times_us[places].tolist(), strict=True))
        are_midnights = first[0][1] % DAY_US == 0 and not (times_us % DAY_US).any()
        return cls(len(times_us), int(times_us.min()), int(times_us.max()), tuple(first), bool(are_midnights))

    @classmethod
    def together(cls, parts: Iterable[TimesSeen | None]) -> TimesSeen | None:
        """Return what parts of a stream's records show together; None where no part has any."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        first = sorted({pair for part in known for pair in part.first})[:_FIRST]  # several may have one record
        return cls(
            sum(part.rows for part in known),
            min(part.least_us for part in known),
            max(part.most_us for part in known),
            tuple(first),
            all(part.are_midnights for part in known),
        )

    def to_facts(self) -> list[Any]:
        """Return this as plain JSON values; `from_facts` makes it of them again."""
        return [self.rows, self.least_us, self.most_us, [list(pair) for pair in self.first], self.are_midnights]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> TimesSeen:
        """Return what `to_facts` described."""
        rows, least_us, most_us, first, are_midnights = facts
        return cls(rows, least_us, most_us, tuple((number, time_us) for number, time_us in first), are_midnights)


class LateSeen(Struct):
    """How late the late records of a stream are: by the largest time before each of them.

    Attributes
    ----------
    buckets : dict of int to (int, int)
        By the logarithm of how late records are: how many, and the largest of them in microseconds.
    """

    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many records are late."""
        return sum(count for count, _ in self.buckets.values())

    def add(self, late_by_us: Int64) -> None:
        """Count records that are so many microseconds older than the largest time before them."""
        if not len(late_by_us):
            return
        numbers = np.floor(np.log2(np.maximum(late_by_us, 1)) * _STEPS).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        found, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        most = np.maximum.reduceat(late_by_us[order], starts)
        self.join({n: (c, m) for n, c, m in zip(found.tolist(), counts.tolist(), most.tolist(), strict=True)})

    def join(self, buckets: Mapping[int, tuple[int, int]]) -> None:
        """Count the buckets of another one too."""
        for number, (count, most) in buckets.items():
            known, largest = self.buckets.get(number, (0, 0))
            self.buckets[number] = known + count, max(largest, most)

    def delay_us(self, left: int) -> int:
        """Return the least delay known to leave at most `left` of the records late, in microseconds."""
        for number in sorted(self.buckets, reverse=True):
            count, most = self.buckets[number]
            if count > left:
                return most
            left -= count
        return 0

    def to_facts(self) -> list[list[int]]:
        """Return this as plain JSON values; `from_facts` makes it of them again."""
        return [[number, *pair] for number, pair in sorted(self.buckets.items())]

    @classmethod
    def from_facts(cls, facts: Iterable[Sequence[int]]) -> LateSeen:
        """Return what `to_facts` described."""
        return cls({number: (count, most) for number, count, most in facts})


class InputColumns(Protocol):
    """What the columns of a stream's input are, which is asked where something is odd."""

    def has_number_times(self, stream: Stream) -> bool:
        """Whether the event times are written as numbers."""

    def times_of_day(self, stream: Stream) -> Sequence[str]:
        """Return the columns that hold times of day."""


class _Unknown:
    """Columns of which nothing is known."""

    def has_number_times(self, stream: Stream) -> bool:
        """See `InputColumns.has_number_times`."""
        del stream
        return True

    def times_of_day(self, stream: Stream) -> Sequence[str]:
        """See `InputColumns.times_of_day`."""
        del stream
        return ()


class InputWarnings(Struct):
    """What was said of a join's inputs, so that it is not said again. Each method returns what is new.

    Parameters
    ----------
    bound : BoundJoin
    columns : InputColumns, optional
        By default nothing is known of them.
    records : str
        What the records are that are counted: "the {} records of a batch".
    clock : callable
        Returns seconds since 1970.
    any_origin : bool
        Whether times may count from any moment, as those of a program: then only a likely unit is told.
    """

    bound: BoundJoin
    columns: InputColumns = field(default_factory=_Unknown)
    records: str = "the {} records of a batch"
    clock: Callable[[], float] = time.time
    any_origin: bool = False
    _rejects: dict[str, set[tuple[str | None, str]]] = field(default_factory=dict)
    _late: dict[str, bool] = field(default_factory=dict)  # by stream: whether many were told of
    _seen: dict[str, TimesSeen] = field(default_factory=dict)
    _apart: set[tuple[str, str]] = field(default_factory=set)

    def rejects(
        self,
        reasons: Mapping[str, tuple[str | None, str]],
        rejected: Mapping[str, int],
        read: Mapping[str, int],
        where: str = "",
    ) -> Iterator[str]:
        """Yield a text for each kind of rejects that is new; a kind is a stream, a column and a reason.

        Parameters
        ----------
        reasons : mapping of stream name to (str or None, str)
            The column and the reason of one reject; no column where the record itself cannot be read.
        rejected, read : mapping of stream name to int
            How many records were rejected, and read.
        where : str
            Where the rejects are.
        """
        for stream, kind in reasons.items():
            told = self._rejects.setdefault(stream, set())
            if kind in told or len(told) >= _MOST_KINDS:
                continue
            told.add(kind)
            column, reason = kind
            of_column = f"column {column}: " if column else ""
            count = rejected.get(stream, 0)
            counted = f"stream {stream}: {count} of {self.records.format(read.get(stream, 0))}"
            what = "is a reject" if count == 1 else "are rejects, one for this"
            yield f"{counted} {what}: {of_column}{reason}{_all_in(where)}"

    def late(self, name: str, seen: LateSeen, read: int, largest_us: int | None, where: str = "") -> Iterator[str]:
        """Yield a text where late records are new in a stream, or are more than 1 % of it for the first time.

        Parameters
        ----------
        name : str
            The stream's name.
        seen : LateSeen
            The late records among those that were read.
        read : int
            How many records were read.
        largest_us : int or None
            The stream's largest event time so far.
        where : str
            Where the late records are.
        """
        are_many = seen.rows > read * _MANY
        told = self._late.get(name)
        if not seen.rows or told or (told is False and not are_many):
            return
        self._late[name] = are_many
        stream = self.bound.join.streams[self.bound.names.index(name)]
        if isinstance(stream.source, Generator):
            return  # its disorder was asked for
        may_be_late = int(read * (1 - _KEPT) + 1e-9)
        kept = "99.9 %" if seen.rows > may_be_late else "all"
        enough = duration_text(_rounded_up(seen.delay_us(may_be_late if seen.rows > may_be_late else 0)))
        largest = "" if largest_us is None else f", up to {_moment(largest_us)}"
        what, them = ("is late, and is", "it") if seen.rows == 1 else ("are late, and are", "them")
        yield (
            f"stream {name}: {seen.rows} of {self.records.format(read)} {what} not joined: times before "
            f"{them}{largest}, are more than the delay of {stream.delay} ahead. A delay of {enough} would have kept "
            f"{kept}: delay='{enough}'.{_of_order(stream)}{_all_in(where)}"
        )

    def times(
        self,
        seen: Mapping[str, TimesSeen],
        largest_us: Mapping[str, int | None] | None = None,
    ) -> Iterator[str]:
        """Yield a text for each thing that is odd about the event times of streams.

        Parameters
        ----------
        seen : mapping of stream name to TimesSeen
            What the first records of streams show.
        largest_us : mapping of stream name to int or None, optional
            The largest event time of each stream so far: a stream may have gone on since it was seen.
        """
        new = [name for name in seen if name not in self._seen]
        self._seen.update((name, seen[name]) for name in new)
        for name, us in (largest_us or {}).items():
            if name in self._seen and us is not None:
                self._seen[name] = replace(self._seen[name], most_us=max(us, self._seen[name].most_us))
        for stream in self.bound.join.streams:
            if stream.name in new and not isinstance(stream.source, Generator):
                yield from self._far_times(stream)
                yield from self._days(stream)
        yield from self._apart_from_each_other()

    def _far_times(self, stream: Stream) -> Iterator[str]:
        seen, now_us = self._seen[stream.name], int(self.clock() * 1e6)
        if all(_EARLY_US <= time_us <= now_us + _YEAR_US for _, time_us in seen.first):
            return
        factor = self._unit_us(stream)
        shown = ", ".join(
            _moment(time_us) if factor is None else f"{_number(time_us, factor)} is {_moment(time_us)}"
            for time_us in dict.fromkeys(time_us for _, time_us in seen.first)
        )
        where = "before 1990" if seen.first[0][1] < _EARLY_US else "more than a year ahead of the clock"
        meant = "" if factor is None else _meant(seen.first[0][1], factor, now_us)
        if self.any_origin and "time_unit" not in meant:
            return
        yield f"stream {stream.name}: its first event times, of column '{stream.time}', lie {where}: {shown}.{meant}"

    def _days(self, stream: Stream) -> Iterator[str]:
        seen, window = self._seen[stream.name], self.bound.join.window
        others = [other for name, other in self._seen.items() if name != stream.name]
        is_long = window.kind == "time" and any(window.extent(n) >= DAY_US for n in range(len(self.bound.names)))
        if not seen.are_midnights or is_long:
            return
        found = self.columns.times_of_day(stream)
        if not found and (seen.rows < 2 or all(other.are_midnights for other in others)):
            return
        text = f"stream {stream.name}: its event times, of column '{stream.time}', are days alone, all at midnight"
        if not found:
            yield f"{text}. Is there a column with the time of day too? The event time is one column with both"
            return
        both = f"`{stream.time}` || ' ' || `{found[0]}`"
        yield (
            f"{text}, and the time of day is in column '{found[0]}'. The event time is both together: time=\"{both}\", "
            "and time_format where that is not ISO 8601"
        )

    def _apart_from_each_other(self) -> Iterator[str]:
        window, streams = self.bound.join.window, self.bound.join.streams
        if window.kind == "count":
            return
        for one, other in combinations(range(len(streams)), 2):
            names = streams[one].name, streams[other].name
            if names in self._apart or not all(name in self._seen for name in names):
                continue
            self._apart.add(names)
            first, last = sorted((one, other), key=lambda n: self._seen[streams[n].name].least_us)
            before, after = (self._seen[streams[n].name] for n in (first, last))
            gap_us = after.least_us - before.most_us
            is_sure = gap_us >= _HOUR_US or min(before.rows, after.rows) >= _LEAST_ROWS
            if gap_us <= window.extent(first) or not is_sure:
                continue
            spans = ", ".join(f"{name}: {_span(self._seen[name])}" for name in names)
            why = self._why_apart(first, last, gap_us)
            yield f"{spans}: no event time of one is within the window of the other{why}"

    def _why_apart(self, first: int, last: int, gap_us: int) -> str:
        streams = self.bound.join.streams
        for number, other in ((first, last), (last, first)):
            factor = self._unit_us(streams[number])
            near = self._seen[streams[other].name]
            of_own = self._seen[streams[number].name]
            for unit, unit_us in _units_us() if factor is not None else ():
                assert factor is not None
                begin, end = (float(us) / factor * unit_us for us in (of_own.least_us, of_own.most_us))
                if unit_us != factor and begin <= near.most_us + _YEAR_US and end >= near.least_us - _YEAR_US:
                    return f": is time_unit of {streams[number].name} {_UNIT_NAMES[unit]}?"
        is_zone = gap_us <= _MOST_ZONE_US
        return ": are those of one local times, and not UTC? timezone says of which zone" if is_zone else ""

    def _unit_us(self, stream: Stream) -> float | None:
        """Return how many microseconds the unit of a stream's event times has; None where they are no numbers."""
        is_plain = stream.time_format is None and stream.time_start is None
        return dict(_units_us())[stream.time_unit] if is_plain and self.columns.has_number_times(stream) else None


def _units_us() -> list[tuple[str, float]]:
    return [*UNITS_US.items(), ("ns", 0.001)]


def _all_in(where: str) -> str:
    return f". All are in {where}" if where else ""


def other_names(bound: BoundJoin) -> list[str]:
    """Return what is to be said of selected columns whose names Delta refuses: they have others in the tables."""
    found = []
    for one in bound.result:
        member = bound.member_names[one.stream]
        if one.name != f"{member}_{one.column}" and one.name == result_name(member, one.column):
            found.append(
                f"column '{one.column}' of {member} is {one.name} in the tables, as Delta has no spaces and none of "
                ", ; { } ( ) = in a name; AS gives it another one"
            )
    return found


def holding_devices(bound: BoundJoin) -> list[str]:
    """Return what is to be said of streams whose devices may hold the watermark for ever."""
    return [
        f"a device of stream {stream.name} that goes away holds watermark, windows and punctuation for ever: "
        f"it has partition_by={','.join(stream.device_columns)} and no idle_timeout"
        for stream in bound.join.streams
        if stream.device_columns and stream.idle_timeout is None
    ]


def _of_order(stream: Stream) -> str:
    """Return what else than a delay brings the records of a stream into their order."""
    if stream.device_columns:
        return f" Each {'/'.join(stream.device_columns)} has a clock of its own"
    if stream.is_topic:
        return " Each partition of the topic has an order of its own; with partition_by=COLUMN each device has one"
    if stream.source is None:
        return " Or hand them over in the order of their times"
    if isinstance(stream.source, (Generator, DeltaRows)):
        return ""
    files = "Files are read in the order of their names: file_order='modified' and partition_by='file' are others; "
    files += "devices side by side have clocks of their own with partition_by=COLUMN"
    return f" {files}; within a file records come as they stand, so sort one that is newest first"


def _moment(us: int) -> str:
    return str(np.datetime64(us, "us")).rstrip("0").rstrip(".") + "Z"


def _span(seen: TimesSeen) -> str:
    return f"{_moment(seen.least_us)} .. {_moment(seen.most_us)}"


def _number(time_us: int, factor: float) -> str:
    """Return the number that was read as an event time; parts of a microsecond are not known any more."""
    if factor < 1:
        return str(round(time_us / factor))
    whole, rest = divmod(time_us, int(factor))
    return str(whole) if not rest else repr(time_us / factor)


def _meant(time_us: int, factor: float, now_us: int) -> str:
    """Return what a number may have been meant as: another unit, another count, or a date."""
    number = time_us / factor
    for unit, unit_us in _units_us():
        if unit_us != factor and _EARLY_US <= number * unit_us <= now_us + _YEAR_US:
            moment = _moment(int(number * unit_us))
            return f" Are they {_UNIT_NAMES[unit]}? With time_unit='{unit}' the first is {moment}"
    text = f"{number:.0f}"
    if len(text) in (8, 10, 12, 14) and number == int(number) and (date := _as_date(text)):
        form = "%Y%m%d%H%M%S"[: len(text) - 2]
        return f" Is it the date {date}, written as a number? time_format='{form}' reads it so"
    if len(text) in (7, 11) and number == int(number) and 1990 <= int(text[:4]) < 2100 and 1 <= int(text[4:7]) <= 366:
        return f" Is it day {int(text[4:7])} of the year {text[:4]}? time_format='doy' reads it so"
    for count, zero_us, length_us, form in _OTHER_COUNTS:
        if _EARLY_US <= (meant := zero_us + number * length_us) <= now_us + _YEAR_US:
            return f" Are they {count}? Then the first is {_moment(int(meant))}: time_format='{form}' reads them so"
    if len(text) == 4 and number == int(number) and 1990 <= number < 2100:
        return (
            " Is it a year? The event time is all of its columns together: time=\"year || ' ' || day || ' ' || hhmm\", "
            "with time_format='doy' where the day is that of the year"
        )
    others = [
        f"in {_UNIT_NAMES[unit]} {_moment(int(number * unit_us))}"
        for unit, unit_us in _units_us()
        if unit_us != factor and MIN_TS_US <= number * unit_us <= MAX_TS_US
    ]
    return f" The first is {', '.join(others)}" if others else ""


def _as_date(digits: str) -> str | None:
    """Return the time that digits such as 20240305 or 202403050900 write; None where they write none."""
    parts = [digits[:4], digits[4:6], digits[6:8]]
    clock = [digits[place : place + 2] for place in range(8, len(digits), 2)]
    text = "-".join(parts) + ("T" + ":".join([*clock, "00"][:3] if len(clock) > 1 else [*clock, "00"]) if clock else "")
    try:
        found = np.datetime64(text, "s")
    except ValueError:
        return None
    return text if np.datetime64("1990") <= found < np.datetime64("2100") else None


def _rounded_up(us: int) -> int:
    """Return a duration that is not shorter, in as few units as tell it to a tenth or so."""
    for unit_us in (DAY_US, _HOUR_US, 60_000_000, 1_000_000, 1_000):
        if us >= 10 * unit_us:
            return -(-us // unit_us) * unit_us
    return us
