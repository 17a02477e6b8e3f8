"""Result rows: what of each stream's tuples they carry, gathered from the runs and handed to Arrow in one piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import array_of, item_dtype
from streamjoin_ds.engine.keys import key_column
from streamjoin_ds.engine.picks import Picks
from streamjoin_ds.spec.bound import SEQ, TS, BoundJoin

__all__ = ["Results"]

# Gathered by one thread at a time; fewer are gathered sooner than another is woken.
_PIECE_ROWS = 16_384

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
            self._placed.append((column.stream, inside))
        self._placed += [(stream, SEQ) for stream in range(len(names))]
        self._gathered = [tuple(wanted) for wanted in names]
        self._kernel_parts: dict[tuple[tuple[str, ...], ...], _KernelPart] = {}

    def table(
        self,
        block: Mapping[int, Picks],
        side_by_side: SideBySide | None,
        window_ids: npt.NDArray[np.int64] | None = None,
    ) -> pa.Table:
        """The results that a block of partial results over all streams is.

        Parameters
        ----------
        side_by_side : callable or None
            Maps a function over pieces of the work, on several threads. None: this one does it all, and lets go of the
            GIL as seldom as it can.
        window_ids : ndarray, shape (n,), int64, optional
            The window each result was found in, where windows are periodic.
        """
        count = len(block[0])
        plain = tuple([block[stream].stack.plain(names) for stream, names in enumerate(self._gathered)])
        part = self._kernel_parts.get(plain)
        if part is None:
            part = self._kernel_parts[plain] = _KernelPart(self, plain, block)
        rows = part.rows(count)

        if side_by_side is None or count <= _PIECE_ROWS:
            for stream, names in enumerate(plain):
                block[stream].gather_into(rows, stream, names, 0, count)
        else:

            def gather(piece: tuple[int, int]) -> None:
                stream, begin = piece
                block[stream].gather_into(rows, stream, plain[stream], begin, min(begin + _PIECE_ROWS, count))

            side_by_side(gather, [(n, begin) for begin in range(0, count, _PIECE_ROWS) for n in range(len(plain))])
        batch = part.batch(rows)
        if part.is_whole and window_ids is None:
            return pa.Table.from_batches([batch])
        made = dict(zip(part.places, batch.columns, strict=True))
        for place, (stream, name) in enumerate(self._placed):
            if place not in made:
                made[place] = block[stream].column(name)
        if window_ids is not None:
            made[len(self._placed)] = array_of(window_ids, pa.int64())
        return pa.Table.from_arrays([made[place] for place in range(len(self.schema))], schema=self.schema)


class _KernelPart:
    """Those result columns that kernels can gather: of fixed width and without nulls, and the event time."""

    def __init__(self, results: Results, plain: Sequence[tuple[str, ...]], block: Mapping[int, Picks]) -> None:
        stacks = [block[stream].stack for stream in range(len(plain))]
        widths = [
            [item_dtype(stack.kinds[name]).itemsize for name in names]
            for stack, names in zip(stacks, plain, strict=True)
        ]
        numbers: dict[tuple[int, str], int] = {}
        for stream, names in enumerate(plain):
            numbers |= {(stream, name): len(numbers) + place for place, name in enumerate(names)}
        found = {place: numbers[inside] for place, inside in enumerate(results._placed) if inside in numbers}
        found[len(results.schema) - 1] = len(numbers)
        module = stacks[0].module
        self._module, self._form = module, module.RowsForm(widths, list(found.values()), greatest=True)
        self._schema = pa.schema([results.schema.field(place) for place in found])
        self.places = list(found)
        self.is_whole = len(found) == len(results.schema)

    def rows(self, count: int) -> Any:
        """Room for so many results."""
        return self._module.Rows(self._form, count)

    def batch(self, rows: Any) -> pa.RecordBatch:
        """The results' columns of `places`, filled."""
        return pa.RecordBatch._import_from_c(rows.exported(), self._schema)
