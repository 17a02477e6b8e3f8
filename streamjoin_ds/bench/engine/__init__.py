"""The engine alone, without Spark: how fast it joins in this process, beside a peer or a roof measured in the same run.

::

    targets ──► suite ──────► child ──► cases                      ──► report
    what must   a process a   a line    feeds: tuples by seed          table,
    be reached  contestant,   a run     probes of one measure each     JSON
                paired runs             duckdb: the peer

Every contestant is a process of its own, pinned to as many cores as the measure allows, filled once, then measured run
by run, in turns with its peer. Two contestants over one feed must find the same number of matches in every run.
"""
