"""Checkpoints that versions of this package have written, kept so that every later version is tested with them.

Each version has a folder with ``join.json``, ``offset.json``, the state row of each cell, and its blocks.
``expected.json`` holds the windows' tuples and the results of going on to the end of the input. ``python -m
tests.golden.make NAME`` wrote the folder. A folder that is there is never written again.
"""
