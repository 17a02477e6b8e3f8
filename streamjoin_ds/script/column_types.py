"""Reads the types of columns in CREATE STREAM: Spark SQL's names, as the Arrow types that Spark itself would give."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.script.cursor import Cursor

__all__ = ["TYPES", "column_type"]

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_MOST_DIGITS = 38

TYPES = (
    "a type: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(10, 2), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<INT>, STRUCT<a: INT, b: STRING>"
)


def column_type(cursor: Cursor) -> pa.DataType:
    """Read a type.

    Raises
    ------
    SqlSyntaxError
        There is none that a stream's column can have.
    """
    token = cursor.next
    if token is None:
        cursor.refuse(TYPES)
    if token.word in _PLAIN:
        cursor.take()
        return _PLAIN[token.word]
    if token.word in _DECIMAL:
        cursor.take()
        return _decimal(cursor)
    if token.word == "ARRAY":
        cursor.take()
        cursor.expect("<")
        item = column_type(cursor)
        cursor.expect(">")
        return pa.list_(item)
    if token.word == "STRUCT":
        cursor.take()
        return _struct(cursor)
    cursor.refuse(TYPES)


def _decimal(cursor: Cursor) -> pa.DataType:
    precision, scale = 10, 0  # Spark's defaults
    if cursor.took("("):
        at = cursor.span
        precision = cursor.whole_number()
        scale = cursor.whole_number() if cursor.took(",") else 0
        cursor.expect(")")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            why = "no decimal has this precision and scale"
            raise cursor.text.refused(at, why, f"DECIMAL(precision, scale), of at most {_MOST_DIGITS} digits")
    return pa.decimal128(precision, scale)


def _struct(cursor: Cursor) -> pa.DataType:
    cursor.expect("<")
    fields = []
    while True:
        name = cursor.name("a field's name")
        cursor.took(":")
        fields.append(pa.field(name.value, column_type(cursor)))
        if not cursor.took(","):
            break
    cursor.expect(">")
    return pa.struct(fields)
