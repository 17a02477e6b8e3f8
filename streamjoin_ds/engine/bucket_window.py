"""A large window in memory: its rows in one bucket grid, the newest few in the tail.

::

    large batch ──────────────► sorted run: what comes later in this push is joined with it ──┐   end of the push
    small batch ──► tail ── full ──► run ──────────────────────────────────────────────────────┴─► bucket grid

Nothing is merged. The grid changes in place when a push is over, so the windows that a push began with are good for
nothing once it is finished; one that is given up has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamjoin_ds.engine.bucket_run import BucketRun, fits_buckets, in_order
from streamjoin_ds.engine.bucket_shape import BucketShape, chosen_shape
from streamjoin_ds.engine.columns import one_batch
from streamjoin_ds.engine.grid import NO_GRID
from streamjoin_ds.engine.picks import Picks
from streamjoin_ds.engine.run import Run, RunForm
from streamjoin_ds.engine.stack import Stack
from streamjoin_ds.engine.tail import Tail
from streamjoin_ds.engine.window import MAX_TAILED_ROWS, Window, thinned_tail

__all__ = ["BucketWindow", "Bucketing"]

_GROWN, _SHRUNK = 1.3, 0.25


class BucketWindow(Window):
    """A window whose first run is a bucket grid; the others are of the push that is being read.

    Parameters
    ----------
    form : RunForm
    sealed : sequence of Run
        A `BucketRun`, and what is to be taken into it.
    tail, stack
        As for `Window`.
    lowest_kept : int or None
        Lower positions are dead.
    """

    __slots__ = ("lowest_kept",)

    def __init__(
        self,
        form: RunForm,
        sealed: Sequence[Run],
        tail: Tail | None = None,
        stack: Stack | None = None,
        lowest_kept: int | None = None,
    ) -> None:
        super().__init__(form, sealed, tail, stack)
        self.lowest_kept = lowest_kept
        self.is_merged = len(self.sealed) == 1

    @property
    def bucket_run(self) -> BucketRun:
        """The grid."""
        run = self.sealed[0]
        assert isinstance(run, BucketRun)
        return run

    @property
    def rows(self) -> int:
        """How many tuples; dead ones that were not dropped yet are among them."""
        return sum(run.rows for run in self.runs)

    def remade(self, sealed: Sequence[Run], tail: Tail) -> BucketWindow:
        """The window with other runs."""
        return BucketWindow(self.form, sealed, tail, self._stack, self.lowest_kept)

    def taking(self, tuples: pa.RecordBatch) -> tuple[Window, Picks]:
        """As `Window.taking`; only the run of a stream that another is still to be joined with is sorted."""
        if tuples.num_rows <= MAX_TAILED_ROWS:
            return super().taking(tuples)
        run = self.form.sealed(tuples) if self.form.stream == 0 else self.form.arrived(tuples)
        run.arrived = self.form.with_hashes(tuples)
        return self.inserted(run), Picks.whole(run)

    def merged(self) -> Window:
        """The window with all but the tail in the grid; ordinary runs where they no longer fit one."""
        if self.is_merged:
            return self
        run = self.bucket_run
        for other in self.sealed[1:]:
            tuples = in_order(self.form, other.tuples) if other.arrived is None else other.arrived
            if not fits_buckets(self.form, tuples):
                self.form.bucketing = None
                return self.in_runs().merged()
            run = run.added(tuples, other.zone, self.lowest_kept)
        if self.lowest_kept is not None:
            run.swept(self.lowest_kept)
        return self.remade([run], self.tail)._resized()

    def _resized(self) -> Window:
        """A grid for as many rows as there are now, where it was made for far more or fewer."""
        run, bucketing = self.bucket_run, self.form.bucketing
        grown, shrunk = run.rows > _GROWN * run.built_rows, run.rows < _SHRUNK * run.built_rows
        if bucketing is None or not (grown or (shrunk and run.built_rows > bucketing.least_rows)):
            return self
        return bucketing.window(self.in_runs())

    def expired(self, lowest_kept: int) -> Window:
        """As `Window.expired`, but dead rows stay in the grid until it has use for their room, or a sweep comes by."""
        window = BucketWindow(self.form, self.sealed, self.tail, self._stack, lowest_kept)
        if self.tail.rows and lowest_kept > self.tail.position[0]:
            window = window.remade(window.sealed, thinned_tail(self.tail, lowest_kept))
        run = self.bucket_run
        if run.rows and run.position[1] < lowest_kept:
            run.native.sweep(run.shape.buckets, lowest_kept)
        return window

    def in_runs(self) -> Window:
        """The same rows in ordinary runs."""
        runs = [Run(self.form, run.tuples, NO_GRID, run.zone) for run in self.sealed if run.rows]
        return Window(self.form, runs, self.tail)


class Bucketing:
    """When and how the windows of one stream go over to a bucket grid.

    Parameters
    ----------
    least_rows : int
        Of a window that is to be in one.
    """

    def __init__(self, least_rows: int) -> None:
        self.least_rows = least_rows
        self._next_rows = least_rows

    def window(self, window: Window, shape: BucketShape | None = None) -> Window:
        """The window in a bucket grid, where it is large enough and fits one, or has that shape already."""
        form = window.form
        if not window.sealed or (shape is None and window.rows < self._next_rows):
            return window
        # Where no key narrows it is not asked again before there is twice as much to ask about.
        self._next_rows = max(self.least_rows, 2 * window.rows)
        tuples = one_batch([run.tuples for run in window.sealed], form.run_schema)
        if not fits_buckets(form, tuples):
            form.bucketing = None
            return window
        keys = [form.key_of(tuples, number) for number in range(len(form.keys))]
        if shape is None:
            shape = chosen_shape(form.chooser, keys, tuples.num_rows)
        if shape is None:
            return window
        zone = tuple(
            (min(run.zone[number][0] for run in window.sealed), max(run.zone[number][1] for run in window.sealed))
            for number in range(len(keys))
        )
        self._next_rows = self.least_rows
        run = BucketRun.of(form, in_order(form, tuples), zone, shape)
        return BucketWindow(form, [run], window.tail)
