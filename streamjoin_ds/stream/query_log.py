"""Silent streams: which one holds the watermark, and what is logged about it and about idle streams."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from streamjoin_ds.source.partitioned_position import PartitionClock, PartitionedPosition
from streamjoin_ds.spec import Stream, duration_text

__all__ = ["SilenceLog", "WatermarkHolder", "holder", "partition_clocks"]


_log = logging.getLogger(__name__)

# A stream that merely has fewer tuples is not logged. It must have held the watermark for so many batches in a row,
# and be behind by so many microseconds (a minute).
_TOLD_BATCHES = 10
_TOLD_BEHIND_US = 60_000_000


@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """A stream, or one of its partitions, that sent nothing and holds the watermark.

    Attributes
    ----------
    stream : str
        The stream's name; of a partition ``stream/partition``.
    behind_us : int or None
        By how many microseconds its clock is behind that of the furthest stream; None: it has had no tuple at all.
    """

    stream: str
    behind_us: int | None


def partition_clocks(before: PartitionedPosition | None, end: PartitionedPosition) -> list[PartitionClock]:
    """Return the clocks of a stream's partitions of which a record was read, given where the batch begins and ends."""
    firsts = {} if before is None else before.partitions
    return [
        PartitionClock(
            name, at.time_us, at.at.seq - (firsts[name].at.seq if name in firsts else 0), is_idle=at.clock.idle
        )
        for name, at in end.partitions.items()
        if at.has_joined
    ]


def holder(
    streams: Sequence[Stream],
    largest_us: Mapping[str, int | None],
    read: Mapping[str, int],
    idle: Sequence[str],
    partitions: Mapping[str, Sequence[PartitionClock]] = MappingProxyType({}),
) -> WatermarkHolder | None:
    """Return the stream or partition that holds the watermark of a batch and sent nothing in it, or None.

    Parameters
    ----------
    streams : sequence of Stream
        All streams of the join.
    largest_us : mapping of stream name to int or None
        Largest event time so far, in microseconds; None for a stream without a tuple.
    read : mapping of stream name to int
        Number of records in the batch.
    idle : sequence of str
        Names of the streams that are idle and so do not hold the watermark.
    partitions : mapping of stream name to sequence of PartitionClock
        The partitions of the streams that have any, but for those of which no record was read.
    """
    lows, read, idle = {}, dict(read), [*idle]
    for stream in streams:
        own = [PartitionClock(stream.name, largest_us[stream.name], read[stream.name], stream.name in idle)]
        for clock in partitions.get(stream.name, own):
            name = f"{stream.name}/{clock.name}" if stream.name in partitions else stream.name
            lows[name] = None if clock.largest_us is None else clock.largest_us - stream.delay_us
            read[name] = clock.read
            if clock.is_idle:
                idle.append(name)
    known = [low for low in lows.values() if low is not None]
    silent = [name for name in lows if not read[name] and name not in idle]
    if not known or not silent:
        return None
    for name in silent:
        if lows[name] is None:
            return WatermarkHolder(name, None)
    last = min(silent, key=lambda name: (lows[name], name))
    held = min(low for name, low in lows.items() if low is not None and name not in idle)
    behind_us = max(known) - (lows[last] or 0)
    return WatermarkHolder(last, behind_us) if lows[last] == held and behind_us > 0 else None


@dataclass(slots=True)
class SilenceLog:
    """What a driver has logged about silent streams, so that it does not log it again."""

    _idle: set[str] = field(default_factory=set)
    _batches: Counter[str] = field(default_factory=Counter)
    _overtaken: set[str] = field(default_factory=set)

    def tell(
        self, held: WatermarkHolder | None, idle: Sequence[str], overtaken: Mapping[str, int], watermark: str
    ) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        held : WatermarkHolder or None
            The stream that holds the watermark and sent nothing.
        idle : sequence of str
            Names of the idle streams.
        overtaken : mapping of stream name to int
            How many of the batch's tuples were late by the watermark alone. It is told once, and again after the stream
            was idle.
        watermark : str
            The watermark as a text.
        """
        for name in sorted(set(idle) - self._idle):
            _log.warning("stream %s is idle: it no longer holds back the watermark", name)
        for name in sorted(self._idle - set(idle)):
            _log.warning("stream %s is back: it is no longer idle", name)
        for name in sorted(name for name, count in overtaken.items() if count and name not in self._overtaken):
            _log.warning(
                "%d tuples of stream %s are late, because the watermark %s went past them; the ledger counts the next",
                overtaken[name],
                name,
                watermark,
            )
            self._overtaken.add(name)
        self._overtaken -= set(idle)
        self._idle = set(idle)
        if held is None:
            self._batches.clear()
            return
        self._batches = Counter({held.stream: self._batches[held.stream] + 1})
        count = self._batches[held.stream]
        far = held.behind_us is None or held.behind_us >= _TOLD_BEHIND_US
        if far and count >= _TOLD_BATCHES and (count // _TOLD_BATCHES).bit_count() == 1 and count % _TOLD_BATCHES == 0:
            behind = "has had no tuple" if held.behind_us is None else f"is {duration_text(held.behind_us)} behind"
            _log.warning(
                "stream %s holds back the watermark: it has sent nothing for %d batches and %s. No tuple leaves the "
                "windows, and the punctuation stays at %s. With an idle_timeout the join would go on without it",
                held.stream,
                count,
                behind,
                watermark,
            )
