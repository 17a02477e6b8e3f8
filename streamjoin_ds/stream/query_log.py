"""What a driver logs about a query: its delays, its backlog, silent streams, and its inputs.

Each is logged once, and not again with every batch. That `max_delay` is not kept, or that the join falls behind its
input, is logged when it has lasted for some batches, and once more when it has been over for as long (`Lasting`). The
log of silent streams names the one that holds the watermark (`holder`). The log of the inputs goes by what the cells
saw. `explain` says the same of the first records (`first_inputs`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.source.device_clocks import DeviceClocks, device_text
from streamjoin_ds.source.feed import BacklogFacts
from streamjoin_ds.source.partitioned_position import PartitionClock, PartitionedPosition
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.source.stream_source import SourceColumns, first_records
from streamjoin_ds.spec import BoundJoin, Generator, Stream, duration_text
from streamjoin_ds.spec.columns import INT64_MAX, SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME, running_maximum
from streamjoin_ds.spec.input_warnings import InputWarnings, LateSeen, TimesSeen, holding_devices, other_names
from streamjoin_ds.survey.report import tuple_texts

__all__ = [
    "TOLD_BATCHES",
    "BacklogLog",
    "DelayLog",
    "InputLog",
    "Lasting",
    "SilenceLog",
    "WatermarkHolder",
    "device_clocks",
    "first_inputs",
    "holder",
    "partition_clocks",
]

_log = logging.getLogger(__name__)

# So many batches in a row must say otherwise before that is logged: one slow batch does not count.
TOLD_BATCHES = 20
# A stream that merely has fewer tuples is not logged. It must have held the watermark for so many batches in a row,
# and be behind by so many microseconds (a minute).
_HELD_BATCHES = 10
_HELD_BEHIND_US = 60_000_000
_FIRST_RECORDS = 20_000  # that `explain` looks at, of each stream: as many as its rate is found by


class Lasting(Struct):
    """Whether a condition was logged.

    Attributes
    ----------
    is_told : bool
        Whether the log says that it holds.
    """

    is_told: bool = False
    _batches: int = 0  # batches in a row that contradict what was logged last

    def turns(self, contradicts: bool) -> bool:
        """Take whether a batch contradicts what was logged last; return whether `is_told` has changed with it."""
        self._batches = self._batches + 1 if contradicts else 0
        if self._batches < TOLD_BATCHES:
            return False
        self.is_told, self._batches = not self.is_told, 0
        return True


class DelayLog(Struct):
    """Whether a driver has logged that the bound of delays is not kept."""

    _missed: Lasting = field(default_factory=Lasting)

    def tell(self, facts: DelayFacts | None) -> None:
        """Log what is new after a batch: the bound is no longer kept, or is kept again.

        Parameters
        ----------
        facts : DelayFacts or None
            What the batch's offset says; None where there is no bound.
        """
        if facts is None or facts.delay_us is None:
            return
        is_missed = facts.delay_us > facts.max_delay_us
        if not self._missed.turns(is_missed != self._missed.is_told):
            return
        bound = duration_text(facts.max_delay_us)
        if not is_missed:
            _log.warning("max_delay %s is kept again: in the last %d batches", bound, TOLD_BATCHES)
            return
        _log.warning(
            "max_delay %s is not kept: in the last %d batches tuples may have waited longer, in the newest up to %s, "
            "and %d records still wait. Batches grow as the load needs; more cores or a larger max_delay would help",
            bound,
            TOLD_BATCHES,
            duration_text(round(facts.delay_us, -3)),
            facts.waiting_rows,
        )


class BacklogLog(Struct):
    """Whether a driver has logged that its join falls behind.

    It does when batch after batch leaves more than the one before: a join that works off what was there at its start
    leaves less with each. It has caught up when they leave no more than they read.
    """

    _behind: Lasting = field(default_factory=Lasting)
    _before: int = 0  # rows that the batch before left

    def tell(self, facts: BacklogFacts, read: int) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        facts : BacklogFacts
            What the batch's offset says.
        read : int
            How many records the batch had.
        """
        total = facts.total
        turns = self._behind.turns(total.rows <= read if self._behind.is_told else total.rows > max(self._before, read))
        self._before = total.rows
        if not turns:
            return
        if not self._behind.is_told:
            _log.warning("the join has caught up with its input")
            return
        stream = max(facts.streams, key=lambda name: facts.streams[name].rows)
        ahead = "" if total.ahead_us is None else f", {duration_text(round(total.ahead_us, -3))} of event time"
        _log.warning(
            "the join falls behind its input: each of the last %d batches left more than the one before, the newest "
            "%d records%s, most of them of stream %s. Batches are limited by %s",
            TOLD_BATCHES,
            total.rows,
            ahead,
            stream,
            facts.limited_by or "what is there",
        )


class WatermarkHolder(Struct, frozen=True):
    """A stream, or one of its partitions or devices, that sent nothing and holds the watermark.

    Attributes
    ----------
    stream : str
        The stream's name; of a partition ``stream/partition``, of a device ``stream/device``.
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


def device_clocks(before: DeviceClocks | None, end: DeviceClocks) -> list[PartitionClock]:
    """Return the clocks of the device that holds its stream's and of the one that is furthest; none where all are idle.

    Of a device's records in the batch they tell whether any moved its clock, given where the batch begins and ends.
    """
    held = end.held_by
    if held is None:
        return []
    told = dict.fromkeys((held, end.devices[int(end.times_us.argmax())]))
    return [
        PartitionClock(
            device_text(device),
            end.time_of(device),
            int(before is None or before.time_of(device) != end.time_of(device)),
            is_idle=device in end.idle,
        )
        for device in told
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


class SilenceLog(Struct):
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
        far = held.behind_us is None or held.behind_us >= _HELD_BEHIND_US
        if far and count >= _HELD_BATCHES and (count // _HELD_BATCHES).bit_count() == 1 and count % _HELD_BATCHES == 0:
            behind = "has had no tuple" if held.behind_us is None else f"is {duration_text(held.behind_us)} behind"
            _log.warning(
                "stream %s holds back the watermark: it has sent nothing for %d batches and %s. No tuple leaves the "
                "windows, and the punctuation stays at %s. With an idle_timeout the join would go on without it",
                held.stream,
                count,
                behind,
                watermark,
            )


class InputLog:
    """What was logged of one query's inputs, so that it is not logged again.

    Parameters
    ----------
    bound : BoundJoin
    tables : TableSet
        Where the query's late records and rejects are.
    clock : callable
        Returns seconds since 1970.
    """

    def __init__(self, bound: BoundJoin, tables: TableSet, clock: Callable[[], float] = time.time) -> None:
        self._warnings = InputWarnings(bound, SourceColumns(), clock=clock)
        self._tables = tables
        for text in (*other_names(bound), *holding_devices(bound)):
            _log.warning("%s", text)

    def tell(self, reports: Collection[CellReport], ledger: Sequence[Mapping[str, Any]]) -> None:
        """Log what is new after a batch.

        Parameters
        ----------
        reports : collection of CellReport
            Those of the batch's cells.
        ledger : sequence of mapping
            The batch's rows of the ledger.
        """
        rows: dict[str, Mapping[str, Any]] = {row["stream"]: row for row in ledger}
        rejected, read, largest = (
            {name: row[what] for name, row in rows.items()} for what in ("rejected", "read", "largest_ts")
        )
        reasons = {stream: (at, why) for report in reports for stream, (at, why) in report.rejects_for.items()}
        found = [*self._warnings.rejects(reasons, rejected, read, self._tables.rejects)]
        for number, name in enumerate(rows):
            late = LateSeen()
            for report in reports:
                late.join(LateSeen.from_facts(report.late_by.get(name, ())).buckets)
            # Of what is late by the watermark alone, the log of silent streams tells; no delay would have kept it.
            if late.rows > sum(report.overtaken[number] for report in reports):
                found += self._warnings.late(name, late, read[name], largest[name], self._tables.late)
        seen = {name: [report.times[name] for report in reports if name in report.times] for name in rows}
        times = {name: TimesSeen.together(map(TimesSeen.from_facts, parts)) for name, parts in seen.items()}
        known = {name: one for name, one in times.items() if one is not None}
        found += self._warnings.times(known, largest)
        for text in found:
            _log.warning("%s", text)


def first_inputs(bound: BoundJoin) -> tuple[list[str], dict[str, list[str]]]:
    """Return what the first records of the inputs show: warnings, and by stream the first tuples as texts.

    An input that cannot be read, or has no records yet, shows nothing.
    """
    tuples: dict[str, list[str]] = {}
    warnings = InputWarnings(bound, SourceColumns(), "its first {} records", time.time)
    found: list[str] = []
    seen: dict[str, TimesSeen] = {}
    for number, (stream, schema) in enumerate(zip(bound.join.streams, bound.read_schemas, strict=False)):
        if stream.source is None or isinstance(stream.source, Generator):
            continue
        try:
            chunks = first_records(stream, schema, _FIRST_RECORDS)
        except (StreamJoinError, OSError, pa.ArrowException):  # the join's own reader reports it
            continue
        read = sum(chunk.count for chunk in chunks)
        tuples[stream.name] = _first_tuples(bound, number, schema, chunks)
        rejects = [reject for chunk in chunks for reject in chunk.rejects]
        reasons = {stream.name: (rejects[0].column, rejects[0].reason)} if rejects else {}
        found += warnings.rejects(reasons, {stream.name: len(rejects)}, {stream.name: read})
        late, largest = _late(chunks, stream.delay_us)
        found += warnings.late(stream.name, late, read, largest)
        times = TimesSeen.together(TimesSeen.of(*_times(chunk)) for chunk in chunks)
        if times is not None:  # of what was not read it is not known how far it reaches
            seen[stream.name] = replace(times, most_us=INT64_MAX) if read >= _FIRST_RECORDS else times
    return [*other_names(bound), *holding_devices(bound), *found, *warnings.times(seen)], tuples


def _first_tuples(bound: BoundJoin, number: int, schema: pa.Schema, chunks: Sequence[Chunk]) -> list[str]:
    """Return the first tuples of a stream that its filters let through, as texts."""
    for chunk in chunks:
        mask = bound.let_through(number, chunk.tuples)
        kept = chunk.tuples if mask is None else chunk.tuples.filter(pa.array(mask))
        if kept.num_rows:
            names = [name for name in schema.names if name in kept.schema.names]
            return tuple_texts(pa.Table.from_batches([kept.select([TS, *names])]))
    return []


def _times(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    return chunk.tuples.column(TS).to_numpy(), chunk.tuples.column(SEQ).to_numpy()


def _late(chunks: Sequence[Chunk], delay_us: int) -> tuple[LateSeen, int | None]:
    """Return which records are late, in the order of their own stream or partition, and the largest event time."""
    seen, largest = LateSeen(), NO_TIME
    for chunk in chunks:
        times, _ = _times(chunk)
        if not len(times):
            continue
        running = running_maximum(times, None, largest)
        before = np.concatenate([[largest], running[:-1]]) if chunk.before is None else chunk.before
        late = before > times + delay_us
        seen.add((before - times)[late])
        largest = int(running[-1])
    return seen, None if largest == NO_TIME else largest
