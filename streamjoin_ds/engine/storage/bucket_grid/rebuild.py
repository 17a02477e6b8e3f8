"""A bucket grid that is being made anew: its rows are copied to a grid of another shape, some at each push.

::

    in use    buckets  0  1  2  3  4 │ 5  6  7  8  9       probed, and given all that comes
                       └─────┬──────┘ place
    to be     the rows of these, and what has come to them since

No push is held up by it, however large the window (PIM-Tree, section 4.2, asks that of merges). When all buckets are
copied the new grid takes the place of the old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import INT64_MIN
from streamjoin_ds.engine.storage.bucket_grid.shape import MAX_ROWS, BucketShape
from streamjoin_ds.engine.storage.layout import NO_GRID
from streamjoin_ds.engine.storage.run import Run
from streamjoin_ds.engine.threads.tasks import Steps, alone

if TYPE_CHECKING:
    from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun

__all__ = ["BucketMove"]

# Copied at a time: in cache, and little beside the grids.
_MOVED_ROWS = 1 << 14
# Of the new grid's memory, which the system clears when it is first touched: that much a push, a few milliseconds in a
# virtual machine.
_TOUCHED_BYTES = 1 << 21


class BucketMove:
    """Rows of a grid on their way to another.

    Parameters
    ----------
    to : BucketRun
        The grid to be, with the same payload.
    place : int, optional
        The buckets of the grid in use before this one are copied. Below 0: so many parts of the new grid's memory are
        to be had from the system first.
    """

    def __init__(self, to: BucketRun, place: int | None = None) -> None:
        self.to, self.place = to, -_parts(to) if place is None else place

    def following(self, run: BucketRun, given: Sequence[npt.NDArray[Any]], lowest_kept: int) -> Steps[None]:
        """Take those of the rows that came to `run`, an array for each of its columns, whose buckets are copied."""
        if self.place <= 0:
            return
        buckets = run.native.bucket_numbers(run.cell_keys(given))
        rows = np.flatnonzero(buckets < self.place).astype(np.int32)
        if len(rows):
            gather = run.form.kernels.module.gather
            self.to = yield from self.to.putting([gather(values, rows) for values in given], lowest_kept)

    def advancing(self, run: BucketRun, rows: int, lowest_kept: int) -> Steps[BucketRun]:
        """Copy living rows of the next buckets of `run`, which have about so many; the grid that is then to be used."""
        if self.place < 0:
            # Touch at least as much memory as the new rows will need, so that the rebuild keeps up with a large push.
            parts, count = _parts(self.to), max(1, rows * self.to.row_bytes // _TOUCHED_BYTES)
            for part in range(self.place + parts, min(self.place + count, 0) + parts):
                self.to.touch(part, parts)
            self.place = min(self.place + count, 0)
            return run
        buckets, module = run.shape.buckets, run.form.kernels.module
        end = min(buckets, self.place + max(1, rows * buckets // max(run.rows, 1)))
        step = max(1, _MOVED_ROWS * buckets // max(run.rows, 1))
        while self.place < end:
            stop = min(self.place + step, end)
            moved = run.native.row_numbers(self.place, stop)
            if lowest_kept > INT64_MIN:
                moved = moved[module.gather(run.key_room(run.form.position_key), moved) >= lowest_kept]
            if len(moved):
                columns = [module.gather(room, moved) for room in run.columns.values()]
                self.to = yield from self.to.putting(columns, lowest_kept)
            self.place = stop
        return run if self.place < buckets else run.replaced(self.to)

    def describe(self) -> str:
        """In words, for `explain`."""
        return f"being made anew in {self.to.shape.buckets}, {self.to.rows} rows are there"

    def to_facts(self) -> dict[str, Any]:
        """What is not in its rows, as plain JSON values."""
        facts = {"place": self.place, "rows": self.to.rows, "built_rows": self.to.built_rows}
        return {**self.to.shape.to_facts(), **facts}

    @classmethod
    def restored(cls, run: BucketRun, facts: Mapping[str, Any], tuples: pa.RecordBatch) -> BucketMove:
        """What `to_facts` told of, of the rows that were copied; KeyError, TypeError, ValueError where it did not."""
        shape, place, built_rows = BucketShape.from_facts(facts), facts["place"], facts["built_rows"]
        is_told = type(place) is int and type(built_rows) is int and facts["rows"] == tuples.num_rows
        is_known = is_told and max(shape.keys) < len(run.form.keys)
        if not (is_known and place < run.shape.buckets and 0 <= built_rows <= MAX_ROWS):
            msg = "the saved facts of a rebuild are malformed"
            raise ValueError(msg)
        to = run.empty(run.form, shape, built_rows, run.zone, run.payload)
        if place < -_parts(to):
            msg = "a saved rebuild says that more memory is left to touch than the grid has"
            raise ValueError(msg)
        copied = Run(run.form, tuples, NO_GRID, run.zone)
        return cls(alone(to.putting(run.given(copied), INT64_MIN)), place)


def _parts(to: BucketRun) -> int:
    """Return the number of steps in which a new grid's memory is touched."""
    return -(-to.size_bytes // _TOUCHED_BYTES)
