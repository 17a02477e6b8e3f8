"""Cell labels: grouping keys chosen so that Spark's hash puts each cell on its own state partition.

Spark places a key by ``pmod(murmur3_x86_32(key, seed 42), partitions)``. Labels 0, 1, 2, ... would collide: two cells
in one task, and an idle core. So a cell's label is the first free integer whose hash lands on the cell's partition.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

from streamjoin_ds.errors import LayoutError

__all__ = ["cell_labels", "cell_of_label", "spark_hash", "spark_partition"]

_MASK = 0xFFFFFFFF
_SEED = 42


def spark_hash(value: int) -> int:
    """Return Spark SQL's ``hash(CAST(value AS INT))``: Murmur3 x86 32-bit of a 4-byte integer, as a signed int."""
    block = value & _MASK
    block = block * 0xCC9E2D51 & _MASK
    block = _rotated(block, 15) * 0x1B873593 & _MASK
    state = _rotated(_SEED ^ block, 13) * 5 + 0xE6546B64 & _MASK
    state ^= 4  # the length in bytes
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def spark_partition(label: int, partitions: int) -> int:
    """Return the state partition on which Spark keeps the key `label`."""
    return spark_hash(label) % partitions


def cell_labels(cells: int, partitions: int) -> tuple[int, ...]:
    """Return one label for each cell. Cell ``c`` lands on partition ``c mod partitions``. Labels are distinct and >= 0.

    A cell's label depends on the number of partitions only: more cells leave the labels of the others as they are.

    Raises
    ------
    LayoutError
        There is no cell, or no partition.
    """
    if cells < 1 or partitions < 1:
        msg = "a layout needs at least one cell and one state partition"
        raise LayoutError(msg, name="partitions", hint="set spark.sql.shuffle.partitions to at least 1")
    labels: list[int] = []
    queues: list[deque[int]] = [deque() for _ in range(partitions)]
    label = 0
    for cell in range(cells):
        wanted = queues[cell % partitions]
        while not wanted:
            queues[spark_partition(label, partitions)].append(label)
            label += 1
        labels.append(wanted.popleft())
    return tuple(labels)


@lru_cache(maxsize=256)
def cell_of_label(label: int, partitions: int) -> int:
    """Return the cell that has this label, as `cell_labels` gives them."""
    partition = spark_partition(label, partitions)
    before = sum(spark_partition(smaller, partitions) == partition for smaller in range(label))
    return partition + before * partitions
