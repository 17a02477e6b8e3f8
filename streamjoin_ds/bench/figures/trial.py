"""A trial: all that one measured point depends on; and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamjoin_ds.bench.figures.workload import FigureWorkload

__all__ = ["Trial", "TrialOutcome"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One point's engine, input and length.

    Attributes
    ----------
    kind : str
        One of `trials.TRIALS`.
    workload : FigureWorkload
    push_rows : int
        Tuples of the faster stream in a push; or probes, where a kernel is measured alone.
    threads : int
        Also the number of cores that its process is pinned to meanwhile.
    kernel, index : str
        As `WindowJoin` takes them.
    merge_runs : int
        Merge ratio.
    in_grid : bool
        Whether windows are bucket grids, which are not merged, where they can be.
    is_steady : bool
        Whether windows are filled in pushes of `push_rows`, so that their runs are those of such pushes from the start.
    cells : int
        Engines that stream s is dealt to, tuple by tuple; 1: one engine for all.
    size : int
        What the kind needs besides: bytes of a basic window, or length of a chain.
    runs : int
        Measured.
    run_s : float
        Time that a run lasts at least.
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
    runs: int = 5
    run_s: float = 0.2
    is_fresh: bool = False

    def to_facts(self) -> dict[str, Any]:
        """The trial as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Trial:
        """The trial that `to_facts` was called on."""
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in facts["workload"].items()
        }
        return cls(**{**facts, "workload": FigureWorkload(**given)})


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What a trial gave.

    Attributes
    ----------
    numbers : mapping of str to list of float
        By name, run by run.
    curves : mapping of str to list of (x, y)
        Of trials that are a whole line of a picture; y is a median over the runs.
    found, expected : int
        Matches that the engine found in the part that was counted independently, and that count.
    checked_us : list of (int, int)
        That part: pushes, by event time; empty where no stream was pushed.
    """

    numbers: dict[str, list[float]]
    curves: dict[str, list[tuple[float, float]]]
    found: int
    expected: int
    checked_us: list[tuple[int, int]]
