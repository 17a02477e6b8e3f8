"""Messages that are packed structs: little-endian fields in the order of the declared columns, without gaps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.source.kafka.formats.frames import byte_ends
from streamjoin_ds.source.kafka.formats.message_format import NO_VALUE, is_null, message_text
from streamjoin_ds.source.records import RawRecords

__all__ = ["FixedMessages"]


class FixedMessages:
    """Messages of one length.

    A whole number, a float and a boolean (a byte, 0 or 1) lie as in C; a timestamp is an int64 in its unit, a date32 an
    int32 of days, a date64 an int64 of milliseconds. Bytes of fixed length stay bytes. There are no nulls.

    Parameters
    ----------
    declared : pyarrow.Schema
        All columns of a message.
    names : sequence of str
        The columns to read.

    Raises
    ------
    ColumnError
        A column has a type without a fixed length.
    """

    def __init__(self, declared: pa.Schema, names: list[str]) -> None:
        self._columns = [declared.field(name) for name in names]
        self._record = np.dtype([(field.name, _field_type(field)) for field in declared])

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        data, ends = byte_ends(values)
        size = self._record.itemsize
        lengths = np.diff(ends)
        is_good = (lengths == size) & ~is_null(values)
        broken = [
            (
                int(place),
                "",
                _reason(int(lengths[place]), size, values[int(place)]),
                message_text(values[int(place)].as_py()),
            )
            for place in np.flatnonzero(~is_good)
        ]
        if broken:
            data, ends = byte_ends(values.filter(pa.array(is_good)))
        records = np.frombuffer(data[ends[0] : ends[-1]], self._record)
        index = np.flatnonzero(is_good)
        for field in self._columns:
            if pa.types.is_boolean(field.type):
                wrong = records[field.name] > 1
                for place in index[wrong].tolist():
                    text = message_text(values[place].as_py())
                    broken.append((place, field.name, "a boolean that is neither 0 nor 1", text))
                index, records = index[~wrong], records[~wrong]
        table = pa.table(
            [_column(records[field.name], field.type) for field in self._columns], pa.schema(self._columns)
        )
        return RawRecords(table, len(values), index if broken else None, sorted(broken))


def _reason(length: int, size: int, value: pa.Scalar) -> str:
    return f"{length} bytes instead of {size}" if value.is_valid else NO_VALUE


def _field_type(field: pa.Field) -> str:
    kind, types = field.type, pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).newbyteorder("<").str)
    if types.is_boolean(kind):
        return "u1"
    if types.is_timestamp(kind) or types.is_date64(kind):
        return "<i8"
    if types.is_date32(kind):
        return "<i4"
    if types.is_fixed_size_binary(kind):
        return f"V{kind.byte_width}"
    msg = f"column '{field.name}' cannot be a field of fixed length: its type is {kind}"
    hint = "a whole number, a float, bool, a timestamp, a date, or fixed_size_binary"
    raise ColumnError(msg, name=field.name, hint=hint)


def _column(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    # A field of a packed struct lies with gaps, maybe not aligned: Arrow wants it in one piece.
    whole = np.ascontiguousarray(values)
    if pa.types.is_boolean(kind):
        return pa.array(whole == 1)
    if pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole.tobytes())])
    numbers = pa.array(whole)
    return numbers if numbers.type == kind else numbers.view(kind)
