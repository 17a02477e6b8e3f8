"""The exchange carries tuples from read tasks to cells (ARCHITECTURE.md, "The exchange").

::

    reference   task ── block files ──► cell      a row is a name                     (`outbox`)
    packed      task ── rows that carry a block's bytes ──► cell                      (`outbox`)
    foreign     any DataFrame ── mapInArrow(pack_frame) ──► as packed                 (`frame_packing`, `row_order`)

One exchange row is one block for one cell. Every cell gets at least one row of kind "tuples" for every part of a batch,
without tuples if there are none. Such a row is the heartbeat: it says how far time is. What was decided about the batch
is one row more for each cell (`CellBatch`).
"""
