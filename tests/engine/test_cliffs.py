"""No cliffs: the work is near what the results ask for, whatever links the streams and however their keys lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.join_order import JoinOrder


def stream(name: str, **columns: str) -> Stream:
    return Stream(name, schema={"ts": "int64", **columns}, time_unit="us")


def rows(count: int, begin: int = 0, **columns: Any) -> pa.Table:
    """Rows a microsecond apart."""
    times = pa.array(np.arange(begin, begin + count))
    return pa.table({"ts": times, **{name: pa.array(values) for name, values in columns.items()}})


@pytest.mark.parametrize("middle", [200, 230, 260, 400])
@pytest.mark.parametrize("links", ["a.x + 0 = b.x AND b.y + 0 = c.y", "a.x + 0 = b.x AND b.y + 0 = c.y AND b.x <> c.y"])
def test_residuals_link_streams_too(middle: int, links: str) -> None:
    """Whichever window is the largest: two streams that nothing compares are not met one after the other."""
    rng, count = np.random.default_rng(1), 230
    streams = [stream("a", x="int64"), stream("b", x="int64", y="int64"), stream("c", y="int64")]
    engine = JoinEngine(Join(streams, links, "1h"))
    pushed = {
        "a": rows(count, x=rng.integers(0, 900, count)),
        "b": rows(middle, x=rng.integers(0, 900, middle), y=rng.integers(0, 900, middle)),
        "c": rows(count, y=rng.integers(0, 900, count)),
    }
    found = engine.push(pushed).num_rows
    assert found
    # Each pair of neighbours is looked at once; a cross product would make 52 900 of two streams alone.
    assert engine.counters["candidates"] <= 1.1 * 2 * count * middle
    assert engine.counters["partials"] <= 2 * count * middle / 900 * 1.5


def test_a_residual_on_three_streams_links_the_last_of_them() -> None:
    rng, count = np.random.default_rng(1), 60
    streams = [stream("a", x="int64"), stream("b", x="int64"), stream("c", x="int64"), stream("d", x="int64")]
    engine = JoinEngine(Join(streams, "a.x + b.x = c.x AND c.x = d.x", "1h"))
    engine.push({name: rows(count, x=rng.integers(0, 60, count)) for name in "abcd"})
    orders = [line.split(": ")[1].replace("then ", "") for line in engine.explain() if line.startswith("new ")]
    first = [[step.split(" ")[0] for step in order.split(", ")] for order in orders]
    assert (first[2][0], first[3][0]) == ("d", "c")  # what is compared comes first


def test_small_pushes_seldom_ask_for_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = []
    whole = JoinOrder._estimated

    def counted(self: JoinOrder, *given: Any, **named: Any) -> Any:
        estimated.append(given[0])
        return whole(self, *given, **named)

    monkeypatch.setattr(JoinOrder, "_estimated", counted)
    rng = np.random.default_rng(1)
    streams = [stream("a", x="int64"), stream("b", x="int64", y="int64"), stream("c", y="int64")]
    for bucket_rows in (1 << 40, 400):
        estimated.clear()
        engine = JoinEngine(Join(streams, "a.x = b.x AND b.y = c.y", "10ms"), bucket_rows=bucket_rows)
        pushes = 2000
        for push in range(pushes):
            x, y = rng.integers(0, 2000, (2, 2)).tolist()
            ts = push * 10
            engine.push({"a": {"ts": ts, "x": x[0]}, "b": {"ts": ts, "x": x[1], "y": y[0]}, "c": {"ts": ts, "y": y[1]}})
        assert 0 < len(estimated) < 3 * pushes / 20, bucket_rows
