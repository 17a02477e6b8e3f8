"""Dates in JSON lines are texts: read as dates, refused by name where they are none."""

from __future__ import annotations

from datetime import date

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
