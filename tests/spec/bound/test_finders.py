"""What conditions say of where their pairs can be: never less than all pairs, and what each form says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.probe.residual import _within
from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec import Call, Expression, Join, Stream
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.expression.parser import parse_condition
from streamjoin_ds.spec.expression.tree import call
from streamjoin_ds.testing.values import oracle_value
from tests.support.conditions import SCHEMA, conditions, table, values
from tests.support.examples import examples

TIME = pa.timestamp("us", tz="UTC")
ROWS = pa.schema([("ts", TIME), *SCHEMA])
FLOATS = pa.schema([("ts", TIME), *((name, pa.float64()) for name in ("x", "y", "a", "b", "lo", "hi", "eps"))])


def bound_of(on: Any, schema: pa.Schema) -> BoundJoin:
    return bind(Join([Stream(name) for name in "ew"], on, "1h"), {"e": schema, "w": schema})


def keys_of(bound: BoundJoin, stream: int, rows: pa.Table) -> list[np.ndarray[Any, Any]]:
    """Return the values of a stream's index keys; those of the window's rule and of bands are left out."""
    batch = rows.combine_chunks().to_batches()[0]
    limits = [limit.values(batch.num_rows, lambda column: batch.column(column.name)) for limit in bound.limits[stream]]
    assert all(np.isfinite(values).all() for values in limits)
    return [np.empty(0)] * len(bound.keys[stream]) + limits


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    """Draw comparisons of two streams, of forms that mostly find."""
    family = draw(st.sampled_from(["number", "float", "float", "timestamp"]))
    sides = [draw(values(draw(st.sampled_from([family, "number" if family == "float" else family])), 1, (name,)))
             for name in ("e", "w", "e", "w")]  # fmt: skip
    kind = draw(st.integers(0, 7))
    if kind == 7:
        texts = st.sampled_from(["string", "boolean", family])
        return call("same", *(draw(values(of, 0, (name,))) for of, name in zip([draw(texts)] * 2, "ew", strict=True)))
    if family == "timestamp" and kind > 2:
        return call("<=", call("-", *sides[:2]), call("-", *sides[2:]))
    gap = call("-", *sides[:2])
    if kind == 0:
        return call(draw(st.sampled_from(["<", "<=", ">", ">=", "="])), *sides[:2])
    if kind <= 2:
        return Call("between", (sides[0], sides[1], sides[3]))
    if kind == 3:
        return call("<=", call("abs", gap), draw(st.sampled_from(sides[2:])))
    if kind == 4:
        return call("<", call("/", call("abs", gap), sides[2]), sides[3])
    squares = call("+", call("*", gap, gap), call("abs", call("-", *sides[2:])))
    return call("<=", squares if kind == 5 else call("sqrt", squares), draw(values(family, 0, ("w",))))


@examples(300)
@given(expression=st.one_of(comparisons(), conditions(2, ("e", "w"))), seed=st.integers(0, 2**32))
def test_what_finds_a_condition_holds_for_all_its_pairs(expression: Expression, seed: int) -> None:
    try:
        bound = bound_of([expression], ROWS)
    except PredicateError:  # it needs too many digits, or compares what cannot be
        return
    lefts, rights = table(seed, 14), table(seed + 1, 14)
    keys = [keys_of(bound, stream, rows) for stream, rows in enumerate((lefts, rights))]
    found = np.ones((14, 14), dtype=np.bool_)
    for condition in bound.finding:
        left, right = keys[0][condition.left_key], keys[1][condition.right_key]
        if not len(left):
            continue  # of the event times, which these rows have not
        found &= _within(np.repeat(left, 14), np.tile(right, 14), condition.lo, condition.hi).reshape(14, 14)
    for i, e in enumerate(lefts.to_pylist()):
        for j, w in enumerate(rights.to_pylist()):
            if not found[i, j]:
                assert oracle_value(bound.join, expression, {"e": e, "w": w}) is not True, (e, w)


@pytest.mark.parametrize(
    ("on", "intervals", "bands"),
    [
        ("e.x BETWEEN w.lo AND w.hi", [2], 0),
        ("w.lo <= e.x AND e.x <= w.hi", [2], 0),
        ("e.a <= w.b AND w.a <= e.b", [2], 0),
        ("abs(e.x - w.x) <= w.eps", [2], 0),
        ("abs(e.x - w.x) <= e.eps + w.eps", [2], 0),
        ("abs(e.x - w.x) <= 0.05 * w.x", [2], 0),
        ("e.x - w.x BETWEEN w.lo AND w.hi", [2], 0),
        ("e.x < w.y", [1], 0),
        ("e.x IS NOT DISTINCT FROM w.y", [], 1),
        ("e.x IS DISTINCT FROM w.y", [], 0),
        ("e.x + e.y = w.a + w.b", [2], 0),
        ("(e.x-w.x)*(e.x-w.x) + (e.y-w.y)*(e.y-w.y) <= 25", [], 2),
        ("(e.x-w.x)*(e.x-w.x) + (e.y-w.y)*(e.y-w.y) <= w.eps * w.eps", [2, 2], 0),
        ("sqrt((e.x-w.x)*(e.x-w.x) + (e.y-w.y)*(e.y-w.y)) <= 5", [], 2),
        ("sqrt((e.x-w.x)*(e.x-w.x) + (e.y-w.y)*(e.y-w.y)) <= w.eps", [2, 2], 0),
        ("e.x BETWEEN w.lo AND w.hi AND e.y BETWEEN w.a AND w.b", [2, 2], 0),
        ("abs(e.x - w.x) < 5", [], 0),  # the band itself finds
        ("e.x * w.x <= 5", [], 0),
        ("e.x < w.y OR e.x > w.x", [], 0),
        ("e.x <> w.y", [], 0),
        ("abs(e.x - w.x) >= w.eps", [], 0),
        ("e.x % w.x < 2", [], 0),
    ],
)
def test_each_form_finds_by_what_it_says(on: str, intervals: list[int], bands: int) -> None:
    finders = bound_of(on, FLOATS).finders
    assert [len(one.bounds) for one in finders.intervals] == intervals
    assert len(finders.bands) == bands


def test_event_times_are_found_by_the_tighter_of_condition_and_window() -> None:
    on = "e.ts >= w.ts - INTERVAL 3 SECONDS AND e.ts < w.ts"
    (found,) = bound_of(on, FLOATS).finding
    assert (found.left_key, found.right_key, found.lo, found.hi) == (0, 0, -3_000_000, 0)
    assert bound_of("e.ts <= w.ts + INTERVAL 2 HOURS", FLOATS).finding == ()  # the window says more
    never = "e.ts >= w.ts + INTERVAL 3 SECONDS AND e.ts < w.ts - INTERVAL 1 SECONDS"
    assert bound_of(never, FLOATS).finding == ()  # nothing matches: the conditions decide that


def test_what_finds_is_in_no_fingerprint() -> None:
    """As it was before conditions could find, so that old checkpoints stay valid."""
    assert bound_of("e.x BETWEEN w.lo AND w.hi", FLOATS).fingerprint == "dcccfe1ae33209065db83ac1a4c07ae6"


def test_an_interval_is_of_the_ends_that_share_a_column() -> None:
    bound = bound_of("e.x >= w.a AND e.y <= w.lo AND w.hi >= e.x AND e.y >= w.b", FLOATS)
    texts = [sorted(one.texts) for one in bound.finders.intervals]
    assert sorted(texts) == [["w.a <= e.x", "e.x <= w.hi"][::-1], ["e.y <= w.lo", "w.b <= e.y"]]


def test_sqrt_is_read_and_told() -> None:
    condition = parse_condition("sqrt(e.x) <= 2")
    assert str(condition) == "sqrt(e.x) <= 2"
    with pytest.raises(PredicateError, match="sqrt"):
        bound_of("sqrt(e.ts - w.ts) <= 2", FLOATS)
