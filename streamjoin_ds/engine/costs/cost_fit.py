"""Fits what the engine's operations cost here: it measures them on small windows of made-up tuples.

The windows are of a *twin* of the join: two streams whose keys are of the same kinds, with as many conditions. So its
probes run the same kernels. Columns that only travel are left out: what they cost depends on no size of a run.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import fixed_width
from streamjoin_ds.engine.arrays.kernels import Kernels, load_kernels
from streamjoin_ds.engine.costs.operation_costs import OperationCosts
from streamjoin_ds.engine.reference.arguments import Column
from streamjoin_ds.engine.storage.bucket_grid.policy import BucketGridPolicy
from streamjoin_ds.engine.storage.conditions import oriented
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.threads.tasks import run_alone
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spec.bound import BoundJoin, bind
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.stream import Stream

__all__ = ["believed_costs", "fit_costs", "fitted_costs", "kinds_of"]

_log = logging.getLogger(__name__)

_MOST_KINDS = 4  # conditions of the twin besides the window's, at most
_PROBES = 16  # probes of a call: few, as in pushes that are small enough for the tail
_PROBE_SETS = 64  # calls until the same probes come again
_ROWS = (512, 4096)  # rows of a small tail or run and of a large one; the slope is what a row costs
_RUNS = (2, 12)  # runs that a probe meets
_LEAST_ROW_NS = 0.01  # what a row is taken to cost at least
_MERGED = 4  # runs that are merged
_GRID_ROWS, _BATCH_ROWS = 1 << 13, 64  # rows of a grid, and of a batch that goes into it
_TYPES = {"float": pa.float64(), "int": pa.int64(), "text": pa.string()}
_AT_ONCE = replace(DEFAULT, tail=replace(DEFAULT.tail, most_gridded_rows=0))
_DOMAIN, _EPS = 1 << 20, 1 << 9  # values of a key, and its band: a probe matches a thousandth of the rows
_ROUNDS = 5  # measurements of each operation; the shortest counts
_ROUND_NS = 100_000  # length of a measurement, at least,
_MOST_CALLS = 30  # unless it has so many calls: a clock may stand still

Clock = Callable[[], int]


def kinds_of(bound: BoundJoin) -> tuple[str, ...]:
    """Return the kinds of the conditions, "float" or "int", that a probe meets in a window besides the window's rule.

    Of several streams those of the two with the most conditions are taken. A last kind, "text", says that
    columns without a fixed width travel.
    """
    pairs: dict[tuple[int, int], list[str]] = {}
    for condition in bound.conditions[bound.window_conditions :]:
        kinds = pairs.setdefault((condition.left_stream, condition.right_stream), [])
        kinds.append("float" if condition.kind == "float" else "int")
    if not pairs:
        return ()
    schemas = (bound.tuple_schema(stream) for stream in range(len(bound.names)))
    has_text = any(not fixed_width(field.type) for schema in schemas for field in schema)
    return (*max(pairs.values(), key=len)[:_MOST_KINDS], *(("text",) if has_text else ()))


def fitted_costs(bound: BoundJoin, kernel: str = "auto") -> OperationCosts | None:
    """Return `believed_costs` for a join; they are measured once in a process for joins of one kind."""
    return _once(kinds_of(bound), load_kernels(kernel))


def believed_costs(kinds: Sequence[str], kernels: Kernels, clock: Clock = time.thread_time_ns) -> OperationCosts | None:
    """Return `fit_costs`, with its parameters; None where these costs are not known.

    They are not known where no condition compares keys, and where the measurement failed or was disturbed.
    """
    if not kinds:
        _log.debug("a join without bands and equalities has no costs to measure: the usual sizes of runs hold")
        return None
    try:
        costs = fit_costs(kinds, kernels, clock)
    except (MemoryError, ArithmeticError, StreamJoinError) as error:
        _log.debug("costs could not be measured (%s): the usual sizes of runs hold", type(error).__name__)
        return None
    if not costs.are_sane:
        _log.debug("the costs that were measured cannot be: the usual sizes of runs hold: %s", costs)
        return None
    _log.debug("costs, measured for conditions on %s: %s", ", ".join(kinds), costs)
    return costs


@lru_cache(maxsize=32)
def _once(kinds: tuple[str, ...], kernels: Kernels) -> OperationCosts | None:
    return believed_costs(kinds, kernels)


def fit_costs(kinds: Sequence[str], kernels: Kernels, clock: Clock = time.thread_time_ns) -> OperationCosts:
    """Return what operations cost, whatever comes out.

    Parameters
    ----------
    kinds : sequence of {"float", "int", "text"}
        What `kinds_of` returns, with at least one condition.
    kernels : Kernels
    clock : callable
        Returns nanoseconds. By default they are those in which this thread had a core, so that other programs disturb
        little.
    """
    twin = _Twin(kinds, kernels, clock)
    tails = [twin.probed([twin.tail(rows)]) for rows in _ROWS]
    few, many = _RUNS
    runs = [twin.form.sealed(twin.tuples(number * _ROWS[1], _ROWS[1])) for number in range(many)]
    probed = (twin.probed(runs) - twin.probed(runs[:few])) / (many - few)
    sealed_row, sealed_run = _line([twin.shortest(twin.sealing(rows)) for rows in _ROWS])
    merged_row, merged_run = _line([twin.shortest(twin.merging(rows)) for rows in _ROWS])
    return OperationCosts(
        scanned_row_ns=_line(tails)[0] / _PROBES,
        probed_run_ns=probed / _PROBES,
        sealed_run_ns=sealed_run,
        sealed_row_ns=sealed_row,
        merged_run_ns=merged_run,
        merged_row_ns=merged_row / _MERGED,
        gridded_batch_ns=twin.shortest(twin.taking(is_tailed=False)) - twin.shortest(twin.taking(is_tailed=True)),
    )


def _line(times: Sequence[float]) -> tuple[float, float]:
    """Return the slope and the height at zero of the line through the times of `_ROWS`.

    A row costs `_LEAST_ROW_NS` at least, where chance hides what it costs.
    """
    small, large = _ROWS
    slope = max((times[1] - times[0]) / (large - small), _LEAST_ROW_NS)
    return slope, times[0] - small * slope


class _Twin:
    """A join of two streams, with made-up tuples and a clock."""

    def __init__(self, kinds: Sequence[str], kernels: Kernels, clock: Clock) -> None:
        self._kinds, self._clock, self._kernels = list(kinds), clock, kernels
        columns = [pa.field(f"k{number}", _TYPES[kind]) for number, kind in enumerate(kinds)]
        schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), *columns])
        on = " AND ".join(
            f"abs(r.k{number} - s.k{number}) <= {_EPS}" for number in range(len(columns) - ("text" in kinds))
        )
        self._bound = bind(Join([Stream(name, schema=schema) for name in "rs"], on, "1h"), {"r": schema, "s": schema})
        extent = self._bound.join.window.extent(1)
        self._grids = BucketGridPolicy(_GRID_ROWS, extent)
        self.form, self._probe_form = (WindowForm(self._bound, stream, kernels) for stream in (1, 0))
        self._conditions = oriented(self._bound, [0], 1)
        self._probes = [self._columns(self.tuples(number * _PROBES, _PROBES)) for number in range(_PROBE_SETS)]
        self._out = np.empty((3, 1 << 14), dtype=np.int32)

    def _columns(self, probes: pa.RecordBatch) -> list[Column]:
        return [np.ascontiguousarray(self._probe_form.key_of(probes, c.probe_key)) for c in self._conditions]

    def tuples(self, first: int, count: int) -> pa.RecordBatch:
        """Return made-up tuples: raw random bits of a fixed seed, a tuple a microsecond."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        arrays = [pa.array(numbers), pa.array(numbers)]
        for place, kind in enumerate(self._kinds):
            words = np.random.SFC64([first, place]).random_raw(count)
            values = pa.array((words % np.uint64(_DOMAIN)).astype(np.int64))
            arrays.append(values.cast(_TYPES[kind]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._bound.tuple_schema(1))

    def tail(self, rows: int) -> Run:
        """Return a tail of so many tuples."""
        return Tail.of(self.form, self.tuples(0, rows))

    def sealing(self, rows: int) -> Callable[[], object]:
        """Return a function that makes a run of so many tuples."""
        tuples = self.tuples(0, rows)
        return lambda: self.form.sealed(tuples)

    def merging(self, rows: int) -> Callable[[], object]:
        """Return a function that merges runs of so many tuples each."""
        runs = [self.form.sealed(self.tuples(number * rows, rows)) for number in range(_MERGED)]
        return lambda: run_alone(self.form.merging_runs(runs))

    def taking(self, *, is_tailed: bool) -> Callable[[], object]:
        """Return a function that gives some rows to a window in a bucket grid: to its tail, or to the grid at once."""
        form = WindowForm(self._bound, 1, self._kernels, bucket_policy=self._grids, tuning=_AT_ONCE)
        window = Window(form).inserted(form.sealed(self.tuples(0, _GRID_ROWS))).merged()
        arrived = form.tuple_columns(self.tuples(_GRID_ROWS, _BATCH_ROWS))

        def once() -> None:
            nonlocal window
            sealing = None if is_tailed else window.sealing(arrived)
            taken, _ = window.taking(arrived, None if sealing is None else run_alone(sealing))
            taken.run_set.indexes(self._conditions)
            if not is_tailed:
                window = taken.merged()
                window.run_set.indexes(self._conditions)

        return once

    def probed(self, runs: Sequence[Run]) -> float:
        """Return what it takes all probes to meet some runs."""
        indexes = RunSet(runs).indexes(self._conditions)
        last_rows = runs[-1].rows if isinstance(runs[-1], Tail) else -1
        module, implementation = self._kernels.module, self._kernels.implementation

        # Others each time: a processor foresees the branches of probes that it has seen.
        sets = itertools.cycle(self._probes)

        def once() -> None:
            kernel = module.RunsProbe(next(sets), indexes, implementation=implementation, last_rows=last_rows)
            while kernel.fill(*self._out):
                pass

        return self.shortest(once)

    def shortest(self, work: Callable[[], object]) -> float:
        """Return how long one call of `work` takes, by the shortest of some measurements."""
        work()
        found = []
        for _ in range(_ROUNDS):
            calls, began, took = 0, self._clock(), 0
            while took < _ROUND_NS and calls < _MOST_CALLS:
                work()
                calls += 1
                took = self._clock() - began
            found.append(took / calls)
        return min(found)
