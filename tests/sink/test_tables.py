from __future__ import annotations

import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError, TableError
from streamjoin_ds.sink.snapshot import LogSnapshot
from streamjoin_ds.sink.tables import TableSet, check_match_schema
from streamjoin_ds.sink.writer import FileReport

from .conftest import MATCH_SCHEMA


def test_tables_are_siblings():
    tables = TableSet("/data/m/")
    assert tables.root == tables.matches == "/data/m"
    assert [tables.path_of(name) for name in TableSet.names()] == [
        "/data/m_late",
        "/data/m_rejects",
        "/data/m_ledger",
        "/data/m_metrics",
        "/data/m",
        "/data/m_punctuations",
    ]
    with pytest.raises(ArgumentError):
        tables.path_of("root")


@pytest.mark.parametrize(
    ("root", "matches"),
    [
        ("file:///data/a b", "/data/a b"),
        ("/data/100%", "/data/100%"),
        ("file:/data/x", "/data/x"),
        ("relative", f"{os.getcwd()}/relative"),
        ("s3://bucket/x/", "s3://bucket/x"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ],
)
def test_local_paths_become_absolute_and_others_stay(root, matches):
    assert TableSet(root).matches == matches


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("", "empty"),
        ("/", "the root folder"),
        ("a\nb", "a control character"),
        ("a\x00b", "a control character"),
        ("s3://", "the root folder"),
        ("file://nas/x", "another host"),
        ("file:///a%20b", "a percent sign"),
        ("/a%20b", "a percent sign"),
    ],
)
def test_paths_that_name_no_table_are_refused(root, why):
    with pytest.raises(ArgumentError, match=why):
        TableSet(root)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a b", pa.int64()),
        ("a=b", pa.int64()),
        ("R_SEQ", pa.int64()),
        ("", pa.int64()),
        ("u", pa.uint64()),
        ("t", pa.time64("us")),
        ("ns", pa.timestamp("ns", "UTC")),
        ("zone", pa.timestamp("us", "Europe/Zurich")),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.list_(pa.uint64())),
        ("s", pa.struct([("a", pa.uint64())])),
        ("none", pa.struct([])),
        ("blank", pa.struct([("a b", pa.int64())])),
        ("twice", pa.list_(pa.struct([("a", pa.int64()), ("A", pa.int64())]))),
    ],
)
def test_columns_that_delta_cannot_hold_are_refused(name, kind):
    with pytest.raises(ColumnError) as raised:
        check_match_schema(MATCH_SCHEMA.append(pa.field(name, kind)))
    assert raised.value.name == name


def test_lists_and_structs_of_plain_values_are_held(tmp_path):
    kinds = pa.int64(), pa.string(), pa.decimal128(9, 2), pa.timestamp("us", "UTC"), pa.list_(pa.float64())
    schema = MATCH_SCHEMA
    for number, kind in enumerate(kinds):
        schema = schema.append(pa.field(f"l{number}", pa.list_(kind)))
        schema = schema.append(pa.field(f"s{number}", pa.struct([("a", kind), ("b", pa.list_(kind))])))
    check_match_schema(schema)
    write_deltalake(str(tmp_path), schema.empty_table())
    assert pa.schema(DeltaTable(str(tmp_path)).schema().to_arrow()).types == schema.types


@pytest.mark.parametrize("name", ["event_time", "batch_id"])
@pytest.mark.parametrize("change", ["missing", "nullable", "type"])
def test_event_time_and_batch_id_are_required(name, change):
    schema = MATCH_SCHEMA
    position = schema.get_field_index(name)
    if change == "missing":
        schema = schema.remove(position)
    else:
        kind = pa.float64() if change == "type" else schema.field(name).type
        schema = schema.set(position, pa.field(name, kind, nullable=change == "nullable"))
    with pytest.raises(ColumnError) as raised:
        check_match_schema(schema)
    assert raised.value.name == name


def test_new_tables_have_the_plain_protocol_and_the_identity(join, committer):
    for name in TableSet.names():
        table = DeltaTable(join.tables.path_of(name))
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert not protocol.reader_features
        assert not protocol.writer_features
        properties = table.metadata().configuration
        assert properties["streamjoin.joinId"] == "join-1"
        assert properties["streamjoin.fingerprint"] == "f1"
    matches = DeltaTable(join.tables.matches)
    assert [(field.name, field.nullable) for field in matches.schema().fields] == [
        (field.name, field.nullable) for field in MATCH_SCHEMA
    ]


def test_a_table_of_someone_else_is_refused(join):
    write_deltalake(join.tables.matches, pa.table({"a": [1]}))
    with pytest.raises(TableError, match="not made by a join"):
        join.committer()
    assert not os.path.exists(join.tables.ledger)


def test_a_folder_with_files_is_refused(join):
    os.makedirs(join.tables.matches)
    with open(f"{join.tables.matches}/thesis.txt", "w") as file:
        file.write("all my work")
    with pytest.raises(TableError, match="holds files"):
        join.committer()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda s: s.remove(1), "r_x"),
        (lambda s: s.append(pa.field("z", pa.int64())), "z"),
        (lambda s: s.set(1, pa.field("r_x", pa.int64(), nullable=False)), "r_x"),
        (lambda s: s.set(1, pa.field("r_x", pa.int32())), "r_x"),
        (lambda s: pa.schema([s.field(1), s.field(0), *list(s)[2:]]), "r_x"),  # r_x is the first column out of place
    ],
)
def test_other_columns_are_refused_by_name(join, committer, change, name):
    with pytest.raises(TableError) as raised:
        join.committer(schema=change(MATCH_SCHEMA))
    assert raised.value.name == name


def test_required_rows_fit_a_table_that_allows_nulls(join):
    join.committer(schema=MATCH_SCHEMA.set(1, pa.field("r_x", pa.int32())))
    assert join.commit(join.committer(), 0).committed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.setTransactionRetentionDuration", "interval 1 days"),
        ("delta.columnMapping.mode", "name"),
        ("delta.constraints.positive", "r_x > 0"),
    ],
)
def test_properties_that_this_writer_cannot_honour_are_refused(join, committer, key, value):
    from streamjoin_ds.sink import guard

    table = LogSnapshot(join.tables.matches)
    table._metadata["configuration"] = {**table.configuration, key: value}
    with pytest.raises(TableError) as raised:
        guard.check_table(table, join.tables.matches, MATCH_SCHEMA, guard.TableIdentity("join-1", "f1"))
    assert raised.value.name == key
    assert "with delta-spark" in raised.value.hint


def test_a_check_constraint_is_refused(join, committer):
    DeltaTable(join.tables.matches).alter.add_constraint({"positive": "r_x >= 0"})
    with pytest.raises(TableError, match="constraint"):
        join.committer()


@given(rows=st.integers(1, 2**62), size=st.integers(1, 2**62), table=st.sampled_from(["matches", "late", "rejects"]))
def test_reports_survive_their_json(rows, size, table):
    report = FileReport(table, "batch-0-c-1.parquet", rows, size, '{"numRecords":1}')
    assert FileReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table", "ledger"),
        ("path", "../x.parquet"),
        ("path", "a/b.parquet"),
        ("path", "/x.parquet"),
        ("path", "x.csv"),
        ("path", "_x.parquet"),
        ("path", 5),
        ("rows", 0),
        ("rows", True),
        ("rows", 1.0),
        ("size_bytes", -1),
        ("stats", "[]"),
        ("stats", "{"),
        ("stats", None),
    ],
)
def test_malformed_reports_are_refused(field, value):
    good = {"table": "matches", "path": "x.parquet", "rows": 1, "size_bytes": 1, "stats": "{}"}
    FileReport(**good)
    with pytest.raises(ArgumentError) as raised:
        FileReport(**{**good, field: value})
    assert raised.value.name == field


@pytest.mark.parametrize("text", ["", "null", "[]", '{"table": "matches"}', "\xff"])
def test_text_that_is_no_report_is_refused(text):
    with pytest.raises(ArgumentError):
        FileReport.from_json(text)
