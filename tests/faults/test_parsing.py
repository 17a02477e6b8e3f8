"""What the model remembers of Arrow's CSV reader is what the reader says of the same bytes and options."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from streamjoin_ds.source.files import csv_dialect
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.csv_lines import CsvLines
from tests.faults.model.parsing import remembering_csv

SCHEMA = pa.schema([pa.field("ts", pa.int64()), pa.field("x", pa.int64())])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bytes that Arrow was asked to parse, in order."""
    seen: list[bytes] = []
    read = arrow_csv.read_csv

    def noted(source: pa.BufferReader, *options: object) -> pa.Table:
        seen.append(source.read())
        source.seek(0)
        return read(source, *options)

    monkeypatch.setattr(arrow_csv, "read_csv", noted)
    monkeypatch.setattr(csv_dialect, "arrow_csv", remembering_csv())
    return seen


def lines(header: str = "ts,x", delimiter: str = ",") -> CsvLines:
    return CsvLines(header.split(","), SCHEMA, "ts", "l", "l.csv", CsvDialect(delimiter))


def test_the_same_bytes_are_parsed_once_and_others_anew(asked: list[bytes]) -> None:
    first, again = lines().parse(b"1,2\n3,4\n"), lines().parse(b"1,2\n3,4\n")
    assert first.equals(again)
    assert again.column("x").to_pylist() == [2, 4]
    assert lines().parse(b"1,2\n3,5\n").column("x").to_pylist() == [2, 5]
    assert asked == [b"1,2\n3,4\n", b"1,2\n3,5\n"]


def test_another_way_of_reading_is_another_question(asked: list[bytes]) -> None:
    data = b"1,2\n"
    assert lines().parse(data).column("x").to_pylist() == [2]
    assert lines("x,ts").parse(data).column("x").to_pylist() == [1]
    assert lines().reason(data) == ("", "the line cannot be read")  # it reads all columns as bytes, then each by itself
    with pytest.raises(pa.ArrowInvalid):
        lines(delimiter=";").parse(data)
    assert asked == [data] * 6


def test_what_cannot_be_parsed_cannot_again(asked: list[bytes]) -> None:
    for _ in range(2):
        with pytest.raises(pa.ArrowInvalid, match="CSV conversion error"):
            lines().parse(b"1,no\n")
    assert len(asked) == 1
