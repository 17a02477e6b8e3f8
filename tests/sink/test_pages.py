"""Files whose pages are filled here: pyarrow, DuckDB, Polars, delta-rs and Spark read what was written."""

from __future__ import annotations

import contextlib
import io

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from streamjoin_ds.sink import pages
from streamjoin_ds.sink.pages import PageFile
from streamjoin_ds.sink.tables import TIMESTAMP
from streamjoin_ds.sink.writer import TableWriter
from tests.support.examples import examples

_TYPES = {
    "bool": (pa.bool_(), np.int8, (0, 1)),
    "i8": (pa.int8(), np.int8, None),
    "i16": (pa.int16(), np.int16, None),
    "i32": (pa.int32(), np.int32, None),
    "i64": (pa.int64(), np.int64, None),
    "f32": (pa.float32(), np.int32, None),
    "f64": (pa.float64(), np.int64, None),
    "day": (pa.date32(), np.int32, (-700_000, 2_900_000)),
    "event_time": (TIMESTAMP, np.int64, (-62_135_596_800_000_000, 253_402_300_799_999_999)),
    "local": (pa.timestamp("us"), np.int64, (-62_135_596_800_000_000, 253_402_300_799_999_999)),
}
_TEXTS = {"text": (pa.string(), np.int16, None), "raw": (pa.binary(), np.int64, None)}
_TYPES |= _TEXTS
_SHAPES = ("random", "runs", "one", "near", "ends")


def column(name: str, shape: str, rows: int, seed: int, *, has_nulls: bool) -> pa.Array:
    """Return values of a type, any bits of it among the floats, in some order; the nulls hide values."""
    kind, bits, limits = _TYPES[name]
    least, most = limits or (np.iinfo(bits).min, np.iinfo(bits).max)
    chance = np.random.default_rng(seed)
    values = chance.integers(least, most, max(rows, 1), dtype=bits, endpoint=True)
    if shape == "runs":
        values = np.repeat(values, chance.integers(1, 2 + seed % 200, len(values)))
    elif shape == "one":
        values[:] = values[0]
    elif shape == "near":
        values = np.sort(values) if seed % 2 else values // 100
    elif shape == "ends":
        values = chance.choice(np.array([least, most], bits), len(values))
    values = values[:rows]
    array = pa.array(values, pa.from_numpy_dtype(bits))
    if name in _TEXTS:  # some of them empty, some not ASCII
        texts = ["" if value % 7 == 0 else f"\u20ac{value}" * (value % 3) for value in values.tolist()]
        array = pa.array(texts, pa.string()).cast(kind)
    else:
        array = array.cast(kind) if kind == pa.bool_() else array.view(kind)
    mask = pa.array(chance.random(rows) < chance.choice([0.02, 0.5, 1.0]))
    return pa.compute.if_else(mask, pa.scalar(None, kind), array) if has_nulls else array


_COLUMN = st.tuples(st.sampled_from(_SHAPES), st.integers(0, 2**32), st.sampled_from(["required", "known", "nulls"]))
_ROWS = st.sampled_from([1, 2, 31, 128, 129, 130, 300, 1_000, 5_000])


@st.composite
def tables(draw, rows=_ROWS) -> pa.Table:
    """Return a table of any of the types, cut out of a larger one, in one chunk or in several."""
    columns = draw(st.dictionaries(st.sampled_from(sorted(_TYPES)), _COLUMN, min_size=1))
    count, before = draw(rows), draw(st.sampled_from([0, 1, 13]))
    fields, arrays = [], []
    for name, (shape, seed, nulls) in columns.items():
        fields.append(pa.field(name, _TYPES[name][0], nullable=nulls != "required"))
        arrays.append(column(name, shape, before + count, seed, has_nulls=nulls == "nulls").slice(before))
    table = pa.table(arrays, schema=pa.schema(fields))
    cut = draw(st.integers(0, count))
    return table if draw(st.booleans()) else pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def file_of(table: pa.Table, row_group_rows: int = 1 << 20) -> bytes:
    stream = io.BytesIO()
    file = PageFile(stream, table.schema)
    file.write_table(table, row_group_rows)
    file.close()
    return stream.getvalue()


def bits_of(table: pa.Table, *, any_nan: bool = False) -> pa.Table:
    """Return a table with floats as their bits: NaN equals itself, and 0.0 is not -0.0. `any_nan`: NaN has one form."""
    columns = []
    for one in table.columns:
        array = one.combine_chunks() if one.num_chunks != 1 else one.chunk(0)
        if pa.types.is_floating(array.type):
            if any_nan:
                array = pa.compute.if_else(pa.compute.is_nan(array), pa.scalar(float("nan"), array.type), array)
            array = array.view(f"int{array.type.bit_width}")
        columns.append(array)
    return pa.table(columns, names=table.column_names)


@examples(200)
@given(tables(), st.sampled_from([1 << 20, 100, 128, 333]))
def test_pyarrow_reads_every_bit(table, row_group_rows):
    data = file_of(table, row_group_rows)
    file = parquet.ParquetFile(io.BytesIO(data))
    assert bits_of(file.read()).equals(bits_of(table))
    assert file.schema_arrow.equals(table.schema)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [
        min(row_group_rows, table.num_rows - first) for first in range(0, table.num_rows, row_group_rows)
    ]
    assert data == file_of(table.combine_chunks(), row_group_rows), "the bytes follow from the rows"


@examples(60)
@given(tables(), st.sampled_from([1 << 20, 100]))
def test_schema_and_statistics_are_those_that_pyarrow_writes(table, row_group_rows):
    stream = io.BytesIO()
    with parquet.ParquetWriter(
        stream, table.schema, version="2.6", store_schema=False, write_statistics=["event_time"]
    ) as writer:
        writer.write_table(table, row_group_size=row_group_rows)
    theirs = parquet.ParquetFile(stream)
    ours = parquet.ParquetFile(io.BytesIO(file_of(table, row_group_rows)))
    assert ours.schema.equals(theirs.schema)
    assert str(ours.schema).split("\n")[1:] == str(theirs.schema).split("\n")[1:]
    assert ours.metadata.num_rows == theirs.metadata.num_rows
    for group in map(ours.metadata.row_group, range(ours.num_row_groups)):
        columns = [group.column(at) for at in range(group.num_columns)]
        assert group.total_byte_size == sum(one.total_uncompressed_size for one in columns)
    for group in range(theirs.num_row_groups):
        for at in range(len(table.schema)):
            found, wanted = (one.metadata.row_group(group).column(at) for one in (ours, theirs))
            assert found.is_stats_set == wanted.is_stats_set
            if wanted.is_stats_set:
                facts = ("has_min_max", "min", "max", "null_count", "num_values")
                for fact in facts:
                    assert getattr(found.statistics, fact) == getattr(wanted.statistics, fact), fact


def check_readers(folder, table: pa.Table, row_group_rows: int) -> None:
    table = table.append_column("row", pa.array(np.arange(table.num_rows)))  # delta-rs reads row groups side by side
    path = folder / "batch.parquet"
    path.write_bytes(file_of(table, row_group_rows))
    wanted = bits_of(table, any_nan=True)

    def check(found: pa.Table, reader: str) -> None:
        found = found.select(table.column_names).cast(table.schema)
        assert bits_of(found, any_nan=True).equals(wanted), reader

    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        check(connection.sql(f"SELECT * FROM '{path}'").to_arrow_table(), "DuckDB")
    with contextlib.suppress(ImportError):  # it is no package of the tests: where it is there, it reads too
        import polars

        check(polars.read_parquet(path).to_arrow(), "Polars")
    convert_to_deltalake(str(folder))
    rust = QueryBuilder().register("t", DeltaTable(str(folder))).execute("SELECT * FROM t ORDER BY row").read_all()
    check(pa.table(rust), "delta-rs")


@examples(40)
@given(tables(), st.sampled_from([1 << 20, 100, 333]))
def test_duckdb_polars_and_delta_rs_read_what_was_written(tmp_path_factory, table, row_group_rows):
    check_readers(tmp_path_factory.mktemp("table"), table, row_group_rows)


@pytest.mark.long
@examples(3_000)
@given(tables(st.integers(1, 200_000)), st.integers(100, 1 << 20))
def test_readers_of_large_tables(tmp_path_factory, table, row_group_rows):
    folder = tmp_path_factory.mktemp("table")
    assert bits_of(parquet.read_table(io.BytesIO(file_of(table, row_group_rows)))).equals(bits_of(table))
    check_readers(folder, table, max(row_group_rows, table.num_rows // 20 + 1))


@pytest.mark.spark
def test_spark_reads_what_was_written(spark, tmp_path):
    kinds = ("required", "known", "nulls")
    wanted = {}
    for number, name in enumerate(_TYPES):
        for shape in _SHAPES:
            wanted[f"{name}_{shape}"] = column(name, shape, 20_000, number, has_nulls=kinds[number % 3] == "nulls")
    table = pa.table(wanted)
    (tmp_path / "a.parquet").write_bytes(file_of(table, 6_000))
    found = pa.Table.from_batches(spark.read.parquet(str(tmp_path)).toArrow().to_batches())
    assert bits_of(found.cast(table.schema), any_nan=True).equals(bits_of(table, any_nan=True))


@pytest.mark.parametrize("rows", [10_000, 40_000])  # by all values; a sample rules forms out
def test_each_column_of_each_row_group_takes_the_shortest_form(rows):
    chance = np.random.default_rng(1)
    probe = np.arange(rows) // 19
    table = pa.table(
        {
            "probe": probe * 1_000_003,
            "window": chance.integers(10**12, 10**12 + 1_000_000, rows),
            "noise": chance.random(rows),
            "held": np.repeat(chance.random(rows // 19 + 1), 19)[:rows],
            "event_time": pa.array(probe * 200).cast(TIMESTAMP),
            "batch_id": np.full(rows, 3),
        }
    )
    table = pa.concat_tables([table, table.rename_columns(table.column_names).set_column(0, "probe", table["window"])])
    metadata = parquet.ParquetFile(io.BytesIO(file_of(table, rows))).metadata
    found = []
    for group in range(metadata.num_row_groups):
        columns = [metadata.row_group(group).column(at) for at in range(6)]
        found.append({one.path_in_schema: (one.encodings[-1], one.total_compressed_size / rows) for one in columns})
    forms = [{name: form for name, (form, _) in group.items()} for group in found]
    assert forms[0] == {
        "probe": "RLE_DICTIONARY", "window": "DELTA_BINARY_PACKED", "noise": "RLE", "held": "RLE_DICTIONARY",
        "event_time": "RLE_DICTIONARY", "batch_id": "RLE_DICTIONARY",
    }  # fmt: skip
    assert forms[1]["probe"] == "DELTA_BINARY_PACKED", "where the other stream probes, the form changes"
    assert sum(size for _, size in found[0].values()) < 8 + 2.8 + 3 * 0.65 + 0.1


def test_a_sample_that_shows_nothing_of_the_others_does_no_harm():
    values = np.random.default_rng(2).integers(0, 1 << 20, 50_000)
    values[23_000:30_000] = 7
    file = file_of(pa.table({"x": values}))
    assert np.array_equal(parquet.read_table(io.BytesIO(file))["x"].to_numpy(), values)
    assert len(file) < 3 * len(values), "differences of 21 bits"


def test_buffers_of_others_may_lie_askew():
    buffer = pa.py_buffer(bytes(range(1, 82))).slice(1)
    table = pa.table({"x": pa.Array.from_buffers(pa.int64(), 10, [None, buffer])})
    assert buffer.address % 8
    assert parquet.read_table(io.BytesIO(file_of(table))).equals(table)


def test_a_file_without_rows_has_its_columns():
    schema = pa.schema([(name, kind) for name, (kind, _, _) in _TYPES.items()])
    stream = io.BytesIO()
    PageFile(stream, schema).close()
    found = parquet.read_table(io.BytesIO(stream.getvalue()))
    assert found.schema.equals(schema)
    assert found.num_rows == 0
    assert duckdb.connect().from_arrow(found).fetchall() == []


@pytest.mark.parametrize("name", ["lengths_8", "lengths_huge"])
def test_runs_of_any_length(name):
    lengths = [1] * 3 + [7, 8, 9, 63, 64, 65, 8191, 8192, 8193] if name == "lengths_8" else [3_000_000, 1, 2]
    table = pa.table({"x": np.repeat(np.arange(len(lengths)) * 10**15, lengths)})
    assert parquet.read_table(io.BytesIO(file_of(table, 1 << 22))).equals(table)


def written_by(folder, schema: pa.Schema, rows: int) -> str:
    table = pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)
    with TableWriter(str(folder), schema, table="matches", batch_id=3, label="0", durable=False) as writer:
        writer.write(table)
        writer.write(table.slice(0, 5))
        (report,) = writer.close()
    assert parquet.read_table(folder / report.path).cast(schema).equals(pa.concat_tables([table, table.slice(0, 5)]))
    return parquet.ParquetFile(folder / report.path).metadata.created_by.split(" version")[0]


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.list_(pa.int64()), pa.timestamp("ms"), pa.uint32()])
def test_other_types_are_written_by_pyarrow(kind, tmp_path):
    schema = pa.schema([("i64", pa.int64()), ("other", kind)])
    assert written_by(tmp_path, schema, 1 << 16) == "parquet-cpp-arrow"
    assert written_by(tmp_path, schema.remove(1), 9) == "streamjoin_ds"


def test_texts_are_written_here_in_large_files(tmp_path):
    schema = pa.schema([("i64", pa.int64()), ("text", pa.string())])
    assert written_by(tmp_path, schema, 1 << 16) == "streamjoin_ds"
    assert written_by(tmp_path, schema, 9) == "parquet-cpp-arrow"
    assert written_by(tmp_path, schema.remove(0), 1 << 16) == "parquet-cpp-arrow"


def test_without_compiled_kernels_pyarrow_writes(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "compiled", lambda: None)
    assert written_by(tmp_path, pa.schema([("i64", pa.int64())]), 9) == "parquet-cpp-arrow"
