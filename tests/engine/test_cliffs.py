"""No cliffs: the work is near what the results ask for, whatever links the streams and however their keys lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.storage.bucket_grid.bucket_window import BucketWindow
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun
from streamjoin_ds.engine.storage.sort_layout import SortLayoutChooser
from streamjoin_ds.engine.tuning import LayoutTuning, TailTuning, Tuning
from streamjoin_ds.testing.arrivals import random_batches
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import numbers_of
from tests.engine.streams import engine_options
from tests.support.examples import examples


def stream(name: str, **columns: str) -> Stream:
    return Stream(name, schema={"ts": "int64", **columns}, time_unit="us")


def rows(count: int, begin: int = 0, **columns: Any) -> pa.Table:
    """Return rows a microsecond apart."""
    times = pa.array(np.arange(begin, begin + count))
    return pa.table({"ts": times, **{name: pa.array(values) for name, values in columns.items()}})


@pytest.mark.parametrize("middle", [200, 230, 260, 400])
@pytest.mark.parametrize("links", ["a.x + 0 = b.x AND b.y + 0 = c.y", "a.x + 0 = b.x AND b.y + 0 = c.y AND b.x <> c.y"])
def test_residuals_link_streams_too(middle: int, links: str) -> None:
    """Two streams that nothing compares are not joined one after the other, whichever window is the largest."""
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
    # Each pair of neighbours is looked at once. A cross product of a and c alone would be 52 900 pairs.
    assert engine.counters["candidates"] <= 1.1 * 2 * count * middle
    assert engine.counters["partials"] <= 2 * count * middle / 900 * 1.5


def test_a_residual_on_three_streams_links_the_last_of_them() -> None:
    rng, count = np.random.default_rng(1), 60
    streams = [stream("a", x="int64"), stream("b", x="int64"), stream("c", x="int64"), stream("d", x="int64")]
    engine = JoinEngine(Join(streams, "a.x + b.x = c.x AND c.x = d.x", "1h"))
    engine.push({name: rows(count, x=rng.integers(0, 60, count)) for name in "abcd"})
    orders = [line.split(": ")[1].replace("then ", "") for line in engine.explain() if line.startswith("new ")]
    first = [[step.split(" ")[0] for step in order.split(", ")] for order in orders]
    assert (first[2][0], first[3][0]) == ("d", "c")  # the compared stream comes first


@pytest.mark.slow
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
    """Return how many pairs a push tests, and how many of them are results."""
    before, found = engine.counters["candidates"], 0
    for chunk in engine.push_chunks(push):
        found += chunk.num_rows
    return engine.counters["candidates"] - before, found


def two(on: str, span: str = "1h", **columns: str) -> Join:
    return Join([stream("r", **columns), stream("s", **columns)], on, span)


@pytest.mark.slow
@pytest.mark.parametrize("bucket_rows", [1 << 40, 1000], ids=["runs", "buckets"])
@pytest.mark.parametrize("share", [0.001, 0.05])
@pytest.mark.parametrize("fill", [1e20, 9.97e36, -32768.0, 1e15, 1.7e308])
@pytest.mark.parametrize("columns", ["x", "xy"])
def test_fill_values_do_not_stretch_the_grid(bucket_rows: int, share: float, fill: float, columns: str) -> None:
    """Missing values as oceanographers write them: here and there a large number, the same one each time or not."""
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
    # At most the fill values meet each other: of a value far out a grid knows only on which side it lies.
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


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("factor", [100.0, 10_000.0])
@pytest.mark.parametrize("span", ["20ms", "1h"])
@pytest.mark.parametrize("threads", [1, 2])
def test_keys_that_move_together_get_another_grid(factor: float, span: str, threads: int) -> None:
    """The other grid is made a few rows a push. A state that is saved meanwhile gives the same results."""
    rng, count = np.random.default_rng(3), 1100  # more than the tail takes
    eps = 0.02 / factor / 20_000
    join = two(f"abs(r.x - s.x) <= {eps}", span, x="float64")
    engine = JoinEngine(join, bucket_rows=5000, threads=threads)
    for push in range(30):
        engine.push(drifting(1.0, count, push * count, rng))
    widths, moves = set(), 0
    for push in range(30, 75):
        pushed = drifting(1 / factor, count, push * count, rng)
        blob = engine.save()
        tested, found = candidates(engine, pushed)
        run = engine._join.windows[0].before_tail[0]
        assert isinstance(run, BucketRun)
        widths.add(run.shape.widths)
        moves += run.rebuild is not None
        if push in (32, 34, 36, 40):
            other = JoinEngine(join, bucket_rows=5000)
            other.restore(blob)
            assert other.push(pushed).num_rows == found
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
            run = engine._join.windows[0].before_tail[0]
            assert isinstance(run, BucketRun)
            assert run.rebuild is None


def test_a_batch_is_laid_out_by_its_own_rows_in_the_end() -> None:
    """A batch is sorted like the one of like size before it, but not for ever."""
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
            kept = engine._join.windows[0]
            assert isinstance(kept, BucketWindow)
            assert kept.layout is not None
            layouts.add(kept.layout[0])
    assert len(layouts) > 1


# ------------------------------------------------------------------ an index for each neighbour


def chain(count: int, begin: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    x, y = rng.random((2, count)), rng.random((2, count))
    return {"a": rows(count, begin, x=x[0]), "b": rows(count, begin, x=x[1], y=y[0]), "c": rows(count, begin, y=y[1])}


CHAIN = [stream("a", x="float64"), stream("b", x="float64", y="float64"), stream("c", y="float64")]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bucket_rows", [1 << 40, 5000], ids=["runs", "buckets"])
def test_the_middle_window_of_a_chain_has_an_index_for_either_side(bucket_rows: int, threads: int) -> None:
    rng, count = np.random.default_rng(4), 1100
    join = Join(CHAIN, "abs(a.x - b.x) <= 1e-4 AND abs(b.y - c.y) <= 1e-4", "20ms")
    engine = JoinEngine(join, bucket_rows=bucket_rows, threads=threads)
    for push in range(40):
        pushed = chain(count, push * count, rng)
        blob = engine.save()
        tested, found = candidates(engine, pushed)
        if push in (5, 25, 39):  # what is seen in another order is made of what is saved
            other = JoinEngine(join, bucket_rows=bucket_rows)
            other.restore(blob)
            again = pa.concat_tables(other.push_chunks(pushed))
            assert again.num_rows == found
            assert other.save() == engine.save()
    # A window has 20 000 rows: a scan for 1 100 probes would be 22 million pairs for one side alone.
    assert tested <= 3 * count * 100 + 4 * found
    text = "\n".join(engine.explain())
    assert "sorted by x; for c sorted by y" in text


def test_few_values_and_another_key() -> None:
    """A key of 100 values links one neighbour, another key links the other. Neither needs a scan."""
    rng, count = np.random.default_rng(4), 20_000
    streams = [stream("d", k="int64"), stream("f1", k="int64", c="int64"), stream("f2", c="int64")]
    join = Join(streams, "d.k = f1.k AND f1.c = f2.c", "1h")
    for bucket_rows in (1 << 40, 1000):
        engine = JoinEngine(join, bucket_rows=bucket_rows)
        engine.push({"d": rows(100, k=np.arange(100))})
        engine.push({"f1": rows(count, k=rng.integers(0, 100, count), c=rng.integers(0, count, count))})
        found = engine.push({"f2": rows(count, c=rng.integers(0, count, count))}).num_rows
        assert found > count / 2
        assert engine.counters["candidates"] <= 3 * 100 * count, "each tuple meets the 100 of d at most"
        assert engine.push({"d": rows(10, count, k=np.arange(10))}).num_rows
    assert "sorted by k; for f2 sorted by c" in "\n".join(engine.explain())


def test_two_neighbours_that_ask_by_the_same_key_share_one_index() -> None:
    rng, count = np.random.default_rng(4), 3000
    streams = [stream(name, x="float64") for name in "abc"]
    engine = JoinEngine(Join(streams, "abs(a.x - b.x) <= 1e-4 AND abs(b.x - c.x) <= 1e-4", "1h"), bucket_rows=5000)
    for push in range(4):
        engine.push({name: rows(count, push * count, x=rng.random(count)) for name in "abc"})
    assert sum("in " in line and "cells of x" in line for line in engine.explain()) == 3


def test_a_grid_of_two_keys_gives_way_to_one_that_serves_all() -> None:
    """One neighbour compares x and y, the other x alone. A grid by x alone is as good for both."""
    rng, count = np.random.default_rng(4), 3000
    streams = [stream("a", x="float64", y="float64"), stream("b", x="float64", y="float64"), stream("c", x="float64")]
    on = "abs(a.x - b.x) <= 1e-5 AND abs(a.y - b.y) <= 0.4 AND abs(b.x - c.x) <= 1e-5"
    engine = JoinEngine(Join(streams, on, "1h"), bucket_rows=5000)
    for push in range(4):
        xy = {name: rows(count, push * count, x=rng.random(count), y=rng.random(count)) for name in "ab"}
        tested, found = candidates(engine, {**xy, "c": rows(count, push * count, x=rng.random(count))})
    assert isinstance(engine._join.windows[1], BucketWindow)
    assert tested <= 3 * count * 100 + 4 * found


@pytest.mark.slow
def test_an_old_grid_that_serves_one_neighbour_alone_goes_back_to_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved states have such a grid from the time when each window had one index."""
    rng, count = np.random.default_rng(4), 1100
    join = Join(CHAIN, "abs(a.x - b.x) <= 1e-4 AND abs(b.y - c.y) <= 1e-4", "20ms")
    with monkeypatch.context() as patch:
        patch.setattr(SortLayoutChooser, "suits_all", lambda *_: True)
        engine = JoinEngine(join, bucket_rows=5000)
        pushes = [chain(count, push * count, rng) for push in range(40)]
        for pushed in pushes[:30]:
            engine.push(pushed)
        assert isinstance(engine._join.windows[1], BucketWindow)
        blob = engine.save()
    other, plain = JoinEngine(join, bucket_rows=5000), JoinEngine(join, bucket_rows=1 << 40)
    other.restore(blob)
    plain.restore(blob)
    for pushed in pushes[30:]:
        before = other.counters["candidates"]
        assert other.push(pushed).num_rows == plain.push(pushed).num_rows
        tested = other.counters["candidates"] - before
    assert not isinstance(other._join.windows[1], BucketWindow)
    assert tested <= 3 * count * 200


# ------------------------------------------------------------------ whatever the links: the contract

SMALL = Tuning(
    tail=TailTuning(rows=4, most_arrived_rows=2),
    layout=LayoutTuning(least_sorted_rows=1, bucket_cost=0.0, probe_cost=0.0, far_better=1.0, least_viewed_rows=1),
)
SHAPES = {
    "chain": [(n, n + 1) for n in range(4)],
    "star": [(0, n) for n in range(1, 5)],
    "cycle": [*((n, n + 1) for n in range(4)), (0, 4)],
}


@pytest.mark.slow
@examples(30)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    count=st.integers(3, 5),
    kinds=st.lists(st.sampled_from(["equal", "band", "residual", "residual equality"]), min_size=5, max_size=5),
    bucket_rows=st.sampled_from([1, 1 << 40]),
    seed=st.integers(0, 10_000),
    kernel=st.sampled_from([name for name in kernel_names() if name != "auto"]),
)
def test_any_links_give_the_contracts_results(
    shape: str, count: int, kinds: list[str], bucket_rows: int, seed: int, kernel: str
) -> None:
    rng = np.random.default_rng(seed)
    links = [(left, right) for left, right in SHAPES[shape] if right < count]
    if shape == "cycle":
        links = [*((n, n + 1) for n in range(count - 1)), (0, count - 1)]
    columns: list[dict[str, str]] = [{} for _ in range(count)]
    parts = []
    for place, ((left, right), kind) in enumerate(zip(links, kinds, strict=False)):
        # Sometimes it is a key that the stream has already.
        names = [f"x{place}" if rng.random() < 0.7 or not columns[n] else next(iter(columns[n])) for n in (left, right)]
        for number, name in zip((left, right), names, strict=True):
            columns[number][name] = "float64"
        one, other = f"s{left}.{names[0]}", f"s{right}.{names[1]}"
        parts.append(
            {
                "equal": f"{one} = {other}",
                "band": f"abs({one} - {other}) <= 0.5",
                "residual": f"{one} + 1 < {other}",
                "residual equality": f"{one} + 1 = {other}",
            }[kind]
        )
    streams = [stream(f"s{n}", **columns[n]) for n in range(count)]
    join = Join(streams, " AND ".join(parts), "40us")
    length = {3: 48, 4: 20, 5: 12}[count]
    values = np.array([0.0, 1, 2, 2.5, 3, 7, 7, 7, 1e20, -9.97e36, 1e15])
    tables = {}
    for number, columns_of in enumerate(columns):
        drawn = {name: rng.choice(values[: rng.integers(3, len(values) + 1)], length) for name in columns_of}
        half = length // 2  # the second half drifts
        for drift in drawn.values():
            drift[half:] = np.where(rng.random(length - half) < 0.5, drift[half:] / 100, drift[half:])
        tables[f"s{number}"] = rows(length, **drawn)
    cuts = {name: list(random_batches(table, seed + place, 6)) for place, (name, table) in enumerate(tables.items())}
    options = {"kernel": kernel, "bucket_rows": bucket_rows, "chunk_rows": 64, "tuning": SMALL}
    engine = JoinEngine(join, **engine_options(**options))
    found = []
    for place in range(6):
        push = {name: pieces[place] for name, pieces in cuts.items() if place < len(pieces)}
        if place == 3:
            blob = engine.save()
            engine = JoinEngine(join, **engine_options(**options))
            engine.restore(blob)
        found += list(engine.push_chunks(push))
    numbers = numbers_of(join, pa.concat_tables(found)) if found else []
    assert numbers == oracle_numbers(join, tables)
