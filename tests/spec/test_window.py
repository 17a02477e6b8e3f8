"""Windows as they are written: every kind, one for all streams or one each. Mixed and malformed ones are refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError, ColumnError, StreamJoinError, WindowError
from streamjoin_ds.spec import BoundJoin, CountWindow, Join, PeriodicWindow, Stream, TimeWindow, WindowKind, bind

S = 1_000_000
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])


def made(window: Any, names: str = "rs", **columns: pa.DataType) -> BoundJoin:
    schema = pa.schema([*SCHEMA, *((name, kind) for name, kind in columns.items())])
    return bind(Join([Stream(name) for name in names], (), window), dict.fromkeys(names, schema))


FORMS: list[tuple[Any, WindowKind, str]] = [
    ("15s", TimeWindow((15 * S, 15 * S)), "15s"),
    (timedelta(seconds=2), TimeWindow((2 * S, 2 * S)), "2s"),
    ("r=6h,s=0s", TimeWindow((21_600 * S, 0)), "r=6h, s=0s"),
    ("last 1000", CountWindow((1000, 1000)), "last 1000"),
    (" LAST 1_048_576 tuples ", CountWindow((1 << 20, 1 << 20)), "last 1048576"),
    ({"r": "last 1000", "s": "last 500"}, CountWindow((1000, 500)), "r=last 1000, s=last 500"),
    ("r=last 1000, s = last 0 rows", CountWindow((1000, 0)), "r=last 1000, s=last 0"),
    ("every 10s for 60s", PeriodicWindow(10 * S, (60 * S, 60 * S), (0, 0)), "every 10s for 1m"),
    (
        "Every 10s for 1m 30s LAG 3",
        PeriodicWindow(10 * S, (90 * S, 90 * S), (0, 3)),
        "r=every 10s for 1m 30s, s=every 10s for 1m 30s lag 3",
    ),
    (
        "r=every 10s for 60s,s=every 10s for 500ms lag -2",
        PeriodicWindow(10 * S, (60 * S, S // 2), (0, -2)),
        "r=every 10s for 1m, s=every 10s for 500ms lag -2",
    ),
    (CountWindow((3, 4)), CountWindow((3, 4)), "r=last 3, s=last 4"),
]


@pytest.mark.parametrize(("text", "window", "described"), FORMS)
def test_what_is_written_is_what_is_meant(text: Any, window: WindowKind, described: str) -> None:
    join = Join([Stream("r"), Stream("s")], (), text)
    assert join.window == window
    assert join.window.describe(join.names) == described
    assert Join([Stream("r"), Stream("s")], (), described.replace(", ", ",")).window == window
    back = Join.from_facts(json.loads(json.dumps(join.to_facts())))
    assert back == join
    assert made(text).fingerprint == made(window).fingerprint


def test_one_lag_for_all_is_of_all_but_the_first() -> None:
    assert Join([Stream(n) for n in "abc"], (), "every 1s for 2s lag 2").window == PeriodicWindow(
        S, (2 * S,) * 3, (0, 2, 2)
    )


def test_every_window_is_another_join() -> None:
    windows = [*(text for text, _, _ in FORMS[:-1]), "every 10s for 60s lag 1", "every 20s for 60s", "last 999"]
    assert len({made(window).fingerprint for window in windows}) == len(windows)


@pytest.mark.parametrize(
    ("window", "name"),
    [
        ({"r": "last 1000", "s": "15s"}, "s"),
        ("r=15s,s=last 3", "s"),
        ("r=every 1s for 2s,s=15s", "s"),
        ({"r": timedelta(1), "s": "last 3"}, "s"),
        ("r=last 3", "s"),
        ("r=last 3,s=last 3,t=last 3", "t"),
        ("last", "window"),
        ("last 1.5", "window"),
        ("last -1", "window"),
        ("last 3s", "window"),
        ("last 99999999999999", "window"),
        ("every 10s", "window"),
        ("every 10 for 60s", "window"),
        ("every 0s for 60s", "window"),
        ("every 1s for 0s", "window"),
        ("every 1s for 2s lag", "window"),
        ("every 1s for 2s lag 1.5", "window"),
        ("every 1d for 2d lag 999999999999999999", "lag"),
        ("r=every 1s for 2s,s=every 2s for 2s", "s"),
        ("r=every 1s for 2s lag 1,s=every 1s for 2s", "lag"),
        (CountWindow((1,)), "window"),
        (PeriodicWindow(1, (1, 1, 1), (0, 0, 0)), "window"),
        (1000, "window"),
    ],
)
def test_what_is_no_window_is_refused_by_name(window: Any, name: str) -> None:
    with pytest.raises(StreamJoinError) as caught:
        Join([Stream("r"), Stream("s")], (), window)
    assert isinstance(caught.value, (WindowError, ArgumentError))
    assert caught.value.name == name
    assert caught.value.hint


def test_numbers_that_are_none_are_refused() -> None:
    for make in (
        lambda: CountWindow((-1,)),
        lambda: CountWindow((True,)),
        lambda: PeriodicWindow(0, (1,), (0,)),
        lambda: PeriodicWindow(1, (0,), (0,)),
        lambda: PeriodicWindow(1, (1, 1), (1, 0)),
        lambda: PeriodicWindow(1, (1, 1), (0,)),
    ):
        with pytest.raises(WindowError):
            make()


def test_stamps_travel_and_no_column_may_take_their_names() -> None:
    bound = made("last 5", "abc")
    assert bound.tuple_schema(1).names == ["_ts", "_seq", "x", "_before_a", "_before_c"]
    assert made("5s").tuple_schema(1).names == ["_ts", "_seq", "x"]
    made("5s", _before_s=pa.int64())
    with pytest.raises(ColumnError, match="_before_s"):
        made("last 5", _before_s=pa.int64())
    assert "window_id" not in made("last 5").result_schema.names
    assert made("every 1s for 1s").result_schema.names[-3:] == ["window_id", "event_time", "batch_id"]
