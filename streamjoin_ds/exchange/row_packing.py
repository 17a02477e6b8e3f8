"""Packs Spark rows of one tuple each into blocks: the way "rows" of the exchange."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.blocks import pack, unpack
from streamjoin_ds.exchange.outbox import Outbox, heartbeats
from streamjoin_ds.exchange.told_rows import FACTS, epoch_rows, fact_rows
from streamjoin_ds.plan.epochs import Epochs
from streamjoin_ds.plan.plan import Plan
from streamjoin_ds.source.records import Chunk, Reject, rejects_table
from streamjoin_ds.spec.bound import SEQ, TS

__all__ = ["pack_rows", "rows_schema", "silence", "told_epochs", "told_fact", "tuple_rows"]

Packer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# Kinds of rows: a tuple; the end of a part, whose `seq` and `ts` are the part's range of records and whose payload has
# its rejects; a silent stream that holds the watermark; an idle stream, which does not; the batch's epochs as JSON. And
# `FACTS`.
_TUPLE, _END, _SILENT, _IDLE, _EPOCHS = "tuple", "end", "silent", "idle", "epochs"

# In place of a stream's number: the row is for all cells.
_CELLS = -1

_FIXED = [
    pa.field("kind", pa.string(), nullable=False),
    pa.field("stream", pa.int32(), nullable=False),
    pa.field("part", pa.int32(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("ts", pa.int64(), nullable=False),
    pa.field("payload", pa.binary(), nullable=False),
]


def rows_schema(plan: Plan) -> pa.Schema:
    """Return the columns of the rows: `_FIXED`, then each stream's columns as ``s<stream>_<place>``."""
    columns = []
    for stream in range(len(plan.bound.names)):
        columns += [pa.field(_name(stream, place), field.type) for place, field in enumerate(_own(plan, stream))]
    return pa.schema([*_FIXED, *columns])


def tuple_rows(
    plan: Plan, stream: int, part: int, seqs: tuple[int, int], chunks: Iterable[Chunk], epochs: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield a part's tuples in order, one row each, and a last row that ends the part.

    Parameters
    ----------
    seqs : tuple of int
        The part's range of records: the first, and the one after the last.
    epochs : str
        The batch's epochs as JSON, for a row before the tuples; empty while there is only the first epoch.
    """
    if epochs:
        yield _row_batch(plan, 1, _told(_EPOCHS, epochs, stream))
    rejects: list[Reject] = []
    for chunk in chunks:
        rejects.extend(chunk.rejects)
        tuples = chunk.tuples
        if tuples.num_rows:
            own = enumerate(_own(plan, stream))
            given = {_name(stream, place): tuples.column(field.name) for place, field in own}
            fixed = {"kind": _TUPLE, "stream": stream, "part": part, "payload": b""}
            numbers = {"seq": tuples.column(SEQ), "ts": tuples.column(TS)}
            yield _row_batch(plan, tuples.num_rows, {**fixed, **numbers, **given})
    payload = pack(rejects_table(rejects)) if rejects else b""
    yield _row_batch(
        plan, 1, {"kind": _END, "stream": stream, "part": part, "seq": seqs[0], "ts": seqs[1], "payload": payload}
    )


def silence(plan: Plan, streams: Iterable[int], *, idle: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield a row for each of these streams, which have no part in the batch."""
    kind = _IDLE if idle else _SILENT
    for stream in streams:
        yield _row_batch(plan, 1, {"kind": kind, "stream": stream, "part": 0, "seq": 0, "ts": 0, "payload": b""})


def told_epochs(plan: Plan, epochs: str) -> pa.RecordBatch:
    """Return a row that tells every cell the batch's epochs."""
    return _row_batch(plan, 1, _told(_EPOCHS, epochs))


def told_fact(plan: Plan, kind: str, text: str) -> pa.RecordBatch:
    """Return a row that tells every cell a fact of the batch's offset as JSON; `kind` is one of `FACTS`."""
    return _row_batch(plan, 1, _told(kind, text))


def pack_rows(plan: Plan) -> Packer:
    """Return a function for ``mapInArrow`` over rows of `rows_schema`, which makes exchange rows of them.

    It runs in the task that read the rows, in their order, and judges lateness there. So its blocks are those of the
    other ways of the exchange.
    """
    text = plan.to_json()

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = Plan.from_json(text)
        outbox: Outbox | None = None
        epochs: Epochs | None = None
        for batch in batches:
            kinds = batch.column("kind")
            marks = np.flatnonzero(np.asarray(pa.compute.not_equal(kinds, _TUPLE)))
            begin = 0
            for mark in [*marks.tolist(), batch.num_rows]:
                if mark > begin:
                    stream, part = batch.column("stream")[begin].as_py(), batch.column("part")[begin].as_py()
                    outbox = outbox or Outbox(plan, stream, part, epochs=epochs)
                    outbox.add(_chunk(plan, stream, batch.slice(begin, mark - begin)))
                if mark < batch.num_rows:
                    names = ("kind", "stream", "part", "seq", "ts", "payload")
                    row = {name: batch.column(name)[mark].as_py() for name in names}
                    if row["kind"] in (_SILENT, _IDLE):
                        yield from heartbeats(plan, [row["stream"]], epochs, idle=row["kind"] == _IDLE)
                    elif row["kind"] == _EPOCHS:
                        epochs = Epochs.from_facts(json.loads(row["payload"]), len(plan.bound.names))
                        if row["stream"] == _CELLS:
                            yield epoch_rows(plan, epochs)
                    elif row["kind"] in FACTS:
                        yield fact_rows(plan, row["kind"], row["payload"].decode(), epochs)
                    else:
                        outbox = outbox or Outbox(plan, row["stream"], row["part"], epochs=epochs)
                        outbox.add_rejects(unpack(row["payload"]) if row["payload"] else None)
                        yield from outbox.rows(row["seq"], row["ts"])
                        outbox = None
                begin = mark + 1

    return packed


def _chunk(plan: Plan, stream: int, batch: pa.RecordBatch) -> Chunk:
    # Spark hands timestamps over in the session's time zone. They are the same instants; the cast changes the type.
    fields = enumerate(_own(plan, stream))
    own = [batch.column(_name(stream, place)).cast(field.type) for place, field in fields]
    arrays = [batch.column("ts"), batch.column("seq"), *own]
    return Chunk(0, batch.num_rows, pa.RecordBatch.from_arrays(arrays, schema=plan.bound.read_schema(stream)))


def _told(kind: str, text: str, stream: int = _CELLS) -> dict[str, object]:
    return {"kind": kind, "stream": stream, "part": 0, "seq": 0, "ts": 0, "payload": text.encode()}


def _own(plan: Plan, stream: int) -> Sequence[pa.Field]:
    return [field for field in plan.bound.read_schema(stream) if field.name not in (TS, SEQ)]


def _name(stream: int, place: int) -> str:
    """Return a column's name by its place: ``mapInArrow`` cannot take columns whose names hold a dot."""
    return f"s{stream}_{place}"


def _row_batch(plan: Plan, rows: int, given: dict[str, object]) -> pa.RecordBatch:
    schema = rows_schema(plan)
    arrays = []
    for field in schema:
        value = given.get(field.name)
        if value is None:
            arrays.append(pa.nulls(rows, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
