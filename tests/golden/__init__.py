"""What versions of this package left in checkpoints, kept for all later ones to read.

A folder a version: ``join.json``, ``offset.json``, the state row of each cell, its blocks, and in ``expected.json``
the windows' tuples and the results of going on to the end of the input. ``python -m tests.golden.make NAME`` made
them; what is there is never made again.
"""
