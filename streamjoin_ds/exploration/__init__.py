"""The exploration: what a join would give with other bands, windows and delays (`streamjoin explore`).

::

    sources or frames ──► sampled_streams ──► curves ───────────────► exploration ──► text, JSON, page, notebook
                          a stretch of time   distances of pairs,     rows and bytes a day,
                          that all cover      found by the engine     late rows, layout

Tuples of the first stream are drawn from a stretch of time, and each meets *all* tuples of the other. So each has all
its partners, and what is counted stands for the stretch without bias (`curves`). Nothing here decides a row.
"""
