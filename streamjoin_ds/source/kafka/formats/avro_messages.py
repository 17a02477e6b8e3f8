"""Messages in Avro, by fastavro.

Its compiled reader takes the lowest 64 bits of a number that has more, and ends the process where values lie within
values of the same type ten thousand deep. So numbers that may be too long, and types that hold themselves, are read by
its reader in Python.
"""

from __future__ import annotations

import io
import json
import re
from importlib import import_module
from typing import Any

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.source.kafka.formats.registered_messages import SCHEMA, Reader
from streamjoin_ds.source.kafka.registry import RegisteredSchema, SchemaRegistry

__all__ = ["AvroCodec"]

_LONG_NUMBER = re.compile(rb"[\x80-\xff]{9}[\x02-\xff]")  # a number of more than 64 bits holds this, and so may a text


class AvroCodec:
    """Schemas of Avro; see `Codec`.

    Raises
    ------
    DependencyMissingError
        The extra ``avro`` is not installed.
    """

    kind, name = "AVRO", "Avro"

    def __init__(self) -> None:
        try:
            self._avro: Any = import_module("fastavro")
            self._careful: Any = import_module("fastavro._read_py").schemaless_reader
        except ImportError as error:
            msg = "messages in Avro need fastavro"
            raise DependencyMissingError(msg, name="fastavro", hint="pip install 'streamjoin-ds[avro]'") from error

    def schema(self, registry: SchemaRegistry, number: int) -> RegisteredSchema:
        """See `Codec.schema`."""
        return registry.schema(number)

    def reader(self, found: RegisteredSchema, registry: SchemaRegistry) -> Reader:
        """See `Codec.reader`."""
        del registry
        schema = self._avro.parse_schema(json.loads(found.text))
        shape = _Shape()
        shape.visit(schema)
        if shape.has_lists_of_nothing:
            return lambda value: f"{SCHEMA} has lists of values that take no bytes"

        def read(value: bytes) -> dict[str, Any] | str:
            data = io.BytesIO(value)
            if shape.is_recursive or _LONG_NUMBER.search(value):
                record = self._careful(data, schema, None)
                if isinstance(record, dict) and any(map(_is_too_long, record.values())):
                    return f"not a value of {SCHEMA}"
            else:
                record = self._avro.schemaless_reader(data, schema)
            if data.tell() != len(value):
                return f"more bytes than a value of {SCHEMA}"
            return record if isinstance(record, dict) else f"{SCHEMA} is not a record"

        return read


def _is_too_long(value: Any) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 63


class _Shape:
    """What of a parsed schema matters for how it is read.

    Attributes
    ----------
    is_recursive : bool
        Whether a type holds itself.
    has_lists_of_nothing : bool
        Whether there are arrays of items that take no bytes: five bytes would be a hundred million items.
    """

    def __init__(self) -> None:
        self.is_recursive = self.has_lists_of_nothing = False
        self._is_nothing: dict[str, bool] = {"null": True}  # by name; of a record that is being visited: False
        self._open: set[str] = set()

    def visit(self, schema: Any) -> bool:
        """Look at a type and those in it; return whether its values take no bytes."""
        if isinstance(schema, list):  # a union, whose branch has a number
            for branch in schema:
                self.visit(branch)
            return False
        if isinstance(schema, str):
            self.is_recursive |= schema in self._open
            return self._is_nothing.get(schema, False)
        kind = schema["type"]
        if kind in ("record", "error"):
            name = schema["name"]
            self._open.add(name)
            fields = [self.visit(field["type"]) for field in schema["fields"]]
            self._open.remove(name)
            self._is_nothing[name] = all(fields)
            return all(fields)
        if kind == "array":
            self.has_lists_of_nothing |= self.visit(schema["items"])
            return False
        if kind == "map":
            self.visit(schema["values"])
            return False
        if kind == "fixed":
            self._is_nothing[schema["name"]] = not schema["size"]
            return not schema["size"]
        return False if kind == "enum" else self.visit(kind)
