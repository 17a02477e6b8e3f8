"""The sizing of runs by what operations cost on this machine: costs that are given, or that are measured here.

::

    trial join       ──► fit ──► OperationCosts ──► cost_model ──► RunSizes
    made-up tuples       in ns   as JSON in a plan                 rows of a tail, merge ratio

Costs are measured on a trial join (`TrialJoin`): two streams of made-up tuples, whose windows do the operations. Its
keys are of the same kinds, with as many conditions, so its probes run the same kernels. Of the columns that only travel
it has one, where the join has some without a fixed width: what others cost depends on no size of a run.

`JoinEngine` measures once in a process for joins of one kind, when a stream has filled some tails. No row of a result
depends on any of it (CellJoin, section 6).
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.columns import fixed_width
from streamjoin_ds.engine.cost_model import OperationCosts, RunSizes, Sizing, best_sizes
from streamjoin_ds.engine.kernels.loading import Kernels, load_kernels
from streamjoin_ds.engine.kernels.objects import Column
from streamjoin_ds.engine.scheduler import run_alone
from streamjoin_ds.engine.storage.bucket_grid.policy import BucketGridPolicy
from streamjoin_ds.engine.storage.conditions import oriented
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.member.stream import Stream

__all__ = [
    "PROBES",
    "WORTH_TAILS",
    "Costs",
    "GivenSizing",
    "MeasuredSizing",
    "TrialJoin",
    "believed_costs",
    "fit_costs",
    "fitted_costs",
    "kinds_of",
    "sizing_of",
]

_log = logging.getLogger(__name__)

PROBES = 64  # probes of a call, as in pushes that are small enough for the tail
_PROBE_SETS = 32  # calls until the same probes come again: a processor foresees the branches of those that it has seen
_GRID_ROWS, _BATCH_ROWS = 1 << 13, 64  # rows of a grid, and of a batch that goes into it
_TYPES = {"float": pa.float64(), "int": pa.int64(), "text": pa.string()}
_AT_ONCE = replace(DEFAULT, tail=replace(DEFAULT.tail, most_gridded_rows=0, most_gridded_text_rows=0))
_DOMAIN, _EPS = 1 << 20, 1 << 9  # values of a key, and its band: a probe matches a thousandth of the rows
_MATCHES = 1 << 14  # matches that there is room for

_MOST_KINDS = 4  # conditions of the trial join besides the window's, at most
_ROWS = (512, 4096)  # rows of a small tail or run and of a large one; the slope is what a row costs
_RUNS = (2, 12)  # runs that a probe meets
_MERGED = 4  # runs that are merged
_LEAST_ROW_NS = 0.01  # what a row is taken to cost at least
_ROUNDS = 12  # how often each operation is measured; the median counts
_CALLS = 2  # calls of a short operation in each round

Clock = Callable[[], int]

# Tails that a stream has filled before costs are measured: so many rows that came in small pushes have taken many times
# as long as the measurement does, and as many again gain more than it takes.
WORTH_TAILS = 128


class TrialJoin:
    """A join of two streams of made-up tuples, whose windows do the operations that are measured.

    Parameters
    ----------
    kinds : sequence of {"float", "int", "text"}
        Kinds of the conditions besides the window's rule; "text" stands for a column without a fixed width.
    kernels : Kernels
    """

    def __init__(self, kinds: Sequence[str], kernels: Kernels) -> None:
        self._kinds, self._kernels = list(kinds), kernels
        columns = [pa.field(f"k{number}", _TYPES[kind]) for number, kind in enumerate(kinds)]
        schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), *columns])
        keys = [column.name for column, kind in zip(columns, kinds, strict=True) if kind != "text"]
        on = " AND ".join(f"abs(r.{key} - s.{key}) <= {_EPS}" for key in keys)
        self._bound = bind(Join([Stream(name, schema=schema) for name in "rs"], on, "1h"), {"r": schema, "s": schema})
        self.form = WindowForm(self._bound, 1, kernels)
        self._conditions = oriented(self._bound, [0], 1)
        form = WindowForm(self._bound, 0, kernels)
        self._probes = [self._columns(form, number) for number in range(_PROBE_SETS)]
        self._out = np.empty((3, _MATCHES), dtype=np.int32)
        self._calls = 0

    def _columns(self, form: WindowForm, number: int) -> list[Column]:
        probes = self.tuples(number * PROBES, PROBES)
        return [np.ascontiguousarray(form.key_of(probes, condition.probe_key)) for condition in self._conditions]

    def tuples(self, first: int, count: int) -> pa.RecordBatch:
        """Return made-up tuples: raw random bits of a fixed seed, a tuple a microsecond."""
        numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
        arrays = [numbers, numbers]
        for place, kind in enumerate(self._kinds):
            words = np.random.SFC64([first, place]).random_raw(count)
            arrays.append(pa.array((words % np.uint64(_DOMAIN)).astype(np.int64)).cast(_TYPES[kind]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._bound.tuple_schema(1))

    def tail(self, rows: int) -> Tail:
        """Return a tail of so many tuples."""
        return Tail.of(self.form, self.tuples(0, rows))

    def sealed(self, tuples: pa.RecordBatch) -> SealedRun:
        """Return a run of some tuples, ready to be probed."""
        return self._indexed(self.form.sealed(tuples))

    def merged(self, runs: Sequence[SealedRun]) -> SealedRun:
        """Return some runs as one, ready to be probed."""
        return self._indexed(run_alone(self.form.merging_runs(runs)))

    def _indexed(self, run: SealedRun) -> SealedRun:
        run.index(self._conditions)
        return run

    def probing(self, runs: Sequence[Run]) -> Callable[[], None]:
        """Return a function that lets probes meet some runs; others at each call."""
        indexes = RunSet(runs).indexes(self._conditions)
        last_rows = runs[-1].rows if isinstance(runs[-1], Tail) else -1
        module, implementation = self._kernels.module, self._kernels.implementation

        def once() -> None:
            self._calls += 1
            probes = self._probes[self._calls % _PROBE_SETS]
            kernel = module.RunsProbe(probes, indexes, implementation=implementation, last_rows=last_rows)
            while kernel.fill(*self._out):
                pass

        return once

    def taking(self, *, is_tailed: bool) -> Callable[[], None]:
        """Return a function that gives some rows to a window in a bucket grid: to its tail, or to the grid at once."""
        grids = BucketGridPolicy(_GRID_ROWS, self._bound.join.window.extent(1))
        form = WindowForm(self._bound, 1, self._kernels, bucket_policy=grids, tuning=_AT_ONCE)
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
    schemas = (bound.tuple_schema(stream) for stream in range(len(bound.member_names)))
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
    trial, (small, large) = TrialJoin(kinds, kernels), _ROWS
    few, many = _RUNS
    probed = [trial.form.sealed(trial.tuples(number * large, large)) for number in range(many)]
    repeated = {
        "small tail": trial.probing([trial.tail(small)]),
        "large tail": trial.probing([trial.tail(large)]),
        "few runs": trial.probing(probed[:few]),
        "many runs": trial.probing(probed),
        "tailed": trial.taking(is_tailed=True),
        "gridded": trial.taking(is_tailed=False),
    }
    sealed: dict[int, list[SealedRun]] = {small: [], large: []}
    took: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object], calls: int = 1) -> None:
        began = clock()
        for _ in range(calls):
            work()
        took.setdefault(name, []).append((clock() - began) / calls)

    # All in turns, as in a join: a seldom one that is repeated alone finds all that it needs in the caches.
    for number in range(_ROUNDS):
        for name, work in repeated.items():
            work()  # every push does these, so they are warm
            timed(name, work, _CALLS)
        for rows, runs in sealed.items():
            tuples = trial.tuples(number * rows, rows)
            timed(f"seal {rows}", lambda: runs.append(trial.sealed(tuples)))  # noqa: B023 (called at once)
            if len(runs) == _MERGED:
                timed(f"merge {rows}", lambda: trial.merged(runs))  # noqa: B023 (called at once)
                runs.clear()
    ns = {name: statistics.median(values) for name, values in took.items()}
    sealed_row, sealed_run = _line(ns[f"seal {small}"], ns[f"seal {large}"])
    merged_row, merged_run = _line(ns[f"merge {small}"], ns[f"merge {large}"])
    return OperationCosts(
        scanned_row_ns=_line(ns["small tail"], ns["large tail"])[0] / PROBES,
        probed_run_ns=(ns["many runs"] - ns["few runs"]) / (many - few) / PROBES,
        sealed_run_ns=sealed_run,
        sealed_row_ns=sealed_row,
        merged_run_ns=merged_run,
        merged_row_ns=merged_row / _MERGED,
        gridded_batch_ns=ns["gridded"] - ns["tailed"],
    )


def _line(small_ns: float, large_ns: float) -> tuple[float, float]:
    """Return the slope and the height at zero of the line through the times of `_ROWS`.

    A row costs `_LEAST_ROW_NS` at least, where chance hides what it costs.
    """
    small, large = _ROWS
    slope = max((large_ns - small_ns) / (large - small), _LEAST_ROW_NS)
    return slope, small_ns - small * slope


# What `WindowJoin` takes: costs, or a source of sizes, or the word for measuring.
Costs: TypeAlias = OperationCosts | Sizing | Literal["measured"] | None


class GivenSizing:
    """Sizes by costs that are given.

    Parameters
    ----------
    costs : OperationCosts
    ratio : int or None
        The merge ratio that is forced; None: the costs say.
    """

    def __init__(self, costs: OperationCosts, ratio: int | None = None) -> None:
        self.costs, self._ratio = costs, ratio

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Return the sizes, from the start."""
        del sealed_tails
        return best_sizes(self.costs, self._ratio, window_rows, is_grid=is_grid)

    def described(self) -> str:
        """See `Sizing`."""
        return f"by costs that were given: {_told(self.costs)}"


class MeasuredSizing:
    """Sizes by costs that are measured once a stream has filled some tails.

    Parameters
    ----------
    bound : BoundJoin
    kernel : str
        As `load_kernels` takes it.
    ratio : int or None
        As for `GivenSizing`.
    """

    def __init__(self, bound: BoundJoin, kernel: str, ratio: int | None = None) -> None:
        self.costs: OperationCosts | None = None
        self._bound, self._kernel, self._ratio = bound, kernel, ratio

    def sizes(self, sealed_tails: int, window_rows: int, *, is_grid: bool) -> RunSizes | None:
        """Measure once, when so many tails were sealed that it is worth the time."""
        if sealed_tails < WORTH_TAILS:
            return None
        self.costs = fitted_costs(self._bound, self._kernel)
        return None if self.costs is None else best_sizes(self.costs, self._ratio, window_rows, is_grid=is_grid)

    def described(self) -> str:
        """See `Sizing`."""
        if self.costs is not None:
            return f"by costs measured in this process: {_told(self.costs)}"
        return f"the usual sizes; costs are measured once a stream has filled {WORTH_TAILS} tails"


def sizing_of(costs: Costs, bound: BoundJoin, kernel: str, ratio: int | None) -> Sizing | None:
    """Return the source of sizes that `costs` asks for; the arguments are those of `WindowJoin`."""
    if costs == "measured":
        return MeasuredSizing(bound, kernel, ratio)
    return GivenSizing(costs, ratio) if isinstance(costs, OperationCosts) else costs


def _told(costs: OperationCosts) -> str:
    """Return costs in words."""
    scanned = f"a row of the tail {costs.scanned_row_ns:.2f} ns, a run {costs.probed_run_ns:.0f} ns for a probe"
    sealed = f"a sealed run {costs.sealed_run_ns / 1e3:.0f} us"
    merged = f"a merge {costs.merged_run_ns / 1e3:.0f} us and {costs.merged_row_ns:.0f} ns a row"
    return f"{scanned}; {sealed}; {merged}; a batch into a grid {costs.gridded_batch_ns / 1e3:.0f} us"
