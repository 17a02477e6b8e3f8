"""Exchange rows without tuples, which tell the cells what the planner decided, or knew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamjoin_ds.blocks import pack
from streamjoin_ds.exchange.outbox import NOTHING, exchange_batch
from streamjoin_ds.plan import Epochs, Plan
from streamjoin_ds.source.event_time import NO_TIME

__all__ = ["FACTS", "backlog_row", "clock_rows", "epoch_rows", "fact_rows", "step_rows"]

# Kinds of rows that tell every cell what the batch's offset says: the versions of its tables, its settings of blocks.
FACTS = ("tables", "blocks")


def clock_rows(
    plan: Plan, lows_us: Iterable[tuple[int, int | None]], epochs: Epochs | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield, for every cell, a row for each of these streams, which have many partitions.

    It tells the smallest time of the stream's partitions that are not idle (`PartitionedPosition.low_us`), as
    `largest_ts`; the smallest int64 where it is not known.
    """
    cells = plan.layout.cells if epochs is None else epochs.cells
    rows = [
        (label, "clock", stream, 0, 0, 0, 0, 0, NO_TIME if low_us is None else low_us, *NOTHING, "", b"")
        for stream, low_us in lows_us
        for label in plan.labels_of(cells)
    ]
    if rows:
        yield exchange_batch(rows)


def epoch_rows(plan: Plan, epochs: Epochs) -> pa.RecordBatch:
    """Return a row for every cell, which tells it the epochs of the batch."""
    payload = json.dumps(epochs.to_facts(), separators=(",", ":")).encode()
    number = epochs.current.number
    labels = plan.labels_of(epochs.cells)
    return exchange_batch(
        [(label, "epochs", 0, 0, number, 0, 0, 0, NO_TIME, *NOTHING, "", payload) for label in labels]
    )


def backlog_row(plan: Plan, text: str, epochs: Epochs | None = None) -> pa.RecordBatch:
    """Return a row for the first cell, which reports what the planner knew of the backlog: JSON, for people."""
    (label, *_) = plan.labels_of(plan.layout.cells if epochs is None else epochs.cells)
    return exchange_batch([(label, "backlog", 0, 0, 0, 0, 0, 0, NO_TIME, *NOTHING, "", text.encode())])


def fact_rows(plan: Plan, kind: str, text: str, epochs: Epochs | None = None) -> pa.RecordBatch:
    """Return a row for every cell, which tells it a fact of the batch's offset as JSON; see `FACTS`."""
    labels = plan.labels_of(plan.layout.cells if epochs is None else epochs.cells)
    return exchange_batch([(label, kind, 0, 0, 0, 0, 0, 0, NO_TIME, *NOTHING, "", text.encode()) for label in labels])


def step_rows(plan: Plan, stream: int, part: int, steps: pa.Table) -> pa.RecordBatch:
    """Return a row for every cell with the steps of a task's rows (`row_order.steps_of`)."""
    payload = pack(steps, {"kind": "steps", "stream": plan.bound.names[stream]})
    return exchange_batch(
        [(label, "steps", stream, part, 0, 0, 0, 0, NO_TIME, *NOTHING, "", payload) for label in plan.labels]
    )
