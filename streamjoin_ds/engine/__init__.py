"""The join itself, in this process: new tuples meet windows. No Spark in here.

::

    rows ──► intake ──► tuples ──► probe ◄──► storage ──► results
             times,                keys,      windows:
             numbers,              kernels,   runs, tails,
             lateness              residuals  bucket grids ◄──► a state blob, blocks

    threads   tasks of kernels on cores of their own       arrays   columns, keys, memory, the kernels themselves
    reference the kernels' readable twins                  tuning   every number that was chosen

Windows that are saved as blocks are in runs, which never change. Large windows in memory are in bucket grids, which
take rows in where they belong and are rebuilt some rows a push. All work of a push is written as coroutines that yield
kernels' tasks (`threads.tasks`), and one scheduler runs them (`threads.scheduler`): native threads do the tasks of all
streams, and those of a push that is over while the next one begins (`storage.window_set`). `WindowJoin` is one cell's
exact join. `JoinEngine` puts lateness and numbering round it, for people without Spark.
"""

from streamjoin_ds.engine.arrays.kernels import CHUNK_ROWS, kernel_names, load_kernels
from streamjoin_ds.engine.intake.lateness import StreamClock
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin

__all__ = ["CHUNK_ROWS", "JoinEngine", "StreamClock", "WindowJoin", "kernel_names", "load_kernels"]
