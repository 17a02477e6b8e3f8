"""What the event times of some records show, small enough to travel: how they lie, and how late the late ones are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin_ds.spec.event_time import DAY_US

__all__ = ["LateSeen", "TimesSeen"]

Int64 = npt.NDArray[np.int64]

_FIRST = 3  # records of which number and time are kept
_STEPS = 4  # buckets for each doubling of how late a record is


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


@dataclass(slots=True)
class LateSeen:
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
