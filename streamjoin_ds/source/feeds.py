"""The choice of a stream's feed by its source: files, a Delta table, a topic or a generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.delta.delta_feed import DeltaFeed
from streamjoin_ds.source.delta.results_feed import ResultsFeed
from streamjoin_ds.source.delta.tables import table_path, with_table_format
from streamjoin_ds.source.feed import Feed
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.files.file_partitions import FilePartitions
from streamjoin_ds.source.generator import GeneratorFeed
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.spec import Generator, Stream

__all__ = ["begin_alike", "open_feed"]


def open_feed(stream: Stream, schema: pa.Schema, *, ignore_missing: bool = False) -> Feed[Any]:
    """Return the feed of a stream that has a source.

    Raises
    ------
    ArgumentError
        The stream has no source: its tuples are handed over.
    """
    if stream.source is None:
        msg = f"stream {stream.name} has no source: its tuples are handed over, not read"
        raise ArgumentError(msg, name=stream.name, hint="give it a path or a generator")
    if isinstance(stream.source, Generator):
        return GeneratorFeed(stream, schema)
    if stream.is_topic:
        # Imported here: its formats are many, and few joins read a topic.
        from streamjoin_ds.source.kafka.topic_partitions import TopicPartitions

        return PartitionedFeed(stream, TopicPartitions(stream, schema))
    stream = with_table_format(stream)
    table = table_path(stream)
    if table is not None:
        feed = ResultsFeed if stream.format == "results" else DeltaFeed
        return feed(stream, table, schema)
    if stream.partition_by is not None:
        return PartitionedFeed(stream, FilePartitions(stream, schema, ignore_missing=ignore_missing))
    return FileFeed(stream, schema, ignore_missing=ignore_missing)


def begin_alike(streams: Sequence[Stream], feeds: Sequence[Feed[Any]]) -> None:
    """Let feeds over one input number its rows alike: a self-join knows a tuple by its number.

    Feeds over one table begin at the same version. Those over the same partitions find the same new ones in each plan.
    """
    first: dict[str, DeltaFeed] = {}
    leaders: dict[object, PartitionedFeed] = {}
    for stream, feed in zip(streams, feeds, strict=True):
        if isinstance(feed, DeltaFeed):
            feed.beginning = first.setdefault(feed.path, feed).beginning
        if isinstance(feed, PartitionedFeed):
            kind = stream.source, stream.partition_kind, stream.format, stream.sub_folders, stream.file_order
            leader = leaders.setdefault(kind, feed)
            if leader is not feed:
                feed.follow(leader)
