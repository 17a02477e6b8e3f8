"""Checkpoints that versions of this package have written, kept so that every later version is tested with them.

Each version has a folder with an archive for each kind of join (`tests.support.kinds`): its input, the folder of its
query with tables, blocks, state rows, ``join.json`` and ``offset.json``, and one of a query that Spark ran. `make`
wrote them. What must come out is the oracle's.

``v1`` is older: one join, whose ``expected.json`` holds the windows' tuples and the results of going on to the end.
"""
