"""Feeds: one stream's tuples, in its own order, from any position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.ahead import AheadLimit

__all__ = ["ArrayFrontier", "Feed", "Frontier"]

PositionT = TypeVar("PositionT", bound=Position)


class Frontier(Protocol):
    """What can be read from a position on: records, and the running maximum of the event time over them.

    The running maximum (of the stream, from its first tuple on) never falls; a record without an event time has that
    of the record before it. It orders the tuples of all streams (see `merge`).
    """

    @property
    def rows(self) -> int:
        """Records that can be read now, at most as many as were asked for."""

    @property
    def running_max(self) -> np.ndarray:
        """Their running maxima, int64, ascending."""

    def rows_until(self, ts: int) -> int:
        """How many of them have a running maximum <= ts (microseconds UTC)."""

    def first_time(self) -> int | None:
        """The first record's running maximum; None where there is none."""

    def last_time(self) -> int | None:
        """The last record's running maximum; None where there is none."""


@dataclass(frozen=True, slots=True)
class ArrayFrontier:
    """A frontier whose running maxima (int64, ascending) are at hand."""

    running_max: np.ndarray

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


class Feed(Protocol[PositionT]):
    """One stream's input. `read` is a pure function of what it is given; the rest is asked by the planner only.

    Where an `AheadLimit` is given, records that are too far ahead are rejects, and count for nothing else.
    """

    @property
    def endless(self) -> bool:
        """Whether there is no last tuple."""

    @property
    def held_back_bytes(self) -> int:
        """Bytes of a last line that still lacks its newline, and is therefore not read."""

    @property
    def passed_over(self) -> Sequence[str]:
        """Names of the sub-folders of the source, which are not read."""

    def initial(self) -> PositionT:
        """Before the first tuple."""

    def position(self, facts: object) -> PositionT:
        """The position that an offset holds; `OffsetError` where it is malformed."""

    def frontier(self, start: PositionT, limit: int, ahead: AheadLimit | None = None) -> Frontier:
        """What can be read from `start` on, at most `limit` records."""

    def advance(self, start: PositionT, rows: int) -> PositionT:
        """The position `rows` records further; only after `frontier(start, limit)` with as many rows."""

    def time_before(self, position: PositionT) -> int | None:
        """The largest event time of all records before a position; None where there is none."""

    def has_time(self, rows: int) -> bool:
        """Whether any of the next `rows` records has an event time; only after `frontier` with as many rows."""

    def freeze(self) -> None:
        """Ignore everything that appears after this call."""

    def files_between(self, start: PositionT, end: PositionT) -> tuple[str, ...]:
        """Names of the files that hold ``[start, end)``: the planner knows them, a task would have to list them."""

    def running_max(
        self, start: PositionT, end: PositionT, ahead: AheadLimit | None = None, files: Sequence[str] | None = None
    ) -> np.ndarray:
        """Running maxima of the records of ``[start, end)``, int64, as `frontier` saw them; as pure as `read`."""

    def split(self, start: PositionT, end: PositionT, parts: int) -> list[tuple[PositionT, PositionT]]:
        """At most `parts` ranges that together are ``[start, end)``, in order, none empty."""

    def read(
        self,
        start: PositionT,
        end: PositionT | None,
        ahead: AheadLimit | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[Chunk]:
        """The records of ``[start, end)``, in order; of None: to the end of what is there now."""
