"""Measures what each step of a push costs: it calls the engine's own pieces one by one."""

from __future__ import annotations

import time
from collections import defaultdict

from streamjoin_ds.engine.probe.results import ResultBuilder
from streamjoin_ds.engine.probe.window_probe import WindowProbe
from streamjoin_ds.engine.scheduler import run_alone
from streamjoin_ds.engine.storage.conditions import oriented
from streamjoin_ds.engine.tuning import CHUNK_ROWS
from tests.bench.suites.figures.pushes import Pushes
from tests.bench.suites.figures.trial import TrialOutcome

__all__ = ["STEPS", "steps"]

# The steps: the name of the number (microseconds a tuple), and what it is called in the picture.
STEPS = {
    "insert": "insert (sort a batch, seal it as a run)",
    "search": "search and scan",
    "gather": "gather result columns",
    "merge": "merge runs",
    "delete": "delete (expiry)",
}


def steps(pushes: Pushes) -> TrialOutcome:
    """Return the microseconds that each of `STEPS` takes for a tuple, on windows that are full."""
    join, workload = pushes.joins[0], pushes.workload
    bound = join.bound
    conditions = [oriented(bound, [stream], 1 - stream) for stream in (0, 1)]
    results = ResultBuilder(bound)
    windows = list(join.windows)
    finder = WindowProbe(join.kernels, 1, CHUNK_ROWS)
    numbers: dict[str, list[float]] = {name: [] for name in STEPS}
    found = expected = 0
    spans: list[tuple[int, int]] = []
    for run in range(pushes.trial.runs):
        took: dict[str, float] = defaultdict(float)
        rows = 0
        while not took or sum(took.values()) < pushes.trial.run_s:
            begin_us, end_us = pushes.clock_us, pushes.clock_us + pushes.span_us
            batches = [workload.batch(stream, *workload.rows_within(stream, begin_us, end_us)) for stream in (0, 1)]
            matches = 0
            for stream, batch in enumerate(batches):
                other, places = windows[1 - stream], conditions[stream]
                began = time.perf_counter()
                arrived = join.forms[stream].run_columns(batch)
                sealing = windows[stream].sealing(arrived)
                window, selection = windows[stream].taking(arrived, None if sealing is None else run_alone(sealing))
                inserted = time.perf_counter()
                columns = [selection.key(condition.probe_key) for condition in places]
                took["insert"] += inserted - began
                began = inserted
                probing = finder.begin(places, columns, len(selection), other)
                for positions, partners in finder.matches(probing):
                    searched = time.perf_counter()
                    block = {stream: selection.take(positions), 1 - stream: partners}
                    matches += run_alone(results.table(block)).num_rows
                    gathered = time.perf_counter()
                    took["search"] += searched - began
                    took["gather"] += gathered - searched
                    began = gathered
                took["search"] += time.perf_counter() - began
                windows[stream] = window
            began = time.perf_counter()
            windows = [w.expired(end_us - extent) for w, extent in zip(windows, workload.windows_us, strict=True)]
            expired = time.perf_counter()
            windows = [window.merged() for window in windows]
            took["delete"] += expired - began
            took["merge"] += time.perf_counter() - expired
            pushes.clock_us = end_us
            rows += sum(batch.num_rows for batch in batches)
            if run == 0 and not spans:
                spans.append((begin_us, end_us))
                found, expected = matches, workload.matches_of_push(begin_us, end_us)
        for name in STEPS:
            numbers[name].append(took[name] * 1e6 / rows)
    return TrialOutcome(numbers, {}, found, expected, spans)
