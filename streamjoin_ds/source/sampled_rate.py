"""The rate of a stream by the first records of its input. The layout is chosen by it where no rate is given."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.errors import (
    KafkaAccessError,
    KafkaTopicError,
    KafkaUnreachableError,
    StoreAccessError,
    StoreUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.source.feeds import open_feed
from streamjoin_ds.spec import Stream

__all__ = ["UNANSWERED", "sampled_rate"]

# Why a source says nothing at all: it cannot be reached, or refuses.
UNANSWERED = (KafkaUnreachableError, KafkaAccessError, KafkaTopicError, StoreUnreachableError, StoreAccessError)

# Records that are looked at: enough for the proportions of two streams, and read in some milliseconds.
_SAMPLE_ROWS = 20_000
# With fewer there is no rate: a file that has just begun would decide the layout for a year.
_LEAST_ROWS = 100


def sampled_rate(stream: Stream, schema: pa.Schema) -> float | None:
    """Return the tuples a second of event time that a stream's input begins with.

    Parameters
    ----------
    stream : Stream
        Its source is a file, a folder or a generator.
    schema : pyarrow.Schema
        The columns that are read, as the bound join has them.

    Returns
    -------
    float or None
        None where the input has fewer than 100 records, or no time passes between them, or they cannot be read. The
        join's own reader reports why an input cannot be read.

    Raises
    ------
    KafkaUnreachableError, KafkaAccessError, KafkaTopicError, StoreUnreachableError, StoreAccessError
        The source does not answer, or refuses to.
    """
    try:
        feed = open_feed(stream, schema)
        frontier = feed.frontier(feed.initial(), _SAMPLE_ROWS)
    except UNANSWERED:
        raise
    except (StreamJoinError, OSError, pa.ArrowException):
        return None
    first_us, last_us = frontier.first_time(), frontier.last_time()
    if frontier.rows < _LEAST_ROWS or first_us is None or last_us is None or last_us <= first_us:
        return None
    return (frontier.rows - 1) * 1e6 / (last_us - first_us)
