"""The records that a stream's input begins with, read before a join runs."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.source.feeds import open_feed
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.spec.stream import Stream

__all__ = ["first_records"]


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
