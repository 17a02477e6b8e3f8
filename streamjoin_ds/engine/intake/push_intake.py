"""The intake of a push: its rows become tuples, without those that are late, rejected, filtered or duplicates.

::

    EngineCounters ──► PushIntake.taken ──► IntakeResult ──► EngineCounters
    before the push    changes nothing      what it brings   once the push is in

`EngineCounters` is the ledger that `JoinEngine` keeps beside its windows: numbers, clocks, and what was set aside. It
is a new object with each push, so a push is in with all of its numbers or not at all. Ledger, clocks of devices and
seen keys (`Stream.unique`) are parts of the engine's saved state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.intake.lateness import StreamClock, clock_facts, clocks_of, low_watermark
from streamjoin_ds.engine.intake.received_rows import ReceivedRows, Rows
from streamjoin_ds.engine.intake.rows import RowIntake
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.errors import MALFORMED, OffsetError, StateCorruptError, corrupt_state_error, whole_numbers
from streamjoin_ds.source.device_clocks import Device, DeviceClocks, DeviceRecords
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, SEQ, TS
from streamjoin_ds.spec.duplicates import SeenKeys, unique_key
from streamjoin_ds.spec.event_time import AheadLimit, preceding, running_maximum
from streamjoin_ds.spec.input_warnings import InputWarnings, LateSeen, TimesSeen
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["EngineCounters", "IntakeResult", "PushIntake", "seen_from", "seen_state"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class EngineCounters:
    """What a `JoinEngine` counts. It is never changed: a push that is in replaces all of it at once.

    Attributes
    ----------
    clocks : sequence of StreamClock
        One for each stream.
    read, late_rows, rejected_rows, filtered_rows, duplicate_rows : sequence of int
        Rows of each stream since the join began.
    late, rejected : dict of stream name to pyarrow.Table
        What the last push set aside.
    seen : dict of stream number to SeenKeys
        The keys of the streams that look for duplicates (`Stream.unique`).
    devices : dict of stream number to DeviceClocks
        The clocks of the devices of streams that tell them apart (``partition_by``).
    watermark : int or None
        The watermark in microseconds, as `JoinEngine.watermark`.
    """

    clocks: Sequence[StreamClock]
    read: Sequence[int]
    late_rows: Sequence[int]
    rejected_rows: Sequence[int]
    filtered_rows: Sequence[int]
    late: dict[str, pa.Table] = field(default_factory=dict)
    rejected: dict[str, pa.Table] = field(default_factory=dict)
    duplicate_rows: Sequence[int] = ()
    seen: dict[int, SeenKeys] = field(default_factory=dict)
    devices: dict[int, DeviceClocks] = field(default_factory=dict)
    watermark: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.watermark = low_watermark(self.clocks, self.clocks[0].floor)
        self.duplicate_rows = self.duplicate_rows or [0] * len(self.clocks)

    @classmethod
    def empty(cls, delays_us: Sequence[int]) -> EngineCounters:
        """Return the ledger of streams that have had no tuple."""
        nothing = [0] * len(delays_us)
        return cls([StreamClock(delay_us) for delay_us in delays_us], nothing, nothing, nothing, nothing)

    def without(self, stream: int) -> EngineCounters:
        """Return the ledger with this stream idle: the watermark advances without it."""
        floor = self.watermark
        clocks = [clock.above(floor) for clock in self.clocks]
        clocks[stream].idle = clocks[stream].unmeasured = True
        return replace(self, clocks=clocks)

    def without_device(self, stream: int, device: Device) -> EngineCounters:
        """Return the ledger with a device of this stream idle: the stream's clock goes on without it."""
        found = self.devices.get(stream, DeviceClocks()).settled([device])
        clocks = [clock.above(self.watermark) for clock in self.clocks]
        clocks[stream].low = found.time_us
        return replace(self, clocks=clocks, devices={**self.devices, stream: found})

    def ended(self, watermark_us: int) -> EngineCounters:
        """Return the ledger with a later watermark, whatever the streams' times are: tuples before it are late."""
        clocks = [clock.above(watermark_us) for clock in self.clocks]
        return replace(self, clocks=clocks, late={}, rejected={})

    def counters(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the numbers of the ledger by their names, each for every stream."""
        counted = {
            "read_rows": self.read,
            "late_rows": self.late_rows,
            "rejected_rows": self.rejected_rows,
            "filtered_rows": self.filtered_rows,
            "duplicate_rows": self.duplicate_rows,
        }
        return {what: dict(zip(names, rows, strict=True)) for what, rows in counted.items()}

    def to_facts(self) -> dict[str, Any]:
        """Return numbers and clocks as plain JSON values, without the rows that were set aside."""
        return {
            "read": list(self.read),
            "late": list(self.late_rows),
            "rejected": list(self.rejected_rows),
            "filtered": list(self.filtered_rows),
            **({"duplicates": list(self.duplicate_rows)} if any(self.duplicate_rows) else {}),
            **({"devices": {str(n): one.to_facts() for n, one in self.devices.items()}} if self.devices else {}),
            **clock_facts(self.clocks),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], delays_us: Sequence[int]) -> EngineCounters:
        """Return the ledger that `to_facts` described; raise StateCorruptError where it cannot have written this."""
        count = len(delays_us)
        if "largest_us" not in facts:
            msg = "this is the state of a WindowJoin, not of a JoinEngine"
            raise StateCorruptError(msg, name="state", hint="restore it with WindowJoin.restored")
        names = ("read", "late", "rejected", "filtered")
        read, late, rejected, left_out = (whole_numbers(facts, name, count) for name in names)
        repeated = whole_numbers(facts, "duplicates", count) if "duplicates" in facts else ()
        clocks, devices = clocks_of(facts, delays_us), _devices_from(facts, count)
        for stream, found in devices.items():
            clocks[stream].by_partition, clocks[stream].low = True, found.time_us
        return cls(clocks, read, late, rejected, left_out, duplicate_rows=repeated, devices=devices)


@dataclass(slots=True)
class IntakeResult:
    """What a push brings, before any of it is in.

    Attributes
    ----------
    read, clocks, seen, devices
        The ledger's, as they will be after the push.
    tuples : dict of stream number to pyarrow.RecordBatch
    late, rejected : dict of stream name to pyarrow.Table
    filtered_rows, duplicate_rows : dict of stream number to int
        Rows of this push alone, as are `tuples`, `late` and `rejected`.
    """

    read: list[int]
    clocks: list[StreamClock]
    tuples: dict[int, pa.RecordBatch] = field(default_factory=dict)
    late: dict[str, pa.Table] = field(default_factory=dict)
    rejected: dict[str, pa.Table] = field(default_factory=dict)
    filtered_rows: dict[int, int] = field(default_factory=dict)
    duplicate_rows: dict[int, int] = field(default_factory=dict)
    seen: dict[int, SeenKeys] = field(default_factory=dict)
    devices: dict[int, DeviceClocks] = field(default_factory=dict)

    def ledger(self, before: EngineCounters, names: Sequence[str]) -> EngineCounters:
        """Return the ledger `before` with this push in it."""
        late, rejected, filtered = before.late_rows, before.rejected_rows, before.filtered_rows
        repeated = before.duplicate_rows
        if self.late:
            late = [rows + _rows(self.late.get(name)) for rows, name in zip(late, names, strict=True)]
        if self.rejected:
            rejected = [rows + _rows(self.rejected.get(name)) for rows, name in zip(rejected, names, strict=True)]
        if sum(self.filtered_rows.values()):
            filtered = [rows + self.filtered_rows.get(stream, 0) for stream, rows in enumerate(filtered)]
        if self.duplicate_rows:
            repeated = [rows + self.duplicate_rows.get(stream, 0) for stream, rows in enumerate(repeated)]
        aside = self.late, self.rejected
        return EngineCounters(
            self.clocks, self.read, late, rejected, filtered, *aside, repeated, self.seen, self.devices
        )


def _devices_from(facts: Mapping[str, Any], count: int) -> dict[int, DeviceClocks]:
    """Return the clocks of devices that a state tells; raise StateCorruptError where it cannot have been written so."""
    try:
        told = {int(name): DeviceClocks.from_facts(one, name) for name, one in facts.get("devices", {}).items()}
        assert told.keys() <= {*range(count)}
    except (AssertionError, OffsetError, *MALFORMED) as error:
        raise corrupt_state_error() from error
    return told


def _rows(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


def seen_state(seen: Mapping[int, SeenKeys]) -> tuple[dict[str, Any], list[pa.Buffer]]:
    """Return what a state says of the keys, as plain JSON values, and the buffers with them; nothing of no keys.

    Parameters
    ----------
    seen : mapping of stream number to SeenKeys
    """
    if not seen:
        return {}, []
    facts, parts = [], []
    for stream, keys in sorted(seen.items()):
        saved = keys.saved()
        facts.append({"stream": stream, "largest_us": keys.largest_us, "is_empty": saved is None})
        if saved is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, saved.schema) as writer:
                writer.write_batch(saved)
            parts.append(sink.getvalue())
    return {"seen": facts}, parts


def seen_from(facts: Mapping[str, Any], parts: Sequence[pa.Buffer], bound: BoundJoin) -> dict[int, SeenKeys]:
    """Return the keys that `seen_state` wrote, by stream.

    Raises
    ------
    StateCorruptError
        These facts and buffers were not written by `seen_state`, for this join.
    """
    found: dict[int, SeenKeys] = {}
    left = iter(parts)
    try:
        for entry in facts.get("seen", ()):
            stream = entry["stream"]
            assert type(stream) is int
            assert stream in range(len(bound.names))
            assert stream not in found
            key = unique_key(bound, stream)
            assert key is not None
            saved = None
            if not entry["is_empty"]:
                (saved,) = pa.ipc.open_stream(next(left)).read_all().combine_chunks().to_batches()
                saved.validate(full=True)
                inside = bound.read_schema(stream)
                assert saved.schema.types == [pa.int64(), *(inside.field(name).type for name in key.columns)]
                assert not any(column.null_count for column in saved.columns[: 1 + len(key.names)])
            assert entry["largest_us"] is None or type(entry["largest_us"]) is int
            found[stream] = SeenKeys.restored(key, saved, entry["largest_us"])
        assert next(left, None) is None
        for stream, largest_us in enumerate(facts["largest_us"]):
            assert largest_us is None or stream in found or unique_key(bound, stream) is None
    except (pa.ArrowException, AssertionError, OSError, StopIteration, *MALFORMED) as error:
        raise corrupt_state_error() from error
    return found


class _GivenColumns:
    """The columns of rows that are handed over; see `InputColumns`."""

    def __init__(self) -> None:
        self._has_number_times: dict[str, bool] = {}

    def see(self, stream: Stream, rows: pa.Table | list[Mapping[str, Any]]) -> None:
        """Look at the first rows of a stream."""
        if isinstance(rows, pa.Table):
            found = rows.schema.field(stream.time).type if stream.time in rows.column_names else pa.null()
            are_numbers = bool(pa.types.is_integer(found) or pa.types.is_floating(found))
        else:
            are_numbers = isinstance(rows[0].get(stream.time), (int, float))
        self._has_number_times[stream.name] = are_numbers

    def has_number_times(self, stream: Stream) -> bool:
        """Whether the event times are numbers."""
        return self._has_number_times[stream.name]

    def times_of_day(self, stream: Stream) -> Sequence[str]:
        """Return nothing: a frame with the day in one column and the time in another is seldom."""
        del stream
        return ()


class PushIntake:
    """The intake of all streams: it makes the rows of a push into tuples, and changes nothing itself.

    Parameters
    ----------
    bound : BoundJoin
    module : KernelModule
    """

    def __init__(self, bound: BoundJoin, module: KernelModule) -> None:
        self._bound, self._names = bound, bound.names
        self._max_ahead_us = [stream.max_ahead_us for stream in bound.join.streams]
        self._intakes = [RowIntake(bound, stream, module) for stream in range(len(self._names))]
        self._keys = [unique_key(bound, stream) for stream in range(len(self._names))]
        self._devices = [stream.device_columns for stream in bound.join.streams]
        self._given = _GivenColumns()
        self._warnings = InputWarnings(bound, self._given, "the {} rows so far", any_origin=True)
        self._unseen = set(range(len(self._names)))  # streams of which no row came
        self._late = [LateSeen() for _ in self._names]
        self._has_stamps = any(map(bound.stamps, range(len(self._names))))

    def taken(self, rows: Mapping[str, Rows], before: EngineCounters) -> IntakeResult:
        """Return the tuples of a push, without the rows that are left out or set aside, and the ledger's new numbers.

        `before` is the ledger without the push, and is not changed.
        """
        floor = before.watermark
        clocks = [clock.above(floor) for clock in before.clocks]
        taken = IntakeResult(list(before.read), clocks, seen=dict(before.seen), devices=dict(before.devices))
        arrivals = {n: self._arrived(n, rows[name], before) for n, name in enumerate(self._names) if name in rows}
        stamps = self._stamps(arrivals, before)
        for stream, arrival in arrivals.items():
            name = self._names[stream]
            intake, without_time = self._intakes[stream], arrival.rejected
            tuples = intake.tuples(arrival, taken.read[stream], stamps.get(stream, {}))
            taken.read[stream] += arrival.count
            taken.clocks[stream].idle &= not arrival.count
            taken.clocks[stream].rhythm = arrival.rhythm
            before_us, low_us = self._judges(taken, stream, tuples)
            unfiltered = tuples
            is_repeat = self._repeats(taken, stream, tuples, before_us, low_us)
            largest_us = taken.clocks[stream].largest
            mask = taken.clocks[stream].split(arrival.known_us, before_us)
            taken.clocks[stream].unmeasured &= taken.clocks[stream].largest == largest_us
            tuples, mask, is_repeat = intake.filtered(tuples, mask, is_repeat)
            left_out = arrival.count - tuples.num_rows
            if is_repeat is not None and (count := int(np.count_nonzero(is_repeat))):
                taken.duplicate_rows[stream] = count
                tuples, mask = tuples.filter(pa.array(~is_repeat)), mask[~is_repeat]
            if np.count_nonzero(mask):
                taken.late[name] = pa.Table.from_batches([tuples.filter(pa.array(mask))])
                if before_us is None:
                    before_us = self._running(arrival, largest_us)
                late_places = np.searchsorted(unfiltered.column(SEQ), taken.late[name][SEQ])
                self._warn(stream, taken, before_us[late_places])
                tuples = tuples.filter(pa.array(~mask))
            if without_time is not None:
                taken.rejected[name] = without_time
                left_out -= without_time.num_rows
            taken.filtered_rows[stream] = left_out
            taken.tuples[stream] = tuples
        if not self._unseen.isdisjoint(arrivals):
            self._warn_of_times(arrivals)
        return taken

    def _warn_of_times(self, arrivals: Mapping[int, ReceivedRows]) -> None:
        """Log what is odd about the event times of streams that are seen first."""
        seen: dict[str, TimesSeen] = {}
        are_whole = len(arrivals) == len(self._names)  # else the others may come near with their next pushes
        for stream in self._unseen.intersection(arrivals):
            known_us = arrivals[stream].known_us
            times = TimesSeen.of(known_us, np.arange(len(known_us)))
            if times is not None:
                self._unseen.discard(stream)
                self._given.see(self._bound.join.streams[stream], arrivals[stream].rows)
                seen[self._names[stream]] = times if are_whole else replace(times, most_us=INT64_MAX)
        for text in self._warnings.times(seen):
            _log.warning("%s", text)

    def _judges(
        self, taken: IntakeResult, stream: int, tuples: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.int64] | None, int | None]:
        """Return the clock that judges each tuple, and the stream's before them, and keep the clocks in `taken`.

        Both are None where devices have no clocks of their own.
        """
        columns = self._devices[stream]
        if not columns:
            return None, None
        clocks, clock = taken.devices.get(stream, DeviceClocks()), taken.clocks[stream]
        records = DeviceRecords.of(pa.Table.from_batches([tuples]), columns)
        before_us, after = clocks.after(records, tuples.column(TS).to_numpy())
        after.check_count(self._bound.join.streams[stream], "call set_idle for devices that are silent")
        taken.devices[stream] = after = after.settled(())
        clock.by_partition, clock.low = True, after.time_us
        return before_us, clocks.low_us

    @staticmethod
    def _running(arrival: ReceivedRows, largest_us: int | None) -> npt.NDArray[np.int64]:
        """Return the largest event time up to each tuple of a push."""
        first = INT64_MIN if largest_us is None else largest_us
        running = running_maximum(arrival.times_us, arrival.is_timed, first)
        return running if arrival.is_kept is None else running[arrival.is_kept]

    def _warn(self, stream: int, taken: IntakeResult, judges_us: npt.NDArray[np.int64]) -> None:
        """Log that rows are late, where that is new: they are set aside, and nothing else says so."""
        name, clock = self._names[stream], taken.clocks[stream]
        late_by_us = judges_us - taken.late[name][TS].to_numpy()
        # What is late by the watermark alone, after its stream was idle, no delay would have kept.
        self._late[stream].add(late_by_us[late_by_us > clock.delay_us])
        for text in self._warnings.late(name, self._late[stream], taken.read[stream], clock.largest, "JoinEngine.late"):
            _log.warning("%s", text)

    def _repeats(
        self,
        taken: IntakeResult,
        stream: int,
        tuples: pa.RecordBatch,
        before_us: npt.NDArray[np.int64] | None,
        low_us: int | None,
    ) -> npt.NDArray[np.bool_] | None:
        """Return which tuples repeat one before them, and keep the keys in `taken`; None: the stream has no key."""
        key = self._keys[stream]
        if key is None:
            return None
        seen = taken.seen.get(stream) or SeenKeys(key)
        is_repeat, taken.seen[stream] = seen.judged(tuples, before_us, low_us)
        return is_repeat

    def _arrived(self, stream: int, rows: Rows, before: EngineCounters) -> ReceivedRows:
        """Read the event times of rows, and reject the rows that are too far ahead."""
        arrival, max_us = self._intakes[stream].read(rows), self._max_ahead_us[stream]
        clock = before.clocks[stream]
        limit = None if max_us is None else AheadLimit(max_us, not clock.unmeasured)
        arrival = self._intakes[stream].in_order(arrival, clock.largest, limit, clock.rhythm)
        return arrival if limit is None else self._intakes[stream].without_future(arrival, clock.largest, limit)

    def _stamps(
        self, arrivals: Mapping[int, ReceivedRows], before: EngineCounters
    ) -> dict[int, dict[str, npt.NDArray[np.int64]]]:
        """Return for each new row how many rows of each other stream precede it; nothing where no window needs it."""
        if not self._has_stamps:
            return {}
        running = []
        for stream, clock in enumerate(before.clocks):
            largest = INT64_MIN if clock.largest is None else clock.largest
            if stream not in arrivals:
                running.append(np.empty(0, dtype=np.int64))
                continue
            arrival = arrivals[stream]
            known = arrival.times_us
            if arrival.is_timed is not None:
                known = np.where(arrival.is_timed, known, largest)
            running.append(running_maximum(known, None, largest))
        found = {}
        for stream in arrivals:
            others = [other for other in range(len(running)) if other != stream]
            names = zip(self._bound.stamps(stream), others, strict=True)
            found[stream] = {name: preceding(running, stream, other) + before.read[other] for name, other in names}
        return found
