"""Kafka: what a topic's partitions hold, and messages of a range of offsets as Arrow columns, then as records.

::

    url ──► settings ──► broker       partitions, the topic's id, first and last stable offsets, the offset of a time
                │          │
                └──► topic ┴► range_read ──► python_source    confluent_kafka, an object a message: the readable twin
                                  │    └───► native_source    librdkafka's batch call from C, no object a message
                                  ▼
                   messages: offset, timestamp, key, value, headers ──► formats: each a record or a reject
                                                                          │
    stream ──► stream_topic ──► topic_partitions ──► topic_feed ◄──────────┘    a partition as a feed, with positions

A range ``[begin, end)`` of one partition is finished when the *position* reaches its end, not when the last offset
came: markers of transactions, aborted messages and compaction leave offsets without a message. librdkafka's settings
(credentials among them) are read where a connection is made, and are in no text that this room writes. Nothing here
imports `confluent_kafka` before a topic is opened: it is the extra ``kafka``.
"""
