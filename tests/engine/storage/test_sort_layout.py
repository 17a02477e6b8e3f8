"""The sort layout of a run: which streams' bands decide it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds import Join, Stream
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.engine.storage.bucket_grid.shape import chosen_shape
from streamjoin_ds.engine.storage.sort_layout import SortLayout, SortLayoutChooser
from streamjoin_ds.engine.storage.window import WindowForm
from streamjoin_ds.engine.tuning import DEFAULT, LayoutTuning, Tuning
from streamjoin_ds.spec import bind

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64(), "y": pa.int64()})
ROWS = 100_000


def chooser_and_keys(names: str, stream: int):
    """Return the chooser of a stream, its keys, and the keys' columns.

    The streams are a chain with two bands between neighbours. All of a window is within everyone's time.
    """
    on = " AND ".join(f"abs({a}.x - {b}.x) <= 10 AND abs({a}.y - {b}.y) <= 10" for a, b in pairwise(names))
    join = Join([Stream(name, schema=SCHEMA) for name in names], on, f"{ROWS}us")
    bound = bind(join, dict.fromkeys(names, SCHEMA))
    rng = np.random.default_rng(1)
    columns = {"ts": np.arange(ROWS), "x": rng.integers(0, 5000, ROWS), "y": rng.integers(0, 5000, ROWS)}
    keys = bound.keys[stream]
    return SortLayoutChooser(bound, stream), [columns[key.column] for key in keys], [key.column for key in keys]


@pytest.mark.parametrize(("names", "stream"), [("rs", 0), ("rst", 0), ("rst", 1), ("rst", 2), ("rstu", 0), ("rstu", 3)])
def test_a_stream_that_shares_no_band_but_time_does_not_decide(names: str, stream: int) -> None:
    """Such a stream joins after others. So the layout serves both bands of a neighbour, whatever streams there are."""
    chooser, keys, columns = chooser_and_keys(names, stream)
    grid = chooser.choose(keys)
    assert {columns[grid.first], columns[grid.second]} == {"x", "y"}
    shape = chosen_shape(chooser, keys, ROWS, DEFAULT.grid)
    assert shape is not None
    assert {columns[number] for number in shape.keys} == {"x", "y"}


def test_where_no_band_narrows_the_rows_are_scanned() -> None:
    chooser, keys, _ = chooser_and_keys("rst", 1)
    grid = chooser.choose([np.zeros_like(values) for values in keys])
    assert not grid.is_sorted


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("values", ["even", "gaps", "one"])
def test_a_directory_is_the_same_searched_or_passed_over(values: str, kind) -> None:
    """One run searches for its few buckets, the other passes over all rows. Both leave out buckets without rows."""
    rng = np.random.default_rng(3)
    x = {"even": rng.integers(-5000, 5000, 3000), "gaps": rng.choice([-900, 17, 4000], 3000), "one": np.full(3000, 5)}
    schema = pa.schema({"ts": pa.int64(), "x": pa.from_numpy_dtype(kind), "y": pa.int64()})
    streams = [Stream(name, schema=schema) for name in "rs"]
    bound = bind(Join(streams, "abs(r.x - s.x) <= 10 AND abs(r.y - s.y) <= 10", "1h"), dict.fromkeys("rs", schema))
    forms = [
        WindowForm(bound, 0, load_kernels("auto"), tuning=Tuning(layout=LayoutTuning(least_searched_rows=rows)))
        for rows in (0, 1 << 15)
    ]
    columns = [np.arange(3000), np.arange(3000), x[values].astype(kind), rng.integers(0, 5000, 3000)]
    tuples = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=forms[0].tuple_schema)
    first, second = (next(n for n, key in enumerate(forms[0].keys) if key.column == name) for name in "xy")
    directories = []
    for form in forms:
        ids, starts = form.sealed(tuples, SortLayout(first, second, 320)).directory
        directories.append((ids.tolist(), starts.tolist()))
    assert directories[0] == directories[1]
    assert len(directories[0][0]) == {"even": 32, "gaps": 3, "one": 1}[values]
