"""The bucket grid: a large window in memory, its rows in chunks by cell, added to and never sorted.

::

    policy ──► window ──► grid ◄── rows ◄── columns ◄── payload      when, what is due, the grid itself
                 │          ▲
                 └──► rebuild: a grid of another shape, some rows a push
    shape: which keys make a cell      census, sample: what a few rows say of all
"""
