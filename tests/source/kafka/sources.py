"""The sources of messages, each of which must pass every test of reading, and reading with one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamjoin_ds.kafka.settings import SettingsSource
from streamjoin_ds.source.kafka.message_sources import NativeSource, PythonSource, message_schema
from streamjoin_ds.source.kafka.range_read import MessageSource
from streamjoin_ds.source.kafka.topic import KafkaTopic, KafkaUrl

MakeSource = Callable[..., MessageSource]
SOURCES: dict[str, MakeSource] = {"python": PythonSource, "native": NativeSource}


def topic_of(
    servers: str,
    topic: str,
    source: MakeSource | None = None,
    settings: SettingsSource | None = None,
    on_data_loss: str = "stop",
    headers: Sequence[str] = (),
) -> KafkaTopic:
    url = KafkaUrl(
        servers, topic, "raw", settings or SettingsSource(), on_data_loss=on_data_loss, headers=tuple(headers)
    )
    return KafkaTopic(url, source)


def table_of(topic: KafkaTopic, partition: int, begin: int, end: int) -> pa.Table:
    return pa.Table.from_batches(topic.read(partition, begin, end), message_schema(topic.url.headers))
