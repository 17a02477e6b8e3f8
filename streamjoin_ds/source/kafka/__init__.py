"""Kafka: what a topic's partitions hold, and messages of a range of offsets as Arrow columns, then as records.

::

    settings ──► broker       partitions, the topic's id, first and last stable offsets, the offset of a time
        │          │
        └──► topic ┴► range_read ──► message_sources     librdkafka's batch call from C, and its readable twin
                          ▼
           messages: offset, timestamp, key, value, headers ──► formats: each a record or a reject
                                                                  │
    stream ──► topic_feed (topic_scan) ◄──────────────────────────┘    a partition as a feed, with positions

A range ``[begin, end)`` of one partition is finished when the *position* reaches its end, not when the last offset
came: markers of transactions, aborted messages and compaction leave offsets without a message. librdkafka's settings
(credentials among them) are read where a connection is made, and are in no text that this room writes. Nothing here
imports `confluent_kafka` before a topic is opened: it is the extra ``kafka``.
"""
