"""Which tuples of one stream: rows of its runs; partial results hold one selection for each stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.columns import array_of, empty_items, has_bytes, item_dtype, taken_of
from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.reference.kernel_objects import RunColumns
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.threads.tasks import TaskCoroutine

__all__ = ["Selection", "keys_of", "taken"]

Int32 = npt.NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Selection:
    """Some tuples of one stream; never changed (frozen would cost a push of one tuple a microsecond each).

    Attributes
    ----------
    run_set : RunSet
        The runs they are in.
    rows : ndarray, shape (count,), int32, or None
        Row within its run; None: `count` rows of one run from `begin` on.
    places : ndarray, shape (count,), int32, or int
        Number of its run; a number: all are of that run.
    begin, count : int
        Only where there are no `rows`.
    pieced : dict of str to pyarrow.Array, optional
        Columns that Arrow made already: what a decision looked at is mostly wanted in the result, too.
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
        """All tuples of a run, in order."""
        return cls(RunSet((run,)), count=run.rows)

    def take(self, positions: Int32) -> Selection:
        """Those selection that stand at these positions."""
        if self.rows is None:
            rows = positions + self.begin if self.begin else positions
            return Selection(self.run_set, rows, self.places)
        gather = self.run_set.module.gather
        places = self.places if isinstance(self.places, int) else gather(self.places, positions)
        return Selection(self.run_set, gather(self.rows, positions), places)

    def part(self, begin: int, end: int) -> Selection:
        """Those that stand from `begin` to before `end`."""
        if self.rows is None:
            return Selection(self.run_set, None, self.places, self.begin + begin, end - begin)
        places = self.places if isinstance(self.places, int) else self.places[begin:end]
        return Selection(self.run_set, self.rows[begin:end], places)

    def key(self, number: int) -> npt.NDArray[Any]:
        """A key of each tuple."""
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
        """A column of the inside form for each tuple."""
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
        """A part of `Rows`: columns that are `RunSet.plain`, of the selection from `begin` to before `end`."""
        rows, places = self.rows, self.places
        if rows is None:
            rows = np.arange(self.begin + begin, self.begin + end, dtype=np.int32)
        elif end - begin < len(rows):
            rows = rows[begin:end]
            places = places if isinstance(places, int) else places[begin:end]
        return self.run_set.columns(names), places, rows

    def _pieced(self, name: str) -> pa.Array:
        """A column that Arrow must take: of no fixed width, or with nulls."""
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
        """Event time of each tuple."""
        return self.key(0)


def taken(block: Mapping[int, Selection], positions: Int32, few_rows: int) -> TaskCoroutine[dict[int, Selection]]:
    """Those of each stream's selection that stand at these positions, step by step; so few at once."""
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
    """A key of each tuple of some selections, given with the key's number, step by step; those of so few at once."""
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
    """``_seq`` of each tuple."""
    values: npt.NDArray[np.int64] = selection.column("_seq").to_numpy()
    return values
