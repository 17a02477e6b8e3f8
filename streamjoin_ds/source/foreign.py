"""Tuples of other people's DataFrames, packed for the cells: rows in, exchange rows out (for ``mapInArrow``).

Such a frame knows no order and no numbers: a tuple's group and its ``_seq`` are a hash of its content, so that a
replayed batch, in whatever order its rows come, is dealt in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.event_time import NO_TIME
from streamjoin_ds.source.exchange import EXCHANGE_SCHEMA, Outbox
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.bound import SEQ, TS

__all__ = ["FOREIGN_SCHEMA", "MOMENT", "content_hash", "pack_foreign"]

# The block's largest event time, for Spark's watermark.
MOMENT = "moment"
FOREIGN_SCHEMA = EXCHANGE_SCHEMA.append(pa.field(MOMENT, pa.timestamp("us", tz="UTC")))

_MICROSECONDS = pa.timestamp("us", tz="UTC")
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))
_NULL = np.uint64(0xD6E8FEB86659FD93)

_log = logging.getLogger(__name__)


def pack_foreign(plan: Plan, stream: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow``: rows with the columns of ``plan.bound.schemas[stream]`` to `FOREIGN_SCHEMA`.

    Rows without an event time cannot be joined; they are left out and counted in the worker's log.
    """
    text = plan.to_json()

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = Plan.from_json(text)
        for number, batch in enumerate(batches):
            tuples = _inside_form(plan, stream, batch)
            if tuples.num_rows:
                outbox = Outbox(plan, stream, number, 0, 0, judge_lateness=False)
                outbox.add(Chunk(0, batch.num_rows, tuples))
                for rows in outbox.rows(batch.num_rows):
                    largest = pc.replace_with_mask(
                        rows.column("largest_ts"), pc.equal(rows.column("largest_ts"), NO_TIME), pa.scalar(None, pa.int64())
                    )
                    moment = largest.cast(_MICROSECONDS)
                    yield pa.RecordBatch.from_arrays([*rows.columns, moment], schema=FOREIGN_SCHEMA)

    return packed


def _inside_form(plan: Plan, stream: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = plan.bound.schemas[stream]
    arrays = {field.name: batch.column(field.name).cast(field.type) for field in schema}
    time = plan.bound.join.streams[stream].time
    if arrays[time].null_count:
        kept = pc.is_valid(arrays[time])
        _log.warning("%d rows of stream %s have no event time", arrays[time].null_count, plan.bound.names[stream])
        arrays = {name: array.filter(kept) for name, array in arrays.items()}
    inner = plan.bound.tuple_schema(stream)
    arrays[TS] = arrays[time].cast(pa.int64())
    arrays[SEQ] = pa.array(content_hash([arrays[name] for name in sorted(schema.names)]))
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in inner], schema=inner)


def content_hash(columns: list[pa.Array]) -> np.ndarray:
    """A 64-bit hash of each row's values, int64 of the rows' number; nulls count as a value of their own.

    Fixed-width values are mixed by splitmix64's finaliser, other values by XXH3 of their text; the same on every
    machine.
    """
    state = np.zeros(len(columns[0]), np.uint64)
    for place, column in enumerate(columns):
        state ^= _words(column) + np.uint64(place + 1) * _MIX[2]
        state ^= state >> np.uint64(30)
        state *= _MIX[0]
        state ^= state >> np.uint64(27)
        state *= _MIX[1]
        state ^= state >> np.uint64(31)
    return state.view(np.int64)


def _words(column: pa.Array) -> np.ndarray:
    """One 64-bit word for each value."""
    kind = column.type
    if pa.types.is_floating(kind):
        words = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False).view(np.uint64).copy()
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        whole = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        words = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64).copy()
    else:
        words = _hashed(column)
    if column.null_count:
        words[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return words


def _hashed(column: pa.Array) -> np.ndarray:
    if pa.types.is_nested(column.type):
        return np.array([xxhash.xxh3_64_intdigest(repr(value).encode()) for value in column.to_pylist()], np.uint64)
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.cast(pa.string() if pa.types.is_decimal(column.type) else encoded.dictionary.type)
    values = (value if isinstance(value, bytes) else str(value).encode() for value in texts.to_pylist())
    hashes = np.array([*map(xxhash.xxh3_64_intdigest, values), 0], np.uint64)  # the last one for nulls
    return hashes[pc.fill_null(encoded.indices, len(hashes) - 1).to_numpy(zero_copy_only=False)]
