"""Messages in Avro, by fastavro."""

from __future__ import annotations

import io
import json
from importlib import import_module
from typing import Any

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.source.kafka.formats.registered_messages import SCHEMA, Reader
from streamjoin_ds.source.kafka.registry import RegisteredSchema, SchemaRegistry

__all__ = ["AvroCodec"]


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

        def read(value: bytes) -> dict[str, Any] | str:
            data = io.BytesIO(value)
            record = self._avro.schemaless_reader(data, schema)
            if data.tell() != len(value):
                return f"more bytes than a value of {SCHEMA}"
            return record if isinstance(record, dict) else f"{SCHEMA} is not a record"

        return read
