"""Local times made UTC: zones of the tz database, offsets and abbreviations; hours that a clock shows twice or skips.

::

    2024-03-31 02:30 in Europe/Berlin    the clock skips it: no event time
    2024-10-27 02:30 in Europe/Berlin    00:30 or 01:30 UTC: of the two meanings the one that is nearer to the largest
                                         event time before it in its order; the later one if both are equally near,
                                         the earlier one where nothing is before it

A zone's changes are found once, by `zoneinfo` (PEP 615), and then local times are looked up among them. The tz database
is that of the machine, or of the package tzdata.

In a column of zones an abbreviation is one offset: CET is +01:00, also in July. Those that several countries have for
different offsets (CST, BST) are none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import numpy.typing as npt

from streamjoin_ds.spec.columns import Int64, Mask
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit, running_maximum, too_far_ahead

__all__ = ["SeenTimes", "Zone", "in_order", "running_times", "value_zone", "zone_hint", "zone_of"]

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

# Before 1800 no zone has changed, and from 2038 on the rules of a zone are the same each year, so that its changes lie
# at the same places again after 400 years.
_FIRST_YEAR, _RULES_YEAR, _CYCLE_S = 1800, 2038, 146_097 * 86_400
_STEP_S = 6 * 3600  # no zone has two changes within it


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


@dataclass(slots=True)
class SeenTimes:
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


def in_order(seen: SeenTimes, before: int, limit: AheadLimit | None = None) -> tuple[Int64, Mask | None, Mask | None]:
    """Return event times by their order, and which records are too far ahead of it, and which have the later meaning.

    Parameters
    ----------
    seen : SeenTimes
        Of records in the stream's order.
    before : int
        The largest event time before the first of them; `NO_TIME` where there is none.
    limit : AheadLimit, optional
        How far a record may be ahead.

    Returns
    -------
    ts : ndarray, shape (n,), int64
    far : ndarray, shape (n,), bool, or None
        None without a limit.
    later : ndarray, shape (n,), bool, or None
        None where no time has two meanings.
    """
    ts, gap_us = seen.ts, seen.gap_us
    if gap_us is None or not gap_us.any():
        return ts, None if limit is None else too_far_ahead(ts, seen.valid, before, limit), None
    # A record's meaning depends on those before it alone. So a round settles one record more, at least; and as each
    # that is found to be later moves the largest time by half of the gap or more, there are few rounds.
    later, is_double = np.zeros(len(ts), np.bool_), seen.valid & (gap_us > 0)
    while True:
        ts = seen.ts + np.where(later, gap_us, 0)
        far = None if limit is None else too_far_ahead(ts, seen.valid, before, limit)
        running = running_maximum(ts, seen.valid if far is None else seen.valid & ~far, before)
        largest = np.concatenate([np.array([before], np.int64), running[:-1]])
        now = is_double & (largest != NO_TIME) & (largest >= seen.ts + gap_us - gap_us // 2)
        if (now == later).all():
            return ts, far, later
        later = now


def running_times(seen: SeenTimes, before: int, limit: AheadLimit | None = None) -> Int64:
    """Return the largest event time up to each record, as `running_maximum` does; arguments of `in_order`."""
    ts, far, _ = in_order(seen, before, limit)
    return running_maximum(ts, seen.valid if far is None else seen.valid & ~far, before)
