"""Feeds: a feed reads one stream's tuples, in the stream's order, from any position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from streamjoin_ds.source.backlog import Backlog
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.event_time import AheadLimit

__all__ = ["ArrayFrontier", "Feed", "Frontier", "first_cut"]

PositionT = TypeVar("PositionT", bound=Position)


class Frontier(Protocol):
    """The records that can be read from a position on, and the running maximum of the event time over them.

    The running maximum counts from the stream's first tuple and never falls. A record without an event time has the
    running maximum of the record before it. The running maximum orders the tuples of all streams (see `merge`).
    """

    @property
    def rows(self) -> int:
        """The number of records that can be read now, at most as many as were asked for."""

    @property
    def running_max(self) -> np.ndarray:
        """The running maxima of these records, int64, ascending."""

    def rows_until(self, ts: int) -> int:
        """How many of these records have a running maximum <= `ts` (microseconds UTC)."""

    def first_time(self) -> int | None:
        """The first record's running maximum; None where there is no record."""

    def last_time(self) -> int | None:
        """The last record's running maximum; None where there is no record."""


@dataclass(frozen=True, slots=True)
class ArrayFrontier:
    """A frontier with its running maxima in an array (int64, ascending).

    With `is_cut` there are more records than these, fewer than were asked for though these are: they have many bytes.
    """

    running_max: np.ndarray
    is_cut: bool = False

    @property
    def rows(self) -> int:
        """See `Frontier.rows`."""
        return len(self.running_max)

    def rows_until(self, ts: int) -> int:
        """See `Frontier.rows_until`."""
        return int(np.searchsorted(self.running_max, ts, side="right"))

    def first_time(self) -> int | None:
        """See `Frontier.first_time`."""
        return int(self.running_max[0]) if self.rows else None

    def last_time(self) -> int | None:
        """See `Frontier.last_time`."""
        return int(self.running_max[-1]) if self.rows else None


def first_cut(frontiers: Iterable[Frontier]) -> int | None:
    """Return the time up to which frontiers know all records; None where no frontier is cut (`ArrayFrontier`)."""
    cuts = [frontier.last_time() for frontier in frontiers if isinstance(frontier, ArrayFrontier) and frontier.is_cut]
    return min((cut for cut in cuts if cut is not None), default=None)


class Feed(Protocol[PositionT]):
    """One stream's input.

    Tasks call `position`, `running_max` and `read`. Their answers depend on the arguments and the input alone. The
    other methods are for the planner. Where an `AheadLimit` is given, a record that is too far ahead is a reject, and
    its event time does not count.
    """

    @property
    def endless(self) -> bool:
        """Whether the stream has no last tuple."""

    @property
    def held_back_bytes(self) -> int:
        """Bytes of a last line that is not read yet, because it lacks its newline."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Names of the sub-folders of the source, which are not read."""

    def initial(self) -> PositionT:
        """Return the position before the first tuple."""

    def position(self, facts: object) -> PositionT:
        """Return the position that an offset holds; raise `OffsetError` where it is malformed."""

    def frontier(self, start: PositionT, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """Return what can be read from `start` on, at most `limit` records."""

    def advance(self, start: PositionT, rows: int) -> PositionT:
        """Return the position `rows` records after `start`. `frontier(start, limit)` must have found that many."""

    def time_before(self, position: PositionT) -> int | None:
        """The largest event time of all records before a position; None where there is none."""

    def has_time(self, rows: int) -> bool:
        """Whether any of the next `rows` records has an event time. `frontier` must have found that many."""

    def backlog(self, end: PositionT, known: Backlog) -> Backlog:
        """Return what is known of the records after a batch, which `frontier` and `advance` have planned.

        Parameters
        ----------
        end : Position
            The end of the batch.
        known : Backlog
            What the frontier says. Most sources know no more.
        """

    def freeze(self) -> None:
        """Ignore all input that appears after this call."""

    def files_between(self, start: PositionT, end: PositionT) -> tuple[str, ...]:
        """Return the names of the files that hold ``[start, end)``, which the planner hands to the tasks.

        A task that is not given the names has to list the files itself.
        """

    def running_max(
        self, start: PositionT, end: PositionT, ahead: AheadLimit | None = None, files: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the running maxima of the records of ``[start, end)``, int64, as `frontier` saw them."""

    def split(self, start: PositionT, end: PositionT, parts: int) -> list[tuple[PositionT, PositionT]]:
        """Return at most `parts` ranges, in order and none empty, that together are ``[start, end)``."""

    def read(
        self,
        start: PositionT,
        end: PositionT | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """Yield the records of ``[start, end)`` in order. Without `end`, read to the end of what is there now."""
