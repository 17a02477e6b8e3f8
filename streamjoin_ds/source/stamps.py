"""Stamps: of each tuple, how many records of every other stream precede it in the source's order (count windows).

A task reads one stream's part of a batch. What the other streams have in the batch it sees by their event times alone::

    batches before │ batch                                │
    ───────────────┼──────────────────────────────────────┤
    stream r       │ r r r   r     r r   r                 │   stamp of s* = records of r before the batch
    stream s       │     s  s*  s          s               │               + those of the batch before s*
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.position import Position
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.ahead import AheadLimit
from streamjoin_ds.spec.bound import SEQ, BoundJoin
from streamjoin_ds.spec.order import preceding

__all__ = ["Stretch", "precedents", "stamped"]

# A batch's ``[start, end)`` of one stream.
Stretch = tuple[Position, Position]


def precedents(
    bound: BoundJoin,
    stream: int,
    part: Stretch,
    batch: Sequence[Stretch],
    feeds: Sequence[Feed[Any]],
    aheads: Sequence[AheadLimit | None],
) -> dict[str, np.ndarray]:
    """The stamps of the records of a part, by the name of their column.

    Parameters
    ----------
    part : tuple of Position
        ``[start, end)`` of `stream`, within its stretch of the batch.
    batch : sequence of tuple of Position
        ``[start, end)`` of every stream.
    aheads : sequence of AheadLimit or None
        How far the records of every stream may be ahead.

    Returns
    -------
    dict of ndarray, shape (records of the part,), int64
        Empty where the window needs none.
    """
    if not bound.stamps(stream):
        return {}
    running = [
        feed.running_max(*(part if number == stream else stretch), ahead)
        for number, (feed, stretch, ahead) in enumerate(zip(feeds, batch, aheads, strict=True))
    ]
    others = [number for number in range(len(feeds)) if number != stream]
    names = zip(bound.stamps(stream), others, strict=True)
    return {name: preceding(running, stream, other) + batch[other][0].seq for name, other in names}


def stamped(chunks: Iterable[Chunk], first_seq: int, stamps: Mapping[str, np.ndarray]) -> Iterator[Chunk]:
    """The chunks of a part that begins with the record `first_seq`, with the stamps as further columns."""
    for chunk in chunks:
        tuples = chunk.tuples
        places = tuples.column(SEQ).to_numpy() - first_seq
        for name, values in stamps.items():
            column = pa.field(name, pa.int64(), nullable=False)
            tuples = tuples.append_column(column, pa.array(values[places]))
        yield Chunk(chunk.first_seq, chunk.count, tuples, chunk.rejects)
