"""Distances of pairs, calculated where their columns lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Column, Int32, Step
from streamjoin_ds.engine.kernels.twins.arguments import INT64_MAX, INT64_MIN, check_array, index, refuse
from streamjoin_ds.engine.kernels.twins.arguments import own as own_object
from streamjoin_ds.engine.kernels.twins.runs import RunColumns

__all__ = ["MAX_STEPS", "PairDistances"]

MAX_STEPS = 24
_EXACT = 1 << 53  # whole numbers up to this are exact in float64

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
        if last.dtype == object and any(abs(value) > _EXACT for value in last):
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
