"""Files of fixed widths, of any number of blanks between fields, and with the line ends of old Macs."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.source.files import text
from streamjoin_ds.source.files.decoders import Blanks, FixedWidths, QuotedLines, with_inner_lines
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.columns import TS
from tests.source.feeds import SCHEMA, compressed, csv_text, expected, feed, pack, read_all, rows, steps, tuples
from tests.support.examples import examples

ROWS = rows(9)


def widened(line: str) -> str:
    """Return a line of CSV as one of fixed widths, after two characters that are passed over."""
    ts, name, x, n = line.split(",")
    return f"..{ts:<27}{name:>5}{x:>6}{n:<4}"


def blank(line: str, number: int) -> str:
    """Return a line of CSV with blanks and tabs between its fields, and around it."""
    return "  \t"[: number % 4] + ("   ", "\t", " \t ")[number % 3].join(line.split(",")) + " \t"[: number % 3]


LINES = csv_text(ROWS).splitlines()
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "widths": ("".join(widened(line) + "\n" for line in LINES), {"widths": [-2, 27, 5, 6, 4]}),
    "widths, CRLF": ("".join(widened(line) + "\r\n" for line in LINES), {"widths": "-2,27,5,6,4"}),
    "blanks": ("".join(blank(line, n) + "\n" for n, line in enumerate(LINES)), {"delimiter": "blanks"}),
    "blanks, CRLF": ("".join(blank(line, n) + "\r\n" for n, line in enumerate(LINES)), {"delimiter": "blanks"}),
    "returns": ("".join(line + "\r" for line in LINES), {}),
    "returns, blanks": ("".join(blank(line, n) + "\r" for n, line in enumerate(LINES)), {"delimiter": "blanks"}),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_records_are_those_of_csv(tmp_path: Path, shape: str, size: int, encoding: str) -> None:
    written, options = SHAPES[shape]
    (tmp_path / "a.csv").write_bytes(written.rstrip("\r\n").encode(encoding))
    (tmp_path / "b.csv").write_bytes(written.encode(encoding))
    assert read_all(tmp_path, size, **options) == [*expected(ROWS), *expected(ROWS, len(ROWS))]
    assert infer_schema(Stream("e", tmp_path, **options)).names == SCHEMA.names


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_is_read_as_it_grows(tmp_path: Path, shape: str, restarts: bool) -> None:
    written, options = SHAPES[shape]
    path, data = tmp_path / "a.csv", written.encode()
    path.write_bytes(b"")
    reader = feed(tmp_path, **options)
    at, found = reader.initial(), []
    for end in [*range(0, len(data), 23), len(data)]:
        path.write_bytes(data[:end])
        if restarts:
            text._places.clear()
            reader = feed(tmp_path, **options)
        while count := reader.frontier(at, 3).rows:
            after = reader.advance(at, count)
            found += tuples(feed(tmp_path, **options).read(at, after))
            at = after
        assert bool(reader.held_back_bytes) == (0 < end < len(data) and data[end - 1 : end] not in (b"\n", b"\r"))
    assert found == expected(ROWS)


@examples(100)
@given(
    st.lists(st.text("ab \t'\"\r#,\n", max_size=12), max_size=6), st.lists(st.integers(1, 9), min_size=1),
    st.sampled_from([Blanks('"'), Blanks(None), Blanks("'"), FixedWidths((2, -1, 3), "#"), FixedWidths((1, 1), None)]),
    st.sampled_from([b"", b"\xff", "°".encode()]),
)  # fmt: skip
def test_a_line_is_what_it_is_alone(lines: list[str], cuts: list[int], shape: Any, more: bytes) -> None:
    """Wherever its bytes are cut, and whatever the lines around it hold, bytes that are no characters too."""
    data = b"\n".join(line.encode() + more for line in lines)
    decoder, found, at = shape.decoder(b"", "f"), b"", 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        decoder = decoder.copy()
        found += decoder.feed(data[at : at + size])
        at += size
    found += decoder.finish()
    assert found == b"\n".join(shape.lines(line) for line in data.split(b"\n"))
    assert found.count(b"\n") == data.count(b"\n")


NOTED = pa.schema([*SCHEMA, pa.field("a\nnote", pa.string())])
NOTES = ["", 'a "b"\nc', "\r\n", ',\n"\n,', "plain", "\n" * 40, '"', '5" x', "\ufdd2"]
QUOTED = ['"' + note.replace('"', '""') + '"' if note != "plain" else note for note in NOTES]
BODY = map("{},{}\n".format, csv_text(ROWS, header=False).splitlines(), QUOTED)
NOTED_TEXT = '\ufeffts,name,x,n,"a\nnote"\n' + "".join(BODY)
WITH_NOTES = [(*row, note or None) for row, note in zip(expected(ROWS), NOTES, strict=True)]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.bz2", "csv.zip"])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_fields_in_quotes_hold_line_ends(tmp_path: Path, size: int, ending: str) -> None:
    data = NOTED_TEXT.encode()
    if ending == "csv.zip":
        pack(tmp_path / "a.csv.zip", ".zip", {"a.csv": data})
    else:
        (tmp_path / f"a.{ending}").write_bytes(compressed(data, f".{ending}".removeprefix(".csv")))
    assert read_all(tmp_path, size, schema=NOTED, quoted_lines="read") == WITH_NOTES
    assert infer_schema(Stream("e", tmp_path, quoted_lines="read")).names == NOTED.names


@pytest.mark.parametrize("restarts", [False, True])
def test_a_record_of_several_lines_waits_for_its_end(tmp_path: Path, restarts: bool) -> None:
    path, data = tmp_path / "a.csv", NOTED_TEXT.encode()
    stream = Stream("e", tmp_path, quoted_lines="read")
    path.write_bytes(b"")
    reader = FileFeed(stream, NOTED)
    at, found = reader.initial(), []
    for end in [*range(0, len(data), 7), len(data)]:
        path.write_bytes(data[:end])
        if restarts:
            text._places.clear()
            reader = FileFeed(stream, NOTED)
        while count := reader.frontier(at, 3).rows:
            after = reader.advance(at, count)
            found += tuples(FileFeed(stream, NOTED).read(at, after))
            at = after
        assert found == WITH_NOTES[: len(found)]
    assert found == WITH_NOTES


QUOTES = [QuotedLines(",", '"', None, None), QuotedLines(";", "'", None, "#"), QuotedLines(",", '"', "\\", "#")]


@examples(200)
@given(
    st.lists(st.text("ab,;'\"\\\r#\n ", max_size=14), max_size=6),
    st.lists(st.integers(1, 9), min_size=1),
    st.sampled_from(QUOTES),
)
def test_line_ends_in_quotes_are_those_of_a_reader_that_goes_by_characters(
    lines: list[str], cuts: list[int], shape: QuotedLines
) -> None:
    data = "\n".join(lines).encode()
    decoder, found, at = shape.decoder(b"", "f"), b"", 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        decoder = decoder.copy()
        found += decoder.feed(data[at : at + size])
        at += size
    found += decoder.finish()
    assert with_inner_lines(found.decode()) == data.decode()
    assert found.decode() == by_characters(data.decode(), shape)


def by_characters(text: str, shape: QuotedLines) -> str:
    """Return a text with signs for the line ends in quotes, found one character after the other."""
    made, state, at = "", "line", 0
    while at < len(text):
        one, pair = text[at], text[at : at + 2]
        step = 1
        if state == "quoted":
            if one == shape.escape and len(pair) == 2:
                step, one = 2, pair
            elif one == shape.quote:
                step, state = (2, state) if pair == shape.quote * 2 else (1, "field")
                one = pair[:step]
            made += one.replace("\n", "\ufdd0").replace("\r", "\ufdd1")
        else:
            if state == "line" and one == shape.comment:
                step = (text + "\n").index("\n", at) - at
                state = "field"
            elif one == shape.escape and len(pair) == 2 and pair[1] != "\n":
                step, state = 2, "field"
            elif state in ("line", "begin") and one == shape.quote:
                state = "quoted"
            else:
                state = "line" if one == "\n" else "begin" if one in shape.delimiters else "field"
            made += text[at : at + step]
        at += step
    return made


def test_a_broken_record_of_several_lines_is_one_reject(tmp_path: Path) -> None:
    lines = ["ts,name,x,n", '2024-01-01T00:00:00Z,"a\nb",no,1', '2024-01-01T00:00:01Z,"c\nd",2,2', ""]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    reader = feed(tmp_path, quoted_lines="read")
    chunks = list(reader.read(*pairwise(steps(reader, FilePosition(), 9)).__next__()))
    assert [row[2] for row in tuples(chunks)] == ["c\nd"]
    (reject,) = (reject for chunk in chunks for reject in chunk.rejects)
    assert (reject.line, reject.column, reject.text) == (2, "x", '2024-01-01T00:00:00Z,"a\nb",no,1')


@examples(100)
@given(
    st.lists(st.lists(st.sampled_from(["1", "-25", "a", "x,y", 'q"', "°", "?"]), min_size=3, max_size=3), min_size=1)
)
def test_fields_are_those_of_pandas(table: list[list[str]]) -> None:
    names = ["a", "b", "c"]
    widths = "".join(f"{a:>5}{b:<4} -{c:^6}".rstrip() + "\n" for a, b, c in table)
    theirs = pd.read_fwf(io.StringIO(widths), widths=[5, 4, 2, 6], header=None, dtype=str, keep_default_na=False)
    made = FixedWidths((5, 4, -2, 6), None).lines(widths.encode()).decode()
    ours = pd.read_csv(io.StringIO(made), header=None, dtype=str, names=names, keep_default_na=False)
    assert ours.to_numpy().tolist() == theirs[[0, 1, 3]].to_numpy().tolist() == table
    lines = "".join(f"  {a}  {b}\t {c} \n" for a, b, c in table)
    theirs = pd.read_csv(io.StringIO(lines), sep=r"\s+", header=None, dtype=str, quoting=3, keep_default_na=False)
    made = Blanks(None).lines(lines.encode()).decode()
    ours = pd.read_csv(io.StringIO(made), sep=" ", header=None, dtype=str, quoting=3, keep_default_na=False)
    assert ours.to_numpy().tolist() == theirs.to_numpy().tolist() == table


def test_what_is_in_quotes_stays_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('ts   s\n1  "a  b\tc"\n2 ""\n')
    schema = pa.schema([("ts", pa.int64()), ("s", pa.string())])
    stream = Stream("e", tmp_path, delimiter="blanks", time_unit="s")
    (chunk,) = FileFeed(stream, schema).read(FilePosition(), None)
    assert chunk.tuples.column("s").to_pylist() == ["a  b\tc", None]


def test_a_reject_shows_the_line_as_it_is_read_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# note\nts x\n\n   \n 1    2\n\n 2   two \n3\t4 5\n")
    stream = Stream("e", tmp_path, delimiter="blanks", time_unit="s", comment="#")
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    found = [one for low, high in pairwise(steps(FileFeed(stream, schema), FilePosition(), 1))
             for chunk in FileFeed(stream, schema).read(low, high) for one in chunk.rejects]  # fmt: skip
    assert [(one.line, one.text) for one in found] == [(7, "2 two"), (8, "3 4 5")]


# As loggers, agencies and controllers write them: the text, the options, what is read, and the first event time.
REAL: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "UCI": (
        "Date;Time;P;V\n16/12/2006;17:24:00;0,5;234,840\n16/12/2006;17:25:00;?;1.234,5\n",
        {"delimiter": ";", "decimal": ",", "thousands": ".", "null_values": "?",
         "time": "to_timestamp(Date || ' ' || Time, '%d/%m/%Y %H:%M:%S')"},
        [{"P": 0.5, "V": 234.84}, {"P": None, "V": 1234.5}],
    ),
    "NDBC": (
        "#YY  MM DD hh mm WDIR WSPD\n#yr  mo dy hr mn degT m/s\n2024 03 05 09 00 110  5.1\n2024 03 05 08 50  MM   MM\n",
        {"delimiter": "blanks", "header": 2, "null_values": "MM",
         "time": "to_timestamp(YY || '-' || MM || '-' || DD || ' ' || hh || ':' || mm, '%Y-%m-%d %H:%M')"},
        [{"WDIR": 110, "WSPD": 5.1}, {"WDIR": None, "WSPD": None}],
    ),
    "ISD-lite": (
        "2024 03 05 09   192 -9999 10132\n2024 03 05 10    -5   -20 10140\n",
        {"widths": [4, 3, 3, 3, 6, 6, 6], "header": 0, "null_values": "-9999",
         "time": "to_timestamp(column_1 || '-' || column_2 || '-' || column_3 || ' ' || column_4, '%Y-%m-%d %H')"},
        [{"column_5": 192, "column_6": None}, {"column_5": -5, "column_6": -20}],
    ),
    "GeoLife": (
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
        "39.9,116.3,0,-777,45356.375,2024-03-05,09:00:00\n",
        {"skip_lines": 6, "header": 0, "format": "csv", "time": "column_5", "time_format": "excel"},
        [{"column_1": 39.9, "column_4": -777}],
    ),
    "TOA5": (
        '"TOA5","CR1000","1"\n"TIMESTAMP","RECORD","AirTC"\n"TS","RN","C"\n"","","Avg"\n'
        '"2024-03-05 09:00:00",0,"NAN"\n"2024-03-05 09:10:00",1,19.18\n',
        {"skip_lines": 1, "header": 3, "null_values": "NAN", "time": "TIMESTAMP"},
        [{"RECORD": 0, "AirTC": None}, {"RECORD": 1, "AirTC": 19.18}],
    ),
    "EPA": (
        '"State Code","Sample Measurement","Date GMT"\n"06",0.041,"2024-03-05 09:00"\n"06","","2024-03-05 10:00"\n',
        {"time": "Date GMT"},
        [{"State Code": 6, "Sample Measurement": 0.041}, {"State Code": 6, "Sample Measurement": None}],
    ),
    "historian": (
        "Tag;Timestamp;Value;Quality;\nT1;2024.03.05 09:00:00;1 019,18;GOOD;\nT1;2024.03.05 09:00:01;Bad;BAD;\n",
        {"delimiter": ";", "decimal": ",", "thousands": "space", "null_values": "Value=Bad", "time": "Timestamp"},
        [{"Tag": "T1", "Value": 1019.18}, {"Tag": "T1", "Value": None}],
    ),
    "RDB": (
        "# USGS\nagency\tsite\tdatetime\tgauge\n5s\t15s\t20d\t14n\nUSGS\t01\t2024-03-05 09:00\t2.5\n# end\n",
        {"delimiter": "tab", "comment": "#", "header": 2, "time": "datetime"},
        [{"agency": "USGS", "gauge": 2.5}],
    ),
    "AIS": (
        "# Timestamp,MMSI,SOG\n05/03/2024 09:00:07,219000001,19.18\n",
        {"time": "Timestamp", "time_format": "%d/%m/%Y %H:%M:%S"},
        [{"MMSI": 219000001, "SOG": 19.18}],
    ),
}  # fmt: skip


HOURS = {"UCI": 1_166_289_840 // 3600}


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", REAL)
def test_files_as_they_lie(tmp_path: Path, kind: str, ends: str) -> None:
    written, options, wanted = REAL[kind]
    (tmp_path / "a.csv").write_text(written, newline=ends)
    stream = Stream("e", tmp_path / "a.csv", **options)
    beside = Stream("w", "w/", schema=pa.schema({"ts": pa.int64(), "x": pa.int64()}))
    near = f"|e.`{list(wanted[0])[-1]}` - w.x| <= 1"
    join = Join([stream, beside], near, "1s", select=[f"e.`{name}`" for name in wanted[0]])
    bound = bind(join, {"e": infer_schema(stream), "w": beside.schema})
    own, schema = bound.join.streams[0], bound.read_schemas[0]
    chunks = [*FileFeed(own, schema).read(FilePosition(), None)]
    assert [chunk.rejects for chunk in chunks] == [[]]
    found = chunks[0].tuples.to_pylist()
    assert [{name: one[name] for name in wanted[0]} for one in found] == wanted
    assert found[0][TS] // 3_600_000_000 == HOURS.get(kind, 1_709_629_200 // 3600)
