"""Messages for tests: values and what else a message has, without a broker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamjoin_ds.source.kafka.message_sources import TIMESTAMP_TYPE, message_schema


def messages_of(
    values: Sequence[bytes | None],
    first_offset: int = 100,
    keys: Sequence[bytes | None] | None = None,
    headers: dict[str, Sequence[bytes | None]] | None = None,
) -> pa.RecordBatch:
    """Return messages with every second offset, a second apart, the second half appended."""
    count = len(values)
    columns = [
        pa.array([first_offset + 2 * place for place in range(count)], pa.int64()),
        pa.array([1_700_000_000_000_000 + 1_000_000 * place for place in range(count)], pa.int64()),
        pa.array(["create" if 2 * place < count else "append" for place in range(count)]).cast(TIMESTAMP_TYPE),
        pa.array(keys or [None] * count, pa.binary()),
        pa.array(values, pa.binary()),
        *(pa.array(column, pa.binary()) for column in (headers or {}).values()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=message_schema(tuple(headers or {})))
