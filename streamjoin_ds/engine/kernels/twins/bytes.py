"""Strings and binary values in Arrow's form: hashed, and gathered from several columns at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bytes, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, index, own, refuse

__all__ = ["ByteColumn", "gather_bytes"]


_INT32, _BYTES = np.dtype(np.int32), np.dtype(np.uint8)
_MAX_BYTES = (1 << 31) - 1


class ByteColumn:
    """A column of strings or binary values; it is checked once, and then gathered from.

    Parameters
    ----------
    offsets : ndarray, shape (rows + 1,), int32
        Where each value begins in `data`, and the end of the last; ascending, the first may be above 0.
    data : ndarray, shape (size,), uint8
    valid : ndarray of uint8, optional
        One bit for each row, the lowest bit of a byte first; 0: the value is null. None: no value is null.
    valid_from : int
        Number of the first row's bit.

    Raises
    ------
    KernelError
        Offsets that descend or lead outside `data`; too few bits.
    """

    def __init__(self, offsets: Int32, data: Bytes, valid: Bytes | None = None, valid_from: int = 0) -> None:
        check_array(offsets, "offsets", _INT32)
        check_array(data, "data", _BYTES)
        if not len(offsets):
            refuse("offsets has one item more than there are rows", "offsets")
        valid_from = index(valid_from, "valid_from")
        if offsets[0] < 0 or np.any(offsets[1:] < offsets[:-1]) or offsets[-1] > len(data):
            refuse("offsets must ascend, and stay within data", "offsets")
        rows = len(offsets) - 1
        if valid is not None:
            check_array(valid, "valid", _BYTES)
            if valid_from < 0 or valid_from + rows > 8 * len(valid):
                refuse("valid has a bit for each row, from valid_from on", "valid")
        self._offsets, self._data = offsets, data
        bits = None if valid is None else np.unpackbits(valid, bitorder="little")[valid_from : valid_from + rows]
        self._is_valid = np.ones(rows, dtype=np.bool_) if bits is None else bits.astype(np.bool_)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def value(self, row: int) -> bytes | None:
        """Return one value; None: it is null."""
        return self._bytes(row) if self._is_valid[row] else None

    def _bytes(self, row: int) -> bytes:
        return self._data[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def hashes(self) -> Int64:
        """Return the XXH3 hash of each value, as int64. A null has the hash of the bytes that stand in its place."""
        digests = [xxhash.xxh3_64_intdigest(self._bytes(row)) for row in range(len(self))]
        return np.array(digests, dtype=np.uint64).view(np.int64)


def gather_bytes(
    columns: Sequence[objects.ByteColumn], column_numbers: Int32 | int, rows: Int32
) -> tuple[Int32, Bytes, Bytes | None, int]:
    """Copy the values ``columns[column_numbers[i]][rows[i]]`` to one column. Nulls stay null, and have no bytes.

    Parameters
    ----------
    columns : sequence of ByteColumn
    column_numbers : ndarray, shape (n,), int32, or int
        Number of each value's column; an int: the column of all values.
    rows : ndarray, shape (n,), int32

    Returns
    -------
    offsets, data, valid, null_count : ndarray, ndarray, ndarray or None, int
        As `ByteColumn` takes them, with 0 as the first offset and `valid_from`. Without a null `valid` is None.

    Raises
    ------
    KernelError
        Rows or column_numbers that do not exist; values of 2 GiB or more in all, which one column cannot hold.
    """
    mine = [own(column, ByteColumn, "columns") for column in columns]
    check_array(rows, "rows", _INT32)
    if isinstance(column_numbers, int):
        column_numbers = np.full(len(rows), index(column_numbers, "column_numbers"))
    else:
        check_array(column_numbers, "column_numbers", _INT32)
        if len(column_numbers) != len(rows):
            refuse("column_numbers and rows differ in length", "column_numbers")
    values: list[bytes | None] = []
    for column_number, row in zip(column_numbers.tolist(), rows.tolist(), strict=True):
        if not (0 <= column_number < len(mine) and 0 <= row < len(mine[column_number])):
            refuse("rows or column_numbers point outside the columns", "rows")
        values.append(mine[column_number].value(row))
    ends = np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int64)
    if ends[-1] > _MAX_BYTES:
        refuse("the values are too long for one column", "rows", hint="fewer rows at a time")
    nulls = sum(value is None for value in values)
    bits = np.packbits([value is not None for value in values], bitorder="little") if nulls else None
    data = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8).copy()
    return ends.astype(np.int32), data, bits, nulls
