"""Measuring: fixed workloads over the full path of this package, beside peers in the same run.

::

    workloads ──► inputs ──► children ──► sides                 ──► suite ──► report
    what is       Parquet    a process     streamjoin  ours          paired    table,
    joined        in time    a side, fed   spark       explode+join  runs,     JSON
                  slices     one run at    duckdb      micro-batches counts
                             a time                                  checked

A side answers one question: take in these tuples, leave the matches in a table, how long did it take? Each side is a
process of its own, so that CPU time and memory are its own too; start-up is not counted, for none of them. Every run's
number of matches is compared with an independent count (`oracle`): a side that is wrong fails the whole bench.

The folders are the questions: `paths` (whole joins by several ways), `live` (queries that run on), `engine` (without
Spark), `figures` (the papers'); `sides` are whom they ask. This room may import every room but cli; none imports it but
cli.
"""
