"""The tables of a join in a worker: blocks that are mapped, sorted once, and met by all cells that the worker runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.storage.table_windows import TableWindows
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Plan
from streamjoin_ds.source.table_version import TableVersion
from streamjoin_ds.source.tables.table_versions import tables_folder

__all__ = ["give_tables"]

_MOST_JOINS = 4  # joins whose tables a worker keeps sorted
# A hint, which spares sorting the same rows in every batch: what is kept says of which blocks it is.
_kept: OrderedDict[tuple[str, str], TableWindows] = OrderedDict()


def give_tables(plan: Plan, engines: Sequence[WindowJoin], versions: Mapping[str, TableVersion]) -> None:
    """Have engines join these versions of their tables.

    Raises
    ------
    BlockMissingError, BlockCorruptError
        A version's block is gone or damaged. Nothing was written.
    """
    if not plan.bound.join.tables or not engines:
        return
    key = plan.bound.fingerprint, repr(plan.execution.engine_options())
    tables = _kept.pop(key, None) or engines[0].tables
    _kept[key] = tables
    while len(_kept) > _MOST_JOINS:
        _kept.popitem(last=False)
    store = BlockStore(tables_folder(plan.block_root))
    for name, version in versions.items():
        if tables.versions.get(name) != version.block:
            tables.use(name, [store.read(version.block)], version.block)
    for engine in engines:
        engine.use_tables(tables)
