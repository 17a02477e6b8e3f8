"""What a join has between two pushes: windows and totals, all of which change in one step.

::

    push      sort ─ probe ─ results ─ commit ─ insert ┄┄┄ ┐   Python: the caller's, the next push's
    crew                                        insert ────┴─► inserted    ends when the windows are asked for
    next push                                   sort ────────────► windows ─ probe ─ results ─ ...

A push is in when its `JoinState` is stored, by one assignment: an exception that comes from outside (Ctrl-C, a timeout)
finds it in or not in, with all its totals. What follows, new tuples on their way into bucket grids and merges of runs,
changes nothing that counts. It may be interrupted at any point. The next caller that asks for the windows continues it.
Where there is no memory for it the tuples stay beside the grid, in runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamjoin_ds.engine.reference.kernel_module import KernelModule
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.threads.scheduler import Scheduler
from streamjoin_ds.engine.threads.tasks import run_alone

__all__ = ["JoinState", "WindowSet"]


class JoinState:
    """What a join has after a push; its totals never change.

    Attributes
    ----------
    windows : list of Window
        One a stream. The same tuples in fewer or other runs may take their place.
    matches, pushes : int
        Since the join began, as all totals.
    stored, null_keys : sequence of int
        One a stream.
    beside : object
        What the caller counts: it goes with the windows.
    is_settled : bool
        Whether nothing is on its way in these windows. Until then grids may have tuples that are beside them, too.
    ending : callable or None
        Waits for what is on its way; gives the windows that become of these.
    """

    __slots__ = ("beside", "ending", "is_settled", "matches", "null_keys", "pushes", "stored", "windows")

    def __init__(
        self,
        windows: list[Window],
        matches: int,
        pushes: int,
        stored: Sequence[int],
        null_keys: Sequence[int],
        beside: Any = None,
        is_settled: bool = True,
    ) -> None:
        self.windows, self.matches, self.pushes = windows, matches, pushes
        self.stored, self.null_keys = stored, null_keys
        self.beside, self.is_settled = beside, is_settled
        self.ending: Callable[[], list[Window]] | None = None

    def expired_rows(self, state_rows: int) -> int:
        """Return how many tuples have expired, given how many rows the windows hold now."""
        return sum(self.stored) - sum(self.null_keys) - state_rows


class WindowSet:
    """The last state, and what is on its way in it.

    Parameters
    ----------
    state : JoinState
        Replacing it is the one assignment by which a push takes effect.
    scheduler : Scheduler
        Runs the steps of several windows side by side.
    module : module
        The kernels.
    goes_on : bool
        Whether tuples may stay beside the grids when memory is short. If not, the caller gets a MemoryError.
    """

    def __init__(
        self,
        state: JoinState,
        scheduler: Scheduler,
        module: KernelModule,
        *,
        goes_on: bool = False,
    ) -> None:
        self.state = state
        self._scheduler, self._goes_on = scheduler, goes_on
        self._gate = module.Gate()  # another thread may ask too, for what is counted

    @property
    def windows(self) -> list[Window]:
        """Return the windows after all work on them is done."""
        return self.settled(self.state)

    def settled(self, state: JoinState) -> list[Window]:
        """The windows of a state when nothing is on its way in them any more."""
        if not state.is_settled:
            self._gate.through(self._settle, state)
        return state.windows

    def take_in(self, *, waits: bool) -> None:
        """Have the state's tuples taken in and its runs merged; a crew goes on with it where nobody waits."""
        try:
            self._gate.through(self._take_in, self.state, waits)
        except MemoryError:  # the push is in; whoever asks for the windows goes on with it
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
                # It broke off: what a crew was at is over before it is looked what is in.
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
        """Leave those tuples in runs that have no room in the grids; called while MemoryError is handled."""
        if not self._goes_on:
            raise
        self._scheduler.finish()
        state.windows = [window.unmerged() for window in state.windows]
        state.is_settled = True
