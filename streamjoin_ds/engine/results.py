"""Result rows: what of each stream's tuples they carry, gathered from the runs in one call a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, empty_items, item_values
from streamjoin_ds.engine.keys import key_column
from streamjoin_ds.engine.picks import Picks
from streamjoin_ds.spec.bound import SEQ, TS, BoundJoin

__all__ = ["Results"]

_MOMENTS = pa.timestamp("us", tz="UTC")
# Fewer are gathered sooner than a thread is woken.
_MIN_SPLIT_ROWS = 16_384

SideBySide = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class Results:
    """The form of the results of one join.

    Attributes
    ----------
    schema : pyarrow.Schema
        That of the table of matches, but for ``batch_id``.
    """

    def __init__(self, bound: BoundJoin) -> None:
        self.schema = pa.schema([field for field in bound.result_schema if field.name != "batch_id"])
        names = [[TS, SEQ] for _ in bound.names]
        self._placed = []
        for column in bound.result:
            wanted = names[column.stream]
            inside = key_column(bound, column.stream, column.column)
            if inside not in wanted:
                wanted.append(inside)
            self._placed.append((column.stream, wanted.index(inside)))
        self._placed += [(stream, 1) for stream in range(len(names))]
        self._gathered = [tuple(wanted) for wanted in names]

    def table(
        self, block: Mapping[int, Picks], side_by_side: SideBySide, window_ids: npt.NDArray[np.int64] | None = None
    ) -> pa.Table:
        """The results that a block of partial results over all streams is.

        Parameters
        ----------
        side_by_side : callable
            Maps a function over the streams, on several threads where there are.
        window_ids : ndarray, shape (n,), int64, optional
            The window each result was found in, where windows are periodic.
        """
        streams = range(len(self._gathered))

        def columns_of(stream: int) -> list[pa.Array]:
            return block[stream].columns(self._gathered[stream])

        many = len(block[0]) >= _MIN_SPLIT_ROWS
        arrays = side_by_side(columns_of, streams) if many else [columns_of(stream) for stream in streams]
        times_us = [item_values(columns[0]) for columns in arrays]
        columns = [
            arrays[stream][place] if place else array_of(times_us[stream], _MOMENTS) for stream, place in self._placed
        ]
        if window_ids is not None:
            columns.append(array_of(window_ids, pa.int64()))
        latest_us = np.maximum(times_us[0], times_us[1], out=empty_items(len(times_us[0]), times_us[0].dtype))
        for other in times_us[2:]:
            np.maximum(latest_us, other, out=latest_us)
        columns.append(array_of(latest_us, _MOMENTS))
        return pa.Table.from_arrays(columns, schema=self.schema)
