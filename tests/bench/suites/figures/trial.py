"""A trial: all that one measured point depends on; and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.workload import FigureWorkload

__all__ = ["Trial", "TrialOutcome"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One point: its engine, its input, and how long it is measured.

    Attributes
    ----------
    kind : str
        One of `trials.TRIALS`.
    workload : FigureWorkload
        The tuples and the join, if `streams` are not given.
    push_rows : int
        Tuples of the faster stream in a push; or probes, if a kernel is measured alone.
    threads : int
        Threads of the engine; the process is pinned to as many cores meanwhile.
    kernel, index : str
        As `WindowJoin` takes them.
    merge_runs : int
        Merge ratio.
    in_grid : bool
        Whether windows are bucket grids where they can be; these are not merged.
    is_steady : bool
        Whether windows are filled in pushes of `push_rows`, so that from the start their runs are those of such pushes.
    cells : int
        Engines to which stream s is dealt, tuple by tuple; 1: one engine for all.
    size : int
        What the kind needs besides: bytes of a basic window or of a copy, length of a chain, millions of pairs of a
        stretch, tuples of a batch.
    streams : BandStreams or None
        The two streams of a trial of a layout of cells.
    layout : str
        The layout: ``"4x4"``; or ``"adaptive"`` for one that follows the rates, of `cells` cells.
    fill : float
        How full the windows are when the measurement begins: 1 is full.
    output : str
        What becomes of results: one of `result_output.OUTPUTS`.
    runs : int
        Measured runs.
    run_s : float
        Seconds that a run lasts at least.
    is_fresh : bool
        Whether it must have a process of its own.
    """

    kind: str = "join"
    workload: FigureWorkload = field(default_factory=FigureWorkload)
    push_rows: int = 8192
    threads: int = 1
    kernel: str = "auto"
    index: str = "auto"
    merge_runs: int = 4
    in_grid: bool = False
    is_steady: bool = False
    cells: int = 1
    size: int = 0
    streams: BandStreams | None = None
    layout: str = "1x1"
    fill: float = 1.0
    output: str = "plain"
    runs: int = 5
    run_s: float = 0.2
    is_fresh: bool = False

    def to_facts(self) -> dict[str, Any]:
        """Return the trial as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Trial:
        """Return the trial that `to_facts` described."""
        streams = facts.get("streams")
        given = {
            "workload": FigureWorkload(**_with_tuples(facts["workload"])),
            "streams": None if streams is None else BandStreams(**_with_tuples(streams)),
        }
        return cls(**{**facts, **given})


def _with_tuples(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What a trial gave.

    Attributes
    ----------
    numbers : mapping of str to list of float
        Measured numbers by name, one for each run.
    curves : mapping of str to list of (x, y)
        Curves by name, if the trial is a whole line of a picture. Speeds are medians over the runs.
    found, expected : int
        Matches that the engine found in the pushes that were counted independently, and that count.
    checked_us : list of (int, int)
        Those pushes: begin and end in event time, microseconds. Empty if no stream was pushed.
    """

    numbers: dict[str, list[float]]
    curves: dict[str, list[tuple[float, float]]]
    found: int
    expected: int
    checked_us: list[tuple[int, int]]
