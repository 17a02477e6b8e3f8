"""The independent count gives what plain Python counts over every pair, in the contract's own words."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec import Join, Stream, band
from tests.bench.suites.oracle import count_matches

_TIME = pa.timestamp("us", tz="UTC")
# Few values, some at the edges of cells and bands, so that pairs do match.
_VALUES = st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, 0.30000000000000004, 1.0, 9.9, 10.0, 10.1, -7.5, 1e6])
_FLOATS = st.one_of(_VALUES, st.none(), st.just(math.nan), st.just(math.inf), st.floats(-50, 50))
_TUPLES = st.lists(st.tuples(st.integers(0, 40), _FLOATS, st.one_of(st.none(), st.integers(-30, 30))), max_size=25)


def _table(rows: list[tuple[int, float | None, int | None]], names: tuple[str, str]) -> pa.Table:
    ts, floats, integers = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "ts": pa.array(ts, pa.int64()).cast(_TIME),
        names[0]: pa.array(floats, pa.float64()),
        names[1]: pa.array(integers, pa.int32()),
    }
    return pa.table(columns)


@given(
    left=_TUPLES,
    right=_TUPLES,
    eps=st.sampled_from([0.0, 0.1, 2.5, 10.0]),
    width=st.integers(0, 12),
    windows=st.tuples(st.integers(0, 15), st.integers(0, 15)),
)
def test_counts_the_pairs_that_plain_python_counts(left, right, eps, width, windows):
    join = Join(
        [Stream("l"), Stream("r")],
        on=[band("l.x", "r.a", eps), band("l.y", "r.b", width)],
        window={"l": f"{windows[0]}us", "r": f"{windows[1]}us"},
    )
    expected = sum(
        x is not None
        and a is not None
        and y is not None
        and b is not None
        and abs(x - a) <= eps
        and abs(y - b) <= width
        and l_ts - r_ts <= windows[1]
        and r_ts - l_ts <= windows[0]
        for l_ts, x, y in left
        for r_ts, a, b in right
    )
    assert count_matches(join, _table(left, ("x", "y")), _table(right, ("a", "b"))) == expected


def test_counts_more_pairs_than_it_tests_at_once(monkeypatch):
    monkeypatch.setattr("tests.bench.suites.oracle._PAIRS_AT_ONCE", 7)
    rows = [(number, 1.0, 1) for number in range(30)]
    join = Join([Stream("l"), Stream("r")], on=[band("l.x", "r.a", 1), band("l.y", "r.b", 1)], window="40us")
    assert count_matches(join, _table(rows, ("x", "y")), _table(rows, ("a", "b"))) == 900
