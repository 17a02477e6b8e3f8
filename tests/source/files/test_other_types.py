"""Files of one stream whose columns have other types, come or go: widened, null, or refused by name, in every cut."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, band
from streamjoin_ds.errors import SchemaDriftError
from streamjoin_ds.source.files.file_columns import BEGIN_BYTES
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join, bind
from streamjoin_ds.spec.common_types import LARGEST_EXACT, common_type, exactly, fits
from tests.source.feeds import START_US, steps, tuples
from tests.support.examples import examples

TIMES = pa.array([START_US + k for k in range(4)], pa.timestamp("us", tz="UTC"))


def put(folder: Path, *columns: dict[str, pa.Array]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, found in enumerate(columns):
        pq.write_table(pa.table({"ts": TIMES, **found}), folder / f"{number}.parquet")
    return folder


def bound_of(folder: Path, compared: str = "ts", **options: Any) -> Any:
    streams = [Stream(name, str(folder), **options) for name in "er"]
    join = Join(streams, [band(f"e.{compared}", f"r.{compared}", "1s" if compared == "ts" else 1)], "1s")
    return streams[0], bind(join, {stream.name: infer_schema(stream) for stream in streams}).read_schemas[0]


def read(folder: Path, compared: str = "ts", size: int = 3, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return tuples and rejects, read in batches of `size`, which are those that one batch gives."""
    stream, schema = bound_of(folder, compared, **options)
    whole = list(open_feed(stream, schema).read(FilePosition(), None))
    positions = steps(open_feed(stream, schema), FilePosition(), size)
    parts = [c for low, high in pairwise(positions) for c in open_feed(stream, schema).read(low, high)]
    rejects = [r for c in parts for r in c.rejects]
    assert repr(tuples(parts)) == repr(tuples(whole))
    assert rejects == [r for c in whole for r in c.rejects]
    return [row[2:] for row in tuples(parts)], [(r.line, r.column, r.reason) for r in rejects]


def by_duckdb(folder: Path, columns: str) -> list[Any]:
    files = f"read_parquet('{folder}/*.parquet', union_by_name=true, filename=true)"
    return duckdb.connect().sql(f"SELECT {columns} FROM {files} ORDER BY filename, ts").fetchall()


PAIRS = {
    "null, double": (pa.nulls(4), pa.array([1.5, None, 2, 3]), pa.float64()),
    "int64, double": (pa.array([1, None, 2, 3]), pa.array([1.5, None, 2, 3]), pa.float64()),
    "int32, int64": (pa.array([1, 2, 3, 4], pa.int32()), pa.array([1 << 40, 2, 3, 4]), pa.int64()),
    "int16, float": (pa.array([1, 2, 3, 4], pa.int16()), pa.array([1.5, 2, 3, 4], pa.float32()), pa.float32()),
    "float, double": (pa.array([1.5, 2, 3, 4], pa.float32()), pa.array([1.1, 2, 3, 4]), pa.float64()),
    "uint32, int8": (pa.array([1 << 31, 2, 3, 4], pa.uint32()), pa.array([-1, 2, 3, 4], pa.int8()), pa.int64()),
    "string, large_string": (pa.array(list("abcd")), pa.array(list("abcd"), pa.large_string()), pa.string()),
    "dictionary, string": (pa.array(list("abcd")).dictionary_encode(), pa.array(list("efgh")), pa.string()),
    "decimals": (
        pa.array([Decimal("1.5")] * 4, pa.decimal128(5, 1)),
        pa.array([Decimal("123456.25")] * 4, pa.decimal128(9, 2)),
        pa.decimal128(9, 2),
    ),
    "int32, decimal": (
        pa.array([1, 2, 3, 4], pa.int32()),
        pa.array([Decimal("1.25")] * 4, pa.decimal128(5, 2)),
        pa.decimal128(12, 2),
    ),
    "lists": (pa.array([[1], [], None, [2]]), pa.array([[1.5], [2], [], None]), pa.list_(pa.float64())),
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_column_has_the_type_that_holds_both_files(tmp_path: Path, case: str, swapped: bool) -> None:
    first, second, kind = PAIRS[case]
    if swapped:
        first, second = second, first
    folder = put(tmp_path / "in", {"x": first}, {"x": second})
    assert bound_of(folder)[1].field("x").type == kind
    found, rejects = read(folder)
    assert not rejects
    assert [row[-1] for row in found] == [*first.cast(kind).to_pylist(), *second.cast(kind).to_pylist()]
    if kind != pa.decimal128(12, 2) and case != "lists":
        assert [row[-1:] for row in found] == by_duckdb(folder, "x")


def test_columns_that_came_or_went_are_null(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    some = pa.array([1, 2, 3, 4])
    folder = put(tmp_path / "in", {"x": some, "old": some}, {"x": some}, {"x": some, "new": some}, {"x": some})
    assert bound_of(folder)[1].names == ["ts", "x", "old", "new"]
    found, rejects = read(folder)
    assert not rejects
    assert [row[-3:] for row in found] == by_duckdb(folder, "x, old, new")
    assert "has no column 'old'" in caplog.text
    assert "has no column 'new'" in caplog.text


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_without_a_compared_column_is_refused(tmp_path: Path, ending: str) -> None:
    some = pa.array([1, 2, 3, 4])
    folder = put(tmp_path / "in", {"x": some, "y": some}, {"y": some})
    if ending == "csv":
        for path in sorted(folder.iterdir()):
            pa.csv.write_csv(pq.read_table(path), path.with_suffix(".csv"))
            path.unlink()
    with pytest.raises(SchemaDriftError, match="has no column 'x'") as caught:
        read(folder, "x")
    assert caught.value.name == "x"
    assert read(folder, "y")[0][-1] == (None, 4)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_names_that_differ_in_case_are_one_column(tmp_path: Path, ending: str) -> None:
    some = pa.array([1.5, 2, 3, 4])
    folder = put(tmp_path / "in", {"fee": some, "x": some}, {"Fee": some, "x": some})
    if ending == "csv":
        for path in sorted(folder.iterdir()):
            pa.csv.write_csv(pq.read_table(path), path.with_suffix(".csv"))
            path.unlink()
    assert bound_of(folder)[1].names == ["ts", "fee", "x"]
    found, _ = read(folder, "fee")
    assert [row[-2] for row in found] == [1.5, 2, 3, 4] * 2


def test_two_names_that_differ_in_case_in_one_file_are_two_columns(tmp_path: Path) -> None:
    some, other = pa.array([1, 2, 3, 4]), pa.array([5, 6, 7, 8])
    folder = put(tmp_path / "in", {"fee": some}, {"Fee": some, "FEE": other})
    with pytest.raises(SchemaDriftError, match="has no column 'fee'") as caught:
        read(folder, "fee")
    assert "differ from it in case" in str(caught.value)


def test_values_that_a_wider_type_does_not_hold_are_rejects(tmp_path: Path) -> None:
    folder = put(
        tmp_path / "in",
        {"x": pa.array([1.5, 2, 3, 4])},
        {"x": pa.array([LARGEST_EXACT, LARGEST_EXACT + 1, -LARGEST_EXACT - 1, None])},
    )
    stream, _ = bound_of(folder)
    schema = infer_schema(stream)
    assert schema.field("x").type == pa.int64()  # a footer tells of values beyond 2^53
    declared = pa.schema([schema.field("ts"), ("x", pa.float64())])
    found, rejects = read(folder, schema=declared)
    assert [row[-1] for row in found] == [1.5, 2, 3, 4, LARGEST_EXACT, None]
    reason = "a number that double does not hold exactly"
    assert rejects == [(2, "x", reason), (3, "x", reason)]


def test_a_later_file_with_doubles_gives_its_whole_numbers(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", {"x": pa.array([1, 2, 3, 4])})
    stream, schema = bound_of(folder)
    put_later(folder, pa.array([5.0, 16.81, None, np.nan]))
    chunks = list(open_feed(stream, schema).read(FilePosition(), None))
    assert [row[-1] for row in tuples(chunks)] == [1, 2, 3, 4, 5, None]
    assert [(r.line, r.reason) for c in chunks for r in c.rejects] == [
        (2, "the value is not of type int64"),
        (4, "the value is not of type int64"),
    ]


def put_later(folder: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"ts": TIMES, "x": values}), folder / "9.parquet")


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (pa.array([0.5, 1.5, 2.5, 3.5]), "declare x as double"),
        (pa.array(list("abcd")), "leave the column out"),
        (pa.array([True] * 4), "leave the column out"),
    ],
)
def test_a_file_of_another_type_is_refused_with_both_files(tmp_path: Path, values: pa.Array, hint: str) -> None:
    folder = put(tmp_path / "in", {"x": pa.array([1, 2, 3, 4])})
    stream, schema = bound_of(folder)
    put_later(folder, values)
    feed = open_feed(stream, schema)
    with pytest.raises(SchemaDriftError) as caught:
        feed.frontier(feed.initial(), 100)
    told = str(caught.value)
    assert all(part in told for part in ("9.parquet", "0.parquet", str(values.type), "int64", hint))


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_whole_numbers_in_the_first_file_are_no_type_for_all(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, values in enumerate([[20, 21], [16.81, 20]]):
        rows = [{"ts": 1_704_067_200 + k, "id": LARGEST_EXACT + 1 + k, "x": x} for k, x in enumerate(values)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        if ending == "csv":
            text = "ts,id,x\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows)
        (folder / f"{number}.{ending}").write_text(text)
    found, rejects = read(folder, "x", time_unit="s")
    assert not rejects
    assert [row[-1] for row in found] == [20, 21, 16.81, 20]
    assert [row[-2] for row in found] == [LARGEST_EXACT + 1, LARGEST_EXACT + 2] * 2


def test_the_middle_and_the_end_of_a_long_text_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    plain = b"1704067200,1,,7\n" * (BEGIN_BYTES // 10)
    path.write_bytes(b"ts,x,y,z\n" + plain + b"1704067200,1,,7.5\n" * 100_000 + plain + b"1704067200,16.81,7,7\n")
    schema = infer_schema(Stream("e", str(path), time_unit="s"))
    assert [schema.field(name).type for name in "xyz"] == [pa.float64(), pa.int64(), pa.float64()]


KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(20, 0)),
]
NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-300, 300),
    st.sampled_from([LARGEST_EXACT, LARGEST_EXACT + 1, 1 << 24, (1 << 24) + 1, 255, 256, 127, 128, -129]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-100, 100, width=16),
)


@examples(100)
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.lists(st.none() | NUMBERS, max_size=8))
def test_a_value_is_kept_iff_it_is_the_same_number(
    given_kind: pa.DataType, kind: pa.DataType, numbers: list[Any]
) -> None:
    values = []
    for number in numbers:
        try:
            made = pa.scalar(number, given_kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            continue
        values.append(made.as_py())
    column = pa.array(values, given_kind)
    if not fits(given_kind, kind):
        floats = [pa.types.is_floating(one) for one in (given_kind, kind)]
        assert any(pa.types.is_decimal(one) for one in (given_kind, kind)) or common_type(given_kind, kind) is None
        assert any(floats) or common_type(given_kind, kind) is None
        return
    found, misfits = exactly(column, kind)
    assert found.type == kind
    for place, value in enumerate(values):
        kept = found[place].as_py()
        is_misfit = misfits is not None and bool(misfits[place])
        if value is None:
            assert kept is None
            assert not is_misfit
        elif is_misfit:
            assert kept is None
            assert not _held(value, kind)
        else:
            assert Decimal(kept) == Decimal(value)


def _held(value: Any, kind: pa.DataType) -> bool:
    """Whether NumPy or Python hold the same number in a type."""
    number = Decimal(value)
    if pa.types.is_decimal(kind):
        return (
            number.is_finite()
            and number == round(number, kind.scale)
            and abs(number) < 10 ** (kind.precision - kind.scale)
        )
    if pa.types.is_floating(kind):
        bound = LARGEST_EXACT if kind == pa.float64() else 1 << 24
        if isinstance(value, int):
            return abs(value) <= bound
        with np.errstate(over="ignore"):
            return Decimal(float(kind.to_pandas_dtype()(value))) == number
    info = np.iinfo(kind.to_pandas_dtype())
    return number.is_finite() and number == int(number) and info.min <= number <= info.max
