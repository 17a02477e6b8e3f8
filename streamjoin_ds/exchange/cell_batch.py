"""What a cell must know of its batch beside tuples: one exchange row for each cell, which a read task sends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streamjoin_ds.exchange.outbox import NOTHING, exchange_batch
from streamjoin_ds.plan import USUAL_SIZING, BlockSizing, Epochs, Plan
from streamjoin_ds.source.batch_plan import TableVersion, versions_from, versions_told
from streamjoin_ds.source.records import NO_TIME

__all__ = ["CellBatch", "batch_row"]


@dataclass(frozen=True, slots=True)
class CellBatch:
    """The part of a `BatchPlan` that the cells need: all of it but the streams' positions.

    Attributes
    ----------
    epochs : Epochs or None
        None while there is only the first.
    idle : tuple of int
        Streams that do not hold the watermark.
    lows_us : mapping of int to int or None
        For each stream of many partitions the smallest time of those that are not idle
        (`PartitionedPosition.low_us`); None where it is not known.
    tables : mapping of str to TableVersion
        The version of each table that the batch joins.
    sizing : BlockSizing
    backlog_rows, backlog_us : int or None
        What the planner knew of the backlog of all streams, on its way to Spark's progress. None where Spark plans.
    """

    epochs: Epochs | None = None
    idle: tuple[int, ...] = ()
    lows_us: Mapping[int, int | None] = field(default_factory=dict)
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    sizing: BlockSizing = USUAL_SIZING
    backlog_rows: int | None = None
    backlog_us: int | None = None

    def to_json(self) -> str:
        """Return this as JSON."""
        facts = {
            "epochs": self.epochs and self.epochs.to_facts(),
            "idle": self.idle,
            "lows_us": list(self.lows_us.items()),
            "tables": versions_told(self.tables),
            "blocks": self.sizing.to_facts(),
            "backlog": [self.backlog_rows, self.backlog_us],
        }
        return json.dumps(facts, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, streams: int) -> CellBatch:
        """Return what `to_json` wrote, of a join of so many streams."""
        facts = json.loads(text)
        return cls(
            facts["epochs"] and Epochs.from_facts(facts["epochs"], streams),
            tuple(facts["idle"]),
            dict(facts["lows_us"]),
            versions_from(facts["tables"]),
            BlockSizing.from_facts(facts["blocks"]),
            *facts["backlog"],
        )


def batch_row(plan: Plan, text: str, epochs: Epochs | None) -> pa.RecordBatch:
    """Return the row of kind "batch" for every cell; `text` is that of a `CellBatch`, and `epochs` are its own.

    A cell has it in each batch, so it expires, reports and saves its state also where it is sent no tuples.
    """
    labels = plan.labels_of(plan.layout.cells if epochs is None else epochs.cells)
    return exchange_batch(
        [(label, "batch", 0, 0, 0, 0, 0, 0, NO_TIME, *NOTHING, "", text.encode()) for label in labels]
    )
