"""What a reader may see at any moment, also after a power cut: no punctuation is ahead of its matches."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.tail import tail_of

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["readable"]


def readable(world: World) -> list[str]:
    """Return what is wrong with the tables as a reader finds them."""
    last = {}
    for name in ("matches", "punctuations"):
        with contextlib.suppress(TableError):
            tail = tail_of(TableSet(world.plan.table_root).path_of(name))
            last[name] = -1 if tail is None or tail.last_batch is None else tail.last_batch
    texts = []
    if last["punctuations"] > last["matches"]:
        texts.append(f"after a cut batch {last['punctuations']} is promised, matches are there up to {last['matches']}")
    return texts
