"""The join itself, in this process: new tuples meet windows of sorted runs. No Spark in here.

::

    tuples ──► keys ──► run ──► probe ──► selection ──► decision ──► result chunks
               int64,   grid    kernels   rows of   residuals
               float64  order   (grid,    runs
                                 scan)
                         │
                         ├──► window (runs, merged and expired) ◄──► snapshot (bytes)
                         └──► bucket window (a bucket grid)     ◄──┘

Windows that are saved as blocks are in runs, which never change; large windows in memory are in bucket grids, which
take rows in where they belong, and are made anew some rows a push when they are outgrown; what has no fixed width, or
nulls, is a grid's payload. Work on one stream is written as coroutines of kernel tasks (`threads.tasks`), which yield
kernels' tasks: a crew does those of all streams, whatever Python is at, and those of a push that is over while the next
one begins (`storage.window_set`). `WindowJoin` is one cell's exact join; `JoinEngine` puts lateness and numbering round
it, for people without Spark. `StreamClock` is the lateness rule. ``reference`` holds the kernels' readable twins.
"""

from streamjoin_ds.engine.arrays.kernels import CHUNK_ROWS, kernel_names, load_kernels
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin

__all__ = ["CHUNK_ROWS", "JoinEngine", "StreamClock", "WindowJoin", "kernel_names", "load_kernels"]
