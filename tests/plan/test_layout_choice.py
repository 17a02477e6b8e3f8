"""The chosen layout is the best of all there are, by costs that are counted anew here."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import Layout, Load, best_layouts, choose_layout, layout_cost
from streamjoin_ds.plan.layout import MAX_CELLS
from streamjoin_ds.plan.layout_choice import SHIPPING_SLACK
from streamjoin_ds.spec import bind
from tests.support.examples import examples


def factorisations(product: int, factors: int) -> Iterator[tuple[int, ...]]:
    for counts in itertools.product([d for d in range(1, product + 1) if product % d == 0], repeat=factors):
        if math.prod(counts) == product:
            yield counts


def exact_cost(counts: tuple[int, ...], rates: list[float], held: list[float]) -> tuple[Fraction, Fraction]:
    """What is shipped, and what a tuple meets in its cell before its partner, on average."""
    cells, total = math.prod(counts), sum(map(Fraction, rates))
    shipped = sum((Fraction(rate) * (cells // count) for rate, count in zip(rates, counts, strict=True)), Fraction(0))
    probed = Fraction(0)
    for stream, rate in enumerate(rates):
        for other, rows in enumerate(held):
            if other != stream and total:
                probed += Fraction(rate) / total * Fraction(rows) / counts[other] / 2
    return shipped, probed


rates = st.integers(0, 5).map(float) | st.floats(1e-3, 1e6) | st.sampled_from([0.1, 0.2, 0.3, 1.0, 1.0])
loads = st.lists(st.tuples(rates, rates), min_size=2, max_size=4)


@examples(150)
@given(st.integers(1, 24), loads)
def test_the_best_layout_is_that_of_all_layouts_looked_at_one_by_one(
    cells: int, streams: list[tuple[float, float]]
) -> None:
    rate, held = ([float(side) for side in sides] for sides in zip(*streams, strict=True))
    costs = {counts: exact_cost(counts, rate, held) for counts in factorisations(cells, len(rate))}
    fewest = min(shipped for shipped, _ in costs.values())
    least = Fraction(1, 10**8)  # of a cost: what rounding may hide
    found = best_layouts(cells, Load(tuple(rate), tuple(held)), len(costs))
    assert {cost.layout.counts for cost in found} == set(costs)
    first = costs[found[0].layout.counts]
    assert first[0] <= fewest * (1 + Fraction(SHIPPING_SLACK)) * (1 + least)
    for shipped, probed in costs.values():
        if shipped <= fewest * (1 + Fraction(SHIPPING_SLACK)) * (1 - least):
            assert first[1] <= probed * (1 + least)
    for cost in found:
        shipped, probed = costs[cost.layout.counts]
        assert cost.shipped_rows_per_s == pytest.approx(float(shipped))
        assert cost.probed_rows == pytest.approx(float(probed))
        assert cost.cell_rows == pytest.approx(sum(r / n for r, n in zip(held, cost.layout.counts, strict=True)))
        assert cost == layout_cost(cost.layout, Load(tuple(rate), tuple(held)))


@pytest.mark.parametrize("cells", [1, 6, 8, 16, 60])
def test_with_equal_rates_and_windows_the_fewest_rows_are_shipped(cells: int) -> None:
    """What checkpoints of dataframe() were laid out by before there were rates, which they find again."""
    for streams in (2, 3, 4):
        load = Load.of_windows([1.0] * streams)
        wanted = min(
            factorisations(cells, streams), key=lambda counts: (sum(Fraction(cells, n) for n in counts), counts)
        )
        assert choose_layout(cells, load).counts == wanted


def test_the_busier_stream_is_copied_less() -> None:
    assert choose_layout(4, Load.of_windows([1, 1])).counts == (2, 2)
    assert choose_layout(2, Load.of_windows([1, 1])).counts == (1, 2)
    for rate, counts in (([1, 16], (2, 8)), ([20, 1], (16, 1)), ([1, 20], (1, 16))):
        assert choose_layout(16, Load.of_windows(rate)).counts == counts


def test_rates_of_1_to_20_on_16_cells_ship_36_copies_where_a_square_ships_84() -> None:
    load = Load.of_windows([1, 20])
    assert best_layouts(16, load)[0].shipped_rows_per_s == 36
    assert layout_cost(Layout((4, 4)), load).shipped_rows_per_s == 84


def test_a_longer_window_is_in_more_groups() -> None:
    # DP-Join, equation 5: what a probe meets is the other stream's window, divided by its groups.
    assert choose_layout(2, Load.of_windows([1, 1], [300, 150])).counts == (2, 1)
    assert choose_layout(2, Load.of_windows([1, 1], [150, 300])).counts == (1, 2)
    first, square, _ = best_layouts(16, Load.of_windows([1, 1], [1, 10]))
    assert (first.layout.counts, square.layout.counts) == ((2, 8), (4, 4))
    assert first.shipped_rows_per_s == square.shipped_rows_per_s * (1 + SHIPPING_SLACK)
    assert first.probed_rows == pytest.approx((1 / 2 + 10 / 8) / 4)
    assert square.probed_rows == pytest.approx((1 / 4 + 10 / 4) / 4)


def test_the_three_best_come_in_order() -> None:
    found = best_layouts(12, Load.of_windows([3, 1]))
    assert [cost.layout.counts for cost in found] == [(4, 3), (3, 4), (6, 2)]
    assert [cost.shipped_rows_per_s for cost in found] == [13, 15, 12]
    assert [cost.probed_rows for cost in found] == [0.21875, 0.21875, 0.25]


@pytest.mark.parametrize("cells", [0, MAX_CELLS + 1])
def test_the_number_of_cells_is_checked(cells: int) -> None:
    with pytest.raises(LayoutError) as caught:
        choose_layout(cells, Load.of_windows([1, 1]))
    assert caught.value.name == "cells"


def test_a_layout_for_another_number_of_streams_has_no_cost() -> None:
    with pytest.raises(LayoutError):
        layout_cost(Layout((1, 2, 3)), Load.of_windows([1, 1]))


def test_silent_streams() -> None:
    assert choose_layout(6, Load.of_windows([0, 0])).cells == 6


@pytest.mark.parametrize(
    ("rate", "window"),
    [
        ([-1], None),
        ([], None),
        ([1, -1], None),
        ([1, math.nan], None),
        ([1, math.inf], None),
        ([1, 1], [1]),
        ([1, 1], [1, -1]),
    ],
)
def test_a_load_is_checked(rate: list[float], window: list[float] | None) -> None:
    with pytest.raises(LayoutError) as caught:
        Load.of_windows(rate, window)
    assert caught.value.name == "rates"


def a_join(window: object) -> StreamJoin:
    schema = {"ts": "timestamp[us]", "x": "double"}
    return StreamJoin([Stream("r", schema=schema), Stream("s", schema=schema)], on=band("r.x", "s.x", 1), window=window)


def test_the_load_of_a_join() -> None:
    def load(window: object) -> Load:
        join = a_join(window)
        return Load.of_join(bind(join, {stream.name: stream.schema for stream in join.streams}), [100, 10])

    assert load({"r": "2m", "s": "10s"}).held_rows == (12_000, 100)
    assert load({"r": "last 500", "s": "last 30"}).held_rows == (500, 30)
    # DP-Join, equation 3, without the share that matches: 2 * rate * rate * window where both windows are one
    assert load("10s").pairs_per_s == 2 * 100 * 10 * 10
    assert Load((2, 3, 5), (20, 30, 50)).pairs_per_s == 2 * 30 * 50 + 3 * 20 * 50 + 5 * 20 * 30


@pytest.mark.parametrize("cells", [4096, 3600, 2520, 3360, 4093])
def test_many_cells_and_streams_are_decided_at_once(cells: int) -> None:
    # 3600 cells and 8 streams have 427 680 layouts.
    start = time.process_time()
    layout = choose_layout(cells, Load.of_windows([1, 2, 3, 4, 5, 6, 7, 8]))
    assert layout.cells == cells
    assert layout.counts == tuple(sorted(layout.counts))
    assert time.process_time() - start < 3


def test_1000_cells_and_5_streams_are_decided_in_50_ms() -> None:
    choose_layout(999, Load.of_windows([1] * 5))
    start = time.process_time()
    assert choose_layout(1000, Load.of_windows([1, 2, 3, 4, 5])).cells == 1000
    assert time.process_time() - start < 0.05
