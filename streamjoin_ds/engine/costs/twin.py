"""A twin of a join: two streams of made-up tuples, whose windows do the operations that are measured.

Its keys are of the same kinds, with as many conditions, so its probes run the same kernels. Of the columns that only
travel it has one, where the join has some without a fixed width: what others cost depends on no size of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import Column
from streamjoin_ds.engine.storage.bucket_grid.policy import BucketGridPolicy
from streamjoin_ds.engine.storage.conditions import oriented
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.threads.tasks import run_alone
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.join import Join
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["PROBES", "Twin"]

PROBES = 64  # probes of a call, as in pushes that are small enough for the tail
_PROBE_SETS = 32  # calls until the same probes come again: a processor foresees the branches of those that it has seen
_GRID_ROWS, _BATCH_ROWS = 1 << 13, 64  # rows of a grid, and of a batch that goes into it
_TYPES = {"float": pa.float64(), "int": pa.int64(), "text": pa.string()}
_AT_ONCE = replace(DEFAULT, tail=replace(DEFAULT.tail, most_gridded_rows=0, most_gridded_text_rows=0))
_DOMAIN, _EPS = 1 << 20, 1 << 9  # values of a key, and its band: a probe matches a thousandth of the rows
_MATCHES = 1 << 14  # matches that there is room for


class Twin:
    """The two streams.

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
