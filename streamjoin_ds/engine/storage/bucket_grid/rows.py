"""The rows of a bucket grid: their columns in chunks or in the payload, and how rows are put in by their grid cells.

::

    run_schema    _ts int64   x float32   k decimal128   name string   note int32 with a null
                     |           |             |              └─────────────┴──► payload
    chunks          _ts          x          k, =<key>                            =payload: each row's number there

Where room runs out, more is made. The two classes are the parts of `BucketRun` that read columns and take rows in.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import ColumnMemory, array_of, fixed_width, is_stored, widened
from streamjoin_ds.engine.kernels.objects import BucketGrid, ByteColumn, RunIndex
from streamjoin_ds.engine.scheduler import TaskCoroutine
from streamjoin_ds.engine.storage.bucket_grid.payload import Payload
from streamjoin_ds.engine.storage.bucket_grid.shape import GridShape
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.run_form import RunForm, Zoned
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.spec.key_values import is_float, item_dtype, key_dtype

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "PAYLOAD_NUMBER",
    "TOO_MANY",
    "BucketColumns",
    "BucketRows",
    "chunk_columns",
    "key_column_name",
    "payload_names",
]

# The column with each row's number in the payload.
PAYLOAD_NUMBER = "=payload"

_KEY_BYTES = 8
_PAGE_BYTES = 4096
TOO_MANY = "a bucket grid already has as many rows as it can number"


def payload_names(form: RunForm, tuples: pa.RecordBatch) -> frozenset[str]:
    """Return the columns of these tuples that go to the payload: those that have no fixed width, or have nulls.

    The values of keys are never among them, nor are the tuples' numbers.
    """
    columns = zip(form.run_schema, tuples.columns, strict=True)
    return frozenset([field.name for field, column in columns if not fixed_width(field.type) or column.null_count])


def chunk_columns(form: RunForm, chunks: int, payload: frozenset[str]) -> dict[str, npt.NDArray[Any]]:
    """Return uninitialised columns for so many chunks, and their names.

    They are the form's own columns that are not in the payload, then keys that are none of these, then, where there is
    a payload, the rows' numbers in it.
    """
    rows = chunks * int(form.kernels.module.GRID_CHUNK_ROWS)
    own = [field for field in form.run_schema if field.name not in payload]
    dtypes: dict[str, np.dtype[Any]] = {field.name: item_dtype(field.type) for field in own}
    for number, key in enumerate(form.keys):
        name = key_column_name(form, number)
        if name.startswith("="):
            dtypes[name] = key_dtype(key.kind)
        elif is_float(key.kind):
            dtypes[name] = np.dtype(np.float64 if pa.types.is_float64(form.run_schema.field(name).type) else np.float32)
    if payload:
        dtypes[PAYLOAD_NUMBER] = np.dtype(np.int32)
    memory = ColumnMemory(rows * sum(dtype.itemsize for dtype in dtypes.values()), len(dtypes), is_sparse=True)
    return {name: memory.column(rows, dtype) for name, dtype in dtypes.items()}


def key_column_name(form: RunForm, number: int) -> str:
    """Return the column whose items, of the key's kind in 4 or 8 bytes, are its values; ``=<number>`` if none is."""
    key = form.keys[number]
    name = f"_key_{number}" if is_stored(key.kind) else form.columns[number]
    kind, types = form.run_schema.field(name).type, pa.types
    floats = types.is_float64(kind) or types.is_float32(kind)
    ints = types.is_int64(kind) or types.is_int32(kind) or types.is_timestamp(kind) or types.is_date32(kind)
    return name if (floats if is_float(key.kind) else ints) else f"={number}"


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
