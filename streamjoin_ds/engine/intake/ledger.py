"""What `JoinEngine` counts beside its windows: numbers, clocks, and what was set aside; a new object with each push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.intake.lateness import StreamClock, clock_facts, clocks_of, low_watermark
from streamjoin_ds.engine.storage import snapshot
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.spec.duplicates import SeenKeys

__all__ = ["EngineCounters", "IntakeResult"]


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
        clocks = [StreamClock(clock.delay_us, clock.largest, floor, idle=clock.idle) for clock in self.clocks]
        clocks[stream].idle = True
        return replace(self, clocks=clocks)

    def ended(self, watermark_us: int) -> EngineCounters:
        """Return the ledger with a later watermark, whatever the streams' times are: tuples before it are late."""
        clocks = [StreamClock(clock.delay_us, clock.largest, watermark_us, idle=clock.idle) for clock in self.clocks]
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
        read, late, rejected, left_out = (snapshot.numbers(facts, name, count) for name in names)
        repeated = snapshot.numbers(facts, "duplicates", count) if "duplicates" in facts else ()
        return cls(clocks_of(facts, delays_us), read, late, rejected, left_out, duplicate_rows=repeated)


@dataclass(slots=True)
class IntakeResult:
    """What a push brings, before any of it is in.

    Attributes
    ----------
    read, clocks, seen
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
        return EngineCounters(self.clocks, self.read, late, rejected, filtered, *aside, repeated, self.seen)


def _rows(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)
