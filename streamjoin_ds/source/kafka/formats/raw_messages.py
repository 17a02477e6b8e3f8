"""Messages whose bytes are the record: one column of them, as bytes or as UTF-8."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.errors import ColumnError
from streamjoin_ds.source.kafka.formats.message_format import message_text, utf8_values
from streamjoin_ds.source.records import RawRecords

__all__ = ["RawMessages", "bytes_or_text"]


class RawMessages:
    """Messages that are not looked into. A message without a value is a null.

    Parameters
    ----------
    schema : pyarrow.Schema
        At most one column, of bytes or text.

    Raises
    ------
    ColumnError
        There are several columns, or one of another type.
    """

    def __init__(self, schema: pa.Schema) -> None:
        for place, field in enumerate(schema):
            if place or not bytes_or_text(field.type):
                msg = f"a raw message cannot be column '{field.name}'"
                raise ColumnError(msg, name=field.name, hint="declare one column of binary or string for the value")
        self._schema = schema

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        if not len(self._schema):
            return RawRecords(pa.table({"": values}).select([]), len(values))
        field = self._schema.field(0)
        if not pa.types.is_string(field.type):
            return RawRecords(pa.table([values], pa.schema([field])), len(values))
        texts, wrong = utf8_values(values)
        table = pa.table([texts], pa.schema([field]))
        if not wrong:
            return RawRecords(table, len(values))
        broken = [(place, field.name, "not UTF-8", message_text(values[place].as_py())) for place in wrong]
        index = pa.array(sorted(set(range(len(values))) - set(wrong)), pa.int64())
        return RawRecords(table.take(index), len(values), index.to_numpy(), broken)


def bytes_or_text(kind: pa.DataType) -> bool:
    """Whether a type can hold a message's bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
