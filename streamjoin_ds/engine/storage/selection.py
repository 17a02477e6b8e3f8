"""Some tuples of one stream, as rows of its runs; partial results hold one such selection for each stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.engine.columns import array_of, empty_items, has_bytes, taken_of, widened
from streamjoin_ds.engine.kernels.objects import Int32, RunColumns
from streamjoin_ds.engine.scheduler import TaskCoroutine
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.spec.key_values import item_dtype

__all__ = ["Selection", "keys_of", "taken"]


class Selection(Struct, eq=False):
    """Some tuples of one stream. It is never changed, but not frozen: that would cost a microsecond for each object.

    Attributes
    ----------
    run_set : RunSet
        The runs that the tuples are in.
    rows : ndarray, shape (count,), int32, or None
        The row of each tuple within its run. None: `count` rows of one run from `begin` on.
    places : ndarray, shape (count,), int32, or int
        The number of each tuple's run. An int: all tuples are in that run.
    begin, count : int
        Used only where `rows` is None.
    pieced : dict of str to pyarrow.Array, optional
        Columns that were gathered already. A column that a residual looked at is mostly wanted in the result, too.
    """

    run_set: RunSet
    rows: Int32 | None = None
    places: Int32 | int = 0
    begin: int = 0
    count: int = 0
    pieced: dict[str, pa.Array] | None = None

    def __len__(self) -> int:
        return self.count if self.rows is None else len(self.rows)

    @classmethod
    def whole(cls, run: SealedRun) -> Selection:
        """Return all tuples of a run, in order."""
        return cls(RunSet((run,)), count=run.rows)

    def take(self, positions: Int32) -> Selection:
        """Return the tuples at these positions of the selection."""
        if self.rows is None:
            rows = positions + self.begin if self.begin else positions
            return Selection(self.run_set, rows, self.places)
        gather = self.run_set.module.gather
        places = self.places if isinstance(self.places, int) else gather(self.places, positions)
        return Selection(self.run_set, gather(self.rows, positions), places)

    def part(self, begin: int, end: int) -> Selection:
        """Return the tuples from position `begin` to before `end`."""
        if self.rows is None:
            return Selection(self.run_set, None, self.places, self.begin + begin, end - begin)
        places = self.places if isinstance(self.places, int) else self.places[begin:end]
        return Selection(self.run_set, self.rows[begin:end], places)

    def key(self, number: int) -> npt.NDArray[Any]:
        """Return the value of a key for each tuple."""
        if self.rows is None:
            assert isinstance(self.places, int)
            return self.run_set.key(self.places, number)[self.begin : self.begin + self.count]
        narrow = self.run_set.narrow_key(number)
        if narrow is not None:
            items = np.empty(len(self.rows), dtype=narrow[1])
            self.run_set.columns((narrow[0],)).gather(self.places, self.rows, [items])
            return widened(items)
        values = np.empty(len(self.rows), dtype=self.run_set.key_dtype(number))
        self.run_set.keys(number).gather(self.places, self.rows, [values])
        return values

    def column(self, name: str) -> pa.Array:
        """Return the value of a column of ``run_schema`` for each tuple."""
        if self.rows is None:
            assert isinstance(self.places, int)
            return self.run_set.column(self.places, name).slice(self.begin, self.count)
        if not self.run_set.plain((name,)):
            self.pieced = {} if self.pieced is None else self.pieced
            if name not in self.pieced:
                self.pieced[name] = self._pieced(name)
            return self.pieced[name]
        kind = self.run_set.kinds[name]
        values = empty_items(len(self.rows), item_dtype(kind))
        self.run_set.columns((name,)).gather(self.places, self.rows, [values])
        return array_of(values, kind)

    def gathered(self, names: tuple[str, ...], begin: int, end: int) -> tuple[RunColumns, Int32 | int, Int32]:
        """Return a part for the kernels' `Rows`: `RunSet.plain` columns of the tuples from `begin` to before `end`."""
        rows, places = self.rows, self.places
        if rows is None:
            rows = np.arange(self.begin + begin, self.begin + end, dtype=np.int32)
        elif end - begin < len(rows):
            rows = rows[begin:end]
            places = places if isinstance(places, int) else places[begin:end]
        return self.run_set.columns(names), places, rows

    def _pieced(self, name: str) -> pa.Array:
        """Return a column that has no fixed width, or has nulls, for each tuple."""
        assert self.rows is not None
        if has_bytes(self.run_set.kinds[name]):
            return self.run_set.taken_bytes(name, self.places, self.rows)
        if isinstance(self.places, int):
            return self.run_set.taken(self.places, name, self.rows)
        rows, run_set = self.rows, self.run_set
        return taken_of(
            len(run_set.runs),
            self.places,
            lambda place, positions: run_set.taken(place, name, rows[positions]),
            run_set.runs[0].form.kernels,
        )

    def times_us(self) -> npt.NDArray[np.int64]:
        """Return the event time of each tuple, in microseconds."""
        return self.key(0)


def taken(block: Mapping[int, Selection], positions: Int32, few_rows: int) -> TaskCoroutine[dict[int, Selection]]:
    """Return the tuples at these positions of each selection, as a coroutine; up to `few_rows` need no task."""
    if len(positions) <= few_rows:
        return {stream: selection.take(positions) for stream, selection in block.items()}
    made, tasks = {}, []
    for stream, selection in block.items():
        if selection.rows is None:
            made[stream] = selection.take(positions)
            continue
        columns = [selection.rows] if isinstance(selection.places, int) else [selection.rows, selection.places]
        outs = [np.empty(len(positions), dtype=np.int32) for _ in columns]
        tasks.append(selection.run_set.module.RunColumns([columns]).gathering(None, positions, outs))
        made[stream] = Selection(selection.run_set, outs[0], outs[1] if len(outs) > 1 else selection.places)
    if tasks:
        yield tasks
    return made


def keys_of(wanted: Sequence[tuple[Selection, int]], few_rows: int) -> TaskCoroutine[list[npt.NDArray[Any]]]:
    """Return the values of a key for each of some selections, as a coroutine of kernels' tasks.

    `wanted` has each selection with the number of its key. A selection of up to `few_rows` tuples needs no task.
    """
    found, tasks = [], []
    for selection, number in wanted:
        rows, run_set = selection.rows, selection.run_set
        if rows is None or len(rows) <= few_rows or run_set.narrow_key(number) is not None:
            found.append(selection.key(number))
            continue
        values = np.empty(len(rows), dtype=run_set.key_dtype(number))
        tasks.append(run_set.keys(number).gathering(selection.places, rows, [values]))
        found.append(values)
    if tasks:
        yield tasks
    return found


def sequence_numbers(selection: Selection) -> npt.NDArray[np.int64]:
    """Return ``_seq`` of each tuple."""
    values: npt.NDArray[np.int64] = selection.column("_seq").to_numpy()
    return values
