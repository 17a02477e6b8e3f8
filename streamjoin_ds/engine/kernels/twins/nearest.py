"""Distances of pairs, places that are near each other, and the nearest partners of probes, kept while pairs come.

Distances, and whether two places on the globe are near each other, are calculated where the pairs' columns lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bytes, Column, Int32, Int64, Step
from streamjoin_ds.engine.kernels.twins.arguments import check_array, float_bound, index, refuse
from streamjoin_ds.engine.kernels.twins.arguments import own as own_object
from streamjoin_ds.engine.kernels.twins.run_columns import RunColumns
from streamjoin_ds.engine.kernels.twins.runs import RunsProbe
from streamjoin_ds.engine.kernels.twins.threads import Task
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, Float64
from streamjoin_ds.spec.expression.node import EXACT_FLOAT
from streamjoin_ds.spec.functions.globe import NearBounds, answers

__all__ = ["MAX_STEPS", "NEAREST_TIES", "NearPlaces", "NearestPairs", "PairDistances"]

MAX_STEPS = 24
NEAREST_TIES = 3  # columns that decide between pairs of one distance
_LISTED_PAIRS = 1024
_MAX_ROWS = 2**31 - 1

_LEAVES = ("own", "other", "float", "int")
_FLOATS: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_FLOATS_ALONE: dict[str, Any] = {"abs": np.abs, "neg": np.negative, "sqrt": np.sqrt}
_INTS = ("int add", "int sub", "int mul")
_INTS_ALONE = ("int abs", "int neg")
_ALL = (*_LEAVES, "widen", *_FLOATS, *_FLOATS_ALONE, *_INTS, *_INTS_ALONE)


class PairDistances:
    """An expression in steps, the last of which gives the distance of a pair.

    Parameters
    ----------
    steps : sequence of (op, left, right, is_float)
        Each gives float64 or int64. "own" and "other" give column number `left` of the probes, or of the runs, whose
        items are floats or integers of up to 8 bytes; integers as float64 where `right` is 1. "float" and "int" give
        the number `left`. "widen" makes float64 of int64. "add", "sub", "mul", "div", "abs", "neg" and "sqrt" work on
        float64, "int add", "int sub", "int mul", "int abs" and "int neg" on int64: on the earlier steps `left` and
        `right`. By 0 "div" gives NaN.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        if not 0 < len(self._steps) <= MAX_STEPS:
            refuse("there are too many steps, or none", "steps", hint=f"1 to {MAX_STEPS}")
        self._counts = {"own": 0, "other": 0}
        gives: list[bool] = []
        for number, (op, left, right, is_float) in enumerate(self._steps):
            if op not in _ALL:
                refuse("a step is not known", "steps", hint=", ".join(_ALL))
            if op in self._counts:
                if not 0 <= index(left, "steps") < MAX_STEPS:
                    refuse("the number of a column is out of range", "steps")
                self._counts[op] = max(self._counts[op], index(left, "steps") + 1)
            elif op == "int":
                if not INT64_MIN <= index(left, "steps") <= INT64_MAX:
                    refuse("a whole number does not fit int64", "steps")
            elif op != "float":
                is_alone = op in ("widen", *_FLOATS_ALONE, *_INTS_ALONE)
                for operand in (left,) if is_alone else (left, right):
                    place = -1 if operand is None else index(operand, "steps")
                    if not 0 <= place < number or gives[place] != (op in _FLOATS or op in _FLOATS_ALONE):
                        refuse("a step needs earlier steps of its own type", "steps")
            gives.append(bool(is_float or right) if op in self._counts else op not in ("int", *_INTS, *_INTS_ALONE))

    def fill(
        self,
        own: Sequence[Column],
        runs: objects.RunColumns,
        run_numbers: Int32 | int | None,
        positions: Int32,
        rows: Int32,
        out: Column,
    ) -> bool:
        """Write the distance of each pair; return False where int64 or float64 cannot hold one exactly.

        Then what was written is of no use: an int64 overflowed, or a distance of int64 is beyond 2^53.

        Parameters
        ----------
        own : sequence of ndarray
            The columns of the probes.
        runs : RunColumns
            The columns of the runs.
        run_numbers, rows
            The other tuple of each pair, as for `RunColumns.gather`.
        positions : ndarray, shape (n,), int32
            The probe of each pair.
        out : ndarray, shape (n,), float64
        """
        columns = own_object(runs, RunColumns, "runs")
        if len(own) != self._counts["own"] or len(columns.item_bytes) != self._counts["other"]:
            refuse("there must be a column for each that a step names", "own")
        for column in own:
            is_plain = isinstance(column, np.ndarray) and column.dtype.kind in "fi"
            if not is_plain or len(column) != len(own[0]):
                refuse("a column is not a plain array of numbers, or is shorter than another", "own")
            check_array(column, "own", column.dtype)
        check_array(positions, "positions", np.dtype(np.int32))
        check_array(out, "out", np.dtype(np.float64), writeable=True)
        if not len(positions) == len(rows) == len(out):
            refuse("positions, rows and out differ in length", "positions")
        for op, left, _, is_float in self._steps:
            kind = own[int(left)].dtype if op == "own" else np.dtype(np.float64 if is_float else np.int64)
            if (kind.kind == "f") != is_float or kind.itemsize > 8 or (is_float and kind.itemsize < 4):
                refuse("a column of the probes is of another type", "own")
            if op == "other" and (
                columns.item_bytes[int(left)] > 8 or (is_float and columns.item_bytes[int(left)] < 4)
            ):
                refuse("a column of the runs is of another type", "runs")
        if own and len(positions) and not 0 <= positions.min() <= positions.max() < len(own[0]):
            refuse("rows, run_numbers or positions point outside", "rows")
        gathered: list[Column] = [np.empty(len(rows), f"V{size}") for size in columns.item_bytes]
        columns.gather(run_numbers, rows, gathered)
        found: list[Any] = []
        with np.errstate(all="ignore"):
            for op, left, right, is_float in self._steps:
                if op == "own":
                    found.append(_wide(own[int(left)][positions], right == 1))
                elif op == "other":
                    raw = gathered[int(left)]
                    found.append(_wide(raw.view(f"{'f' if is_float else 'i'}{raw.dtype.itemsize}"), right == 1))
                elif op in ("float", "int"):
                    found.append(np.full(len(rows), left, np.float64 if op == "float" else object))
                elif op == "widen":
                    found.append(found[int(left)].astype(np.float64))
                elif op in _FLOATS:
                    found.append(_FLOATS[op](found[int(left)], found[int(right or 0)]))
                    if op == "div":
                        found[-1][found[int(right or 0)] == 0] = np.nan
                elif op in _FLOATS_ALONE:
                    found.append(_FLOATS_ALONE[op](found[int(left)]))
                else:
                    whole = _of_whole(op, found[int(left)], found[int(right or 0)])
                    if any(not INT64_MIN <= value <= INT64_MAX for value in whole):
                        return False
                    found.append(whole)
        last = found[-1]
        if last.dtype == object and any(abs(value) > EXACT_FLOAT for value in last):
            return False
        out[:] = last.astype(np.float64)
        return True


def _wide(values: Column, is_wide: bool) -> Any:
    """Return items as float64, or as Python's whole numbers, which never overflow."""
    return values.astype(np.float64) if is_wide or values.dtype.kind == "f" else values.astype(object)


def _of_whole(op: str, left: Any, right: Any) -> Any:
    if op in _INTS_ALONE:
        return abs(left) if op == "int abs" else -left
    return left + right if op == "int add" else left - right if op == "int sub" else left * right


class NearPlaces:
    """A decision on pairs of places.

    Parameters
    ----------
    bounds : sequence of 5 float
        As `NearBounds`.
    implementation : str, optional
        The twin has one.
    """

    def __init__(self, bounds: Sequence[float], implementation: str | None = None) -> None:
        if implementation not in (None, "reference"):
            refuse("this implementation is not available here", "implementation")
        if len(bounds) != 5:
            refuse("there must be five bounds", "bounds")
        self._bounds = NearBounds(*(float_bound(of, "bounds") for of in bounds))

    def decide(
        self,
        left: objects.RunColumns,
        left_runs: Int32 | int | None,
        left_rows: Int32,
        right: objects.RunColumns,
        right_runs: Int32 | int | None,
        right_rows: Int32,
        out: Bytes,
    ) -> None:
        """Write for each pair 0 where it is far, 1 where it is near, and 2 where only its distance tells.

        Parameters
        ----------
        left, right : RunColumns
            Two columns of float64: latitudes and longitudes in degrees. Where they are no places, a pair is far.
        left_runs, left_rows, right_runs, right_rows
            The tuples of each pair, as for `RunColumns.gather`.
        out : ndarray, shape (n,), uint8
        """
        check_array(out, "out", np.dtype(np.uint8), writeable=True)
        if not len(left_rows) == len(right_rows) == len(out):
            refuse("left_rows, right_rows and out differ in length", "out")
        places: list[Column] = []
        for columns, run_numbers, rows, name in (
            (left, left_runs, left_rows, "left"),
            (right, right_runs, right_rows, "right"),
        ):
            own = own_object(columns, RunColumns, name)
            if own.dtypes != [np.dtype(np.float64)] * 2:
                refuse(f"{name} must have two columns of float64", name)
            gathered = [np.empty(len(rows)) for _ in range(2)]
            own.gather(run_numbers, rows, gathered)
            places += gathered
        out[:] = answers(self._bounds, places)


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
        self._kept: list[Int64 | Int32 | Float64] = [np.empty(0, np.int32), np.empty(0)]
        self._kept += [np.empty(0, np.int64) for _ in range(NEAREST_TIES)]
        self._kept += [np.empty(0, np.int32), np.empty(0, np.int32)]
        self._is_ranked = False
        self.is_exact: bool = True

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

    def taking(
        self,
        probing: objects.RunsProbe,
        distances: objects.PairDistances,
        own: Sequence[Column],
        runs: objects.RunColumns,
        ties: Sequence[objects.RunColumns],
    ) -> Task[None]:
        """Return a task that takes all pairs of a probing with their distances; none leaves the kernels.

        Where a distance cannot be held exactly it ends, `is_exact` is False, and what was kept is of no use.

        Parameters
        ----------
        probing : RunsProbe
            No pair of it was written before.
        distances : PairDistances
        own, runs
            The columns of the probes and of the probed runs, as for `PairDistances.fill`.
        ties : sequence of RunColumns
            Up to three: each has one column of int64 of the probed runs. See `keep`.
        """
        of_probes = own_object(probing, RunsProbe, "probing")
        if self._is_ranked:
            refuse("the pairs were ranked already", "taking", hint="one object for some probes")
        if of_probes.count > self._count:
            refuse("there are fewer probes than the probing has", "probing")
        if len(ties) > NEAREST_TIES:
            refuse("there are three columns at most that decide ties", "ties")
        for columns in ties:
            if own_object(columns, RunColumns, "ties").dtypes != [np.dtype(np.int64)]:
                refuse("what decides a tie is a column of int64", "ties")
        for columns in (runs, *ties):
            if len(own_object(columns, RunColumns, "runs").run_rows) != len(of_probes.run_rows):
                refuse("the columns are of other runs than the probing's", "columns")
        return Task(partial(self._take, of_probes, distances, own, runs, ties))

    def _take(
        self,
        probing: RunsProbe,
        distances: objects.PairDistances,
        own: Sequence[Column],
        runs: objects.RunColumns,
        ties: Sequence[objects.RunColumns],
    ) -> None:
        out = np.empty((3, _LISTED_PAIRS), np.int32)
        while count := probing.fill(*out):
            positions, rows, run_numbers = out[:, :count]
            found = np.empty(count)
            if not distances.fill(own, runs, run_numbers, positions, rows, found):
                self.is_exact = False
                return
            selected = self.select(positions, found)
            rows, run_numbers = rows[selected], run_numbers[selected]
            values = [np.zeros(len(selected), np.int64) for _ in range(NEAREST_TIES)]
            for column, to in zip(ties, values, strict=False):
                column.gather(run_numbers, rows, [to])
            self.keep(positions[selected], found[selected], values, run_numbers, rows)

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


def _ranks(sorted_probes: Int32) -> Int64:
    """Return for each item of an ascending array how many equal ones precede it."""
    places = np.arange(len(sorted_probes))
    starts = np.flatnonzero(np.concatenate([[True], sorted_probes[1:] != sorted_probes[:-1]]))
    return places - np.repeat(starts, np.diff(np.append(starts, len(sorted_probes))))
