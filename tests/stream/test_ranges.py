"""Layouts of ranges, alone and in turn with grids: every row is the contract's, whatever the keys and the boundaries.

Each run goes through the real source, cells and commit. Results, late tuples and ledger are compared with the contract
in plain Python, as `test_invariance` does for grids.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.engine.tuning import TailTuning, Tuning
from streamjoin_ds.plan import EXCHANGES, CellLayout, Layout, RangeLayout, Reach, band_attributes
from streamjoin_ds.spec import Band, BoundJoin, Column, Join, Stream, bind, not_equal
from streamjoin_ds.spec.key_values import nullable_key_values
from tests.engine.scenarios import INT64_MAX, INT64_MIN, Scenario, window_of
from tests.stream.test_invariance import assert_contract, few
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
        on.append(Band(*chooser.sample(pair, 2), *chooser.choice(bounds)))
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
