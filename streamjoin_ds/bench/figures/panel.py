"""A panel: one picture of a paper, as series of trials; and how large the trials are to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamjoin_ds.bench.figures.trial import Trial

__all__ = ["Extent", "Panel", "Series"]


@dataclass(frozen=True, slots=True)
class Extent:
    """How large trials are, and how many.

    Attributes
    ----------
    windows : tuple of int
        Tuples a stream, small to large.
    merge_ratios, chains, tasks, push_rows_each : tuple of int
        What is varied where not the window is.
    scan_window_rows : int
        Largest window that a nested loop is asked to join.
    matches : tuple of float
        Average matches of a tuple.
    basic_window_bytes : tuple of int
    basic_window_minutes : tuple of int
        Of windows at 500 tuples a second.
    drifts : tuple of float
    drift_window_rows : int
    push_rows : int
        Where the push is not varied.
    threads : tuple of int
        One up to the machine's cores.
    common : dict
        Of every trial: how many runs, how long, which seed.
    """

    windows: tuple[int, ...]
    merge_ratios: tuple[int, ...]
    chains: tuple[int, ...]
    tasks: tuple[int, ...]
    push_rows_each: tuple[int, ...]
    scan_window_rows: int
    matches: tuple[float, ...]
    basic_window_bytes: tuple[int, ...]
    basic_window_minutes: tuple[int, ...]
    drifts: tuple[float, ...]
    drift_window_rows: int
    push_rows: int
    threads: tuple[int, ...]
    runs: int
    run_s: float
    seed: int

    @classmethod
    def full(cls, cores: int, runs: int, seed: int) -> Extent:
        """The sizes of the figures: about ten minutes on two cores."""
        return cls(
            windows=tuple(1 << n for n in (12, 14, 16, 18, 20)),
            merge_ratios=(2, 4, 8, 16, 64),
            chains=(1, 2, 4, 8, 16, 32, 64),
            tasks=(1, 2, 4, 6, 8, 10),
            push_rows_each=(4, 32, 256, 1024, 4096, 16384),
            scan_window_rows=1 << 16,
            matches=(0.0625, 0.25, 1, 4, 16, 64, 256),
            basic_window_bytes=tuple(1 << n for n in range(6, 21, 2)),
            basic_window_minutes=(1, 5, 15),
            drifts=(0.0, 0.2, 0.5, 1.0),
            drift_window_rows=1 << 16,
            push_rows=8192,
            threads=_powers(cores),
            runs=runs,
            run_s=0.15,
            seed=seed,
        )

    @classmethod
    def quick(cls, cores: int, seed: int) -> Extent:
        """Everything once, tiny: a look at whether it works, no measurement."""
        return cls(
            windows=(1 << 10, 1 << 12),
            merge_ratios=(2, 16),
            chains=(1, 8),
            tasks=(1, 8),
            push_rows_each=(16, 2048),
            scan_window_rows=1 << 11,
            matches=(1, 16),
            basic_window_bytes=(1 << 8, 1 << 14),
            basic_window_minutes=(1,),
            drifts=(0.0, 1.0),
            drift_window_rows=1 << 11,
            push_rows=256,
            threads=_powers(cores),
            runs=2,
            run_s=0.003,
            seed=seed,
        )

    @property
    def common(self) -> dict[str, Any]:
        """What every trial has in common."""
        return {"runs": self.runs, "run_s": self.run_s}

    @property
    def cores(self) -> int:
        """The most threads of a trial."""
        return self.threads[-1]


def _powers(cores: int) -> tuple[int, ...]:
    powers = [1 << n for n in range(cores.bit_length()) if 1 << n <= cores]
    return tuple(powers if powers[-1] == cores else [*powers, cores])


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or the bars of one colour.

    Attributes
    ----------
    name : str
    points : tuple of (x, Trial)
        x is a number, or a text where the panel's places have names.
    value : str
        Which of the numbers of the trials' outcomes; or, where there is one point of x None, which of its curves.
    per : float
        What values are divided by before they are drawn.
    """

    name: str
    points: tuple[tuple[float | str | None, Trial], ...]
    value: str = "rows_per_second"
    per: float = 1.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes
    ----------
    paper, number : str
    title, x_title, y_title : str
    series : tuple of Series
    measured : str
        What is measured here, and where our engine has no such thing, what stands for it.
    reported : str
        What the paper says of its own picture, in words.
    is_log_x, is_log_y : bool
    is_bars, is_stacked : bool
    """

    paper: str
    number: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    measured: str
    reported: str
    is_log_x: bool = False
    is_log_y: bool = False
    is_bars: bool = False
    is_stacked: bool = False

    @property
    def place(self) -> str:
        """Its name in the page's addresses: ``pim-tree-8a``."""
        return f"{self.paper.lower()}-{self.number}"
