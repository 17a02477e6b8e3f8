"""The columns of messages whose schema a registry keeps: Avro, Protobuf and JSON Schema in Arrow's types.

A field that no column can hold is left out: a map, a union of several types, a type that holds itself, a time of day, a
message within a message of Protobuf. It can be declared with `schema` where a path or an expression reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from streamjoin_ds.source.kafka.formats.registered_messages import RegisteredSchema, SchemaRegistry, schema_id
from streamjoin_ds.source.kafka.formats.schema_codecs import AvroCodec, ProtobufCodec
from streamjoin_ds.spec.columns import TIMESTAMP

__all__ = ["registered_columns"]

_MOST_DEPTH = 16  # records within records
_NAIVE = pa.timestamp("us")
_AVRO: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType | None] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): _NAIVE,
    ("long", "local-timestamp-micros"): _NAIVE,
    ("int", "time-millis"): None,
    ("long", "time-micros"): None,
}
_JSON: dict[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_JSON_FORMATS: dict[str, pa.DataType] = {"date-time": TIMESTAMP, "date": pa.date32()}


def registered_columns(
    kind: str, values: Iterable[bytes], topics: Iterable[str], registry: SchemaRegistry
) -> pa.Schema | None:
    """Return the columns of messages by the newest of their schemas; None where no schema tells any.

    That is the one with the largest id among those that messages name, else the last one of a topic's values.

    Parameters
    ----------
    kind : {"avro", "protobuf", "json"}
        What a message holds.
    values : iterable of bytes
        The newest messages.
    topics : iterable of str
        Their topics.
    registry : SchemaRegistry

    Raises
    ------
    KafkaSchemaError, KafkaAccessError, KafkaUnreachableError
        As the registry's.
    """
    serialized = kind == "protobuf"
    newest = max((number, value) for number, value in [(-1, b""), *((schema_id(one) or -1, one) for one in values)])
    if newest[0] >= 0:
        found = registry.schema(newest[0], serialized=serialized)
        return _columns(found, kind, newest[1][5:], registry)
    for topic in topics:
        if (last := registry.latest(f"{topic}-value", serialized=serialized)) is not None:
            return _columns(last, kind, b"\0", registry)
    return None


def _columns(found: RegisteredSchema, kind: str, value: bytes, registry: SchemaRegistry) -> pa.Schema | None:
    if kind == "avro" and found.kind == "AVRO":
        return _of_avro(AvroCodec().parsed(found))
    if kind == "protobuf" and found.kind == "PROTOBUF":
        described = ProtobufCodec(pa.schema([])).described(found, registry, value)
        return None if described is None else _of_protobuf(described)
    if kind == "json" and found.kind == "JSON":
        return _of_json(json.loads(found.text))
    return None


def _schema_of(fields: Iterable[tuple[str, pa.DataType | None]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in fields if kind is not None])


# ---------------------------------------------------------------------- Avro


def _of_avro(schema: Any) -> pa.Schema | None:
    """Return the columns of a parsed schema, whose named types stand where they are named first."""
    named: dict[str, Any] = {}
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        return None
    _name_types(schema, named)
    fields = _schema_of((one["name"], _avro_type(one["type"], named, (schema["name"],))) for one in schema["fields"])
    return fields if len(fields) else None


def _name_types(schema: Any, named: dict[str, Any]) -> None:
    for one in schema if isinstance(schema, list) else [schema]:
        if not isinstance(one, dict):
            continue
        if "name" in one:
            named[one["name"]] = one
        for within in (*one.get("fields", ()), {"type": one.get("items")}, {"type": one.get("values")}):
            _name_types(within["type"], named)
        if isinstance(one["type"], (dict, list)):
            _name_types(one["type"], named)


def _avro_type(schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> pa.DataType | None:
    if len(within) > _MOST_DEPTH:
        return None
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _avro_type(others[0], named, within) if len(others) == 1 else None
    if isinstance(schema, str):
        if schema not in named:
            return _AVRO.get(schema)
        return None if schema in within else _avro_type(named[schema], named, within)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        return pa.decimal128(precision, scale) if 0 < precision <= 38 else None
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    if kind == "array":
        item = _avro_type(schema["items"], named, within)
        return None if item is None else pa.list_(item)
    if kind in ("record", "error"):
        inner = (*within, schema["name"])
        fields = _schema_of((one["name"], _avro_type(one["type"], named, inner)) for one in schema["fields"])
        return pa.struct(list(fields)) if len(fields) else None
    return _AVRO.get(kind) if isinstance(kind, str) and kind != "map" else _avro_type(kind, named, within)


# ---------------------------------------------------------------------- Protobuf


def _of_protobuf(message: Any) -> pa.Schema | None:
    fields = _schema_of((one.name, _protobuf_type(one)) for one in message.fields)
    return fields if len(fields) else None


def _protobuf_type(field: Any) -> pa.DataType | None:
    kind = _protobuf_value(field)
    repeated = getattr(field, "is_repeated", None)  # older versions of protobuf have the label alone
    is_list = bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
    return pa.list_(kind) if is_list and kind is not None else kind


def _protobuf_value(field: Any) -> pa.DataType | None:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return TIMESTAMP
        is_wrapper = name.startswith("google.protobuf.") and name.endswith("Value") and not name.endswith(".Value")
        return _protobuf_value(field.message_type.fields_by_name["value"]) if is_wrapper else None
    of_class: dict[int, pa.DataType] = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.uint64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }
    return of_class.get(field.cpp_type)


# ---------------------------------------------------------------------- JSON Schema


def _of_json(schema: Any) -> pa.Schema | None:
    kind = _json_type(schema, schema, ("#",))
    return pa.schema(list(kind)) if kind is not None and pa.types.is_struct(kind) else None


def _json_type(schema: Any, root: Any, within: tuple[str, ...]) -> pa.DataType | None:
    if not isinstance(schema, dict) or len(within) > _MOST_DEPTH:
        return None
    if isinstance(link := schema.get("$ref"), str):
        return None if link in within else _json_type(_linked(root, link), root, (*within, link))
    inner = (*within, "")
    for several in ("oneOf", "anyOf", "allOf"):
        if isinstance(schema.get(several), list):
            found = [one for one in schema[several] if not (isinstance(one, dict) and one.get("type") == "null")]
            return _json_type(found[0], root, inner) if len(found) == 1 else None
    kinds = schema.get("type")
    kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if kinds == ["object"] or (kinds == [None] and isinstance(schema.get("properties"), dict)):
        properties = schema.get("properties")
        named = properties.items() if isinstance(properties, dict) else ()
        fields = _schema_of((name, _json_type(one, root, inner)) for name, one in named)
        return pa.struct(list(fields)) if len(fields) else None
    if kinds == ["array"]:
        item = _json_type(schema.get("items"), root, inner)
        return None if item is None else pa.list_(item)
    if len(kinds) != 1 or not isinstance(kinds[0], str):
        return pa.float64() if set(kinds) == {"integer", "number"} else None
    if kinds == ["string"] and schema.get("format") in _JSON_FORMATS:
        return _JSON_FORMATS[schema["format"]]
    return _JSON.get(kinds[0])


def _linked(root: Any, link: str) -> Any:
    """Return what a reference within a schema names; None where it names nothing there."""
    found = root
    for part in link.removeprefix("#").split("/")[1:] if link.startswith("#") else ("",):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
