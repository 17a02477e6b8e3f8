"""Pushes a trial's tuples into its engine or engines, and fills their windows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from tests.bench.suites.figures.trial import Trial

__all__ = ["Pushes", "filled"]

_STRETCH_ROWS = 1 << 16  # tuples of a stream that are made at once
_FILL_PARTS = 8  # a window that may be filled fast is filled in about so many pushes,
_MOST_FILL_ROWS = 1 << 18  # of at most so many tuples each
_MOST_WARM_S = 0.5  # seconds of pushes after the fill, before anything is measured


class Pushes:
    """The trial's tuples, push by push, and the engine or engines that take them."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.workload = trial, trial.workload
        threads, bound = trial.threads if trial.cells == 1 else 1, trial.workload.bound()
        execution = Execution(trial.kernel, threads, index=trial.index, merge_runs=trial.merge_runs)
        bucket_rows = 1 if trial.in_grid else None
        self.joins = [WindowJoin(bound, execution=execution, bucket_rows=bucket_rows) for _ in range(trial.cells)]
        self._executor = ThreadPoolExecutor(trial.cells) if trial.cells > 1 else None
        self.clock_us = 0
        # For each stream: tuples older than this are not pushed. They would have expired by the time both are full.
        self.oldest_us = (0, 0)
        self.span_us = trial.push_rows * min(trial.workload.steps_us)
        self._stretches: dict[int, tuple[int, pa.RecordBatch]] = {}
        self.matches = 0
        self.rows = 0

    def close(self) -> None:
        """End the threads that push to several engines."""
        if self._executor is not None:
            self._executor.shutdown()

    def push(self, span_us: int | None = None) -> float:
        """Push the next span of event time; return the seconds that the engine took, once its tuples were ready."""
        begin_us, end_us = self.clock_us, self.clock_us + (span_us or self.span_us)
        batches = {stream: self._batch(stream, begin_us, end_us) for stream in (0, 1)}
        began = time.perf_counter()
        if self._executor is None:
            found = _pushed(self.joins[0], batches, end_us)
        else:
            cells = enumerate(self.joins)
            found = sum(self._executor.map(lambda cell: _pushed(cell[1], self._dealt(batches, cell[0]), end_us), cells))
        elapsed_s = time.perf_counter() - began
        self.clock_us = end_us
        self.matches += found
        self.rows += sum(batch.num_rows for batch in batches.values())
        return elapsed_s

    def _dealt(self, batches: Mapping[int, pa.RecordBatch], cell: int) -> dict[int, pa.RecordBatch]:
        """Return what a cell is given: all tuples of stream r, and every n-th of s if there are n cells."""
        mine = batches[1].column(1).to_numpy() % len(self.joins) == cell
        return {0: batches[0], 1: batches[1].filter(pa.array(mine))}

    def _batch(self, stream: int, begin_us: int, end_us: int) -> pa.RecordBatch:
        first, last = self.workload.rows_within(stream, max(begin_us, self.oldest_us[stream]), end_us)
        last = max(first, last)
        start, rows = self._stretches.get(stream, (0, None))
        if rows is None or first < start or last > start + rows.num_rows:
            start, rows = first, self.workload.batch(stream, first, max(last, first + _STRETCH_ROWS))
            self._stretches[stream] = start, rows
        return rows.slice(first - start, last - first)


def _pushed(join: WindowJoin, batches: Mapping[int, pa.RecordBatch], watermark_us: int) -> int:
    return sum([chunk.num_rows for chunk in join.push(batches, watermark_us)])


def filled(trial: Trial) -> Pushes:
    """Return an engine (or engines) with full windows, after some pushes that warm it up."""
    pushes = Pushes(trial)
    windows_us = trial.workload.windows_us
    longest_us = max(windows_us)
    pushes.oldest_us = longest_us - windows_us[0], longest_us - windows_us[1]
    fill_us = pushes.span_us
    if not trial.is_steady:
        fill_us = max(fill_us, min(_MOST_FILL_ROWS * min(trial.workload.steps_us), longest_us // _FILL_PARTS))
    while pushes.clock_us < longest_us:
        pushes.push(fill_us)
    warm_s = 0.0
    for _ in range(20):
        warm_s += pushes.push()
        if warm_s > min(_MOST_WARM_S, 2 * trial.run_s):
            break
    return pushes
