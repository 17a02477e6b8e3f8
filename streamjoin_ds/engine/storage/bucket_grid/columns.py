"""The columns of a bucket grid's rows, wherever they lie: in chunks, or in the payload beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import widened
from streamjoin_ds.engine.columns import array_of
from streamjoin_ds.engine.kernels.objects import BucketGrid, ByteColumn
from streamjoin_ds.engine.storage.bucket_grid.chunk_columns import PAYLOAD_NUMBER, key_column_name
from streamjoin_ds.engine.storage.bucket_grid.payload import Payload
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape
from streamjoin_ds.engine.storage.zoned import Zoned
from streamjoin_ds.spec.key_values import item_dtype

__all__ = ["BucketColumns"]

_KEY_BYTES = 8


class BucketColumns(Zoned):
    """The part of `BucketRun` that reads columns; the attributes are described there."""

    shape: GridShape
    native: BucketGrid
    columns: dict[str, npt.NDArray[Any]]
    payload: Payload
    built_rows: int

    @property
    def rows(self) -> int:
        """The number of tuples; dead ones that were not dropped yet are among them."""
        rows: int = self.native.rows
        return rows

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``, bucket by bucket; made anew at every call."""
        return self.batch_of(self.native.row_numbers())

    def batch_of(self, rows: npt.NDArray[np.int32]) -> pa.RecordBatch:
        """Return some rows of the grid as a batch, in the order given."""
        schema = self.form.run_schema
        return pa.RecordBatch.from_arrays([self.taken(name, rows) for name in schema.names], schema=schema)

    def taken(self, name: str, rows: npt.NDArray[np.int32]) -> pa.Array:
        """Return a column of some rows."""
        module = self.form.kernels.module
        if name in self.payload.names:
            return self.payload.take(name, module.gather(self.columns[PAYLOAD_NUMBER], rows))
        return array_of(module.gather(self._items(name), rows), self.form.kinds[name])

    def located(self, rows: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return where in the payload some rows are: the numbers of their batches, and their rows there."""
        return self.payload.located(self.form.kernels.module.gather(self.columns[PAYLOAD_NUMBER], rows))

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """Return the items of a column, free room included; None where the column is in the payload."""
        return None if name in self.payload.names else self._items(name)

    def _items(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name].view(item_dtype(self.form.kinds[name]))

    def column(self, name: str) -> pa.Array:
        """See `Run`."""
        return self.taken(name, self.native.row_numbers())

    def byte_parts(self, name: str) -> list[ByteColumn]:
        """See `Run`: the payload's batches."""
        return self.payload.byte_columns(name)

    def room_key(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key, free room included."""
        return widened(self.narrow_room(number))

    key = room_key

    def narrow_key(self, number: int) -> tuple[str, np.dtype[Any]] | None:
        """Return the column that holds a key's values in 4 bytes each, and its dtype; None where they have 8 bytes."""
        name = key_column_name(self.form, number)
        dtype = self.columns[name].dtype
        return None if dtype.itemsize == _KEY_BYTES else (name, dtype)

    def narrow_room(self, number: int) -> npt.NDArray[Any]:
        """Return the values of a key as the grid keeps them, in 4 or 8 bytes each, free room included."""
        return self.columns[key_column_name(self.form, number)]
