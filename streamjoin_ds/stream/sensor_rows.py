"""Records as ordinary rows, for ``format("sensors")`` outside a join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.records import Chunk, Reject
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.stream.sensor_options import SourceOptions

__all__ = ["REJECTED", "plain_rows", "plain_schema"]

REJECTED = "_rejected"

_BATCH_ROWS = 1 << 16  # most rows of one record batch given to Spark


def plain_schema(options: SourceOptions) -> pa.Schema:
    """Return the columns of the rows: ``_seq``, the stream's columns, and ``_rejected`` if broken records are kept."""
    columns = [column.with_nullable(True) for column in options.schemas[0]]
    fields = [pa.field(SEQ, pa.int64(), nullable=False), *columns]
    return pa.schema([*fields, pa.field(REJECTED, pa.string())] if options.keep_broken else fields)


def plain_rows(chunks: Iterator[Chunk], options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give rows of `schema`, in the stream's order.

    Raises
    ------
    FileFormatError
        A record is broken, and broken records are not kept.
    """
    time = options.streams[0].time
    for chunk in chunks:
        if chunk.rejects and not options.keep_broken:
            first = chunk.rejects[0]
            where = f"line {first.line}" + (f", column '{first.column}'" if first.column else "")
            msg = f"a record of {first.file} cannot be read: {where}: {first.reason}"
            hint = "correct the file, or use broken_rows=keep, which marks such rows"
            raise FileFormatError(msg, name=first.file, hint=hint)
        table = _rows(chunk, time, schema)
        if chunk.rejects:
            table = pa.concat_tables([table, _broken(chunk.rejects, schema)]).sort_by(SEQ).combine_chunks()
        yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _rows(chunk: Chunk, time: str, schema: pa.Schema) -> pa.Table:
    arrays = []
    for column in schema:
        if column.name == REJECTED:
            arrays.append(pa.nulls(chunk.tuples.num_rows, pa.string()))
        elif column.name == time:
            arrays.append(chunk.tuples.column(TS).view(column.type))
        else:
            arrays.append(chunk.tuples.column(column.name))
    return pa.Table.from_arrays(arrays, schema=schema)


def _broken(rejects: Sequence[Reject], schema: pa.Schema) -> pa.Table:
    arrays = []
    for column in schema:
        if column.name == SEQ:
            arrays.append(pa.array([reject.seq for reject in rejects], pa.int64()))
        elif column.name == REJECTED:
            texts = [f"{reject.file}:{reject.line}: {reject.column or 'record'}: {reject.reason}" for reject in rejects]
            arrays.append(pa.array(texts))
        else:
            arrays.append(pa.nulls(len(rejects), column.type))
    return pa.Table.from_arrays(arrays, schema=schema)
