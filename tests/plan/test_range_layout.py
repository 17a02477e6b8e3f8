"""Every result meets in exactly one cell, whatever the ranges, the grids, the bands and the keys."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import Difference, Layout, RangeLayout, Reach, band_attributes
from streamjoin_ds.spec import Key, bind
from tests.support.examples import examples

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
NOT_KEYS = (math.nan, math.inf, -math.inf)

whole_keys = st.integers(-6, 6) | st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX])
# Tenths are where rounding bites: 0.3 - 0.1 is not 0.2.
tenths = st.integers(-30, 30).map(lambda tenth: tenth / 10)
float_keys = tenths | st.floats(allow_nan=False, allow_infinity=False)
whole_ends = st.integers(-4, 4) | st.sampled_from([INT64_MIN, -(1 << 62), 1 << 62, INT64_MAX])
float_ends = tenths.map(lambda end: end / 5) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def layouts(draw: st.DrawFn) -> RangeLayout:
    """Any bands that connect two to four streams, any anchor, any boundaries, any small grids."""
    streams = draw(st.integers(2, 4))
    is_whole = draw(st.booleans())
    ends = st.lists(whole_ends if is_whole else float_ends, min_size=2, max_size=2).map(sorted)
    pairs = [(draw(st.integers(0, right - 1)), right) for right in range(1, streams)]
    pairs += draw(st.lists(st.sampled_from(list(itertools.combinations(range(streams), 2))), max_size=1))
    reach = Reach(streams, tuple(Difference(left, right, *draw(ends)) for left, right in pairs), is_whole)
    boundaries = sorted(draw(st.sets((whole_keys if is_whole else float_keys).map(lambda key: key + 0), max_size=5)))
    counts = st.lists(st.integers(1, 3), min_size=streams, max_size=streams).map(tuple)
    grids = tuple(Layout(draw(counts)) for _ in range(len(boundaries) + 1))
    cells = sum(grid.cells for grid in grids) + draw(st.integers(0, 2))
    return RangeLayout(cells, reach, draw(st.integers(0, streams - 1)), tuple(boundaries), grids)


@st.composite
def cases(draw: st.DrawFn) -> tuple[RangeLayout, list[np.ndarray]]:
    """A layout and a few keys of each stream: many of them on a boundary, or a band's width from one or from a key."""
    layout = draw(layouts())
    is_whole = layout.reach.is_whole
    near = [*layout.boundaries, 0] if is_whole else [*layout.boundaries, 0.0]
    steps = {end for band in layout.reach.bands for end in (band.lo, band.hi, -band.lo, -band.hi)} | {0}
    told = [key + step for key in near for step in (*steps, *((-1, 1) if is_whole else ()))]
    if not is_whole:  # a float beside the rounded sum can be near enough, by a difference that is rounded too
        told += [math.nextafter(key, end) for key in told for end in (-math.inf, math.inf)]
    told = [key for key in told if (INT64_MIN <= key <= INT64_MAX if is_whole else math.isfinite(key))]
    one = st.sampled_from(told) | (whole_keys if is_whole else float_keys | st.sampled_from(NOT_KEYS))
    keys = [draw(st.lists(one, min_size=1, max_size=5)) for _ in range(layout.reach.streams)]
    return layout, [np.array(values, dtype=np.int64 if is_whole else np.float64) for values in keys]


def is_result(reach: Reach, keys: tuple) -> bool:
    """Whether one key of each stream satisfies all bands, as the contract says it."""
    for band in reach.bands:
        left, right = keys[band.left], keys[band.right]
        if reach.is_whole:
            difference = int(left) - int(right)
        else:
            with np.errstate(all="ignore"):
                difference = float(np.float64(left) - np.float64(right))
            if band.lo == band.hi == 0 and left == right:  # the band may stand for an equality
                continue
        if not band.lo <= difference <= band.hi:
            return False
    return True


def cells_by_row(layout: RangeLayout, stream: int, keys: np.ndarray, seqs: np.ndarray) -> list[list[int]]:
    dealt = layout.deal(stream, keys, seqs)
    cells: list[list[int]] = [[] for _ in keys]
    for row, group in zip(dealt.rows, dealt.groups, strict=True):
        cells[row] += layout.cells_of(stream, int(group))
    return cells


@examples(400)
@given(cases(), st.integers(0, 1 << 40))
def test_each_result_meets_in_exactly_one_cell(case: tuple[RangeLayout, list[np.ndarray]], first_seq: int) -> None:
    layout, keys = case
    streams = range(layout.reach.streams)
    cells = [cells_by_row(layout, n, keys[n], first_seq + np.arange(len(keys[n]))) for n in streams]
    for rows in itertools.product(*(range(len(values)) for values in keys)):
        met = set.intersection(*(set(cells[stream][row]) for stream, row in enumerate(rows)))
        chosen = tuple(keys[stream][row] for stream, row in enumerate(rows))
        assert len(met) <= 1, "tuples of all streams that meet twice would be found twice"
        if is_result(layout.reach, chosen):
            assert len(met) == 1


@examples(200)
@given(cases())
def test_every_tuple_has_one_home_and_no_cell_twice(case: tuple[RangeLayout, list[np.ndarray]]) -> None:
    layout, keys = case
    for stream, values in enumerate(keys):
        dealt = layout.deal(stream, values, np.arange(len(values)))
        assert np.bincount(dealt.rows[dealt.is_home], minlength=len(values)).tolist() == [1] * len(values)
        assert (np.diff(dealt.rows) >= 0).all()
        assert dealt.groups.min() >= 0
        assert dealt.groups.max() < layout.groups(stream)
        for cells in cells_by_row(layout, stream, values, np.arange(len(values))):
            assert sorted(set(cells)) == cells
            assert 0 <= cells[0] <= cells[-1] < layout.cells


@examples(100)
@given(layouts())
def test_the_groups_of_a_stream_and_the_cells_of_a_range(layout: RangeLayout) -> None:
    for stream in range(layout.reach.streams):
        groups = layout.groups(stream)
        ranges = layout.range_of_group(stream)
        assert len(ranges) == groups
        within = [group for group in range(groups) if ranges[group] < len(layout.grids)]
        held = sorted(cell for group in within for cell in layout.cells_of(stream, group))
        assert held == list(range(sum(grid.cells for grid in layout.grids))), "each cell holds one group of each stream"
        alone = [layout.cells_of(stream, group) for group in range(groups) if group not in within]
        assert alone == [(cell,) for cell in range(layout.cells)]
        held_by: list[list[int]] = [[] for _ in range(layout.cells)]
        for group in range(groups):
            for cell in layout.cells_of(stream, group):
                held_by[cell].append(group)
        assert [list(layout.groups_in(cell)[stream]) for cell in range(layout.cells)] == held_by
        assert all(layout.home_cell(stream, group) == layout.cells_of(stream, group)[0] for group in range(groups))


@examples(50)
@given(cases())
def test_any_batching_deals_the_same(case: tuple[RangeLayout, list[np.ndarray]]) -> None:
    layout, keys = case
    for stream, values in enumerate(keys):
        whole = cells_by_row(layout, stream, values, np.arange(len(values)))
        single = [cells_by_row(layout, stream, values[n : n + 1], np.array([n]))[0] for n in range(len(values))]
        assert whole == single


def one_attribute(lo: float, hi: float, is_whole: bool = False) -> Reach:
    return Reach(2, (Difference(0, 1, lo, hi),), is_whole)


def test_a_tuple_is_copied_over_a_boundary_only_as_far_as_the_band_goes() -> None:
    ones = tuple([Layout((1, 1))] * 3)
    layout = RangeLayout(3, one_attribute(-2, 3, True), 0, (0, 10), ones)
    keys = np.arange(-6, 16)
    first, last = layout.ranges_of(0, keys)
    assert first.tolist() == last.tolist() == [0] * 6 + [1] * 10 + [2] * 6
    # -2 <= r - s <= 3: s meets r in [s - 2, s + 3]
    first, last = layout.ranges_of(1, keys)
    assert keys[(first == 0)].max() == 1
    assert keys[(first <= 1)].max() == 11
    assert keys[(last >= 1)].min() == -3
    assert keys[(last >= 2)].min() == 7


@examples(200)
@given(tenths, tenths.map(abs), st.integers(-3, 3), st.booleans(), st.booleans())
def test_rounding_separates_no_pair(boundary: float, end: float, steps: int, is_above: bool, is_flipped: bool) -> None:
    """5 - 0.1 is rounded; just below 0.1 there are floats whose rounded difference from 5 is 4.9 all the same."""
    partner = boundary - end if is_above else boundary + end
    for _ in range(abs(steps)):
        partner = math.nextafter(partner, math.copysign(math.inf, steps))
    own = boundary if is_above else math.nextafter(boundary, -math.inf)
    pair, anchor = ((partner, own), 1) if is_flipped else ((own, partner), 0)
    if abs(pair[0] - pair[1]) > end:
        return
    layout = RangeLayout(2, one_attribute(-end, end), anchor, (boundary,), tuple([Layout((1, 1))] * 2))
    cells = [cells_by_row(layout, stream, np.array([pair[stream]]), np.array([0]))[0] for stream in (0, 1)]
    assert cells[anchor] == [1 if is_above else 0]
    assert set(cells[anchor]) <= set(cells[1 - anchor])


def test_an_equality_copies_nothing_and_a_hot_value_has_a_grid_of_its_own() -> None:
    layout = RangeLayout(8, one_attribute(0, 0, True), 0, (7, 8), (Layout((1, 1)), Layout((2, 3)), Layout((1, 1))))
    seqs = np.arange(6_000)
    for stream, count in ((0, 2), (1, 3)):
        dealt = layout.deal(stream, np.full(6_000, 7), seqs)
        assert dealt.rows.tolist() == seqs.tolist()
        shares = np.bincount(dealt.groups, minlength=5)[1 : 1 + count] / 6_000
        assert shares == pytest.approx([1 / count] * count, rel=0.01)
    assert str(layout) == "3 ranges, 1 of them grids, the largest 2x3"


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6, 10, 16, 1000, 4096])
def test_sensors_that_take_turns_fill_all_groups_of_a_range(step: int) -> None:
    layout = RangeLayout(16, one_attribute(0, 0, True), 0, (), (Layout((4, 4)),))
    dealt = layout.deal(0, np.zeros(40_000, dtype=np.int64), 17 + step * np.arange(40_000))
    assert np.bincount(dealt.groups) / 10_000 == pytest.approx([1] * 4, rel=0.1)


def test_tuples_without_a_key_are_dealt_to_all_cells() -> None:
    layout = RangeLayout(4, one_attribute(-1.0, 1.0), 0, (0.0,), (Layout((1, 1)), Layout((1, 2))))
    for keys, has_key in (
        (np.full(4_000, math.nan), None),
        (np.full(4_000, math.inf), None),
        (np.zeros(4_000), np.zeros(4_000, dtype=np.bool_)),
    ):
        dealt = layout.deal(1, keys, np.arange(4_000), has_key)
        cells = [layout.cells_of(1, int(group)) for group in dealt.groups]
        assert {len(copies) for copies in cells} == {1}
        assert np.bincount([cell for (cell,) in cells]) / 1_000 == pytest.approx([1] * 4, rel=0.1)


def test_a_layout_without_boundaries_is_a_grid() -> None:
    grid = Layout((2, 3))
    layout = RangeLayout(6, one_attribute(-1.0, 1.0), 1, (), (grid,))
    for stream in (0, 1):
        assert [layout.cells_of(stream, group) for group in range(grid.counts[stream])] == [
            grid.cells_of(stream, group) for group in range(grid.counts[stream])
        ]
    assert str(layout) == "2x3"


@pytest.mark.parametrize(
    ("boundaries", "grids", "cells"),
    [
        ((1.0, 1.0), 3, 3),
        ((2.0, 1.0), 3, 3),
        ((math.nan,), 2, 2),
        ((math.inf,), 2, 2),
        ((1,), 2, 2),
        ((1.0,), 1, 2),
        ((1.0,), 2, 1),
        ((), 1, 4097),
    ],
)
def test_a_layout_is_checked(boundaries: tuple, grids: int, cells: int) -> None:
    with pytest.raises(LayoutError) as caught:
        RangeLayout(cells, one_attribute(-1.0, 1.0), 0, boundaries, tuple([Layout((1, 1))] * grids))
    assert caught.value.name == "layout"


def test_whole_numbers_have_whole_boundaries() -> None:
    for boundary in (1.0, 1 << 63, -(1 << 63) - 1):
        with pytest.raises(LayoutError):
            RangeLayout(2, one_attribute(0, 0, True), 0, (boundary,), tuple([Layout((1, 1))] * 2))


def test_the_reach_of_streams_tied_through_others() -> None:
    reach = Reach(3, (Difference(0, 1, -2, 3), Difference(1, 2, -5, 7)), True)
    assert reach.most == ((0, 3, 10), (2, 0, 7), (7, 5, 0))
    near = Reach(3, (*reach.bands, Difference(0, 2, -1, 1)), True)
    assert near.most[0][2] == 1
    assert near.most[1][2] == 3, "through the first stream it is nearer than directly"
    with pytest.raises(LayoutError):
        Reach(3, (Difference(0, 1, 0, 0),), True)


def attributes_of(on: str, *kinds: str) -> list[tuple[tuple[int, ...], Reach]]:
    schema = {"ts": "timestamp[us]", "x": "double", "y": "double", "n": "int64", "name": "string"}
    join = StreamJoin([Stream(name, schema=schema) for name in kinds], on=on, window="10s")
    bound = bind(join, {stream.name: stream.schema for stream in join.streams})
    found = band_attributes(bound)
    assert all(keys[0] > 0 for keys, _ in found)
    return [(tuple(bound.keys[n][key].column for n, key in enumerate(keys)), reach) for keys, reach in found]


def test_the_attributes_of_a_join() -> None:
    (both,) = attributes_of("abs(r.x - s.x) <= 1", "r", "s")
    keys = (Key("x", "float"), Key("x", "float"))
    assert both == (("x", "x"), Reach(2, (Difference(0, 1, -1.0, 1.0),), False, keys))
    told = attributes_of("abs(r.x - s.x) <= 1 AND abs(r.y - s.y) <= 2 AND r.name = s.name", "r", "s")
    assert sorted((columns, reach.is_whole) for columns, reach in told) == [
        (("x", "x"), False),
        (("y", "y"), False),
    ]
    (chain,) = attributes_of("abs(r.n - s.n) <= 1 AND s.n - t.n BETWEEN 0 AND 4", "r", "s", "t")
    assert chain[0] == ("n", "n", "n")
    assert chain[1].most == ((0, 1, 5), (1, 0, 4), (1, 0, 0))


@pytest.mark.parametrize(
    ("on", "streams"),
    [
        ("r.x < s.x", "rs"),  # no band: it has one end only
        ("abs(r.x - s.x) <= 1 AND abs(s.y - t.y) <= 1", "rst"),  # s is near to both, by different columns
        ("r.name = s.name", "rs"),  # strings are compared by their hashes, which are the engine's
        ("abs(r.ts - s.ts) <= INTERVAL 1 SECOND", "rs"),  # all new tuples would go to one range
    ],
)
def test_joins_that_only_a_grid_can_do(on: str, streams: str) -> None:
    assert attributes_of(on, *streams) == []
