"""LLHJ's Figures 17 to 21 and Table 2 (Roy, Teubner, Gemulla: Low-Latency Handshake Join, 2014)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from streamjoin_ds.plan import Load, choose_layout
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.trial import Trial

__all__ = ["handshake_join_panels"]

_PAPER = "LLHJ"
_BATCH = 64  # tuples of a stream that LLHJ's driver hands over at a time
_TIME = "time, in windows"
_SIMULATED = "Simulated: S cells one after the other; parallel time = the slowest cell's. "
_NO_HANDSHAKE = "There is no line of the original handshake join, which is not built here. "
_PACED = (
    "Tuples arrive in real time, by their event times, and are pushed when the last one of a batch has arrived. The "
    "latency of each result is measured, from the arrival of its newest tuple to the moment at which the engine gives "
    "it. "
)
_NO_SPARK = (
    "The way through Spark to a committed table is not in it (`python -m tests.bench stream delay` measures that). "
)


def handshake_join_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    return [
        _throughput(extent),
        _latency_by_cells(extent),
        *_latency_over_time(extent),
        *_buffer(extent),
        _table(extent),
    ]


def _panel(number: str, title: str, axes: tuple[str, str], series: Iterable[Series], **told: Any) -> Panel:
    return Panel(_PAPER, number, title, *axes, tuple(series), **told)


def _trial(extent: Extent, kind: str, rate: float, windows_s: tuple[float, float], **options: Any) -> Trial:
    """Return a trial of the nested loop; in a quick look streams are slow, windows short and values few."""
    streams = BandStreams((rate, rate), windows_s, seed=extent.seed)
    if extent.is_quick:
        longest = max(windows_s)
        streams = BandStreams((1_000, 1_000), (2 * windows_s[0] / longest, 2 * windows_s[1] / longest), domain=1_000,
                              seed=extent.seed)  # fmt: skip
    common: dict[str, Any] = {
        "push_rows": _BATCH,
        "index": "scan",
        "runs": 2 if extent.is_quick else min(extent.runs, 3),
    }
    return Trial(kind, replace(Trial().workload, seed=extent.seed), streams=streams, **{**common, **options})


def _layout(cells: int) -> str:
    return str(choose_layout(cells, Load.of_windows([1.0, 1.0])))


def _throughput(extent: Extent) -> Panel:
    size = 2 if extent.is_quick else 500
    trial = _trial(extent, "sustained", 1_500, (900, 900), size=size)
    cells = (1, 4) if extent.is_quick else (1, 2, 4, 8, 16)

    def points(output: str) -> tuple[tuple[int, Trial], ...]:
        return tuple((count, replace(trial, layout=_layout(count), output=output)) for count in cells)

    return _panel(
        "17", "Highest rate that is kept", ("cells", "tuples a second of each stream"),
        [
            Series("without punctuations", points("plain"), "rate"),
            Series("with punctuations", points("punctuated"), "rate"),
            Series("with punctuations, sorted output", points("sorted"), "rate"),
            Series("predicted by the pairs that cells test", points("plain"), "predicted_rate"),
        ],
        measured=_SIMULATED + f"Nested loop, windows of 900 s, pushes of {_BATCH} tuples of each stream, the layout "
        "that the planner chooses for equal rates. CPU time; up to four rates are tried, drawn is the highest that is "
        "kept. With punctuations each cell moves its streams' clocks after each push and tells its watermark; for "
        "sorted output it also holds results until the watermark has passed them, and puts them in order as the reader "
        "does (`sink/reader.py`).",
        reported="Both handshake joins reach the same rates, up to some 5,100 tuples/s with 40 cores; punctuations "
        "make them only marginally lower.",
        differs=_NO_HANDSHAKE + "Up to 16 cells in place of 40 cores. Cells form a grid and no pipeline. Under Spark "
        "punctuations cannot be turned off; here the engine is alone, so they can. Sorted output is not in the paper's "
        "picture.",
    )  # fmt: skip


def _latency_by_cells(extent: Extent) -> Panel:
    cells = (1, 4) if extent.is_quick else (1, 2, 4, 8, 16)
    base, run_s = 1_000, 0.05 if extent.is_quick else 0.3

    def trial(count: int) -> Trial:
        # The rate grows as the highest rate does: every cell stays as busy as one alone.
        return _trial(extent, "latency", base * math.sqrt(count), (900, 900), layout=_layout(count), run_s=run_s)

    points = tuple((count, trial(count)) for count in cells)
    return _panel(
        "18", "Latency by number of cells", ("cells", "ms"),
        [
            Series("mean latency", points, "mean_ms"),
            Series("median latency", points, "median_ms"),
            Series("99 of 100 results", points, "p99_ms"),
            Series("a scan, predicted (DP-Join, equations 5 and 6)", points, "predicted_end_ms"),
        ],
        measured=_SIMULATED + f"Each cell is paced alone. {_PACED}Nested loop, windows of 900 s, batches of {_BATCH} "
        f"tuples of a stream; {base:,} tuples/s with one cell, and as many times that as the square root of the cells "
        "says.",
        reported="32 ms with 8 cores, 15 ms with 40: most of it is the wait for a batch of 64 tuples, which takes less "
        "time at the higher rates of more cores. Almost four orders of magnitude below the original handshake join.",
        differs=_NO_HANDSHAKE + "Up to 16 cells in place of 40 cores, at rates below the highest ones. " + _NO_SPARK,
        is_log_y=True,
    )  # fmt: skip


def _latency_over_time(extent: Extent) -> list[Panel]:
    fills = (0.5, 1.0) if extent.is_quick else (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    threads, rate = extent.cores, 2_000

    def series(windows_s: tuple[float, float], push_rows: int, name: str = "", index: str = "scan") -> list[Series]:
        run_s = 0.1 if extent.is_quick else 0.7
        trial = _trial(
            extent, "latency", rate, windows_s, push_rows=push_rows, run_s=run_s, threads=threads, index=index
        )
        points = tuple((fill, replace(trial, fill=fill)) for fill in fills)
        told = (
            ("mean_ms", "mean"),
            ("median_ms", "median"),
            ("deviation_ms", "standard deviation"),
            ("largest_ms", "largest"),
        )
        return [Series(f"{name}{text}", points, value) for value, text in told]

    on = f"{threads} real {'thread' if threads == 1 else 'threads'} of one engine, {rate:,} tuples/s a stream. "
    differs = (
        "40 cores in the paper. A point is the results of some runs of a second, not 200,000 results; what lies "
        "between the points is not run, and windows are laid in place. " + _NO_SPARK
    )
    return [
        _panel(
            "19a", "Latency over time, windows of 200 s", (_TIME, "ms"), series((200, 200), _BATCH),
            measured=_PACED + on + f"Nested loop; batches of {_BATCH} tuples of a stream.",
            reported="Below 10 ms on average and below 30 ms at most, once windows are full; the wait for a batch is 9 "
            "ms of that.",
            differs=differs,
        ),
        _panel(
            "19b", "Latency over time, windows of 200 s and 100 s", (_TIME, "ms"), series((200, 100), _BATCH),
            measured=_PACED + on + f"Nested loop; batches of {_BATCH} tuples of a stream.",
            reported="Comparable to equal windows: the latency hardly depends on them.", differs=differs,
        ),
        _panel(
            "20", "Latency over time, batches of four tuples", (_TIME, "ms"),
            [*series((200, 200), 4, "nested loop, "), *series((200, 200), 4, "with index, ", "auto")],
            measured=_PACED + on + "Batches of four tuples of a stream, windows of 200 s; also with the index that the "
            "engine chooses itself.",
            reported="About 1 ms on average, 3 to 4 ms at most, with spikes by the scheduler.",
            differs=differs + "The lines with an index are not in the paper's picture.", is_log_y=True,
        ),
    ]  # fmt: skip


def _buffer(extent: Extent) -> list[Panel]:
    rate, window_s, batch_rows = (100, 2, 200) if extent.is_quick else (2_000, 5, 4_000)
    streams = BandStreams((rate, rate), (window_s, window_s), eps=300 if extent.is_quick else 50, seed=extent.seed)
    cells = (1, 4) if extent.is_quick else (1, 2, 4, 8, 16)
    sizes = (100, 200) if extent.is_quick else (1_000, 2_000, 4_000, 8_000)

    def reading(count: int, size: int) -> Trial:
        workload = replace(Trial().workload, seed=extent.seed)
        return Trial("reading", workload, streams=streams, cells=count, size=size, layout=_layout(count), runs=1)

    def series(points: tuple[tuple[int, Trial], ...]) -> list[Series]:
        return [
            Series("held at most between punctuations", points, "buffer"),
            Series("results of the largest batch", points, "batch"),
            Series("results within a window: without punctuations", points, "window"),
        ]

    measured = (
        "The product's own source, cells, commit and tables in one process without Spark; its reader in order "
        "(`follow`) polls after each batch. Counted is what it holds when it has read a commit and not yet given "
        f"anything. {rate:,} tuples/s a stream, windows of {window_s} s, bands of {streams.eps} to both sides. What it "
        "gives is checked to be in order. One run: the count does not depend on time. "
    )
    return [
        _panel(
            "21", "Largest buffer of sorted output", ("cells", "results"),
            series(tuple((count, reading(count, batch_rows)) for count in cells)),
            measured=measured + f"Batches of up to {batch_rows:,} tuples.",
            reported="The buffer of a sorting operator stays small with punctuations, for any number of cores; without "
            "them it would hold millions of tuples.",
            differs="A punctuation comes with each commit, so the buffer holds about a batch's results, whatever the "
            "number of cells. Up to 16 cells in place of 40 cores, one after the other. The third line is counted from "
            "the results: what a window's length of disorder would make a reader hold.",
            is_log_y=True,
        ),
        _panel(
            "21-batch", "Largest buffer of sorted output by size of a batch", ("tuples of a batch", "results"),
            series(tuple((size, reading(cells[-1] if extent.is_quick else 4, size)) for size in sizes)),
            measured=measured + "4 cells.",
            reported="Not in the paper, whose punctuations come as often as its collector goes round.",
            differs="A picture of our own, beside Figure 21: here the size of a batch decides.",
            is_log_x=True, is_log_y=True,
        ),
    ]  # fmt: skip


def _table(extent: Extent) -> Panel:
    threads = extent.cores
    scan = _trial(extent, "sustained", 5_000, (10, 10), threads=threads, size=2 if extent.is_quick else 1_000)
    sizes: dict[str, Any] = {"size": 20, "push_rows": 256} if extent.is_quick else {"size": 400_000, "push_rows": 4_096}
    streams = replace(
        scan.streams or BandStreams((1, 1), (1, 1)), rates=(1_000, 1_000) if extent.is_quick else (150_000,) * 2
    )
    indexed = replace(scan, index="auto", in_grid=True, streams=streams, **sizes)
    equal = replace(indexed, in_grid=True, streams=replace(streams, is_equality=True))
    outputs = (("plain", "no punctuations"), ("punctuated", "punctuations"), ("sorted", "punctuations, sorted output"))
    kinds = {"nested loop": scan, "with index": indexed, "with index, equal keys": equal}
    return _panel(
        "table-2", "Highest rate that is kept, with and without index", ("engine", "tuples a second of each stream"),
        [
            Series(told, tuple((name, replace(trial, output=output)) for name, trial in kinds.items()), "rate")
            for output, told in outputs
        ],
        measured=f"{threads} real threads of one engine, wall time; windows of 10 s. Up to four rates, or eight with "
        "an index, are tried, each with the windows that it fills; drawn is the highest that is kept. The nested loop "
        f"gets pushes of {_BATCH} tuples of each stream, the others {indexed.push_rows:,}. Equal keys: one condition, "
        "`r.x = s.a`, over so many values that as many pairs match.",
        reported="In tuples/s of each stream, 40 cores, windows of 15 minutes: handshake join 5,125, low-latency "
        "handshake join 5,117, the same with hash indexes for equal keys 225,234.",
        differs=_NO_HANDSHAKE + f"{threads} cores in place of 40, and windows of 10 s: with index and the paper's 15 "
        "minutes they would not fit into memory at these rates. The paper has no index for bands. The rows on "
        "punctuations and sorted output are not in its table.",
        is_bars=True, is_log_y=True,
    )  # fmt: skip
