"""Dates in JSON lines are texts: read as dates, refused by name where they are none."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pyarrow as pa
import pytest

from streamjoin_ds.source.files.json_lines import JsonLines

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])


def line(day: str) -> bytes:
    return f'{{"ts": "2024-01-01T00:00:00Z", "day": {day}}}\n'.encode()


def test_a_text_is_a_date() -> None:
    table = JsonLines(SCHEMA, "ts").parse(line('"2024-02-03"') + line("null"))
    assert table["day"].to_pylist() == [date(2024, 2, 3), None]


@pytest.mark.parametrize("day", ['"2024-02-33"', '"soon"', "12"])
def test_what_is_no_date_is_refused_by_name(day: str) -> None:
    lines = JsonLines(SCHEMA, "ts")
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
