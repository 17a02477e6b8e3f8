"""Rows as people have them, made into tuples.

::

    chunks ──► taking ──► rows ──► moments          a push, its streams, one stream's rows, Python's values as times
                 │
                 ├──► lateness                      late by the stream's own order, or not
                 └──► ledger                        numbers, clocks, and what was set aside: another one with each push
"""
