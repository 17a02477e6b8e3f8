"""The join itself, in this process: new tuples meet windows. This room never imports Spark.

::

    rows ──► intake ──► tuples ──► probe ◄──► storage ──► results
             times,                keys,      windows:
             numbers,              kernels,   runs, tails,
             lateness              residuals  bucket grids ◄──► a state blob, blocks

    window_join   the exact join of one cell             scheduler    tasks of kernels on several threads
    join_engine   the join for people without Spark      core_lease   the cores and threads of a batch
    columns       columns, keys, memory                  tuning       every number that was chosen
    kernels       their contract, which ones run         cost_model   the sizes of runs by what operations cost
                                                         sizing       what they cost here, measured

`WindowJoin` is the exact join of one cell. `JoinEngine` adds lateness and numbering, for use without Spark.

Windows that are saved as blocks are kept in runs, which never change. Large windows in memory are kept in bucket grids:
each new row goes into the bucket it belongs to, and a rebuild copies some rows at each push. All work of a push is
written as coroutines that yield kernels' tasks. One scheduler runs them. Its native threads do the tasks of all
streams, and they finish the tasks of one push while the next push begins (`storage.window_set`).
"""
