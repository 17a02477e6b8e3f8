from __future__ import annotations

import errno
import json
import math
import os

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs, parquet

from streamjoin_ds.errors import ArgumentError, ColumnError, TableWriteError
from streamjoin_ds.sink.tables import TIMESTAMP
from streamjoin_ds.sink.writer import SMALL_ROWS, WRITING_FOLDER, FileStatistics, TableWriter
from tests.support.examples import examples

from .conftest import MATCH_SCHEMA, match_rows


def writer_in(folder, schema=MATCH_SCHEMA, **options):
    return TableWriter(str(folder), schema, **{"table": "matches", "batch_id": 3, "label": "c0", **options})


def read_back(folder, reports, schema=MATCH_SCHEMA):
    return pa.concat_tables([parquet.read_table(f"{folder}/{report.path}") for report in reports]).cast(schema)


def test_rows_come_back(tmp_path):
    with writer_in(tmp_path) as writer:
        writer.write(match_rows(3))
        writer.write(match_rows(3).to_batches()[0])
        reports = writer.close()
    assert [report.rows for report in reports] == [10]
    assert reports[0].size_bytes == os.path.getsize(tmp_path / reports[0].path)
    assert reports[0].path.startswith("batch-00000003-c0-")
    assert read_back(tmp_path, reports).equals(pa.concat_tables([match_rows(3)] * 2))
    assert os.listdir(tmp_path / WRITING_FOLDER) == []


@examples(30)
@given(
    sizes=st.lists(st.integers(0, 40), max_size=8),
    rows_per_file=st.integers(1, 50),
    small_rows=st.integers(1, 30),
)
def test_every_split_into_files_keeps_rows_and_order(tmp_path_factory, sizes, rows_per_file, small_rows):
    folder = tmp_path_factory.mktemp("split")
    rows = match_rows(3, rows=sum(sizes) + 1).slice(0, sum(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamjoin_ds.sink.writer.SMALL_ROWS", small_rows)
        with writer_in(folder, rows_per_file=rows_per_file, durable=False) as writer:
            offset = 0
            for size in sizes:
                writer.write(rows.slice(offset, size))
                offset += size
            reports = writer.close()
    total = sum(sizes)
    full, rest = divmod(total, rows_per_file)
    assert [report.rows for report in reports] == [rows_per_file] * full + [rest] * (rest > 0)
    if total:
        assert read_back(folder, reports).equals(rows)
    for report in reports:
        stats = json.loads(report.stats)
        assert stats["numRecords"] == report.rows
        times = parquet.read_table(folder / report.path).column("event_time").to_pylist()
        assert stats["minValues"]["event_time"] == f"{min(times):%Y-%m-%dT%H:%M:%S.%f}Z"
        assert stats["maxValues"]["event_time"] == f"{max(times):%Y-%m-%dT%H:%M:%S.%f}Z"


def test_no_rows_no_file(tmp_path):
    with writer_in(tmp_path) as writer:
        writer.write(match_rows(3).slice(0, 0))
        assert writer.close() == []
        assert writer.close() == []
    assert [name for name in os.listdir(tmp_path) if name.endswith(".parquet")] == []


@pytest.mark.parametrize("rows", [10, SMALL_ROWS])
def test_buffers_may_be_used_again_after_write(tmp_path, rows):
    schema = pa.schema(
        [
            pa.field("r_seq", pa.int64(), nullable=False),
            pa.field("event_time", TIMESTAMP, nullable=False),
            pa.field("batch_id", pa.int64(), nullable=False),
        ]
    )
    buffer = np.arange(rows)
    with writer_in(tmp_path, schema) as writer:
        for start in (0, 1000):
            buffer[:] = np.arange(start, start + rows)
            times = pa.array(buffer).view(TIMESTAMP)
            writer.write(pa.table([pa.array(buffer), times, pa.array(np.full(rows, 3))], schema=schema))
        buffer[:] = -1
        reports = writer.close()
    found = read_back(tmp_path, reports, schema).column("r_seq").to_numpy()
    assert np.array_equal(found, np.concatenate([np.arange(rows), np.arange(1000, 1000 + rows)]))


@pytest.mark.parametrize("after_rows", [0, 5, 25])
def test_files_of_a_failed_writer_are_removed(tmp_path, after_rows, monkeypatch):
    def fail(writer):
        for _ in range(after_rows // 5):
            writer.write(match_rows(3))
        raise InterruptedError

    monkeypatch.setattr("streamjoin_ds.sink.writer.SMALL_ROWS", 1)
    with pytest.raises(InterruptedError), writer_in(tmp_path, rows_per_file=7) as writer:
        fail(writer)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ArgumentError, match="closed"):
        writer.write(match_rows(3))


@pytest.mark.parametrize("kind", [pa.int64(), pa.binary()], ids=["own pages", "pyarrow"])
def test_what_a_disk_refuses_at_a_file_s_end_is_told_by_name(tmp_path, monkeypatch, kind):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    writer = TableWriter(str(tmp_path), pa.schema([("x", kind)]), table="matches", batch_id=0, label="l", durable=True)
    writer.write(pa.table({"x": pa.nulls(10, kind)}))
    monkeypatch.setattr("streamjoin_ds.sink.writer.force", refuse)
    with pytest.raises(TableWriteError, match="Input/output error"):
        writer.close()
    assert not [*tmp_path.rglob("*.parquet")]


def test_two_attempts_have_two_names(tmp_path):
    names = set()
    for _ in range(2):
        with writer_in(tmp_path) as writer:
            writer.write(match_rows(3))
            names |= {report.path for report in writer.close()}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda t: t.drop_columns(["r_x"]), "r_x"),
        (lambda t: t.append_column("z", t.column("r_x")), "z"),
        (lambda t: t.select(["r_x", "r_seq", "s_seq", "s_name", "event_time", "batch_id"]), "r_seq"),
        (lambda t: t.set_column(1, "r_x", t.column("r_x").cast(pa.int64())), "r_x"),
        (lambda t: t.set_column(1, "r_x", pa.array([None, 1, 2, 3, 4], pa.int32())), "r_x"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_lost(tmp_path, change, name):
    rows = match_rows(3)
    with writer_in(tmp_path) as writer:
        writer.write(rows)
        with pytest.raises(ColumnError) as raised:
            writer.write(change(rows))
        writer.write(rows)
        reports = writer.close()
    assert raised.value.name == name
    assert read_back(tmp_path, reports).equals(pa.concat_tables([rows, rows]))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"table": "ledger"}, "table"),
        ({"label": "../x"}, "label"),
        ({"rows_per_file": 0}, "rows_per_file"),
        ({"batch_id": -1}, "batch_id"),
    ],
)
def test_arguments_are_checked(tmp_path, options, name):
    with pytest.raises((ArgumentError, ColumnError)) as raised:
        writer_in(tmp_path, **options)
    assert raised.value.name == name


def test_floats_keep_nan_infinity_and_negative_zero(tmp_path):
    schema = pa.schema([pa.field("x", pa.float64()), *[MATCH_SCHEMA.field(n) for n in ("event_time", "batch_id")]])
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, None]
    rows = pa.table([pa.array(values), pa.array([7] * 6, TIMESTAMP), pa.array([3] * 6)], schema=schema)
    with writer_in(tmp_path, schema) as writer:
        writer.write(rows)
        reports = writer.close()
    found = read_back(tmp_path, reports, schema).column("x")
    assert found.null_count == 1
    assert np.array_equal(
        np.array(found.to_pylist()[:5]).view(np.int64), np.array(values[:5], np.float64).view(np.int64)
    )
    assert "x" not in json.loads(reports[0].stats)["minValues"]


def encodings(path) -> dict[str, str]:
    """Return how each column of a file lies in it: lz4, packed, dictionary or plain."""
    group = parquet.ParquetFile(path).metadata.row_group(0)
    found = {}
    for column in map(group.column, range(group.num_columns)):
        is_packed = "DELTA_BINARY_PACKED" in column.encodings
        plain = "dictionary" if column.has_dictionary_page else "packed" if is_packed else "plain"
        found[column.path_in_schema] = plain if column.compression == "UNCOMPRESSED" else "lz4"
    return found


def probed(rows: int, *, newer: str) -> pa.Table:
    """Return matches of which five each have one tuple of the stream that probes; the others lie in any order."""
    older = "s" if newer == "r" else "r"
    chance = np.random.default_rng(rows)
    probe, window = np.arange(rows) // 5, chance.integers(0, 3_000_000, rows)
    columns = {f"{newer}_seq": probe, f"{older}_seq": window, f"{newer}_x": probe % 97, f"{older}_x": window % 997}
    times = pa.array(1_700_000_000_000_000 + probe * 200).cast(TIMESTAMP)
    table = {name: pa.array(columns[name]) for name in ("r_seq", "r_x", "s_seq", "s_x")}
    texts = pa.array([None if n % 3 == 0 else f"name {n}" for n in range(rows)])
    noise = pa.array(chance.random(rows))
    return pa.table({**table, "s_name": texts, "noise": noise, "event_time": times, "batch_id": pa.array([3] * rows)})


def test_columns_in_runs_are_compressed_and_numbers_of_a_range_are_packed(tmp_path):
    rows = probed(1_000, newer="r")
    with writer_in(tmp_path, rows.schema) as writer:
        writer.write(rows)
        reports = writer.close()
    (report,) = reports
    assert encodings(tmp_path / report.path) == {
        "r_seq": "lz4", "r_x": "lz4", "s_seq": "packed", "s_x": "packed", "s_name": "dictionary", "noise": "plain",
        "event_time": "lz4", "batch_id": "lz4",
    }  # fmt: skip
    group = parquet.ParquetFile(tmp_path / report.path).metadata.row_group(0)
    stated = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).is_stats_set}
    assert stated == {"event_time"}


def test_a_large_file_ends_where_the_other_stream_probes(tmp_path, monkeypatch):
    monkeypatch.setattr("streamjoin_ds.sink.writer._LEAST_ROWS", 100_000)
    monkeypatch.setattr("streamjoin_ds.sink.writer.holds", lambda schema, rows: False)
    tables = [probed(1 << 16, newer=newer) for newer in "rrss"]
    with writer_in(tmp_path, tables[0].schema) as writer:
        for table in tables:
            writer.write(table)
        reports = writer.close()
    assert [report.rows for report in reports] == [2 << 16] * 2
    found = [encodings(tmp_path / report.path) for report in reports]
    assert [(one["r_seq"], one["s_seq"]) for one in found] == [("lz4", "packed"), ("packed", "lz4")]
    assert read_back(tmp_path, reports, tables[0].schema).equals(pa.concat_tables(tables))


_WHOLE = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


def numbers(seeds: dict[str, int], rows: int, bits: int, *, has_nulls: bool) -> pa.Table:
    """Return whole numbers of some widths within a range of so many bits, times and dates."""
    columns = {}
    for name, seed in seeds.items():
        width = min(bits, _WHOLE[name] - 2)
        values = np.random.default_rng(seed).integers(-(2**width), 2**width, rows).astype(f"int{_WHOLE[name]}")
        columns[name] = pa.array(values, mask=np.arange(rows) % 4 == 1 if has_nulls else None)
    times = np.arange(rows) * 977 % 7_919_000
    columns["at"] = pa.array(times).cast(TIMESTAMP)
    columns["day"] = pa.array((times % 9).astype("i4")).cast(pa.date32())
    return pa.table({**columns, "batch_id": pa.array([3] * rows)})


def written(folder, table: pa.Table) -> str:
    with TableWriter(str(folder), table.schema, table="matches", batch_id=3, label="0") as writer:
        writer.write(table)
        (report,) = writer.close()
    return f"{folder}/{report.path}"


@examples(30)
@given(
    st.dictionaries(st.sampled_from(sorted(_WHOLE)), st.integers(0, 2**32), min_size=1),
    st.integers(1, 300),
    st.integers(0, 62),
    st.booleans(),
)
def test_every_reader_reads_what_was_written(tmp_path_factory, seeds, rows, bits, has_nulls):
    table = numbers(seeds, rows, bits, has_nulls=has_nulls)
    path = written(folder := tmp_path_factory.mktemp("table"), table)
    assert parquet.ParquetFile(path).read().equals(table)
    connection = duckdb.connect()
    connection.sql("SET TimeZone = 'UTC'")
    assert connection.sql(f"SELECT * FROM '{path}'").to_arrow_table().cast(table.schema).equals(table)
    convert_to_deltalake(str(folder))
    rust = QueryBuilder().register("t", DeltaTable(str(folder))).execute("SELECT * FROM t").read_all()
    assert pa.table(rust).select(table.column_names).cast(table.schema).equals(table)


@pytest.mark.spark
def test_spark_reads_what_was_written(spark, tmp_path):
    table = numbers(dict.fromkeys(_WHOLE, 7), 5_000, 20, has_nulls=True)
    path = written(tmp_path, table)
    assert {"packed"} <= set(encodings(path).values())
    found = pa.Table.from_batches(spark.read.parquet(path).toArrow().to_batches())
    assert found.cast(table.schema).equals(table)


@pytest.mark.parametrize(
    ("values_us", "smallest", "largest"),
    [
        ([0, 1, -1], "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00.000001Z"),
        ([1_700_000_000_123_456], "2023-11-14T22:13:20.123456Z", "2023-11-14T22:13:20.123456Z"),
        ([2**63 - 1, 0], None, None),
        ([-(2**63), 0], None, None),
        (
            [253_402_300_799_999_999, -62_135_596_800_000_000],
            "0001-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
        ),
        ([None, None], None, None),
    ],
)
def test_statistics_bound_the_times_exactly(values_us, smallest, largest):
    schema = pa.schema([pa.field("event_time", TIMESTAMP)])
    statistics = FileStatistics(schema)
    statistics.add(pa.table([pa.array(values_us, TIMESTAMP)], schema=schema))
    found = json.loads(statistics.to_json())
    assert found["minValues"].get("event_time") == smallest
    assert found["maxValues"].get("event_time") == largest
    assert found["nullCount"] == {"event_time": values_us.count(None)}
    assert found["numRecords"] == len(values_us)


def test_an_object_store_is_written_without_renaming(tmp_path, monkeypatch):
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr("streamjoin_ds.sink.writer.filesystem_of", lambda path: (store, "bucket/table"))
    with writer_in("s3://bucket/table") as writer:
        writer.write(match_rows(3))
        reports = writer.close()
    assert read_back(tmp_path / "bucket" / "table", reports).equals(match_rows(3))
    assert os.listdir(tmp_path / "bucket" / "table") == [reports[0].path]
    with writer_in("s3://bucket/table") as writer:
        writer.write(match_rows(3))
        writer.abort()
    assert os.listdir(tmp_path / "bucket" / "table") == [reports[0].path]
