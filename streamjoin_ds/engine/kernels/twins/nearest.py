"""The nearest partners of probes, kept while pairs come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, index, refuse

__all__ = ["NEAREST_TIES", "NearestPairs"]

NEAREST_TIES = 3  # columns that decide between pairs of one distance
_MAX_ROWS = 2**31 - 1

Float64 = npt.NDArray[np.float64]


class NearestPairs:
    """For each of some probes the `k` nearest of the pairs that were given so far: by distance, then by the ties.

    Pairs are given in two steps. `select` needs the distances alone and refuses most pairs, so that what decides
    ties is looked up for few. Which pairs are kept is a function of the set of pairs, if no two of a probe are equal in
    all: it does not depend on their order, nor on how they are cut.

    Parameters
    ----------
    count : int
        The number of probes.
    k : int
        How many pairs of each probe are kept, at most. ``count * k`` is at most 2^31 - 1.

    Notes
    -----
    Of a distance NaN nothing is selected. -0.0 and 0.0 are one distance, and infinity is the largest one.
    """

    def __init__(self, count: int, k: int) -> None:
        self._count, self._k = index(count, "count"), index(k, "k")
        if not 0 <= self._count <= _MAX_ROWS:
            refuse("count is out of range", "count", hint="0 to 2^31 - 1")
        if not 1 <= self._k <= _MAX_ROWS or self._count * self._k > _MAX_ROWS:
            refuse("k is out of range", "k", hint="1 and more; count times k is at most 2^31 - 1")
        self._seen: tuple[Int32, Float64] = np.empty(0, np.int32), np.empty(0)
        # Of the kept pairs: probe, distance, ties, run number, row.
        self._kept: list[npt.NDArray[np.int64] | Int32 | Float64] = [np.empty(0, np.int32), np.empty(0)]
        self._kept += [np.empty(0, np.int64) for _ in range(NEAREST_TIES)]
        self._kept += [np.empty(0, np.int32), np.empty(0, np.int32)]
        self._is_ranked = False

    def select(self, positions: Int32, distances: Float64) -> Int32:
        """Return the numbers of the pairs that may be among the nearest, ascending: by their distances alone.

        They are the pairs whose distance is not above the `k`-th smallest of their probe, these pairs among them.

        Parameters
        ----------
        positions : ndarray, shape (n,), int32
            The probe of each pair.
        distances : ndarray, shape (n,), float64
        """
        self._check(positions, distances)
        known = np.flatnonzero(~np.isnan(distances))
        probes = np.concatenate([self._seen[0], positions[known]])
        seen = np.concatenate([self._seen[1], distances[known]])
        order = np.lexsort((seen, probes))
        nearest = order[_ranks(probes[order]) < self._k]
        self._seen = probes[nearest], seen[nearest]
        most = np.full(self._count, np.inf)
        is_last = _ranks(self._seen[0]) == self._k - 1
        most[self._seen[0][is_last]] = self._seen[1][is_last]
        return np.flatnonzero(distances <= most[positions]).astype(np.int32)

    def keep(
        self, positions: Int32, distances: Float64, ties: Sequence[Int64], run_numbers: Int32, rows: Int32
    ) -> None:
        """Keep those of the pairs that are among the nearest.

        Parameters
        ----------
        positions, distances
            As for `select`, of the pairs that it returned.
        ties : sequence of ndarray, shape (n,), int64
            Three columns: between pairs of one distance the first that differs decides, the smaller value is nearer.
        run_numbers, rows : ndarray, shape (n,), int32
            What is returned of the pair.
        """
        self._check(positions, distances)
        if len(ties) != NEAREST_TIES:
            refuse("there must be three columns that decide ties", "ties")
        for column in ties:
            check_array(column, "ties", np.dtype(np.int64))
            if len(column) != len(positions):
                refuse("positions and ties differ in length", "ties")
        for name, numbers in (("run_numbers", run_numbers), ("rows", rows)):
            check_array(numbers, name, np.dtype(np.int32))
            if len(numbers) != len(positions):
                refuse(f"positions and {name} differ in length", name)
        given = [positions, distances, *ties, run_numbers, rows]
        columns = [np.concatenate([old, new]) for old, new in zip(self._kept, given, strict=True)]
        order = np.lexsort(columns[NEAREST_TIES + 1 :: -1])
        order = order[_ranks(columns[0][order]) < self._k]
        self._kept = [column[order] for column in columns]

    def ranked(self) -> tuple[Int32, Int32, Int32]:
        """Return how many pairs each probe has, then their run numbers and rows, each probe's nearest first."""
        if self._is_ranked:
            refuse("the pairs were ranked already", "ranked", hint="one object for some probes")
        self._is_ranked = True
        counts = np.bincount(self._kept[0], minlength=self._count).astype(np.int32)
        return counts, self._kept[-2].astype(np.int32), self._kept[-1].astype(np.int32)

    def _check(self, positions: Int32, distances: Float64) -> None:
        if self._is_ranked:
            refuse("the pairs were ranked already", "positions", hint="one object for some probes")
        check_array(positions, "positions", np.dtype(np.int32))
        check_array(distances, "distances", np.dtype(np.float64))
        if len(distances) != len(positions):
            refuse("positions and distances differ in length", "distances")
        if len(positions) and not 0 <= positions.min() <= positions.max() < self._count:
            refuse("positions point outside the probes", "positions")


def _ranks(sorted_probes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return for each item of an ascending array how many equal ones precede it."""
    places = np.arange(len(sorted_probes))
    starts = np.flatnonzero(np.concatenate([[True], sorted_probes[1:] != sorted_probes[:-1]]))
    return places - np.repeat(starts, np.diff(np.append(starts, len(sorted_probes))))
