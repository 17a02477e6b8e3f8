"""The engine's bench: its arithmetic on made-up numbers, and one real run of the command at a small size."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.tuning import CHUNK_ROWS
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError
from tests.bench.results import bench
from tests.bench.suites.engine import suite
from tests.bench.suites.engine.feeds import band1d, outside, product
from tests.bench.suites.engine.product import Product
from tests.bench.suites.engine.report import facts
from tests.bench.suites.engine.suite import Result, measure, workload_names
from tests.bench.suites.engine.targets import MEASURES, Contestant, Measure

OURS = Contestant("gather", 100)


def test_bounds_hold_for_values_or_for_paired_ratios():
    line = Measure("w", "m", "rows/s", OURS, "x", "peer", OURS, "x", True, at_least=2)
    result = Result(line, (2.0, 30.0, 8.0), (1.0, 10.0, 8.0), 5.0)
    assert (result.value, result.peer_value, result.held, result.is_met) == (8.0, 8.0, 2.0, True)
    (row,) = facts([result])
    assert (row["value"], row["peer_value"], row["ratio"], row["at_least"], row["of"]) == (8.0, 8.0, 2.0, 2, "ratio")
    slow = Result(Measure("w", "m", "us", OURS, "x", at_most=50), (49.0, 60.0, 51.0), (), 5.0)
    assert slow.is_met is False
    assert facts([slow])[0]["met"] is False
    assert Result(Measure("w", "m", "us", OURS, "x"), (1.0,), (), 5.0).is_met is None


def test_every_line_of_the_table_is_measured():
    bounds = {(line.workload, line.name) for line in MEASURES if (line.at_least, line.at_most) != (None, None)}
    assert len(bounds) >= 11
    assert set(workload_names()) >= {
        "band2d-llhj",
        "band1d-2^20",
        "band1d-count-2^23",
        "equi-join",
        "one-tuple",
        "memory",
    }
    with pytest.raises(ArgumentError, match="band9d"):
        measure(["band9d"], 1, True, print)


def test_count_windows_of_a_feed_hold_the_last_tuples():
    """The matches are those of a look at every pair, and those that `JoinEngine` finds in the same tuples."""
    count, rows = 300, 1_000
    feed = band1d(count, counted=True)
    whole = [feed.batch(stream, 0, rows) for stream in (0, 1)]
    x, a = whole[0]["x"].to_numpy()[:, None], whole[1]["a"].to_numpy()[None, :]
    r, s = np.arange(rows)[:, None], np.arange(rows)[None, :]
    # Tuples r and s of one number have the same time, and the one of r comes first. So s precedes r only if s < r. Each
    # meets the last `count` tuples of the other stream that precede it.
    in_window = np.where(s < r, r - s <= count, s - r < count)
    expected = int((in_window & (np.abs(x - a) <= 1)).sum())
    join, engine = WindowJoin(feed.bound), JoinEngine(feed.bound)
    found = outside_found = 0
    for place in range(0, rows, 100):
        batches = {stream: feed.batch(stream, place, 100) for stream in (0, 1)}
        place += 100
        found += sum(chunk.num_rows for chunk in join.push(batches, feed.time_us(place), (place, place)))
        plain = {name: outside(batches[n]).select(["ts", "xa"[n]]) for n, name in enumerate("rs")}
        outside_found += engine.push(plain).num_rows
    assert expected > 500
    assert found == outside_found == expected
    assert join.state_rows < 2 * rows  # tuples that have left the windows are dropped, coarsely


def test_a_product_says_how_far_it_is_in_bounded_memory():
    """The whole product would take 28 GiB; the test reads a few hundred chunks of it."""
    case = Product(product(23_000), 1)
    numbers = [case.run(pushes, 0) for pushes in (40, 200)]
    assert numbers[0]["found"] == pytest.approx(100 * 40 * CHUNK_ROWS / 23_000**2)
    assert numbers[1]["found"] == pytest.approx(100 * 240 * CHUNK_ROWS / 23_000**2)
    for run in numbers:
        assert run["progress"] == pytest.approx(run["found"], rel=0.01)
        assert run["grown_mib"] < 10 * run["held_mib"] < 200
        assert run["rows_per_second"] > 0


def test_a_product_that_ends_begins_anew():
    case = Product(product(600), 1)
    assert case.run(1, 0)["found"] == pytest.approx(100 * CHUNK_ROWS / 360_000)
    assert case.run(1, 0)["found"] == 100
    assert case.run(2, 0)["found"] == pytest.approx(100 * CHUNK_ROWS / 360_000)


def test_what_takes_long_must_be_asked_for(monkeypatch):
    measured = []
    monkeypatch.setattr(suite, "_group", lambda contestant, *_: measured.append(contestant.case) or [])
    measure((), 1, True, print)
    assert "band2d-1s" in measured
    assert "product" not in measured
    measured.clear()
    measure(("product",), 1, True, print)
    assert measured == ["product"]


def test_what_needs_more_cores_than_there_are_is_left_out_by_name(monkeypatch):
    measured, told = [], []
    monkeypatch.setattr(suite, "_group", lambda contestant, *_: measured.append(contestant.cores) or [])
    monkeypatch.setattr(suite, "usable_core_count", lambda: 4)
    measure(("threads",), 1, True, told.append)
    assert measured == [2, 4]
    assert "threads: threads_16_over_1 needs 16 cores, and there are 4: left out" in told


@pytest.mark.long
@pytest.mark.parametrize(
    "workloads", [("band2d-llhj", "one-tuple"), pytest.param(("nested-loop", "product"), marks=pytest.mark.campaign)]
)
def test_quick_from_the_command_line(workloads):
    done = bench("engine", *workloads, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["workload"] for row in rows} == set(workloads)
    assert all(row["value"] > 0 and row["peak_mib"] > 20 and "met" not in row for row in rows)
    peers = {row["peer"] for row in rows if row["workload"] == "band2d-llhj"}
    assert peers == ({"duckdb", "1 thread", "inner"} if "band2d-llhj" in workloads else set())
