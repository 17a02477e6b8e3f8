"""How CSV is written: nulls, separators of thousands, quotes and escapes. The rows are those of DuckDB and pandas."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan.explanation import _join
from streamjoin_ds.source.files.csv_dialect import CsvDialect
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.kafka.formats.message_formats import CsvMessages
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Files, Join, Stream, bind
from streamjoin_ds.spec.member.source import Topic
from tests.source.feeds import steps, tuples
from tests.support.examples import examples

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("n", pa.int64()), ("s", pa.string())])


@st.composite
def dialects(draw: st.DrawFn) -> dict[str, Any]:
    """Draw options that CSV files may have beside each other."""
    delimiter = draw(st.sampled_from([",", ";", "|", "tab", "space"]))
    decimal = draw(st.sampled_from([".", ","] if delimiter != "," else ["."]))
    quote = draw(st.sampled_from(['"', "'", "none"]))
    taken = {decimal, quote, " " if delimiter == "space" else ""}
    thousands = draw(st.sampled_from([None, *(sign for sign in (",", ".", " ", "'", "_") if sign not in taken)]))
    if thousands == delimiter and quote == "none":
        thousands = None
    escape = draw(st.sampled_from([None, "\\"]))
    nulls = draw(st.sampled_from([None, ["?"], ["-9999", "MM"], {"n": ["-1"], "s": ["?"]}, {"": ["MM"], "x": ["7"]}]))
    made = {"delimiter": delimiter, "decimal": decimal, "quote": quote, "thousands": thousands, "escape": escape}
    quoted_lines = draw(st.sampled_from(["reject", "read"] if quote != "none" else ["reject"]))
    return made | {"null_values": nulls, "quoted_lines": quoted_lines}


def separator(options: dict[str, Any]) -> str:
    return {"tab": "\t", "space": " "}.get(options["delimiter"], options["delimiter"])


def written(value: Any, options: dict[str, Any], column: str, group: bool) -> str:
    """Return a value as a writer of the dialect writes it: quoted or escaped where it must be."""
    nulls = options["null_values"] or []
    named = nulls if isinstance(nulls, list) else [*nulls.get("", []), *nulls.get(column, [])]
    if value is None:
        return named[0] if named else ""
    text = str(value)
    if isinstance(value, int | float):
        sign = options["thousands"] if group else None
        text = f"{value:,}".replace(",", "\0").replace(".", options["decimal"]).replace("\0", sign or "")
    special = {separator(options), options["quote"], options["escape"], "\n", "\r"} & {*text}
    if options["quote"] != "none" and special:
        quote, escape = options["quote"], options["escape"]
        text = text.replace(escape, escape * 2) if escape else text
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"
    for sign in special if options["escape"] else ():
        text = text.replace(options["escape"], options["escape"] * 2) if sign == options["escape"] else text
    if options["escape"]:
        text = text.replace(separator(options), options["escape"] + separator(options))
    return text


def texts(options: dict[str, Any]) -> st.SearchStrategy[str]:
    """Texts that the dialect can write, and that are null in none."""
    can_hide = options["quote"] != "none" or options["escape"] is not None
    letters = "ab°,;|'\" \\_?" if can_hide else "ab°_"
    letters += "\n\r" * (options["quoted_lines"] == "read")
    made = st.text(letters, min_size=1, max_size=5).map(lambda text: f"t{text}t")
    return made if can_hide else made.filter(lambda text: separator(options) not in text)


@examples(60)
@given(st.data(), dialects(), st.integers(1, 5), st.booleans())
def test_rows_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, options: dict[str, Any], size: int, group: bool
) -> None:
    """And those that DuckDB and pandas read, where they have the option."""
    numbers = st.none() | st.integers(2000, 10**9)
    row = st.tuples(st.none() | st.integers(8, 10**7).map(lambda n: n / 4 + 0.25), numbers, st.none() | texts(options))
    rows = [row for row in data.draw(st.lists(row, min_size=1, max_size=7))]
    header = separator(options).join(SCHEMA.names)
    lines = [
        separator(options).join(
            [f"2024-01-01T00:00:0{second}Z", *(written(v, options, c, group) for v, c in zip(row, "xns", strict=True))]
        )
        for second, row in enumerate(rows)
    ]
    text = "\n".join([header, *lines]) + "\n"
    path = tmp_path_factory.mktemp("dialect") / "a.csv"
    path.write_text(text)

    def feed() -> FileFeed:
        return FileFeed(Stream("e", path, **options), SCHEMA)

    found = [
        one[2:] for low, high in pairwise(steps(feed(), FilePosition(), size)) for one in tuples(feed().read(low, high))
    ]
    assert found == [tuple(row) for row in rows], text
    inferred = infer_schema(Stream("e", path, **options))
    for column, values in zip("xn", zip(*[row[:2] for row in rows], strict=True), strict=True):
        if any(value is not None for value in values):
            kind = inferred.field(column).type
            assert pa.types.is_floating(kind) or pa.types.is_integer(kind), text
    quote, escape, nulls = (options[name] for name in ("quote", "escape", "null_values"))
    if escape is not None and quote == "none":
        return  # what is escaped without quotes is read by neither
    keep = {"": nulls} if isinstance(nulls, list) else nulls or {}
    frame = pd.read_csv(
        io.StringIO(text), sep=separator(options), quotechar='"' if quote == "none" else quote,
        quoting=3 if quote == "none" else 0, escapechar=escape, decimal=options["decimal"],
        thousands=options["thousands"], keep_default_na=True, encoding="utf-8",
        na_values={c: [*keep.get("", []), *keep.get(c, [])] for c in "xns"},
    )  # fmt: skip
    theirs = [tuple(None if pd.isna(v) else v for v in row) for row in frame[["x", "n", "s"]].itertuples(index=False)]
    assert theirs == found, text
    if isinstance(nulls, dict) or options["thousands"] or options["decimal"] != "." or escape is not None:
        return
    con = duckdb.connect()
    told = con.read_csv(
        str(path), sep=separator(options), quotechar="" if quote == "none" else quote, header=True,
        escapechar="" if quote == "none" else quote, na_values=["", *(nulls or [])],
        dtype={"ts": "VARCHAR", "x": "DOUBLE", "n": "BIGINT", "s": "VARCHAR"},
    )  # fmt: skip
    assert [row[1:] for row in told.fetchall()] == found, text


@pytest.mark.parametrize(
    ("field", "options", "value"),
    [
        ("1,234,567.5", {"delimiter": ";", "thousands": ","}, 1234567.5),
        ('"1,234,567.5"', {"delimiter": ",", "thousands": ","}, 1234567.5),
        ("12,34,567", {"delimiter": ";", "thousands": ","}, 1234567.0),
        ("1.234.567,5", {"delimiter": ";", "thousands": ".", "decimal": ","}, 1234567.5),
        ("1 234 567,5", {"delimiter": ";", "thousands": "space", "decimal": ","}, 1234567.5),
        ("1\u202f234,5", {"delimiter": ";", "thousands": " ", "decimal": ","}, 1234.5),
        ("1'234.5", {"thousands": "'"}, 1234.5),
        ("-1_000", {"thousands": "_"}, -1000.0),
        ("1,2", {"delimiter": ";", "thousands": ","}, "reject"),
        ("1234,567", {"delimiter": ";", "thousands": ","}, "reject"),
        ("1.5", {"delimiter": ";", "thousands": ".", "decimal": ","}, "reject"),
        ("?", {"null_values": "?"}, None),
        (" -9999", {"null_values": ["MM", "-9999"]}, None),
        ("-9999", {"null_values": {"x": ["-9999"]}}, None),
        ("-9999", {"null_values": "MM|n=-9999"}, -9999.0),
        ("-9999", {"null_values": "MM|x=-9999"}, None),
        ('"NAN"', {"null_values": ["NAN"]}, None),
        ("NAN", {}, math.nan),
        ("NA", {"null_values": ["?"]}, None),
    ],
)
def test_a_number(tmp_path: Path, field: str, options: dict[str, Any], value: object) -> None:
    sign = options.get("delimiter", ",")
    lines = [["ts", "x", "n"], ["1", field, "2"], ["2", f"1{options.get('decimal', '.')}5", "3"]]
    (tmp_path / "a.csv").write_text("".join(sign.join(line) + "\n" for line in lines))
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("n", pa.int64())])
    (chunk,) = FileFeed(Stream("e", tmp_path, time_unit="s", **options), schema).read(FilePosition(), None)
    if value == "reject":
        assert [(reject.column, reject.reason) for reject in chunk.rejects] == [
            ("x", "the value is not of type double")
        ]
        return
    assert not chunk.rejects
    found = chunk.tuples.column("x").to_pylist()
    assert found[0] == value or (value is math.nan and math.isnan(found[0]))
    assert found[1] == 1.5


def test_named_texts_are_null_in_columns_of_text_and_of_times(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('ts,s,at,t\n1,?,?,?\n2,"?",2024-01-01,NA\n?,a,2024-01-02,b\n')
    moment = pa.timestamp("us", tz="UTC")
    schema = pa.schema({"ts": moment, "s": pa.string(), "at": moment, "t": pa.string()})
    (chunk,) = FileFeed(Stream("e", tmp_path, null_values="?"), schema).read(FilePosition(), None)
    assert chunk.tuples.column("s").to_pylist() == [None, None]
    assert chunk.tuples.column("t").to_pylist() == [None, "NA"]
    assert [value is None for value in chunk.tuples.column("at").to_pylist()] == [True, False]
    assert [(reject.line, reject.column) for reject in chunk.rejects] == [(4, "ts")]


def test_messages_have_the_same_options() -> None:
    source = Topic("kafka://b:9092/t?format=csv&header=ts,x,s", delimiter="blanks", thousands="'", null_values="MM",
                   quote="|", escape="\\")  # fmt: skip
    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
    form = CsvMessages(["ts", "x", "s"], schema, Stream("e", source))
    raw = form.read(pa.array([b"1   1'234.5\t|a  b|", b" 2 MM MM ", b"3 1'2 a"], pa.binary()))
    assert raw.table.column("x").to_pylist() == [1234.5, None]
    assert raw.table.column("s").to_pylist() == ["a  b", None]
    assert [(place, column) for place, column, *_ in raw.broken] == [(2, "x")]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"thousands": "."}, "thousands"),
        ({"thousands": ",,"}, "thousands"),
        ({"thousands": ",", "quote": "none"}, "thousands"),
        ({"quote": ","}, "quote"),
        ({"quote": "''"}, "quote"),
        ({"quote": ""}, "quote"),
        ({"escape": '"'}, "escape"),
        ({"escape": "n"}, "escape"),
        ({"null_values": [5]}, "null_values"),
        ({"null_values": {"x": "a\nb"}}, "null_values"),
        ({"widths": [4, 0]}, "widths"),
        ({"widths": [-4]}, "widths"),
        ({"widths": "four"}, "widths"),
        ({"widths": [4], "delimiter": ";"}, "delimiter"),
        ({"widths": [4], "format": "json"}, "widths"),
        ({"null_values": "MM", "format": "parquet"}, "null_values"),
        ({"quoted_lines": "yes"}, "quoted_lines"),
        ({"quoted_lines": "read", "quote": "none"}, "quoted_lines"),
        ({"quoted_lines": "read", "widths": [4]}, "quoted_lines"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Files("a.csv", **options).checked("e")
    assert caught.value.name == name


SHOWN = {
    "thousands": "= ", "null_values": "=MM|-9", "widths": "=4 3 -2", "quote": "='", "escape": "=\\",
    "quoted_lines": "=read",
}  # fmt: skip


def test_it_is_of_the_join_and_shown_as_a_text_says_it() -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    plain = [Stream("e", "in/", schema=schema), Stream("w", "out/", schema=schema)]
    for options, one in (
        ({"thousands": "space"}, {"thousands": " "}),
        ({"null_values": "MM|-9"}, {"null_values": ["MM", "-9"]}),
        ({"null_values": "MM|-9|x=-9"}, {"null_values": {"": ["MM", "-9"], "x": "-9"}}),
        ({"widths": "4 3 -2"}, {"widths": [4, 3, -2]}),
        ({"quote": "'"},) * 2,
        ({"escape": "\\"},) * 2,
        ({"quoted_lines": "read"},) * 2,
    ):
        first, second = (Stream("e", "in/", schema=schema, **given) for given in (options, one))
        assert first == second == Stream.from_facts(first.to_facts())
        joins = [
            bind(Join([stream, plain[1]], "e.x = w.x", "1s"), dict.fromkeys("ew", schema))
            for stream in (first, plain[0])
        ]
        assert joins[0].fingerprint != joins[1].fingerprint
        assert plain[0].to_facts().keys() & options.keys() == set()
        (shown,) = (line for line in _join(joins[0]) if "  source " in line)
        assert SHOWN[next(iter(options))] in shown
    assert CsvDialect.of(plain[0].source) == CsvDialect()
