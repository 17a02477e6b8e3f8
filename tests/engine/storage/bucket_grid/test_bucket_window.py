"""Windows in bucket grids: the contract's results, one order and one state, whatever happens between pushes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Join, Stream
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.probe import window_probe
from streamjoin_ds.engine.storage import window
from streamjoin_ds.engine.storage.bucket_grid.bucket_window import BucketWindow
from streamjoin_ds.engine.storage.bucket_grid.grid import BucketRun, GridSample
from streamjoin_ds.engine.storage.bucket_grid.policy import bucketed
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.storage.state_blob import opened
from streamjoin_ds.engine.tuning import (
    CHUNK_ROWS,
    GridTuning,
    LayoutTuning,
    PayloadTuning,
    ProbeTuning,
    RebuildTuning,
    TailTuning,
    Tuning,
)
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError, StateCorruptError
from streamjoin_ds.spec import BoundJoin, bind
from streamjoin_ds.testing.arrivals import random_batches
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.engine.scenarios import Scenario, assert_values, cuts_of, numbers_of, plain, run_engine, scenarios
from tests.engine.streams import engine_options
from tests.support.examples import examples
from tests.support.further import further

KERNELS = [name for name in kernel_names() if name != "auto"]
QUICK = examples(60)
# With this tuning a few rows are too many for the tail, and are indexed.
SMALL = Tuning(
    probe=ProbeTuning(scan_pairs=0, slice_probes=8, least_part_ns=100.0),
    tail=TailTuning(rows=4, most_arrived_rows=2),
    layout=LayoutTuning(least_sorted_rows=1, gain_share=100.0, bucket_cost=0.0),
)
KINDS = {"numbers": {"domains": ("int", "float"), "note": False}, "all": {}}


def window_join(bound: BoundJoin, **options: Any) -> WindowJoin:
    return WindowJoin(bound, **engine_options(**{"tuning": SMALL, **options}))


def restored_join(*saved: Any, **options: Any) -> WindowJoin:
    return WindowJoin.restored(*saved, **engine_options(**{"tuning": SMALL, **options}))


def join_engine(join: Join, **options: Any) -> JoinEngine:
    return JoinEngine(join, tuning=SMALL, **engine_options(**options))


def run_small(scenario: Scenario, cuts: dict[str, list[pa.Table]], **options: Any) -> tuple[pa.Table, JoinEngine]:
    return run_engine(scenario, cuts, tuning=SMALL, **options)


def any_streams():
    """Draw streams of numbers alone, which lie in chunks, or of all types, some of which lie in the payload."""
    forms = [(kinds, streams) for kinds in KINDS.values() for streams in ((2, 2), (3, 4))]
    return st.one_of(*(scenarios(streams=n, rows=60, **kinds) for kinds, n in forms))


@QUICK
@given(
    scenario=any_streams(),
    seed=st.integers(0, 1000),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 2, 3]),
)
def test_results_are_the_contracts(scenario: Scenario, seed: int, kernel: str, threads: int) -> None:
    options = {"kernel": kernel, "chunk_rows": 64, "bucket_rows": 1}
    result, engine = run_small(scenario, cuts_of(scenario, seed), threads=threads, **options)
    if threads > 1:
        alone, other = run_small(scenario, cuts_of(scenario, seed), **options)
        assert plain(result) == plain(alone)
        assert engine.save() == other.save()
        assert engine.counters == other.counters
    assert numbers_of(scenario.join, result) == oracle_numbers(scenario.join, scenario.tables)
    assert_values(scenario, result)


@pytest.mark.slow
@QUICK
@given(scenario=any_streams(), seed=st.integers(0, 99))
def test_every_kernel_gives_the_same_rows_in_the_same_order_and_the_same_state(scenario: Scenario, seed: int) -> None:
    cuts = {name: list(random_batches(table, seed, 6)) for name, table in scenario.tables.items()}
    first, engine = run_small(scenario, cuts, kernel=KERNELS[0], chunk_rows=64, bucket_rows=1)
    for kernel in KERNELS[1:]:
        other, other_engine = run_small(scenario, cuts, kernel=kernel, chunk_rows=64, bucket_rows=1)
        assert plain(other) == plain(first)
        assert other_engine.save() == engine.save()


@QUICK
@given(scenario=any_streams(), seed=st.integers(0, 99), kernel=st.sampled_from(KERNELS))
def test_a_restart_anywhere_is_no_restart(scenario: Scenario, seed: int, kernel: str) -> None:
    cuts = {name: list(random_batches(table, seed, 6)) for name, table in scenario.tables.items()}
    straight = join_engine(scenario.join, kernel=kernel, bucket_rows=1)
    blob = join_engine(scenario.join, bucket_rows=1).save()
    for n in range(max(len(pieces) for pieces in cuts.values())):
        batch = {name: pieces[n] for name, pieces in cuts.items() if n < len(pieces)}
        restarted = join_engine(scenario.join, kernel=kernel, bucket_rows=1)
        restarted.restore(blob)
        assert restarted.save() == blob
        assert plain(restarted.push(batch)) == plain(straight.push(batch))
        blob = restarted.save()
        assert opened(None, blob)[0] == opened(None, straight.save())[0]
        assert blob == straight.save()
        assert restarted.counters["expired_rows"] == straight.counters["expired_rows"]


def test_a_limit_is_what_its_own_row_says() -> None:
    """A restart computes limits of other rows together: a zero had a sign where no infinity lay beside it."""
    schema = pa.schema({"ts": pa.int64(), "p": pa.float64(), "q": pa.float64()})
    join = Join([Stream(name, schema=schema) for name in "rs"], "r.p BETWEEN s.p AND s.q", "1s")
    (limit, *_) = bind(join, dict.fromkeys("rs", schema)).limits[1]
    alone, beside = (limit.values(len(rows), lambda _, rows=rows: pa.array(rows)) for rows in ([-0.0], [-0.0, np.inf]))
    assert alone.tobytes() == beside[:1].tobytes() == np.zeros(1).tobytes()


# ---- steady streams, where windows are full and rows die


def steady(rows: int, domain: int, seed: int = 1):
    """Return a join over windows of `rows` tuples, and a function that makes batches of a tuple a microsecond."""
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("y", pa.float32()), ("z", pa.int16())])
    join = Join(
        [Stream(name, schema=schema) for name in "rs"], "abs(r.x - s.x) <= 2 AND abs(r.y - s.y) <= 2.5", f"{rows}us"
    )
    chooser = np.random.default_rng(seed)

    def batch(first: int, count: int) -> pa.RecordBatch:
        columns = [
            pa.array(np.arange(first, first + count)),
            pa.array(np.arange(first, first + count)),
            pa.array(chooser.integers(0, domain, count).astype(np.int32)),
            pa.array(chooser.integers(0, domain, count).astype(np.float32)),
            pa.array([row % 100 for row in range(first, first + count)], pa.int16()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=bound.tuple_schema(0))

    bound = bind(join, {name: schema for name in "rs"})
    return bound, batch


def mixed(rows: int, domain: int):
    """Return such a join over strings and a function for its batches; some columns lie only in a payload.

    Equal strings are found by their hashes and then decided exactly.
    """
    parts = pa.list_(pa.struct([pa.field("n", pa.int32()), pa.field("s", pa.string())]))
    kinds = {"ts": pa.int64(), "k": pa.string(), "x": pa.int32(), "bytes": pa.binary(), "parts": parts}
    kinds |= {"flag": pa.bool_(), "maybe": pa.float32(), "sure": pa.int64()}
    schema = pa.schema(kinds)
    join = Join([Stream(name, schema=schema) for name in "rs"], "r.k = s.k AND (r.flag OR s.x > 2)", f"{rows}us")
    bound = bind(join, {name: schema for name in "rs"})
    chooser = np.random.default_rng(3)

    def batch(first: int, count: int) -> pa.RecordBatch:
        numbers = list(range(first, first + count))
        given = {
            "_ts": numbers,
            "_seq": numbers,
            "k": [f"key {key}" * (1 + key % 4) for key in chooser.integers(0, domain, count).tolist()],
            "x": chooser.integers(0, 5, count).tolist(),
            "bytes": [None if n % 11 == 0 else bytes(n % 30) for n in numbers],
            "parts": [None if n % 13 == 0 else [{"n": n, "s": "s" * (n % 3)}] * (n % 4) for n in numbers],
            "flag": [None if n % 17 == 0 else n % 2 == 0 for n in numbers],
            "maybe": [None if n % 5 == 0 else n / 2 for n in numbers],
            "sure": numbers,
        }
        inside = bound.tuple_schema(0)
        columns = [pa.array(given[field.name], field.type) for field in inside]
        return pa.RecordBatch.from_arrays(columns, schema=inside)

    return bound, batch


def results(join: WindowJoin, batches, watermark: int) -> pa.Table | list[None]:
    """Return all result rows, sorted by their tuples' numbers.

    They stay a table, since they are too many to compare as Python objects.
    """
    chunks = [chunk for chunk in join.push(batches, watermark) if chunk.num_rows]
    if not chunks:
        return []
    found = pa.concat_tables(chunks).combine_chunks()
    return found.sort_by([(name, "ascending") for name in found.column_names if name.endswith("_seq")])


def rows_of(join: WindowJoin, batches, watermark: int) -> list[str]:
    return [repr(row) for chunk in join.push(batches, watermark) for row in chunk.to_pylist()]


def pushed(join: WindowJoin, batches, watermark: int) -> list[int]:
    return pairs_of(join.push(batches, watermark))


def pairs_of(chunks: Iterable[pa.Table]) -> list[int]:
    """Return a number for each pair, in the order of the results: tuples would take most of the tests' time."""
    return [pair for chunk in chunks for pair in pair_numbers(chunk).tolist()]


def pair_numbers(chunk: pa.Table) -> npt.NDArray[np.int64]:
    r, s = (chunk[name].to_numpy() for name in ("r_seq", "s_seq"))
    assert not len(chunk) or (r.max() < 1 << 31 and s.max() < 1 << 31)
    return (r << 31) + s


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(500,), (3000, 1, 40, 2), (1, 2, 3)])
@pytest.mark.parametrize("domain", [60, *further(400)])
def test_full_windows_give_what_runs_give(sizes: tuple[int, ...], domain: int) -> None:
    bound, batch = steady(4000, domain)
    plain_join = window_join(bound)
    joins = [window_join(bound, bucket_rows=1000), window_join(bound, bucket_rows=1000, threads=3, chunk_rows=1 << 12)]
    place, in_buckets, orders = 0, 0, [[], []]
    for number in range(30 if max(sizes) > 100 else 150):
        count = sizes[number % len(sizes)]
        batches = {stream: batch(place, count) for stream in (0, 1)}
        place += count
        expected = sorted(pushed(plain_join, batches, place))
        for order, join in zip(orders, joins, strict=True):
            found = pushed(join, batches, place)
            assert sorted(found) == expected
            order += found
            in_buckets += all(isinstance(one, BucketWindow) for one in join.windows)
    assert orders[0] == orders[1], "the order is the same for any number of threads and any chunk"
    for join in joins:
        assert join.counters["stored_rows"] == plain_join.counters["stored_rows"]
        live = sum(join.counters["stored_rows"].values()) - join.counters["expired_rows"]
        assert live == join.state_rows
        assert max(sizes) < 100 or join.state_rows <= 2 * 4000 * 1.35 + max(sizes)
    assert max(sizes) < 100 or in_buckets > 50


@pytest.mark.slow
@pytest.mark.parametrize("domain", [60, 3000])
def test_a_window_that_grows_and_shrinks_is_made_anew_in_slices(domain: int) -> None:
    """Grids change shape and leave dead rows behind. They give what runs give, also after a restart at any push."""
    tuning = replace(
        SMALL,
        grid=GridTuning(foreseen_times=1 if domain == 60 else 8, counted_buckets=100),
        rebuild=RebuildTuning(moved_rows=100, touched_bytes=100_000),
    )
    bound, batch = steady(6000, domain)
    join, runs = window_join(bound, bucket_rows=300, tuning=tuning), window_join(bound)
    place, shapes, rates, moving = 0, set(), [200] * 40 + [1500] * 12 + [60] * 60, []
    copied = 0
    for number, count in enumerate(rates):
        batches = {stream: batch(place, count) for stream in (0, 1)}
        place += count if count != 60 else 600  # fewer rows in the same time
        expected = sorted(pushed(runs, batches, place))
        if number % 5 == 3:
            join = restored_join(bound, join.save(), bucket_rows=300, tuning=tuning)
        straight = restored_join(bound, join.save(), bucket_rows=300, tuning=tuning)
        found = pushed(join, batches, place)
        assert sorted(found) == expected
        assert pushed(straight, batches, place) == found
        assert straight.save() == join.save()
        window = join.windows[0]
        if isinstance(window, BucketWindow):
            shapes.add(window.bucket_run.shape)
            run = window.bucket_run
            live = run.native.live_rows(window.lowest_kept or 0)
            assert live <= 1.6 * run.built_rows + 2 * 1500
            moving.append(run.rebuild is not None)
            if run.rebuild is not None:
                more = run.rebuild.to.rows - (copied if moving[-2:] == [True, True] else 0)
                assert more <= (1 + tuning.rebuild.copied_rows) * count * 1.5 + 100, "a push copies a few"
                copied = run.rebuild.to.rows
                assert "being rebuilt" in "".join(join.explain())
    assert len(shapes) >= 3
    assert 2 <= sum(moving) < len(moving) / 2


@pytest.mark.slow
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_grid_is_made_anew_with_its_payload(threads: int) -> None:
    """Strings, lists and nulls come and go while a grid is made anew. Every third push is tried after a restart too."""
    bound, batch = mixed(3000, 200)
    options = {"bucket_rows": 200, "threads": threads, "tuning": replace(SMALL, payload=PayloadTuning(slack_rows=64))}
    join, runs, place, moves = window_join(bound, **options), window_join(bound), 0, 0
    for number, count in enumerate([100] * 40 + [600] * 16 + [40] * 40):
        batches = {stream: batch(place, count) for stream in (0, 1)}
        if number % 9 > 4:
            at = bound.tuple_schema(0).get_field_index("sure")
            some = pa.array([None if row % 5 == 0 else row for row in range(count)], pa.int64())
            batches = {stream: one.set_column(at, one.schema.field(at), some) for stream, one in batches.items()}
        place += count if count != 40 else 400
        before = join.save()
        expected = results(runs, batches, place)
        assert results(join, batches, place) == expected
        if number % 3 == 2:
            restored = restored_join(bound, before, **options)
            assert restored.save() == before
            assert results(restored, batches, place) == expected
            assert restored.save() == join.save()
        moves += any(isinstance(one, BucketWindow) and one.bucket_run.rebuild is not None for one in join.windows)
    assert moves >= 3
    without = restored_join(bound, before, bucket_rows=None)
    assert results(without, batches, place) == expected


def test_what_the_dead_leave_behind_is_no_reason_to_grow() -> None:
    bound, batch = steady(4000, 400)
    join, shapes = window_join(bound, bucket_rows=1000), []
    for place in range(0, 40_000, 250):
        pushed(join, {stream: batch(place, 250) for stream in (0, 1)}, place + 250)
        if isinstance(join.windows[0], BucketWindow):
            shapes.append(join.windows[0].bucket_run.shape)
    assert len(set(shapes)) <= 8
    assert len(set(shapes[-80:])) == 1


@pytest.mark.slow
def test_a_push_that_is_given_up_leaves_the_windows_as_they_were() -> None:
    bound, batch = steady(2000, 30)
    join, twin = window_join(bound, bucket_rows=100, chunk_rows=64), window_join(bound, bucket_rows=100, chunk_rows=64)
    for place in range(0, 6000, 500):
        batches = {stream: batch(place, 500) for stream in (0, 1)}
        before = join.save()
        given_up = join.push(batches, place)
        next(given_up)
        given_up.close()
        assert join.save() == before
        assert pushed(join, batches, place) == pushed(twin, batches, place)
    assert isinstance(join.windows[0], BucketWindow)
    assert join.save() == twin.save()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_late", [False, True])
def test_tuples_that_there_is_no_memory_for_stay_beside_the_grid(
    monkeypatch: pytest.MonkeyPatch, threads: int, is_late: bool
) -> None:
    """Such a push is taken in, and its results are right. Its tuples go into the grid when there is room again."""
    bound, batch = steady(6000, 150)
    join, twin = window_join(bound, bucket_rows=100, threads=threads), window_join(bound, bucket_rows=100)
    batches = [{stream: batch(place, 1500) for stream in (0, 1)} for place in range(0, 12_000, 1500)]
    expected = [sorted(pushed(twin, one, 0)) for one in batches]
    adding = BucketRun.adding

    def no_memory(run: BucketRun, *told, **named):
        if run.form.stream == 1 and not is_late:
            raise MemoryError
        made = yield from adding(run, *told, **named)
        if run.form.stream == 1:
            raise MemoryError
        return made

    for number in (0, 1):
        assert sorted(pushed(join, batches[number], 0)) == expected[number]
    with monkeypatch.context() as patch:
        patch.setattr(BucketRun, "adding", no_memory)
        for number in (2, 3, 4):
            assert sorted(pushed(join, batches[number], 0)) == expected[number]
        assert 1 < len(join.windows[1].before_tail) <= 4
        saved = join.save()
    for number in (5, 6, 7):
        assert sorted(pushed(join, batches[number], 0)) == expected[number]
    assert [len(window.before_tail) for window in join.windows] == [1, 1]
    again = restored_join(bound, saved, bucket_rows=100, threads=threads)
    for number in (5, 6, 7):
        assert sorted(pushed(again, batches[number], 0)) == expected[number]
    assert join.counters["state_rows"] == again.counters["state_rows"] == twin.counters["state_rows"]


def test_more_tuples_than_a_grid_can_number_stay_beside_it() -> None:
    tuning = replace(SMALL, grid=GridTuning(most_rows=4_000))
    bound, batch = steady(6000, 150)
    join, twin = window_join(bound, bucket_rows=100, threads=2, tuning=tuning), window_join(bound)
    beside = 0
    for place in range(0, 12_000, 1500):
        batches = {stream: batch(place, 1500) for stream in (0, 1)}
        assert sorted(pushed(join, batches, 0)) == sorted(pushed(twin, batches, 0))
        beside += len(join.windows[0].sealed)
    assert isinstance(join.windows[0], BucketWindow)
    assert beside
    again = restored_join(bound, join.save(), bucket_rows=100, tuning=tuning)
    batches = {stream: batch(12_000, 1500) for stream in (0, 1)}
    assert sorted(pushed(again, batches, 0)) == sorted(pushed(twin, batches, 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "chunk_rows"),
    [
        (steady, 64),
        (mixed, CHUNK_ROWS),
        pytest.param(steady, CHUNK_ROWS, marks=pytest.mark.long),
        pytest.param(mixed, 64, marks=pytest.mark.long),
    ],
)
def test_windows_of_runs_give_a_pool_what_they_give_one_thread(
    monkeypatch: pytest.MonkeyPatch, make, chunk_rows
) -> None:
    """A task gets some neighbouring runs. The rows, their order and the state are those of one thread."""
    begin_parts, parts = window_probe.WindowProbe.begin_parts, []

    def counted(*told):
        made = begin_parts(*told)
        parts.append(len(made))
        return made

    monkeypatch.setattr(window_probe.WindowProbe, "begin_parts", counted)
    bound, batch = make(2000, 60)
    alone, join = (window_join(bound, threads=threads, chunk_rows=chunk_rows) for threads in (1, 3))
    place = 0
    for size in (500, 10, 600, 1, 400, 500):
        batches = {stream: batch(place, size) for stream in (0, 1)}
        place += size
        expected = rows_of(alone, batches, place)
        assert rows_of(join, batches, place) == expected
        assert join.save() == alone.save()
    # Runs are not dealt out if a window is empty, if the tuples are few, or if more is found than there are buffers
    # for.
    assert len(parts) >= (2 if chunk_rows == 64 else 6)
    assert chunk_rows == 64 or max(parts) > 3


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3000,), (3000, 10, 1, 700, 5000)])
def test_whenever_one_asks_all_that_was_pushed_is_there(sizes: tuple[int, ...]) -> None:
    """A push's tuples are taken in later. Only a caller that asks for something, in any thread, waits for that."""
    bound, batch = steady(6000, 50)
    alone, left, asked, watched = (window_join(bound, bucket_rows=100, threads=threads) for threads in (1, 2, 3, 2))
    asks = (
        lambda join: join.save(),
        lambda join: join.counters["state_rows"],
        lambda join: [window.rows for window in join.windows],
        lambda join: join.explain()[2:],
    )
    begun: SimpleQueue[bool] = SimpleQueue()
    seen: list[int] = []

    def watch() -> None:
        while begun.get():
            seen.extend(watched.state_rows for _ in range(20))

    watching = Thread(target=watch)
    watching.start()
    place = 0
    try:
        for number in range(12):
            begun.put(True)
            size = sizes[number % len(sizes)]
            batches = {stream: batch(place, size) for stream in (0, 1)}
            place += size
            expected = pushed(alone, batches, place)
            for join in (left, asked, watched):
                assert pushed(join, batches, place) == expected
            ask = asks[number % len(asks)]
            assert ask(asked) == ask(alone)
    finally:
        begun.put(False)
        watching.join()
    assert isinstance(alone.windows[0], BucketWindow)
    assert left.save() == asked.save() == watched.save() == alone.save()
    assert max(seen) <= alone.counters["state_rows"] + 2 * max(sizes)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_goes_on_by_itself() -> None:
    bound, batch = steady(6000, 50)
    join, twin = window_join(bound, bucket_rows=100, threads=3), window_join(bound, bucket_rows=100)
    for place in range(0, 21_000, 3000):
        batches = {stream: batch(place, 3000) for stream in (0, 1)}
        expected = pushed(twin, batches, place)
        assert pushed(join, batches, place) == expected
        process = os.fork()
        if not process:
            status = 1
            try:
                batches = {stream: batch(place + 3000, 3000) for stream in (0, 1)}
                is_same = pushed(join, batches, place + 3000) == pushed(twin, batches, place + 3000)
                status = 0 if is_same and join.save() == twin.save() else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert join.save() == twin.save()


@pytest.mark.each_value
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk_rows", [64, CHUNK_ROWS])
def test_a_push_that_another_overtook_is_refused(
    threads: int, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overtaken push has read grids that change when the other one is over, so it is ended before that."""
    bound, batch = steady(2000, 50)
    join, twin = (window_join(bound, bucket_rows=100, chunk_rows=chunk_rows, threads=threads) for _ in range(2))
    of_push, take_in = join._joining.results, join._kept.take_in
    begun, left = [], []

    def results_of(arrivals):
        progress, made = of_push(arrivals)
        begun.append(made)
        return progress, made

    def taking_in(rows: int, *, waits: bool) -> None:
        left.append([made for made in begun if made.gi_frame is not None])
        take_in(rows, waits=waits)

    monkeypatch.setattr(join._joining, "results", results_of)
    monkeypatch.setattr(join._kept, "take_in", taking_in)
    for place in range(0, 6000, 1000):
        batches = {stream: batch(place, 1000) for stream in (0, 1)}
        reading, unread = join.push(batches, place), join.push(batches, place)
        next(reading)
        assert pushed(join, batches, place) == pushed(twin, batches, place)
        with pytest.raises(ArgumentError, match="another push was finished"):
            list(reading)
        unread.close()
    assert join.save() == twin.save()
    assert len(begun) == 12
    assert left
    assert not any(left), "a push was still being read when grids changed"


@pytest.mark.slow
def test_a_column_with_its_first_null_goes_to_the_payload() -> None:
    """The window stays in a grid, and everything but that column stays as it would without a null."""
    bound, batch = steady(2000, 30)
    join, runs = window_join(bound, bucket_rows=100), window_join(bound)
    without = window_join(bound, bucket_rows=100)
    for number, place in enumerate(range(0, 12_000, 500)):
        batches = given = {stream: batch(place, 500) for stream in (0, 1)}
        if number in (8, 9):
            null = pa.array([None if row % 7 == 0 else row % 100 for row in range(500)], pa.int16())
            at = bound.tuple_schema(0).get_field_index("z")
            batches = {stream: one.set_column(at, one.schema.field(at), null) for stream, one in given.items()}
        before = join.save()
        restored = restored_join(bound, before, bucket_rows=100)
        assert restored.save() == before
        expected = results(runs, batches, place)
        assert results(join, batches, place) == expected
        assert results(restored, batches, place) == expected
        assert restored.save() == join.save()
        results(without, given, place)
        facts, other = (opened(None, one.save())[0] for one in (join, without))
        assert facts["buckets"] == other["buckets"]
        assert join.counters == without.counters
        window = join.windows[0]
        assert isinstance(window, BucketWindow)
        assert window.bucket_run.payload.names == ({"z"} if number >= 8 else set())
    assert not restored.windows[0].bucket_run.payload.names, "the nulls were gone when it was restored"


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [pytest.param((500,), marks=pytest.mark.long), (3000, 1, 40, 2)])
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 3])
def test_full_windows_with_a_payload_give_what_runs_give(sizes: tuple[int, ...], threads: int) -> None:
    """Strings, lists, booleans and nulls; batches are put together and thinned, and the join restarts now and then."""
    tuning = replace(SMALL, payload=PayloadTuning(least_rows=64, slack_rows=512))
    bound, batch = mixed(4000, 300)
    options = {"bucket_rows": 1000, "threads": threads, "chunk_rows": 512, "tuning": tuning}
    join, runs = window_join(bound, **options), window_join(bound)
    place, found, thinned = 0, 0, 0
    for number in range(60):
        count = sizes[number % len(sizes)]
        batches = {stream: batch(place, count) for stream in (0, 1)}
        place += count
        expected = results(runs, batches, place)
        before = join.windows[0]
        held = before.bucket_run.payload.rows if isinstance(before, BucketWindow) else 0
        straight = restored_join(bound, join.save(), bucket_rows=1000, tuning=tuning) if number % 4 == 1 else None
        assert results(join, batches, place) == expected
        if straight is not None:
            assert results(straight, batches, place) == expected
            assert straight.save() == join.save()
        if number % 7 == 6:
            join = restored_join(bound, join.save(), **options)
        window = join.windows[0]
        if isinstance(window, BucketWindow):
            run = window.bucket_run
            assert run.payload.names == {"k", "bytes", "parts", "flag", "maybe"}
            assert run.payload.rows <= 2 * run.rows + 512 + max(sizes)
            thinned += run.payload.rows < held
        found += len(expected)
    assert "with bytes, flag, k, maybe, parts beside them" in "\n".join(join.explain())
    assert found > 1000
    assert thinned > 2
    pushed(join, {}, 10**9)
    assert join.state_rows == 0
    assert not len(join.windows[0].bucket_run.payload)


@pytest.mark.slow
@pytest.mark.parametrize("names", ["rst", pytest.param("rstu", marks=pytest.mark.long)])
def test_a_chain_of_streams_gives_what_runs_give_in_one_order(names: str) -> None:
    """Any number of threads and any restart give the same results in the same order, and the same state."""
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.float64(), "k": pa.string()})
    on = " AND ".join(f"abs({a}.x - {b}.x) <= 1 AND {a}.y - {b}.y BETWEEN -40 AND 40" for a, b in pairwise(names))
    join = Join([Stream(name, schema=schema) for name in names], f"{on} AND r.k = s.k", "1500us")
    bound = bind(join, dict.fromkeys(names, schema))
    chooser = np.random.default_rng(11)

    def batch(stream: int, first: int, count: int) -> pa.RecordBatch:
        given = {
            "_ts": np.arange(first, first + count),
            "_seq": np.arange(first, first + count),
            "x": (chooser.normal(first // 50, 30 + 90 * stream, count)).astype(np.int32),  # the keys drift
            "y": chooser.random(count) * 600,
            "k": [f"k{key}" for key in chooser.integers(0, 4, count)],
        }
        inside = bound.tuple_schema(stream)
        return pa.RecordBatch.from_arrays([pa.array(given[f.name], f.type) for f in inside], schema=inside)

    runs, options = window_join(bound), {"bucket_rows": 400, "chunk_rows": 128}
    joins = [window_join(bound, **options), window_join(bound, threads=3, **options)]
    place, found, in_grids, orders = 0, 0, 0, set()
    for number in range(24):
        count = (300, 7, 500)[number % 3]
        batches = {stream: batch(stream, place, count) for stream in range(len(names))}
        place += count
        expected = sorted(rows_of(runs, batches, place))
        restored = restored_join(bound, joins[0].save(), **options)
        first, *others = [rows_of(one, batches, place) for one in (*joins, restored)]
        assert sorted(first) == expected
        assert all(other == first for other in others)
        assert restored.save() == joins[0].save() == joins[1].save()
        assert joins[1].counters == joins[0].counters
        found += len(expected)
        in_grids += all(isinstance(window, BucketWindow) for window in joins[0].windows)
        orders |= {line for line in joins[0].explain() if line.startswith("new ")}
    assert found > 200
    assert in_grids > 15
    assert len(orders) > len(names), "the windows drift, and so does what is known of them"


def test_facts_of_a_sample_that_lie_are_named() -> None:
    facts = {"rows": 7, "keys": [[1, 2], [0.5, float("inf")]]}
    assert GridSample.from_facts(facts, ["int", "float"]).to_facts() == facts
    for keys in ([[1, 2]], [[1, 2], [0.5]], [[1, "2"], [0.5, 0.5]], [[1, 2**70], [0.5, 0.5]], [[1, 2], [1, 2]], 7):
        with pytest.raises((TypeError, ValueError)):
            GridSample.from_facts({"rows": 7, "keys": keys}, ["int", "float"])


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.string(), pa.bool_(), pa.date32()])
def test_nulls_in_keys_never_reach_a_grid(kind: pa.DataType) -> None:
    """Rows with such a null are counted and not kept: no key in the chunks, and no string in the payload, is null."""
    schema = pa.schema([pa.field("ts", pa.int64()), pa.field("k", kind, nullable=True), ("x", pa.int64())])
    on = "r.k = s.k AND abs(r.x - s.x) <= 3"
    bound = bind(Join([Stream(name, schema=schema) for name in "rs"], on, "900us"), dict.fromkeys("rs", schema))
    join, runs = window_join(bound, bucket_rows=200), window_join(bound)
    chooser = np.random.default_rng(2)
    for place in range(0, 3000, 300):
        batches = {}
        for stream in (0, 1):
            keys = pa.array(chooser.integers(0, 2, 300))
            named = keys.cast(kind) if kind != pa.date32() else keys.cast(pa.int32()).cast(kind)
            given = {
                "_ts": pa.array(np.arange(place, place + 300)),
                "_seq": pa.array(np.arange(place, place + 300)),
                "k": pc.if_else(pa.array(chooser.random(300) < 0.1), pa.scalar(None, kind), named),
                "x": pa.array(chooser.integers(0, 50, 300)),
            }
            inside = bound.tuple_schema(stream)
            batches[stream] = pa.RecordBatch.from_arrays([given[f.name] for f in inside], schema=inside)
        found = results(join, batches, place + 300)
        assert found == results(runs, batches, place + 300)
        assert found
    assert join.counters["null_keys"] == runs.counters["null_keys"]
    assert all(count > 200 for count in join.counters["null_keys"].values())
    run = join.windows[0].bucket_run
    assert run.payload.names == ({"k"} if kind in (pa.string(), pa.bool_()) else set())
    assert not run.tuples.column("k").null_count


@pytest.mark.slow
def test_one_hot_value_and_a_drifting_one() -> None:
    """The hot value has a chain of many chunks, others come and go. Results are exact; dead rows do not stay long."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    bound = bind(Join([Stream(n, schema=schema) for n in "rs"], "r.k = s.k", "3000us"), dict.fromkeys("rs", schema))
    join, runs = window_join(bound, bucket_rows=500), window_join(bound)
    chooser = np.random.default_rng(5)
    for place in range(0, 30_000, 600):
        drift = place // 40
        batches = {}
        for stream in (0, 1):
            keys = chooser.normal(drift, 20, 600).astype(np.int64)
            keys[chooser.random(600) < 0.05] = 10**12
            times = np.arange(place, place + 600)
            batches[stream] = pa.RecordBatch.from_arrays(
                [pa.array(times), pa.array(times), pa.array(keys)], schema=bound.tuple_schema(stream)
            )
        assert sorted(pushed(join, batches, place + 600)) == sorted(pushed(runs, batches, place + 600))
    assert isinstance(join.windows[0], BucketWindow)
    assert join.state_rows <= 2 * 3000 * 1.35 + 600


def test_all_rows_go_when_time_jumps() -> None:
    bound, batch = steady(2000, 30)
    join = window_join(bound, bucket_rows=100)
    for place in range(0, 2000, 500):
        pushed(join, {stream: batch(place, 500) for stream in (0, 1)}, place)
    assert join.state_rows == 4000
    pushed(join, {}, 10**9)
    assert join.state_rows == 0
    assert pushed(join, {stream: batch(10**9, 500) for stream in (0, 1)}, 10**9)
    assert join.state_rows == 1000


def test_explained_and_forced() -> None:
    bound, batch = steady(2000, 30)
    join = window_join(bound, bucket_rows=100)
    for place in range(0, 2000, 500):
        pushed(join, {stream: batch(place, 500) for stream in (0, 1)}, place)
    text = "\n".join(join.explain())
    assert text.count(" buckets by cells of ") == 2
    assert "beside them" not in text
    forced = window_join(bound, bucket_rows=100, index={"r": ["x"], "s": ["y"]})
    pushed(forced, {stream: batch(0, 1500) for stream in (0, 1)}, 0)
    assert not any(isinstance(one, BucketWindow) for one in forced.windows)
    with pytest.raises(ArgumentError, match="bucket_rows"):
        window_join(bound, bucket_rows=0)


def test_facts_that_lie_are_named() -> None:
    bound, batch = steady(2000, 30)
    join = window_join(bound, bucket_rows=100)
    pushed(join, {stream: batch(0, 1500) for stream in (0, 1)}, 0)
    facts = join.windows[0].to_facts()
    runs, bucketing = join.windows[0].in_runs(), join.forms[0].bucket_policy
    again = bucketing.restored(runs, facts)
    assert isinstance(again.before_tail[0], BucketRun)
    laid_out = {"first": -1, "second": 1, "width": 1, "rows": 1500}
    assert bucketing.restored(runs, {**facts, "layout": laid_out}).layout == (SortLayout(-1, 1, 1), 1500, 1)
    for name, value in [
        ("layout", {**laid_out, "first": 9}),
        ("layout", {**laid_out, "second": "1"}),
        ("layout", {**laid_out, "width": 0}),
        ("layout", []),
        ("keys", [9]),
        ("keys", []),
        ("widths", [0, 1]),
        ("stride", 0),
        ("buckets", "7"),
        ("swept", 10**9),
        ("widths", None),
    ]:
        with pytest.raises(StateCorruptError):
            bucketing.restored(runs, {**facts, name: value})
    with pytest.raises(StateCorruptError):
        bucketing.restored(runs, {})
    other = bucketing.restored(runs, facts)
    shape = other.bucket_run.shape
    move = {**shape.to_facts(), "place": 3, "rows": 2, "built_rows": 1500}
    moved = window.Window(runs.form, [*runs.sealed, runs.form.arrived(runs.sealed[0].tuples[:2])], runs.tail)
    assert bucketing.restored(moved, {**facts, "move": move}).bucket_run.rebuild.to_facts() == move
    for name, value in [("place", -9), ("place", shape.buckets), ("rows", 3), ("built_rows", 2**40)]:
        with pytest.raises(StateCorruptError):
            bucketing.restored(moved, {**facts, "move": {**move, name: value}})
    for lie in (7, None, {}, {"rows": 2}, {**move, "keys": [9]}):
        with pytest.raises(StateCorruptError):
            bucketing.restored(moved, {**facts, "move": lie})
    for alone in (7, None, {}):
        with pytest.raises(StateCorruptError):
            bucketed([runs.form], [runs], [{**facts, "move": alone}])
    with pytest.raises(StateCorruptError):
        bucketing.restored(runs, {**facts, "move": move})
    for told in ([facts], "facts", 7):
        with pytest.raises(StateCorruptError):
            bucketed(join.forms, [runs, runs], told)
    assert bucketed(join.forms, [runs, runs], [None, None]) == [runs, runs]


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk_rows", [64, CHUNK_ROWS])
def test_a_push_that_is_given_up_while_another_is_read_takes_nothing_from_it(threads: int, chunk_rows: int) -> None:
    bound, batch = steady(2000, 30)
    join, twin = (window_join(bound, bucket_rows=100, chunk_rows=chunk_rows, threads=threads) for _ in range(2))
    for place in range(0, 6000, 500):
        batches = {stream: batch(place, 500) for stream in (0, 1)}
        expected = pushed(twin, batches, place)
        reading = join.push(batches, place)
        found = [next(reading)]
        for count in (0, 1):
            other = join.push(batches, place)
            for _ in range(count):
                next(other)
            other.close()
        found += reading
        assert pairs_of(found) == expected
    assert join.save() == twin.save()
