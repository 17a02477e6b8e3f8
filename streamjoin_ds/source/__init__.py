"""Where tuples come from: generators and files, merged, stamped, admitted batch by batch for the exchange.

::

    Spark's planner process                          Spark's tasks
    ───────────────────────                          ─────────────
    Feed.frontier ─┐                                 Feed.read ─► Chunk: tuples (_ts, _seq, columns), rejects
    Feed.frontier ─┼─► merge ─► positions ─► offset     │
    Feed.frontier ─┘     ▲        (plain JSON)   ──►    ▼
                      pacing                          Outbox: late within the part set aside, tuples dealt
                                                      to groups, one block each ─► one exchange row a cell

A `Feed` is one stream: `FileFeed` (CSV, JSON lines, Parquet, gz, a folder that grows) or `GeneratorFeed`. A position
says how far it was read, in O(1) of space and with digests: same position, same rows, or a named error. Batches are
prefixes of one order of all tuples (`merge`), so no cut changes what follows. The `Outbox` is the exchange's. Spark's
data source interface is implemented by `stream.sensors`: nothing here knows Spark.
"""
