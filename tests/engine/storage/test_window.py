"""Windows: few runs, bounded rows, nothing dropped that could still match."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.window_join import WindowJoin
from tests.engine.streams import band_join, tuples
from tests.support.examples import examples

SECOND_US = 1_000_000


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["equal", "random", "large and small", "growing"])
@pytest.mark.parametrize("spread_s", [1, 100])
def test_the_number_of_runs_stays_small(sizes: str, spread_s: int) -> None:
    bound = band_join(window="60s")
    form = WindowForm(bound, 0, load_kernels())
    chooser, window, rows = random.Random(1), Window(form), 0
    for n in range(600):
        count = {
            "equal": 10,
            "random": chooser.randint(1, 60),
            "large and small": 200 if n % 3 == 0 else 1,
            "growing": 1 + n // 4,
        }[sizes]
        table = tuples(bound, 0, count, start_us=n * SECOND_US, span_us=spread_s * SECOND_US)
        window = window.inserted(form.sealed(table.combine_chunks().to_batches()[0])).merged()
        window = window.expired((n - 60) * SECOND_US)
        rows = max(rows, len(window.runs))
    assert rows <= 40
    live = [int((run.key(0) >= (n - 60) * SECOND_US).sum()) for run in window.runs]
    assert sum(live) >= 0.45 * window.rows


def test_merging_keeps_every_tuple_and_the_order() -> None:
    bound = band_join()
    form = WindowForm(bound, 1, load_kernels())
    window = Window(form)
    for n in range(100):
        batch = tuples(bound, 1, 100, start_us=n * 1000, span_us=1000, seq=100 * n).combine_chunks().to_batches()[0]
        window = window.inserted(form.sealed(batch)).merged()
    assert len(window.runs) < 20
    numbers = np.concatenate([run.tuples.column("_seq").to_numpy() for run in window.runs])
    assert sorted(numbers.tolist()) == list(range(10_000))
    for run in window.runs:
        if run.sort_layout.first >= 0:
            buckets = np.floor(run.key(run.sort_layout.first) / run.sort_layout.width)
            assert np.all(buckets[1:] >= buckets[:-1])
            within = run.key(run.sort_layout.second)
            assert np.all((within[1:] >= within[:-1]) | (buckets[1:] > buckets[:-1]))


@examples(50)
@given(
    times=st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    cuts=st.lists(st.integers(1, 59), max_size=6),
    oldest=st.integers(-60, 60),
)
def test_expiry_drops_only_what_is_older(times: list[int], cuts: list[int], oldest: int) -> None:
    bound = band_join()
    form = WindowForm(bound, 0, load_kernels())
    window = Window(form)
    edges = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    for start, stop in pairwise(edges):
        table = tuples(bound, 0, stop - start, seq=start)
        table = table.set_column(0, table.schema.field(0), [times[start:stop]])
        window = window.inserted(form.sealed(table.combine_chunks().to_batches()[0]))
    kept = window.expired(oldest)
    numbers = {n for run in kept.runs for n in run.tuples.column("_seq").to_pylist()}
    assert {n for n, time in enumerate(times) if time >= oldest} <= numbers
    assert all(run.newest_us >= oldest for run in kept.runs)
    for run in kept.runs:
        assert (run.oldest_us, run.newest_us) == (int(run.key(0).min()), int(run.key(0).max()))


def test_expiry_is_counted_and_waits_for_the_streams_own_window() -> None:
    bound = band_join(window="r=10s,s=0s")
    join = WindowJoin(bound)
    batch = {s: tuples(bound, s, 100) for s in (0, 1)}
    list(join.push(batch, 5 * SECOND_US))
    assert [window.rows for window in join.windows] == [100, 0]
    list(join.push({}, 10 * SECOND_US))
    assert join.state_rows == 100
    list(join.push({}, 11 * SECOND_US))
    assert join.state_rows == 0
    assert join.counters["expired_rows"] == 200


def test_a_mostly_expired_run_is_thinned_out() -> None:
    bound = band_join(window="1s")
    join = WindowJoin(bound)
    list(join.push({0: tuples(bound, 0, 60_000, span_us=60 * SECOND_US)}, 59 * SECOND_US))
    assert join.state_rows < 2500
    assert join.state_rows + join.counters["expired_rows"] == 60_000
