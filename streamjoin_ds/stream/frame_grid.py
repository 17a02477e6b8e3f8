"""The layout of a query over DataFrames: its state decides it, not the session that happens to start the query.

`StreamJoin.dataframe` gives a DataFrame before there is a checkpoint, so it cannot look the layout up there. Spark
fixes the number of a query's state partitions with the first batch. It tells that number to every task of every later
batch, whatever the session says by then, and the layout follows it. One key of the state keeps the layout, and refuses
another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streamjoin_ds.cell.cell_state import CellState, corrupt_cell_state
from streamjoin_ds.cell.cell_windows import RETAIN_KEY
from streamjoin_ds.errors import ArgumentError, FingerprintMismatchError, LayoutError
from streamjoin_ds.plan import Layout, Load, Plan, choose_layout, deciding_cells, whole_layout
from streamjoin_ds.spec import BoundJoin

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

__all__ = ["FrameLayout", "check_kept_layout", "default_layout"]

_STATE_PARTITIONS_KEYS = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.shuffle.partitions",  # its name in checkpoints of Spark 4.1 and before
)
_MOST_CELLS = 64  # most cells of a layout that nobody asked for


def default_layout(partitions: int, bound: BoundJoin) -> Layout:
    """Return the layout that is used if none is asked for: one cell for each partition, at most 64.

    A DataFrame has no commit that could put the answers of several cells together.
    """
    cells = min(partitions, _MOST_CELLS)
    if bound.decided:
        return whole_layout(bound, deciding_cells(bound, cells))
    return choose_layout(cells, Load.of_windows([1.0] * len(bound.names)))


@dataclass(frozen=True)
class FrameLayout:
    """What a task needs to find the plan of its query; a call returns the plan.

    Parameters
    ----------
    plan_text : str
        The plan as the driver sees it, with the session's partitions.
    has_layout : bool
        Whether the layout was asked for.
    """

    plan_text: str
    has_layout: bool

    def __call__(self) -> Plan:
        """Return the plan for the state's partitions; only in a task of a streaming query.

        Raises
        ------
        ArgumentError
            Spark does not tell how many state partitions the query has.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a plan is laid out in a task"
        given = [value for key in _STATE_PARTITIONS_KEYS if (value := context.getLocalProperty(key))]
        if not given:
            msg = "Spark does not tell how many state partitions the query has"
            raise ArgumentError(
                msg, name=_STATE_PARTITIONS_KEYS[0], hint="use a version of pyspark that the README names as supported"
            )
        return _laid_out(self, int(given[0]), context.getLocalProperty(RETAIN_KEY))


@lru_cache(maxsize=8)  # every task asks
def _laid_out(grid: FrameLayout, partitions: int, retain: str | None) -> Plan:
    plan = Plan.from_json(grid.plan_text)
    layout = plan.layout if grid.has_layout else default_layout(partitions, plan.bound)
    return replace(
        plan, layout=layout, partitions=partitions, retain_batches=int(retain) if retain else plan.retain_batches
    )


def check_kept_layout(plan: Plan, state: GroupState) -> Iterator[Any]:
    """Keep the plan's layout in the state, or compare it with the one that is kept; return no rows.

    Raises
    ------
    LayoutError
        The state was made with another layout, or another number of partitions: cells would not find their windows.
    FingerprintMismatchError
        The state was made by another join.
    """
    wanted = {"layout": plan.layout.to_facts(), "partitions": plan.partitions}
    if not state.exists:
        state.update((1, CellState(plan.bound.fingerprint, [], grid=wanted).encode()))
        return iter(())
    kept = CellState.decode(bytes(state.get[1]))
    if kept.fingerprint != plan.bound.fingerprint:
        raise other_join()
    if kept.grid is None:
        raise corrupt_cell_state()
    if kept.grid["layout"] != wanted["layout"]:
        was = Layout(tuple(kept.grid["layout"]))
        msg = f"this checkpoint has the layout {was}, not {plan.layout}"
        raise LayoutError(msg, name="layout", hint=f"use dataframe(..., layout='{was}'), or a new checkpoint")
    if kept.grid["partitions"] != wanted["partitions"]:
        msg = f"this checkpoint's windows lie on {kept.grid['partitions']} state partitions, and now it has others"
        hint = "repartition the checkpoint back to that number, or use a new one"
        raise LayoutError(msg, name="partitions", hint=hint)
    return iter(())


def other_join() -> FingerprintMismatchError:
    """Return the error for a state that another join wrote."""
    msg = "this checkpoint belongs to another join: streams, predicates, window, selection or self-pairs differ"
    hint = (
        "restore the join's former definition, or start with a new checkpoint; a self-join of one DataFrame also needs "
        "a new one if a version that paired each tuple with itself wrote the old one"
    )
    return FingerprintMismatchError(msg, name="state", hint=hint)
