"""What every side is asked, and what it answers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamjoin_ds.bench.paths.inputs import SlicedInput
from streamjoin_ds.bench.workloads import Workload, make_workload
from streamjoin_ds.errors import ArgumentError

__all__ = ["OURS", "SIDES", "Outcome", "Side", "Task", "check_peers", "first_trigger_s", "make_side"]

OURS = "streamjoin"
# Side to its module and class: a module is imported only in the process that runs its side.
_CLASSES = {
    OURS: ("streamjoin", "StreamJoinSide"),
    "spark": ("spark", "SparkSide"),
    "spark-tuned": ("spark", "TunedSparkSide"),
    "duckdb": ("duckdb", "DuckDBSide"),
}
SIDES = tuple(_CLASSES)


def check_peers(names: Iterable[str]) -> None:
    """Raise ArgumentError where one is no name of `SIDES` but ours."""
    for name in names:
        if name not in SIDES[1:]:
            msg = f"there is no peer '{name}'"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(SIDES[1:])}")


@dataclass(frozen=True, slots=True)
class Task:
    """One run.

    Attributes
    ----------
    workload : str
    data : str or None
        Folder of the recorded data.
    generated_rows : int or None
        Tuples a side of a generated workload, where not its fixed size.
    input_folder : str
        Of a `SlicedInput`.
    folder : str
        Empty, for what the run writes.
    slices : int
        Part of the input that a peer takes, from the first slice on; ours takes all of it.
    limit_s : int
        A peer stops at the end of the step in which this time runs out.
    """

    workload: str
    data: str | None
    generated_rows: int | None
    input_folder: str
    folder: str
    slices: int
    limit_s: int

    def load(self) -> tuple[Workload, SlicedInput]:
        """The workload and the peers' input that the task names."""
        data = None if self.data is None else Path(self.data)
        workload = make_workload(self.workload, data, self.generated_rows)
        assert workload is not None, "the parent saw its data"
        return workload, SlicedInput.load(self.input_folder)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did.

    Attributes
    ----------
    rows : int
        Taken in, both streams.
    matches : int
        Rows of the result, counted in the files that were left behind, after the time was taken.
    seconds : float
        From the start of the first trigger to the last commit.
    batches : int
    until_us : int or None
        Input before this event time was taken in; None: all that the workload has.
    note : str
        How the side did it, for the report's notes.
    """

    rows: int
    matches: int
    seconds: float
    batches: int
    until_us: int | None = None
    note: str = ""


class Side(Protocol):
    """A way of doing the join. Made in its own process; making it may take time, which is not counted."""

    def run(self, task: Task) -> Outcome:
        """Take in the task's tuples, leave their matches in files."""

    def close(self) -> None:
        """End what was started."""


def first_trigger_s(checkpoint: Path) -> float:
    """When a query's first trigger began, seconds since 1970: starting a query is not counted on either side.

    It is a process or two that Spark starts once a query, whatever comes after. Spark's offset log has the time.
    """
    facts = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[1])
    return float(facts["batchTimestampMs"]) / 1000


def make_side(name: str) -> Side:
    """Start a side in this process."""
    module, class_name = _CLASSES[name]
    side: Side = getattr(importlib.import_module(f"streamjoin_ds.bench.sides.{module}"), class_name)()
    return side
