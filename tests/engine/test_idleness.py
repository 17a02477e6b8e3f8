"""`JoinEngine` without a clock: its caller says that a stream is idle, and rows from the future are rejected."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.errors import ArgumentError

SCHEMA = {"ts": "int64", "x": "int64"}


def engine(**facts: str) -> JoinEngine:
    streams = [Stream("l", schema=SCHEMA), Stream("r", schema=SCHEMA, **facts)]
    return JoinEngine(Join(streams, "l.x = r.x", "1000us"))


def row(ts: int) -> dict[str, int]:
    return {"ts": ts, "x": 1}


def test_an_idle_stream_holds_nothing_until_it_is_back() -> None:
    join = engine()
    join.push({"l": row(100), "r": row(50)})
    join.push({"l": row(5000)})
    assert join.watermark == 50
    join.set_idle("r")
    assert join.watermark == 5000
    join.push({"l": row(5001)})

    again = engine()
    again.restore(join.save())
    for one in (join, again):
        assert one.push({"r": [row(5000), row(5001)]}).num_rows == 2
        assert one.late["r"]["_seq"].to_pylist() == [1]
        assert one.watermark == 5001
    assert join.save() == again.save()
    join.push({"r": row(4000), "l": row(6000)})
    assert join.watermark == 5001
    assert join.counters["late_rows"] == {"l": 0, "r": 2}


def test_all_idle_time_stays_and_a_stream_that_never_came_is_no_matter() -> None:
    join = engine()
    join.push({"l": row(100)})
    assert join.watermark is None
    join.set_idle("r")
    assert join.watermark == 100
    join.set_idle("l")
    assert join.watermark == 100
    with pytest.raises(ArgumentError, match="no stream 'q'"):
        join.set_idle("q")


def test_a_timeout_needs_a_clock() -> None:
    with pytest.raises(ArgumentError, match=r"has no clock.*set_idle\('r'\)"):
        engine(idle_timeout="10m")


@pytest.mark.parametrize("as_table", [False, True])
def test_a_row_from_the_future_is_rejected_with_the_reason(as_table: bool) -> None:
    join = engine(max_ahead="100us")
    rows = [row(10), row(10_000), row(110), {"ts": None, "x": 1}, row(211)]
    join.push({"r": pa.Table.from_pylist(rows) if as_table else rows})
    assert join.rejected["r"].to_pylist() == [
        {**row(10_000), "_rejected": "further ahead of those before it than max_ahead allows"},
        {"ts": None, "x": 1, "_rejected": "no event time"},
        {**row(211), "_rejected": "further ahead of those before it than max_ahead allows"},
    ]
    counters = join.counters
    assert (counters["read_rows"]["r"], counters["rejected_rows"]["r"], counters["late_rows"]["r"]) == (5, 3, 0)
    assert join.push({"l": [row(110)]})["r_seq"].to_pylist() == [0, 2]
    join.set_idle("r")
    join.push({"r": [{"ts": None, "x": 1}, row(5)]})  # neither moves the clock
    again = engine(max_ahead="100us")
    again.restore(join.save())
    for one in (join, again):
        one.push({"r": [row(110), row(10_000), row(20_000)]})
        assert one.rejected["r"]["ts"].to_pylist() == [20_000]
    one = engine(max_ahead="100us")
    one.push({"r": row(10)})
    one.push({"r": row(10_000)})
    assert one.rejected["r"].num_rows == 1
