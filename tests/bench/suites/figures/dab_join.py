"""DAB Join's Figures 13 to 17 (Svingos, 2016): layouts that follow the rates beside fixed ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.trial import Trial

__all__ = ["dab_join_panels"]

_PAPER = "DAB Join"
_RATE_TIMES = "rate of the second stream after a third, times the first's"
_CELLS = "cells"
_SQUARES = {4: "2x2", 9: "3x3", 16: "4x4"}
_SIMULATED = "Simulated: S cells one after the other; parallel time = the slowest cell's, batch by batch. "
_QUERY = (
    "The product's own source, exchange by reference, cells, state, commit and tables, in one process without Spark. "
    "Times are CPU time; each batch counts its slowest cell and an even share of reading and dealing. "
)
_NOT_SHIPPED = "Tuples are not sent over a network: cells map the blocks of their groups from one disk. "


def dab_join_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    return [*_rates(extent), *_changes(extent)]


def _panel(number: str, title: str, axes: tuple[str, str], series: Iterable[Series], **told: Any) -> Panel:
    return Panel(_PAPER, number, title, *axes, tuple(series), **told)


def _trial(extent: Extent, kind: str, streams: BandStreams, **options: Any) -> Trial:
    workload = replace(Trial().workload, seed=extent.seed)
    return Trial(kind, workload, streams=streams, runs=1 if extent.is_quick else min(extent.runs, 2), **options)


def _rates(extent: Extent) -> list[Panel]:
    base, window_s = (60, 20) if extent.is_quick else (2_000, 20)
    ratios = (1, 20) if extent.is_quick else (1, 10, 20, 40)
    cells = (4,) if extent.is_quick else (4, 9, 16)
    most = cells[-1]

    def moving(ratio: int, count: int, layout: str) -> Trial:
        eps = 200 if extent.is_quick else 10
        streams = BandStreams((base, base * ratio), (window_s, window_s), eps=eps, seed=extent.seed)
        batch_rows = 6_000 if extent.is_quick else 120_000
        return replace(_trial(extent, "moving", streams, cells=count, size=batch_rows, layout=layout), runs=1)

    fixed = tuple((ratio, moving(ratio, most, _SQUARES[most])) for ratio in ratios)
    adaptive = tuple((ratio, moving(ratio, most, "adaptive")) for ratio in ratios)
    by_cells = {
        name: tuple((count, moving(20, count, layout or _SQUARES[count])) for count in cells)
        for name, layout in (("fixed square layout", ""), ("adaptive layout", "adaptive"))
    }
    workload = (
        f"Both streams have {base:,} tuples/s for 60 s of event time; then the second has as many times that as said, "
        f"for 120 s. Windows of 20 s, two bands, batches of up to {fixed[0][1].size:,} tuples. "
    )
    differs = (
        _NOT_SHIPPED
        + "The paper joins 200,000 windows that do not overlap, by the windows' numbers alone, on 8 machines "
        "with 2 cores each; here a sliding window with two bands is joined, so that cells do real work. "
    )
    return [
        _panel(
            "13", f"Time of the workload, {most} cells", (_RATE_TIMES, "seconds"),
            [Series(f"fixed, {_SQUARES[most]}", fixed, "seconds"), Series("adaptive", adaptive, "seconds")],
            measured=_SIMULATED + _QUERY + workload,
            reported="With 16 CPUs DAB Join is the faster, the more the rate grows; it is slightly slower only where "
            "the rate does not change.",
            differs=differs + "The paper's time is wall time, and nearly all of it is transfer. Here a cell's batch "
            "has a cost of its own, whatever it brings, and that is twice as high while two layouts have tuples. There "
            "is no point for 30 times.",
        ),
        _panel(
            "14", f"Tuples shipped, {most} cells", (_RATE_TIMES, "million tuples"),
            [
                Series(f"fixed, {_SQUARES[most]}", fixed, "shipped", 1e6),
                Series("fixed, predicted", fixed, "predicted_shipped", 1e6),
                Series("adaptive", adaptive, "shipped", 1e6),
                Series("the best layout at once, predicted", adaptive, "predicted_shipped", 1e6),
                Series("read", fixed, "read", 1e6),
            ],
            measured="The same trials. Counted are the tuples in the exchange rows of all cells, guests of older "
            "layouts among them. " + workload + "Predicted by the cost of a layout (section 4.2).",
            reported="The matrix join sends 4 times what it reads; DAB Join not much more than that itself, as the "
            "faster stream is sent once and the slower one 16 times.",
            differs=_NOT_SHIPPED + "The layout changes when the rates have been seen to be no burst, and costs guests "
            "for the length of a window.",
        ),
        _panel(
            "15", "Time of the workload by number of cells", (_CELLS, "seconds"),
            [Series(name, points, "seconds") for name, points in by_cells.items()],
            measured=_SIMULATED + _QUERY + workload + "The rate grows 20 times.",
            reported="DAB Join scales almost linearly over 4, 9 and 16 CPUs, and is faster than the matrix join "
            "everywhere.",
            differs=differs,
        ),
    ]  # fmt: skip


def _changes(extent: Extent) -> list[Panel]:
    rate, window_s = (100, 4) if extent.is_quick else (2_000, 4)
    others = {4: "1x4", 9: "1x9", 16: "1x16"}
    cells = (4,) if extent.is_quick else (4, 9, 16)
    most = cells[-1]
    sizes = (100, 200) if extent.is_quick else (2_000, 4_000, 8_000)
    streams = BandStreams((rate, rate), (window_s, window_s), eps=300 if extent.is_quick else 10, seed=extent.seed)
    parts = {
        "before_ms": "a batch before the change",
        "change_ms": "the batch that begins the new layout",
        "both_ms": "a batch while both layouts have tuples",
        "after_ms": "a batch afterwards",
    }

    def changing(count: int, size: int) -> Trial:
        return _trial(extent, "changing", streams, cells=count, size=size, layout=others[count])

    by_cells = [
        Series(told, tuple((str(count), changing(count, sizes[-2])) for count in cells), name)
        for name, told in parts.items()
    ]
    by_size = [
        Series(told, tuple((f"{size:,}", changing(most, size)) for size in sizes), name) for name, told in parts.items()
    ]
    measured = (
        _SIMULATED
        + _QUERY
        + f"{rate:,} tuples/s of each stream, windows of {window_s} s; in the middle of 9 windows the "
        "layout is changed by a schedule from the square one to one row of cells. Nobody is ever blocked here: no "
        "tuple moves, and no cell waits for another. What a change costs is what the four kinds of batches differ by. "
    )
    blocked = (
        "The paper draws the time for which joiners are blocked. Here that is no time at all; drawn is the time of a "
        "batch before, at, during and after the change. "
    )
    return [
        _panel(
            "16", "Batches round a change of layout, by cells", (_CELLS, "ms of a batch"), by_cells,
            measured=measured + f"Batches of {sizes[-2]:,} tuples. ",
            reported="The time of a rebalance grows with the number of CPUs, as transponders wait for a message from a "
            "joiner, and have more messages to handle.",
            differs=blocked + _NOT_SHIPPED, is_bars=True,
        ),
        _panel(
            "17", f"Batches round a change of layout, by their size, {most} cells",
            ("tuples of a batch", "ms of a batch"), by_size,
            measured=measured,
            reported="The time of a rebalance grows with the size of the buffers, to more than 1.5 s: a stream may lag "
            "behind by as much as they hold.",
            differs=blocked + "There are no buffers between cells; what waits for a cell is a batch, so that its size "
            "stands for theirs.",
            is_bars=True,
        ),
    ]  # fmt: skip
