"""Rows of a push made into tuples, without those that are late, rejected, filtered or duplicates."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import INT64_MIN
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.engine.intake.ledger import EngineCounters, IntakeResult
from streamjoin_ds.engine.intake.received_rows import ReceivedRows, Rows
from streamjoin_ds.engine.intake.rows import RowIntake
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.duplicates import SeenKeys, unique_key
from streamjoin_ds.spec.event_time import AheadLimit, preceding, running_maximum
from streamjoin_ds.spec.input_warnings import InputWarnings, LateSeen

__all__ = ["PushIntake"]


_log = logging.getLogger(__name__)


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
        self._warnings = InputWarnings(bound, records="the {} rows so far")
        self._late = [LateSeen() for _ in self._names]
        self._has_stamps = any(map(bound.stamps, range(len(self._names))))

    def taken(self, rows: Mapping[str, Rows], before: EngineCounters) -> IntakeResult:
        """Return the tuples of a push, without the rows that are left out or set aside, and the ledger's new numbers.

        `before` is the ledger without the push, and is not changed.
        """
        floor = before.watermark
        clocks = [StreamClock(c.delay_us, c.largest, floor, idle=c.idle) for c in before.clocks]
        taken = IntakeResult(list(before.read), clocks, seen=dict(before.seen))
        arrivals = {n: self._arrived(n, rows[name], before) for n, name in enumerate(self._names) if name in rows}
        stamps = self._stamps(arrivals, before)
        for stream, arrival in arrivals.items():
            name = self._names[stream]
            intake, without_time = self._intakes[stream], arrival.rejected
            tuples = intake.tuples(arrival, taken.read[stream], stamps.get(stream, {}))
            taken.read[stream] += arrival.count
            taken.clocks[stream].idle &= not arrival.count
            is_repeat = self._repeats(taken, stream, tuples)
            largest_us = taken.clocks[stream].largest
            mask = taken.clocks[stream].split(arrival.known_us)
            tuples, mask, is_repeat = intake.filtered(tuples, mask, is_repeat)
            left_out = arrival.count - tuples.num_rows
            if is_repeat is not None and (count := int(np.count_nonzero(is_repeat))):
                taken.duplicate_rows[stream] = count
                tuples, mask = tuples.filter(pa.array(~is_repeat)), mask[~is_repeat]
            if np.count_nonzero(mask):
                taken.late[name] = pa.Table.from_batches([tuples.filter(pa.array(mask))])
                self._warn(stream, taken, arrival, largest_us)
                tuples = tuples.filter(pa.array(~mask))
            if without_time is not None:
                taken.rejected[name] = without_time
                left_out -= without_time.num_rows
            taken.filtered_rows[stream] = left_out
            taken.tuples[stream] = tuples
        return taken

    def _warn(self, stream: int, taken: IntakeResult, arrival: ReceivedRows, largest_us: int | None) -> None:
        """Log that rows are late, where that is new: they are set aside, and nothing else says so."""
        name, clock = self._names[stream], taken.clocks[stream]
        running = running_maximum(arrival.times_us, arrival.is_timed, INT64_MIN if largest_us is None else largest_us)
        places = taken.late[name][SEQ].to_numpy() - (taken.read[stream] - arrival.count)
        late_by_us = running[places] - arrival.times_us[places]
        # What is late by the watermark alone, after its stream was idle, no delay would have kept.
        self._late[stream].add(late_by_us[late_by_us > clock.delay_us])
        for text in self._warnings.late(name, self._late[stream], taken.read[stream], clock.largest, "JoinEngine.late"):
            _log.warning("%s", text)

    def _repeats(self, taken: IntakeResult, stream: int, tuples: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
        """Return which tuples repeat one before them, and keep the keys in `taken`; None: the stream has no key."""
        key = self._keys[stream]
        if key is None:
            return None
        seen = taken.seen.get(stream) or SeenKeys(key)
        is_repeat, taken.seen[stream] = seen.judged(tuples)
        return is_repeat

    def _arrived(self, stream: int, rows: Rows, before: EngineCounters) -> ReceivedRows:
        """Read the event times of rows, and reject the rows that are too far ahead."""
        arrival, max_us = self._intakes[stream].read(rows), self._max_ahead_us[stream]
        if max_us is None:
            return arrival
        clock = before.clocks[stream]
        return self._intakes[stream].without_future(arrival, clock.largest, AheadLimit(max_us, not clock.idle))

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
