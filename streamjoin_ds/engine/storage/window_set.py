"""The windows of all streams and tables of a join: their forms, the tuples that they take, their state between pushes.

*Forms.* A join's options decide the form of each window (`window_forms`). Only tuples with a value in every compared
column may have partners (`Joinable`, by `NullKeyMask`).

*Tables.* Probes meet one version of each table, in one sealed run. A table's window is given from outside and changed
by nobody: it is in no state, its rows are no probes, and none expires (ARCHITECTURE.md, "A stream and a table").

*Between two pushes.* Windows and totals change in one step::

    push      sort ─ probe ─ results ─ commit ─ insert ┄┄┄ ┐   Python: the caller's, the next push's
    pool                                        insert ────┴─► inserted    ends when the windows are asked for
    next push                                   sort ────────────► windows ─ probe ─ results ─ ...

A push takes effect when its `JoinState` is stored, by one assignment. So an exception from outside (Ctrl-C, a timeout)
finds the push in with all its totals, or not in at all. The work that follows puts new tuples into bucket grids and
merges runs. It changes no result and no total, and may be interrupted at any point. The next caller that asks for the
windows continues it. Where memory is too short for it, the tuples stay beside the grid, in runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import NullKeyMask, filtered
from streamjoin_ds.engine.cost_model import Sizing
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.scheduler import Scheduler, run_alone
from streamjoin_ds.engine.storage.bucket_grid.policy import BucketGridPolicy
from streamjoin_ds.engine.storage.merge_policy import chosen_merge_policy
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.sort_layout import forced_index
from streamjoin_ds.engine.storage.waiting import StreamWaiting
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.tuning import Tuning
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import names_hint

__all__ = ["JoinState", "Joinable", "TableWindows", "Tuples", "WindowSet", "checked_batches", "window_forms"]

_log = logging.getLogger(__name__)

Tuples: TypeAlias = "pa.Table | pa.RecordBatch"


def window_forms(
    bound: BoundJoin,
    kernels: Kernels,
    tuning: Tuning,
    *,
    index: str | Mapping[str, Sequence[str]],
    merge_runs: int | None,
    block_bytes: int | None,
    bucket_rows: int | None,
    sizing: Sizing | None = None,
) -> tuple[WindowForm, ...]:
    """Return a form for each stream and table; options are those of `WindowJoin`, the sizes of runs those of `sizing`.

    Raises
    ------
    ArgumentError, ColumnError
        As `forced_index` and `chosen_merge_policy`.
    """
    forms = []
    for stream, layout in enumerate(forced_index(bound, index)):
        if stream >= len(bound.names):  # the rows of a table are one run, which nothing is added to
            forms.append(WindowForm(bound, stream, kernels, layout, tuning=tuning))
            continue
        extent = bound.kept_extent(stream)
        merging = chosen_merge_policy(merge_runs, block_bytes, extent, tuning.merging)
        grid = None
        if bucket_rows is not None and layout == "auto":
            is_sampled = len(bound.member_names) > 2
            grid = BucketGridPolicy(bucket_rows, extent, is_sampled=is_sampled, tuning=tuning.grid)
        forms.append(WindowForm(bound, stream, kernels, layout, merging, grid, tuning=tuning, sizing=sizing))
    return tuple(forms)


def checked_batches(
    forms: Sequence[WindowForm], batches: Mapping[int, Tuples | Sequence[Tuples]]
) -> dict[int, BatchColumns]:
    """Return the new tuples of each stream as kernels read them.

    Raises
    ------
    ArgumentError
        A batch is for a stream that the join does not have.
    ColumnError
        As `RunForm.checked`.
    """
    fresh = {}
    for stream, tables in batches.items():
        if not 0 <= stream < len(forms):
            msg = "a batch is for a stream that the join does not have"
            raise ArgumentError(msg, name="batches", hint=f"stream numbers from 0 to {len(forms) - 1}")
        several = [tables] if isinstance(tables, (pa.Table, pa.RecordBatch)) else list(tables)
        fresh[stream] = forms[stream].checked(several)
    return fresh


class AnyMask:
    """Tells which tuples of one stream may have partners in any of several others."""

    def __init__(self, masks: Sequence[NullKeyMask]) -> None:
        self._masks = tuple(masks)

    def mask(self, arrived: BatchColumns) -> npt.NDArray[np.bool_] | None:
        """Return which tuples do; None: all of them."""
        found = np.zeros(arrived.rows, np.bool_)
        for one in self._masks:
            mask = one.mask(arrived)
            if mask is None:
                return None
            found |= mask
        return None if found.all() else found


class Joinable:
    """The test of all members of a join.

    Parameters
    ----------
    bound : BoundJoin
    forms : sequence of WindowForm
        One for each stream, then one for each table.
    """

    def __init__(self, bound: BoundJoin, forms: Sequence[WindowForm]) -> None:
        self._forms = tuple(forms)
        self._masks: list[NullKeyMask | AnyMask] = [NullKeyMask(bound, form.stream) for form in forms]
        if bound.row_kind.of_each and bound.row_kind.lonely:  # a null leaves the partners in the other streams
            self._masks[0] = AnyMask([NullKeyMask(bound, 0, other) for other in range(1, len(bound.names))])

    def partnered(self, member: int, tuples: BatchColumns) -> BatchColumns:
        """Return the tuples that may have partners."""
        mask = self._masks[member].mask(tuples)
        return tuples if mask is None else self._forms[member].tuple_columns(filtered(tuples.batch, mask))

    def alone(self, member: int, tuples: BatchColumns) -> pa.RecordBatch:
        """Return the tuples that can have none, of which there are some."""
        mask = self._masks[member].mask(tuples)
        assert mask is not None, "some tuples can have no partner"
        return filtered(tuples.batch, ~mask)

    def count_alone(self, member: int, tables: Sequence[Tuples]) -> int:
        """Return how many tuples can have no partner."""
        mask = self._masks[member].mask(self._forms[member].checked(tables))
        return 0 if mask is None else int(np.count_nonzero(~mask))


class TableWindows:
    """The versions of a join's tables that new tuples meet.

    Parameters
    ----------
    forms : sequence of WindowForm
        One for each table.
    joinable : Joinable
    """

    def __init__(self, forms: Sequence[WindowForm], joinable: Joinable) -> None:
        self._forms, self._joinable = {form.stream_name: form for form in forms}, joinable
        self._windows: dict[str, Window] = {}
        self.versions: dict[str, str] = {}

    def copied(self) -> TableWindows:
        """Return an object of the same versions, which may be given others."""
        copy = TableWindows([*self._forms.values()], self._joinable)
        copy._windows, copy.versions = dict(self._windows), dict(self.versions)
        return copy

    def use(self, name: str, rows: Sequence[Tuples], version: str) -> None:
        """Have later pushes meet another version of a table.

        Parameters
        ----------
        name : str
        rows : sequence of table or record batch
            In the inside form (`spec.table_rows`). Rows with a null or NaN in a compared column are nobody's partner.
        version : str
            Where it is the version that is in use, nothing is done.

        Raises
        ------
        ArgumentError
            The join has no such table.
        ColumnError
            As `RunForm.checked`.
        """
        form = self._forms.get(name)
        if form is None:
            msg = f"the join has no table '{name}'"
            raise ArgumentError(msg, name=name, hint=names_hint(name, [*self._forms], "its tables are"))
        if self.versions.get(name) == version:
            return
        batch = self._joinable.partnered(form.stream, form.checked(rows)).batch
        self._windows[name] = Window(form, [form.sealed(batch)] if batch.num_rows else [])
        self.versions[name] = version
        _log.debug("table %s: version %s of %d rows", name, version, batch.num_rows)

    @property
    def windows(self) -> list[Window]:
        """The windows of all tables, in their order; ArgumentError where a table has no version yet."""
        for name in self._forms:
            if name not in self._windows:
                msg = f"the rows of table {name} are not known"
                raise ArgumentError(msg, name=name, hint=f"call use_table('{name}', rows) before the first push")
        return [self._windows[name] for name in self._forms]

    def described(self) -> list[str]:
        """Return a line for each table: its rows, and how they are laid out."""
        lines = []
        for name, form in self._forms.items():
            window = self._windows.get(name)
            told = "no version yet" if window is None else f"{window.rows} rows"
            names = [key.column for key in form.keys]
            for run in window.sealed if window is not None else ():
                told = f"{told}: {run.sort_layout.described(names)}"
            lines.append(f"table {name}: {told}")
        return lines


class JoinState:
    """The state of a join after a push; its totals never change.

    Attributes
    ----------
    windows : list of Window
        One for each stream. Windows with the same tuples in fewer or other runs may replace them.
    matches, pushes : int
        Totals since the join began.
    stored, null_keys : sequence of int
        Totals since the join began, one for each stream: tuples that came in, and those of them with a null key.
    waiting : sequence of StreamWaiting
        The tuples that wait for their horizon, of each stream whose tuples are decided there.
    beside : object
        The caller's own counts; they change together with the windows.
    is_settled : bool
        Whether no work on these windows is under way. Until then a grid may hold tuples that are also in the runs
        beside it.
    ending : callable or None
        Waits for the work that was begun on these windows, and returns the windows that it makes.
    """

    __slots__ = ("beside", "ending", "is_settled", "matches", "null_keys", "pushes", "stored", "waiting", "windows")

    def __init__(
        self,
        windows: list[Window],
        matches: int,
        pushes: int,
        stored: Sequence[int],
        null_keys: Sequence[int],
        beside: Any = None,
        is_settled: bool = True,
        waiting: Sequence[StreamWaiting] = (),
    ) -> None:
        self.windows, self.matches, self.pushes = windows, matches, pushes
        self.waiting = tuple(waiting)
        self.stored, self.null_keys = stored, null_keys
        self.beside, self.is_settled = beside, is_settled
        self.ending: Callable[[], list[Window]] | None = None

    def expired_rows(self, state_rows: int) -> int:
        """Return how many tuples have expired, given how many rows the windows hold now."""
        return sum(self.stored) - sum(self.null_keys) - state_rows


class WindowSet:
    """The last state of a join, and the work under way on its windows.

    Parameters
    ----------
    state : JoinState
        Replacing it is the one assignment by which a push takes effect.
    scheduler : Scheduler
        Runs the steps of several windows side by side.
    module : module
        The kernels.
    sorted_alone_rows : int
        New tuples of a push, at most, that the caller sorts alone although it has a pool.
    goes_on : bool
        Whether tuples may stay beside the grids when memory is short. If not, the caller gets a MemoryError.
    """

    def __init__(
        self,
        state: JoinState,
        scheduler: Scheduler,
        module: KernelModule,
        *,
        sorted_alone_rows: int,
        goes_on: bool = False,
    ) -> None:
        self.state, self._sorted_alone_rows = state, sorted_alone_rows
        self._scheduler, self._goes_on = scheduler, goes_on
        self._gate = module.Gate()  # another thread may ask for the windows too, to read counters

    def use(self, scheduler: Scheduler) -> None:
        """Have another scheduler run what is begun from now on; call it when all work on the windows is done."""
        self._scheduler = scheduler

    @property
    def windows(self) -> list[Window]:
        """Return the windows after all work on them is done."""
        return self.settled(self.state)

    def settled(self, state: JoinState) -> list[Window]:
        """Return the windows of a state after all work on them is done."""
        if not state.is_settled:
            self._gate.through(self._settle, state)
        return state.windows

    def sealed(
        self, before: JoinState, ready: Mapping[int, BatchColumns], rows: int
    ) -> tuple[list[Window], list[SealedRun | None]]:
        """Return the windows, and for each stream with new tuples their run, or None where they go to the tail.

        With a pool, the new tuples are sorted while those of the last push still go into the windows.
        """
        works = [before.windows[stream].sealing(tuples) for stream, tuples in ready.items()]
        if not any(works):
            return list(self.settled(before)), [None] * len(works)
        due = [work for work in works if work is not None]
        if self._scheduler.has_pool and rows > self._sorted_alone_rows:
            with self._scheduler.staying():
                ended = self._scheduler.begun(due)
                windows, made = list(self.settled(before)), ended()
        else:
            windows, made = list(self.settled(before)), [run_alone(work) for work in due]
        runs = iter(made)
        return windows, [None if work is None else next(runs) for work in works]

    def take_in(self, rows: int, *, waits: bool) -> None:
        """Begin to take in the state's new tuples, of which there are `rows`, and to merge its runs.

        `waits`: whether to return only when that is done. If not, a pool goes on with it.
        """
        is_small = rows <= self._sorted_alone_rows and all(w.is_merged or w.is_grid for w in self.state.windows)
        if is_small and not waits:  # a grid takes few tuples in less time than it takes to wake another thread
            self.settled(self.state)
            return
        try:
            self._gate.through(self._take_in, self.state, waits)
        except MemoryError:  # the push has taken effect; the next caller that asks for the windows goes on
            if not self._goes_on:
                raise

    def _take_in(self, state: JoinState, waits: bool) -> None:
        try:
            state.ending = self._scheduler.begun([window.merging_steps() for window in state.windows])
        except MemoryError:
            self._leave_beside(state)
        if waits:
            self._settle(state)

    def _settle(self, state: JoinState) -> None:
        if state.is_settled:
            return
        ending, state.ending = state.ending, None
        try:
            if ending is None:
                # The work broke off. The pool's tasks must be over before the grids are asked which rows they have.
                self._scheduler.finish()
                windows = [run_alone(window.merging_steps()) for window in state.windows]
            else:
                windows = ending()
        except MemoryError:
            self._leave_beside(state)
        else:
            state.windows = windows
            state.is_settled = True

    def _leave_beside(self, state: JoinState) -> None:
        """Leave the tuples that are not in the grids yet in runs beside them.

        It is called while a MemoryError is handled, and raises it again where the join may not go on.
        """
        if not self._goes_on:
            raise
        self._scheduler.finish()
        state.windows = [window.unmerged() for window in state.windows]
        state.is_settled = True
