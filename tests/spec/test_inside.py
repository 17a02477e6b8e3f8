"""Columns converted to the types inside: they are cut off towards the past, and refused where they are out of range."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spec.columns import NANOSECONDS, TIMESTAMP
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.inside import conformed
from tests.support.examples import examples

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
COUNTS = st.one_of(
    st.none(),
    st.integers(-2000, 2000),
    st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX, MAX_TS_US, MIN_TS_US - 1]),
)


def whole(count: int | None, unit: str, kind: pa.DataType) -> int | None:
    """Return the count in the unit of a type; None if the type has no such value."""
    if count is None:
        return None
    ns = count * NS[unit]
    if kind == NANOSECONDS:
        is_year = MIN_TS_US <= ns // 1000 <= MAX_TS_US
        return ns if is_year and INT64_MIN <= ns <= INT64_MAX else None
    return ns // 1000 if MIN_TS_US <= ns // 1000 <= MAX_TS_US else None


@examples(200)
@given(st.lists(COUNTS, max_size=6), st.sampled_from(list(NS)), st.sampled_from([TIMESTAMP, NANOSECONDS]))
def test_timestamps_of_every_unit(counts: list[int | None], unit: str, kind: pa.DataType) -> None:
    given_times = pa.array([7, *counts], pa.timestamp(unit))[1:]
    values, out = conformed(given_times, kind)
    exact = [whole(count, unit, kind) for count in counts]
    assert values.type == kind
    assert values.cast(pa.int64()).to_pylist() == exact
    refused = [count is not None and time is None for count, time in zip(counts, exact, strict=True)]
    assert ([False] * len(counts) if out is None else out.tolist()) == refused


@given(st.lists(st.one_of(st.none(), st.lists(COUNTS, max_size=3)), max_size=5), st.sampled_from(list(NS)))
def test_lists_and_structs_of_timestamps(rows: list[list[int | None] | None], unit: str) -> None:
    exact = [None if row is None else [whole(count, unit, TIMESTAMP) for count in row] for row in rows]
    refused = [
        row is not None and any(c is not None and t is None for c, t in zip(row, times, strict=True))
        for row, times in zip(rows, exact, strict=True)
    ]
    for outer in (pa.list_, pa.large_list):
        listed = pa.array([[5], *rows], outer(pa.timestamp(unit)))[1:]
        values, out = conformed(listed, pa.list_(TIMESTAMP))
        values.validate(full=True)
        assert values.cast(pa.list_(pa.int64())).to_pylist() == exact
        assert ([False] * len(rows) if out is None else out.tolist()) == refused
        kind = pa.struct([("at", pa.list_(TIMESTAMP)), ("n", pa.int32())])
        structs = pa.StructArray.from_arrays([listed, pa.array(range(len(rows)), pa.int32())], ["at", "n"])
        values, out = conformed(structs, kind)
        assert values.type == kind
        assert values.field("at").cast(pa.list_(pa.int64())).to_pylist() == exact
        assert ([False] * len(rows) if out is None else out.tolist()) == refused


def test_dates_of_either_width() -> None:
    days, out = conformed(pa.array([1, 2**31 - 1, -1], pa.int32()).cast(pa.date32()), pa.date32())
    assert days.cast(pa.int32()).to_pylist() == [1, None, -1]
    assert out is not None
    assert out.tolist() == [False, True, False]
    days, out = conformed(pa.array([-1, INT64_MAX, None], pa.int64()).view(pa.date64()), pa.date32())
    assert days.cast(pa.int32()).to_pylist() == [-1, None, None]
    assert out is not None
    assert out.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([0.5]), pa.float32()),
        (pa.array([[0.5]]), pa.list_(pa.float32())),
        (pa.array([{"x": 0.5}]), pa.struct([("x", pa.float32())])),
        (pa.array([0.1]), pa.decimal128(9, 1)),
        (pa.array([1], pa.decimal128(3, 0)), pa.float64()),
        (pa.array([1 << 40]), pa.int32()),
        (pa.array([1.5]), pa.int64()),
    ],
)
def test_what_would_lose_digits_is_refused(values: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowException):
        conformed(values, kind)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([0.5], pa.float32()), pa.float64()),
        (pa.array([1], pa.uint8()), pa.int16()),
        (pa.array(["a"], pa.string_view()), pa.string()),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([1]), pa.float64()),
    ],
)
def test_what_loses_nothing_is_taken(values: pa.Array, kind: pa.DataType) -> None:
    array, out = conformed(values, kind)
    assert out is None
    assert array.type == kind
    assert array.to_pylist() == values.to_pylist()
