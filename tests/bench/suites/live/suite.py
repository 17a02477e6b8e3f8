"""The suite of streams: it measures joins whose windows are full, from source to committed table.

Nearly every measure starts live queries in processes of their own (`live`), over endless generated streams with fixed
seeds. The matches of a query's first batches are compared with an independent count. A rate is a median over batches,
timed from commit to commit, so that it includes everything that a batch costs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.stream.query_options import DEFAULT_MAX_ROWS
from tests.bench.suites.live.finding import Finding, StreamSettings
from tests.bench.suites.live.live import LiveTask
from tests.bench.suites.live.live_process import LiveProcess, LiveRun
from tests.bench.suites.live.query_runs import LIVE_WITHIN_S, done, query_folder, query_log
from tests.bench.suites.live.rate_change import measure_rates
from tests.bench.suites.live.step_load import StepLoad, tuple_delays
from tests.bench.suites.paths.inputs import slice_input
from tests.bench.suites.paths.side_process import SideProcess
from tests.bench.suites.paths.suite import CountCheck, Settings, measure, run_side
from tests.bench.suites.processes import load_psutil
from tests.bench.suites.sides import OURS
from tests.bench.suites.workloads import make_workload

__all__ = ["LONG", "MEASURES", "measure_streams"]

_LLHJ = "band2d-llhj"
_LLHJ_RATE = 5_117  # tuples a second of each stream
_SECOND_US = 1_000_000
_PEER_HANG_S = 300.0


Say = Callable[[str], None]


def measure_streams(names: Sequence[str], settings: StreamSettings, say: Say) -> list[Finding]:
    """Do the named measures.

    Parameters
    ----------
    names : sequence of str
        Keys of `MEASURES`.
    settings : StreamSettings
        How to measure.
    say : callable
        Takes a line about what is being done.

    Returns
    -------
    list of Finding
        In the order of `names`.

    Raises
    ------
    ArgumentError
        There is no measure of a name.
    BenchError
        A query failed, or its number of matches is wrong.
    DependencyMissingError
        psutil, or what a peer needs, is not installed.
    """
    load_psutil()
    for name in names:
        if name not in MEASURES:
            msg = f"there is no measure '{name}'"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(MEASURES)}")
    findings = []
    for name in names:
        for finding in MEASURES[name](settings, say):
            say(f"{name}: {finding.measure} {finding.value:,.4g} {finding.unit}")
            findings.append(finding)
    return findings


def _full_windows(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure how many times as fast as real time `band2d-llhj` runs over full windows; peers as far as they get."""
    window_s = 4 if settings.quick else 900
    batch_rows = 10_000 if settings.quick else DEFAULT_MAX_ROWS
    run = _filled_run(settings, say, _LLHJ_RATE, window_s, batch_rows, keep_rows=True)
    speed = run.rate(lambda batch: sum(batch["read"]) / (2 * _LLHJ_RATE))
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    note = f"windows of {window_s} s full ({run.batches[-1]['state_rows']:,} tuples), batches of {batch_rows:,} rows"
    bound = settings.bound(15.0)
    peers: dict[str, tuple[float | None, str]] = dict(_peer_speeds(settings, say)) or {"": (None, "")}
    for peer, (peer_speed, peer_note) in peers.items():
        told = f"{note}; {peer_note}" if peer else note
        yield Finding(_LLHJ, "real_time", speed, "times", bound, None, peer, peer_speed, note=told, **common)
    yield Finding(_LLHJ, "full_results_per_second", run.rate(lambda batch: batch["matches"]), "rows/s", **common)


def _filled_run(
    settings: StreamSettings, say: Say, rate: int, window_s: int, batch_rows: int, *, keep_rows: bool
) -> LiveRun:
    fill_rows = 2 * rate * window_s
    say(f"  {rate:,} tuples/s a stream, {window_s} s windows: {fill_rows:,} tuples fill them")
    with query_folder() as folder:
        window_us = window_s * _SECOND_US
        return done(LiveTask(folder, rate, window_us, 10, settings.batches, batch_rows, fill_rows, keep_rows=keep_rows))


def _peer_speeds(settings: StreamSettings, say: Say) -> Iterator[tuple[str, tuple[float | None, str]]]:
    """Give for each peer how many times as fast as real time it is, over the last part of what it takes in.

    A peer's windows begin empty, and the fuller they are, the slower it is. So each peer is run twice, the second time
    with a longer limit. Its speed is that of the stretch between the ends of the two runs. Its matches are checked too.
    """
    if not settings.peers:
        return
    rows = 20_000 if settings.quick else None
    workload = make_workload(_LLHJ, None, rows)
    assert workload is not None, "it is generated"
    limit_s = 5 if settings.quick else settings.limit_s
    with query_folder() as folder, query_log() as log:
        given = slice_input(workload, Path(folder) / "input")
        check = CountCheck(workload, given)
        for peer in settings.peers:
            runs = []
            with SideProcess(peer, log) as process:
                # The first run is not measured: compilers warm up, workers start.
                for slices, within_s in ((1, limit_s), (workload.slices, limit_s), (workload.slices, 3 * limit_s)):
                    limits = Settings(1, settings.peers, None, rows, within_s)
                    runs.append(run_side(process, workload, limits, given, slices).outcome)
                    check(peer, runs[-1])
            _, near, far = runs
            rest = far.rows > near.rows and far.seconds > near.seconds
            taken, seconds = (far.rows - near.rows, far.seconds - near.seconds) if rest else (far.rows, far.seconds)
            since_s, until_s = (count / (2 * _LLHJ_RATE) for count in (far.rows - taken, far.rows))
            note = (
                f"{peer} began with empty windows and took {far.seconds:.0f} s for {until_s:,.0f} s of stream time; "
                f"its speed is that from {since_s:,.0f} s on"
            )
            say(f"  {note}")
            yield peer, (taken / (2 * _LLHJ_RATE) / seconds, note)


def _rate(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure whether a rate is kept with 15-minute windows: how many times as fast as real time, and the memory."""
    rate, window_s, batch_rows = (2_000, 4, 10_000) if settings.quick else (settings.rate, 900, 1_000_000)
    run = _filled_run(settings, say, rate, window_s, batch_rows, keep_rows=False)
    speed = run.rate(lambda batch: sum(batch["read"]) / (2 * rate))
    workload = f"band2d, {rate:,}/s, {window_s} s"
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    note = (
        f"{run.batches[-1]['state_rows']:,} tuples in the windows, batches of {batch_rows:,} rows, matches deleted "
        "after each batch"
    )
    kept = float(rate) if speed >= 1 else 0.0
    yield Finding(workload, "rate_kept", kept, "tuples/s a stream", settings.bound(30_000.0), note=note, **common)
    yield Finding(workload, "real_time", speed, "times", settings.bound(1.0), **common)
    yield Finding(workload, "results_per_second", run.rate(lambda batch: batch["matches"]), "rows/s", **common)
    yield Finding(workload, "peak_memory", run.peak_mib, "MiB", None, settings.bound(24_576.0), **common)


def _results(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure the result rows committed in a second where there are many: the bands are ten times as wide."""
    window_s, batch_rows = (4, 10_000) if settings.quick else (60, 200_000)
    fill_rows = 2 * _LLHJ_RATE * window_s
    say(f"  bands of 100, {window_s} s windows")
    with query_folder() as folder:
        batches = settings.batches if settings.quick else 3 * settings.batches
        task = LiveTask(folder, _LLHJ_RATE, window_s * _SECOND_US, 100, batches, batch_rows, fill_rows, keep_rows=False)
        run = done(task)
    value = run.rate(lambda batch: batch["matches"])
    a_row = statistics.median(batch["matches"] / sum(batch["read"]) for batch in run.batches if batch["full"])
    note = f"{a_row:,.0f} matches a row, batches of {batch_rows:,} rows"
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    yield Finding("band2d-wide", "results_per_second", value, "rows/s", settings.bound(15e6), note=note, **common)


def _input_bound(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure the input rows in a second where few match, by the workload of the suite of full paths."""
    rows = 50_000 if settings.quick else None
    limit_s = 5 if settings.quick else settings.limit_s
    [result] = measure(["input-bound"], Settings(1 if settings.quick else 3, settings.peers, None, rows, limit_s), say)
    value, peak_mib = (result.median(OURS, of) for of in (lambda run: run.rows_per_second, lambda run: run.peak_mib))
    others = result.median(OURS, lambda run: run.others_cores)
    peers: dict[str, float | None] = {
        peer: result.median(peer, lambda run: run.rows_per_second) for peer in settings.peers
    } or {"": None}
    for peer, peer_value in peers.items():
        yield Finding(
            "input-bound",
            "rows_per_second",
            value,
            "rows/s",
            settings.bound(4e6),
            None,
            peer,
            peer_value,
            peak_mib,
            result.workload.summary,
            others,
        )


def _state(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure the bytes of state that a batch writes for each of its rows, as the window grows 16-fold.

    There are two kinds. Spark writes the cells' state rows (manifest, tail, runs too small for a block) anew in every
    batch: they must not grow with the window. Each block is written once. A tuple in a window of a few batches is in
    one block. In a larger window it is in two: that of its batch, and a merged one (`engine.storage.merge_policy`).
    """
    rate, batch_rows = 512, 2_000 if settings.quick else 10_000
    # All windows are filled and weighed over the same number of batches, so that as many retired blocks are named.
    windows = (2, 8) if settings.quick else (4, 16, 64)
    filling = weighing = max(windows)
    found: dict[str, list[float]] = {"row_bytes": [], "block_bytes": []}
    workload = "band2d, windows x 16"
    common: dict[str, Any] = {"peak_mib": 0.0, "others_cores": 0.0}
    for batches in windows:
        window_us = batches * batch_rows * _SECOND_US // (2 * rate)
        say(f"  windows of {batches} batches of {batch_rows:,} rows, weighed over {weighing} batches")
        with query_folder() as folder:
            run = done(LiveTask(folder, rate, window_us, 10, weighing, batch_rows, filling * batch_rows, weigh=True))
        common = {name: max(value, getattr(run, name)) for name, value in common.items()}
        for name, values in found.items():
            values.append(run.bytes_per_row(name))
            at_most = settings.bound(_COPIES * _ROW_BYTES) if name == "block_bytes" else None
            yield Finding(workload, f"state_{name}_{batches}", values[-1], "B a row", None, at_most, **common)
    notes = {
        "row_bytes": "the cells' state rows: manifest, tail, small runs",
        "block_bytes": f"blocks: a row of {_ROW_BYTES} B is written once in windows of few batches, else at most twice",
    }
    for name, values in found.items():
        at_most = settings.bound(_FLAT) if name == "row_bytes" else None
        yield Finding(
            workload, f"state_{name}_growth", values[-1] / values[0], "times", None, at_most, note=notes[name], **common
        )
    total = [sum(values) for values in zip(*found.values(), strict=True)]
    yield Finding(workload, "state_bytes_growth", total[-1] / total[0], "times", note="both together", **common)


def _trigger(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure a trigger, beside an empty one, and the wait from due to commit: 5 000 tuples/s a stream in real time."""
    rate, window_s, batches = 5_000, 3 if settings.quick else 60, 5 if settings.quick else 60
    fill_rows = 2 * rate * window_s
    say(f"  {rate:,} tuples/s a stream in real time, {window_s} s windows, {batches} batches")
    with query_folder() as folder:
        task = LiveTask(
            folder,
            rate,
            window_s * _SECOND_US,
            10,
            batches + _SETTLING_BATCHES,
            fill_rows,
            fill_rows,
            fill_batch_rows=fill_rows,
            pace="1",
            empty_triggers=batches,
        )
        run = done(task)
    # The first triggers after the fill are left out: the restart made tuples wait, and Java still compiles code.
    triggers, waits = run.trigger_ms()[_SETTLING_BATCHES:], run.waits_ms()[_SETTLING_BATCHES * 50 :]
    workload = f"band2d, {rate:,}/s, {window_s} s, real time"
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    at_most = settings.bound(350.0)
    yield Finding(
        workload, "trigger_p50", _quantile(triggers, 0.5), "ms", None, at_most, note=f"{batches} triggers", **common
    )
    yield Finding(workload, "trigger_p99", _quantile(triggers, 0.99), "ms", **common)
    empty_ms = _quantile(run.empty_ms, 0.5)
    note = "an empty trigger of Spark in the same session: two stages, a row, a count, a sink that does nothing"
    yield Finding(workload, "empty_trigger_p50", empty_ms, "ms", note=note)
    yield Finding(workload, "trigger_over_empty", _quantile(triggers, 0.5) / empty_ms, "times")
    for phase in ("queryPlanning", "walCommit", "addBatch", "commitOffsets"):
        yield Finding(workload, f"trigger_{phase}", _quantile(run.trigger_ms(phase)[_SETTLING_BATCHES:], 0.5), "ms")
    note = "a tuple is due when the clock is at its event time; assumed: evenly between two triggers' beginnings"
    yield Finding(workload, "due_to_commit_p50", _quantile(waits, 0.5), "ms", note=note, **common)
    yield Finding(workload, "due_to_commit_p99", _quantile(waits, 0.99), "ms", **common)


def _delay(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure how long each tuple waits for its commit under a bound: 20 000 tuples/s a stream, once to five times."""
    times = (1, 3, 1) if settings.quick else (1, 2, 3, 4, 5, 4, 3, 2, 1, 5, 1)
    load = StepLoad(500, times, 2, 4) if settings.quick else StepLoad(20_000, times, 12, 40)
    window_s, max_delay = 2, "500ms"
    say(f"  {load.rate:,} tuples/s a stream and up to {max(times)} times that, {window_s} s windows, {max_delay}")
    with query_folder() as folder:
        task = LiveTask(
            folder, 0, window_s * _SECOND_US, 10, 0, _DELAY_ROWS, pace="1", rates=load.rates, rows=2 * load.rows,
            max_delay=max_delay,
        )  # fmt: skip
        run = done(task)
    due_s, delay_ms = tuple_delays(run)
    steps = load.by_step(due_s, delay_ms)
    workload = f"band2d, {load.rate:,}/s in steps, {window_s} s, max_delay {max_delay}"
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    counted = np.concatenate(steps)
    note = f"each of {len(counted):,} tuples; steps of {load.step_s} s at {', '.join(map(str, times))} times that rate"
    yield Finding(workload, "due_to_commit_p50", float(np.quantile(counted, 0.5)), "ms", note=note, **common)
    at_most = settings.bound(1_000.0)
    yield Finding(workload, "due_to_commit_p99", float(np.quantile(counted, 0.99)), "ms", None, at_most, **common)
    for number, (multiple, waits) in enumerate(zip(times, steps, strict=True), start=1):
        p50, p99 = (float(np.quantile(waits, share)) for share in (0.5, 0.99))
        note = f"{multiple} x {load.rate:,} tuples/s a stream; p50 {p50:,.0f} ms"
        yield Finding(workload, f"step_{number}_p99", p99, "ms", note=note)


def _restart(settings: StreamSettings, say: Say) -> Iterator[Finding]:
    """Measure the seconds from the start of a process to its first commit, after one was killed with full windows."""
    window_s, batch_rows = (4, 10_000) if settings.quick else (900, 1_000_000)
    fill_rows = 2 * _LLHJ_RATE * window_s
    say(f"  {fill_rows:,} tuples in the windows, then kill -9 and a start")
    with query_folder() as folder, query_log() as log:
        # After the fill the query runs in real time: a batch has the tuples of a second or two.
        task = LiveTask(
            folder,
            _LLHJ_RATE,
            window_s * _SECOND_US,
            10,
            1_000_000,
            batch_rows,
            fill_rows,
            fill_batch_rows=batch_rows,
            pace="1",
        )
        with LiveProcess(task, log) as process:
            process.await_batches(4, LIVE_WITHIN_S).check()
            process.kill()
        again = LiveTask(folder, _LLHJ_RATE, window_s * _SECOND_US, 10, 2, batch_rows, pace="1")
        with LiveProcess(again, log) as process:
            run = process.await_end(LIVE_WITHIN_S)
    with query_folder() as folder:
        empty = done(replace(again, folder=folder))
    first_s, empty_s = (one.batches[0]["at_s"] - one.started_s for one in (run, empty))
    session_s = run.session_s - run.started_s
    common: dict[str, Any] = {"peak_mib": run.peak_mib, "others_cores": run.others_cores}
    note = f"{run.batches[0]['state_rows']:,} tuples in the windows; Spark's session is up after {session_s:.1f} s"
    workload = f"{_LLHJ}, restart"
    yield Finding(workload, "first_commit", first_s, "s", None, settings.bound(10.0), note=note, **common)
    note = f"{empty_s:.1f} s with empty windows"
    yield Finding(workload, "over_empty", first_s / empty_s, "times", None, settings.bound(1.5), note=note, **common)
    yield Finding(workload, "session", session_s, "s", **common)


# The measures by name; each yields its findings, one by one.
MEASURES: Mapping[str, Callable[[StreamSettings, Say], Iterator[Finding]]] = {
    "full-windows": _full_windows,
    "results": _results,
    "input-bound": _input_bound,
    "state": _state,
    "trigger": _trigger,
    "delay": _delay,
    "restart": _restart,
    "rate": _rate,
    "rates": measure_rates,
}
# Measures that are done only if they are named: they take many minutes.
LONG = ("rate", "rates")

_DELAY_ROWS = 4_000_000  # most rows of a batch under a bound of delays: what the bound allows is less
_SETTLING_BATCHES = 5  # triggers after the fill's restart that are not measured
_FLAT = 1.1  # most growth of the state rows, in times, as the window grows 16-fold
# Bytes of a tuple of band2d: time, number and two values. Blocks may hold it twice, and need some room for headers.
_ROW_BYTES, _COPIES = 24, 2.1


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
