"""Stamps for count windows: how many records of every other stream precede a tuple in the source's order.

A task reads one stream's part of a batch. Of the other streams' records in the batch it reads only the event times::

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
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.event_time import AheadLimit, preceding

__all__ = ["Stretch", "precedents", "stamped"]

# A range ``[start, end)`` of one stream within a batch, and the names of the files that hold it.
Stretch = tuple[Position, Position, Sequence[str]]


def precedents(
    bound: BoundJoin,
    stream: int,
    part: Stretch,
    batch: Sequence[Stretch],
    feeds: Sequence[Feed[Any]],
    aheads: Sequence[AheadLimit | None],
) -> dict[str, np.ndarray]:
    """Return the stamps of the records of a part, by the name of their column.

    Parameters
    ----------
    part : Stretch
        The part: a range of `stream` within the batch's range of it.
    batch : sequence of Stretch
        The batch's range of every stream.
    aheads : sequence of AheadLimit or None
        How far the records of each stream may be ahead.

    Returns
    -------
    dict of ndarray, shape (records of the part,), int64
        Empty where the window needs no stamps.
    """
    if not bound.stamps(stream):
        return {}
    stretches = [part if number == stream else stretch for number, stretch in enumerate(batch)]
    running = [
        feed.running_max(first, last, ahead, files)
        for feed, (first, last, files), ahead in zip(feeds, stretches, aheads, strict=True)
    ]
    others = [number for number in range(len(feeds)) if number != stream]
    names = zip(bound.stamps(stream), others, strict=True)
    return {name: preceding(running, stream, other) + batch[other][0].seq for name, other in names}


def stamped(chunks: Iterable[Chunk], first_seq: int, stamps: Mapping[str, np.ndarray]) -> Iterator[Chunk]:
    """Yield the chunks of a part with the stamps as further columns. The part begins with record `first_seq`."""
    for chunk in chunks:
        tuples = chunk.tuples
        places = tuples.column(SEQ).to_numpy() - first_seq
        for name, values in stamps.items():
            column = pa.field(name, pa.int64(), nullable=False)
            tuples = tuples.append_column(column, pa.array(values[places]))
        yield Chunk(chunk.first_seq, chunk.count, tuples, chunk.rejects)
