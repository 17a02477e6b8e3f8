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
feeds of a stream's partitions: files, folders, or those of a topic of Kafka (`TopicFeed`). A position says how far a
stream was read. It holds digests of what was read and does not grow with the number of records. The same position gives
the same rows, or an error by name. Batches are prefixes of one order of all tuples (`merge`), so the place of a cut
does not change what follows. The `Outbox` belongs to the room `exchange`. `stream.sensors` implements Spark's data
source interface: nothing here imports Spark.
"""
