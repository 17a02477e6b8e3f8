"""CellJoin's Figures 9 and 13 on the engine's own path: the size of a basic window, measured and by the cost model.

A basic window is a run as it is sealed: so many rows as a tail has (`engine/costs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.engine.tuning import DEFAULT
from tests.bench.suites.figures.basic_window_trial import NEVER
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.trial import Trial
from tests.bench.suites.figures.workload import FigureWorkload

__all__ = ["basic_window_panels"]

_PAPER = "CellJoin"
_TUPLES_PER_MINUTE = 500 * 60
_PUSH_ROWS = 64  # tuples of each stream in a push: few enough for the tail, enough to share the fixed cost of a push
_RUNS = 3  # measured runs of each size, at most
_ENGINE = (
    "Engine with windows in runs, one core; one integer key with two matches a tuple (the paper scans two attributes); "
    f"windows of 1, 5 and 15 minutes at 500 tuples a second, pushes of {_PUSH_ROWS} tuples of each stream; CPU time. A "
    "basic window is a run as it is sealed: the newest tuples are a tail that every probe scans, and that becomes a "
    "sorted run when it has so many rows. "
)
_MODEL = (
    "The model is CellJoin's eq. 3 with the steps of this engine: half a tail is scanned, tails are sealed, runs are "
    "searched and merged. Its costs are measured on made-up windows in less than a second. "
)


def basic_window_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    most_rows = 2 * extent.windows[-1]  # of a quick look
    windows = [min(minutes * _TUPLES_PER_MINUTE, most_rows) for minutes in extent.basic_window_minutes]
    merged = [_trial(extent, rows, DEFAULT.merging.ratio) for rows in windows]
    unmerged = [_trial(extent, rows, NEVER) for rows in windows]
    return [_best_sizes(windows, merged, unmerged), _sizes(windows, merged), _sizes_unmerged(windows, unmerged)]


def _trial(extent: Extent, window_rows: int, ratio: int) -> Trial:
    workload = FigureWorkload((window_rows, window_rows), seed=extent.seed)
    options = {**extent.common, "runs": min(extent.runs, _RUNS)}
    return Trial("seal-sizes", workload, _PUSH_ROWS, merge_runs=ratio, **options)


def _best_sizes(windows: Sequence[int], merged: Sequence[Trial], unmerged: Sequence[Trial]) -> Panel:
    def line(name: str, trials: Sequence[Trial], value: str) -> Series:
        return Series(name, tuple(zip(windows, trials, strict=True)), value)

    return Panel(
        _PAPER, "9", "Best size of a basic window", "tuples in the window (rate times length)",
        "rows of a tail when it is sealed",
        (
            line("not merged: model", unmerged, "predicted_rows"),
            line("not merged: measured", unmerged, "measured_rows"),
            line("merged: model", merged, "predicted_rows"),
            line("merged: measured", merged, "measured_rows"),
        ),
        _ENGINE + _MODEL + "The picture has one axis for rate and length, since only their product counts. Measured is "
        "the best of the powers of two from 256 to 16,384, so it is known to a factor of two. Without merges, as in "
        "the paper, the best size grows with the window (eq. 4). With merges it hardly depends on it. ",
        "Higher rates and longer windows need larger basic windows; for many rates and lengths the best is far below "
        "the 16 KB that a DMA transfer can have, for some that limit costs speed.",
        is_log_x=True, is_log_y=True,
    )  # fmt: skip


def _lines(windows: Sequence[int], trials: Sequence[Trial]) -> tuple[Series, ...]:
    lines = []
    for rows, trial in zip(windows, trials, strict=True):
        name = f"{rows:,} tuples in the window"
        lines += [
            Series(f"{name}: measured", ((None, trial),), "measured"),
            Series(f"{name}: model", ((None, trial),), "predicted"),
            Series(f"{name}: the model's best", ((None, trial),), "predicted_best"),
        ]
    return tuple(lines)


_ADDED = (
    "The model knows only what depends on the size; to each of its lines one number is added, the median difference "
    "from what was measured. "
)


def _sizes(windows: Sequence[int], trials: Sequence[Trial]) -> Panel:
    return Panel(
        _PAPER, "13-engine", "Size of the basic window, on the engine's path", "rows of a tail when it is sealed",
        "CPU time a tuple, us", _lines(windows, trials),
        _ENGINE + f"Four runs of like size are merged. {_MODEL}{_ADDED}",
        "For short windows small basic windows are best, for long windows large ones; a size that is not the best "
        "costs up to 10 %. (A Cell with 8 SPEs, basic windows of up to 16 KB, no merges.)",
        is_log_x=True,
    )  # fmt: skip


def _sizes_unmerged(windows: Sequence[int], trials: Sequence[Trial]) -> Panel:
    return Panel(
        _PAPER, "13-unmerged", "Size of the basic window, without merges", "rows of a tail when it is sealed",
        "CPU time a tuple, us", _lines(windows, trials),
        _ENGINE + "No runs are merged, as in the paper, so every probe searches all of them. Sizes with more than 128 "
        f"runs in the window are left out. {_MODEL}{_ADDED}",
        "For short windows small basic windows are best, for long windows large ones; a size that is not the best "
        "costs up to 10 %.",
        is_log_x=True,
    )  # fmt: skip
