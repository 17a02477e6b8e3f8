"""The exchange by rows: one Spark row a tuple, packed into blocks again on the far side of the JVM.

The slowest of the three ways (design, section 3), and the one that needs nothing but Spark: `unpacked` turns a part's
chunks into rows, `pack_rows` (for ``mapInArrow``, in the same task) turns those rows into exchange rows. One row of
kind "part" ends each part; rejects travel as rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.exchange import Outbox, heartbeats
from streamjoin_ds.source.records import REJECT_SCHEMA, Chunk, Reject, rejects_table
from streamjoin_ds.spec.bound import SEQ, TS

__all__ = ["pack_rows", "row_schema", "unpacked"]

_TUPLE, _REJECT, _PART, _SILENT = "tuple", "reject", "part", "silent"
_FIXED = [
    pa.field("kind", pa.string(), nullable=False),
    pa.field("stream", pa.int32(), nullable=False),
    pa.field("part", pa.int32(), nullable=False),
    pa.field("first_seq", pa.int64(), nullable=False),
    pa.field("last_seq", pa.int64(), nullable=False),
    pa.field("read", pa.int64(), nullable=False),
    pa.field(SEQ, pa.int64(), nullable=False),
    pa.field(TS, pa.int64(), nullable=False),
]


def row_schema(plan: Plan) -> pa.Schema:
    """Columns of the rows: what every row has, the rejects' columns, then ``s<i>_<column>`` of every stream."""
    fields = [*_FIXED, *(pa.field(f"reject_{field.name}", field.type) for field in REJECT_SCHEMA)]
    for stream in range(len(plan.bound.names)):
        for field in list(plan.bound.tuple_schema(stream))[2:]:
            fields.append(pa.field(f"s{stream}_{field.name}", field.type))
    return pa.schema(fields)


def unpacked(
    plan: Plan, stream: int, part: int, sequence: tuple[int, int], chunks: Iterable[Chunk], silent: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """A part's tuples and rejects as rows, then its closing row.

    Parameters
    ----------
    sequence : (int, int)
        The part's range of records, ``[first, last)``.
    silent : sequence of int
        Streams without a part in this batch, for which this part's task sends the heartbeats.
    """
    schema = row_schema(plan)
    facts = {"stream": stream, "part": part, "first_seq": sequence[0], "last_seq": sequence[1]}
    read = 0
    for chunk in chunks:
        read += chunk.count
        tuples = chunk.tuples
        if tuples.num_rows:
            columns = {f"s{stream}_{name}": tuples.column(name) for name in tuples.schema.names if name not in (TS, SEQ)}
            columns |= {TS: tuples.column(TS), SEQ: tuples.column(SEQ)}
            yield _rows(schema, tuples.num_rows, {**facts, "kind": _TUPLE}, columns)
        if chunk.rejects:
            table = rejects_table(chunk.rejects)
            columns = {f"reject_{name}": table[name].combine_chunks() for name in table.column_names}
            columns[SEQ] = pa.array([reject.seq for reject in chunk.rejects], pa.int64())
            yield _rows(schema, table.num_rows, {**facts, "kind": _REJECT}, columns)
    yield _rows(schema, 1, {**facts, "kind": _PART, "read": read}, {})
    for other in silent:
        yield _rows(schema, 1, {**facts, "kind": _SILENT, "stream": other}, {})


def pack_rows(plan: Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow`` that turns the rows of `unpacked` into exchange rows, whatever the batches."""
    text = plan.to_json()

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = Plan.from_json(text)
        outboxes: dict[tuple[int, int], Outbox] = {}
        for batch in batches:
            for start, stop in _stretches(batch):
                rows = batch.slice(start, stop - start)
                kind, stream, part, first, last, read = (rows.column(n)[0].as_py() for n in range(6))
                if kind == _SILENT:
                    yield from heartbeats(plan, [stream])
                    continue
                key = (stream, part)
                if key not in outboxes:
                    outboxes[key] = Outbox(plan, stream, part, first, last)
                if kind == _PART:
                    yield from outboxes.pop(key).rows(read)
                else:
                    outboxes[key].add(_chunk(plan, stream, kind, rows))

    return packed


def _rows(schema: pa.Schema, count: int, facts: dict[str, object], columns: dict[str, pa.Array]) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(columns[field.name])
        elif field.nullable:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(facts.get(field.name, 0), field.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _stretches(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Where in a batch rows of one kind, stream and part stand together: Spark may put several in one batch."""
    codes = pc.rank(batch.column(0), tiebreaker="dense").to_numpy().astype(np.int64)
    for number in (1, 2):
        codes = codes * (1 << 20) + batch.column(number).to_numpy(zero_copy_only=False)
    cuts = np.flatnonzero(np.diff(codes)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), batch.num_rows], strict=True) if batch.num_rows else ()


def _chunk(plan: Plan, stream: int, kind: str, rows: pa.RecordBatch) -> Chunk:
    schema = plan.bound.tuple_schema(stream)
    if kind == _REJECT:
        names = [f"reject_{name}" for name in REJECT_SCHEMA.names]
        values = zip(*(rows.column(name).to_pylist() for name in [*names, SEQ]), strict=True)
        rejects = [Reject(*value) for value in values]
        empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        return Chunk(rejects[0].seq, 0, empty, rejects)
    columns = [rows.column(name if name in (TS, SEQ) else f"s{stream}_{name}") for name in schema.names]
    # Spark hands timestamps over in the session's time zone: the same instants under another name.
    arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return Chunk(arrays[1][0].as_py(), 0, pa.RecordBatch.from_arrays(arrays, schema=schema))
