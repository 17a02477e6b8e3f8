"""The bucket grid: a large window in memory. Its rows lie in chunks by grid cell, and are never sorted.

::

    policy ──► bucket_window ──► grid ◄── rows ◄── payload      policy: when a window goes over to a grid
                    │             ▲                             bucket_window: what a push does with the grid
                    └──► rebuild: a grid of another shape, some rows at each push
    shape: which keys make a grid cell, how many buckets there are
"""
