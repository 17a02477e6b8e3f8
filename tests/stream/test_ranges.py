"""Layouts of ranges, alone and in turn with grids: every row is the contract's, whatever the keys and the boundaries.

Each run goes through the real source, cells and commit. Results, late tuples and ledger are compared with the contract
in plain Python, as `test_invariance` does for grids.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.plan import EXCHANGES, CellLayout, Layout, RangeLayout, Reach, band_attributes
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Band, BoundJoin, Column, Join, Stream, bind, not_equal
from streamjoin_ds.spec.key_values import nullable_key_values
from tests.engine.scenarios import INT64_MAX, INT64_MIN, Scenario, window_of
from tests.stream.test_invariance import assert_contract, assert_punctuations, few, ledger_sums, values_of
from tests.support.microbatch import MicroBatches

KINDS = ("time", "count", "periodic")
FLOATS = [n / 10 for n in range(-8, 9)] + [-0.0, math.inf, -math.inf, math.nan, 1e300, -1.7e308, 5e-324, None, None]
WHOLE = [*range(-4, 5), *range(-4, 5), INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, None]
KEYS: dict[str, tuple[list[Any], tuple[pa.DataType, ...], tuple[tuple[Any, Any], ...]]] = {
    "float": (FLOATS, (pa.float64(), pa.float64(), pa.float32()), ((0, 0), (-0.1, 0.1), (-0.5, 2), (-0.0, 1e300))),
    "int": (WHOLE, (pa.int64(),), ((0, 0), (-1, 1), (1, 2), (-INT64_MAX, INT64_MAX))),
}


@st.composite
def banded(draw: st.DrawFn, streams: tuple[int, int], rows: int, kinds: Sequence[str] = KINDS) -> Scenario:
    """Draw a join whose streams are all tied by bands on x; some have other conditions, nulls and constant keys."""
    chooser = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.integers(*streams))
    values, types, bounds = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    names = [f"s{n}" for n in range(count)]
    on: list[Any] = []
    for right in range(1, count):
        pair = [Column(names[end], "x") for end in (chooser.randrange(right), right)]
        lo, hi = chooser.choice(bounds)
        on.append(Band(*chooser.sample(pair, 2), lo, hi, is_equality=not lo and not hi and chooser.random() < 0.7))
    both = [Column(name, "y") for name in chooser.sample(names, 2)]
    on += chooser.choice(([], [], [Band(*both, -1, 1)], [not_equal(*both)]))
    is_self = draw(st.integers(0, 3)) == 0
    tables, listed = {}, []
    kind = chooser.choice(types)
    some = chooser.choice((values, values, chooser.choices(values, k=2), [next(v for v in values if v is not None)]))
    for name in names:
        if is_self and listed:
            tables[name], listed = tables[names[0]], [*listed, replace(listed[0], name=name)]
            continue
        size = chooser.choice((rows // 4, rows, rows))
        times = chooser.choices(range(41), k=size)
        times = sorted(times) if chooser.random() < 0.5 else times
        schema = pa.schema([("t", pa.int64()), ("x", kind), ("y", pa.int64())])
        columns = [times, chooser.choices(some, k=size), chooser.choices([0, 1, 2, 3, None], k=size)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        tables[name] = pa.Table.from_arrays(arrays, schema=schema)
        delay = f"{chooser.choice((0, 10, 40))}us"
        listed.append(Stream(name, "s0.parquet" if is_self else None, time="t", delay=delay, schema=schema))
    return Scenario(Join(listed, on, window_of(chooser, chooser.choice(kinds), count)), tables)


@st.composite
def layouts(draw: st.DrawFn, bound: BoundJoin, tables: dict[str, pa.Table], most: int = 10) -> CellLayout:
    """Draw a grid, or ranges whose boundaries are keys or a band's end from one."""
    streams = len(bound.names)
    counts = st.lists(st.integers(1, 3), min_size=streams, max_size=streams).map(tuple)
    counts = counts.filter(lambda drawn: math.prod(drawn) <= 4)
    if draw(st.integers(0, 3)) == 0:
        return Layout(draw(counts))
    _, reach = draw(st.sampled_from(band_attributes(bound)))
    boundaries = sorted(draw(st.sets(st.sampled_from(places(bound, tables, reach)), max_size=4)))
    grids = [Layout(draw(counts) if draw(st.booleans()) else (1,) * streams) for _ in range(len(boundaries) + 1)]
    cells = sum(grid.cells for grid in grids)
    if cells > most:
        grids, cells = [Layout((1,) * streams)] * len(grids), len(grids)
    return RangeLayout(
        cells + draw(st.integers(0, 1)), reach, draw(st.integers(0, streams - 1)), tuple(boundaries), tuple(grids)
    )


def places(bound: BoundJoin, tables: dict[str, pa.Table], reach: Reach) -> list[Any]:
    """Return keys of the streams, and what lies a band's end from one."""
    found = {0 if reach.is_whole else 0.0}
    for name, key in zip(bound.names, reach.keys, strict=True):
        values, has_key = nullable_key_values(tables[name][key.column].combine_chunks(), key.kind)
        keys = values if has_key is None else values[has_key]
        ends = {end for band in reach.bands for end in (0, band.lo, -band.hi)}
        found |= {key + end for key in keys.tolist() for end in ends}
    if reach.is_whole:
        return sorted(key for key in found if INT64_MIN <= key <= INT64_MAX)
    return sorted(key + 0.0 for key in found if math.isfinite(key))


def bound_of(scenario: Scenario, folder: Path) -> BoundJoin:
    """Write the streams as Parquet files, and return the join over them."""
    streams = []
    for stream in scenario.join.streams:
        path = folder / (stream.source or f"{stream.name}.parquet")
        pq.write_table(scenario.tables[stream.name], path, row_group_size=5)
        streams.append(replace(stream, source=path))
    join = Join(streams, scenario.join.predicates, scenario.join.window)
    return bind(join, {stream.name: stream.schema for stream in streams})


def check(data: st.DataObject, scenario: Scenario) -> None:
    """Run a scenario under drawn layouts, one after the other, and compare all with the contract."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        bound = bound_of(scenario, folder)
        drawn = data.draw(st.lists(layouts(bound, scenario.tables), min_size=1, max_size=4))
        drawn.sort(key=lambda layout: layout.cells, reverse=True)
        first, *others = drawn
        total = sum(table.num_rows for table in scenario.tables.values())
        when = data.draw(st.lists(st.integers(0, total), min_size=len(others), max_size=len(others)))
        changes = data.draw(st.permutations(others))
        tail = TailTuning(most_arrived_rows=data.draw(st.sampled_from((0, 3, 1_024))))
        patch.setattr(CellWindows, "tuning", Tuning(tail=tail))
        batches = MicroBatches(
            bound,
            folder / folder.name,
            first,
            data.draw(st.sampled_from(EXCHANGES)),
            data.draw(st.sampled_from((4, 7, 13, 1_000))),
            block_bytes=data.draw(st.sampled_from((0, 200, 1 << 40))),
            retain_batches=data.draw(st.sampled_from((0, 1, 100))),
            layout_schedule=tuple(zip(sorted(when), changes, strict=True)),
        )
        batches.run()
        assert_contract(batches, scenario)


@few(40)
@given(st.data())
def test_two_streams(data: st.DataObject) -> None:
    check(data, data.draw(banded((2, 2), rows=20)))


@pytest.mark.slow
@few(16)
@given(st.data())
def test_more_streams(data: st.DataObject) -> None:
    check(data, data.draw(banded((3, 4), rows=10)))


def drifting(folder: Path, centers: Sequence[float], seconds: int = 60, per_s: int = 40) -> BoundJoin:
    """Write two streams whose keys lie about one center after the other, and return a join of them."""
    rng = np.random.default_rng(5)
    streams = []
    for name in "lr":
        count = len(centers) * seconds * per_s
        seqs = np.arange(count)
        keys = rng.normal(0, 10, count) + np.repeat(centers, seconds * per_s)
        keys[rng.random(count) < 0.02] = np.nan
        columns = {"t": seqs * 1_000_000 // per_s, "x": pa.array(keys, mask=rng.random(count) < 0.02)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=1_000)
        streams.append(Stream(name, folder / f"{name}.parquet", time="t", delay="1s"))
    join = Join(streams, "abs(l.x - r.x) <= 0.05", "20s")
    return bind(join, {stream.name: infer_schema(stream) for stream in streams})


def layouts_of(batches: MicroBatches) -> list[CellLayout]:
    """Return the layout of new tuples in each batch."""
    found = []
    for batch in range(batches.batch_id):
        offset = json.loads((batches.folder / "offsets" / str(batch)).read_text().splitlines()[2])
        planned = BatchPlan.from_offset(offset, batches.bound.names)
        found.append(planned.layout.epochs_from(batches.layout).current.layout)
    return found


def run_by_keys(tmp_path: Path, bound: BoundJoin, name: str, layout: str, **options: Any) -> MicroBatches:
    batches = MicroBatches(
        bound, tmp_path / name, Layout.parse(layout, 2), max_rows_per_batch=800, retain_batches=1, **options
    )
    batches.run()
    assert_punctuations(batches)
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_ranges_follow_keys_that_drift(tmp_path: Path, exchange: str) -> None:
    bound = drifting(tmp_path, [0.0, 0.0, 200.0, 200.0])
    still = run_by_keys(tmp_path, bound, "still", "1x1")
    found = run_by_keys(tmp_path, bound, "ranges", "2x2", layout_kind="ranges", exchange=exchange)
    assert values_of(found.matches()) == values_of(still.matches())
    assert found.matches().num_rows > 1_000
    assert ledger_sums(found) == ledger_sums(still)
    layouts = layouts_of(found)
    assert isinstance(layouts[0], Layout), "no key was known"
    ranges = [layout for layout in dict.fromkeys(layouts) if isinstance(layout, RangeLayout)]
    assert len(ranges) >= 2
    assert isinstance(layouts[2], RangeLayout)
    assert max(ranges[0].boundaries) < 100 < min(ranges[-1].boundaries)
    named = set()
    for cell, blob in found.states.items():
        windows = CellWindows(found.plan, cell, blob)
        named |= windows.blocks | {name for _, name in windows.state.retired}
        assert windows.state.epochs is not None
    assert set(BlockStore(found.plan.state_root).names()) == named, "no block is left behind, and none is missing"


@pytest.mark.slow
def test_a_join_that_may_choose_goes_over_to_ranges_and_the_same_again(tmp_path: Path) -> None:
    bound = drifting(tmp_path, [0.0, 0.0])
    found = run_by_keys(tmp_path, bound, "auto", "2x4", layout_kind="auto")
    few = run_by_keys(tmp_path, bound, "few", "2x2", layout_kind="auto")
    assert values_of(found.matches()) == values_of(few.matches())
    kinds = [type(layout) for layout in layouts_of(found)]
    assert kinds[0] is Layout
    assert kinds[-1] is RangeLayout
    assert {type(layout) for layout in layouts_of(few)} == {Layout}, "with few cells a change is not worth it"
    assert not (few.folder / "key_sample.arrow").exists()
    again = run_by_keys(tmp_path, bound, "again", "2x4", layout_kind="auto")
    assert layouts_of(again) == layouts_of(found), "the same input gives the same decisions"


@pytest.mark.slow
def test_a_sample_that_is_lost_costs_a_later_decision_and_nothing_else(tmp_path: Path) -> None:
    bound = drifting(tmp_path, [0.0])
    batches = MicroBatches(bound, tmp_path / "lost", Layout((2, 2)), max_rows_per_batch=800, layout_kind="ranges")
    batches.reader.prepareForTriggerAvailableNow()
    while batches.step():
        (batches.folder / "key_sample.arrow").unlink(missing_ok=True)
    assert {type(layout) for layout in layouts_of(batches)} == {Layout}
    assert values_of(batches.matches()) == values_of(run_by_keys(tmp_path, bound, "still", "1x1").matches())
