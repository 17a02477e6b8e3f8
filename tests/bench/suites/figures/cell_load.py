"""The cells of a layout, one after the other: an engine each, its windows laid in place, and what a stretch costs it.

::

    windows at an instant ──► state ──► engine of cell 0 ──► the stretch, dealt ──► CPU time, results
                                        engine of cell 1 ──► the same stretch   ──► ...

No machine here has a core for each cell. So every cell does its part of the same stretch alone, and the layout takes as
long as the slowest of them would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa

from streamjoin_ds.engine.storage.bucket_grid.policy import BUCKET_ROWS
from streamjoin_ds.engine.storage.state_blob import state_blob
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.storage.window_set import JoinState
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution, Layout
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.result_output import ResultOutput
from tests.bench.suites.figures.trial import Trial

__all__ = ["LayoutLoad", "engine_options", "filled_engine", "layout_load", "layout_of", "pair_s", "streams_of"]

_SECOND_US = 1_000_000
_ONE_CELL = Layout((1, 1))
_TESTED_PAIRS = 3e8  # pairs that are tested, about, to find out what one test takes,
_WARM_PUSHES = 4
# Runs of a window that is laid in place, and their least size. No merge makes a run of more than a quarter of a window,
# so that a window has several; threads share them out.
_RUNS, _LEAST_RUN_ROWS = 8, 256
_CHECKED_PUSHES = 4  # pushes whose results are counted independently
_MOST_PUSHES = 100  # in no more than so many pushes


@dataclass(frozen=True, slots=True)
class LayoutLoad:
    """What stretches of a load cost the cells of a layout.

    Attributes
    ----------
    stretch_s : float
        Event time of a stretch.
    slowest_s : list of float
        For each stretch the CPU time of the slowest cell; its wall time if a cell has several threads.
    results : list of int
        For each stretch the results of all cells.
    shipped : list of int
        For each stretch the tuples that all cells together were sent.
    found, expected : int
        The results of the first pushes, of all cells, and what they are by an independent count.
    """

    stretch_s: float
    slowest_s: list[float]
    results: list[int]
    shipped: list[int]
    found: int
    expected: int

    @property
    def busy(self) -> list[float]:
        """For each stretch the share of its time for which the slowest cell was busy; above 1 it cannot keep up."""
        return [slowest / self.stretch_s for slowest in self.slowest_s]


def streams_of(trial: Trial) -> BandStreams:
    """Return the trial's streams."""
    assert trial.streams is not None, "a trial of cells has streams"
    return trial.streams


def layout_of(trial: Trial) -> Layout:
    """Return the trial's layout."""
    return Layout.parse(trial.layout, 2)


def filled_engine(
    streams: BandStreams, layout: Layout, cell: int, now_us: int, fill: float = 1.0, **options: Any
) -> WindowJoin:
    """Return the engine of one cell with the tuples that its windows hold at an instant.

    The tuples are laid in place as a saved state is: nothing is probed meanwhile.

    Parameters
    ----------
    streams, layout, cell
    now_us : int
        The event time from which on tuples will be pushed.
    fill : float
        How full the windows are, at most 1: the stream began that share of its window ago.
    **options
        As `WindowJoin` takes them.
    """
    join = WindowJoin(streams.bound(), **options)
    windows = []
    for stream, form in enumerate(join.forms):
        since_us = now_us - round(streams.windows_s[stream] * min(fill, 1.0) * _SECOND_US)
        tuples = _dealt(streams, layout, cell, stream, since_us, now_us)
        step = max(-(-tuples.num_rows // _RUNS), _LEAST_RUN_ROWS)
        runs = [form.sealed(tuples.slice(begin, step)) for begin in range(0, tuples.num_rows, step)]
        windows.append(Window(form, runs))
    state = JoinState(windows, 0, 0, [window.rows for window in windows], [0] * len(windows))
    join.restore(state_blob(join.bound, join.forms, state, windows, None))
    return join


def _dealt(streams: BandStreams, layout: Layout, cell: int, stream: int, begin_us: int, end_us: int) -> pa.RecordBatch:
    first, last = (streams.first_row(stream, at_us) for at_us in (begin_us, end_us))
    return streams.batch(stream, first, last, layout.group_in_cell(cell, stream), layout.counts[stream])


def layout_load(trial: Trial, streams: BandStreams | None = None, stretch_rows: int = 0) -> LayoutLoad:
    """Return what the trial's stretches cost its cells, which get them in pushes of `push_rows` tuples of each stream.

    Parameters
    ----------
    trial : Trial
    streams : BandStreams, optional
        Other streams than the trial's.
    stretch_rows : int
        Tuples of the faster stream in a stretch; 0: as many as test `size` million pairs.
    """
    streams, layout = streams or streams_of(trial), layout_of(trial)
    rate = max(streams.rates)
    wanted = stretch_rows or trial.size * 1e6 * rate / max(streams.load.pairs_per_s, 1.0)
    pushes = max(round(wanted / trial.push_rows), 2)
    push_us = max(round(trial.push_rows * _SECOND_US / rate), 1)
    # Windows that were laid in place as runs go over to an index or a grid in the first pushes, which are not measured.
    warm = 0 if trial.index == "scan" else _WARM_PUSHES
    start_us = streams.warm_us
    begin_us = start_us + warm * push_us
    shape = trial.runs, layout.cells
    seconds, results, shipped = ([[0.0] * shape[1] for _ in range(shape[0])] for _ in range(3))
    clock = time.process_time if trial.threads == 1 else time.perf_counter
    found, checked = 0, min(pushes, _CHECKED_PUSHES)
    for cell in range(layout.cells):
        join = filled_engine(streams, layout, cell, start_us, **engine_options(trial))
        ends_us = [start_us + number * push_us for number in range(warm + trial.runs * pushes + 1)]
        spans = list(pairwise(ends_us))
        batches = [{stream: _dealt(streams, layout, cell, stream, *span) for stream in (0, 1)} for span in spans]
        output = ResultOutput(trial.output, join.result_schema)
        list(join.probe(batches[0]))  # the windows are touched for the first time
        for number, (fresh, span) in enumerate(zip(batches, spans, strict=True)):
            began, before = clock(), output.results
            output.take(fresh, join.push(fresh, span[1]))
            took_s = clock() - began
            if number >= warm:
                run = (number - warm) // pushes
                seconds[run][cell] += took_s
                results[run][cell] += output.results - before
                shipped[run][cell] += sum(batch.num_rows for batch in fresh.values())
                found += output.results - before if number < warm + checked else 0
        join.use_threads(1)
    return LayoutLoad(
        pushes * push_us / _SECOND_US,
        [max(of_cells) for of_cells in seconds],
        [round(sum(of_cells)) for of_cells in results],
        [round(sum(of_cells)) for of_cells in shipped],
        found,
        streams.matches_of(begin_us, begin_us + checked * push_us),
    )


def engine_options(trial: Trial) -> dict[str, Any]:
    """Return the options of the engines of a trial of cells."""
    in_grid = {"bucket_rows": BUCKET_ROWS} if trial.in_grid else {}
    return {"execution": Execution(trial.kernel, trial.threads, index=trial.index), **in_grid}


def pair_s(trial: Trial, push_rows: int = 0) -> float:
    """Return the seconds that the test of one pair takes one cell: DP-Join's service time of the join predicate.

    It is what pushes take a cell that has the whole of both windows, over the pairs in them.
    """
    alone = replace(
        trial,
        layout=str(_ONE_CELL),
        runs=3,
        push_rows=push_rows or trial.push_rows,
        fill=1.0,
        threads=1,
        output="plain",
    )
    return _pair_s(replace(alone, kind="", run_s=0.0, size=0))


@lru_cache(maxsize=64)
def _pair_s(trial: Trial) -> float:
    streams = streams_of(trial)
    rows = max(round(_TESTED_PAIRS / sum(streams.load.held_rows)), trial.push_rows)
    rows = min(rows, _MOST_PUSHES * trial.push_rows)
    load = layout_load(trial, stretch_rows=rows)
    return _median(load.slowest_s) / (streams.load.pairs_per_s * load.stretch_s)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
