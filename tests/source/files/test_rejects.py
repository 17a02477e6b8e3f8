from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from streamjoin_ds.errors import ColumnError, FileFormatError, SchemaDriftError
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Stream
from tests.source.feeds import SCHEMA, csv_text, feed, iso, read_all, rows, steps, tuples, write
from tests.support.examples import examples

BROKEN = {
    "2024-01-01,a,1.0": ("", "3 fields instead of 4"),
    "2024-01-01,a,1.0,2,3": ("", "5 fields instead of 4"),
    "2024-01-01,a,one,2": ("x", "the value is not of type double"),
    "2024-01-01,a,1.0,2.5": ("n", "the value is not of type int64"),
    "2024-01-01,a,1.0,99999999999999999999": ("n", "the value is not of type int64"),
    ",a,1.0,2": ("ts", "no event time"),
    "soon,a,1.0,2": ("ts", "not an event time in the years 1 to 9999"),
    "0000-01-01,a,1.0,2": ("ts", "not an event time in the years 1 to 9999"),
    '"2024-01-01,a,1.0,2': ("", "1 fields instead of 4"),
    "   ": ("", "1 fields instead of 4"),
}


@examples(40, HealthCheck.function_scoped_fixture)
@given(st.lists(st.one_of(st.none(), st.sampled_from(sorted(BROKEN))), max_size=25), st.integers(1, 30))
def test_broken_rows_are_kept_aside_wherever_they_stand(tmp_path: Path, kinds: list[str | None], size: int) -> None:
    good = rows(len(kinds) + 1)
    lines = [
        csv_text([row], header=False).strip() if kind is None else kind
        for row, kind in zip(good, [None, *kinds], strict=True)
    ]
    path = tmp_path / "a.csv"
    path.write_text("ts,name,x,n\n" + "\n\n".join(lines) + "\n")
    positions = steps(feed(path), FilePosition(), size)
    chunks = [c for low, high in pairwise(positions) for c in feed(path).read(low, high)]
    assert sum(chunk.count for chunk in chunks) == len(lines)
    assert tuples(chunks) == [
        (r[0], k, *r[1:]) for k, (r, kind) in enumerate(zip(good, [None, *kinds], strict=True)) if kind is None
    ]
    rejects = [reject for chunk in chunks for reject in chunk.rejects]
    found = [(r.file, r.line, r.seq, r.column, r.reason, r.text) for r in rejects]
    wanted = [
        (str(path), 2 + 2 * k, k, *BROKEN[kind], kind) for k, kind in enumerate([None, *kinds]) if kind is not None
    ]
    assert found == wanted


def test_a_quote_that_is_not_closed_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_text(rows(3)) + '2024-01-01,"a,1,2\n' + csv_text(rows(3), header=False) + '2024-01-01,a",1,2\n')
    (chunk,) = feed(path).read(FilePosition(), None)
    assert chunk.tuples.num_rows == 6 + 1  # a quote inside an unquoted field is a character
    assert [r.line for r in chunk.rejects] == [5]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_last_field_whose_quote_is_not_closed_is_no_text(tmp_path: Path, ending: str, after: int) -> None:
    path = tmp_path / "a.csv"
    good = '2024-01-01,"a, ""b""",1'
    lines = ["ts,name,x", good, '2024-01-01,2,"3', '2024-01-01,"open', *[good] * after]
    path.write_bytes("".join(line + ending for line in lines).encode())
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.string())])
    (chunk,) = open_feed(Stream("s", path, time="ts"), schema).read(FilePosition(), None)
    assert chunk.tuples.num_rows == 1 + after
    reasons = ["quotes that do not match", "2 fields instead of 3"]
    assert [(r.line, r.reason) for r in chunk.rejects] == list(zip([3, 4], reasons, strict=True))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(csv_text(rows(4)).encode() + b"2024-01-01,\xff\xfe,1,2\n2024-01-01,a\rb,1,2\n")
    (chunk,) = feed(path).read(FilePosition(), None)
    assert [(r.line, r.column, r.reason) for r in chunk.rejects] == [
        (6, "name", "the value is not UTF-8"),
        (7, "", "a carriage return inside the line"),
    ]


def test_broken_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    good = '{"ts": "2024-01-01", "name": "a", "x": 1.5, "n": 3}'
    broken = ["{", "[1]", '{"ts": "2024-01-01", "x": "wide"}', '{"ts": "2024-01-01"} {"ts": 1}', '{"n": 1}', "1"]
    path.write_text("\n".join(line for bad in broken for line in (good, bad)) + "\n")
    (chunk,) = feed(path).read(FilePosition(), None)
    assert chunk.tuples.num_rows == len(broken)
    assert [(r.line, r.column) for r in chunk.rejects] == [(2, ""), (4, ""), (6, "x"), (8, ""), (10, "ts"), (12, "")]


@pytest.mark.parametrize(
    "bad", ["null", " null", '{"ts": "2024-01-01"} null', '{"ts": "2024-01-01"}null', "nullnull", "1 null"]
)
def test_a_null_outside_of_an_object(tmp_path: Path, bad: str) -> None:
    """Arrow's reader ends the process at such a line. Nulls inside objects and inside texts are good."""
    good = ['{"ts": "2024-01-01", "name": "} null", "x": null, "n": 3}', '{"ts": "2024-01-01", "name": null}']
    path = tmp_path / "a.json"
    path.write_text("\n".join([*good, bad, *good, bad]) + "\n")
    (chunk,) = feed(path).read(FilePosition(), None)
    assert chunk.tuples.column("name").to_pylist() == ["} null", None, "} null", None]
    assert [(r.line, r.column) for r in chunk.rejects] == [(3, ""), (6, "")]


BROKEN_JSON = [b"null", b'{"ts": 1} null', b'{"ts": 1}', b'{"ts": "\xff"}', b'{"ts": 1, "x": "y"}']


@examples(40, HealthCheck.function_scoped_fixture)
@given(st.lists(st.binary(max_size=12) | st.sampled_from(BROKEN_JSON), min_size=1))
def test_what_is_broken_does_not_depend_on_its_neighbours(tmp_path: Path, lines: list[bytes]) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    for name, head, good in (("a.json", b"", b'{"ts": 5, "x": 1}\n'), ("a.csv", b"ts,x\n", b"5,1\n")):
        path = tmp_path / name
        path.write_bytes(head + good * 3 + b"\n".join(line.replace(b"\n", b"") for line in lines) + b"\n")
        together = [c for c in feed(path, schema=schema).read(FilePosition(), None)]
        positions = steps(feed(path, schema=schema), FilePosition(), 1)
        alone = [c for low, high in pairwise(positions) for c in feed(path, schema=schema).read(low, high)]
        assert repr(tuples(alone)) == repr(tuples(together))
        assert [r for c in alone for r in c.rejects] == [r for c in together for r in c.rejects]


def test_nulls_in_parquet_and_in_columns_never_null(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"ts": pa.array([1, None, 3], pa.timestamp("us")), "x": [None, 1.0, 2.0]})
    pq.write_table(table, path)
    schema = pa.schema([pa.field("ts", pa.timestamp("us", tz="UTC")), pa.field("x", pa.float64(), nullable=False)])
    (chunk,) = feed(path, schema=schema).read(FilePosition(), None)
    assert tuples([chunk]) == [(3, 2, 2.0)]
    assert [(r.line, r.column) for r in chunk.rejects] == [(1, "x"), (2, "ts")]


def test_a_very_long_line_is_clipped_and_an_endless_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,name,x,n\n" + "y" * 9000 + "\n")
    (chunk,) = feed(path).read(FilePosition(), None)
    assert chunk.rejects[0].text.endswith("(4904 more characters)")
    monkeypatch.setattr("streamjoin_ds.source.files.text_blocks.BLOCK_BYTES", 1000)
    monkeypatch.setattr("streamjoin_ds.source.files.text_blocks.MAX_LINE_BYTES", 5000)
    with pytest.raises(FileFormatError, match="longer than"):
        list(feed(path).read(FilePosition(), None))


HEADERS = {
    "missing": ("ts,name,x", "n"),
    "renamed": ("ts,name,x,m", "n"),
    "no time": ("time,name,x,n", "ts"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_csv_headers_that_drift(tmp_path: Path, case: str) -> None:
    header, column = HEADERS[case]
    write(tmp_path / "1.csv", rows(5))
    (tmp_path / "2.csv").write_text(header + "\n" + "".join(f"{iso(ts)},a,1.0,2\n" for ts, *_ in rows(5)))
    with pytest.raises(SchemaDriftError) as caught:
        read_all(tmp_path, 5)
    assert caught.value.name == column
    assert "2.csv" in str(caught.value)


@pytest.mark.parametrize("line", ["{ts},a,wide,2", "{ts},a,1.0,2.5", "{ts},a,1.0,x"])
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_columns_of_another_type_from_a_files_start(tmp_path: Path, line: str, ending: str) -> None:
    write(tmp_path / f"1.{ending}", rows(5))
    values = [line.format(ts=iso(ts)).split(",") for ts, *_ in rows(5)]
    if ending == "csv":
        text = "ts,name,x,n\n" + "".join(",".join(v) + "\n" for v in values)
    else:
        shown = [[json.dumps(w) if w[0].isalpha() or "T" in w else w for w in v] for v in values]
        text = "".join(f'{{"ts": {ts}, "name": {name}, "x": {x}, "n": {n}}}\n' for ts, name, x, n in shown)
    (tmp_path / f"2.{ending}").write_text(text)
    positions = steps(feed(tmp_path), FilePosition(), 100)
    with pytest.raises(SchemaDriftError) as caught:
        list(feed(tmp_path).read(positions[0], positions[-1]))
    assert caught.value.name == ("x" if "wide" in line else "n")


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.bool_(), pa.timestamp("us"), None])
def test_parquet_schemas_that_drift(tmp_path: Path, kind: pa.DataType | None) -> None:
    table = pa.table(
        {"ts": pa.array([1], pa.timestamp("us")), "name": ["a"], "x": [1.0], "n": pa.nulls(1, kind or pa.int64())}
    )
    pq.write_table(table if kind else table.drop_columns("n"), tmp_path / "1.parquet")
    with pytest.raises(SchemaDriftError) as caught:
        list(feed(tmp_path).read(FilePosition(), None))
    assert caught.value.name == "n"


def test_parquet_columns_that_only_widen(tmp_path: Path) -> None:
    columns = {"ts": pa.array([1], pa.date32()), "name": pa.array(["a"]).dictionary_encode(), "more": [1]}
    columns |= {"x": pa.array([1.5], pa.float32()), "n": pa.array([7], pa.uint8())}
    pq.write_table(pa.table(columns), tmp_path / "1.parquet")
    assert tuples(feed(tmp_path).read(FilePosition(), None)) == [(86_400_000_000, 0, "a", 1.5, 7)]


def test_types_come_from_the_whole_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "ts,k,t,bad\n" + "2024-01-01T00:00:00Z,1,10:00:00,1\n" * 3000 + "2024-01-01,1.5,11:00:00,x\n1,2\nsoon,1,,\n"
    )
    schema = infer_schema(Stream("e", str(path)))
    assert {f.name: str(f.type) for f in schema} == {
        "ts": "timestamp[us, tz=UTC]",
        "k": "double",
        "t": "string",
        "bad": "string",
    }
    with pytest.raises(ColumnError, match="no column 'when'"):
        infer_schema(Stream("e", str(path), time="when"))
    with pytest.raises(ColumnError, match="'t'"):
        infer_schema(Stream("e", str(path), time="t"))
    path.write_text("ts,k\n")
    with pytest.raises(FileFormatError):
        infer_schema(Stream("e", str(path)))
    assert infer_schema(Stream("e", str(path), schema=SCHEMA)) == SCHEMA
