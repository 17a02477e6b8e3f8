"""What is right for streams of many partitions, by NumPy: who is late, who is broken, who matches, and the watermarks.

It is the contract (ARCHITECTURE.md, "Partitions") for millions of rows, and uses nothing of the package but the shape
of an offset. `tests.faults.test_topics` compares it with `streamjoin_ds.testing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NONE", "Expected", "PartitionRows", "expected_of", "matches_of"]

NONE = np.iinfo(np.int64).min
"""The time of a record without one."""
_PLACE_BITS = 40


@dataclass(frozen=True)
class PartitionRows:
    """A partition's messages, in its order.

    Attributes
    ----------
    offsets, times_us : numpy.ndarray
        int64; `NONE` where a message has no event time.
    keys : numpy.ndarray
        int64.
    is_tuple : numpy.ndarray
        Whether the message can be read. One that cannot may have an event time all the same: it counts.
    """

    offsets: np.ndarray
    times_us: np.ndarray
    keys: np.ndarray
    is_tuple: np.ndarray

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.offsets)


@dataclass(frozen=True)
class Expected:
    """What a stream's messages are, in the order of its partitions' numbers.

    Attributes
    ----------
    seqs, times_us, keys : numpy.ndarray
    batches : numpy.ndarray
        By which batch each was read.
    is_late, is_stored : numpy.ndarray
    """

    seqs: np.ndarray
    times_us: np.ndarray
    keys: np.ndarray
    batches: np.ndarray
    is_late: np.ndarray
    is_stored: np.ndarray

    def ledger(self, batches: int) -> np.ndarray:
        """Return for each batch how many were read, stored, late and rejected."""
        kinds = (np.ones(len(self.seqs), bool), self.is_stored, self.is_late, ~(self.is_stored | self.is_late))
        return np.stack([np.bincount(self.batches[kind], minlength=batches) for kind in kinds], axis=1)


def expected_of(
    offsets: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, PartitionRows]],
    delay_us: int,
) -> tuple[dict[str, Expected], list[int | None]]:
    """Return what is right of each stream, and the watermark at the end of each batch.

    Parameters
    ----------
    offsets : sequence of dict
        The ends of the batches, as Spark's log has them.
    rows : mapping
        For each stream and partition its messages.
    delay_us : int
        Of all streams.
    """
    running = {
        name: {partition: np.maximum.accumulate(own.times_us) for partition, own in of.items()}
        for name, of in rows.items()
    }
    watermarks: list[int | None] = []
    for offset in offsets:
        lows = [_low(offset["streams"][name], running[name]) for name in rows if not _is_idle(offset, name)]
        before = watermarks[-1] if watermarks else None
        if lows and all(low is not None for low in lows):
            now = min(low for low in lows if low is not None) - delay_us
            before = now if before is None else max(before, now)
        watermarks.append(before)
    floors = np.array([NONE, *(NONE if mark is None else mark for mark in watermarks)], np.int64)
    found = {name: _stream(offsets, name, of, running[name], floors, delay_us) for name, of in rows.items()}
    return found, watermarks


def _is_idle(offset: Mapping[str, Any], name: str) -> bool:
    return bool(offset.get("clocks", {}).get(name, {}).get("idle", False))


def _low(facts: Mapping[str, Any], running: Mapping[str, np.ndarray]) -> int | None:
    """Return the smallest of the largest times of the partitions that have joined and are not idle."""
    largest, awake = [], []
    for name, one in facts["partitions"].items():
        if read := one["at"]["seq"]:
            largest.append(int(running[name][read - 1]))
            if not one.get("clock", {}).get("idle", False):
                awake.append(largest[-1])
    if largest and not awake:
        return max(largest) if max(largest) != NONE else None
    return min(awake) if awake and min(awake) != NONE else None


def _stream(
    offsets: Sequence[Mapping[str, Any]],
    name: str,
    rows: Mapping[str, PartitionRows],
    running: Mapping[str, np.ndarray],
    floors: np.ndarray,
    delay_us: int,
) -> Expected:
    last = offsets[-1]["streams"][name]["partitions"]
    parts = []
    for partition in sorted(last, key=lambda one: int(last[one]["number"])):
        own = rows[partition]
        ends = [offset["streams"][name]["partitions"].get(partition, {"at": {"seq": 0}}) for offset in offsets]
        batches = np.searchsorted([end["at"]["seq"] for end in ends], np.arange(len(own)), side="right")
        before = np.concatenate([np.array([NONE], np.int64), running[partition][:-1]])
        is_behind = (before != NONE) & (own.times_us < np.where(before == NONE, 0, before) - delay_us)
        is_late = own.is_tuple & (is_behind | (own.times_us < floors[np.minimum(batches, len(floors) - 1)]))
        seqs = (last[partition]["number"] << _PLACE_BITS) + own.offsets
        parts.append((seqs, own.times_us, own.keys, batches, is_late, own.is_tuple & ~is_late))
    return Expected(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def matches_of(left: Expected, right: Expected, window_us: int, eps: int) -> np.ndarray:
    """Return the matches as rows of the left and the right number, sorted; keys are small and not negative."""
    one, other = (np.flatnonzero(side.is_stored) for side in (left, right))
    if not len(one) or not len(other):
        return np.empty((0, 2), np.int64)
    least = min(int(left.times_us[one].min()), int(right.times_us[other].min()))
    places = right.keys[other] << _PLACE_BITS | (right.times_us[other] - least)
    order = np.argsort(places)
    places, other = places[order], other[order]
    pairs = []
    for step in range(-eps, eps + 1):
        key, time_us = (left.keys[one] + step) << _PLACE_BITS, left.times_us[one] - least
        begin = np.searchsorted(places, key + np.maximum(time_us - window_us, 0))
        end = np.maximum(np.searchsorted(places, key + time_us + window_us, side="right"), begin)
        counts = end - begin
        own = np.repeat(one, counts)
        nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs.append(np.stack([left.seqs[own], right.seqs[other[np.repeat(begin, counts) + nth]]], axis=1))
    found = np.concatenate(pairs)
    return found[np.lexsort((found[:, 1], found[:, 0]))]
