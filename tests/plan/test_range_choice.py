"""Ranges and grids are chosen near what no layout can be better than, and the same samples give the same choice."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import (
    DEFAULT_WORK,
    CellWork,
    Difference,
    KeySample,
    Layout,
    RangeLayout,
    Reach,
    choose_kind,
    choose_ranges,
)
from tests.support.examples import examples

_VALUES = 5
EQUAL = Reach(2, (Difference(0, 1, 0, 0),), True)


def near(end: float) -> Reach:
    return Reach(2, (Difference(0, 1, -end, end),))


def sample(keys: object, size: int = 100_000, dtype: type = np.int64) -> KeySample:
    return KeySample.of(np.array(keys, dtype=dtype), size)


def load_of(layout: RangeLayout, keys: list[np.ndarray], work: CellWork) -> float:
    """The load of the fullest cell, every pair counted one by one, if each grid dealt its rows evenly."""
    fullest = 0.0
    for place, grid in enumerate(layout.grids):
        present = []
        for stream, values in enumerate(keys):
            first, last = layout.ranges_of(stream, values)
            present.append(values[(first <= place) & (place <= last)])
        load = sum(work.row * len(rows) / count for rows, count in zip(present, grid.counts, strict=True))
        for band in layout.reach.bands:
            differences = present[band.left][:, None] - present[band.right][None, :]
            pairs = int(((band.lo <= differences) & (differences <= band.hi)).sum())
            load += work.pair * pairs / (grid.counts[band.left] * grid.counts[band.right])
        fullest = max(fullest, load)
    return fullest


def least_load(keys: list[np.ndarray], cells: int, work: CellWork) -> float:
    """The least load of the fullest cell of all ways to lay ranges and grids of two streams for an equality."""
    shapes = [Layout((one, other)) for one in range(1, cells + 1) for other in range(1, cells // one + 1)]
    best = math.inf
    for ranges in range(1, cells + 1):
        for boundaries in itertools.combinations(range(1, _VALUES), ranges - 1):
            for grids in itertools.product(shapes, repeat=ranges):
                if sum(grid.cells for grid in grids) <= cells:
                    best = min(best, load_of(RangeLayout(cells, EQUAL, 0, boundaries, grids), keys, work))
    return best


few_values = st.lists(st.integers(0, _VALUES - 1), min_size=1, max_size=30).map(
    lambda keys: np.array(keys, dtype=np.int64)
)


@examples(60)
@given(few_values, few_values, st.integers(1, 4), st.sampled_from([CellWork(), CellWork(1, 10), CellWork(1, 0)]))
def test_the_fullest_cell_is_near_the_best_of_all_layouts_looked_at(
    left: np.ndarray, right: np.ndarray, cells: int, work: CellWork
) -> None:
    keys = [left, right]
    choice = choose_ranges([sample(values) for values in keys], EQUAL, cells, work)
    best = least_load(keys, cells, work)
    load = load_of(choice.layout, keys, work)
    assert load == pytest.approx(choice.load), "samples of all rows know the loads"
    assert best * (1 - 1e-9) <= load <= best * 1.5


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[np.ndarray], Reach, int]:
    """Keys of two to four streams, many of them equal, with bands to the first stream."""
    streams, is_whole = draw(st.integers(2, 4)), draw(st.booleans())
    kind = st.integers(-20, 20) if is_whole else st.integers(-20, 20).map(lambda tenth: tenth / 10)
    dtype = np.int64 if is_whole else np.float64
    keys = [np.array(draw(st.lists(kind, max_size=40)), dtype=dtype) for _ in range(streams)]
    ends = draw(st.lists(st.integers(-3, 3), min_size=2, max_size=2).map(sorted))
    lo, hi = (end if is_whole else end / 5 for end in ends)
    return (
        keys,
        Reach(streams, tuple(Difference(0, n, lo, hi) for n in range(1, streams)), is_whole),
        draw(st.integers(1, 40)),
    )


@examples(150)
@given(drawn(), st.integers(2, 50), st.booleans())
def test_any_keys_have_a_layout_and_the_same_one_again(
    case: tuple[list[np.ndarray], Reach, int], size: int, is_split: bool
) -> None:
    keys, reach, cells = case
    samples = [KeySample.of(values, size) for values in keys]
    choice = choose_ranges(samples, reach, cells, is_split=is_split)
    assert choice.layout.cells == cells
    assert choice.load >= choice.mean_load * (1 - 1e-9)
    assert choice.copies >= 1 - 1e-9
    assert choice == choose_ranges([KeySample.of(values, size) for values in keys], reach, cells, is_split=is_split)
    if not is_split and sum(map(len, keys)):
        assert {grid.cells for grid in choice.layout.grids} == {1}


def test_uniform_keys_are_cut_evenly() -> None:
    rng = np.random.default_rng(1)
    for cells in (4, 64, 1000):
        samples = [KeySample.of(rng.random(400_000), 20 * cells) for _ in range(2)]
        choice = choose_ranges(samples, near(1e-6), cells)
        assert choice.load < 1.05 * choice.mean_load
        assert choice.copies < 1.01
        assert len(choice.layout.grids) >= 0.98 * cells


def test_dense_ends_are_cut_as_evenly_as_the_middle() -> None:
    """Where pairs weigh most at the smallest keys, half a sampled key's share too much shows at once."""
    keys = [np.exp(np.random.default_rng(seed).random(400_000) * 13.8) for seed in range(2)]
    choice = choose_ranges([KeySample.of(values, 640) for values in keys], near(1e-3), 64, CellWork(1, 20))
    ends = [(-math.inf, choice.layout.boundaries[0]), (choice.layout.boundaries[-1], math.inf)]
    partners = np.sort(keys[1])
    for low, high in ends:
        anchors = keys[0][(low <= keys[0]) & (keys[0] < high)]
        found = np.searchsorted(partners, anchors + 1e-3, side="right") - np.searchsorted(partners, anchors - 1e-3)
        rows = sum(int(((low <= values) & (values < high)).sum()) for values in keys)
        assert rows + 20 * int(found.sum()) < 1.15 * choice.mean_load


def test_a_hot_value_gets_a_grid_and_its_neighbours_do_not() -> None:
    keys = np.concatenate((np.arange(40_000), np.full(1_000, 20_000)))
    choice = choose_ranges([sample(keys), sample(keys)], EQUAL, 32)
    hot = [place for place, grid in enumerate(choice.layout.grids) if grid.cells > 1]
    assert len(hot) == 1
    low, high = choice.layout.boundaries[hot[0] - 1 : hot[0] + 1]
    assert low <= 20_000 < high <= low + 2_000
    assert choice.load < 1.15 * choice.mean_load
    assert choose_ranges([sample(keys), sample(keys)], EQUAL, 32, is_split=False).load > 5 * choice.load


def test_a_value_that_is_hot_in_one_stream_is_dealt_there_and_copied_in_the_other() -> None:
    hot = np.concatenate((np.arange(20_000), np.full(20_000, 7)))
    choice = choose_ranges([sample(hot), sample(np.arange(20_000))], EQUAL, 16, CellWork(1, 0))
    assert max(grid.counts[0] for grid in choice.layout.grids) >= 4
    assert {grid.counts[1] for grid in choice.layout.grids} == {1}
    assert choice.copies < 1.05


def test_where_the_band_is_wider_than_a_cells_share_grids_copy_less_than_ranges() -> None:
    keys = np.random.default_rng(1).random(50_000)
    samples = [KeySample.of(keys, 10_000)] * 2
    ranges = choose_ranges(samples, near(0.05), 256, CellWork(1, 0), is_split=False)
    hybrid = choose_ranges(samples, near(0.05), 256, CellWork(1, 0))
    assert hybrid.load < 0.7 * ranges.load
    assert hybrid.copies < ranges.copies


def test_the_busier_stream_is_the_anchor() -> None:
    rng = np.random.default_rng(1)
    few, many = KeySample.of(rng.random(1_000), 1_000), KeySample.of(rng.random(100_000), 1_000)
    assert choose_ranges([few, many], near(0.01), 8).layout.anchor == 1
    assert choose_ranges([many, few], near(0.01), 8).layout.anchor == 0


def test_the_middle_of_a_chain_is_the_anchor() -> None:
    keys = KeySample.of(np.random.default_rng(1).random(1_000), 1_000)
    chain = Reach(3, (Difference(0, 1, -0.01, 0.01), Difference(1, 2, -0.01, 0.01)))
    assert choose_ranges([keys] * 3, chain, 8).layout.anchor == 1


def test_whole_numbers_at_the_ends_of_int64_and_far_bands() -> None:
    ends = np.array([-(1 << 63), -(1 << 63) + 1, (1 << 63) - 2, (1 << 63) - 1] * 50, dtype=np.int64)
    for lo, hi in ((0, 0), (-1, 1), (-(1 << 63), (1 << 63) - 1), (1 << 62, 1 << 62)):
        choice = choose_ranges([KeySample.of(ends, 100)] * 2, Reach(2, (Difference(0, 1, lo, hi),), True), 8)
        assert choice.layout.cells == 8


def test_bands_that_contradict_each_other() -> None:
    keys = sample(np.arange(1_000))
    never = Reach(2, (Difference(0, 1, 0, 0), Difference(0, 1, 5, 5)), True)
    choice = choose_ranges([keys, keys], never, 8)
    assert choice.copies == pytest.approx(1, rel=0.01)
    assert len(choice.layout.grids) == 8


def test_floats_at_the_ends_of_what_there_is() -> None:
    ends = np.array([-1.7e308, -1e300, 0.0, 5e-324, 1e300, 1.7e308] * 20)
    for end in (0.0, 1e-300, 1.7e308, 1.7976931348623157e308):
        assert choose_ranges([KeySample.of(ends, 50)] * 2, near(end), 8).layout.cells == 8


def test_no_rows_and_one_row() -> None:
    assert choose_ranges([sample([]), sample([])], EQUAL, 6).layout.grids[0].cells == 6
    assert choose_ranges([sample([1]), sample([])], EQUAL, 1).load == DEFAULT_WORK.row


@pytest.mark.parametrize(("cells", "streams"), [(0, 2), (4097, 2), (4, 3)])
def test_cells_and_samples_are_checked(cells: int, streams: int) -> None:
    with pytest.raises(LayoutError) as caught:
        choose_ranges([sample([1])] * streams, EQUAL, cells)
    assert caught.value.name == "cells"


def test_a_sample_counts_frequent_keys_and_leaves_out_what_matches_nothing() -> None:
    keys = np.concatenate((np.full(900, 5.0), np.arange(100.0) + 10, [np.nan, np.inf, -np.inf]))
    found = KeySample.of(np.random.default_rng(1).permutation(keys), 50)
    assert found.total == 1_000
    assert found.points.tolist() == [5.0]
    assert found.at[found.keys == 5.0] == [900]
    assert (found.keys[0], found.keys[-1]) == (5.0, 109.0)
    assert (np.diff(found.keys) > 0).all()
    assert len(found.keys) <= 52


@examples(100)
@given(st.lists(st.integers(-50, 50), max_size=60), st.integers(1, 20), st.lists(st.integers(-51, 51), max_size=5))
def test_a_samples_curve_is_exact_at_its_keys(values: list[int], size: int, asked: list[int]) -> None:
    keys = np.array(values, dtype=np.int64)
    found = KeySample.of(keys, size)
    assert found.total == len(keys)
    exact = [(keys < key).sum() for key in found.keys]
    assert found.curve().before(found.keys.astype(np.float64)).tolist() == exact
    below = found.curve().before(np.sort(np.array(asked, dtype=np.float64)))
    assert (np.diff(below) >= 0).all()


def test_the_cheaper_kind_is_taken() -> None:
    rng = np.random.default_rng(1)
    keys = [KeySample.of(rng.random(50_000), 5_000) for _ in range(2)]
    narrow = choose_kind(keys, near(1e-5), 64)
    assert isinstance(narrow.layout, RangeLayout)
    assert narrow.grid.copies == 8
    assert narrow.ranges is not None
    assert narrow.ranges.copies < 1.1
    any_condition = choose_kind(keys, None, 64)
    assert any_condition.layout == Layout((8, 8))
    assert any_condition.ranges is None
    # Everything matches everything: no range is narrower than the band.
    everything = choose_kind(keys, near(2.0), 64)
    assert everything.ranges is not None
    assert everything.ranges.load * everything.ranges.copies >= 0.99 * everything.grid.load * everything.grid.copies
    assert isinstance(everything.layout, Layout)


def test_where_few_rows_have_many_pairs_each_chance_counts_and_the_grid_is_taken() -> None:
    rng = np.random.default_rng(1)
    few, many = (KeySample.of(rng.random(rows), 5_000) for rows in (1_000, 1_000_000))
    choice = choose_kind([few, many], near(1e-3), 64)
    assert choice.ranges is not None
    assert choice.ranges.load * choice.ranges.copies < choice.grid.load * choice.grid.copies
    # About 16 rows of the slow stream in a cell, each with 2 000 pairs: three deviations are three quarters.
    assert choice.ranges.likely_load / choice.ranges.load == pytest.approx(1 + 3 / 16**0.5 * 0.33, rel=0.1)
    assert choice.layout == Layout((1, 64))


def test_1000_cells_and_5_streams_are_decided_at_once() -> None:
    """50 ms on a quiet machine (`python -m tests.bench scale`); a loaded one takes longer."""
    rng = np.random.default_rng(1)
    samples = [KeySample.of(rng.random(200_000), 16_000) for _ in range(5)]
    reach = Reach(5, tuple(Difference(0, n, -1e-6, 1e-6) for n in range(1, 5)))
    choose_ranges(samples, reach, 999)
    start = time.process_time()
    assert choose_ranges(samples, reach, 1000).layout.cells == 1000
    assert time.process_time() - start < 0.5
