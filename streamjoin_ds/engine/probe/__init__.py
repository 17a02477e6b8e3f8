"""New tuples meet windows, stream by stream, until the results are rows.

::

    join_order ──► pipeline ──► window_probe ──► run_probe ──► residual ──► results
    which stream   stream by    one call, or     which kernel  what no      rows, in
    joins next     stream       several parts    for a run     kernel tests Arrow

    horizons       rows of tuples that are decided when all their partners are known
    nearest        their nearest partners
    aggregates     sums and the like over their partners  ◄── accumulators, held_values

A `probe_batch` is the new tuples of one stream on this way.
"""
