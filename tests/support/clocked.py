"""A join whose sources decide by a clock that the test sets, compared with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.source.idleness import Idleness
from streamjoin_ds.spec import Join
from streamjoin_ds.testing.arrivals import ahead_rows, batch_watermarks, late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.microbatch import MicroBatches

__all__ = ["Clocked"]


class Clocked:
    """Runs the batches of a join, and notes for the oracle where each one ended and which streams were idle."""

    def __init__(self, join: Join, micro: MicroBatches) -> None:
        self.join, self.micro, self.now_s = join, micro, 0.0
        self.ends: list[dict[str, int]] = []
        self.idle: list[list[str]] = []
        self.restart()

    def restart(self) -> None:
        """Make a new source over the same offsets and states."""
        self.micro.reader = self.micro.source.limited_reader(self.micro.source.schema())
        self.micro.reader.planner._idleness = Idleness(self.join.streams, lambda: self.now_s, lambda: self.now_s + 1e9)

    def step(self) -> bool:
        """Run a batch, if there is one; return whether there was one."""
        if not self.micro.step():
            return False
        offset = self.micro.offset
        self.ends.append({name: offset["streams"][name]["seq"] for name in self.join.names})
        self.idle.append([n for n in self.join.names if offset.get("clocks", {}).get(n, {}).get("idle")])
        return True

    def check_results(self, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[int]]:
        """Assert that results, late tuples and punctuations are the oracle's; return the records too far ahead."""
        known: dict[str, Any] = {"ends": self.ends, "idle": self.idle}
        columns = [f"{name}_seq" for name in self.join.names] + ["window_id"] * (self.join.window.kind == "periodic")
        found = Counter(tuple(row[name] for name in columns) for row in self.micro.matches().to_pylist())
        right = oracle_join(self.join, records, **known)
        assert found == Counter(tuple(row[name] for name in columns) for row in right)
        late = Counter((row["stream"], row["seq"]) for row in self.micro.companion("late").to_pylist())
        assert late == Counter((n, k) for n in self.join.names for k in late_rows(self.join, n, records, **known))
        given = self.micro.companion("punctuations").sort_by("batch_id")["punctuation"].cast(pa.int64()).to_pylist()
        assert given == batch_watermarks(self.join, records, **known)
        return {n: list(ahead_rows(self.join, n, records[n], **known)) for n in self.join.names}
