"""The window of one stream: the runs that a tuple of another stream may still meet.

Many new tuples become a run of their own, few go to the tail. The form's policy says which runs are merged
(`merge_policy`). Runs expire whole, and the exact test refuses the older tuples that are left (coarse-grained disposal:
PIM-Tree, section 3.2).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from streamjoin_ds.engine.columns import fixed_width
from streamjoin_ds.engine.cost_model import RunSizes, Sizing
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.scheduler import TaskCoroutine, run_alone
from streamjoin_ds.engine.storage.merge_policy import MergePolicy, RatioMergePolicy
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_form import Range
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import RunMaker, SealedRun
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER
from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.errors import corrupt_state_error
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import INT64_MAX

__all__ = ["GridPolicy", "Window", "WindowForm", "thinned_tail"]

_log = logging.getLogger(__name__)


class GridPolicy(Protocol):
    """The rule by which the windows of a stream go over to a bucket grid, and by which the grid's size is chosen."""

    least_rows: int
    is_sampled: bool

    def wanted_rows(self, rows: int, position: Range, lowest_kept: int | None) -> int:
        """Return how many rows a grid is to be made for."""

    def window(self, window: Window) -> Window:
        """Return the window in a bucket grid, or unchanged where it is to stay in runs."""

    def restored(self, window: Window, facts: Mapping[str, Any]) -> Window:
        """Return the window that `Window.to_facts` described; `window` holds the same rows in runs."""


class WindowForm(RunMaker):
    """What all windows of one stream have in common: how runs are made and merged, and when a bucket grid is used.

    Parameters
    ----------
    bound, stream, kernels, index, tuning
        As for `RunForm`.
    merge_policy : MergePolicy, optional
        None: a `RatioMergePolicy`.
    bucket_policy : GridPolicy, optional
        None: windows stay in runs.
    sizing : Sizing, optional
        The source of the sizes of runs. None: `tuning` has them.

    Attributes
    ----------
    tail_rows : int
        Rows of a tail, at most. This and the next two are attributes because every push asks for them.
    tailed_rows, gridded_rows : int
        Rows of one push that go to the tail, at most: of a window in runs, and of one in a bucket grid.
    """

    def __init__(
        self,
        bound: BoundJoin,
        stream: int,
        kernels: Kernels,
        index: str | Sequence[str] = "auto",
        merge_policy: MergePolicy | None = None,
        bucket_policy: GridPolicy | None = None,
        *,
        tuning: Tuning = DEFAULT,
        sizing: Sizing | None = None,
    ) -> None:
        super().__init__(bound, stream, kernels, index, tuning=tuning)
        self.tailed_rows = tuning.tail.most_arrived_rows
        is_plain = all(fixed_width(field.type) for field in self.tuple_schema)
        gridded = tuning.tail.most_gridded_rows if is_plain else tuning.tail.most_gridded_text_rows
        self.gridded_rows = self._most_gridded_rows = min(gridded, self.tailed_rows)
        self.merge_policy = RatioMergePolicy(tuning=tuning.merging) if merge_policy is None else merge_policy
        self.bucket_policy = bucket_policy
        self.sizing = sizing
        self._sealed_tails = 0
        if sizing is not None:
            self._use(sizing.sizes(0, 0, is_grid=False))
        self.no_tail = Tail.empty(self)  # shared by all windows whose tail is empty

    def sealed_tail(self, window: Window) -> SealedRun:
        """Return the run of a window's tail, which is full, and ask for the sizes of runs anew."""
        run = self.sealed(window.tail.tuples)
        if self.sizing is not None:
            self._sealed_tails += 1
            self._use(self.sizing.sizes(self._sealed_tails, window.rows, is_grid=window.is_grid))
        return run

    def _use(self, sizes: RunSizes | None) -> None:
        if sizes is not None:
            self.tail_rows, self.tailed_rows = sizes.seal_rows, sizes.most_arrived_rows
            # What was measured with care bounds it: a batch that goes to the grid is measured with all that is cold.
            self.gridded_rows = min(sizes.most_gridded_rows, self._most_gridded_rows)
            self.merge_policy = RatioMergePolicy(sizes.ratio, self.tuning.merging)


class Window:
    """The runs and the tail of one stream. It is immutable: a method that would change them returns another window.

    Parameters
    ----------
    form : WindowForm
    sealed : sequence of SealedRun
        The runs but the tail, oldest insertion first.
    tail : Tail, optional
    run_set : RunSet, optional
        The run set of an earlier window, used again where it still fits.
    """

    __slots__ = (
        "_is_fitting",
        "_quiet_until",
        "_run_set",
        "_sealed_rows",
        "before_tail",
        "form",
        "is_merged",
        "sealed",
        "tail",
    )

    is_grid = False

    def __init__(
        self,
        form: WindowForm,
        sealed: Sequence[SealedRun] = (),
        tail: Tail | None = None,
        run_set: RunSet | None = None,
    ) -> None:
        self.form = form
        self.sealed = tuple(sealed)
        self.before_tail: tuple[Run, ...] = self.sealed
        self.tail = tail if tail is not None else form.no_tail
        self._run_set = run_set
        self._is_fitting = False  # whether the run set is known to be of these runs
        self._sealed_rows = sum([run.rows for run in self.sealed])
        self.is_merged = False
        self._quiet_until: int | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs; the tail is the last of them, unless it is empty."""
        return (*self.before_tail, self.tail) if self.tail.rows else self.before_tail

    @property
    def run_set(self) -> RunSet:
        """The run set of the window, which probes meet and rows are gathered from."""
        if self._run_set is None or not self._is_fitting:
            runs = self.runs
            if self._run_set is None or not self._run_set.fits(runs):
                self._run_set = RunSet(runs)
            self._is_fitting = True
        return self._run_set

    @property
    def rows(self) -> int:
        """The number of tuples in all runs, the tail among them."""
        return self._sealed_rows + self.tail.rows

    def inserted(self, run: SealedRun) -> Window:
        """Return the window with one more run, before any merging."""
        return self.remade((*self.sealed, run), self.tail) if run.rows else self

    def remade(self, sealed: Sequence[SealedRun], tail: Tail) -> Window:
        """Return a window with other runs and another tail, before any merging."""
        return Window(self.form, sealed, tail, self._run_set)

    def reopened(self, tail_rows: int) -> Window:
        """Return the window with its last run as its tail again.

        Parameters
        ----------
        tail_rows : int
            Rows of that run; 0: the window had an empty tail, and is returned as it is.

        Raises
        ------
        StateCorruptError
            The last run cannot have been that tail: it is missing, has a wrong number of rows, or is sorted.

        Notes
        -----
        A tail that is longer than tails are now, because other sizes of runs held when it was saved, is sealed.
        """
        if not tail_rows:
            return self
        last = self.sealed[-1] if self.sealed else None
        if last is None or last.rows != tail_rows or last.sort_layout != ARRIVAL_ORDER:
            raise corrupt_state_error()
        if tail_rows > self.form.tail_rows:
            return Window(self.form, (*self.sealed[:-1], self.form.sealed(last.tuples)))
        return Window(self.form, self.sealed[:-1], Tail.of(self.form, last.tuples))

    def sealing(self, arrived: BatchColumns) -> TaskCoroutine[SealedRun] | None:
        """Return a coroutine that makes a run of a large batch of new tuples; None: the batch is to go to the tail.

        It may be called while tuples of the push before are still being taken into this window.
        """
        return self.form.sealing(arrived.batch) if arrived.rows > self.form.tailed_rows else None

    def taking(self, arrived: BatchColumns, run: SealedRun | None) -> tuple[Window, Selection]:
        """Return the window with new tuples, before any merging, and a selection of these tuples as probes.

        Parameters
        ----------
        arrived : BatchColumns
            Tuples as for `RunMaker.sealed`, at least one.
        run : Run or None
            The run that `sealing` made of them. None: they go to the tail. A tail that has no room for them, or that
            the merge policy calls large enough, is sealed first.
        """
        if run is not None:
            return self.inserted(run), Selection.whole(run)
        count = arrived.rows
        sealed, tail = self.sealed, self.tail
        is_long = tail.rows >= max(self.form.tailed_rows, 1) and self.form.merge_policy.ends(tail)
        if is_long or tail.rows + count > self.form.tail_rows:
            sealed, tail = (*sealed, self.form.sealed_tail(self)), self.form.no_tail
        hashed = self.form.with_hashes(arrived.batch)
        if hashed is not arrived.batch:
            arrived = self.form.run_columns(hashed)
        tail = tail.appended(arrived)
        window = self.remade(sealed, tail)
        if sealed is self.sealed:
            window.is_merged, window._quiet_until = self.is_merged, self._quiet_until
            window._is_fitting = self._is_fitting and tail.buffer is self.tail.buffer and self.tail.rows > 0
        return window, Selection(window.run_set, None, len(window.before_tail), tail.rows - count, count)

    def merged(self) -> Window:
        """Return the window after all merges that are due."""
        return self if self.is_merged else run_alone(self.merging_steps())

    def merging_steps(self) -> TaskCoroutine[Window]:
        """Do `merged` as a coroutine of kernels' tasks."""
        if self.is_merged:
            return self
        runs, every = list(self.sealed), self.runs
        span = int(max(run.position[1] for run in every) - min(run.position[0] for run in every)) if every else 0
        while len(runs) > 1 and (due := self.form.merge_policy.due(runs, span)) is not None:
            merged = yield from self.form.merging_runs(runs[due.runs])
            merged.level = due.level
            count = len(range(*due.runs.indices(len(runs))))
            _log.debug("stream %s: %d runs are merged into one of %d rows", self.form.stream_name, count, merged.rows)
            runs[due.runs] = [merged]
        window = Window(self.form, runs, self.tail) if len(runs) < len(self.sealed) else self
        window.is_merged = True
        return window if self.form.bucket_policy is None else self.form.bucket_policy.window(window)

    def unmerged(self) -> Window:
        """Return the window in a usable form after `merging_steps` broke off: the window itself."""
        return self

    def in_runs(self) -> Window:
        """Return a window with the same rows in immutable runs: the window itself."""
        return self

    def to_facts(self) -> dict[str, Any] | None:
        """Return what a saved state says of the window besides its runs, as plain JSON values; None: nothing."""
        return None

    def expired(self, lowest_kept: int, *, is_own: bool = False) -> Window:
        """Return the window without most tuples below `lowest_kept`, an event time, or a number of a count window.

        A run goes whole when its newest tuple is below. A run that is mostly below is thinned out, unless the merge
        policy forbids the copy. The window's rule refuses the older tuples that are left. `is_own`: nobody else has
        this window, so it may be changed in place.
        """
        del is_own
        tail = self.tail
        is_quiet = self._quiet_until is not None and lowest_kept <= self._quiet_until
        if is_quiet and (not tail.rows or lowest_kept <= tail.position[0] or lowest_kept <= _quiet_until(tail)):
            return self
        every = self.runs
        runs = [
            run
            for run in (_thinned(run, lowest_kept, every, self.form.merge_policy) for run in self.sealed)
            if run is not None
        ]
        if tail.rows:
            tail = thinned_tail(tail, lowest_kept) or self.form.no_tail
        window = self
        if len(runs) < len(self.sealed) or tail is not self.tail or any(map(operator.is_not, runs, self.sealed)):
            window = Window(self.form, runs, tail, self._run_set)
            window.is_merged = self.is_merged
            if len(runs) < len(self.sealed):
                told = self.form.stream_name, len(self.sealed) - len(runs), window.rows
                _log.debug("stream %s: %d runs have expired; %d rows are left", *told)
        window._quiet_until = min((_quiet_until(run, lowest_kept) for run in runs), default=INT64_MAX)
        return window


def _thinned(run: SealedRun, lowest_kept: int, runs: Sequence[Run], policy: MergePolicy) -> SealedRun | None:
    """Return a run without its older tuples, where they are most of it and worth a copy; None where all are older."""
    if run.position[1] < lowest_kept:
        return None
    point = _last_point(run, lowest_kept)
    if point is None or not policy.thins(run, runs, lowest_kept):
        return run
    return run.kept(run.key(run.form.position_key) >= lowest_kept) if _is_mostly_below(run, point) else run


def thinned_tail(tail: Tail, lowest_kept: int) -> Tail | None:
    """Return a tail without its older tuples, where they are most of it; None where all are older."""
    if tail.position[1] < lowest_kept:
        return None
    point = _last_point(tail, lowest_kept)
    if point is None or not _is_mostly_below(tail, point):
        return tail
    return tail.kept(tail.key(tail.form.position_key) >= lowest_kept)


def _is_mostly_below(run: Run, point: int) -> bool:
    """Whether most rows of a run are below a point.

    It is asked only at fixed points of the run's span. So the answer is a function of the run and the time alone, and
    is worked out only a few times.
    """
    live = int(np.count_nonzero(run.key(run.form.position_key) >= point))
    return live < run.form.tuning.expiry.least_live_share * run.rows


def _last_point(run: Run, lowest_kept: int) -> int | None:
    """Return the last point up to `lowest_kept` at which a run may be thinned out; None where it has reached none.

    The points lie in the second half of the run's span, at equal distances.
    """
    (lowest, highest), points = _ends(run), run.form.tuning.expiry.thinning_points
    step = max((highest - lowest) // points, 1)
    number = (lowest_kept - lowest) // step
    return lowest + number * step if 2 * number >= points else None


def _quiet_until(run: Run, seen: int | None = None) -> int:
    """Return the largest `lowest_kept` at which expiry is sure to leave a run as it is.

    `seen` is the `lowest_kept` of the last look at the run; None: there was none.
    """
    (lowest, highest), points = _ends(run), run.form.tuning.expiry.thinning_points
    step = max((highest - lowest) // points, 1)
    number = points // 2
    if seen is not None:
        number = max((seen - lowest) // step + 1, number)
    return min(highest, lowest + number * step - 1)


def _ends(run: Run) -> tuple[int, int]:
    lowest, highest = run.position
    return int(lowest), int(highest)
