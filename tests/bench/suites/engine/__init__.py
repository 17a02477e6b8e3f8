"""Measures the engine alone, without Spark, beside a peer or a roof (a limit of the machine) measured in the same run.

::

    targets ──► suite ──────► child ──► cases                      ──► report
    what must   a process a   a line    feeds: tuples by seed          table,
    be reached  contestant,   a run     one case for each measure      JSON
                paired runs             duckdb: the peer

Every contestant is a process of its own, pinned to as many cores as the measure allows. Its windows are filled once;
then it is measured run by run, in turns with its peer. Two contestants over one feed must find the same number of
matches in every run.
"""
