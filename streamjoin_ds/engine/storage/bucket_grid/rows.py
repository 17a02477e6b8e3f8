"""Rows of a bucket grid: put in by the cells they belong to, with more room where it runs out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.reference.kernel_objects import RunIndex
from streamjoin_ds.engine.storage.bucket_grid.chunk_columns import PAYLOAD_NUMBER, chunk_columns, key_column_name
from streamjoin_ds.engine.storage.bucket_grid.columns import BucketColumns
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.threads.tasks import TaskCoroutine

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TOO_MANY", "BucketRows"]

_PAGE_BYTES = 4096
TOO_MANY = "a grid has as many rows as can be numbered"


class BucketRows(BucketColumns):
    """What `BucketRun` is filled by; its attributes are described there."""

    uncounted_rows: int
    unsampled_rows: int
    _indexes: dict[tuple[ProbeCondition, ...], RunIndex]

    def given(self, added: SealedRun) -> list[npt.NDArray[Any]]:
        """An array for each of `columns`, of tuples whose payload is taken in."""
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
        """What the cells of rows are made of; an array for each of `columns` is given."""
        names = list(self.columns)
        return [widened(given[names.index(key_column_name(self.form, number))]) for number in self.shape.keys]

    def putting(
        self, given: Sequence[npt.NDArray[Any]], lowest_kept: int, swept_buckets: int = 0, place: int = 0
    ) -> TaskCoroutine[Self]:
        """`adding` of rows from `place` on, an array for each of `columns`; then so many buckets are swept."""
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
        """The same rows with more room."""
        chunk_rows, tuning = self.form.kernels.module.GRID_CHUNK_ROWS, self.form.tuning.grid
        chunks, most = len(next(iter(self.columns.values()))) // chunk_rows, tuning.most_rows // chunk_rows
        if chunks >= most:
            raise MemoryError(TOO_MANY)
        run = copy(self)
        chunks = min(int(chunks * tuning.enlarged_times) + tuning.spare_chunks, most)
        run.columns = chunk_columns(self.form, chunks, self.payload.names)
        run.native = self.native.enlarged(list(run.columns.values()))
        run._indexes = {}  # they are of the columns that were there
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
        """Have the system give a part of the buckets' own chunks, where no row is yet."""
        rows = self.shape.buckets * int(self.form.kernels.module.GRID_CHUNK_ROWS)
        for column in self.columns.values():
            column[rows * part // parts : rows * (part + 1) // parts : _PAGE_BYTES // column.itemsize] = 0
