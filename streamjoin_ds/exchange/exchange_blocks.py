"""The blocks of the exchange: where they lie, how a cell opens one, and which nobody needs any more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore, unpack
from streamjoin_ds.blocks.place import below
from streamjoin_ds.plan.plan import Plan

__all__ = ["exchange_folder", "exchange_store", "is_committed_block", "open_block", "remove_committed"]

_BLOCK_NAME = re.compile(r"x(\d{2})-\d{19}-(\d{19})-\d{4}-(tuples|late|rejects)-[0-9a-f]{32}\.arrow")


def exchange_folder(checkpoint: object) -> str:
    """Return the folder of the blocks of a checkpoint's exchange."""
    return below(checkpoint, "exchange")


def exchange_store(plan: Plan) -> BlockStore:
    """Return the store of a plan's exchange blocks."""
    return _store_of(plan.block_root)


@lru_cache(maxsize=16)  # called for every block
def _store_of(checkpoint: str) -> BlockStore:
    return BlockStore(exchange_folder(checkpoint))


def open_block(plan: Plan, block: str, payload: bytes) -> pa.Table | None:
    """Return the table that an exchange row names or carries, its checksum verified; None where it has no rows."""
    if block:
        return exchange_store(plan).read(block)
    return unpack(payload) if payload else None


def remove_committed(plan: Plan, seqs: Sequence[int]) -> int:
    """Remove the blocks of records before ``seqs[stream]``, whose batches are committed; return how many are left.

    The names carry the range of records, so no process has to remember which blocks it wrote.
    """
    store = exchange_store(plan)
    names = list(store.names("x"))
    gone = [name for name in names if is_committed_block(name, seqs)]
    store.remove(gone)
    return len(names) - len(gone)


def is_committed_block(name: str, seqs: Sequence[int]) -> bool:
    """Whether `name` is that of an exchange block whose records all lie before ``seqs[stream]``."""
    match = _BLOCK_NAME.fullmatch(name)
    return match is not None and int(match[1]) < len(seqs) and int(match[2]) <= seqs[int(match[1])]
