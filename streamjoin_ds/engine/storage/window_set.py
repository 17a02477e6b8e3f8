"""The state of a join between two pushes: windows and totals, all of which change in one step.

::

    push      sort ─ probe ─ results ─ commit ─ insert ┄┄┄ ┐   Python: the caller's, the next push's
    pool                                        insert ────┴─► inserted    ends when the windows are asked for
    next push                                   sort ────────────► windows ─ probe ─ results ─ ...

A push takes effect when its `JoinState` is stored, by one assignment. So an exception from outside (Ctrl-C, a timeout)
finds the push in with all its totals, or not in at all. The work that follows puts new tuples into bucket grids and
merges runs. It changes no result and no total, and may be interrupted at any point. The next caller that asks for the
windows continues it. Where memory is too short for it, the tuples stay beside the grid, in runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.scheduler import Scheduler
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.waiting import StreamWaiting
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.threads.tasks import run_alone

__all__ = ["JoinState", "WindowSet"]


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
