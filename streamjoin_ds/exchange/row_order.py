"""The order of a DataFrame's rows, as the tasks that have them tell it to the cells.

A partition's rows may lie in several tasks of Spark, in any order, and a task knows its own alone::

    numbers of partition 2    7  8  9 10 11 12 13 14
    task 0                    a  a        a  a        the largest times up to 8 and up to 12   ─┐ every cell can tell
    task 1                          b  b        b  b  the largest times up to 10 and up to 14  ─┘ the largest before

A task judges its rows by its own before them, and tells the rest in *steps*: for each of its runs of consecutive
numbers the last number, and the largest time up to there. No number lies inside another task's run, so the steps of all
tasks together are as good as all rows. A task that has a whole stretch of a partition, as usual, tells one step for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.source.partitioned_position import SEQ_BITS
from streamjoin_ds.spec.columns import Int64
from streamjoin_ds.spec.event_time import NO_TIME

__all__ = ["STEPS_SCHEMA", "partition_bits", "running_maximum", "steps_of", "times_before"]


STEPS_SCHEMA = pa.schema(
    [pa.field("seq", pa.int64(), nullable=False), pa.field("largest_us", pa.int64(), nullable=False)]
)


def partition_bits(columns: Sequence[str]) -> int:
    """Return by how many bits a row's number is shifted to the right to give its partition's.

    Two columns are a partition and a number in it. One column numbers all rows, which are one partition.
    """
    return SEQ_BITS if len(columns) == 2 else 63


def running_maximum(partitions: Int64, times_us: Int64) -> Int64:
    """Return for each row the largest time of it and the rows before it in its partition.

    Parameters
    ----------
    partitions : ndarray, shape (n,), int64
        The rows' partitions, ascending.
    times_us : ndarray, shape (n,), int64
        Times in each partition's order.
    """
    if not len(times_us):
        return times_us
    changes = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    if len(changes) < 64:
        parts = np.split(times_us, changes)
        return np.concatenate([np.maximum.accumulate(part) for part in parts])
    # Many partitions: the running maximum of ranks, which are larger in each partition than in the one before.
    sorted_us, ranks = np.unique(times_us, return_inverse=True)
    numbers = np.zeros(len(times_us), np.int64)
    numbers[changes] = 1
    running: Int64 = sorted_us[np.maximum.accumulate(np.cumsum(numbers) * len(sorted_us) + ranks) % len(sorted_us)]
    return running


def times_before(seqs: Int64, running_us: Int64, bits: int, asked: Int64) -> Int64:
    """Return for each asked number the largest time before it in its partition; `NO_TIME` where there is none.

    Parameters
    ----------
    seqs : ndarray, shape (n,), int64
        Numbers, ascending. Equal ones are not before each other.
    running_us : ndarray, shape (n,), int64
        The largest time of each number's partition up to it.
    bits : int
        See `partition_bits`.
    asked : ndarray, shape (m,), int64
    """
    if not len(seqs):
        return np.full(len(asked), NO_TIME)
    last = np.searchsorted(seqs, asked, side="left") - 1
    has_one = (last >= 0) & (seqs[last] >> bits == asked >> bits)
    return np.where(has_one, running_us[last], NO_TIME)


def steps_of(seqs: Int64, times_us: Int64, bits: int) -> tuple[Int64, pa.Table]:
    """Return for each row the largest time before it, among these rows of its partition, and the rows' steps.

    Parameters
    ----------
    seqs : ndarray, shape (n,), int64
        The rows' numbers, not below zero, in any order.
    times_us : ndarray, shape (n,), int64
        Their event times; `NO_TIME` where a row has none. Each partition has a step at least.
    bits : int
        See `partition_bits`.

    Returns
    -------
    before_us : ndarray, shape (n,), int64
        In the order of `seqs`; `NO_TIME` where there is none.
    steps : pyarrow.Table
        Of `STEPS_SCHEMA`, by ascending numbers.
    """
    order = np.argsort(seqs, kind="stable")
    numbers, partitions = seqs[order], seqs[order] >> bits
    running = running_maximum(partitions, times_us[order])
    before = times_before(numbers, running, bits, seqs)
    changes = partitions[1:] != partitions[:-1]
    ends = np.flatnonzero(np.append((np.diff(numbers) > 1) | changes, True)) if len(numbers) else order
    # A run that raises nothing is no step, but for the first of a partition.
    raises = np.append(
        True, (running[ends][1:] != running[ends][:-1]) | (partitions[ends][1:] != partitions[ends][:-1])
    )
    ends = ends[raises[: len(ends)]]
    return before, pa.table([pa.array(numbers[ends]), pa.array(running[ends])], schema=STEPS_SCHEMA)
