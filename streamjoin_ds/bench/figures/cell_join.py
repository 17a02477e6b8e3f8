"""CellJoin's Figures 7, 12 and 13 (Gedik, Yu, Bordawekar, VLDB 2007)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamjoin_ds.bench.figures.panel import Extent, Panel, Series
from streamjoin_ds.bench.figures.trial import Trial
from streamjoin_ds.bench.figures.workload import FigureWorkload
from streamjoin_ds.engine.arrays.kernels import load_kernels

__all__ = ["cell_join_panels"]

_PAPER = "CellJoin"
_SCAN_PROBES = 1024
_TUPLES_PER_MINUTE = 500 * 60


def cell_join_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    return [*_nested_loops(extent), _batch_sizes(extent), _basic_windows(extent)]


def _nested_loops(extent: Extent) -> list[Panel]:
    widest = load_kernels("auto").implementation

    def points(kind: str, kernel: str) -> tuple[tuple[float, Trial], ...]:
        workload = FigureWorkload(seed=extent.seed)
        return tuple(
            (size, Trial(kind, workload, _SCAN_PROBES, 1, kernel, size=size, **extent.common))
            for size in extent.basic_window_bytes
        )

    loops = [("SIMD", widest), ("SIMD, not unrolled", f"{widest} rolled"), ("plain C, not vectorised", "scalar")]
    if widest in ("scalar", "reference"):
        loops = [(f"the only kernel here ({widest})", widest)]
    measured = (
        f"The nested loop over one float attribute of one basic window (float64: 8 bytes a tuple), kernel {widest}, "
        f"one core, {_SCAN_PROBES} probes in one call, matches written; values are whole numbers below 10,000, the "
        "band is 10 to both sides. The paper counts cycles of a Cell SPE; a guest system cannot read this CPU's clock, "
        "so the picture has nanoseconds. "
    )
    times = [Series(name, points("nested-loop", kernel), "ns") for name, kernel in loops]
    copies = Series("copy from memory (for the DMA transfer)", points("copy", "auto"), "ns")
    bytewise = [Series(name, points("nested-loop", kernel), "ns_per_byte") for name, kernel in loops]
    common = ("basic window, bytes", "time, ns")
    return [
        Panel(
            _PAPER, "7", "Time of the nested loop with and without its optimisations", *common, (*times, copies),
            measured
            + "A point is the time that one unit block of four probes takes. The copy is one memcpy of as many bytes "
            "from a place that no cache holds: what a cache miss costs here, where the Cell had a DMA transfer.",
            "Without SIMD about 10 times the cycles of the SIMD join, without unrolling about 1.8 times; for windows "
            "below 128 bytes SIMD is slightly behind SIMD without unrolling. The DMA transfer is flat up to 128 bytes.",
            is_log_x=True, is_log_y=True,
        ),
        Panel(
            _PAPER, "7-per-byte", "The same, a byte of the basic window", common[0], "time a byte, ns",
            tuple(bytewise),
            measured + "A point is the time of one unit block of four probes over the bytes of the basic window.",
            "The dashed lines of the same picture, read from its right axis: there the gap between the two SIMD joins "
            "is more visible.",
            is_log_x=True, is_log_y=True,
        ),
    ]  # fmt: skip


def _by_minutes(
    extent: Extent, points: Callable[[int, FigureWorkload], Iterable[tuple[int, Trial]]]
) -> tuple[Series, ...]:
    """Return a series for each length of the window; `points` has its rows and its workload."""
    series = []
    for minutes in extent.basic_window_minutes:
        rows = minutes * _TUPLES_PER_MINUTE
        workload = FigureWorkload((rows, rows), seed=extent.seed)
        series.append(Series(f"{minutes} min window ({rows:,} tuples)", tuple(points(rows, workload)), "us"))
    return tuple(series)


def _batch_sizes(extent: Extent) -> Panel:
    series = _by_minutes(
        extent,
        lambda rows, workload: (
            (push, Trial("join", workload, push, **extent.common)) for push in extent.push_rows_each if push <= rows
        ),
    )
    return Panel(
        _PAPER, "12", "Size of the input batch", "tuples of each stream in a batch", "time a tuple, us", series,
        "Windows of 500 tuples a second as the engine keeps them (one key, indexed; the paper scans two), two matches "
        "a tuple, one core; each push has as many tuples of each stream as the x axis says. They share the fixed "
        "cost of a push. Under Spark that is a whole trigger, a fifth of a second and more, so batches there grow to "
        "what `max_delay` allows and the load needs (`streamjoin bench stream delay`). The paper's batches have "
        "at most some hundred bytes of each attribute, on 8 SPEs.",
        "Larger batches take less time a tuple, with ever smaller gains: above 128 bytes they are insignificant, for "
        "windows from 1 to 15 minutes alike.",
        is_log_x=True, is_log_y=True,
    )  # fmt: skip


def _basic_windows(extent: Extent) -> Panel:
    series = _by_minutes(
        extent,
        lambda rows, workload: (
            (size, Trial("basic-windows", workload, 8, index="scan", size=size, **extent.common))
            for size in extent.basic_window_bytes
            if 16 <= size <= 16 * rows and rows * 16 // size <= 1 << 16
        ),
    )
    return Panel(
        _PAPER, "13", "Size of the basic window", "basic window, bytes", "time a tuple, us", series,
        "The nested loop over a window of two attributes (16 bytes a tuple: an int and a float, widened to 8 bytes "
        "each; bands of 10 to both sides over 10,000 values, 500 tuples a second), cut into runs of the given size: 8 "
        "probes meet all runs in one call, one core. Here a basic window has no transfer to hide, as it is no unit of "
        "a DMA transfer: what small ones cost is the step from run to run, and what large ones could cost is the "
        "cache. The engine itself lays runs out in an index and does not scan them.",
        "For short windows small basic windows are best, for long windows large ones; a size that is not the best "
        "costs up to 10 %. (A Cell with 8 SPEs, basic windows of up to 16 KB.)",
        is_log_x=True, is_log_y=True,
    )  # fmt: skip
