"""Local times made UTC: zones of the tz database, offsets and abbreviations; hours that a clock shows twice or skips.

::

    2024-03-31 02:30 in Europe/Berlin    the clock skips it: no event time
    2024-10-27 02:30 in Europe/Berlin    00:30 or 01:30 UTC: the order of the stream's times tells

A zone's changes are found once, by `zoneinfo` (PEP 615), and then local times are looked up among them. The tz database
is that of the machine, or of the package tzdata.

In a column of zones an abbreviation is one offset: CET is +01:00, also in July. Those that several countries have for
different offsets (CST, BST) are none.

Of two meanings a local time has the one that is nearer to the largest event time before it in its order; the later one
if both are equally near; the earlier one where nothing is before it. But if the times come in groups at a constant
step, and the last group has as many as the one before it, a time that can mean when the next group is due means that::

                       before the change      the repeated hour
    every 10 minutes   ... 02:30 02:40 02:50 │ 02:00 02:10 ...   nearer to the largest time before
    hourly             00:30 01:30 02:30     │ 02:30 03:30 ...   due one step after the last group
    two devices        01:30 a b   02:30 a b │ 02:30 a b ...     the same, once the group has both

A group ends with a silence of half an hour. So nearness decides wherever rows are less than half an hour apart: there
it tells the hours apart. The step is, to a minute, the one that came twice in a row last, or else the first one. What a
position in a stream keeps of this are five numbers (`Rhythm`), so it is the same however the input is cut.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from streamjoin_ds.spec.columns import INT64_MAX, Int64, Mask
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, running_maximum, too_far_ahead

__all__ = [
    "OrderedTimes",
    "Rhythm",
    "SeenTimes",
    "Zone",
    "in_order",
    "value_zone",
    "zone_hint",
    "zone_names",
    "zone_of",
]

# Offsets in minutes. An abbreviation that is not here has several meanings, or is not known.
_ABBREVIATIONS = {
    "UTC": 0, "GMT": 0, "UT": 0, "Z": 0, "WET": 0, "WEST": 60, "CET": 60, "CEST": 120, "MET": 60, "MEST": 120,
    "MEZ": 60, "MESZ": 120, "EET": 120, "EEST": 180, "MSK": 180, "SAST": 120, "CAT": 120, "EAT": 180, "WAT": 60,
    "PKT": 300, "NPT": 345, "ICT": 420, "WIB": 420, "WITA": 480, "HKT": 480, "SGT": 480, "AWST": 480,
    "JST": 540, "KST": 540, "ACST": 570, "ACDT": 630, "AEST": 600, "AEDT": 660, "NZST": 720, "NZDT": 780,
    "BRT": -180, "ART": -180, "NST": -210, "NDT": -150, "ADT": -180, "EST": -300, "EDT": -240, "CDT": -300,
    "MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "AKST": -540, "AKDT": -480, "HST": -600,
}  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)

# Before 1800 no zone has changed. From 2200 on the rules of a zone are the same each year, so that its changes lie at
# the same places again after 400 years. (Changes that go by Ramadan are foretold one by one, until 2087.)
_FIRST_YEAR, _RULES_YEAR, _CYCLE_S = 1800, 2200, 146_097 * 86_400
_STEP_S = 2 * 86_400  # no zone has two changes within it: the nearest are those of Freetown in 1939, four days apart

# Other values are another rule, by which results would change.
_SILENCE_US, _SLACK_US = 1_800_000_000, 60_000_000
_NEVER_US = -(1 << 62)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones that this machine knows."""
    return frozenset(available_timezones())


@lru_cache(maxsize=512)
def zone_of(name: str) -> Zone | None:
    """Return the zone of a name such as ``Europe/Berlin``, or of an offset such as ``+01:00``; None: there is none."""
    match = _OFFSET.fullmatch(name.strip())
    if match is not None:
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes >= 24 * 60 or int(match[3] or 0) >= 60:
            return None
        return Zone(name, timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes)))
    try:
        return Zone(name, ZoneInfo(name))
    except (ValueError, OSError, LookupError):  # no such zone, and names that are none
        return None


@lru_cache(maxsize=512)
def value_zone(name: str) -> Zone | None:
    """Return the zone that a value names: an abbreviation, which is one offset, an offset or a zone; None: neither."""
    minutes = _ABBREVIATIONS.get(name.strip().upper())
    if minutes is not None:
        return Zone(name, timezone(timedelta(minutes=minutes)))
    return zone_of(name.strip()) if "/" in name or _OFFSET.fullmatch(name.strip()) or name in _lone_names() else None


@lru_cache(maxsize=1)
def _lone_names() -> frozenset[str]:
    """Return the zones whose names are no abbreviations and have no slash: Japan, Singapore."""
    return frozenset(name for name in zone_names() if "/" not in name and not name.isupper())


def zone_hint(name: str, columns: Sequence[str]) -> str:
    """Return a hint for a text that is no zone: the nearest zones, then the columns."""
    minutes = _ABBREVIATIONS.get(name.upper())
    if minutes is not None:
        hours, rest = divmod(abs(minutes), 60)
        near = [f"{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"]
    else:
        ends = {one.rpartition("/")[2].lower(): one for one in sorted(zone_names())}
        found = difflib.get_close_matches(name.rpartition("/")[2].lower().replace(" ", "_"), ends, 3)
        near = [ends[one] for one in found]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}a zone is a name such as Europe/Berlin, or an offset; the stream's columns are {', '.join(columns)}"


class Zone:
    """A zone, and its changes as far as they were asked for.

    Parameters
    ----------
    name : str
    info : tzinfo
        Says the zone's offset at any moment.
    """

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name, self._info = name, info
        self._years = (_RULES_YEAR, _RULES_YEAR)  # those whose changes are known: from the first to before the second
        self._changes = np.empty(0, np.int64)  # seconds since 1970 at which an offset begins
        self._offsets = np.empty(1, np.int64)  # in seconds, before the first change and after each one

    @property
    def is_fixed(self) -> bool:
        """Whether it is one offset, so that its clock shows no time twice."""
        return isinstance(self._info, timezone)

    def offsets(self, local_s: Int64) -> tuple[Int64, Int64]:
        """Return the offsets of local times by both of their meanings, in seconds.

        Parameters
        ----------
        local_s : ndarray, int64
            Seconds since 1970 of the clock on the wall.

        Returns
        -------
        first, second : ndarray, int64
            Equal where the time has one meaning. The first is larger where the clock shows the time twice: it is that
            of the earlier meaning. The first is smaller where the clock skips the time.
        """
        if self.is_fixed:
            found = np.full(len(local_s), self._offset_at(0))
            return found, found
        if not len(local_s):
            return local_s, local_s
        beyond = np.maximum(local_s - _year_s(_RULES_YEAR + 400), -1) // _CYCLE_S + 1
        within = np.maximum(local_s - beyond * _CYCLE_S, _year_s(_FIRST_YEAR))
        least, most = (int(np.datetime64(int(end), "s").astype("datetime64[Y]").astype(int)) for end in _ends(within))
        self._know(1970 + least - 1, 1970 + most + 2)
        before, after = self._offsets[:-1], self._offsets[1:]
        first = np.searchsorted(self._changes + np.maximum(before, after), within, "right")
        second = np.searchsorted(self._changes + np.minimum(before, after), within, "right")
        return self._offsets[first], self._offsets[second]

    def _know(self, first: int, last: int) -> None:
        """Find the changes of the years from the first one to before the last one."""
        first, last = max(first, _FIRST_YEAR), min(last, _RULES_YEAR + 401)
        known = self._years
        if known[0] <= first and last <= known[1] and known[0] < known[1]:
            return
        first, last = (min(first, known[0]), max(last, known[1])) if known[0] < known[1] else (first, last)
        begin, end = _year_s(first), _year_s(last)
        places = range(begin, end + 1, _STEP_S)
        offsets = [self._offset_at(place) for place in places]
        found = [
            (self._change(place - _STEP_S, place), after)
            for place, before, after in zip(places[1:], offsets, offsets[1:], strict=False)
            if before != after
        ]
        self._changes = np.array([change for change, _ in found], np.int64)
        self._offsets = np.array([offsets[0], *(offset for _, offset in found)], np.int64)
        self._years = first, last

    def _change(self, low: int, high: int) -> int:
        """Return the second at which the offset changes, after `low` and up to `high`."""
        before = self._offset_at(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_at(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def _offset_at(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self._info).utcoffset()
        assert offset is not None
        return offset.days * 86_400 + offset.seconds


def _year_s(year: int) -> int:
    return int(np.datetime64(f"{year}-01-01", "s").astype(np.int64))


def _ends(values: Int64) -> tuple[int, int]:
    return int(values.min()), int(values.max())


class Rhythm(NamedTuple):
    """How the largest event times of a stream have come so far: in groups, each begun after a silence.

    Attributes
    ----------
    begin_us : int
        The time with which the last group began, in microseconds UTC.
    step_us : int
        How long after the group before it that was; 0 where there was none.
    pace_us : int
        The step that came twice in a row last, else the first one; 0 where there was none.
    rows, rows_before : int
        Records of the last group so far, and of the group before it. Those that are older than the group do not count.
    """

    begin_us: int = 0
    step_us: int = 0
    pace_us: int = 0
    rows: int = 0
    rows_before: int = 0

    @classmethod
    def is_one(cls, facts: Sequence[object]) -> bool:
        """Whether a position may keep this: nothing, or a rhythm."""
        if not facts:
            return True
        if len(facts) != len(cls()) or any(type(part) is not int for part in facts):
            return False
        begin_us, *counts = facts
        return -INT64_MAX <= begin_us <= INT64_MAX and all(0 <= part <= INT64_MAX for part in counts)  # type: ignore[operator]


class SeenTimes(Struct):
    """Event times as they were read, before their order is known.

    Attributes
    ----------
    ts : ndarray, shape (n,), int64
        Microseconds UTC; of a local time with two meanings the earlier one, and 0 where not valid.
    valid : ndarray, shape (n,), bool
    gap_us : ndarray, shape (n,), int64, or None
        How much later the other meaning is; 0 where there is none. None: no time has two.
    """

    ts: Int64
    valid: Mask
    gap_us: Int64 | None = None

    @classmethod
    def joined(cls, parts: Sequence[SeenTimes]) -> SeenTimes:
        """Return the times of several stretches, one after the other."""
        if len(parts) == 1:
            return parts[0]
        ts = np.concatenate([np.empty(0, np.int64), *(part.ts for part in parts)])
        valid = np.concatenate([np.empty(0, np.bool_), *(part.valid for part in parts)])
        if all(part.gap_us is None for part in parts):
            return cls(ts, valid)
        gaps = [np.zeros(len(part.ts), np.int64) if part.gap_us is None else part.gap_us for part in parts]
        return cls(ts, valid, np.concatenate(gaps))

    @classmethod
    def none(cls, count: int) -> SeenTimes:
        """Return that of records without an event time."""
        return cls(np.zeros(count, np.int64), np.zeros(count, np.bool_))

    def part(self, begin: int, end: int | None = None) -> SeenTimes:
        """Return the times of a stretch of the records."""
        gap_us = None if self.gap_us is None else self.gap_us[begin:end]
        return SeenTimes(self.ts[begin:end], self.valid[begin:end], gap_us)

    def spread(self, index: npt.NDArray[np.int64] | None, count: int) -> SeenTimes:
        """Return the times of all records, where these are those of some; the others have none."""
        if index is None:
            return self
        ts, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        ts[index], valid[index] = self.ts, self.valid
        gap_us = None
        if self.gap_us is not None:
            gap_us = np.zeros(count, np.int64)
            gap_us[index] = self.gap_us
        return SeenTimes(ts, valid, gap_us)


def in_order(
    seen: SeenTimes, before: int, limit: AheadLimit | None = None, rhythm: Sequence[int] | None = None
) -> OrderedTimes:
    """Return event times by their order.

    Parameters
    ----------
    seen : SeenTimes
        Of records in the stream's order.
    before : int
        The largest event time before the first of them; `NO_TIME` where there is none.
    limit : AheadLimit, optional
        How far a record may be ahead.
    rhythm : sequence of int, optional
        Of a stream with local times: what `OrderedTimes.rhythm_after` gave of the records before; empty: not known.
    """
    ts, gap_us = seen.ts, seen.gap_us
    if gap_us is None or not gap_us.any():
        far = None if limit is None else too_far_ahead(ts, seen.valid, before, limit)
        return OrderedTimes(ts, seen.valid if far is None else seen.valid & ~far, far, None, before, rhythm)
    # A record's meaning depends on those before it alone. So a round settles one record more, at least; and as each
    # that is found to be later moves the largest time by half of the gap or more, there are few rounds.
    later, doubles = np.zeros(len(ts), np.bool_), np.flatnonzero(seen.valid & (gap_us > 0))
    first, gaps = seen.ts[doubles], gap_us[doubles]
    while True:
        ts = seen.ts + np.where(later, gap_us, 0)
        far = None if limit is None else too_far_ahead(ts, seen.valid, before, limit)
        counts = seen.valid if far is None else seen.valid & ~far
        found = OrderedTimes(ts, counts, far, later, before, rhythm)
        largest = found.largest_before[doubles]
        is_later = (largest != NO_TIME) & (largest >= first + gaps - gaps // 2)
        is_later |= np.abs(found.groups.due_us(doubles) - (first + gaps)) <= _SLACK_US
        now = np.zeros(len(ts), np.bool_)
        now[doubles] = is_later
        if (now == later).all():
            return found
        later = now


@dataclass(eq=False)
class OrderedTimes:
    """Event times of a stretch of a stream, by their order.

    Attributes
    ----------
    ts : ndarray, shape (n,), int64
        Microseconds UTC.
    counts : ndarray, shape (n,), bool
        Which records have a time that counts: they have one, and it is not too far ahead.
    far : ndarray, shape (n,), bool, or None
        Which records are too far ahead of their stream; None without a limit.
    later : ndarray, shape (n,), bool, or None
        Which records have the later one of two meanings; None where no time has two.
    before : int
        The largest event time before the first record.
    rhythm : sequence of int, or None
        The rhythm before it; empty: not known. None: the stream has no local times.
    """

    ts: Int64
    counts: Mask
    far: Mask | None
    later: Mask | None
    before: int
    rhythm: Sequence[int] | None

    @cached_property
    def running(self) -> Int64:
        """The largest event time up to each record, as `running_maximum` gives it."""
        return running_maximum(self.ts, self.counts, self.before)

    @property
    def largest_before(self) -> Int64:
        """The largest event time before each record."""
        return np.concatenate([np.array([self.before], np.int64), self.running[:-1]])

    @cached_property
    def groups(self) -> _Groups:
        """The groups of the records."""
        return _Groups(self)

    def rhythm_after(self, records: int | None = None) -> tuple[int, ...]:
        """Return what a position after so many records keeps, by default after all of them; empty: nothing."""
        if self.rhythm is None:
            return ()
        count = len(self.ts) if records is None else records
        if count == 0 or self.running[count - 1] == NO_TIME:
            return tuple(self.rhythm)
        return tuple(self.groups.rhythm(count))


class _Groups:
    """The groups of records: the one that was open before them, and those that begin with one of them."""

    def __init__(self, times: OrderedTimes) -> None:
        before, running, largest = times.before, times.running, times.largest_before
        known = Rhythm(*(times.rhythm or ()))
        if not known.rows:  # an older version kept no rhythm
            known = Rhythm(before, *known[1:])
        is_new = (running != largest) & ((largest == NO_TIME) | (running - largest >= _SILENCE_US))
        self._starts = np.flatnonzero(is_new)
        self._begins = np.concatenate([np.array([known.begin_us], np.int64), running[self._starts]])
        ends = np.concatenate([self._starts, [len(running)]])
        lowest = np.repeat(np.maximum(self._begins, NO_TIME + _SILENCE_US) - _SILENCE_US, np.diff(ends, prepend=0))
        counted = np.cumsum(times.counts & (times.ts > lowest), dtype=np.int64)
        self._rows = known.rows + np.concatenate([np.zeros(1, np.int64), counted])  # up to each record
        self._base = np.concatenate([np.zeros(1, np.int64), self._rows[self._starts]])  # of those before each group
        self._sizes = np.concatenate([[known.rows_before], np.diff(self._base)])  # of the group before each one
        self._steps = np.concatenate([[known.step_us], np.diff(self._begins)])
        if before == NO_TIME:
            self._steps[:2] = 0
        is_pace = np.abs(np.diff(self._steps, prepend=self._steps[0])) <= _SLACK_US
        is_pace &= self._steps > 0
        if not known.pace_us:
            is_pace |= np.cumsum(self._steps > 0) == 1
        steps = np.concatenate([[known.pace_us], self._steps[1:]])
        self._paces = steps[np.maximum.accumulate(np.where(is_pace, np.arange(len(steps)), 0))]

    def rhythm(self, count: int) -> Rhythm:
        """Return the rhythm after so many records."""
        group = int(np.searchsorted(self._starts, count))
        columns = self._begins, self._steps, self._paces, self._rows[count] - self._base, self._sizes
        return Rhythm(*(int(column[group]) for column in columns))

    def due_us(self, places: npt.NDArray[np.intp]) -> Int64:
        """Return when the next group is due, for records that come when as many have come as in the group before."""
        group = np.searchsorted(self._starts, places)
        rows, paces = self._rows[places] - self._base[group], self._paces[group]
        is_full = (rows == self._sizes[group]) & (rows > 0) & (paces > 0)
        return np.where(is_full, self._begins[group] + paces, _NEVER_US)
