"""The exchange carries tuples from read tasks to cells (ARCHITECTURE.md, "The exchange").

::

    reference   task ── block files ──► cell      a row is a name                     (`outbox`)
    packed      task ── rows that carry a block's bytes ──► cell                      (`outbox`)
    foreign     any DataFrame ── mapInArrow(pack_frame) ──► as packed                 (`frame_packing`, `row_order`)

One exchange row is one block for one cell. Every cell gets at least one row of kind "tuples" for every part of a batch,
without tuples if there are none. Such a row is the heartbeat: it says how far time is. What was decided about the batch
is one row more for each cell (`CellBatch`).
"""

from streamjoin_ds.exchange.frame_packing import Packer, foreign_columns, pack_foreign, pack_frame
from streamjoin_ds.exchange.outbox import (
    EXCHANGE_DDL,
    EXCHANGE_SCHEMA,
    LARGEST_TS,
    LAYOUT_KEY,
    CellBatch,
    Outbox,
    batch_row,
    exchange_folder,
    is_committed_block,
    late_schema,
    open_block,
    remove_committed,
)
from streamjoin_ds.exchange.row_order import partition_bits, running_maximum, times_before

__all__ = [
    "EXCHANGE_DDL",
    "EXCHANGE_SCHEMA",
    "LARGEST_TS",
    "LAYOUT_KEY",
    "CellBatch",
    "Outbox",
    "Packer",
    "batch_row",
    "exchange_folder",
    "foreign_columns",
    "is_committed_block",
    "late_schema",
    "open_block",
    "pack_foreign",
    "pack_frame",
    "partition_bits",
    "remove_committed",
    "running_maximum",
    "times_before",
]
