"""A cell of the grid inside a Python worker: references in, files of matches out, windows kept between batches.

::

    exchange rows ──► Cell ──► WindowJoin ──► TableWriter ──► file reports, counters
                       ▲                                          │
    state row ◄──► CellState ◄── CellWindows ──► blocks           └──► the driver's commit
"""
