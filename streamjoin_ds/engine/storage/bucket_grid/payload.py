"""The payload of a bucket grid: columns that have no fixed width, or nulls, in the batches they came in.

::

    grid      row of the grid ──► number ─┐
    begins    [ 0      262144      300000 │     308192 ]            numbers of each batch's first row, ascending
    batches   [ 262144 rows ][ 37856 rows ▼ ][ 8192 rows ]

Rows are numbered as they come, and the grid keeps the numbers. A row's payload is looked at only when a result or a
residual wants it (late materialisation). The list stays short: as soon as there are eight batches of one size or
smaller, they are put together. So a row is copied about as many times as batches have sizes, three or four. Rows that
the grid has dropped are removed when the payload has `PayloadTuning.slack_rows` more than twice the grid's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.columns import byte_column, bytes_of, concatenated, has_bytes, one_batch, taken_of
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import ByteColumn, Int32
from streamjoin_ds.engine.tuning import DEFAULT, PayloadTuning

__all__ = ["Payload"]

# How many batches of like size become one; the sizes are powers of it.
_MERGED = 8


class Payload:
    """Rows of some columns, numbered from 0 in the order they came in.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of these columns; there may be none.
    kernels : Kernels
    tuning : PayloadTuning, keyword-only

    Attributes
    ----------
    names : frozenset of str
        Of these columns.
    """

    __slots__ = ("_kernels", "_numbered", "_tuning", "_whole_size", "names", "schema")

    def __init__(
        self,
        schema: pa.Schema,
        kernels: Kernels,
        batches: Sequence[_Batch] = (),
        *,
        tuning: PayloadTuning = DEFAULT.payload,
    ) -> None:
        self.schema, self._kernels, self._tuning = schema, kernels, tuning
        self._whole_size = _rows_size(tuning.whole_rows, tuning.least_rows)
        self.names = frozenset(schema.names)
        self._numbered = _Numbered(batches)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def rows(self) -> int:
        """The number of rows, dead ones among them, and so the number that the next row gets."""
        return self._numbered.rows

    @property
    def _batches(self) -> Sequence[_Batch]:
        return self._numbered.batches

    @property
    def _begins(self) -> Int32:
        return self._numbered.begins

    def append(self, tuples: pa.RecordBatch) -> Int32:
        """Take in the payload's columns of tuples, and return the numbers of their rows.

        Parameters
        ----------
        tuples : pyarrow.RecordBatch
            It has the payload's columns, with nulls or without, and any others.

        Returns
        -------
        ndarray, shape (rows,), int32
        """
        numbers = np.arange(self.rows, self.rows + tuples.num_rows, dtype=np.int32)
        if tuples.num_rows:
            columns = [_own(tuples.column(name), self._tuning.slack_bytes) for name in self.schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            # One assignment, so that an exception from outside leaves no batches without numbers.
            self._numbered = _Numbered(self._with(self._batches, batch))
        return numbers

    def take(self, name: str, numbers: Int32) -> pa.Array:
        """Return a column's values of the rows with these numbers."""
        kind = self.schema.field(name).type
        if not self._batches:
            return pa.array([], kind)
        places, rows = self.located(numbers)
        if has_bytes(kind):
            return bytes_of(self.byte_columns(name), places, rows, kind, self._kernels)
        columns = [batch.tuples.column(name) for batch in self._batches]
        return taken_of(len(columns), places, lambda place, at: columns[place].take(pa.array(rows[at])), self._kernels)

    def located(self, numbers: Int32) -> tuple[Int32, Int32]:
        """Return, for each row with one of these numbers, its batch and its row in that batch."""
        places = np.searchsorted(self._begins, numbers, "right").astype(np.int32) - np.int32(1)
        return places, numbers - self._begins[places]

    def byte_columns(self, name: str) -> list[ByteColumn]:
        """Return a column of strings or binary values, batch by batch, as kernels gather from it."""
        return [batch.byte_column(name, self._kernels) for batch in self._batches]

    def is_loose(self, rows: int) -> bool:
        """Whether the payload has far more rows than the `rows` that are still wanted."""
        return self.rows > 2 * rows + self._tuning.slack_rows

    def thinned(self, numbers: Int32) -> tuple[Payload, Int32]:
        """Return a payload without most rows whose numbers are not given, and the new numbers of those that are.

        Batches whose rows are mostly wanted stay as they are. The others are copied, one after the other.
        """
        wanted = np.zeros(self.rows, dtype=np.bool_)
        wanted[numbers] = True
        kept: list[_Batch] = []
        begin = 0
        for whole in self._batches:
            batch = whole.tuples
            part = wanted[begin : begin + batch.num_rows]
            begin += batch.num_rows
            count = int(np.count_nonzero(part))
            if count >= (1 - self._tuning.dead_share) * len(part):
                part[:] = True
            elif count:
                batch = batch.filter(pa.array(part))
            if count:
                kept = self._with(kept, batch)
        moved = np.cumsum(wanted, dtype=np.int32) - np.int32(1)
        return Payload(self.schema, self._kernels, kept, tuning=self._tuning), np.ascontiguousarray(moved[numbers])

    def _with(self, batches: Sequence[_Batch], batch: pa.RecordBatch) -> list[_Batch]:
        """Return batches with one more at the end; the last ones are put together where eight are of like size."""
        batches = [*batches, self._sized(batch)]
        size = 0
        while size < self._whole_size:
            sizes = [other.size for other in reversed(batches)]
            count = next((n for n, other in enumerate(sizes) if other > size), len(sizes))
            if count < _MERGED:
                size += 1
                continue
            batches[-count:] = [self._sized(one_batch([other.tuples for other in batches[-count:]], self.schema))]
        return batches

    def _sized(self, tuples: pa.RecordBatch) -> _Batch:
        tuning = self._tuning
        if tuples.num_rows >= tuning.whole_rows or tuples.nbytes >= tuning.whole_bytes:
            return _Batch(tuples, self._whole_size)
        return _Batch(tuples, _rows_size(tuples.num_rows, tuning.least_rows))


class _Numbered:
    """Batches, and the number of each one's first row."""

    __slots__ = ("batches", "begins", "rows")

    def __init__(self, batches: Sequence[_Batch]) -> None:
        self.batches = batches
        begins = np.cumsum([0, *[batch.tuples.num_rows for batch in batches]])
        self.begins: Int32 = begins.astype(np.int32)
        self.rows = int(begins[-1])


class _Batch:
    """Some rows, the size that they count as, and their strings as kernels read them."""

    __slots__ = ("_byte_columns", "size", "tuples")

    def __init__(self, tuples: pa.RecordBatch, size: int) -> None:
        self.tuples, self.size = tuples, size
        self._byte_columns: dict[str, ByteColumn] = {}

    def byte_column(self, name: str, kernels: Kernels) -> ByteColumn:
        found = self._byte_columns.get(name)
        if found is None:
            found = self._byte_columns[name] = byte_column(self.tuples.column(name), kernels)
        return found


def _rows_size(rows: int, least_rows: int) -> int:
    """Return the size that a batch counts as: 0, 1, 2 and so on, each for eight times as many rows."""
    return (max(1, rows // least_rows).bit_length() + 1) // 3


def _own(column: pa.Array, slack_bytes: int) -> pa.Array:
    """Return the column, or a copy where it keeps much more in memory than its values, as a slice of a large one."""
    if column.get_total_buffer_size() <= 2 * column.nbytes + slack_bytes:
        return column
    return concatenated([column, column.slice(0, 0)])
