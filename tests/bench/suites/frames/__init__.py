"""DataFrames to committed matches, by `StreamJoin.start` and by `StreamJoin.dataframe`: how many rows a second.

::

    frame_load   tuples ─► Parquet files, one of each stream a batch ◄─ frame_query: one way, a process of its own
                    └──► independent count of the matches                  │ times of the commits, matches
                                   └──────── compared ─────────────────────┴─► suite: rows a second
"""
