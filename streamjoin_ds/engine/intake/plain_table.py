"""Tables whose columns are in the inside form already; a push of one tuple spends no time on conversions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.spec.columns import zones_of
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.inside import holds_times
from streamjoin_ds.spec.key_values import item_values
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["PlainTable"]


class PlainTable:
    """Where the columns of a stream lie in tables of one schema, if none of these columns needs a conversion.

    Such an event time is a timestamp in microseconds, or an int64 with this `time_unit`. Every other column has its
    inside type, which holds no times.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the tables.
    outside : pyarrow.Schema
        The columns that are read; one of `BoundJoin.read_schemas`.
    stream : Stream
    """

    __slots__ = ("_columns", "_schema", "_time", "is_plain")

    def __init__(self, schema: pa.Schema, outside: pa.Schema, stream: Stream) -> None:
        self._schema = schema
        self._time = schema.get_field_index(stream.time)  # -1: it is missing, or there twice
        self._columns = [(f.name, schema.get_field_index(f.name), f) for f in outside if f.name != stream.time]
        self.is_plain = (
            self._time >= 0
            and _in_microseconds(schema.field(self._time).type, stream.time_unit)
            and not zones_of(stream.schema)
            and all(
                place >= 0 and schema.field(place).type == wanted.type and not holds_times(wanted.type)
                for _, place, wanted in self._columns
            )
        )

    def has(self, table: pa.Table) -> bool:
        """Whether the table has this schema."""
        return bool(table.schema.equals(self._schema))

    def columns(self, table: pa.Table) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]] | None:
        """Return the event times in microseconds and the other columns; None where a closer look is needed.

        It is needed in a table of several chunks, where an event time is null or out of range, and where there is
        a null that must not be.
        """
        times = table.column(self._time)
        if times.num_chunks != 1 or times.null_count:
            return None
        times_us: npt.NDArray[np.int64] = item_values(times.chunk(0))
        if not _are_in_range(times_us):
            return None
        made = {}
        for name, place, wanted in self._columns:
            column = table.column(place)
            if column.num_chunks != 1 or (not wanted.nullable and column.null_count):
                return None
            made[name] = column.chunk(0)
        return times_us, made


def _in_microseconds(kind: pa.DataType, unit: str) -> bool:
    return bool(kind.unit == "us" if pa.types.is_timestamp(kind) else pa.types.is_int64(kind) and unit == "us")


def _are_in_range(times_us: npt.NDArray[np.int64]) -> bool:
    if len(times_us) == 1:  # a NumPy function takes longer than all of this
        return MIN_TS_US <= times_us.item() <= MAX_TS_US
    return not len(times_us) or bool(times_us.min() >= MIN_TS_US and times_us.max() <= MAX_TS_US)
