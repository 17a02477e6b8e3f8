"""Rows in the forms that users have, made into tuples.

::

    chunks ──► taking ──► rows ──► moments          a push, its streams, one stream's rows, Python's values as times
                 │
                 ├──► lateness                      late by the stream's own order, or not
                 └──► ledger                        numbers, clocks, and what was set aside: a new object with each push
"""
