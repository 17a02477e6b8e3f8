"""A table's columns: Delta's types as Arrow's, partition values from their texts, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Schema

from streamjoin_ds.delta.columns import check_protocol, partition_value, table_columns
from streamjoin_ds.errors import TableError

NANO = pa.timestamp("us", tz="UTC")


def metadata(fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"schemaString": json.dumps({"type": "struct", "fields": fields}), **more}


def test_types_are_those_of_delta_rs() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            ("b", pa.int8()),
            ("c", pa.float32()),
            ("d", pa.decimal128(12, 3)),
            ("e", pa.date32()),
            ("f", NANO),
            ("g", pa.timestamp("us")),
            ("h", pa.binary()),
            ("i", pa.bool_()),
            ("j", pa.struct([("x", pa.list_(pa.field("element", pa.string())))])),
        ]
    )
    told = {"schemaString": Schema.from_arrow(schema).to_json()}
    assert table_columns(told, "t").schema == schema


def test_a_column_of_an_unknown_type_is_left_out() -> None:
    fields = [{"name": "v", "type": "variant", "nullable": True}, {"name": "n", "type": "long", "nullable": True}]
    assert table_columns(metadata(fields), "t").schema.names == ["n"]


def test_columns_may_have_other_names_in_the_files() -> None:
    physical = {"delta.columnMapping.physicalName": "col-1"}
    nested = {"type": "struct", "fields": []}
    fields = [
        {"name": "n", "type": "long", "nullable": True, "metadata": physical},
        {"name": "s", "type": nested, "nullable": True, "metadata": physical},
    ]
    configuration = {"delta.columnMapping.mode": "name"}
    columns = table_columns(metadata(fields, configuration=configuration, partitionColumns=["n"]), "t")
    assert columns.physical == {"n": "col-1", "s": ""}
    assert columns.partition == ("n",)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12", pa.int16(), 12),
        ("-1.5", pa.float64(), -1.5),
        ("true", pa.bool_(), True),
        ("a b", pa.string(), "a b"),
        ("", pa.string(), None),
        (None, pa.int64(), None),
        ("12.345", pa.decimal128(12, 3), pa.scalar("12.345").cast(pa.decimal128(12, 3)).as_py()),
        ("2024-01-31", pa.date32(), pa.scalar("2024-01-31").cast(pa.date32()).as_py()),
        ("2024-01-31 10:00:00.25", NANO, pa.scalar("2024-01-31T10:00:00.25Z").cast(NANO).as_py()),
        ("2024-01-31T10:00:00.25Z", NANO, pa.scalar("2024-01-31T10:00:00.25Z").cast(NANO).as_py()),
    ],
)
def test_a_partitions_value_is_read_from_its_text(text: str | None, kind: pa.DataType, value: object) -> None:
    found = partition_value(text, kind)
    assert found.type == kind
    assert found.as_py() == value


@pytest.mark.parametrize(
    ("protocol", "configuration", "says"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "variantType"]}, {}, "variantType"),
        ({"minReaderVersion": 4}, {}, "version 4"),
        ({"minReaderVersion": 2}, {"delta.columnMapping.mode": "id"}, "by id"),
    ],
)
def test_what_needs_another_reader_is_refused(protocol: Any, configuration: Any, says: str) -> None:
    with pytest.raises(TableError, match=says):
        check_protocol(protocol, {"configuration": configuration}, "t")
    check_protocol({"minReaderVersion": 3, "readerFeatures": ["timestampNtz"]}, {}, "t")
