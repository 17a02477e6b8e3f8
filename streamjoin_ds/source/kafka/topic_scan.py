"""The planner's look ahead into a partition of a topic: event times, places and sizes of messages in no batch yet.

A place in a partition that an offset holds is a `KafkaPosition`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamjoin_ds.source.position import PlainFacts
from streamjoin_ds.spec.event_time import NO_TIME, AheadLimit
from streamjoin_ds.spec.time_zone import OrderedTimes, Rhythm, SeenTimes, in_order

__all__ = ["KafkaPosition", "TopicScan"]


_MOST_EPOCH = (1 << 31) - 1
_TOPIC_ID = re.compile(r"[A-Za-z0-9+/=_-]{0,64}")


@dataclass(frozen=True, slots=True)
class KafkaPosition(PlainFacts):
    """How far a partition of a topic has been read.

    Parameters
    ----------
    seq : int
        Records so far: messages or what they hold, and one for each stretch of lost offsets that was passed over.
    offset : int
        The next offset to read. Markers of transactions and compaction leave offsets without a message, and a message
        may hold many records, so it tells nothing about `seq`.
    first : int
        The offset at which the stream began.
    time : int
        Largest event time so far, in microseconds UTC; the smallest int64 where there is none.
    epoch : int
        The leader epoch of the last message before `offset`: whoever leads a partition writes its own into what it
        appends. -1 where it is not known, and then it is left out of what is logged.
    within : int
        How many records of the message at `offset` were read, where that holds many; left out if it is 0.
    topic : str
        The topic's id. It is another one where a topic was deleted and made again. Empty where the broker has no ids.
    rhythm : tuple of int
        Of a stream with local times: how its times have come (`Rhythm`).
    """

    seq: int = 0
    offset: int = 0
    first: int = 0
    time: int = NO_TIME
    topic: str = ""
    epoch: int = -1
    rhythm: tuple[int, ...] = ()
    within: int = 0

    @property
    def time_us(self) -> int | None:
        """The largest event time so far; None where there is none."""
        return None if self.time == NO_TIME else self.time

    LATER: ClassVar[frozenset[str]] = frozenset(("epoch", "rhythm", "within"))
    LEAST: ClassVar[Mapping[str, int]] = {"time": NO_TIME, "epoch": -1}

    def wrong_field(self) -> str:
        """See `PlainFacts.wrong_field`."""
        if self.epoch > _MOST_EPOCH:
            return "epoch"
        if not _TOPIC_ID.fullmatch(self.topic):
            return "topic"
        if not Rhythm.is_one(self.rhythm):
            return "rhythm"
        return "offset" if self.offset < self.first else ""


class TopicScan:
    """The event times of a partition's records from a position on, as far as the planner has looked."""

    def __init__(self, start: KafkaPosition, *, has_local_times: bool = False) -> None:
        self.start = start
        self._has_local_times = has_local_times
        self.at = start.offset  # all before this offset has been looked at
        self.ends_lost = False  # whether the offsets before it were gone
        self._next = np.empty(0, np.int64)  # of each record the offset after it,
        self._within = np.empty(0, np.int64)  # and how many records of the message there were read
        self._times = SeenTimes.none(0)
        self._ordered: OrderedTimes | None = None  # the times by their order, once `judge` was called
        self.running = np.empty(0, np.int64)  # the largest of those that count
        self._epochs = np.empty(0, np.int64)  # the leader epoch of each record; -1 where it is not known
        self._sizes = np.empty(0, np.int64)  # bytes of the messages up to each record and with it

    @property
    def rows(self) -> int:
        """The number of records."""
        return len(self._next)

    @property
    def size_bytes(self) -> int:
        """The bytes of the messages' values."""
        return int(self._sizes[-1]) if self.rows else 0

    def rows_within(self, most_bytes: int) -> int:
        """Return how many records have so many bytes together; one where the first has more."""
        return max(int(np.searchsorted(self._sizes, most_bytes, side="right")), min(self.rows, 1))

    def begin_at(self, start: KafkaPosition) -> bool:
        """Forget the records before a position. Return whether it is one of this scan."""
        gone = start.seq - self.start.seq
        if not 0 <= gone <= len(self.running) or start != (self.after(gone) if gone else self.start):
            return False
        self.start = start
        self._next, self.running, self._times = self._next[gone:], self.running[gone:], self._times.part(gone)
        self._within = self._within[gone:]
        self._epochs = self._epochs[gone:]
        self._sizes = self._sizes[gone:] - (self._sizes[gone - 1] if gone else 0)
        return True

    def after(self, rows: int) -> KafkaPosition:
        """Return the position after so many records, of which there is one."""
        last = rows - 1
        offset, time = int(self._next[last]), int(self.running[last])
        epoch, within = max(self.start.epoch, int(self._epochs[last])), int(self._within[last])
        rhythm = () if self._ordered is None else self._ordered.rhythm_after(rows)
        seq = self.start.seq + rows
        return replace(self.start, seq=seq, offset=offset, time=time, epoch=epoch, rhythm=rhythm, within=within)

    @property
    def epoch(self) -> int:
        """The leader epoch of the last message that was looked at; -1 where it is not known."""
        return max(self.start.epoch, int(self._epochs[-1])) if self.rows else self.start.epoch

    def add(
        self,
        offsets: np.ndarray,
        times: SeenTimes,
        sizes: np.ndarray,
        epochs: np.ndarray,
        within: np.ndarray,
        *,
        goes_on: bool = False,
    ) -> None:
        """Add records that end with these offsets, and have these event times, bytes and leader epochs.

        `within` is how many records of its message are read after each; 0 after its last one.

        With `goes_on` the first one stands for lost offsets that follow what was looked at. If the last record stands
        for lost offsets too, both are one stretch.
        """
        if goes_on and self.ends_lost and self.rows:
            self._next[-1] = offsets[0] + 1
            offsets, times, sizes, epochs, within = offsets[1:], times.part(1), sizes[1:], epochs[1:], within[1:]
        self._sizes = np.concatenate([self._sizes, self.size_bytes + np.cumsum(sizes)])
        self._next = np.concatenate([self._next, np.where(within, offsets, offsets + 1)])
        self._within = np.concatenate([self._within, within])
        self._times = SeenTimes.joined([self._times, times])
        self._epochs = np.maximum.accumulate(np.concatenate([self._epochs, epochs]))  # lost offsets have none

    def judge(self, ahead: AheadLimit | None) -> None:
        """Find the largest time that counts up to each record, given how far ahead one may be."""
        rhythm = self.start.rhythm if self._has_local_times else None
        self._ordered = in_order(self._times, self.start.time, ahead, rhythm)
        self.running = self._ordered.running
