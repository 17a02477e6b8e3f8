"""A panel: one picture of a paper, as series of trials; and the extent, which says how large the trials are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.bench.suites.figures.trial import Trial

__all__ = ["Extent", "Panel", "Series"]


@dataclass(frozen=True, slots=True)
class Extent:
    """How large the trials are, and how many there are.

    Attributes
    ----------
    windows : tuple of int
        Window sizes in tuples of each stream, small to large.
    merge_ratios, chains, tasks, push_rows_each : tuple of int
        Values of what a panel varies instead of the window: merge ratio, number of runs, tuples of a task, tuples of a
        push.
    scan_window_rows : int
        The largest window, in tuples, for which a nested loop is measured.
    matches : tuple of float
        Average numbers of matches of a tuple.
    basic_window_bytes : tuple of int
        Sizes of a basic window.
    basic_window_minutes : tuple of int
        Lengths of windows that are cut into basic windows, at 500 tuples a second.
    drifts : tuple of float
        Speeds at which keys drift (`FigureWorkload.drift`).
    drift_window_rows : int
        Tuples of the window while keys drift.
    push_rows : int
        Tuples of a push where that is not varied.
    threads : tuple of int
        Numbers of threads: powers of two, and the machine's cores.
    runs : int
        Measured runs of each trial.
    run_s : float
        Seconds that a run lasts at least.
    seed : int
        Seed of the generated tuples.
    is_quick : bool
        Whether all is tiny; the panels of DP-Join, DAB Join and LLHJ choose their loads by it.
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
    is_quick: bool = False

    @classmethod
    def full(cls, cores: int, runs: int, seed: int) -> Extent:
        """Return the extent of the real figures: at most about ten minutes for each paper on two cores."""
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
        """Return a tiny extent: it shows whether all works, and measures nothing."""
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
            is_quick=True,
        )

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that all trials share."""
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
        Its name in the legend.
    points : tuple of (x, Trial)
        x is a number, or a text if places on the panel's axis have names. A single point whose x is None: the trial is
        a whole curve.
    value : str
        Name of the number that is taken from the trials' outcomes; or of the curve, if the trial is one.
    per : float
        Values are divided by this before they are drawn.
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
        The paper, and the number of its figure.
    title, x_title, y_title : str
        Titles of the picture and its axes.
    series : tuple of Series
        The lines or bars.
    measured : str
        What is measured here; and what stands in for a part that our engine does not have.
    reported : str
        What the paper says of its own picture, in words.
    differs : str
        What the panel leaves out or changes against the paper's picture.
    is_log_x, is_log_y : bool
        Whether an axis is logarithmic.
    is_bars, is_stacked : bool
        Whether there are bars instead of lines, and whether they are stacked.
    """

    paper: str
    number: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    measured: str
    reported: str
    differs: str = ""
    is_log_x: bool = False
    is_log_y: bool = False
    is_bars: bool = False
    is_stacked: bool = False

    @property
    def of_paper(self) -> str:
        """What the paper calls it: ``Figure 8a``, ``Table 2``."""
        kind, _, rest = self.number.partition("-")
        return f"Table {rest}" if kind == "table" else f"Figure {self.number}"

    @property
    def place(self) -> str:
        """The panel's name in the page's addresses: ``pim-tree-8a``."""
        return f"{self.paper}-{self.number}".lower().replace(" ", "-")
