"""CellJoin's Figures 7 and 10 to 13 (Gedik, Yu, Bordawekar, VLDB 2007)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from streamjoin_ds.engine.kernels.loading import kernel_names, load_kernels
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.trial import Trial
from tests.bench.suites.figures.workload import FigureWorkload

__all__ = ["cell_join_panels"]

_PAPER = "CellJoin"
_SCAN_PROBES = 1024
_TUPLES_PER_MINUTE = 500 * 60


def cell_join_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    return [*_nested_loops(extent), *_rates(extent), _batch_sizes(extent), _basic_windows(extent)]


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
            "Nanoseconds in place of cycles; float64 in place of float32; many probes in one call; a copy in place of "
            "a DMA transfer.",
            is_log_x=True, is_log_y=True,
        ),
        Panel(
            _PAPER, "7-per-byte", "The same, a byte of the basic window", common[0], "time a byte, ns",
            tuple(bytewise),
            measured + "A point is the time of one unit block of four probes over the bytes of the basic window.",
            "The dashed lines of the same picture, read from its right axis: there the gap between the two SIMD joins "
            "is more visible.",
            "As the picture above.",
            is_log_x=True, is_log_y=True,
        ),
    ]  # fmt: skip


def _rates(extent: Extent) -> list[Panel]:
    rates = (500, 1_000) if extent.is_quick else (250, 500, 750, 1_000, 1_250, 1_500, 2_000)
    window_s, size, domain = (4, 2, 400) if extent.is_quick else (900, 500, 10_000)
    trial = Trial("dropping", FigureWorkload(seed=extent.seed), 16, index="scan", size=size,
                  runs=min(extent.runs, 3))  # fmt: skip

    def points(**options: Any) -> tuple[tuple[int, Trial], ...]:
        def streams(rate: int) -> BandStreams:
            return BandStreams((rate, rate), (window_s, window_s), domain=domain, seed=extent.seed)

        return tuple((rate, replace(trial, streams=streams(rate), **options)) for rate in rates)

    widest = load_kernels("auto").implementation
    named = {"SIMD": widest, "SIMD, 256 bits": "avx2", "plain C, not vectorised": "scalar"}
    kernels = {
        told: name for told, name in named.items() if name in kernel_names() and (name != widest or told == "SIMD")
    }
    by_kernel = {f"{told} ({name})": points(kernel=name) for told, name in kernels.items()}
    threaded = replace(trial, push_rows=64)
    by_threads = {
        f"{count} thread{'s' * (count > 1)}": points(threads=count, push_rows=threaded.push_rows)
        for count in extent.threads
    }
    measured = (
        f"The nested loop over windows of {window_s:,} s that are full, two bands of 10 to both sides. Where an engine "
        "cannot keep up, tuples are left out evenly until it can; its windows are then as much less full, and the rate "
        "that is kept is measured with these (up to four tries). "
    )
    one = f"Pushes of {trial.push_rows} tuples of each stream. One core; CPU time. "
    several = f"Pushes of {threaded.push_rows} tuples of each stream. Threads of one engine on real cores; wall time. "
    paper = (
        "With 8 SPEs the SIMD join keeps 1,000 tuples/s a stream without drops, the one that is not unrolled some 750, "
        "that without SIMD some 500: up to 250 % and 33 % more results. "
    )
    scaling = (
        "With N SPEs twice the results of N/2, up to 8, and 8.3 times those of two Xeons; tuples are dropped beyond "
        "that. "
    )
    not_rolled = (
        "One core in place of 8 SPEs and a PPE. There is no line for SIMD without unrolling: the engine has no such "
        "kernel (Figure 7 shows the kernel alone). Tuples are dropped by even choice, not when a queue is full. "
    )
    no_spe = "This machine's cores in place of 1 to 8 SPEs; no Xeon beside. "
    pictures: list[tuple[str, str, dict[str, tuple[tuple[int, Trial], ...]], str, str, str]] = [
        ("10", "Results a second by input rate", by_kernel, one, paper, not_rolled),
        ("11", "Results a second by input rate and threads", by_threads, several, scaling, no_spe),
    ]
    axis = "input rate of each stream, tuples a second"
    panels = []
    for number, title, lines, where, reported, differs in pictures:
        panels += [
            Panel(
                _PAPER, number, title, axis, "results a second",
                tuple(Series(name, trials, "results") for name, trials in lines.items()),
                measured + where, reported, differs,
            ),
            Panel(
                _PAPER, f"{number}-dropped", title.replace("Results", "Tuples dropped", 1), axis, "tuples a second",
                tuple(Series(name, trials, "dropped") for name, trials in lines.items()),
                measured + where, reported + "The dashed lines of the same picture, read from its right axis.", differs,
            ),
        ]  # fmt: skip
    return panels


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
        "what `max_delay` allows and the load needs (`python -m tests.bench stream delay`). The paper's batches have "
        "at most some hundred bytes of each attribute, on 8 SPEs.",
        "Larger batches take less time a tuple, with ever smaller gains: above 128 bytes they are insignificant, for "
        "windows from 1 to 15 minutes alike.",
        "One indexed key in place of a nested loop over two; a push in place of a fetch from input queues; tuples in "
        "place of bytes on the x axis; one core in place of 8 SPEs.",
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
