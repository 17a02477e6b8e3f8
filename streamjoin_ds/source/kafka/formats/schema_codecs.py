"""Codecs of messages with a registered schema: Avro, by fastavro, and Protobuf, by protobuf.

fastavro's compiled reader takes the lowest 64 bits of a number that has more, and ends the process where values lie
within values of the same type ten thousand deep. So numbers that may be too long, and types that hold themselves, are
read by its reader in Python.

A Protobuf message has, after the frame, the place of its type in the schema's file, then the message itself.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from datetime import timezone
from importlib import import_module
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, DependencyMissingError
from streamjoin_ds.source.kafka.formats.registered_messages import SCHEMA, Reader, RegisteredSchema, SchemaRegistry
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN
from streamjoin_ds.spec.nested_path import Path, inner_path

__all__ = ["AvroCodec", "ProtobufCodec"]

_LONG_NUMBER = re.compile(rb"[\x80-\xff]{9}[\x02-\xff]")  # a number of more than 64 bits holds this, and so may a text
# Files that every compiler brings, each after those that it needs.
_KNOWN = ("any", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "api", "wrappers")
_MOST_DEPTH = 64  # types within types, and files that files need


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

    def parsed(self, found: RegisteredSchema) -> Any:
        """Return a schema as the library reads it: full names, and each named type where it is named first."""
        return self._avro.parse_schema(json.loads(found.text))

    def reader(self, found: RegisteredSchema, registry: SchemaRegistry) -> Reader:
        """See `Codec.reader`."""
        del registry
        schema = self.parsed(found)
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
    return type(value) is int and not INT64_MIN <= value <= INT64_MAX


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


class ProtobufCodec:
    """Schemas of Protobuf; see `Codec`.

    A field without presence has its default where the message does not say it; one with presence is then a null. An
    enumeration is its number, or its name where the column is text. A ``google.protobuf.Timestamp`` is a timestamp, cut
    to microseconds, and a wrapper such as ``DoubleValue`` is its value. Other messages within a message fit no column.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns to read.

    Raises
    ------
    DependencyMissingError
        The extra ``protobuf`` is not installed.
    """

    kind, name = "PROTOBUF", "Protobuf"

    def __init__(self, schema: pa.Schema) -> None:
        try:
            self._descriptors: Any = import_module("google.protobuf.descriptor_pb2")
            self._pools: Any = import_module("google.protobuf.descriptor_pool")
            self._factory: Any = import_module("google.protobuf.message_factory")
            self._known = [import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb for name in _KNOWN]
        except ImportError as error:
            msg = "messages in Protobuf need protobuf"
            raise DependencyMissingError(msg, name="protobuf", hint="pip install 'streamjoin-ds[protobuf]'") from error
        self._schema = schema

    def schema(self, registry: SchemaRegistry, number: int) -> RegisteredSchema:
        """See `Codec.schema`: the file's descriptor, which the registry makes of the text."""
        return registry.schema(number, serialized=True)

    def reader(self, found: RegisteredSchema, registry: SchemaRegistry) -> Reader:
        """See `Codec.reader`."""
        pool = self._pools.DescriptorPool()
        for known in self._known:
            pool.AddSerializedFile(known)
        file = self._added(pool, found, registry, name="", depth=0)
        readers: dict[tuple[int, ...], Callable[[bytes], dict[str, Any]]] = {}

        def read(value: bytes) -> dict[str, Any] | str:
            place, start = _place(value)
            if place not in readers:
                kind = self._named(pool, file, place)
                if kind is None:
                    return f"{SCHEMA} has no such type of message"
                readers[place] = self._fields(kind)
            return readers[place](value[start:])

        return read

    def described(self, found: RegisteredSchema, registry: SchemaRegistry, value: bytes) -> Any:
        """Return the descriptor of the message type that a value is of; None where there is none."""
        pool = self._pools.DescriptorPool()
        for known in self._known:
            pool.AddSerializedFile(known)
        kind = self._named(pool, self._added(pool, found, registry, name="", depth=0), _place(value)[0])
        return None if kind is None else kind.DESCRIPTOR

    def _added(self, pool: Any, found: RegisteredSchema, registry: SchemaRegistry, *, name: str, depth: int) -> Any:
        """Add a file to the pool, after those that it needs. Return its descriptor as a message."""
        if depth > _MOST_DEPTH:
            msg = "files that need each other"
            raise ValueError(msg)
        for needed in found.references:
            other = registry.version(needed.subject, needed.version)
            self._added(pool, other, registry, name=needed.name, depth=depth + 1)
        file = self._descriptors.FileDescriptorProto.FromString(_descriptor(found.text))
        file.name = name or file.name or "schema.proto"
        pool.AddSerializedFile(file.SerializeToString())
        return file

    def _named(self, pool: Any, file: Any, place: tuple[int, ...]) -> Any:
        """Return the class of the message type at a place; None where there is none."""
        names, types = [file.package] if file.package else [], file.message_type
        for number in place:
            if not 0 <= number < len(types):
                return None
            names.append(types[number].name)
            types = types[number].nested_type
        return self._factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))

    def _fields(self, kind: Any) -> Callable[[bytes], dict[str, Any]]:
        known = kind.DESCRIPTOR.fields_by_name
        found = {column.name: _getter_of(known, column) for column in self._schema}
        getters = {name: get for name, get in found.items() if get is not None}

        def read(value: bytes) -> dict[str, Any]:
            message = kind.FromString(value)
            return {name: get(message) for name, get in getters.items()}

        return read


def _descriptor(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        msg = "the schema registry gives a schema's text alone, and not its descriptor"
        hint = "use one that knows format=serialized: Confluent's since 5.5, Redpanda's since 25.2"
        raise ArgumentError(msg, name="registry", hint=hint) from None


def _getter_of(known: Any, column: pa.Field) -> Callable[[Any], Any] | None:
    """Return what takes a column out of a message, by its name or as a path; None where there is no such field."""
    if column.name in known:
        return _getter(known[column.name], column.type)
    path = inner_path(column.name)
    if path is None or path[0] not in known:
        return None
    return _inner_getter(known[path[0]], path[1], column.type)


def _inner_getter(field: Any, path: Path, kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what takes out of a message what a path leads to from one of its fields."""
    if not path:
        return _getter(field, kind)
    part, *rest = path
    name = field.name
    if isinstance(part, int):
        if not _is_repeated(field) or (rest and field.message_type is None):
            return None
        element = _inner_of(field, tuple(rest), kind) if rest else _value_of(field, kind)
        if element is None:
            return None
        return lambda message: element(held[part]) if part < len(held := getattr(message, name)) else None
    inner = None if _is_repeated(field) or field.message_type is None else _inner_of(field, path, kind)
    if inner is None:
        return None
    return lambda message: inner(getattr(message, name)) if message.HasField(name) else None


def _inner_of(field: Any, path: Path, kind: pa.DataType) -> Callable[[Any], Any] | None:
    inside = field.message_type.fields_by_name
    return _inner_getter(inside[path[0]], path[1:], kind) if path[0] in inside else None


def _getter(field: Any, kind: pa.DataType) -> Callable[[Any], Any]:
    """Return what takes a field's value out of a message."""
    name, repeated = field.name, _is_repeated(field)
    value = _value_of(field, kind)
    if repeated:
        return lambda message: [value(one) for one in getattr(message, name)]
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # older versions of protobuf have the label alone
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _value_of(field: Any, kind: pa.DataType) -> Callable[[Any], Any]:
    if field.enum_type is not None and pa.types.is_string(kind):
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, value)
    type_name = field.message_type.full_name if field.message_type is not None else ""
    if type_name == "google.protobuf.Timestamp":
        return lambda value: value.ToDatetime(tzinfo=timezone.utc)
    if type_name.startswith("google.protobuf.") and type_name.endswith("Value") and not type_name.endswith(".Value"):
        return lambda value: getattr(value, "value", value)
    return lambda value: value


def _place(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a message's type in its file, from the outermost type on, and where the message begins."""
    count, at = _varint(value, 0)
    if not count:  # the usual one is written short
        return (0,), at
    if not 0 < count <= _MOST_DEPTH:
        msg = "a place that is none"
        raise ValueError(msg)
    numbers = []
    for _ in range(count):
        number, at = _varint(value, at)
        numbers.append(number)
    return tuple(numbers), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return the signed number at a place, and the place after it."""
    found = shift = 0
    while True:
        byte = value[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        if shift > 63:
            msg = "a number that is too long"
            raise ValueError(msg)
