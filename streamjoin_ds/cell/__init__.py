"""A cell in a Python worker: it takes exchange rows, writes files of matches, and keeps windows between batches.

::

    exchange rows ──► Cell ──► WindowJoin ──► TableWriter ──► file reports, counters
                       ▲                                          │
    state row ◄──► CellState ◄── CellWindows ──► blocks           └──► the driver's commit
"""
