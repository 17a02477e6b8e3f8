"""What is dealt to threads: parts of like cost, whatever the sizes of runs, and the rows and order of one thread."""

from __future__ import annotations

from heapq import heapreplace
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.probe import window_probe
from streamjoin_ds.engine.probe.run_probe import Stretch, even_edges, like_shares, tiles_of
from streamjoin_ds.engine.tuning import DEFAULT, ProbeTuning, TailTuning, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from tests.engine.streams import band_join, engine_options, tuples
from tests.support.examples import examples

ALLOWED = 1.1  # the largest share of a thread, as a multiple of the mean
KERNELS = [name for name in kernel_names() if name != "auto"]
SIZES = st.lists(st.sampled_from([0, 1, 3, 50, 1000, 200_000, 5_000_000]), min_size=1, max_size=40)


def busiest(costs: list[float], threads: int) -> float:
    """Return what the busiest thread has, where each takes the next part as soon as it is free; the mean is 1."""
    loads = [0.0] * threads
    for cost in costs:
        heapreplace(loads, loads[0] + cost)
    return max(loads) * threads / sum(costs)


def cost_of(stretches: list[Stretch], costs: list[float]) -> float:
    return sum(costs[each.run_number] * (each.end - each.begin) / each.parts for each in stretches)


@given(costs=SIZES, parts=st.integers(1, 12), tiles=st.integers(1, 300), snap=st.sampled_from([0.0, 0.03, 0.3]))
def test_parts_cover_all_in_order_and_cost_the_same(costs: list[float], parts: int, tiles: int, snap: float) -> None:
    found = like_shares(costs, parts, tiles, snap)
    assert all(found)
    assert len(found) <= parts
    # A tile is one cell of a table: its run, and its number there.
    cells = [
        (each.run_number, tile)
        for stretches in found
        for each in stretches
        for tile in range(each.begin * tiles // each.parts, each.end * tiles // each.parts)
    ]
    assert cells == [(place, tile) for place in range(len(costs)) for tile in range(tiles)]
    share = sum(costs) / parts
    assert all(cost_of(part, costs) <= share * (1 + 2 * snap) + max(costs) / tiles + 1e-6 for part in found)


@given(count=st.integers(0, 300_000), edges=st.lists(st.integers(0, 40), min_size=2, max_size=4, unique=True))
def test_stretches_of_a_run_have_each_probe_once(count: int, edges: list[int]) -> None:
    edges = sorted(edges)
    slices = [
        Stretch(0, low - edges[0], high - edges[0], edges[-1] - edges[0]).of(count) for low, high in pairwise(edges)
    ]
    assert [slices[0].start, slices[-1].stop] == [0, count]
    assert all(before.stop == after.start or after.stop <= after.start for before, after in pairwise(slices))
    assert all(each.start % 32 == 0 for each in slices)


@given(count=st.integers(0, 100_000), parts=st.integers(1, 20), step=st.sampled_from([1, 7, 2048]))
def test_even_edges_are_those_of_cell_join(count: int, parts: int, step: int) -> None:
    edges = even_edges(count, parts, step)
    sizes = [after - before for before, after in pairwise(edges)]
    assert sum(sizes) == count
    assert all(edge % step == 0 for edge in edges[:-1])
    steps = -(-count // step)
    used = max(min(parts, steps), 1)
    # Gedik et al., 2007, eq. 2: the first `steps mod used` have one more.
    expected = [steps // used + (part < steps % used) for part in range(used)]
    assert sorted((-(-size // step) for size in sizes), reverse=True) == expected


@pytest.mark.parametrize(
    "sizes",
    [
        [1_000_000] + [1000] * 60,
        [1000] * 60 + [1_000_000],
        [1000] * 30 + [400_000] + [1000] * 30 + [400_000, 10],
        [2**n for n in range(22)],
        [1_000_000 // (n + 1) for n in range(60)],
        [1_000_000],
    ],
)
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_skewed_runs_leave_no_thread_idle(sizes: list[int], threads: int) -> None:
    tuning = DEFAULT.probe
    for parts_per_thread in (tuning.groups_per_thread, tuning.parts_per_thread):
        parts = like_shares(sizes, threads * parts_per_thread, tiles_of(20_000), tuning.snap_share)
        assert busiest([cost_of(part, sizes) for part in parts], threads) <= ALLOWED


def test_as_many_runs_for_each_thread_leave_one_with_nearly_all() -> None:
    """What eq. 2 says of basic windows of one size does not hold for runs of unlike size: this is why they are cut."""
    sizes = [1_000_000] + [1000] * 60
    dealt = [sum(sizes[begin:end]) for begin, end in pairwise(even_edges(len(sizes), 4))]
    assert busiest(dealt, 2) > 1.8


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The probings that windows were cut into, in the order in which they were asked for."""
    begin_parts, found = window_probe.WindowProbe.begin_parts, []

    def noted(*told: Any) -> Any:
        found.append(begin_parts(*told))
        return found[-1]

    monkeypatch.setattr(window_probe.WindowProbe, "begin_parts", noted)
    return found


@pytest.mark.parametrize("index", [{"r": ("x",), "s": ("a",)}, "scan"])
@pytest.mark.parametrize("threads", [2, 3])
def test_what_threads_test_is_the_same(dealt: list[list[Any]], index: Any, threads: int) -> None:
    """One run has ten times the rows of all others: the pairs that each thread tests differ by a tenth at most."""
    bound = band_join(window="1h", on="abs(r.x - s.a) <= 100 and abs(r.y - s.b) <= 0.01")
    join = WindowJoin(bound, execution=Execution(threads=threads, index=index, merge_runs=1 << 20))
    for place, rows in enumerate([1100] * 4 + [100_000] + [1100] * 6):
        assert not list(join.push({1: tuples(bound, 1, rows, seed=place)}))
    dealt.clear()
    found = sum(chunk.num_rows for chunk in join.push({0: tuples(bound, 0, 4000)}))
    (parts,) = dealt
    tested = [part.kernel.candidates for part in parts]
    assert sum(tested) == join.counters["candidates"] > 4000 * 15_000
    assert busiest(tested, threads) <= ALLOWED
    assert found > 100


@examples(60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 40, 90, 300, 2000]), min_size=1, max_size=6),
    threads=st.integers(2, 5),
    index=st.sampled_from(["auto", "scan", {"r": ("x", "y"), "s": ("b",)}, {"r": ("y",), "s": ("a", "b")}]),
    kernel=st.sampled_from(KERNELS),
    batch_probes=st.sampled_from([0, 1 << 16]),
    snap_share=st.sampled_from([0.0, 0.03]),
    chunk_rows=st.sampled_from([64, 4096]),
    bucket_rows=st.sampled_from([None, None, 100]),
    scan_pairs=st.sampled_from([0, 4096]),
    step_us=st.sampled_from([0, 400_000]),
)
@example(  # runs that one kernel scans, because they are small, and that are cut
    sizes=[60] * 4,
    threads=3,
    index={"r": ("y",), "s": ("b",)},
    kernel=KERNELS[0],
    batch_probes=1 << 16,
    snap_share=0.0,
    chunk_rows=4096,
    bucket_rows=None,
    scan_pairs=0,
    step_us=0,
)
def test_any_runs_and_threads_give_the_rows_and_order_of_one(
    sizes: list[int],
    threads: int,
    index: Any,
    kernel: str,
    batch_probes: int,
    snap_share: float,
    chunk_rows: int,
    bucket_rows: int | None,
    scan_pairs: int,
    step_us: int,
) -> None:
    if kernel == "reference":
        sizes = [min(rows, 90) for rows in sizes]
    probe = ProbeTuning(
        few_probes=0,
        batch_probes=batch_probes,
        slice_probes=32,
        least_part_ns=20.0,
        snap_share=snap_share,
        scan_pairs=scan_pairs,
    )
    tuning = Tuning(tail=TailTuning(rows=64, most_arrived_rows=32), probe=probe)
    bound = band_join(window="500ms", on="abs(r.x - s.a) <= 60 and abs(r.y - s.b) <= 60")
    options = {"index": index, "kernel": kernel, "chunk_rows": chunk_rows, "bucket_rows": bucket_rows, "tuning": tuning}
    if bucket_rows is not None:
        options["index"] = "auto"
    one, several = (WindowJoin(bound, **engine_options(threads=count, **options)) for count in (1, threads))
    nothing = one.result_schema.empty_table()
    for place, (begin, rows) in enumerate(zip([0, *accumulate(sizes)], sizes, strict=False)):
        counts = enumerate((rows, sizes[-1 - place]))
        batch = {s: tuples(bound, s, n, start_us=place * step_us, seed=place, seq=begin) for s, n in counts}
        expected, found = (pa.concat_tables([nothing, *join.push(batch)]) for join in (one, several))
        assert found.equals(expected)
    assert one.counters == several.counters
    assert one.save() == several.save()
