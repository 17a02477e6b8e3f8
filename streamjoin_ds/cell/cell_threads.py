"""The threads of one cell's batch: as many as its work asks for, on cores that are leased for the batch.

::

    batch ──► wanted threads ──► free cores ──► threads, cores ──► engines ──► what it cost ──► the next batch's wanted

`Execution.threads` is the most. A batch that asks for one thread leases nothing, so that its cores are left to cells
that ask for more.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from streamjoin_ds.engine.threads.demand import ThreadDemand
from streamjoin_ds.engine.tuning import ThreadTuning
from streamjoin_ds.plan import Plan

__all__ = ["Staff", "demand_of"]

_Chunk = TypeVar("_Chunk")

# Joins whose costs a process remembers; a worker seldom serves more than one.
_REMEMBERED_JOINS = 16
_demands: OrderedDict[tuple[str, str, ThreadTuning], ThreadDemand] = OrderedDict()


def demand_of(plan: Plan, tuning: ThreadTuning) -> ThreadDemand:
    """Return what this process knows of a join's cost. A new worker knows nothing yet."""
    key = plan.join_id, plan.bound.fingerprint, tuning
    demand = _demands.pop(key, None) or ThreadDemand(tuning)
    _demands[key] = demand
    while len(_demands) > _REMEMBERED_JOINS:
        _demands.popitem(last=False)
    return demand


class Staff:
    """The threads that a cell has for one batch, and the time they take.

    Parameters
    ----------
    threads : int
    clock : callable
        Returns the processor time of this process, all threads together, in nanoseconds.

    Attributes
    ----------
    cpu_ns : int
        Processor time of the join so far.
    """

    def __init__(self, threads: int, clock: Callable[[], int] = time.process_time_ns) -> None:
        self.threads, self._clock = threads, clock
        self.cpu_ns = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the processor time while the context is open."""
        began_ns = self._clock()
        try:
            yield
        finally:
            self.cpu_ns += self._clock() - began_ns

    def timed(self, chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
        """Yield what `chunks` yields. What the reader does between two chunks is not counted."""
        while True:
            with self.counting():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk
