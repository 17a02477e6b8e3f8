"""The plan of one running join: what the later rooms need to know, as one frozen object and one JSON text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamjoin_ds.errors import ArgumentError, LayoutError
from streamjoin_ds.plan.execution import DEFAULT_EXECUTION, Execution
from streamjoin_ds.plan.labels import cell_labels, cell_of_label
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.spec import BoundJoin, bound_from_facts

__all__ = ["EXCHANGES", "Plan"]

# Runs of at least this many bytes are blocks. A file costs 0.5 ms with its fsync, once. A MB in the state row costs
# about 15 ms, in every batch.
BLOCK_BYTES = 64 << 10
# The three ways in which tuples get from source to cell (ARCHITECTURE.md, "The exchange").
EXCHANGES = ("reference", "packed", "rows")


@dataclass(frozen=True)
class Plan:
    """A bound join, its layout of cells, and where its blocks and tables lie.

    Parameters
    ----------
    bound : BoundJoin
        The join, with its columns' types.
    layout : Layout
        Number of groups of each stream: the layout that the checkpoint began with.
    partitions : int
        Number of Spark's state partitions.
    exchange : {"reference", "packed", "rows"}
        How tuples get from source to cell.
    block_root : str
        The checkpoint's folder. Below it lie the exchange's blocks, which every worker must see where the exchange is
        by reference.
    table_root : str
        The matches table. The other tables are its siblings.
    join_id : str
        Identity of the checkpoint. The table refuses another one.
    foreign : bool
        Whether the tuples come from DataFrames, which have no order. Lateness is then judged by the watermark at each
        batch's start.
    execution : Execution
        Options of each cell's engine.
    state_root : str
        Folder of the windows' blocks, which every worker must see; empty where windows stay inline in Spark's state.
    block_bytes : int
        Runs of at least this size are blocks. A smaller one costs less inside the state row.
    retain_batches : int
        How many batches Spark can go back by (``spark.sql.streaming.minBatchesToRetain``).
    durable : bool
        Whether a batch is forced to the device before it counts.
    layout_schedule : tuple of (int, Layout)
        Each layout with the number of records, of all streams together, from which on it is wanted; ascending. Empty:
        the rates decide. No layout has more cells than `cells`.
    wanted : Layout, optional
        The layout to go on with where the newest one has another number of cells and the rates are not known. By
        default that is `layout`.
    spark_root : str
        Folder of Spark's own files: the checkpoint's folder, or one in it. By default `block_root`.
    costs : tuple of (str, float)
        What the engine's operations cost, in nanoseconds, as it was measured at this start: so all workers choose the
        same sizes of runs. Each start measures anew, and no row depends on it. Empty: not known.
    """

    bound: BoundJoin
    layout: Layout
    partitions: int
    exchange: str = "reference"
    block_root: str = ""
    table_root: str = ""
    join_id: str = ""
    foreign: bool = False
    execution: Execution = DEFAULT_EXECUTION
    state_root: str = ""
    block_bytes: int = BLOCK_BYTES
    retain_batches: int = 100
    durable: bool = True
    layout_schedule: tuple[tuple[int, Layout], ...] = ()
    wanted: Layout | None = None
    spark_root: str = ""
    costs: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark_root", self.spark_root or self.block_root)
        if self.exchange not in EXCHANGES:
            msg = "there is no exchange of this name"
            raise ArgumentError(msg, name="exchange", hint=f"one of {', '.join(EXCHANGES)}, or auto")
        if len(self.layout.counts) != len(self.bound.names):
            streams = len(self.bound.names)
            msg = f"the layout has {len(self.layout.counts)} group counts, but the join has {streams} streams"
            hint = f"one group count for each stream, for example {'x'.join(['2'] * streams)}"
            raise LayoutError(msg, name="layout", hint=hint)
        if any(layout.cells > self.cells for _, layout in self.layout_schedule):
            msg = f"a layout of the schedule has more cells than the plan, which has {self.cells}"
            raise LayoutError(msg, name="layout", hint=f"group counts whose product is at most {self.cells}")
        if self.partitions < 1:
            msg = "a plan needs at least one state partition"
            raise ArgumentError(msg, name="partitions", hint="set spark.sql.shuffle.partitions to at least 1")

    @property
    def cells(self) -> int:
        """The number of cells to which new tuples are dealt."""
        return (self.wanted or self.layout).cells

    @property
    def labels(self) -> tuple[int, ...]:
        """The grouping key of each of the `cells` cells."""
        return self.labels_of(self.cells)

    def labels_of(self, cells: int) -> tuple[int, ...]:
        """Return the grouping keys of so many cells."""
        return _labels(cells, self.partitions)

    def cell_of(self, label: int) -> int:
        """Return the cell whose grouping key is `label`."""
        return cell_of_label(label, self.partitions)

    def to_json(self) -> str:
        """Return the plan as one canonical JSON text."""
        facts = {
            "bound": self.bound.to_facts(),
            "layout": list(self.layout.counts),
            "partitions": self.partitions,
            "exchange": self.exchange,
            "block_root": self.block_root,
            "table_root": self.table_root,
            "join_id": self.join_id,
            "foreign": self.foreign,
            "execution": self.execution.to_facts(),
            "state_root": self.state_root,
            "block_bytes": self.block_bytes,
            "retain_batches": self.retain_batches,
            "durable": self.durable,
            "layout_schedule": [[rows, list(layout.counts)] for rows, layout in self.layout_schedule],
            "spark_root": self.spark_root,
            "costs": dict(self.costs),
            "wanted": None if self.wanted is None else list(self.wanted.counts),
        }
        return json.dumps(facts, sort_keys=True, separators=(",", ":"))

    @classmethod
    @lru_cache(maxsize=8)  # all tasks of a query get the same text
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote."""
        facts: dict[str, Any] = json.loads(text)
        facts["bound"] = bound_from_facts(facts["bound"])
        facts["layout"] = Layout(tuple(facts["layout"]))
        facts["layout_schedule"] = tuple(
            (rows, Layout(tuple(counts))) for rows, counts in facts.get("layout_schedule", [])
        )
        wanted = facts.get("wanted")
        facts["wanted"] = None if wanted is None else Layout(tuple(wanted))
        facts["costs"] = tuple(facts.get("costs", {}).items())
        facts["execution"] = Execution.from_facts(facts["execution"])
        return cls(**facts)


@lru_cache(maxsize=64)
def _labels(cells: int, partitions: int) -> tuple[int, ...]:
    return cell_labels(cells, partitions)
