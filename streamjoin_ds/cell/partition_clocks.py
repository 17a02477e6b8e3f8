"""The clocks of a DataFrame's partitions: a cell judges each row in its partition's order (ARCHITECTURE.md, "Late").

Every cell hears of every row of a batch, by the steps that tasks tell (`exchange/row_order.py`), so all cells have the
same clocks. They are in the cell's state, and with them what decides when a partition is idle: times of batches, which
stand in Spark's offset log. So a batch that is done again decides as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.cell.cell_state import corrupt_cell_state
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.errors import MALFORMED
from streamjoin_ds.exchange.row_order import partition_bits, running_maximum, times_before
from streamjoin_ds.plan import Plan
from streamjoin_ds.source.partitioned_position import PartitionClock
from streamjoin_ds.spec.columns import SEQ, TS, Int64, Mask
from streamjoin_ds.spec.event_time import NO_TIME

__all__ = ["PartitionClocks", "clocks_in_order"]


_NOT_SILENT = -1


class _Partitions(Struct, frozen=True):
    """The partitions that are known, by ascending numbers.

    Attributes
    ----------
    numbers : ndarray, shape (n,), int64
    largest_us : ndarray, shape (n,), int64
        The largest event time so far; `NO_TIME` where there is none.
    silent_ms : ndarray, shape (n,), int64
        The time of the first batch without rows since the last one with rows; `_NOT_SILENT` where the last has rows.
    is_idle : ndarray, shape (n,), bool
    """

    numbers: Int64
    largest_us: Int64
    silent_ms: Int64
    is_idle: Mask

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> _Partitions:
        """Return the partitions that `to_facts` gave, none of no facts; raise one of `MALFORMED` for others."""
        told = [facts.get(name, []) for name in ("numbers", "largest_us", "silent_ms", "idle")]
        is_whole = all(type(value) is int for values in told for value in values) and len({*map(len, told)}) == 1
        if not is_whole or told[0] != sorted({*told[0]}):
            raise ValueError
        numbers, largest_us, silent_ms, idle = (np.array(values, np.int64) for values in told)
        return cls(numbers, largest_us, silent_ms, idle.astype(np.bool_))

    def to_facts(self) -> dict[str, Any]:
        return {
            "numbers": self.numbers.tolist(),
            "largest_us": self.largest_us.tolist(),
            "silent_ms": self.silent_ms.tolist(),
            "idle": self.is_idle.astype(np.int64).tolist(),
        }

    def largest_of(self, numbers: Int64) -> Int64:
        """Return the largest time of each of these partitions; `NO_TIME` where one is not known."""
        if not len(self.numbers):
            return np.full(len(numbers), NO_TIME)
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[places] == numbers, self.largest_us[places], NO_TIME)

    def advanced(self, heard: Int64, largest_us: Int64, now_ms: int, timeout_us: int | None) -> _Partitions:
        """Return them after a batch of this time with rows of some partitions, whose largest times are given."""
        numbers = np.union1d(self.numbers, heard)
        old, new = np.searchsorted(numbers, self.numbers), np.searchsorted(numbers, heard)
        largest = np.full(len(numbers), NO_TIME)
        largest[old] = self.largest_us
        largest[new] = np.maximum(largest[new], largest_us)
        silent = np.full(len(numbers), _NOT_SILENT, np.int64)
        silent[old] = np.where(self.silent_ms == _NOT_SILENT, now_ms, self.silent_ms)
        silent[new] = _NOT_SILENT
        idle = np.zeros(len(numbers), np.bool_)
        if timeout_us is not None:
            idle[old] = self.is_idle
            idle |= (now_ms - silent) * 1000 >= timeout_us
            idle[new] = False
        return _Partitions(numbers, largest, silent, idle)

    def without(self, mask: Mask) -> _Partitions:
        """Return them without those of a mask."""
        kept = ~mask
        return _Partitions(self.numbers[kept], self.largest_us[kept], self.silent_ms[kept], self.is_idle[kept])


def clocks_in_order(plan: Plan, kept: Sequence[Mapping[str, Any] | None] | None) -> dict[int, PartitionClocks]:
    """Return the clocks of each stream whose rows are judged in their order, as `kept` in the cell's state."""
    found = {}
    for number, stream in enumerate(plan.bound.join.streams):
        if columns := plan.judging_order(number):
            facts = None if kept is None else kept[number]
            found[number] = PartitionClocks(partition_bits(columns), stream.idle_timeout_us, facts)
    return found


class PartitionClocks:
    """The clocks of one stream's partitions over one batch: `hear`, then `late` and `before`, then `advance`.

    The rules are those of partitioned sources. A row is late by the largest time before it in its partition. The
    slowest partition that is not idle holds the stream's watermark. A partition is silent from the first batch without
    its rows, and idle when that is `idle_timeout` ago; so one long pause makes none idle. The timeout of a start counts
    from its second batch on, so a batch that is done again under another one decides as it did.

    An idle partition that the watermark has overtaken is forgotten: a new one would be judged in the same way. So the
    state is as large as the number of partitions that are there.

    Parameters
    ----------
    bits : int
        By how many bits a row's number is shifted to give its partition's.
    timeout_us : int or None
        `Stream.idle_timeout` of this start.
    facts : mapping, optional
        What `to_facts` gave at the end of the batch before.

    Raises
    ------
    StateCorruptError
        `to_facts` did not give these facts.
    """

    def __init__(self, bits: int, timeout_us: int | None, facts: Mapping[str, Any] | None = None) -> None:
        facts = facts or {}
        self._bits, self._next_timeout_us = bits, timeout_us
        self._timeout_us: int | None = facts.get("timeout_us")
        # The stream's own silence: that of its partitions that are not known, since it has none or they are forgotten.
        self._silent_ms: int = facts.get("stream_silent_ms", _NOT_SILENT)
        self.is_idle: bool = facts.get("stream_idle", False)
        try:
            self._partitions = _Partitions.from_facts(facts)
        except MALFORMED:
            raise corrupt_cell_state() from None
        timeout = 0 if self._timeout_us is None else self._timeout_us
        if [type(timeout), type(self._silent_ms), type(self.is_idle)] != [int, int, bool]:
            raise corrupt_cell_state()
        self._told: list[pa.Table] = []
        self._heard = self._seqs = self._running = np.empty(0, np.int64)

    def hear(self, steps: pa.Table | None) -> None:
        """Take a task's steps. All of the batch are told before a row is judged."""
        if steps is not None:
            self._told.append(steps)

    def _sort(self) -> None:
        if self._told:
            steps, self._told = pa.concat_tables(self._told), []
            order = np.argsort(steps["seq"].to_numpy(), kind="stable")
            self._seqs = steps["seq"].to_numpy()[order]
            self._running = running_maximum(self._seqs >> self._bits, steps["largest_us"].to_numpy()[order])

    def before(self, tuples: pa.Table) -> Int64:
        """Return for each tuple the largest time before it in its partition; `NO_TIME` where there is none.

        The largest times of a task's own rows are left out inside a run of consecutive numbers: the task knows them.
        """
        self._sort()
        asked = tuples[SEQ].to_numpy()
        within = times_before(self._seqs, self._running, self._bits, asked)
        return np.maximum(within, self._partitions.largest_of(asked >> self._bits))

    def late(self, tuples: pa.Table, delay_us: int) -> Mask:
        """Tell which tuples are older than the largest time before them in their partition minus the delay."""
        late: Mask = tuples[TS].to_numpy() < np.maximum(self.before(tuples), NO_TIME + delay_us) - delay_us
        return late

    def advance(self, clock: StreamClock, now_ms: int) -> None:
        """Go past the batch, and set `low` and `idle` of the stream's clock, which has gone past the batch too.

        Parameters
        ----------
        clock : StreamClock
        now_ms : int
            The batch's time, in milliseconds since 1970.
        """
        self._sort()
        partitions, timeout_us = self._seqs >> self._bits, self._timeout_us
        lasts = np.flatnonzero(np.append(partitions[1:] != partitions[:-1], True)[: len(partitions)])
        self._heard = partitions[lasts]
        had_idle = self.is_idle or bool(self._partitions.is_idle.any())
        self._partitions = self._partitions.advanced(self._heard, self._running[lasts], now_ms, timeout_us)
        if len(self._heard):
            self._silent_ms = _NOT_SILENT
        elif self._silent_ms == _NOT_SILENT:
            self._silent_ms = now_ms
        active = self._partitions.largest_us[~self._partitions.is_idle]
        is_silent = timeout_us is not None and not len(self._heard) and not len(active)
        self.is_idle = is_silent and (had_idle or (now_ms - self._silent_ms) * 1000 >= (timeout_us or 0))
        clock.idle = self.is_idle
        lowest = int(active.min()) if len(active) else clock.largest
        clock.low = None if lowest == NO_TIME else lowest

    def forget(self, watermark_us: int | None, delay_us: int) -> None:
        """Forget the idle partitions whose own order finds no row late that the watermark does not."""
        if watermark_us is not None:
            known = self._partitions
            self._partitions = known.without(known.is_idle & (known.largest_us <= watermark_us + delay_us))

    def told(self) -> list[PartitionClock]:
        """Return the partition that holds the stream's clock and the one that is furthest; none where all are idle.

        Of a partition's rows in the batch they tell whether there are any.
        """
        known = self._partitions
        active = np.flatnonzero(~known.is_idle)
        if not len(active):
            return []
        has_rows = np.isin(known.numbers, self._heard)
        slowest = int(active[np.lexsort((active, has_rows[active], known.largest_us[active]))[0]])
        return [
            PartitionClock(
                str(known.numbers[place]),
                None if known.largest_us[place] == NO_TIME else int(known.largest_us[place]),
                int(has_rows[place]),
                bool(known.is_idle[place]),
            )
            for place in dict.fromkeys((slowest, int(np.argmax(known.largest_us))))
        ]

    def to_facts(self) -> dict[str, Any]:
        """Return the clocks as plain JSON values."""
        own = {"stream_silent_ms": self._silent_ms, "stream_idle": self.is_idle, "timeout_us": self._next_timeout_us}
        return {**self._partitions.to_facts(), **own}
