"""The records that a stream's input begins with, read before a join runs, or to say more about what is odd in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.source.feeds import open_feed
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["SourceColumns", "first_records"]

_TIME_OF_DAY = r"^\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(\s*[AaPp][Mm])?\s*$"
_LOOKED_AT = 100  # records whose texts are looked at for times of day


def first_records(stream: Stream, schema: pa.Schema, rows: int) -> list[Chunk]:
    """Return at most `rows` records from the beginning of a stream; none where there is no record yet.

    Parameters
    ----------
    stream : Stream
    schema : pyarrow.Schema
        The columns that are read, one of `BoundJoin.read_schemas`.
    rows : int

    Raises
    ------
    StreamJoinError, OSError, pyarrow.ArrowException
        As the feed raises them: the input cannot be read, does not answer, or is not what the stream says.
    """
    feed = open_feed(stream, schema)
    start = feed.initial()
    there = feed.frontier(start, rows).rows
    return list(feed.read(start, feed.advance(start, there))) if there else []


class SourceColumns:
    """See `InputColumns`: what can be told of the columns of a stream's source."""

    def has_number_times(self, stream: Stream) -> bool:
        """See `InputColumns.has_number_times`; True where there is no source, as of a DataFrame."""
        if stream.source is None:
            return True
        try:
            kind = infer_schema(stream).field(stream.time).type
        except (StreamJoinError, KeyError, OSError, pa.ArrowException):
            return False
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def times_of_day(self, stream: Stream) -> Sequence[str]:
        """See `InputColumns.times_of_day`; none where that cannot be told."""
        try:
            there = _columns(stream)
            texts = [field for field in there if pa.types.is_string(field.type) and field.name != stream.time]
            read = pa.schema([there.field(stream.time).with_type(TIMESTAMP), *texts])
            chunks = first_records(replace(stream, schema=read), read, _LOOKED_AT) if texts else []
        except (StreamJoinError, KeyError, OSError, pa.ArrowException):
            return ()
        records = pa.Table.from_batches([chunk.tuples for chunk in chunks]) if chunks else None
        found = [field.name for field in texts if records is not None and _are_times_of_day(records[field.name])]
        return [field.name for field in there if pa.types.is_time(field.type) or field.name in found]


def _columns(stream: Stream) -> pa.Schema:
    """Return all columns of an input: also those that are not declared, where they can be inferred."""
    try:
        return infer_schema(replace(stream, schema=None))
    except StreamJoinError:
        return infer_schema(stream)


def _are_times_of_day(texts: pa.ChunkedArray) -> bool:
    known = texts.drop_null()
    return bool(len(known)) and bool(pc.all(pc.match_substring_regex(known, _TIME_OF_DAY)).as_py())
