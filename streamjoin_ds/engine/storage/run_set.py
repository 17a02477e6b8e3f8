"""The runs of one window as a stack: probed and gathered from in one call, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import byte_column, bytes_of, gathered
from streamjoin_ds.engine.arrays.keys import key_dtype
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.storage.run_view import RunView, seen_by
from streamjoin_ds.engine.storage.tail import Tail

__all__ = ["SeenStack", "Stack"]


class Stack:
    """Runs, the last of which may be a tail that grows: what is made of them here holds for all its lengths.

    Parameters
    ----------
    runs : sequence of Run
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self.kinds: dict[str, pa.DataType] = runs[0].form.kinds if runs else {}
        self.tail = runs[-1].buffer if runs and isinstance(runs[-1], Tail) else None
        self._columns: dict[tuple[str, ...], Any] = {}
        self._plain: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._keys: dict[int, Any] = {}
        self._indexes: dict[tuple[ProbeCondition, ...], list[Any]] = {}
        self._seen: dict[tuple[ProbeCondition, ...], Stack] = {}

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> Stack:
        """The stack as probes with these conditions are to see it: itself, or a `SeenStack`."""
        if not self.runs or not self.runs[0].form.chooser.is_contested or isinstance(self.runs[0], BucketRun):
            return self
        found = self._seen.get(conditions)
        if found is None:
            runs = [run if isinstance(run, Tail) else seen_by(run, conditions) for run in self.runs]
            is_same = all(mine is seen for mine, seen in zip(self.runs, runs, strict=True))
            found = self._seen[conditions] = self if is_same else SeenStack(runs, self)
        return found

    def fits(self, runs: Sequence[Run]) -> bool:
        """Whether these are the same runs, but for the length of the tail."""
        if len(runs) != len(self.runs):
            return False
        last = runs[-1] if runs else None
        same = last.buffer is self.tail if isinstance(last, Tail) else (not runs or last is self.runs[-1])
        return same and all(mine is theirs for mine, theirs in zip(self.runs[:-1], runs, strict=False))

    def columns(self, names: tuple[str, ...]) -> Any:
        """Columns to be gathered from (`RunColumns`); all must be of fixed width and without nulls: `plain`."""
        found = self._columns.get(names)
        if found is None:
            arrays = [[self._values(run, name) for name in names] for run in self.runs]
            found = self._columns[names] = self.module.RunColumns(arrays)
        return found

    def plain(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of some columns that have items of a fixed width and no null, in every run."""
        found = self._plain.get(names)
        if found is None:
            found = self._plain[names] = tuple(
                name for name in names if all(self._values(run, name) is not None for run in self.runs)
            )
        return found

    def column(self, place: int, name: str) -> pa.Array:
        """A column of one run, which is no bucket grid; of a tail, all that is in its buffer."""
        run = self.runs[place]
        return run.buffer.array(name, run.buffer.filled) if isinstance(run, Tail) else run.tuples.column(name)

    def taken(self, place: int, name: str, rows: npt.NDArray[np.int32]) -> pa.Array:
        """A column of some rows of one run; any type, nulls kept."""
        run = self.runs[place]
        if isinstance(run, BucketRun):
            return run.taken(name, rows)
        return gathered(self.column(place, name), rows, run.form.kernels)

    def taken_bytes(self, name: str, places: npt.NDArray[np.int32] | int, rows: npt.NDArray[np.int32]) -> pa.Array:
        """A column of strings or binary values of some rows: row ``rows[i]`` of run ``places[i]``."""
        first, columns = self.runs[0], []
        if isinstance(first, BucketRun):
            columns = first.payload.byte_columns(name)
            told = np.full(len(rows), places, np.int32) if isinstance(places, int) else places
            within = np.flatnonzero(told == 0)
            moved, rows = told + np.int32(len(columns) - 1), rows.copy()
            moved[within], rows[within] = first.located(rows[within])
            places = moved
        for place in range(1 if isinstance(first, BucketRun) else 0, len(self.runs)):
            run = self.runs[place]
            if isinstance(run, Tail):  # longer by now than when it came here
                columns.append(byte_column(self.column(place, name), run.form.kernels))
            else:
                columns.append(run.byte_column(name))
        return bytes_of(columns, places, rows, self.kinds[name], first.form.kernels)

    def key(self, place: int, number: int) -> npt.NDArray[Any]:
        """A key of one run; of a tail, with all the room behind it."""
        return self._key(self.runs[place], number)

    def key_dtype(self, number: int) -> np.dtype[Any]:
        """float64 or int64."""
        return key_dtype(self.runs[0].form.keys[number].kind)

    def narrow_key(self, number: int) -> tuple[str, np.dtype[Any]] | None:
        """As `BucketRun.narrow_key`, where there is a grid: all of it is not to be widened for a few rows."""
        first = self.runs[0]
        return first.narrow_key(number) if isinstance(first, BucketRun) else None

    def keys(self, number: int) -> Any:
        """A key to be gathered (`RunColumns`)."""
        found = self._keys.get(number)
        if found is None:
            arrays = [[self._key(run, number)] for run in self.runs]
            found = self._keys[number] = self.module.RunColumns(arrays)
        return found

    def indexes(self, conditions: tuple[ProbeCondition, ...]) -> list[Any]:
        """The runs as `RunsProbe` wants them."""
        found = self._indexes.get(conditions)
        if found is None:
            found = self._indexes[conditions] = [
                run.index(conditions) if not isinstance(run, Tail) else self._tail_index(run, conditions)
                for run in self.runs
            ]
        return found

    @property
    def module(self) -> Any:
        """The kernels."""
        return self.runs[0].form.kernels.module

    @staticmethod
    def _values(run: Run, name: str) -> npt.NDArray[Any] | None:
        return run.buffer.values.get(name) if isinstance(run, Tail) else run.values(name)

    @staticmethod
    def _key(run: Run, number: int) -> npt.NDArray[Any]:
        return run.buffer.keys[number] if isinstance(run, Tail) else run.key(number)

    def _tail_index(self, tail: Tail, conditions: tuple[ProbeCondition, ...]) -> Any:
        columns = [tail.buffer.keys[condition.run_key] for condition in conditions]
        lo, hi = [c.lo for c in conditions], [c.hi for c in conditions]
        room = len(tail.buffer.keys[0])
        return self.module.RunIndex(columns, lo, hi, first=-1, second=-1, width=1, right_count=room)


class SeenStack(Stack):
    """Some runs of a stack as `RunView`: probed, but not gathered from.

    Parameters
    ----------
    runs : sequence of Run
    of : Stack
        The runs themselves.
    """

    def __init__(self, runs: Sequence[Run], of: Stack) -> None:
        super().__init__(runs)
        self.of = of
        orders = [run.order if isinstance(run, RunView) else _as_they_lie(run) for run in runs]
        self._orders = self.module.RunColumns([[order] for order in orders])

    def rows_of(self, places: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Which rows of the runs themselves these are: row ``rows[i]`` of run ``places[i]``."""
        found = np.empty(len(rows), dtype=np.int32)
        self._orders.gather(places, rows, [found])
        return found


def _as_they_lie(run: Run) -> npt.NDArray[np.int32]:
    return np.arange(run.buffer.room if isinstance(run, Tail) else run.rows, dtype=np.int32)
