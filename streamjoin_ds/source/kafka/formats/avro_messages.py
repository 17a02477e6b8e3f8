"""Messages in Avro with Confluent's frame: a zero byte, the schema's id in four bytes, the datum."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.source.kafka.formats.message_format import NO_VALUE, message_text
from streamjoin_ds.source.kafka.registry import SchemaRegistry
from streamjoin_ds.source.records import RawRecords

__all__ = ["AvroMessages"]

_FRAME_BYTES = 5


class AvroMessages:
    """Messages that are Avro records, each with the schema that its writer registered.

    A field is found by its name. One that a schema does not have is a null, as an absent key of a JSON object is. A
    value of another type than the column's makes the message a reject, and so does an id that the registry does not
    know. A registry that does not answer is an error: nothing is rejected for it.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    time : str
        The time column: a number, a text, or one of Avro's timestamps or dates.
    registry : SchemaRegistry

    Raises
    ------
    DependencyMissingError
        The extra ``avro`` is not installed.
    """

    def __init__(self, schema: pa.Schema, time: str, registry: SchemaRegistry) -> None:
        try:
            self._avro: Any = import_module("fastavro")
        except ImportError as error:
            msg = "messages in Avro need fastavro"
            raise DependencyMissingError(msg, name="fastavro", hint="pip install 'streamjoin-ds[avro]'") from error
        self._schema, self._time = schema, time
        self._registry = registry
        self._readers: dict[int, Callable[[io.BytesIO], Any] | str] = {}

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`."""
        records: list[dict[str, Any]] = []
        index: list[int] = []
        broken: dict[int, tuple[str, str]] = {}
        for place, value in enumerate(values.to_pylist()):
            found = self._record(value)
            if isinstance(found, str):
                broken[place] = ("", found)
            else:
                records.append(found)
                index.append(place)
        columns = []
        for field in self._schema:
            given = [record.get(field.name) for record in records]
            column, wrong = _times(given) if field.name == self._time else _typed(given, field.type)
            columns.append(column)
            for at in wrong:
                broken.setdefault(index[at], (field.name, f"the value is not of type {field.type}"))
        table = pa.table(columns, names=self._schema.names) if columns else pa.table({"": index}).select([])
        kept = np.array(index, np.int64)
        is_good = ~np.isin(kept, np.fromiter(broken, np.int64, len(broken)))
        if not is_good.all():
            table, kept = table.filter(pa.array(is_good)), kept[is_good]
        told = [
            (place, column, reason, message_text(values[place].as_py())) for place, (column, reason) in broken.items()
        ]
        return RawRecords(table, len(values), kept if told else None, sorted(told))

    def _record(self, value: bytes | None) -> dict[str, Any] | str:
        """Return a message's fields, or why it has none."""
        if value is None:
            return NO_VALUE
        if len(value) < _FRAME_BYTES or value[0]:
            return "no schema's id before the value"
        number = int.from_bytes(value[1:_FRAME_BYTES], "big")
        if number not in self._readers:
            self._readers[number] = self._reader(number)
        reader = self._readers[number]
        if isinstance(reader, str):
            return reader
        data = io.BytesIO(value)
        data.seek(_FRAME_BYTES)
        try:
            record = reader(data)
        except Exception:  # the decoder's errors are of any kind: IndexError, struct.error, UnicodeDecodeError, ...
            return f"not a value of schema {number}"
        if data.tell() != len(value):
            return f"more bytes than a value of schema {number}"
        return record if isinstance(record, dict) else f"schema {number} is not a record"

    def _reader(self, number: int) -> Callable[[io.BytesIO], Any] | str:
        found = self._registry.schema(number)
        if found is None:
            return f"the registry has no schema {number}"
        if found.kind != "AVRO":
            return f"schema {number} is not Avro"
        try:
            schema = self._avro.parse_schema(json.loads(found.text))
        except Exception:  # fastavro has several, and a schema that it cannot read is the message's fault
            return f"schema {number} cannot be read"
        return lambda data: self._avro.schemaless_reader(data, schema)


def _typed(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return values as an array, and the places of those that are not of its type."""
    try:
        return pa.array(values, kind), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        wrong = [place for place, value in enumerate(values) if not _fits(value, kind)]
    kept: list[Any] = list(values)
    for place in wrong:
        kept[place] = None
    return pa.array(kept, kind), wrong


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _times(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return event times in a form that `event_times` reads: all numbers, or texts where they are mixed."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        found = _typed(values, pa.int64())
        if not found[1]:
            return found
    if len(kinds) == 1 and kinds <= {datetime}:
        return pa.array(values, pa.timestamp("us", tz="UTC")), []
    return pa.array([None if value is None else _time_text(value) for value in values], pa.string()), []


def _time_text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
