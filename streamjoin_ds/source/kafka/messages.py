"""Messages of one partition as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["HEADER_PREFIX", "TIMESTAMP_TYPE", "TIMESTAMP_TYPES", "message_schema"]

HEADER_PREFIX = "header_"
# librdkafka's codes 1 and 2: the producer set the time, or the broker did when it appended the message.
TIMESTAMP_TYPES = ("create", "append")
TIMESTAMP_TYPE = pa.dictionary(pa.int8(), pa.string())


def message_schema(headers: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of messages.

    ``offset``; ``timestamp_us`` (microseconds UTC; null if the message has none) and ``timestamp_type``; ``key`` and
    ``value`` (null if the message has none); and ``header_<name>`` for each of `headers`: the last value of that name.
    """
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_us", pa.int64()),
            pa.field("timestamp_type", TIMESTAMP_TYPE),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            *(pa.field(HEADER_PREFIX + name, pa.binary()) for name in headers),
        ]
    )
