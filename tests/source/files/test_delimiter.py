"""CSV files with another delimiter hold the same records, broken ones included."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.stream.sensors import SensorsDataSource
from tests.source.feeds import csv_text, feed, rows, steps, tuples
from tests.source.files.test_rejects import BROKEN
from tests.support.microbatch import MicroBatches

WRITTEN = {";": ";", "tab": "\t", "\\t": "\t", "\t": "\t", "|": "|", "^": "^"}


def mixed_text() -> str:
    """Return good rows with every kind of broken row between them."""
    lines = csv_text(rows(2 * len(BROKEN))).splitlines()
    for place, broken in enumerate(BROKEN):
        lines.insert(2 * place + 2, broken)
    return "\n".join(lines) + "\n"


@pytest.mark.each_value
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("delimiter", WRITTEN)
def test_the_same_records_and_the_same_rejects(tmp_path: Path, delimiter: str, size: int) -> None:
    text = mixed_text()
    comma, other = tmp_path / "comma.csv", tmp_path / "other.csv"
    comma.write_text(text)
    other.write_text(text.replace(",", WRITTEN[delimiter]))
    readers = [lambda: feed(comma), lambda: feed(other, delimiter=delimiter)]
    found = []
    for reader in readers:
        cuts = pairwise(steps(reader(), FilePosition(), size))
        chunks = [chunk for low, high in cuts for chunk in reader().read(low, high)]
        rejects = [(r.line, r.seq, r.column, r.reason, r.text) for chunk in chunks for r in chunk.rejects]
        found.append((tuples(chunks), rejects))
    (expected, broken), (mine, mine_broken) = found
    assert len(expected) == 2 * len(BROKEN)
    assert len(broken) == len(BROKEN)
    assert mine == expected
    assert mine_broken == [(*facts, line.replace(",", WRITTEN[delimiter])) for *facts, line in broken]


def test_a_quoted_delimiter_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('ts;"a;b";name\n2024-01-01;1,5;"x;y,""z"\n')
    stream = Stream("e", tmp_path / "a.csv", delimiter=";")
    assert infer_schema(stream).names == ["ts", "a;b", "name"]
    schema = infer_schema(stream)
    (chunk,) = feed(tmp_path / "a.csv", schema=schema, delimiter=";").read(FilePosition(), None)
    assert [row[-2:] for row in tuples([chunk], schema)] == [("1,5", 'x;y,"z')]


def test_types_are_told_by_the_delimiter(tmp_path: Path) -> None:
    text = csv_text(rows(5))
    (tmp_path / "comma.csv").write_text(text)
    (tmp_path / "tab.tsv").write_text(text.replace(",", "\t"))
    comma = infer_schema(Stream("e", tmp_path / "comma.csv"))
    assert infer_schema(Stream("e", tmp_path / "tab.tsv", format="csv", delimiter="tab")) == comma
    with pytest.raises(ColumnError, match="set the delimiter to tab"):
        infer_schema(Stream("e", tmp_path / "tab.tsv", format="csv"))


@pytest.mark.parametrize("delimiter", ["", ",,", "a", "7", '"', "\n", "\r", "\0", "é", None, 5])
def test_what_no_csv_file_is_cut_by(delimiter: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", "a.csv", delimiter=delimiter)  # type: ignore[arg-type]
    assert caught.value.name == "delimiter"


def test_facts_bring_it_back_and_may_lack_it() -> None:
    facts = json.loads(json.dumps(Stream("e", "a.csv", delimiter="tab").to_facts()))
    assert Stream.from_facts(facts).source.delimiter == "\t"
    del facts["delimiter"]
    assert Stream.from_facts(facts).source.delimiter == ","


def test_an_option_of_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_text(rows(9)).replace(",", ";"))
    source = SensorsDataSource({"path": str(tmp_path), "delimiter": ";"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 9


def test_a_join_of_files_with_different_delimiters(tmp_path: Path) -> None:
    found = []
    for left, right in ((",", ","), (";", "|")):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        for name, delimiter in (("l", left), ("r", right)):
            (folder / f"{name}.csv").write_text(csv_text(rows(40)).replace(",", delimiter))
        streams = [
            Stream(name, folder / f"{name}.csv", delay="2s", delimiter=delimiter)
            for name, delimiter in (("l", left), ("r", right))
        ]
        join = Join(streams, "abs(l.x - r.x) <= 1", "3s")
        bound = bind(join, {stream.name: infer_schema(stream) for stream in streams})
        matches = MicroBatches(bound, folder / "c", Layout.parse("1x2", 2), max_rows_per_batch=30).run()
        found.append((bound.fingerprint, sorted(map(str, matches.to_pylist()))))
    assert len(found[0][1]) > 40
    assert found[0] == found[1]


VALUES = (
    "1.5",
    "-0.25",
    "7",
    ".5",
    "1e3",
    "2.5E-3",
    "",
    "NA",
    "1e-40",
    "1,2",
    "x",
    "1.2.3",
    "12345678.5",
    "0.12345",
    "nan",
)


@given(st.lists(st.tuples(*[st.sampled_from(VALUES)] * 3), min_size=1, max_size=12), st.sampled_from([";", "\t"]))
def test_a_comma_in_numbers_is_a_point(given: list[tuple[str, ...]], delimiter: str) -> None:
    """Values and rejects are those of the same file with points; a point in a number is what a comma is there."""
    schema = pa.schema(
        [("ts", TIMESTAMP), ("f", pa.float64()), ("d", pa.decimal128(9, 3)), ("g", pa.float32()), ("n", pa.int64())]
    )
    found = []
    with TemporaryDirectory() as folder:
        for decimal, swap in ((".", str.maketrans("", "")), (",", str.maketrans(",.", ".,"))):
            lines = [
                delimiter.join([f"170962920{k % 10}.5".translate(swap), *(v.translate(swap) for v in values), "3"])
                for k, values in enumerate(given)
            ]
            path = Path(folder, "a.csv")
            path.write_text("\n".join([delimiter.join(schema.names), *lines, ""]))
            stream = Stream("e", path, delimiter=delimiter, decimal=decimal, time_unit="s", on_bad_file="quarantine")
            chunks = list(FileFeed(stream, schema).read(FilePosition(), None))
            rejects = [(one.line, one.column, one.reason) for chunk in chunks for one in chunk.rejects]
            found.append((repr(tuples(chunks)), rejects))
    assert found[0] == found[1]


def test_numbers_with_a_comma_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts;x;s\n1709629208,25;19,18;1.234,5\n1709629209,5;7;2\n")
    stream = Stream("e", tmp_path, delimiter=";", decimal=",", time_unit="s")
    found = infer_schema(stream)
    assert [str(kind) for kind in found.types] == ["double", "double", "string"]
    (chunk,) = FileFeed(stream, found).read(FilePosition(), None)
    assert [row[0] for row in tuples([chunk])] == [1_709_629_208_250_000, 1_709_629_209_500_000]
    assert chunk.tuples["x"].to_pylist() == [19.18, 7.0]
    with pytest.raises(ArgumentError, match="its delimiter and its decimal sign") as caught:
        Stream("e", tmp_path, decimal=",")
    assert (caught.value.name, "delimiter=;" in caught.value.hint) == ("decimal", True)
