"""What an index finds pairs by: intervals of limits, bands, and differences of event times."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from streamjoin_ds.spec.bound.limit import Limit
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["NO_FINDERS", "BandFinder", "Bound", "Finders", "IntervalFinder", "TimeFinder"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of one stream is not above a limit of another: ``low <= high``."""

    low_stream: int
    low: Limit
    high_stream: int
    high: Limit


@dataclass(frozen=True, slots=True)
class IntervalFinder:
    """One bound, or two in opposite directions: for each tuple of either stream an interval of the other's limits.

    Attributes
    ----------
    bounds : tuple of Bound
        One or two. The second has the streams of the first in the other order.
    texts : tuple of str
        The conditions that it is of.
    """

    bounds: tuple[Bound, ...]
    texts: tuple[str, ...]

    @property
    def columns(self) -> frozenset[Column]:
        """The columns in it."""
        return frozenset().union(*(bound.low.columns | bound.high.columns for bound in self.bounds))


@dataclass(frozen=True, slots=True)
class BandFinder:
    """``-eps <= left - right <= eps``, for two columns that float64 holds exactly."""

    left_stream: int
    left: Limit
    right_stream: int
    right: Limit
    eps: float
    text: str


@dataclass(frozen=True, slots=True)
class TimeFinder:
    """``left - right <= most_us``, for the event times of two streams."""

    left_stream: int
    right_stream: int
    most_us: int
    text: str


@dataclass(frozen=True)
class Finders:
    """All that the conditions of a join say of where their pairs can be."""

    intervals: tuple[IntervalFinder, ...] = ()
    bands: tuple[BandFinder, ...] = ()
    times: tuple[TimeFinder, ...] = ()

    @property
    def limits(self) -> Iterator[tuple[int, Limit]]:
        """Each limit with the number of its stream; one may come several times."""
        for band in self.bands:
            yield band.left_stream, band.left
            yield band.right_stream, band.right
        for one in self.intervals:
            for bound in one.bounds:
                yield bound.low_stream, bound.low
                yield bound.high_stream, bound.high

    def besides(self, compared: Collection[frozenset[Column]]) -> Finders:
        """Return the finders without those of two columns between which there is a band or an equality already."""
        intervals = (one for one in self.intervals if one.columns not in compared)
        bands = (one for one in self.bands if one.left.columns | one.right.columns not in compared)
        return Finders(tuple(intervals), tuple(bands), self.times)


NO_FINDERS = Finders()
