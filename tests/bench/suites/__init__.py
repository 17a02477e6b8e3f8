"""Measures this package on fixed workloads, beside peers in the same run.

::

    workloads ──► inputs ──► children ──► sides                 ──► suite ──► report
    what is       Parquet    a process     streamjoin  ours          paired    table,
    joined        in time    a side, fed   spark       explode+join  runs,     JSON
                  slices     one run at    duckdb      micro-batches counts
                             a time                                  checked

A side takes in the given tuples, leaves the matches in a table, and says how long that took. Each side is a process of
its own, so that CPU time and memory are its own too; the start-up of no side is counted. Every run's number of matches
is compared with an independent count (`oracle`): a side that is wrong fails the whole bench.

`paths` measures whole joins done in several ways, `live` queries that keep running, `engine` the engine without Spark,
`figures` the figures of the papers, `scale` layouts of many cells, which are simulated. `sides` holds the ways that are
compared. ``python -m tests.bench`` is their command.
"""
