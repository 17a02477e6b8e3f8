"""Sorts a batch of new tuples with one kernel. All columns must have a fixed width and no nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import is_widened
from streamjoin_ds.engine.arrays.memory import ColumnMemory
from streamjoin_ds.engine.columns import fixed_width
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import BatchColumns, Zone
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.threads.tasks import TaskCoroutine
from streamjoin_ds.spec.key_values import item_dtype

__all__ = ["BatchSealer"]

_Values = npt.NDArray[Any]


class BatchSealer:
    """Sorts the batches of one stream.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the tuples; all columns have a fixed width.
    keys : sequence of (str, numpy.dtype)
        Column and dtype of each key; the dtype is float64 or int64.
    module : module
        The kernels.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[tuple[str, np.dtype[Any]]], module: KernelModule) -> None:
        self._names = schema.names
        self._dtypes = [item_dtype(field.type) for field in schema]
        places = [self._names.index(name) for name, _ in keys]
        self._key_places, self._kinds = places, [kind for _, kind in keys]
        # Keys that are their column's items need no room of their own.
        dtypes = [None if self._dtypes[n] == kind else kind for n, (_, kind) in zip(places, keys, strict=True)]
        self._key_dtypes = dtypes
        self._nullable = tuple(place for place, field in enumerate(schema) if field.nullable)
        self._form = module.SealForm([(n, kind.kind == "f") for n, (_, kind) in zip(places, keys, strict=True)])
        self._row_bytes = sum(dtype.itemsize for dtype in (*self._dtypes, *dtypes) if dtype is not None)

    @classmethod
    def of(
        cls, schema: pa.Schema, keys: Sequence[tuple[str, np.dtype[Any]]], module: KernelModule
    ) -> BatchSealer | None:
        """Return a sealer; None where a column has no fixed width, or kernels cannot make a key of its column."""
        if not all(fixed_width(field.type) for field in schema):
            return None
        for name, dtype in keys:
            kind = schema.field(name).type
            if item_dtype(kind) != dtype and not is_widened(kind):
                return None
        return cls(schema, keys, module)

    def takes(self, arrived: BatchColumns) -> bool:
        """Whether the batch has rows, and no column of it has a null."""
        return arrived.rows > 0 and not arrived.has_null(self._nullable)

    def sealing(
        self, arrived: BatchColumns, grid: SortLayout
    ) -> TaskCoroutine[tuple[Zone, dict[str, _Values], list[_Values]]]:
        """Return the zone map, the columns' items in grid order and the keys, as a coroutine of one kernel's task."""
        rows = arrived.rows
        memory = ColumnMemory(rows * self._row_bytes, len(self._dtypes) + len(self._key_dtypes))
        values = [memory.column(rows, dtype) for dtype in self._dtypes]
        keys = [None if dtype is None else memory.column(rows, dtype) for dtype in self._key_dtypes]
        (zone,) = yield [self._form.sealing(arrived, values, keys, grid.first, grid.second, grid.width)]
        told = zip(keys, self._key_places, self._kinds, strict=True)
        made = [values[place].view(kind) if key is None else key for key, place, kind in told]
        return zone, dict(zip(self._names, values, strict=True)), made
