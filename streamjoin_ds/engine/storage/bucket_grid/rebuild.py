"""The rebuild of a bucket grid: its rows are copied to a grid of another shape, some at each push.

::

    in use    buckets  0  1  2  3  4 │ 5  6  7  8  9       probed, and given all that comes
                       └─────┬──────┘ place
    to be     the rows of these, and what has come to them since

So no push is held up, however large the window (PIM-Tree, section 4.2, asks that of merges). When all buckets are
copied, the new grid takes the place of the old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.scheduler import TaskCoroutine, run_alone
from streamjoin_ds.engine.storage.bucket_grid.rows import BucketRows
from streamjoin_ds.engine.storage.bucket_grid.shape import MAX_GRID_ROWS, GridShape
from streamjoin_ds.spec.columns import INT64_MIN

__all__ = ["GridRebuild", "rebuild_facts"]

_Grid = TypeVar("_Grid", bound=BucketRows)


class GridRebuild(Generic[_Grid]):
    """A rebuild that is under way.

    Parameters
    ----------
    to : BucketRows
        The new grid, with the same payload as the grid in use.
    place : int, optional
        The buckets of the grid in use before this one are copied. Below 0: so many parts of the new grid's memory must
        be touched first. None: all parts.
    """

    def __init__(self, to: _Grid, place: int | None = None) -> None:
        self.to, self.place = to, -_parts(to) if place is None else place

    def following(self, run: BucketRows, given: Sequence[npt.NDArray[Any]], lowest_kept: int) -> TaskCoroutine[None]:
        """Take in those rows whose buckets in `run`, the grid in use, are copied already.

        `given` has an array for each column of `run`, of all rows that came to it.
        """
        if self.place <= 0:
            return
        buckets = run.native.bucket_numbers(run.cell_keys(given))
        rows = np.flatnonzero(buckets < self.place).astype(np.int32)
        if len(rows):
            gather = run.form.kernels.module.gather
            self.to = yield from self.to.putting([gather(values, rows) for values in given], lowest_kept)

    def advancing(self, run: BucketRows, rows: int, lowest_kept: int) -> TaskCoroutine[bool]:
        """Copy the live rows of the next buckets of `run`, about `rows` rows; return whether all buckets are copied."""
        tuning = run.form.tuning.rebuild
        if self.place < 0:
            # Touch at least as much memory as the new rows will need, so that the rebuild keeps up with a large push.
            parts, count = _parts(self.to), max(1, rows * self.to.row_bytes // tuning.touched_bytes)
            for part in range(self.place + parts, min(self.place + count, 0) + parts):
                self.to.touch(part, parts)
            self.place = min(self.place + count, 0)
            return False
        buckets, module = run.shape.buckets, run.form.kernels.module
        end = min(buckets, self.place + max(1, rows * buckets // max(run.rows, 1)))
        step = max(1, tuning.moved_rows * buckets // max(run.rows, 1))
        while self.place < end:
            stop = min(self.place + step, end)
            moved = run.native.row_numbers(self.place, stop)
            if lowest_kept > INT64_MIN:
                moved = moved[module.gather(run.narrow_room(run.form.position_key), moved) >= lowest_kept]
            if len(moved):
                columns = [module.gather(room, moved) for room in run.columns.values()]
                self.to = yield from self.to.putting(columns, lowest_kept)
            self.place = stop
        return self.place == buckets

    def describe(self) -> str:
        """Return the rebuild in words, for `explain`."""
        return f"being rebuilt in {self.to.shape.buckets} buckets, {self.to.rows} rows are copied"

    def to_facts(self) -> dict[str, Any]:
        """Return what is not in the new grid's rows, as plain JSON values."""
        facts = {"place": self.place, "rows": self.to.rows, "built_rows": self.to.built_rows}
        return {**self.to.shape.to_facts(), **facts}

    @classmethod
    def restored(cls, to: _Grid, place: int, given: Sequence[npt.NDArray[Any]]) -> GridRebuild[_Grid]:
        """Return the rebuild that `to_facts` described.

        Parameters
        ----------
        to : BucketRows
            The new grid, still empty.
        place : int
        given : sequence of ndarray
            An array for each column, of the rows that were copied.

        Raises
        ------
        ValueError
            More parts of the new grid's memory are to be touched than there are.
        """
        if place < -_parts(to):
            msg = "more of the new grid is left to touch than it has"
            raise ValueError(msg)
        return cls(run_alone(to.putting(given, INT64_MIN)), place)


def rebuild_facts(facts: Mapping[str, Any], run: BucketRows, rows: int) -> tuple[GridShape, int]:
    """Return the shape and the place that `GridRebuild.to_facts` described.

    Parameters
    ----------
    facts : mapping
    run : BucketRows
        The grid that is in use.
    rows : int
        How many rows were copied.

    Raises
    ------
    KeyError, TypeError, ValueError
        The facts are not those of such a rebuild.
    """
    shape, place, built_rows = GridShape.from_facts(facts), facts["place"], facts["built_rows"]
    is_told = type(place) is int and type(built_rows) is int and facts["rows"] == rows
    is_known = is_told and max(shape.keys) < len(run.form.keys)
    if not (is_known and place < run.shape.buckets and 0 <= built_rows <= MAX_GRID_ROWS):
        msg = "these are not the facts of a rebuild"
        raise ValueError(msg)
    return shape, place


def _parts(to: BucketRows) -> int:
    """Return the number of steps in which a new grid's memory is touched."""
    return -(-to.size_bytes // to.form.tuning.rebuild.touched_bytes)
