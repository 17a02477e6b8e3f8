"""No cliffs: the work is near what the results ask for, whatever links the streams and however their keys lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.bucket_run import BucketRun
from streamjoin_ds.engine.bucket_window import BucketWindow
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


# ------------------------------------------------------------------ how keys lie

Values = npt.NDArray[np.float64]


def candidates(engine: JoinEngine, push: dict[str, pa.Table]) -> tuple[int, int]:
    """Pairs that a push tests, and how many of them are results."""
    before, found = engine.counters["candidates"], 0
    for chunk in engine.push_chunks(push):
        found += chunk.num_rows
    return engine.counters["candidates"] - before, found


def two(on: str, window: str = "1h", **columns: str) -> Join:
    return Join([stream("r", **columns), stream("s", **columns)], on, window)


@pytest.mark.parametrize("bucket_rows", [1 << 40, 1000], ids=["runs", "buckets"])
@pytest.mark.parametrize("share", [0.001, 0.05])
@pytest.mark.parametrize("fill", [1e20, 9.97e36, -32768.0, 1e15, 1.7e308])
@pytest.mark.parametrize("columns", ["x", "xy"])
def test_fill_values_do_not_stretch_the_grid(bucket_rows: int, share: float, fill: float, columns: str) -> None:
    """Values that are missing, as oceanographers write them: here and there a large one, alike or not."""
    count, probes = 20_000, 2000

    def pushes(share: float) -> tuple[int, int]:
        rng = np.random.default_rng(5)

        def column(count: int) -> Values:
            values = rng.random(count)
            filled = rng.random(count) < share
            values[filled] = fill * (1 - rng.random(np.count_nonzero(filled)) / 2)
            return values

        def table(count: int, begin: int) -> pa.Table:
            return rows(count, begin, **{name: column(count) for name in columns})

        on = " AND ".join(f"abs(r.{name} - s.{name}) <= 0.001" for name in columns)
        engine = JoinEngine(two(on, **dict.fromkeys(columns, "float64")), bucket_rows=bucket_rows)
        engine.push({"r": table(count, 0), "s": table(count, 0)})
        return candidates(engine, {"r": table(probes, count)})

    plain, _ = pushes(0.0)
    filled, found = pushes(share)
    # Fill values meet each other, at the most: of those that are far out a grid knows no more than the side.
    assert filled <= 2 * plain + found + len(columns) * 2 * share**2 * probes * count


@pytest.mark.parametrize("fill", [-9999, -(1 << 63), (1 << 63) - 1, 1 << 40])
def test_fill_values_of_integers_do_not_either(fill: int) -> None:
    rng, count, probes = np.random.default_rng(5), 20_000, 2000

    def table(count: int, begin: int) -> pa.Table:
        values = rng.integers(0, 1_000_000, count)
        values[rng.random(count) < 0.001] = fill
        return rows(count, begin, x=values, y=rng.integers(0, 1_000_000, count))

    for bucket_rows in (1 << 40, 1000):
        on = "abs(r.x - s.x) <= 500 AND abs(r.y - s.y) <= 500"
        engine = JoinEngine(two(on, x="int64", y="int64"), bucket_rows=bucket_rows)
        engine.push({"r": table(count, 0), "s": table(count, 0)})
        tested, _ = candidates(engine, {"r": table(probes, count)})
        assert tested <= 100 * probes, bucket_rows


def drifting(width: float, count: int, begin: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    return {name: rows(count, begin, x=0.5 + width * (rng.random(count) - 0.5)) for name in "rs"}


@pytest.mark.parametrize("factor", [100.0, 10_000.0])
@pytest.mark.parametrize("window", ["20ms", "1h"])
@pytest.mark.parametrize("threads", [1, 2])
def test_keys_that_move_together_get_another_grid(factor: float, window: str, threads: int) -> None:
    """And it is made a few rows a push: a save on the way goes on as if nothing had been."""
    rng, count = np.random.default_rng(3), 1100  # more than go to the tail
    eps = 0.02 / factor / 20_000
    join = two(f"abs(r.x - s.x) <= {eps}", window, x="float64")
    engine = JoinEngine(join, bucket_rows=5000, threads=threads)
    for push in range(30):
        engine.push(drifting(1.0, count, push * count, rng))
    widths, moves = set(), 0
    for push in range(30, 75):
        given = drifting(1 / factor, count, push * count, rng)
        blob = engine.save()
        tested, found = candidates(engine, given)
        run = engine._join.windows[0].sealed[0]
        assert isinstance(run, BucketRun)
        widths.add(run.shape.widths)
        moves += run.move is not None
        if push in (32, 34, 36, 40):
            other = JoinEngine(join, bucket_rows=5000)
            other.restore(blob)
            assert other.push(given).num_rows == found
            assert other.save() == engine.save()
    assert moves
    assert len(widths) <= 5, "a grid is not made anew time and again"
    assert tested <= 100 * 2 * count + 4 * found


def test_a_hot_value_is_no_reason_for_another_grid() -> None:
    rng, count = np.random.default_rng(3), 1100
    engine = JoinEngine(two("r.x = s.x AND r.y = s.y", "20ms", x="int64", y="int64"), bucket_rows=5000)
    for push in range(60):
        hot = {name: np.where(rng.random(count) < 0.02, 7, rng.integers(0, 10**6, count)) for name in "xy"}
        engine.push({name: rows(count, push * count, **hot) for name in "rs"})
        if push > 40:
            run = engine._join.windows[0].sealed[0]
            assert isinstance(run, BucketRun)
            assert run.move is None


def test_a_batch_is_laid_out_by_its_own_rows_in_the_end() -> None:
    """Those of like size are sorted as the one before was, but not for ever."""
    rng, count = np.random.default_rng(3), 5000
    join = two("abs(r.x - s.x) <= 1e-7 AND abs(r.y - s.y) <= 1e-7", "20ms", x="float64", y="float64")
    engine = JoinEngine(join, bucket_rows=5000)
    layouts = set()
    for push in range(140):
        width = 1.0 if push < 10 else 1e-4
        engine.push(
            {name: rows(count, push * count, x=rng.random(count) * width, y=rng.random(count)) for name in "rs"}
        )
        if push > 10:
            window = engine._join.windows[0]
            assert isinstance(window, BucketWindow)
            assert window.layout is not None
            layouts.add(window.layout[0])
    assert len(layouts) > 1
