"""The columns of a query's streams and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from streamjoin_ds.spec import Stream, Table
from streamjoin_ds.spec.expression.predicate import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Schemas"]

_WHOLE_OF_SPARK = {"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "decimal"}


class Schemas:
    """The columns of a query's streams and tables; a source is looked at only when it is asked for."""

    def __init__(
        self,
        members: Sequence[Stream | Table],
        frames: Mapping[str, DataFrame],
        infer: Callable[[Stream | Table], pa.Schema],
    ) -> None:
        self._members = {member.name: member for member in members}
        self._infer = infer
        self.frames = frames

    @cached_property
    def declared(self) -> dict[str, list[str]]:
        """The columns of the streams over frames, and of those members whose columns were declared."""
        known = {name: list(frame.columns) for name, frame in self.frames.items()}
        return known | {
            name: list(stream.schema.names)
            for name, stream in self._members.items()
            if isinstance(stream.schema, pa.Schema)
        }

    def names(self, stream: str) -> list[str]:
        """Return the columns of a stream or table."""
        return self.declared[stream] if stream in self.declared else list(self._infer(self._members[stream]).names)

    def rounds(self, column: Column) -> bool:
        """Return whether sums of a column may be rounded: of all but whole numbers, dates and times."""
        if column.stream in self.frames:
            names = [
                field.dataType.typeName() for field in self.frames[column.stream].schema if field.name == column.name
            ]
            return not {*names} & _WHOLE_OF_SPARK
        schema = self._infer(self._members[column.stream])
        kind = schema.field(column.name).type if column.name in schema.names else pa.null()
        types = pa.types
        return not (types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind))

    def has_fine_times(self) -> bool:
        """Whether an event time has parts of a microsecond. DataFrames of Spark have none."""
        for stream in self._members.values():
            if not isinstance(stream, Stream) or stream.name in self.frames or stream.is_topic:
                continue
            kind = self._infer(stream).field(stream.time).type
            if pa.types.is_timestamp(kind) and kind.unit == "ns":
                return True
            if pa.types.is_integer(kind) and stream.time_unit == "ns":
                return True
        return False
