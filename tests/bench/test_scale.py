"""The simulator of scale: its counts against every row and pair, its bound against any layout, and the command."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import CellWork, Difference, Layout, RangeLayout, Reach
from tests.bench.__main__ import command
from tests.bench.suites.scale.bound import LowerBound, tiles_of
from tests.bench.suites.scale.case import KEYS, ScaleCase
from tests.bench.suites.scale.moving import measure_drift, measure_rates
from tests.bench.suites.scale.schemes import SCHEMES, planned, sampled
from tests.bench.suites.scale.simulation import as_ranges, pairs_within, simulated
from tests.bench.suites.scale.suite import fixed_cases, measure_case, measure_scale
from tests.support.examples import examples

WORK = CellWork()

keys = st.lists(st.integers(0, 12), min_size=1, max_size=40).map(lambda values: np.array(values, dtype=np.int64))
bands = st.lists(st.integers(-3, 3), min_size=2, max_size=2).map(lambda ends: Difference(0, 1, *sorted(ends)))


@st.composite
def layouts(draw: st.DrawFn, band: Difference) -> RangeLayout:
    boundaries = tuple(sorted(draw(st.sets(st.integers(0, 12), max_size=4))))
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 3))
    grids = tuple(Layout(draw(shapes)) for _ in range(len(boundaries) + 1))
    cells = sum(grid.cells for grid in grids)
    return RangeLayout(cells, Reach(2, (band,), True), draw(st.integers(0, 1)), boundaries, grids)


def matching(band: Difference, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    differences = left[:, None] - right[None, :]
    return (band.lo <= differences) & (differences <= band.hi)


@examples(100)
@given(st.data(), keys, keys, bands)
def test_cells_have_the_rows_that_are_dealt_to_them_and_all_pairs_once(
    data: st.DataObject, left: np.ndarray, right: np.ndarray, band: Difference
) -> None:
    layout = data.draw(layouts(band))
    window = [left, right]
    counts = simulated(layout, window, [np.sort(values) for values in window])
    rows = np.zeros(layout.cells)
    for stream, values in enumerate(window):
        for dealt in layout.deal(stream, values, np.arange(len(values))).groups:
            rows[list(layout.cells_of(stream, int(dealt)))] += 1
    assert counts.rows.tolist() == rows.tolist()
    pairs = int(matching(band, left, right).sum())
    assert pairs_within(band, np.sort(left), np.sort(right)) == pairs
    # A grid all of whose groups have rows shares its pairs out; one with an empty group does not find those it lacks.
    assert counts.pairs.sum() <= pairs + 1e-9
    if all(grid.cells == 1 for grid in layout.grids):
        assert counts.pairs.sum() == pytest.approx(pairs)
    assert (counts.scanned >= counts.pairs - 1e-9).all()


@examples(200)
@given(st.data(), keys, keys, bands, st.sampled_from([WORK, CellWork(1, 50), CellWork(1, 0)]))
def test_no_layout_is_better_than_the_bound(
    data: st.DataObject, left: np.ndarray, right: np.ndarray, band: Difference, work: CellWork
) -> None:
    layout = data.draw(layouts(band))
    ordered = [np.sort(left), np.sort(right)]
    counts = simulated(layout, [left, right], ordered)
    pairs = pairs_within(band, *ordered)
    bound = LowerBound(len(left) + len(right), pairs, [tiles_of(band, *ordered)], layout.cells, work)
    fullest = float(counts.loads(work).max())
    assert bound.mean_load <= bound.least_load() * (1 + 1e-9)
    assert fullest >= bound.least_load() * (1 - 1e-9)
    assert counts.copies >= bound.copies_at(fullest) * (1 - 1e-9)


@examples(100)
@given(keys, keys, bands)
def test_in_a_tile_everything_matches(left: np.ndarray, right: np.ndarray, band: Difference) -> None:
    tiles = tiles_of(band, np.sort(left), np.sort(right))
    assert int((tiles.left * tiles.right).sum()) <= int(matching(band, left, right).sum())
    assert tiles.left.sum() <= len(left)


def test_a_hot_value_moves_the_bound() -> None:
    hot = np.zeros(1_000)
    bound = LowerBound(2_000, 1e6, [tiles_of(Difference(0, 1, 0, 0), hot, hot)], 100, WORK)
    # Of the best grid, 10x10, each cell has 100 + 100 rows and 10 000 pairs, and each row is there ten times.
    assert bound.least_load() == pytest.approx(4 * 200 + 10_000)
    assert bound.copies_at(10_800) == pytest.approx(10)
    assert bound.mean_load == 80 + 10_000


@pytest.mark.parametrize("name", list(KEYS))
def test_keys_are_distributed_as_named(name: str) -> None:
    case = ScaleCase(10, keys=name, rows_per_cell=10_000)
    assert case.rows == (50_000, 50_000)
    window, again, other = case.window(3), case.window(3), case.window(4)
    assert all((one == two).all() for one, two in zip(window, again, strict=True))
    assert not (window[0] == other[0]).all()
    assert not (window[0] == window[1]).all()
    (band,) = case.reach.bands
    pairs = pairs_within(band, np.sort(window[0]), np.sort(window[1]))
    if name.startswith("zipf"):  # a tenth of all values' logarithm has a tenth of the rows
        share = float((window[0] < 10).mean())
        assert share == pytest.approx({"zipf": 1 / 6, "zipf-values": 2.829 / 14.39}[name], rel=0.05)
    if name in ("uniform", "zipf"):
        assert pairs == pytest.approx(2 * sum(case.rows), rel=0.05)
    if name == "wide":
        assert pairs == pytest.approx(0.002 * math.prod(case.rows), rel=0.05)


def test_rates_and_streams_of_a_case() -> None:
    case = ScaleCase(10, 3, 8, rows_per_cell=1_000)
    assert case.rows == (1_000, 1_000, 8_000)
    assert [band.right for band in case.reach.bands] == [1, 2]
    window = case.window(1)
    pairs = sum(pairs_within(band, np.sort(window[0]), np.sort(window[band.right])) for band in case.reach.bands)
    assert pairs == pytest.approx(2 * 10_000, rel=0.1)


def test_ranges_copy_hardly_and_grids_by_the_root_of_the_cells() -> None:
    outcomes = {outcome.scheme: outcome for outcome in measure_case(ScaleCase(64, rows_per_cell=2_000))}
    assert list(outcomes) == list(SCHEMES)
    assert outcomes["grid"].copies == pytest.approx(8)
    assert outcomes["hybrid"].copies < 1.01
    assert outcomes["hybrid"].load < 1.2
    assert outcomes["hybrid"].held_rows < outcomes["grid"].held_rows / 6
    assert outcomes["chosen"].layout == outcomes["hybrid"].layout
    assert all(outcome.load >= outcome.least_load >= 1 for outcome in outcomes.values())
    assert all(outcome.copies >= outcome.least_copies >= 1 - 1e-9 for outcome in outcomes.values())


def test_hot_values_overload_ranges_and_not_the_hybrid() -> None:
    outcomes = {o.scheme: o for o in measure_case(ScaleCase(64, keys="zipf-values", rows_per_cell=2_000))}
    assert outcomes["ranges"].load > 10
    assert outcomes["hybrid"].load < 1.5
    assert outcomes["hybrid"].copies < 1.1 * outcomes["hybrid"].least_copies
    assert outcomes["grid"].copies > 5 * outcomes["hybrid"].copies


def test_rates_move_the_grid_that_goes_by_them() -> None:
    outcomes = {o.scheme: o for o in measure_case(ScaleCase(16, ratio=20, rows_per_cell=1_000))}
    assert outcomes["grid"].layout == "4x4"
    assert outcomes["dab grid"].layout == "1x16"
    assert outcomes["dab grid"].copies == pytest.approx(36 / 21, rel=0.01)
    assert outcomes["hybrid"].copies < 1.1


def test_a_grid_is_one_range() -> None:
    case = ScaleCase(6)
    layout = as_ranges(Layout((2, 3)), case.reach)
    assert as_ranges(layout, case.reach) is layout
    assert (layout.cells, layout.boundaries) == (6, ())


def test_the_sample_is_of_the_window_and_the_plan_of_the_sample() -> None:
    case = ScaleCase(4, rows_per_cell=1_000)
    samples = sampled(case, case.window(0))
    assert [sample.total for sample in samples] == list(case.rows)
    assert planned("hybrid", case, samples)[0] == planned("hybrid", case, samples)[0]


def test_ranges_that_are_chosen_again_follow_keys_that_drift() -> None:
    case = ScaleCase(8, rows_per_cell=2_000, drift=0.02)
    outcomes = {(o.scheme, o.policy): o for o in measure_drift(case, 6, lambda line: None)}
    assert outcomes["grid", "never"].copies == pytest.approx(3, rel=0.01)
    assert outcomes["hybrid", "never"].last_load > 1.5
    assert outcomes["hybrid", "every 4 windows"].last_load < outcomes["hybrid", "never"].last_load
    # Every window but the first has the guests of the one before.
    assert outcomes["hybrid", "every window"].copies == pytest.approx(2 - 1 / 6, rel=0.02)
    assert outcomes["hybrid", "every 4 windows"].copies == pytest.approx(1 + 1 / 6, rel=0.02)


def test_the_sources_rule_ships_less_than_a_square_and_more_than_a_change_that_is_free() -> None:
    square, rule, free = measure_rates(16, 20)
    assert square.copies == pytest.approx(4)
    assert free.copies < rule.copies < 0.75 * square.copies
    assert rule.layouts[0] == "4x4"
    assert rule.layouts[-1] == "1x16"


@pytest.mark.parametrize("case", [ScaleCase(4, keys="none"), ScaleCase(4, 9), ScaleCase(4, ratio=0)])
def test_a_case_out_of_range_is_refused(case: ScaleCase) -> None:
    with pytest.raises(ArgumentError):
        measure_scale([case], lambda line: None)


def test_the_fixed_cases_are_those_that_are_named() -> None:
    cases = fixed_cases(100, 1)
    assert len(set(cases)) == len(cases)
    assert {case.cells for case in cases} == {4, 16, 64, 256, 1000}
    assert {case.streams for case in cases} == {2, 3, 4, 5}
    assert {case.ratio for case in cases} == {1, 20, 1000}
    assert {case.keys for case in cases} == set(KEYS)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(command, ("scale", *arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_gives_json_and_a_table() -> None:
    asked = ("--cells", "4", "--streams", "3", "--ratio", "5", "--keys", "uniform", "--rows-per-cell", "200")
    told = json.loads(run(*asked, "--json"))
    assert [row["scheme"] for row in told["schemes"]] == list(SCHEMES)
    assert {(row["cells"], row["streams"], row["ratio"]) for row in told["schemes"]} == {(4, 3, 5)}
    assert told["drift"] == told["rates"] == []
    text = run(*asked)
    assert all(scheme in text for scheme in SCHEMES)
    again = json.loads(run(*asked, "--json"))
    for row in (*told["schemes"], *again["schemes"]):
        del row["plan_ms"]
    assert again == told


def test_a_quick_look_has_all_parts() -> None:
    told = json.loads(run("--quick", "--json", "--rows-per-cell", "100"))
    assert {row["keys"] for row in told["schemes"]} == set(KEYS)
    assert {row["policy"] for row in told["drift"]} == {"never", "every 4 windows", "every window"}
    assert {row["cells"] for row in told["rates"]} == {16, 64, 1000}
