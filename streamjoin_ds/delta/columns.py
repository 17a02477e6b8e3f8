"""A table's columns as Arrow's, and which tables cannot be read.

The log says the columns as JSON. With column mapping the files have other names for them, the *physical* names.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.blocks.place import loggable
from streamjoin_ds.errors import TableError

__all__ = ["TableColumns", "check_protocol", "partition_value", "table_columns"]

_log = logging.getLogger(__name__)

_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

# Features of readers that are understood here. Widened types come as files of the narrower type, which are widened when
# they are read.
_READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)


class TableColumns(Struct, frozen=True):
    """The columns of a table.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns, the partition columns among them.
    physical : dict of str to str
        The columns' names in the files, where they have other names there.
    partition : tuple of str
        The columns by which the table is partitioned. The files do not have them.
    """

    schema: pa.Schema
    physical: dict[str, str]
    partition: tuple[str, ...]


def check_protocol(protocol: Mapping[str, Any], metadata: Mapping[str, Any], path: str) -> None:
    """Refuse a table that needs a reader of another kind.

    Raises
    ------
    TableError
        The table has a feature that is not understood here.
    """
    unknown = sorted(set(protocol.get("readerFeatures") or ()) - _READER_FEATURES)
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if unknown:
        what = f"needs readers with {', '.join(unknown)}"
    elif int(protocol.get("minReaderVersion") or 1) > 3:
        what = f"needs readers of version {protocol['minReaderVersion']}"
    elif mode not in ("none", "name"):
        what = f"finds its columns by {mode} (delta.columnMapping.mode)"
    else:
        return
    msg = f"the table {path} {what}, and a stream cannot read it"
    raise TableError(msg, name=path, hint="read it with spark.readStream.format('delta') and StreamJoin.dataframe")


def table_columns(metadata: Mapping[str, Any], path: str) -> TableColumns:
    """Return the columns that a table's metadata says. A column of a type that Arrow has not is left out."""
    fields = json.loads(str(metadata["schemaString"]))["fields"]
    is_mapped = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none") != "none"
    found, physical = [], {}
    for field in fields:
        name = str(field["name"])
        try:
            kind = _arrow_type(field["type"])
        except KeyError:
            _log.debug("column %s of %s is left out: it has a type that Arrow has not", name, loggable(path))
            continue
        found.append(pa.field(name, kind, bool(field.get("nullable", True))))
        if is_mapped:
            given = str((field.get("metadata") or {}).get("delta.columnMapping.physicalName", name))
            if pa.types.is_nested(kind):
                physical[name] = ""  # its fields have other names too
            elif given != name:
                physical[name] = given
    return TableColumns(pa.schema(found), physical, tuple(metadata.get("partitionColumns") or ()))


def _arrow_type(kind: Any) -> pa.DataType:
    """Return the type in Arrow; raise `KeyError` where there is none."""
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        return _TYPES[kind] if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind["type"] == "struct":
        fields = kind["fields"]
        return pa.struct(
            [pa.field(one["name"], _arrow_type(one["type"]), bool(one.get("nullable", True))) for one in fields]
        )
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(kind["elementType"]), bool(kind.get("containsNull", True))))
    if kind["type"] == "map":
        return pa.map_(_arrow_type(kind["keyType"]), _arrow_type(kind["valueType"]))
    raise KeyError(kind["type"])


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition column of a type, as the log writes it; null for an empty text.

    Raises
    ------
    pyarrow.ArrowInvalid
        The text is no value of the type.
    """
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode("latin-1", "replace"), kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        plain = text.replace(" ", "T", 1)
        has_zone = plain.endswith("Z") or re.search(r"[+-]\d\d:?\d\d$", plain) is not None
        return pc.cast(pa.scalar(plain if has_zone else f"{plain}Z"), kind)
    return pc.cast(pa.scalar(text), kind)
