"""Puts rows into a bucket grid by the grid cells that they belong to, and makes more room where it runs out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.kernels.objects import RunIndex
from streamjoin_ds.engine.storage.bucket_grid.chunk_columns import PAYLOAD_NUMBER, chunk_columns, key_column_name
from streamjoin_ds.engine.storage.bucket_grid.columns import BucketColumns
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.threads.tasks import TaskCoroutine

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TOO_MANY", "BucketRows"]

_PAGE_BYTES = 4096
TOO_MANY = "a bucket grid already has as many rows as it can number"


class BucketRows(BucketColumns):
    """The part of `BucketRun` that takes rows in; the attributes are described there."""

    uncounted_rows: int
    unsampled_rows: int
    _indexes: dict[tuple[ProbeCondition, ...], RunIndex]

    def given(self, added: SealedRun) -> list[npt.NDArray[Any]]:
        """Return an array for each of `columns`, of these tuples, and take in their payload."""
        given = []
        for name, room in self.columns.items():
            if name == PAYLOAD_NUMBER:
                given.append(self.payload.append(added.tuples))
            elif name.startswith("="):
                given.append(added.key(int(name[1:])))
            else:
                values = added.values(name)
                assert values is not None, "columns with nulls are in the payload"
                given.append(values.view(room.dtype))
        return given

    def cell_keys(self, given: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return the keys that make the grid cells of rows; `given` has an array for each of `columns`."""
        names = list(self.columns)
        return [widened(given[names.index(key_column_name(self.form, number))]) for number in self.shape.keys]

    def putting(
        self, given: Sequence[npt.NDArray[Any]], lowest_kept: int, swept_buckets: int = 0, place: int = 0
    ) -> TaskCoroutine[Self]:
        """Put rows in from `place` on, then sweep so many buckets; `given` has an array for each of `columns`.

        It is a coroutine of kernels' tasks, and returns this grid, or one with more room.
        """
        keys = self.cell_keys(given)
        run, begin, rows = self, place, len(given[0])
        while True:
            (place,) = yield [run.native.inserting(given, keys, place, lowest_kept, swept_buckets)]
            if place == rows:
                break
            run = run._enlarged()
        run.uncounted_rows += rows - begin
        run.unsampled_rows += rows - begin
        return run

    def _enlarged(self) -> Self:
        """Return a grid of the same rows with more room; MemoryError where it has all that can be numbered."""
        chunk_rows, tuning = self.form.kernels.module.GRID_CHUNK_ROWS, self.form.tuning.grid
        chunks, most = len(next(iter(self.columns.values()))) // chunk_rows, tuning.most_rows // chunk_rows
        if chunks >= most:
            raise MemoryError(TOO_MANY)
        run = copy(self)
        chunks = min(int(chunks * tuning.enlarged_times) + tuning.spare_chunks, most)
        run.columns = chunk_columns(self.form, chunks, self.payload.names)
        run.native = self.native.enlarged(list(run.columns.values()))
        run._indexes = {}  # the old ones are of the old columns
        return run

    @property
    def size_bytes(self) -> int:
        """Bytes of the buckets' own chunks."""
        rows = self.shape.buckets * int(self.form.kernels.module.GRID_CHUNK_ROWS)
        return rows * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all columns."""
        return sum(column.itemsize for column in self.columns.values())

    def touch(self, part: int, parts: int) -> None:
        """Write to each page of a part of the buckets' own chunks, still empty, so that the system provides it."""
        rows = self.shape.buckets * int(self.form.kernels.module.GRID_CHUNK_ROWS)
        for column in self.columns.values():
            column[rows * part // parts : rows * (part + 1) // parts : _PAGE_BYTES // column.itemsize] = 0
