"""A batch of rows put in grid order by one task."""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bound, Column
from streamjoin_ds.engine.kernels.twins.arguments import check_array, check_column, index, own, refuse
from streamjoin_ds.engine.kernels.twins.arrow_rows import BatchColumns, column_items, widened_items
from streamjoin_ds.engine.kernels.twins.grid import grid_buckets, grid_order
from streamjoin_ds.engine.kernels.twins.threads import Task

__all__ = ["SealForm"]


class SealForm:
    """The columns of a batch that are its keys.

    Parameters
    ----------
    keys : sequence of (int, bool)
        For each key the number of its column, and whether the key is float64 (else int64). Items are widened to it:
        integers and moments to either type, floats to float64.
    """

    def __init__(self, keys: Sequence[tuple[int, bool]]) -> None:
        self.keys = tuple((index(place, "keys"), bool(is_float)) for place, is_float in keys)

    def sealing(
        self,
        batch: objects.BatchColumns,
        values: Sequence[Column],
        keys: Sequence[Column | None],
        first: int,
        second: int,
        width: Bound,
    ) -> Task[objects.Zone]:
        """Return a task that writes a batch's rows in grid order, and returns the smallest and largest of each key.

        Parameters
        ----------
        batch : BatchColumns
            It has at least one row, no null, and no NaN in a key.
        values : sequence of ndarray
            Room for each column's items, as long as the batch.
        keys : sequence of ndarray, float64 or int64, or None
            Room for each key's values, where they are wanted beside the columns; else None.
        first, second : int
            Numbers of keys. Rows are sorted by the bucket ``floor(first / width)``, then by the second key. With
            `first` -1 they are sorted by the second key alone.
        width : float or int

        Returns
        -------
        Task
            It returns a tuple of (smallest, largest), one for each key. A zero has no sign.
        """
        mine = own(batch, BatchColumns, "batch")
        if len(values) != mine.batch.num_columns or len(keys) != len(self.keys):
            refuse("there must be an array for each column and each key", "values")
        if not -1 <= index(first, "first") < len(self.keys) or not 0 <= index(second, "second") < len(self.keys):
            refuse("first and second must be numbers of keys; first may be -1", "second")
        if not mine.rows:
            refuse("the batch is empty, or has more rows than int32 can number", "batch")
        for name, arrays in (("values", values), ("keys", [array for array in keys if array is not None])):
            for array in arrays:
                check_array(array, name, array.dtype, writeable=True)
                if len(array) != mine.rows:
                    refuse("the arrays are not as long as the batch", name)
        for room, (place, is_float) in zip(keys, self.keys, strict=True):
            if not 0 <= place < len(values):
                refuse("a key is not the number of a column", "keys")
            if room is not None:
                check_column(room, "keys")
                if (room.dtype.kind == "f") != is_float:
                    refuse("a key is of another type", "keys")

        def sealed() -> objects.Zone:
            made = [widened_items(mine.column(place), is_float=is_float) for place, is_float in self.keys]
            buckets = None if first < 0 else grid_buckets(made[first], width, 0.0 if self.keys[first][1] else 0)
            order = grid_order(buckets, made[second])
            for place, items in enumerate(values):
                items[:] = column_items(mine.column(place), items.dtype)[order]
            for room, items in zip(keys, made, strict=True):
                if room is not None:
                    room[:] = items[order]
            return tuple((items.min().item() + 0, items.max().item() + 0) for items in made)

        return Task(sealed)
