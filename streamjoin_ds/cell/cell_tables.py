"""The tables of a join in a worker: blocks that are mapped, sorted once, and met by all cells that the worker runs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.storage.table_windows import TableWindows
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution, Plan
from streamjoin_ds.source.batch_plan import TableVersion, versions_from
from streamjoin_ds.source.table_versions import tables_folder

__all__ = ["give_tables", "given_versions", "table_blocks"]

_MOST_JOINS = 4  # joins whose tables a worker keeps sorted
# A hint, which spares sorting the same rows in every batch: what is kept says of which blocks it is.
_kept: OrderedDict[tuple[str, Execution], TableWindows] = OrderedDict()


def give_tables(
    plan: Plan, engines: Sequence[WindowJoin], blocks: Mapping[str, str], read: Callable[[str], pa.Table]
) -> None:
    """Have engines join versions of their tables.

    Parameters
    ----------
    plan : Plan
    engines : sequence of WindowJoin
    blocks : mapping of str to str
        By a table's name the name of its version's block, which carries the checksum.
    read : callable
        Returns a block by its name; `table_blocks` reads those of a checkpoint.
    """
    if not plan.bound.join.tables or not engines:
        return
    key = plan.bound.fingerprint, plan.execution
    tables = _kept.pop(key, None) or engines[0].tables
    _kept[key] = tables
    while len(_kept) > _MOST_JOINS:
        _kept.popitem(last=False)
    for name, block in blocks.items():
        if tables.versions.get(name) != block:
            tables.use(name, [read(block)], block)
    for engine in engines:
        engine.tables = tables


def given_versions(plan: Plan, batch_id: int) -> dict[str, TableVersion]:
    """Return the versions that a batch over DataFrames joins: those of the last start before it was planned."""
    told = [versions for first, versions in plan.given_tables if first <= batch_id]
    return versions_from(json.loads(told[-1])) if told else {}


def table_blocks(plan: Plan) -> Callable[[str], pa.Table]:
    """Return what reads the blocks of a checkpoint's tables.

    It raises BlockMissingError or BlockCorruptError where a version's block is gone or damaged.
    """
    return BlockStore(tables_folder(plan.block_root)).read
