"""What a CSV file has beside its records: lines passed over, a header of several lines or none, comments."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, FileFormatError, SchemaDriftError
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Files, Join, Stream, bind
from streamjoin_ds.spec.columns import TS
from streamjoin_ds.spec.member.source import numbering_of
from tests.source.feeds import SCHEMA, csv_text, expected, rows, steps, tuples

ROWS = rows(11)
NAMES, *LINES = csv_text(ROWS).splitlines(keepends=True)


def text_of(skipped: int, header: int, comment: str | None = None) -> str:
    """Return the records below such a head, with a comment before each third line after what is passed over."""
    lines = [*[NAMES, "iso,,m,\n", '"","",Avg,\n'][:header], *LINES]
    for place in range(0, 4 * len(lines) // 3 if comment else 0, 4):
        lines.insert(place, f'{comment} "a note,\n' if place % 8 else f"{comment}\n")
    return "".join([*(f'# "note" {number}, with; all\n' for number in range(skipped)), *lines])


def feed(path: Path, header: int, schema: pa.Schema = SCHEMA, **options: Any) -> FileFeed:
    """Return the feed of a stream whose columns are declared where no header names them."""
    declared = {} if header else {"schema": schema}
    return FileFeed(Stream("e", path, header=header, **declared, **options), schema)


def read(path: Path, size: int, header: int, **options: Any) -> list[tuple[Any, ...]]:
    reader = feed(path, header, **options)
    places = steps(reader, reader.initial(), size)
    return [one for low, high in pairwise(places) for one in tuples(feed(path, header, **options).read(low, high))]


@given(
    st.integers(0, 4), st.integers(0, 3), st.sampled_from([None, "#", "%"]), st.integers(1, 12),
    st.sampled_from(["", "\ufeff"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_records_are_those_of_a_plain_file(
    tmp_path_factory: pytest.TempPathFactory,
    skipped: int, header: int, comment: str | None, size: int, mark: str, is_cut: bool, is_packed: bool,
) -> None:  # fmt: skip
    """Wherever it is cut into batches, compressed or not, with a mark of UTF-8 and without a last newline."""
    text = text_of(skipped, header, comment)
    data = (mark + text).encode()
    data = data.rstrip(b"\n") if is_cut else data
    folder = tmp_path_factory.mktemp("head")
    (folder / ("a.csv.gz" if is_packed else "a.csv")).write_bytes(gzip.compress(data) if is_packed else data)
    (folder / "b.csv").write_bytes(text.encode())
    found = read(folder, size, header, skip_lines=skipped, comment=comment)
    assert found == [*expected(ROWS), *expected(ROWS, len(ROWS))]
    if header:
        assert (
            infer_schema(Stream("e", folder, skip_lines=skipped, header=header, comment=comment)).names == SCHEMA.names
        )


@pytest.mark.parametrize("comment", [None, "#"])
@pytest.mark.parametrize(("skipped", "header"), [(0, 1), (3, 1), (0, 0), (2, 0), (1, 3)])
def test_a_file_is_read_as_it_grows(tmp_path: Path, skipped: int, header: int, comment: str | None) -> None:
    path, data = tmp_path / "a.csv", text_of(skipped, header, comment).encode()
    path.write_bytes(b"")
    options = {"skip_lines": skipped, "comment": comment}
    reader = feed(tmp_path, header, **options)
    at, found = reader.initial(), []
    for end in [*range(0, len(data), 17), len(data)]:
        path.write_bytes(data[:end])
        while count := reader.frontier(at, 3).rows:
            after = reader.advance(at, count)
            found += tuples(feed(tmp_path, header, **options).read(at, after))
            at = after
    assert found == expected(ROWS)


@pytest.mark.parametrize("comment", [None, "#"])
def test_a_reject_names_its_line(tmp_path: Path, comment: str | None) -> None:
    text = text_of(2, 3, comment) + "# one,two\n" * bool(comment) + "broken\n"
    (tmp_path / "a.csv").write_text(text)
    reader = feed(tmp_path, 3, skip_lines=2, comment=comment)
    low, high = steps(reader, reader.initial(), 99)
    (reject,) = [one for chunk in reader.read(low, high) for one in chunk.rejects]
    assert (reject.line, reject.text) == (text.count("\n"), "broken")


def test_columns_without_names_are_numbered_or_declared(tmp_path: Path) -> None:
    path = tmp_path / "track.plt"
    path.write_text("Geolife trajectory\nWGS 84\n39.9,116.3,2024-03-05 09:00:07\n39.8,116.4,2024-03-05 09:00:09\n")
    files = Files(path, "csv", skip_lines=2, header=0)
    found = infer_schema(Stream("e", files, time="column_3"))
    assert found.names == ["column_1", "column_2", "column_3"]
    assert [str(kind) for kind in found.types] == ["double", "double", "timestamp[s]"]
    declared = pa.schema({"lat": pa.float64(), "lon": pa.float64(), "ts": pa.timestamp("us", tz="UTC")})
    for time, schema, lon in (("ts", declared, "lon"), ("column_3", None, "column_2")):
        stream = Stream("e", files, time=time, schema=schema)
        (chunk,) = FileFeed(stream, schema or found).read(FilePosition(), None)
        assert chunk.tuples[lon].to_pylist() == [116.3, 116.4]
        assert chunk.tuples[TS].to_pylist() == [1_709_629_207_000_000, 1_709_629_209_000_000]


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        ("39.9,116.3,0,2024-03-05,09:00:07\n1,2,3,4,5\n", {}, FileFormatError, "header=0"),
        ("# station 7\nts,x\n1,2\n", {}, FileFormatError, "comment=#"),
        ("# Timestamp,x\n1,2\n", {}, FileFormatError, "set time to one of its names: Timestamp, x"),
        ("ts,x\n1,2\n3,4\n", {"header": 0, "time": "column_1"}, FileFormatError, "leave header out"),
        ("ts,°\n1,2\n".encode("latin-1"), {}, FileFormatError, "encoding=cp1252"),
        ("ts,x\n1,2\n".encode("utf-16-be"), {}, FileFormatError, "encoding=utf-16-le or utf-16-be"),
        ("a\nb\n", {"skip_lines": 5}, FileFormatError, "skip_lines"),
        ("a\n,\n1\n", {"skip_lines": 1}, FileFormatError, "column names"),
        ("ts,x\n1,2\n", {"skip_lines": -1}, ArgumentError, "0 to 1000"),
        ("ts,x\n1,2\n", {"skip_lines": "two"}, ArgumentError, "0 to 1000"),
        ("ts,x\n1,2\n", {"header": 1.5}, ArgumentError, "0 to 1000"),
        ("ts,x\n1,2\n", {"comment": ","}, ArgumentError, "not the delimiter"),
        ("ts,x\n1,2\n", {"comment": "//"}, ArgumentError, "for example #"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], error: Any, says: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error) as caught:
        infer_schema(Stream("e", tmp_path, **options))
    assert says in caught.value.hint


@pytest.mark.parametrize("ends", ["", ",", "header"])
@pytest.mark.parametrize("sign", ["", "#", "# ", "## "])
@pytest.mark.parametrize("size", [1, 100])
def test_names_as_files_have_them(tmp_path: Path, sign: str, ends: str, size: int) -> None:
    """A sign of a comment before the first one, one that comes again, a delimiter at the end of records or of all."""
    names = f"{sign}ts,name,x,n,x,,x_2,x{',' if ends else ''}\n".replace(",\n", "\n" if ends == "," else ",\n")
    lines = [line[:-1] + f",7,-,8,9{',' if ends else ''}\n" for line in LINES]
    (tmp_path / "a.csv").write_text(names + "".join(lines))
    assert read(tmp_path, size, 1) == expected(ROWS)
    inferred = infer_schema(Stream("e", tmp_path))
    assert inferred.names == ["ts", "name", "x", "n", "x_3", "x_2", "x_4"]
    schema = pa.schema([SCHEMA.field("ts"), pa.field("x_3", pa.int64()), pa.field("x_4", pa.int64())])
    (chunk,) = FileFeed(Stream("e", tmp_path), schema).read(FilePosition(), None)
    assert {(one["x_3"], one["x_4"]) for one in chunk.tuples.to_pylist()} == {(7, 9)}


def test_a_name_as_it_stands_goes_on(tmp_path: Path) -> None:
    """Checkpoints of before have it with its sign."""
    (tmp_path / "a.csv").write_text("# ts,x\n1,2\n")
    for time in ("# ts", "ts"):
        stream = Stream("e", tmp_path, time=time, time_unit="s")
        schema = infer_schema(stream)
        assert schema.names == [time, "x"]
        (chunk,) = FileFeed(stream, schema).read(FilePosition(), None)
        assert chunk.tuples.num_rows == 1


def test_a_record_in_the_place_of_names_is_told_where_columns_are_declared(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2024-01-01,1,2\n2024-01-02,3,4\n")
    reader = FileFeed(Stream("e", tmp_path, schema=SCHEMA), SCHEMA)
    with pytest.raises(SchemaDriftError, match="header=0"):
        reader.frontier(FilePosition(), 9)


def test_it_is_of_the_join_and_of_the_numbers_of_tuples() -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    plain = [Stream("e", "in/", schema=schema), Stream("w", "out/", schema=schema)]
    for options, one in (
        ({"skip_lines": "3"}, {"skip_lines": 3}),
        ({"header": False}, {"header": "false"}),
        ({"comment": "#"},) * 2,
    ):
        first, second = (Stream("e", "in/", schema=schema, **given) for given in (options, one))
        assert first == second == Stream.from_facts(first.to_facts())
        assert numbering_of(first.source) != numbering_of(plain[0].source)
        joins = [
            bind(Join([stream, plain[1]], "e.x = w.x", "1s"), dict.fromkeys("ew", schema))
            for stream in (first, plain[0])
        ]
        assert joins[0].fingerprint != joins[1].fingerprint
    assert "header" not in plain[0].to_facts()
