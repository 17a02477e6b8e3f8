"""Layouts: every combination meets once, every row has one home, and the chosen layout is the cheapest."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import Layout, choose_layout
from streamjoin_ds.plan.layout import MAX_CELLS
from tests.support.examples import examples

layouts = st.integers(2, 4).flatmap(lambda n: st.tuples(*[st.integers(1, 5)] * n)).map(Layout)


@given(layouts)
def test_every_combination_of_groups_meets_in_exactly_one_cell(layout: Layout) -> None:
    for groups in itertools.product(*map(range, layout.counts)):
        met = set.intersection(*(set(layout.cells_of(stream, group)) for stream, group in enumerate(groups)))
        assert len(met) == 1
        (cell,) = met
        assert tuple(layout.group_in_cell(cell, stream) for stream in range(len(groups))) == groups


@given(layouts)
def test_a_group_is_copied_to_as_many_cells_as_the_layout_says(layout: Layout) -> None:
    for stream, count in enumerate(layout.counts):
        cells = [layout.cells_of(stream, group) for group in range(count)]
        assert all(list(part) == sorted(part) and len(part) == layout.copies(stream) for part in cells)
        assert sorted(itertools.chain(*cells)) == list(range(layout.cells))


@given(layouts)
def test_each_group_has_one_home_among_its_cells(layout: Layout) -> None:
    for stream, count in enumerate(layout.counts):
        homes = [layout.home_cell(stream, group) for group in range(count)]
        for group, home in enumerate(homes):
            assert home in layout.cells_of(stream, group)
        assert [cell for cell in range(layout.cells) if layout.is_home(cell, stream)] == sorted(set(homes))
        assert len(set(homes)) == count


@given(layouts, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_home_cells_count_every_row_once(layout: Layout, numbers: list[int]) -> None:
    seq = np.array(numbers, dtype=np.int64)
    for stream, count in enumerate(layout.counts):
        groups = layout.group_of(stream, seq)
        assert groups.dtype == np.int32
        assert groups.tolist() == [number % count for number in numbers]
        counted = [0] * len(numbers)
        for cell in range(layout.cells):
            if layout.is_home(cell, stream):
                for row in np.flatnonzero(groups == layout.group_in_cell(cell, stream)):
                    counted[row] += 1
        assert counted == [1] * len(numbers)


def test_tuples_are_dealt_in_turn() -> None:
    groups = Layout((3, 2)).group_of(0, np.arange(-4, 8))
    assert groups.tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(("text", "counts"), [("1x2", (1, 2)), (" 3x1x4 ", (3, 1, 4)), ("4096x1", (4096, 1))])
def test_parse(text: str, counts: tuple[int, ...]) -> None:
    layout = Layout.parse(text, len(counts))
    assert layout.counts == counts
    assert Layout.parse(str(layout), len(counts)) == layout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "2x",
        "x2",
        "2X2",
        "2x2x2",
        "0x1",
        "-1x2",
        "1.5x2",
        "65x64",
        "99999x1",
        "2 x 2",
        "2x2\n2",
        "1e1x1",
        "2x" * 50 + "2",
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Layout.parse(text, 2)
    assert caught.value.name == "layout"
    assert "1x2" in caught.value.hint or "2x2" in caught.value.hint


@pytest.mark.parametrize("counts", [(), (1,), (0, 1), (1, -1), (64, 65)])
def test_counts_are_checked(counts: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError):
        Layout(counts)


def factorisations(product: int, factors: int) -> Iterator[tuple[int, ...]]:
    for counts in itertools.product([d for d in range(1, product + 1) if product % d == 0], repeat=factors):
        if math.prod(counts) == product:
            yield counts


rates = st.integers(0, 5).map(float) | st.floats(0, 1e6) | st.sampled_from([0.1, 0.2, 0.3, 1.0, 1.0])


@examples(150)
@given(st.integers(1, 24), st.lists(st.tuples(rates, rates), min_size=2, max_size=4))
def test_the_cheapest_layout(cells: int, streams: list[tuple[float, float]]) -> None:
    rate, window = ([float(side) for side in sides] for sides in zip(*streams, strict=True))

    def cost(counts: tuple[int, ...]) -> tuple[Fraction, Fraction, tuple[int, ...]]:
        stored = sum((Fraction(r) * (cells // count) for r, count in zip(rate, counts, strict=True)), Fraction(0))
        shares = zip(rate, window, counts, strict=True)
        scanned = sum((Fraction(r) * Fraction(w) / count for r, w, count in shares), Fraction(0))
        return stored, scanned, counts

    expected = min(factorisations(cells, len(streams)), key=cost)
    assert choose_layout(cells, rate, window).counts == expected


def test_the_busier_stream_is_copied_less() -> None:
    assert choose_layout(4, [1, 1]).counts == (2, 2)
    assert choose_layout(2, [1, 1]).counts == (1, 2)
    assert choose_layout(16, [1, 16]).counts == (1, 16)
    assert choose_layout(16, [16, 1]).counts == (16, 1)


def test_a_longer_window_breaks_a_tie() -> None:
    # A probe scans the other stream's window, divided by that stream's groups (DP-Join).
    assert choose_layout(2, [1, 1], [300, 150]).counts == (2, 1)
    assert choose_layout(2, [1, 1], [150, 300]).counts == (1, 2)


@pytest.mark.parametrize(
    ("cells", "rate", "window"),
    [
        (0, [1, 1], None),
        (MAX_CELLS + 1, [1, 1], None),
        (4, [1], None),
        (4, [], None),
        (4, [1, -1], None),
        (4, [1, math.nan], None),
        (4, [1, math.inf], None),
        (4, [1, 1], [1]),
        (4, [1, 1], [1, -1]),
    ],
)
def test_arguments_are_checked(cells: int, rate: list[float], window: list[float] | None) -> None:
    with pytest.raises(LayoutError):
        choose_layout(cells, rate, window)


def test_silent_streams() -> None:
    assert choose_layout(6, [0, 0]).cells == 6


@pytest.mark.parametrize("cells", [4096, 3600, 2520, 3360, 4093])
def test_many_cells_and_streams_are_decided_at_once(cells: int) -> None:
    # 3600 cells and 8 streams have 427 680 layouts; looked at one by one they take seconds.
    start = time.process_time()
    layout = choose_layout(cells, [1, 2, 3, 4, 5, 6, 7, 8])
    assert layout.cells == cells
    assert layout.counts == tuple(sorted(layout.counts))
    assert time.process_time() - start < 1
