"""A line of JSON is what it is alone, whatever its neighbours hold; dates in it are texts."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.lines import Lines, parse_lines
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.time_text import event_times

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])
GOOD = b'{"ts": "2024-01-01T00:00:00Z", "x": 1}'
LINES = (
    GOOD, b'  {"ts": "2024-01-01T00:00:01Z", "x": 2} ', GOOD + b"\r", b'{"x": 3}', b"{}", b'{"ts": "a"', b',"x": 1}',
    b'{"ts": {', b'"y": 1}, "x": 5}', GOOD + GOOD, GOOD + b" null", b"null", b"[", b"]", b"[{}]", b'{"x": [{"y": 1}',
    b'{"y": 2}]}', b'"x"', b"{", b"}", b'{"ts": "a}', b'{b", "x": 2}', b"\xff", b"", b" ", b'{"x": "no number"}',
    b'{"ts": 1704067202, "x": 4}', b'{"ts": 1704067203.5, "x": 5}', b'{"ts": 17040672040000000000, "x": 6}',
)  # fmt: skip


def read(lines: list[bytes], newline: bytes = b"\n") -> RawRecords:
    data = newline.join(lines) + newline
    return parse_lines(Lines.of(data), JsonLines(SCHEMA, "ts"), file="f.jsonl", at_file_start=False)


def told(table: pa.Table) -> list[dict[str, object]]:
    """Return the rows, with their event times as all formats read them: whole numbers may be texts beside texts."""
    ts_us, valid = event_times(table.column("ts").combine_chunks(), "s")
    times = [us if ok else None for us, ok in zip(ts_us.tolist(), valid.tolist(), strict=True)]
    return [row | {"ts": time} for row, time in zip(table.to_pylist(), times, strict=True)]


@given(st.lists(st.sampled_from(LINES), max_size=12), st.booleans())
def test_a_line_is_what_it_is_alone(lines: list[bytes], ends: bool) -> None:
    newline = b"\r\n" if ends else b"\n"
    rows, broken, count = [], [], 0
    for line in lines:
        alone = read([line], newline)
        rows += told(alone.table)
        broken += [(count + place, column) for place, column, *_ in alone.broken]
        count += alone.count
    found = read(lines, newline)
    assert found.count == count
    assert told(found.table) == rows
    assert sorted((place, column) for place, column, *_ in found.broken) == broken


VALUES = (
    b'"a"', b'"\\u00e4\\n"', b"19.18", b"1e3", b"-0.0", b"123456789012345678901234567890", b"true", b"null",
    b'{"a":  [1, "x"]}', b"[ 1,2 ]", b"{}", b"[]", '"ü"'.encode(), '{"ü":"\u20ac"}'.encode(),
)  # fmt: skip


@given(st.lists(st.tuples(*[st.sampled_from(VALUES)] * 4), max_size=6))
def test_in_a_column_of_text_all_else_is_its_text_as_it_is_written(records: list[tuple[bytes, ...]]) -> None:
    kinds = {"v": pa.string(), "a.v": pa.string(), "b": pa.list_(pa.string())}
    schema = pa.schema([SCHEMA.field("ts"), *kinds.items()])
    lines = [b'{"x":1, "v": %b ,"x":2,"a":{"w":%b,"v":%b},"b":[%b]}' % values for values in records]
    form = JsonLines(schema, "ts", ["a.v"])
    found = parse_lines(Lines.of(b"".join(b"%b\n" % one for one in lines)), form, file="f", at_file_start=False)
    assert not found.broken

    def text(value: bytes) -> str | None:
        read = json.loads(value)
        return read if read is None or isinstance(read, str) else value.decode()

    assert found.table.to_pydict() == {
        "ts": [None] * len(records),
        "v": [text(v) for v, *_ in records],
        "a.v": [text(v) for *_, v, _ in records],
        "b": [[text(v)] for *_, v in records],
    }


def test_texts_are_made_of_values_and_never_of_what_is_refused() -> None:
    form = JsonLines(pa.schema([SCHEMA.field("ts"), ("x", pa.int64()), ("v", pa.string())]), "ts")
    lines = [b'{"v":1,"v":2}', b'{"v":1,"x":"a"}', b'{"v":1', b'{"v":NaN}', b'{"v":7,"x":1}', b'{"ts":1.5,"v":8}']
    found = parse_lines(Lines.of(b"\n".join(lines)), form, file="f", at_file_start=False)
    assert [(place, column) for place, column, *_ in found.broken] == [(0, "v"), (1, "x"), (2, "")]
    assert found.table.column("v").to_pylist() == ["NaN", "7", "8"]


@pytest.mark.parametrize("lines", [[b'{"ts": "a"', b',"x": 1}', GOOD + GOOD], [b"[", GOOD, b"]", GOOD + GOOD]])
def test_neighbours_do_not_make_up_for_broken_lines(lines: list[bytes]) -> None:
    found = read(lines)
    assert found.table.num_rows == lines.count(GOOD)
    assert len(found.broken) == len(lines) - lines.count(GOOD)


DATES = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])


def line(day: str) -> bytes:
    return f'{{"ts": "2024-01-01T00:00:00Z", "day": {day}}}\n'.encode()


def test_a_text_is_a_date() -> None:
    table = JsonLines(DATES, "ts").parse(line('"2024-02-03"') + line("null"))
    assert table["day"].to_pylist() == [date(2024, 2, 3), None]


@pytest.mark.parametrize("day", ['"2024-02-33"', '"soon"', "12"])
def test_what_is_no_date_is_refused_by_name(day: str) -> None:
    lines = JsonLines(DATES, "ts")
    with pytest.raises(pa.ArrowInvalid):
        lines.parse(line(day))
    assert lines.reason(line(day))[0] == "day"


def test_times_and_dates_inside_lists_and_structs_are_texts_too() -> None:
    inside = pa.struct([("on", pa.date32()), ("at", pa.list_(pa.timestamp("us", tz="UTC"))), ("n", pa.int8())])
    schema = pa.schema([("ts", pa.int64()), ("s", inside), ("days", pa.list_(pa.date32()))])
    data = (
        b'{"ts": 1, "s": {"n": 3, "more": {}, "on": "2024-02-03", '
        b'"at": ["2024-01-01", null, "2024-01-01T01:00:00+01:00"]}}\n'
        b'{"ts": 2, "s": null, "days": ["2024-02-03", null]}\n'
        b'{"ts": 3, "s": {"at": []}, "days": []}\n'
    )
    table = JsonLines(schema, "ts").parse(data)
    first = datetime(2024, 1, 1, tzinfo=timezone.utc)
    assert table["s"].to_pylist() == [
        {"on": date(2024, 2, 3), "at": [first, None, first], "n": 3},
        None,
        {"on": None, "at": [], "n": None},
    ]
    assert table["days"].to_pylist() == [None, [date(2024, 2, 3), None], []]
    lines = JsonLines(schema, "ts")
    for broken in ('"s": {"at": ["soon"]}', '"s": {"on": 12}', '"s": []', '"s": {"n": 300}'):
        line_of = f'{{"ts": 1, {broken}}}\n'.encode()
        with pytest.raises(pa.ArrowInvalid):
            lines.parse(line_of)
        assert lines.reason(line_of)[0] == "s"
