"""The keys of the first records of the inputs. Ranges of a band attribute are chosen by them before a join runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.plan import KeyHint, Reach, SampledRows, sample_rows
from streamjoin_ds.source.first_records import first_records
from streamjoin_ds.spec import BoundJoin

__all__ = ["sampled_keys"]

# Records that are read of each stream: as many as its rate is found by.
_SAMPLE_ROWS = 20_000


def sampled_keys(bound: BoundJoin, attributes: Sequence[Reach], cells: int) -> KeyHint | None:
    """Return a sample of the keys that the streams' inputs begin with.

    Parameters
    ----------
    bound : BoundJoin
    attributes : sequence of Reach
        Whose keys are sampled.
    cells : int
        The cells for which a layout will be chosen.

    Returns
    -------
    KeyHint or None
        None where an input is empty or cannot be read. The join's own reader reports why.
    """
    streams = []
    for number in range(len(bound.names)):
        tuples = _first_tuples(bound, number)
        if tuples is None or not tuples.num_rows:
            return None
        streams.append(SampledRows.of(bound, attributes, number, tuples, sample_rows(cells)))
    return KeyHint(tuple(streams))


def _first_tuples(bound: BoundJoin, stream: int) -> pa.Table | None:
    """Return the tuples among the first records of a stream that its filters let through."""
    schema = bound.read_schemas[stream]
    if bound.join.streams[stream].source is None:
        return None
    try:
        found = []
        for chunk in first_records(bound.join.streams[stream], schema, _SAMPLE_ROWS):
            kept = bound.let_through(stream, chunk.tuples)
            found.append(chunk.tuples if kept is None else chunk.tuples.take(pa.array(np.flatnonzero(kept))))
    except (StreamJoinError, OSError, pa.ArrowException):
        return None
    return pa.Table.from_batches(found) if found else None
