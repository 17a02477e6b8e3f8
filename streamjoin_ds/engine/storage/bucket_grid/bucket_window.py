"""A large window in memory: its rows in one bucket grid, the newest few in the tail.

::

    large batch ──────────────► sorted run: later streams of this push are joined with it ────┐   end of the push
    small batch ──► tail ── full ──► run ──────────────────────────────────────────────────────┴─► bucket grid

Nothing is merged. A grid is rebuilt, some rows at each push (`rebuild`), where it is too small or too large, or where
its buckets have become crowded and those of another shape would not be. Any tuples fit: columns that chunks have no
place for are the grid's payload. The grid changes in place when a push is over. So the windows that a push began with
must not be used after it is finished. A push that is given up has changed nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.scheduler import TaskCoroutine
from streamjoin_ds.engine.storage.bucket_grid.grid import USUAL_CROWD, BucketRun, crowd_of, live_rows, some_keys
from streamjoin_ds.engine.storage.bucket_grid.rebuild import GridRebuild
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape, chosen_shape, tested_rows
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import KeptLayout, SealedRun
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER, SortLayout
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.storage.window import Window, WindowForm, thinned_tail
from streamjoin_ds.machine import give_back
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["BucketWindow"]

_log = logging.getLogger(__name__)


class BucketWindow(Window):
    """A window whose first run is a bucket grid; its other sealed runs are on their way into the grid.

    Parameters
    ----------
    form : WindowForm
    bucket_run : BucketRun
        The grid.
    sealed : sequence of SealedRun
        Runs that are to be taken into the grid.
    tail, run_set
        As for `Window`.
    lowest_kept : int or None
        Lower positions are dead; within int64.
    layout : KeptLayout or None
        Batches of like size use it again, `GridTuning.layout_uses` in all.
    """

    __slots__ = ("_inserted", "bucket_run", "layout", "lowest_kept")

    is_grid = True

    def __init__(
        self,
        form: WindowForm,
        bucket_run: BucketRun,
        sealed: Sequence[SealedRun] = (),
        tail: Tail | None = None,
        run_set: RunSet | None = None,
        lowest_kept: int | None = None,
        layout: KeptLayout | None = None,
    ) -> None:
        super().__init__(form, sealed, tail, run_set)
        self.bucket_run = bucket_run
        self.before_tail = (bucket_run, *self.sealed)
        self.layout = layout
        self.lowest_kept = lowest_kept
        self.is_merged = not self.sealed
        # Rows that were inserted into the grid before any of the other runs.
        self._inserted: int = bucket_run.native.inserted

    @property
    def rows(self) -> int:
        """The number of tuples; dead ones that were not dropped yet are among them."""
        return sum(run.rows for run in self.runs)

    def remade(self, sealed: Sequence[SealedRun], tail: Tail) -> BucketWindow:
        """Return the window with other runs beside its grid."""
        return BucketWindow(self.form, self.bucket_run, sealed, tail, self._run_set, self.lowest_kept, self.layout)

    def _holding(self, run: BucketRun, others: Sequence[SealedRun] = ()) -> BucketWindow:
        """Return the window with this grid, which may be another one, and these runs beside it."""
        return BucketWindow(self.form, run, others, self.tail, self._run_set, self.lowest_kept, self.layout)

    def sealing(self, arrived: BatchColumns) -> TaskCoroutine[SealedRun] | None:
        """See `Window.sealing`; a batch of like size is sorted in the layout of the one before."""
        if arrived.rows <= self.form.gridded_rows:
            return None
        return self.form.sealing_batch(arrived, self._layout_of(arrived.rows))

    def taking(self, arrived: BatchColumns, run: SealedRun | None) -> tuple[Window, Selection]:
        """See `Window.taking`."""
        window, selection = super().taking(arrived, run)
        if run is not None:
            assert isinstance(window, BucketWindow)
            window.layout = KeptLayout.after(self.layout, run, self.form.tuning.grid.layout_uses)
        return window, selection

    def _layout_of(self, rows: int) -> SortLayout | None:
        """Return the layout to use again for a batch of `rows` rows; None: a layout is to be chosen."""
        kept = self.layout
        return kept.layout if kept is not None and kept.serves(rows, self.form.tuning.grid.layout_uses) else None

    def merging_steps(self) -> TaskCoroutine[Window]:
        """See `Window.merging_steps`; all runs but the tail go into the grid.

        Where an earlier call broke off, this one goes on with the rows that the grid does not have yet.
        """
        if self.is_merged:
            return self
        run, others = self.bucket_run, self.sealed
        run.begin_change()
        if self.lowest_kept is not None and run.position[1] < self.lowest_kept and run.rows:
            run.cleared(self.lowest_kept)
        if not others:
            run.end_change()
            self.is_merged = True
            return self
        taken = run.native.inserted - self._inserted
        for other in others:
            begin = min(taken, other.rows)
            taken -= begin
            if begin < other.rows or other is others[-1]:
                run = yield from run.adding(other, self.lowest_kept, begin, sweeps=other is others[-1])
        window = self._holding(run)
        try:
            return (yield from window._resized(others))
        except MemoryError:  # the grid goes on as it is
            _log.debug("stream %s: no memory to rebuild the bucket grid: it stays as it is", self.form.stream_name)
            run.rebuild = None
            run.end_change()
            return window

    def _resized(self, arrived: Sequence[SealedRun]) -> TaskCoroutine[Window]:
        """Return the window after a rebuild has gone on, or in runs where a grid is no longer wanted."""
        window = yield from self._resizing(arrived)
        if window is None:
            _log.debug("stream %s: %d rows go from the bucket grid back to runs", self.form.stream_name, self.rows)
            return self.in_runs()
        if self.form.bucket_policy is not None and self.form.bucket_policy.is_sampled:
            window.bucket_run.sample()
        window.bucket_run.end_change()
        return window

    def unmerged(self) -> Window:
        """Return the window with the rows that its grid does not have yet in runs beside the grid."""
        run = self.bucket_run
        run.begin_change()
        taken, others = run.native.inserted - self._inserted, []
        for other in self.sealed:
            begin = min(taken, other.rows)
            taken -= begin
            if begin < other.rows:
                others.append(other.behind(begin))
        run.end_change()
        return self._holding(run, others)

    def _resizing(self, arrived: Sequence[SealedRun]) -> TaskCoroutine[BucketWindow | None]:
        """Begin a rebuild where one is due, and go on with the one under way; None: a grid is no longer wanted.

        A rebuild is due where the grid was made for far more or fewer rows than there will be, or for rows that lay
        otherwise than those in it now.
        """
        run, bucketing, tuning = self.bucket_run, self.form.bucket_policy, self.form.tuning
        lowest = INT64_MIN if self.lowest_kept is None else self.lowest_kept
        if bucketing is None:
            return self
        if run.rebuild is None and run.falls_due():
            live = live_rows(run, lowest)
            wanted = bucketing.wanted_rows(live, run.position, self.lowest_kept)
            # Rows that are still to come are no reason for a larger grid before this one is half full.
            is_small = wanted > tuning.rebuild.grown_times * run.built_rows and 2 * live > run.built_rows
            is_large = wanted < tuning.rebuild.shrunk_share * run.built_rows and run.built_rows > bucketing.least_rows
            if is_large and run.rows < bucketing.least_rows:
                return None
            if live and not self._suits_all(run, run.shape, live):
                return None  # the grid is of a state that was saved by a version with one index for all neighbours
            if live and (is_small or is_large):
                keys, why = some_keys(run, lowest), "too small" if is_small else "too large"
                try:
                    self._begin_rebuild(run, wanted, chosen_shape(self.form.chooser, keys, wanted, tuning.grid), why)
                except MemoryError:  # for the rows still to come; the live rows need less
                    self._begin_rebuild(run, live, chosen_shape(self.form.chooser, keys, live, tuning.grid), why)
            elif live:
                self._relieve(run, crowd_of(run, arrived[-1]), live, lowest)
        if run.rebuild is None:
            return self
        arrived_rows = sum([other.rows for other in arrived])
        if not (yield from run.rebuild.advancing(run, tuning.rebuild.copied_rows * arrived_rows, lowest)):
            return self
        made = run.replaced(run.rebuild.to)
        _log.debug("stream %s: the bucket grid is rebuilt and has %d rows", self.form.stream_name, made.rows)
        give_back()
        return BucketWindow(self.form, made, (), self.tail, None, self.lowest_kept, self.layout)

    def _relieve(self, run: BucketRun, crowd: int, live: int, lowest_kept: int) -> None:
        """Begin a rebuild where the rows have moved together since the shape was chosen, and another shape helps."""
        grid, times = self.form.tuning.grid, self.form.tuning.rebuild.crowded_times
        if crowd * times < run.known_crowd:
            run.known_crowd = max(crowd, USUAL_CROWD)
        if crowd <= times * run.known_crowd:
            return
        run.known_crowd, chooser = crowd, self.form.chooser  # so the bucket of a hot value is a reason only once
        keys = some_keys(run, lowest_kept)
        shape = chosen_shape(chooser, keys, run.built_rows, grid)
        if shape is None or shape == run.shape:
            return
        before, after = (tested_rows(chooser, tried, keys, live, grid) for tried in (run.shape, shape))
        if before > times * after:
            self._begin_rebuild(run, run.built_rows, shape, "crowded")

    def _begin_rebuild(self, run: BucketRun, rows: int, shape: GridShape | None, why: str) -> None:
        """Begin a rebuild in another shape, unless that serves only some neighbours; `why` is for the log.

        Where the shape is the same, only the number of rows that the grid is made for is set anew.
        """
        if shape is not None and not self._suits_all(run, shape, rows):
            return
        if shape == run.shape:
            run.built_rows = rows
        elif shape is not None:
            run.rebuild = GridRebuild(run.empty(self.form, shape, rows, run.zone, run.payload))
            told = self.form.stream_name, why, rows, shape.told(self.form.columns)
            _log.debug("stream %s: the bucket grid is %s; a rebuild for %d rows begins, %s", *told)

    def _suits_all(self, run: BucketRun, shape: GridShape, rows: int) -> bool:
        """Whether a shape serves every neighbour whose conditions narrow what it meets."""
        chooser = self.form.chooser
        if not chooser.unserved(shape.keys):
            return True
        keys = some_keys(run, INT64_MIN if self.lowest_kept is None else self.lowest_kept)
        return chooser.suits_all(shape.keys, keys, rows)

    def expired(self, lowest_kept: int, *, is_own: bool = False) -> Window:
        """Return the window without expired positions; dead rows stay until the grid needs their room."""
        if not INT64_MIN <= lowest_kept <= INT64_MAX:
            # No position is beyond int64. One at its very end is then kept, and the window's rule refuses it.
            lowest_kept = max(INT64_MIN, min(lowest_kept, INT64_MAX))
        run, tail = self.bucket_run, self.tail
        if tail.rows and lowest_kept > tail.position[0]:
            tail = thinned_tail(tail, lowest_kept) or self.form.no_tail
        is_due = run.position[1] < lowest_kept and run.rows > 0
        if tail is not self.tail:
            window = self.remade(self.sealed, tail)
            window.is_merged = self.is_merged
        elif is_own:
            window = self
        elif lowest_kept == self.lowest_kept and not is_due:
            return self
        else:
            window = self._copied()
        window.lowest_kept = lowest_kept
        if is_due:
            window.is_merged = False
        return window

    def _copied(self) -> BucketWindow:
        """Return a copy of the window: a push that may be given up must not change the window that it began with."""
        window = BucketWindow.__new__(BucketWindow)
        window.form, window.sealed, window.tail = self.form, self.sealed, self.tail
        window._run_set, window._is_fitting, window._sealed_rows = self._run_set, self._is_fitting, self._sealed_rows
        window._quiet_until, window.is_merged, window._inserted = self._quiet_until, self.is_merged, self._inserted
        window.layout, window.bucket_run, window.before_tail = self.layout, self.bucket_run, self.before_tail
        return window

    def to_facts(self) -> dict[str, Any] | None:
        """Return what is not in the rows, as plain JSON values."""
        layout = None
        if self.layout is not None:
            grid, rows, uses = self.layout
            layout = {"first": grid.first, "second": grid.second, "width": grid.width, "rows": rows, "uses": uses}
        return {**self.bucket_run.to_facts(), "lowest_kept": self.lowest_kept, "layout": layout}

    def in_runs(self) -> Window:
        """Return the same rows in ordinary runs; rows that a rebuild has copied are in a last run once more."""
        move = self.bucket_run.rebuild
        runs = [(run.tuples, run.zone) for run in self.before_tail if run.rows]
        if move is not None and move.to.rows:
            runs.append((move.to.tuples, self.bucket_run.zone))
        return Window(
            self.form, [SealedRun(self.form, tuples, ARRIVAL_ORDER, zone) for tuples, zone in runs], self.tail
        )
