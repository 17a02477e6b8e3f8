"""The source: reads tuples from files and generators, merges the streams, stamps them and forms batches.

::

    Spark's planner process                          Spark's tasks
    ───────────────────────                          ─────────────
    Feed.frontier ─┐                                 Feed.read ─► Chunk: tuples (_ts, _seq, columns), rejects
    Feed.frontier ─┼─► merge ─► positions ─► offset     │
    Feed.frontier ─┘     ▲        (plain JSON)   ──►    ▼
                      pacing                          Outbox: late within the part set aside, tuples dealt
                                                      to groups, one block each ─► one exchange row a cell

A `Feed` reads one stream: `FileFeed` (CSV, JSON lines, Parquet, compressed files, spools, a folder that grows),
`DeltaFeed` (a Delta table), `ResultsFeed` (another join's results) or `GeneratorFeed`; `PartitionedFeed` merges the
feeds of a stream's partitions: files, folders, or those of a topic of Kafka (`TopicFeed`). Where a stream's devices
have clocks of their own, `DeviceFeed` stands before any of them. A position says how far a stream was read. It holds
digests of what was read and does not grow with the number of records. The same position gives the same rows, or an
error by name. Batches are prefixes of one order of all tuples (`rows_of_prefix`), so the place of a cut does not change
what follows. The `Outbox` belongs to the room `exchange`. `stream.sensors` implements Spark's data source interface:
nothing here imports Spark.

* ``stream_source``         the feed of a stream, its columns, its first records
* ``feed``                  what a feed is; the clocks and stamps of a task that reads
* ``position``              how far a stream was read; digests, what is set aside, waypoints
* ``records``               event times, tuples and rejects
* ``device_feed``           devices of a stream that have clocks of their own; ``device_clocks``
* ``partitioned_feed``      the partitions of a stream, merged; ``partitioned_position``, ``partitions``
* ``batch_plan``            where a batch ends, and what else is decided about it
* ``delay_bound``           how many rows a batch may have; ``layout_rule``: the layout of the next batch
* ``idleness``              which streams are silent
* ``repeats``               tuples that repeat one before them
* ``table_versions``        tables beside streams
* ``generator``             generated streams; ``synthetic_rows``: their rows
* ``files/``, ``delta/``, ``kafka/``   the feeds of files, Delta tables and topics
"""
