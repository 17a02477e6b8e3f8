"""Trials of layouts of cells: what they give at a rate, which rate they keep, and how long each result takes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.plan import Layout, Load, layout_cost
from tests.bench.suites.figures.band_streams import BandStreams
from tests.bench.suites.figures.cell_load import (
    engine_options,
    filled_engine,
    layout_load,
    layout_of,
    pair_s,
    streams_of,
)
from tests.bench.suites.figures.trial import Trial, TrialOutcome

__all__ = ["dropping", "latency", "offered", "sustained"]

_SECOND_US = 1_000_000
# Rates that are tried; the page says so. With an index the work does not grow with the square of the rates.
_SCAN_TRIES, _INDEX_TRIES = 4, 8
_NEAR = 0.96  # a rate at which the slowest cell is busy for this share of the time is near enough to the highest
_AIM = 0.985  # the share of the time for which it is to be busy at the next rate that is tried
_MOST_STEP = 3.0  # how many times the rate before it the next one may be
_SPIN_S = 2e-3  # how long before an arrival the waiting thread stops sleeping


def offered(trial: Trial) -> TrialOutcome:
    """Measure what the cells give at the rates of the streams, beside DP-Join's equations 3 and 4.

    The outcome's numbers, a second: ``results`` (no more than the cells can do), ``most_results`` (without that limit),
    ``could`` (if the streams had no limit), and ``shipped`` tuples; each also ``predicted_``. ``times_one`` is how many
    times the results of one cell the cells could give.
    """
    streams, layout = streams_of(trial), layout_of(trial)
    load = layout_load(trial)
    one_cell = streams.hit_rate / pair_s(trial)
    predicted = streams.hit_rate * streams.load.pairs_per_s
    given = [
        {
            "results": results / max(slowest, load.stretch_s),
            "most_results": results / load.stretch_s,
            "could": results / max(slowest, 1e-9),
            "times_one": results / max(slowest, 1e-9) / one_cell,
            "shipped": shipped / load.stretch_s,
            "predicted_results": min(predicted, layout.cells * one_cell),
            "predicted_most_results": predicted,
            "predicted_could": layout.cells * one_cell,
            "predicted_times_one": float(layout.cells),
            "predicted_shipped": layout_cost(layout, streams.load).shipped_rows_per_s,
        }
        for slowest, results, shipped in zip(load.slowest_s, load.results, load.shipped, strict=True)
    ]
    numbers = {name: [float(numbers[name]) for numbers in given] for name in given[0]}
    return TrialOutcome(numbers, {}, load.found, load.expected, [])


@dataclass(frozen=True, slots=True)
class _Kept:
    """The highest rates that were kept, with what was measured there."""

    streams: BandStreams
    busy: list[float]
    results_per_s: list[float]
    found: int
    expected: int


def _kept(trial: Trial, streams: BandStreams, times: float, most: float = math.inf) -> _Kept:
    """Return the streams at the highest rates, of those that were tried, at which no cell is busy all the time.

    The work grows with the square of the rates, so each try tells the next one. Rates are first multiplied by `times`,
    and never by more than `most`.
    """
    best: _Kept | None = None
    found = expected = 0
    for _ in range(_SCAN_TRIES if trial.index == "scan" else _INDEX_TRIES):
        tried = _faster(streams, times)
        load = layout_load(trial, tried)
        found, expected = found + load.found, expected + load.expected
        busy = statistics.median(load.busy)
        this = _Kept(tried, load.busy, [results / load.stretch_s for results in load.results], found, expected)
        if busy <= 1 and (best is None or tried.rates > best.streams.rates):
            best = this
            if busy >= _NEAR or times >= most:
                break
        times = min(times * min(math.sqrt(_AIM / max(busy, 1e-6)), _MOST_STEP), most)
    if best is None:  # noise: even slower streams were not kept
        best = this
    return replace(best, found=found, expected=expected)


def _faster(streams: BandStreams, times: float) -> BandStreams:
    return replace(streams, rates=(streams.rates[0] * times, streams.rates[1] * times))


def sustained(trial: Trial) -> TrialOutcome:
    """Measure the highest rate of each stream that the layout keeps; the trial's rates are where the search begins.

    Numbers: ``rate``; ``predicted_rate``, from the pairs that the cells can test; ``results`` a second there.
    """
    streams, layout = streams_of(trial), layout_of(trial)
    workers = layout.cells * trial.threads

    def predicted_times(test_s: float) -> float:
        return math.sqrt(workers / (test_s * streams.load.pairs_per_s))

    kept = _kept(trial, streams, 0.97 * predicted_times(pair_s(trial)) if trial.index == "scan" else 1.0)
    rates = [kept.streams.rates[0] / max(math.sqrt(busy), 1.0) for busy in kept.busy]
    numbers = {"rate": rates, "results": kept.results_per_s}
    if trial.index == "scan":
        at_rate = replace(trial, streams=kept.streams)
        times = math.sqrt(workers / (pair_s(at_rate) * kept.streams.load.pairs_per_s))
        numbers["predicted_rate"] = [kept.streams.rates[0] * times] * len(rates)
    return TrialOutcome(numbers, {}, kept.found, kept.expected, [])


def dropping(trial: Trial) -> TrialOutcome:
    """Measure the results a second, and the tuples that must be dropped, at the trial's rates.

    Where the engine cannot keep up, tuples are dropped evenly at its inputs until it can: windows hold fewer then.
    """
    streams = streams_of(trial)
    kept = _kept(trial, streams, 1.0, 1.0)
    results = [given / max(busy, 1.0) for given, busy in zip(kept.results_per_s, kept.busy, strict=True)]
    dropped = [max(sum(streams.rates) - sum(kept.streams.rates) / max(math.sqrt(busy), 1.0), 0.0) for busy in kept.busy]
    return TrialOutcome({"results": results, "dropped": dropped}, {}, kept.found, kept.expected, [])


def latency(trial: Trial) -> TrialOutcome:
    """Measure for each result the time from the arrival of its newest tuple until the engine has given it.

    Tuples arrive in real time, at their event times. `push_rows` tuples of a stream are pushed at once, when the last
    of them has arrived; a result's latency begins with its own newest tuple. Each cell of the layout is paced alone.

    Numbers, in milliseconds: ``mean_ms``, ``median_ms``, ``deviation_ms``, ``largest_ms``, ``p99_ms``; ``predicted_ms``
    by DP-Join's equations 5 and 6; ``predicted_end_ms`` where results are given at the end of a scan.
    """
    streams, layout = streams_of(trial), layout_of(trial)
    begin_us = round(streams.warm_us * max(trial.fill, 1.0))
    run_us = round(trial.run_s * _SECOND_US)
    waits: list[list[np.ndarray]] = [[] for _ in range(trial.runs)]
    for cell in range(layout.cells):
        join = filled_engine(streams, layout, cell, begin_us, trial.fill, **engine_options(trial))
        for run in range(trial.runs):
            start_us = begin_us + run * run_us
            pushes = list(_arrivals(trial, layout, cell, start_us, start_us + run_us))
            if run == 0 and pushes:
                list(join.probe({pushes[0][1]: pushes[0][2]}))
            began = time.perf_counter() - start_us / _SECOND_US
            for due_us, stream, batch, watermark_us in pushes:
                _wait_until(began + due_us / _SECOND_US)
                for chunk in join.push({stream: batch}, watermark_us):
                    now = time.perf_counter()
                    newest_us = chunk["event_time"].cast(pa.int64()).to_numpy()
                    waits[run].append(now - began - newest_us / _SECOND_US)
        join.use_threads(1)
    found = [np.concatenate([np.empty(0), *of_run]) * 1e3 for of_run in waits]
    expected = streams.matches_of(begin_us, begin_us + run_us, trial.fill)
    numbers = {
        "mean_ms": [float(values.mean()) if len(values) else 0.0 for values in found],
        "median_ms": [float(np.median(values)) if len(values) else 0.0 for values in found],
        "deviation_ms": [float(values.std()) if len(values) else 0.0 for values in found],
        "largest_ms": [float(values.max(initial=0.0)) for values in found],
        "p99_ms": [float(np.quantile(values, 0.99)) if len(values) else 0.0 for values in found],
        "given": [float(len(values)) for values in found],
    }
    if trial.index == "scan":
        full = streams.load
        held = Load(full.rates, tuple(rows * min(trial.fill, 1.0) for rows in full.held_rows))
        mean_ms = layout_cost(layout, held).probed_rows * pair_s(trial, 1) * 1e3
        numbers["predicted_ms"] = [mean_ms] * trial.runs
        numbers["predicted_end_ms"] = [2 * mean_ms] * trial.runs
    return TrialOutcome(numbers, {}, len(found[0]), expected, [])


def _arrivals(
    trial: Trial, layout: Layout, cell: int, begin_us: int, end_us: int
) -> Iterator[tuple[int, int, pa.RecordBatch, int]]:
    """Yield a cell's pushes in the order of time: when each is due, its stream, its tuples, the watermark after it."""
    streams = streams_of(trial)
    pushes = []
    for stream in (0, 1):
        first, last = (streams.first_row(stream, at_us) for at_us in (begin_us, end_us))
        group = layout.group_in_cell(cell, stream), layout.counts[stream]
        for begin in range(first, last, trial.push_rows):
            until = min(begin + trial.push_rows, last)
            batch = streams.batch(stream, begin, until, *group)
            if batch.num_rows:
                pushes.append((int(streams.times_us(stream, np.array([until - 1]))[0]), stream, batch))
    pushes.sort(key=lambda push: push[:2])
    # Tuples of the other stream that come later may be as old as the tuples of two pushes before.
    slack_us = round(2 * trial.push_rows * _SECOND_US / min(streams.rates))
    for due_us, stream, batch in pushes:
        yield due_us, stream, batch, due_us - slack_us


def _wait_until(at: float) -> None:
    while (left := at - time.perf_counter()) > 0:
        if left > _SPIN_S:
            time.sleep(left - _SPIN_S)
