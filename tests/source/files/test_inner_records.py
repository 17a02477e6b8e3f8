"""Unfolding gives what Python's own JSON reader finds, in the bytes that were written, however the text is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.source.files import text as texts
from streamjoin_ds.source.files.file_feed import FileFeed
from streamjoin_ds.source.files.inner_records import Unfolded
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Files, Stream
from streamjoin_ds.spec.nested_path import RecordsForm, records_form
from streamjoin_ds.spool.segment import frames_of, header, mark
from tests.source.feeds import SCHEMA, compressed, expected, feed, iso, read_all, rows, steps, tuples
from tests.support.examples import examples


def _form(text: str) -> RecordsForm:
    form = records_form(text)
    assert form is not None
    return form


def _lines(records: str, text: bytes, cuts: Sequence[int] = ()) -> list[str]:
    unfolding, given_, begin = Unfolded(_form(records)).decoder(b"", "f"), b"", 0
    for cut in (*sorted(cut % (len(text) + 1) for cut in cuts), len(text)):
        if cut > begin:
            given_ += unfolding.feed(text[begin:cut])
            unfolding, begin = unfolding.copy(), cut
    given_ += unfolding.finish()
    return given_.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n") if given_ else []


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from('"\\{}[],:\n')
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_OBJECTS = st.dictionaries(st.sampled_from(["a", "v", "values", '"', "\u00e9", "{"]), _VALUES, max_size=4)
_STYLES = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"indent": 0, "ensure_ascii": False}, {"ensure_ascii": False}]
)
_CUTS = st.lists(st.integers(0, 10_000), max_size=4)


def _same(found: Sequence[str], expected: Sequence[Any]) -> bool:
    """Whether lines hold values, NaN included."""
    return [json.dumps(json.loads(line), sort_keys=True) for line in found] == [
        json.dumps(one, sort_keys=True) for one in expected
    ]


@examples(150)
@given(st.lists(_OBJECTS, max_size=4), _STYLES, st.sampled_from(["array", "\n", " ", "\r\n", ""]), _CUTS)
def test_each_object_of_a_text_is_a_line(objects: list[Any], style: Any, between: str, cuts: list[int]) -> None:
    text = json.dumps(objects, **style) if between == "array" else between.join(json.dumps(o, **style) for o in objects)
    assert _same(_lines("$", text.encode(), cuts), objects)


@examples(150)
@given(st.lists(st.tuples(_OBJECTS, st.lists(_VALUES | _OBJECTS, max_size=3)), max_size=3), _STYLES, _CUTS)
def test_elements_have_the_fields_beside_their_array(records: list[Any], style: Any, cuts: list[int]) -> None:
    expected = []
    for outer, elements in records:
        outer["values"] = elements
        beside = {name: one for name, one in outer.items() if name != "values"}
        expected += [{**beside, **(one if isinstance(one, dict) else {"values": one})} for one in elements]
    text = "\n".join(json.dumps(outer, **style) for outer, _ in records)
    assert _same(_lines("values", text.encode(), cuts), expected)


@examples(100)
@given(st.lists(_OBJECTS, min_size=1, max_size=4), _STYLES, st.data())
def test_a_damaged_text_gives_the_same_lines_however_it_is_cut(
    objects: list[Any], style: Any, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(objects, **style).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"{", b"]", b"\n", b"\\"])
        )
    whole = _lines("$", bytes(text))
    assert _lines("$", bytes(text), data.draw(_CUTS)) == whole
    assert _lines("$", bytes(text), range(len(text))) == whole
    # Nothing is lost but blanks, commas and the array's brackets.
    assert "".join("".join(whole).split()).replace(",", "").count(":") == text.count(b":")


@pytest.mark.parametrize(
    ("records", "text", "lines"),
    [
        ("$", '[{"a":1.50},\n {"b":[1,{"c":2}]}]', ['{"a":1.50}', '{"b":[1,{"c":2}]}']),
        ("$", '{\n "a":1\n}\n{"b":1}', ['{\t "a":1\t}', '{"b":1}']),
        # What is damaged ends where the next object begins, where that can be told.
        ("$", '[{"a":"x},\n{"a":2},{"a":[1,2},{"a":4}]', ['{"a":"x},', '{"a":2}', '{"a":[1,2}', '{"a":4}']),
        ("$", '[{"a":1,{"a":2},5,{"a":3}', ['{"a":1,', '{"a":2}', "5", '{"a":3}']),
        ("$", '{"a":1}\n{"a":[2\n{"a":3}\n]\n', ['{"a":1}', '{"a":[2', '{"a":3}', "]"]),
        ("values", '{"x":1.10,"values":[1,null,NaN]}', [f'{{"x":1.10,"values":{v}}}' for v in ("1", "null", "NaN")]),
        ("values", '{"x":1,"values":[{"x":2},{"\\u0078":3}]}', ['{"x":2}', '{"\\u0078":3}']),
        ("values", '{"values":{"v":1}} {"values":null} {"values":[]}', ['{"v":1}']),
        ("values", '{"v":1}\n{"values":5}\n{"values":[}\n', None),
        ("$.a[*].b[*]", '{"o":1,"a":[{"s":2,"b":[{"x":1},7]},{"b":[]}]}', None),
        (
            "fields/data",
            '{"fields":["t","pm2.5"],"data":[[1,19.18],[2]]}',
            ['{"t":1,"pm2.5":19.18}', "1 values for 2 names: [2]"],
        ),
    ],
)
def test_what_a_text_gives(records: str, text: str, lines: list[str] | None) -> None:
    expected = {
        "values": ['values is not there: {"v":1}', 'not an array: {"values":5}', '{"values":[}'],
        "$.a[*].b[*]": ['{"o":1,"a":{"s":2},"x":1}', '{"o":1,"a":{"s":2},"b":7}'],
    }
    assert _lines(records, text.encode()) == (expected[records] if lines is None else lines)


def test_records_of_a_pack_have_its_base_values() -> None:
    pack = (
        '[{"bn":"urn:dev:7:","bt":1709629207,"bu":"Cel","n":"temp","v":19.18},{"n":"hum","u":"%RH","t":-5.5,"v":40.10},'
        '{"bn":"urn:dev:8:","bv":0.1,"bt":0,"v":0.2},{"n":"on","t":1709629300,"vb":true}]\n[{"n":"x","t":1e3,"v":1}]\n'
    )
    assert _lines("senml", pack.encode()) == [
        '{"n":"urn:dev:7:temp","u":"Cel","v":19.18,"t":1709629207}',
        '{"n":"urn:dev:7:hum","u":"%RH","t":1709629201.5,"v":40.10}',
        '{"n":"urn:dev:8:","u":"Cel","v":0.3}',  # relative to the present: no time
        '{"n":"urn:dev:8:on","u":"Cel","t":1709629300,"vb":true}',
        '{"n":"x","v":1}',
    ]


def test_a_pack_whose_base_is_damaged_gives_no_record() -> None:
    lines = _lines("senml", b'[{"bn":"a","bt":17x},{"n":"b","t":1709629207}]\n[{"n":"c","t":1709629207}]\n')
    assert lines == [
        '{"bn":"a","bt":17x}',
        'base values before it cannot be read: {"n":"b","t":1709629207}',
        '{"n":"c","t":1709629207}',
    ]


ROWS = rows(11)
_RECORDS = [{"ts": iso(ts), "name": name, "x": x, "n": n} for ts, name, x, n in ROWS]
# The same records, written in several ways: what `records` is, and the text.
WAYS = {
    "array": ("$", json.dumps(_RECORDS, indent=1)),
    "pretty": ("$", "\n".join(json.dumps(record, indent=2) for record in _RECORDS)),
    "one after the other": ("$", "".join(json.dumps(record) for record in _RECORDS)),
    "envelopes": (
        "o.values",
        "".join(
            json.dumps({"name": name, "o": {"values": [r for r in _RECORDS if r["n"] == n]}}) + "\n"
            for _, name, _, n in ROWS
        ),
    ),
    "one envelope": ("values", json.dumps({"kind": "all", "values": _RECORDS}, indent=1)),
    "rows": ("fields/data", json.dumps({"fields": SCHEMA.names, "data": [[*record.values()] for record in _RECORDS]})),
}


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("ending", ["json", "json.gz"])
@pytest.mark.parametrize("way", WAYS)
def test_the_records_are_those_of_lines(tmp_path: Path, way: str, ending: str, size: int) -> None:
    records, text = WAYS[way]
    (tmp_path / f"a.{ending}").write_bytes(compressed(text.encode(), f".{ending.rpartition('.')[2]}"))
    assert read_all(tmp_path, size, records=records) == expected(ROWS)
    assert set(SCHEMA.names) <= set(infer_schema(Stream("e", tmp_path, records=records)).names)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_file_is_read_as_it_grows(tmp_path: Path, way: str, restarts: bool) -> None:
    """A whole element comes as soon as it is there; what is not whole waits, and is lost nowhere."""
    records, text = WAYS[way]
    path, data = tmp_path / "a.json", text.encode()
    path.write_bytes(b"")
    reader = feed(tmp_path, records=records)
    at, found = reader.initial(), []
    for end in [*range(0, len(data), 37), len(data)]:
        path.write_bytes(data[:end])
        if restarts:
            texts._places.clear()
            reader = feed(tmp_path, records=records)
        while count := reader.frontier(at, 3).rows:
            after = reader.advance(at, count)
            found += tuples(feed(tmp_path, records=records).read(at, after))
            at = after
    assert found == expected(ROWS)


def _segment(payloads: Sequence[bytes], marked: bool = True) -> bytes:
    frames = b"".join(frames_of([(b"t/7", payload) for payload in payloads], 0, 1_000_000, salt=1))
    return header(1, 0) + frames + mark(len(payloads), 1) * marked


def test_messages_of_a_spool_are_unfolded(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("spool_topic", pa.string()), ("spool_number", pa.int64())])
    payloads = [
        json.dumps({"values": _RECORDS[:4], "spool_topic": "mine"}, indent=1).encode(),
        b"",
        b"[",
        b'{"values":[]}',
    ]
    payloads += [json.dumps({"values": [record]}).encode() for record in _RECORDS[4:]]
    path = tmp_path / f"{0:020d}.spool"
    path.write_bytes(_segment(payloads))
    options: dict[str, Any] = {"records": "values", "format": "spool"}
    for size in (1, 3, 100):
        places = steps(feed(tmp_path, **options), FilePosition(), size)
        chunks = [c for low, high in pairwise(places) for c in feed(tmp_path, **options).read(low, high)]
        found = tuples(chunks)
        assert [row[2:] for row in found] == [row[2:] for row in expected(ROWS)]
        assert [row[1] for row in found] == [0, 1, 2, 3, *range(6, 13)]
        assert [(r.seq, r.reason, r.text) for c in chunks for r in c.rejects] == [
            (4, "not JSON", "an empty message"), (5, "not JSON", "an array does not end here")
        ]  # fmt: skip
    read = FileFeed(Stream("e", str(tmp_path), **options), schema)
    rows_ = [
        row
        for c in read.read(FilePosition(), None)
        for row in c.tuples.select(["spool_topic", "spool_number"]).to_pylist()
    ]
    assert rows_ == [{"spool_topic": "t/7", "spool_number": n} for n in (0, 0, 0, 0, *range(4, 11))]
    assert not set(infer_schema(Stream("e", tmp_path, records="values", format="spool")).names) & {
        "spool_topic",
        "spool_number",
    }


def test_of_a_segment_that_is_written_no_message_counts_that_is_not_marked(tmp_path: Path) -> None:
    payloads = [json.dumps({"values": [record]}).encode() for record in _RECORDS]
    path = tmp_path / f"{0:020d}.spool"
    path.write_bytes(_segment(payloads[:5]) + _segment(payloads[5:], marked=False)[len(header(1, 0)) :])
    reader = feed(tmp_path, records="values", format="spool")
    reader.freeze()
    assert reader.frontier(reader.initial(), 99).rows == 5


def test_a_broken_element_is_one_reject_and_its_neighbours_are_not(tmp_path: Path) -> None:
    lines = [json.dumps(record) for record in _RECORDS]
    lines[3] = lines[3].replace('"x": ', '"x": [')
    lines[6] = lines[6].replace('"n"', '"n')
    (tmp_path / "a.json").write_text("[" + ",\n".join(lines) + "]")
    for size in (1, 4, 100):
        places = steps(feed(tmp_path, records="$"), FilePosition(), size)
        chunks = [c for low, high in pairwise(places) for c in feed(tmp_path, records="$").read(low, high)]
        assert [reject.seq for chunk in chunks for reject in chunk.rejects] == [3, 6]
        assert tuples(chunks) == [row for row in expected(ROWS) if row[1] not in (3, 6)]


@pytest.mark.parametrize(
    ("source", "options", "hint"),
    [
        ("a.json", {"records": "a[0]"}, "a path such as values"),
        ("a.json", {"records": "a/b/c"}, "a path such as values"),
        ("kafka://b/t?format=json", {"records": "a[0]"}, "a path such as values"),
        ("gen:sine", {"records": "values"}, "leave records out"),
    ],
)
def test_what_has_no_records_inside_is_refused_by_name(source: str, options: dict[str, str], hint: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        Stream("e", source, **options)
    assert refused.value.name == "records"
    assert hint in str(refused.value)


def test_files_that_are_no_json_are_refused_where_they_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,x\n")
    with pytest.raises(ArgumentError, match="records"):
        infer_schema(Stream("e", tmp_path, records="$"))


def test_a_file_without_the_array_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(_RECORDS[0]))
    with pytest.raises(FileFormatError, match="records"):
        infer_schema(Stream("e", tmp_path, records="values"))


def test_the_option_is_that_of_files() -> None:
    assert Files("a/", records="values").checked("e").records_form == records_form("$.values[*]")
