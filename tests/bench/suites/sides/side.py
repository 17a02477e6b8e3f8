"""The task that every side is given, the outcome that it returns, and the table of the sides."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamjoin_ds.errors import ArgumentError
from tests.bench.suites.paths.inputs import SlicedInput
from tests.bench.suites.workloads import Workload, make_workload

__all__ = ["LOCAL", "OURS", "SIDES", "Outcome", "Side", "SideTask", "check_peers", "first_trigger_s", "make_side"]

OURS = "streamjoin"
LOCAL = "streamjoin-local"
"""Ours without Spark: measured beside ours as the peers are, and no peer."""
# For each side its module and class: a module is imported only in the process that runs its side.
_CLASSES = {
    OURS: ("streamjoin", "StreamJoinSide"),
    LOCAL: ("streamjoin", "LocalSide"),
    "spark": ("spark", "SparkSide"),
    "spark-tuned": ("spark", "TunedSparkSide"),
    "duckdb": ("duckdb", "DuckDBSide"),
    "duckdb-large": ("duckdb", "LargeDuckDBSide"),
}
SIDES = tuple(_CLASSES)


def check_peers(names: Iterable[str]) -> None:
    """Raise ArgumentError if a name is not one of `SIDES` without ours."""
    for name in names:
        if name not in SIDES[1:]:
            msg = f"there is no peer '{name}'"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(SIDES[1:])}")


@dataclass(frozen=True, slots=True)
class SideTask:
    """What one run is to do.

    Attributes
    ----------
    workload : str
        Name of the workload.
    data : str or None
        Folder of the recorded data.
    generated_rows : int or None
        Tuples of each stream in a generated workload; None: its fixed size.
    input_folder : str
        Folder of a `SlicedInput`.
    folder : str
        An empty folder for what the run writes.
    slices : int
        How many slices of the input a peer takes, from the first on; our side takes all of the input.
    limit_s : int
        Seconds; a peer stops at the end of the step in which they run out.
    """

    workload: str
    data: str | None
    generated_rows: int | None
    input_folder: str
    folder: str
    slices: int
    limit_s: int

    def load(self) -> tuple[Workload, SlicedInput]:
        """Return the workload and the peers' input that the task names."""
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
        Rows taken in, both streams together.
    matches : int
        Rows of the result, counted in the files that the run left, after the time was taken.
    seconds : float
        Time from the start of the first trigger to the last commit.
    batches : int
        Number of batches that took rows in.
    until_us : int or None
        The event time before which all input was taken in; None: all input of the workload.
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
    """A way of doing the join. It is made in its own process; the time to make it is not counted."""

    def run(self, task: SideTask) -> Outcome:
        """Take in the task's tuples, leave their matches in files, and return what was done."""

    def close(self) -> None:
        """End what the side has started."""


def first_trigger_s(checkpoint: Path) -> float:
    """Return when a query's first trigger began, in seconds since 1970, by Spark's offset log.

    The start of a query is not counted on either side: Spark then starts a process or two, once for each query.
    """
    facts = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[1])
    return float(facts["batchTimestampMs"]) / 1000


def make_side(name: str) -> Side:
    """Start a side in this process, and return it."""
    module, class_name = _CLASSES[name]
    side: Side = getattr(importlib.import_module(f"tests.bench.suites.sides.{module}"), class_name)()
    return side
