"""Results of whole joins, as the contract says them: each is in one cell, whatever the window and the ranges."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.plan import KeySample, Layout, RangeLayout, band_attributes, choose_ranges
from streamjoin_ds.spec import bind
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.support.examples import examples

SCHEMA = {"ts": "timestamp[us]", "x": "double", "n": "int64"}
BANDS = {
    "floats": "abs(r.x - s.x) <= 0.2",
    "whole": "r.n - s.n BETWEEN -1 AND 2",
    "equal": "r.n = s.n",
    "with a residual": "abs(r.x - s.x) <= 0.3 AND r.n <> s.n",
    "chain": "abs(r.x - s.x) <= 0.2 AND t.x - s.x BETWEEN -0.1 AND 0.4",
    "triangle": "abs(r.n - s.n) <= 1 AND abs(s.n - t.n) <= 1 AND abs(r.n - t.n) <= 1",
}
WINDOWS = ["3s", "last 4", "every 2s for 4s"]

records = st.lists(
    st.tuples(st.integers(0, 9), st.none() | st.integers(-8, 8).map(lambda tenth: tenth / 10), st.integers(-4, 4)),
    max_size=14,
)


def rows_of(values: list[tuple]) -> list[dict[str, object]]:
    return [{"ts": second * 1_000_000, "x": x, "n": n} for second, x, n in sorted(values, key=lambda value: value[0])]


@examples(25)
@pytest.mark.parametrize("on", list(BANDS))
@given(st.data())
def test_each_result_is_in_one_cell(on: str, data: st.DataObject) -> None:
    names = "rst" if "t." in BANDS[on] else "rs"
    join = StreamJoin([Stream(name, schema=SCHEMA) for name in names], on=BANDS[on], window="1s")
    bound = bind(join, {stream.name: stream.schema for stream in join.streams})
    (keys, reach), *_ = band_attributes(bound)
    column = bound.keys[0][keys[0]].column
    assert {bound.keys[stream][key].column for stream, key in enumerate(keys)} == {column}
    streams = {name: rows_of(data.draw(records)) for name in names}
    has_key = [np.array([row[column] is not None for row in streams[name]], dtype=np.bool_) for name in names]
    values = [
        np.array([row[column] or 0 for row in streams[name]], dtype=np.int64 if reach.is_whole else np.float64)
        for name in names
    ]
    if data.draw(st.booleans()):
        cells = data.draw(st.integers(1, 12))
        samples = [KeySample.of(own[known], 5) for own, known in zip(values, has_key, strict=True)]
        layout = choose_ranges(samples, reach, cells).layout
    else:
        step = 1 if reach.is_whole else 10
        boundaries = sorted(data.draw(st.sets(st.integers(-8, 8).map(lambda tenth: tenth / step), max_size=4)))
        counts = st.lists(st.integers(1, 2), min_size=len(names), max_size=len(names)).map(tuple)
        grids = tuple(Layout(data.draw(counts)) for _ in range(len(boundaries) + 1))
        ends = tuple(int(end) if reach.is_whole else float(end) for end in boundaries)
        anchor = data.draw(st.integers(0, len(names) - 1))
        layout = RangeLayout(sum(grid.cells for grid in grids), reach, anchor, ends, grids)
    cells_of: list[list[set[int]]] = []
    for stream, own in enumerate(values):
        dealt = layout.deal(stream, own, np.arange(len(own)), has_key[stream])
        cells_of.append([set() for _ in own])
        for row, group in zip(dealt.rows, dealt.groups, strict=True):
            cells_of[-1][row].update(layout.cells_of(stream, int(group)))
    tables = {name: pa.Table.from_pylist(rows, schema=join.streams[0].schema) for name, rows in streams.items()}
    for window in WINDOWS:
        whole = StreamJoin(join.streams, on=BANDS[on], window=window)
        for result in oracle_numbers(whole, tables):
            numbers = result[: len(names)]
            met = set.intersection(*(cells_of[stream][number] for stream, number in enumerate(numbers)))
            assert len(met) == 1
    for numbers in itertools.product(*(range(len(own)) for own in values)):
        assert len(set.intersection(*(cells_of[stream][number] for stream, number in enumerate(numbers)))) <= 1
