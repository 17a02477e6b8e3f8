"""Trials of whole queries in this process: rates that change, layouts that change, results read in order."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamjoin_ds.delta.table_state import EVENT_TIME
from streamjoin_ds.plan import Layout, Load, choose_layout, layout_cost
from streamjoin_ds.sink.reader import Follower
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.cell_load import streams_of
from tests.bench.suites.figures.in_process_query import BatchFacts, InProcessQuery, generated_join
from tests.bench.suites.figures.trial import Trial, TrialOutcome
from tests.bench.suites.oracle import count_matches
from tests.bench.suites.processes import BenchError

__all__ = ["changing", "moving", "reading_in_order"]

# In windows: how long a trial lasts, and when the second stream's rate changes: after a third, as in DAB's evaluation.
_WINDOWS, _CHANGE = 9, 3
_ADAPTIVE = "adaptive"


def _square(cells: int) -> Layout:
    return choose_layout(cells, Load.of_windows([1.0, 1.0]))


def _join(trial: Trial) -> tuple[Join, tuple[int, int]]:
    """Return the join, and the tuples of each stream.

    The first rate holds for both streams until the change, and from then on each stream has its own.
    """
    streams = streams_of(trial)
    base, window_s = streams.rates[0], streams.windows_s[0]
    rates, rows = [], []
    for rate in streams.rates:
        rates.append(f"0s:{base:g},{_CHANGE * window_s:g}s:{rate:g}" if rate != base else f"0s:{base:g}")
        rows.append(round(base * _CHANGE * window_s + rate * (_WINDOWS - _CHANGE) * window_s))
    return (
        generated_join((rates[0], rates[1]), (rows[0], rows[1]), window_s, streams.eps, streams.seed),
        (rows[0], rows[1]),
    )


def _batches(trial: Trial, schedule: tuple[tuple[int, Layout], ...], folder: str) -> Iterator[BatchFacts]:
    query = InProcessQuery(_join(trial)[0], Path(folder), trial.cells, trial.size, schedule)
    try:
        while (facts := query.batch()) is not None:
            yield facts
    finally:
        query.close()


def moving(trial: Trial) -> TrialOutcome:
    """Measure a query whose second stream's rate changes after a third of the time, by a fixed or adaptive layout.

    Numbers: ``seconds`` if each cell had a core, ``all_seconds`` of all cells and the source together, ``shipped``
    tuples, ``read`` tuples, ``predicted_shipped`` by DAB's cost (section 4.2) for a layout that is always the best one,
    or for the fixed one.
    """
    fixed = None if trial.layout == _ADAPTIVE else Layout.parse(trial.layout, 2)
    schedule = () if fixed is None else ((0, fixed),)
    numbers: dict[str, list[float]] = {
        name: [] for name in ("seconds", "all_seconds", "shipped", "read", "predicted_shipped")
    }
    found = 0
    for _ in range(trial.runs):
        with tempfile.TemporaryDirectory(prefix="streamjoin-figures-") as folder:
            batches = list(_batches(trial, schedule, folder))
        found = sum(batch.matches for batch in batches)
        numbers["seconds"].append(sum(batch.seconds for batch in batches))
        numbers["all_seconds"].append(sum(batch.source_s + sum(batch.cells_s) for batch in batches))
        numbers["shipped"].append(float(sum(batch.shipped for batch in batches)))
        numbers["read"].append(float(sum(batch.read for batch in batches)))
        numbers["predicted_shipped"].append(_predicted_shipped(trial, fixed))
    return TrialOutcome(numbers, {}, found, _expected(trial), [])


def _predicted_shipped(trial: Trial, fixed: Layout | None) -> float:
    streams = streams_of(trial)
    total = 0.0
    for windows, rates in ((_CHANGE, (streams.rates[0],) * 2), (_WINDOWS - _CHANGE, streams.rates)):
        load = Load.of_windows(rates, streams.windows_s)
        layout = fixed or choose_layout(trial.cells, load)
        total += layout_cost(layout, load).shipped_rows_per_s * windows * streams.windows_s[0]
    return total


def changing(trial: Trial) -> TrialOutcome:
    """Measure the batches round a change of layout in the middle of the input, at rates that do not change.

    Numbers, in milliseconds of a batch if each cell had a core: ``before_ms``, ``change_ms`` (the batch that begins the
    new layout), ``both_ms`` (while both layouts have tuples in the windows), ``after_ms``.
    """
    _, rows = _join(trial)
    square = _square(trial.cells)
    other = Layout.parse(trial.layout, 2)
    schedule = ((0, square), (sum(rows) // 2, other))
    numbers: dict[str, list[float]] = {name: [] for name in ("before_ms", "change_ms", "both_ms", "after_ms")}
    found = 0
    for _ in range(trial.runs):
        with tempfile.TemporaryDirectory(prefix="streamjoin-figures-") as folder:
            batches = list(_batches(trial, schedule, folder))
        found = sum(batch.matches for batch in batches)
        places = [place for place, batch in enumerate(batches) if len(batch.layouts) > 1]
        if not places:
            msg = "a trial of a change of layout has no batch with both layouts"
            raise BenchError(msg, name=trial.kind, hint="give smaller batches: a change needs one within a window")
        parts = batches[places[0] // 2 : places[0]], [batches[places[0]]], batches[places[0] + 1 : places[-1] + 1]
        for name, part in zip(numbers, (*parts, batches[places[-1] + 1 : -1]), strict=True):
            numbers[name].append(statistics.median([batch.seconds * 1e3 for batch in part or parts[1]]))
    return TrialOutcome(numbers, {}, found, _expected(trial), [])


def reading_in_order(trial: Trial) -> TrialOutcome:
    """Measure how many results the reader in order holds at most, with a poll after each batch.

    Numbers: ``buffer``, results that the product's follower holds when it has read a commit and before it gives any;
    ``window``, the most results within a window's length, which a reader without punctuations would have to hold.
    """
    numbers: dict[str, list[float]] = {"buffer": [], "window": [], "batch": []}
    found = 0
    for _ in range(trial.runs):
        with tempfile.TemporaryDirectory(prefix="streamjoin-figures-") as folder:
            in_order, as_they_come = (None, None)
            found = given = most = most_of_batch = 0
            last_us = None
            times: list[np.ndarray] = []
            fixed = ((0, Layout.parse(trial.layout, 2)),)
            for _batch in _batches(trial, fixed, folder):
                if in_order is None or as_they_come is None:
                    root = str(Path(folder) / "matches")
                    in_order, as_they_come = Follower(root), Follower(root, in_order=False)
                fresh = [_times(rows) for _, rows in as_they_come.poll()]
                times += fresh
                added = sum(map(len, fresh))
                found += added
                most, most_of_batch = max(most, found - given), max(most_of_batch, added)
                for _, rows in in_order.poll():
                    passed = _times(rows)
                    given += len(passed)
                    if len(passed):
                        if (np.diff(passed) < 0).any() or (last_us is not None and passed[0] < last_us):
                            msg = "the reader in order gave results out of order"
                            raise BenchError(msg, name=trial.kind, hint="this is a defect, please report it")
                        last_us = passed[-1]
        numbers["buffer"].append(float(most))
        numbers["batch"].append(float(most_of_batch))
        window_us = round(streams_of(trial).windows_s[0] * 1e6)
        numbers["window"].append(float(_most_within(np.sort(np.concatenate(times)), window_us)))
    return TrialOutcome(numbers, {}, found, _expected(trial), [])


def _times(rows: pa.Table) -> np.ndarray:
    times: np.ndarray = rows[EVENT_TIME].cast(pa.int64()).to_numpy()
    return times


def _most_within(times: np.ndarray, length_us: int) -> int:
    """Return the most of these ascending times that lie within a span of this length."""
    ends = np.searchsorted(times, times + length_us, "left")
    return int((ends - np.arange(len(times))).max(initial=0))


def _expected(trial: Trial) -> int:
    streams = streams_of(trial)
    return _counted(streams.rates, streams.windows_s[0], streams.eps, streams.seed)


@lru_cache(maxsize=16)
def _counted(rates: tuple[float, float], window_s: float, eps: int, seed: int) -> int:
    trial = Trial(streams=BandStreams(rates, (window_s, window_s), eps=eps, seed=seed))
    join, _ = _join(trial)
    tables = []
    for stream in join.streams:
        feed = open_feed(stream, infer_schema(stream))
        chunks = [chunk.tuples for chunk in feed.read(feed.initial(), None)]
        table = pa.Table.from_batches(chunks)
        time_us = table["_ts"].cast(pa.timestamp("us", tz="UTC"))
        tables.append(table.append_column(stream.time, time_us))
    return count_matches(join, tables[0], tables[1])
