"""Columns that are read from Arrow, and rows that are handed to it, by its C data interface.

::

    record batch ──► BatchColumns ──► SealForm: put in grid order by one task
                                 └──► RoomColumns: copied behind the rows of a tail
    runs ──► ArrowRows ──► record batch

Strings and binary values stay in Arrow's form: they are hashed, and gathered from several columns at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Bound, Bytes, Column, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, check_column, index, own, refuse
from streamjoin_ds.engine.kernels.twins.grid import grid_buckets, grid_order
from streamjoin_ds.engine.kernels.twins.run_columns import RunColumns
from streamjoin_ds.engine.kernels.twins.runs import RunsProbe
from streamjoin_ds.engine.kernels.twins.threads import Task

__all__ = [
    "MATCH_SLACK",
    "ArrowRows",
    "BatchColumns",
    "BatchForm",
    "ByteColumn",
    "RoomColumns",
    "RowsForm",
    "SealForm",
    "column_items",
    "gather_bytes",
    "widened_items",
]

MATCH_SLACK = 64  # rows of room that matches leave free

_INT32, _BYTES = np.dtype(np.int32), np.dtype(np.uint8)
_MAX_BYTES = (1 << 31) - 1

_ITEMS: dict[int, Any] = {
    1: pa.int8(),
    2: pa.int16(),
    4: pa.int32(),
    8: pa.int64(),
    16: pa.decimal128(38, 0),
}
_DTYPES: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128}
_ARROW_ARRAY_BYTES = 80


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


class BatchForm:
    """The schema of record batches, examined once for all of them.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema


class BatchColumns:
    """The columns of a record batch, as kernels read them.

    Parameters
    ----------
    form : BatchForm
    batch : pyarrow.RecordBatch
        It has the form's schema; only the metadata may differ.

    Attributes
    ----------
    batch
        The record batch itself.
    rows : int
    """

    def __init__(self, form: objects.BatchForm, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(form.schema):
            refuse("the batch has another schema", "batch")
        self.batch = batch
        self.rows = int(batch.num_rows)

    def has_null(self, column_numbers: tuple[int, ...]) -> bool:
        """Whether any of these columns holds a null."""
        return any(self.column(place).null_count for place in column_numbers)

    def has_nan(self, column_numbers: tuple[int, ...]) -> bool:
        """Whether any of these columns holds a NaN; a NaN that lies under a null may count too."""
        columns = [self.column(place) for place in column_numbers]
        return any(pa.types.is_floating(c.type) and pc.any(pc.is_nan(c)).as_py() for c in columns)

    def column(self, place: int) -> pa.Array:
        """Return one column of the batch."""
        if not 0 <= place < self.batch.num_columns:
            refuse("the batch has no such column", "column_numbers")
        return self.batch.column(place)


class RoomColumns:
    """Columns with room behind their rows: a batch is copied into the room, and its keys are made there.

    Parameters
    ----------
    values : sequence of ndarray or None
        One array for each column of the batches to come, with items of the same width. None: the column is not copied.
    keys : sequence of ndarray, float64 or int64
    sources : sequence of int
        For each key, the number of the column whose items are widened to it: integers and moments (as their integers)
        to either type, floats to float64. -1: the caller has filled the key before a batch is appended, or the key is
        one of `values`.
    """

    def __init__(self, values: Sequence[Column | None], keys: Sequence[Column], sources: Sequence[int]) -> None:
        if len(keys) != len(sources):
            refuse("keys and sources differ in length", "sources")
        rooms = set()
        for name, arrays in (("values", [array for array in values if array is not None]), ("keys", keys)):
            for array in arrays:
                check_array(array, name, array.dtype, writeable=True)
                rooms.add(len(array))
        for array in keys:
            check_column(array, "keys")
        for array in [array for array in values if array is not None]:
            if array.dtype.itemsize not in _ITEMS or array.dtype.hasobject:
                refuse("column items must have 1, 2, 4, 8 or 16 bytes", "values")
        if len(rooms) > 1:
            refuse("the columns differ in length", "values")
        if not all(-1 <= source < len(values) for source in sources):
            refuse("a source is not the number of a column", "sources")
        self._values, self._keys, self._sources = list(values), list(keys), list(sources)
        self._room = rooms.pop() if rooms else 0

    def append(self, batch: objects.BatchColumns, begin: int) -> objects.Zone:
        """Copy a batch's rows to ``begin`` and after.

        Parameters
        ----------
        batch : BatchColumns
            It has at least one row. The item under a null is copied as it is.
        begin : int

        Returns
        -------
        tuple of (smallest, largest)
            For each key, over the new rows alone. No NaN may be among them. A zero has no sign.
        """
        mine = own(batch, BatchColumns, "batch")
        end = begin + mine.rows
        if mine.batch.num_columns != len(self._values):
            refuse("the batch has another number of columns", "batch")
        if not 0 <= begin < end <= self._room:
            refuse("there is no room for the batch, or it is empty", "begin")
        for place, values in enumerate(self._values):
            if values is not None:
                values[begin:end] = column_items(mine.column(place), values.dtype)
        ranges = []
        for keys, source in zip(self._keys, self._sources, strict=True):
            if source >= 0:
                keys[begin:end] = widened_items(mine.column(source), is_float=keys.dtype.kind == "f", name="sources")
            part = keys[begin:end]
            ranges.append((part.min().item() + 0, part.max().item() + 0))
        return tuple(ranges)


class RowsForm:
    """The columns of rows that are gathered from several parts and then handed to Arrow.

    Parameters
    ----------
    parts : sequence of sequence of int
        For each part, the bytes of an item of each of its columns.
    exported : sequence of int
        Numbers of the columns that Arrow is given, in this order. The columns of all parts are numbered through. One
        may be named twice.
    greatest : bool
        Whether there is one more column, the last: in each row the greatest of the parts' first columns, as int64.
    """

    def __init__(self, parts: Sequence[Sequence[int]], exported: Sequence[int], *, greatest: bool = False) -> None:
        self.parts, self.exported, self.greatest = [list(widths) for widths in parts], list(exported), bool(greatest)
        self.firsts = [sum(map(len, self.parts[:number])) for number in range(len(self.parts))]
        if any(width not in _ITEMS for widths in self.parts for width in widths):
            refuse("column items must have 1, 2, 4, 8 or 16 bytes", "parts")
        if greatest and (not self.parts or any(widths[:1] != [8] for widths in self.parts)):
            refuse("the greatest needs items of 8 bytes in each first column", "parts")
        if not all(0 <= number < sum(map(len, self.parts)) + self.greatest for number in self.exported):
            refuse("exported is not the number of a column", "exported")

    @property
    def columns(self) -> int:
        """Number of columns of all parts, the one of the greatest included."""
        return sum(map(len, self.parts)) + self.greatest


class ArrowRows:
    """Rows of a form, gathered some at a time.

    Parameters
    ----------
    form : RowsForm
    count : int
    """

    def __init__(self, form: objects.RowsForm, count: int) -> None:
        if not 0 <= count <= 2**31 - 1:
            refuse("more rows than int32 can number", "count")
        self._form, self._count = own(form, RowsForm, "form"), count
        widths = [width for part in self._form.parts for width in part]
        self._columns = [
            np.zeros(count, dtype=_DTYPES[width]) for width in [*widths, *([8] if self._form.greatest else [])]
        ]
        self._filled = [0] * len(self._columns)
        self._array: Any = None

    def gather(self, parts: Sequence[objects.Part], begin: int = 0) -> None:
        """Fill the rows from `begin` on. Before they are exported, all rows must be filled, each once.

        Parameters
        ----------
        parts : sequence of (columns, column_numbers, rows)
            One for each part, as in `RunColumns.gather`; all have the same number of rows.
        begin : int
        """
        if begin < 0 or len(parts) != len(self._form.parts):
            refuse("the number of parts is not that of the form", "parts")
        mine = [(own(columns, RunColumns, "parts"), column_numbers, rows) for columns, column_numbers, rows in parts]
        count = len(mine[0][2]) if mine else 0
        for (columns, _, rows), widths in zip(mine, self._form.parts, strict=True):
            if columns.item_bytes != widths:
                refuse("the part has columns of other widths", "columns")
            if len(rows) != count or count > self._count - begin:
                refuse("the arrays and the rows differ in number", "rows")
        outs = [column[begin : begin + count] for column in self._columns]
        for (columns, column_numbers, rows), first in zip(mine, self._form.firsts, strict=True):
            columns.gather(column_numbers, rows, outs[first : first + len(columns.item_bytes)])
        if self._form.greatest:
            outs[-1][:] = np.maximum.reduce([outs[first] for first in self._form.firsts])
        self._filled = [filled + count for filled in self._filled]

    def gathering(self, parts: Sequence[objects.Part], begin: int = 0) -> Task[None]:
        """`gather` as a task for a pool."""
        return Task(partial(self.gather, parts, begin))

    def matching(
        self, probing: objects.RunsProbe, part: int, window: objects.RunColumns, own_part: objects.Part
    ) -> Task[int]:
        """Return a task in which a probing writes the rows of its next matches; the task's result is their number.

        The rows are then all rows that there are. They are those of `probing.fill`, in its order, and come without a
        list of pairs. There are `MATCH_SLACK` fewer than there was room for, at most: whole registers are stored.

        Parameters
        ----------
        probing : RunsProbe
        part : int
            Which of the form's two parts has the columns of the probing's window. The form has the greatest, too.
        window : RunColumns
            Of the runs that are probed.
        own_part : (columns, run_numbers, rows)
            The probes' columns, and where each probe lies, as in `gather`.
        """
        mine, columns = own(probing, RunsProbe, "probing"), own(window, RunColumns, "window")
        if len(self._form.parts) != 2 or not self._form.greatest or not 0 <= index(part, "part") <= 1:
            refuse("rows of matches have two parts and the greatest", "part")
        if self._count < 2 * MATCH_SLACK:
            refuse("there is no room for matches", "count", hint=f"{2 * MATCH_SLACK} rows or more")
        of_probes, own_runs, own_rows = own(own_part[0], RunColumns, "columns"), own_part[1], own_part[2]
        for number, one in ((part, columns), (1 - part, of_probes)):
            if one.item_bytes != self._form.parts[number]:
                refuse("the part has columns of other widths", "columns")
        if columns.run_rows != mine.run_rows:
            refuse("the columns are of other runs than the probing's", "columns")
        if len(own_rows) != mine.count:
            refuse("the arrays and the probes differ in number", "rows")

        def matched() -> int:
            probes, rows, runs = np.empty((3, self._count - MATCH_SLACK), np.int32)
            written = 0
            while len(rows) - written >= MATCH_SLACK and (
                found := mine.fill(probes[written:], rows[written:], runs[written:])
            ):
                written += found
            taken = probes[:written]
            own_taken = own_runs[taken] if isinstance(own_runs, np.ndarray) else own_runs
            pairs = [(of_probes, own_taken, own_rows[taken]), (columns, runs[:written], rows[:written])]
            self._count = written
            self._columns = [column[:written] for column in self._columns]
            self.gather(pairs if part else pairs[::-1])
            return written

        return Task(matched)

    def put(self, column: int, values: list[Any], *, floating: bool) -> bool:
        """Fill a column with Python's numbers.

        Parameters
        ----------
        column : int
            The columns of all parts are numbered through.
        values : list
        floating : bool
            Whether the column's items are float32 or float64; else they are signed integers.

        Returns
        -------
        bool
            False where a value does not fit; then the column is filled with zeros. A column of integers takes each
            `int` within its range. A column of floats takes each `float`, rounded if need be, and each `int` that it
            surely holds exactly: up to 2^53 in size, up to 2^24 for float32.
        """
        if not 0 <= column < len(self._columns) - self._form.greatest:
            refuse("there is no such column", "column")
        if len(values) != self._count:
            refuse("the arrays and the rows differ in number", "values")
        width = [width for part in self._form.parts for width in part][column]
        if width > 8 or (floating and width < 4):
            refuse("no number of this kind has this width", "floating")
        if floating:
            limit = 1 << (53 if width == 8 else 24)
            fits = all(type(v) is float or (type(v) is int and -limit <= v <= limit) for v in values)
        else:
            limit = 1 << (8 * width - 1)
            fits = all(type(v) is int and -limit <= v < limit for v in values)
        with np.errstate(over="ignore"):
            numbers = np.array(values if fits else [0] * len(values), np.float64 if floating else np.int64)
            self._columns[column] = numbers.astype(f"{'f' if floating else 'i'}{width}")
        self._filled[column] = self._count
        return fits

    def exported(self) -> int:
        """Return the address of an ArrowArray of the exported columns, for one import while this object lives."""
        if self._array is not None:
            refuse("these rows were exported already", "exported")
        if any(filled != self._count for filled in self._filled):
            refuse("a column of the rows was not filled", "exported")
        children = [
            pa.Array.from_buffers(_ITEMS[column.dtype.itemsize], self._count, [None, pa.py_buffer(column)])
            for column in (self._columns[number] for number in self._form.exported)
        ]
        self._array = (ctypes.c_uint8 * _ARROW_ARRAY_BYTES)()
        address = ctypes.addressof(self._array)
        pa.RecordBatch.from_arrays(children, [str(n) for n in range(len(children))])._export_to_c(address)
        return address


def column_items(column: pa.Array, dtype: np.dtype[Any]) -> Column:
    """View a column's items as they lie in memory, as items of another dtype of the same width."""
    kind = column.type
    is_plain = pa.types.is_primitive(kind) or pa.types.is_decimal128(kind)
    if not is_plain or pa.types.is_boolean(kind) or kind.bit_width != 8 * dtype.itemsize:
        refuse("a column of the batch has items of another width", "batch")
    return np.frombuffer(column.buffers()[1], dtype=dtype, count=len(column), offset=column.offset * dtype.itemsize)


def widened_items(column: pa.Array, *, is_float: bool, name: str = "keys") -> Column:
    """Return a column's items widened to float64 or int64."""
    kind, types = column.type, pa.types
    if types.is_integer(kind) or (types.is_floating(kind) and is_float and kind.bit_width > 16):
        source = np.dtype(kind.to_pandas_dtype())
    elif (types.is_temporal(kind) and not types.is_interval(kind)) and kind.bit_width in (32, 64):
        source = np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
    else:
        refuse("a key cannot be made of its column", name)
    values: Column = column_items(column, source).astype(np.float64 if is_float else np.int64)
    return values


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
