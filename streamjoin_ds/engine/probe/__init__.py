"""New tuples meet windows, stream by stream, until the results are rows.

::

    join_order ──► pipeline ──► window_probe ──► run_probe ──► match_buffer ──► residual ──► results
    which stream   stream by    one call, or     which kernel  pairs            what no      rows, in
    joins next     stream       several parts    for a run                      kernel tests Arrow

Periodic windows give a result once in each window (`window_ids`). `shares` cuts a probing into parts of like cost, for
threads. `progress` says how much of a push is done.
"""
