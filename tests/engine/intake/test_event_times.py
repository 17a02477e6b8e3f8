"""Times in the engine: nanoseconds are compared exactly, a number has its stream's unit, and nothing wraps round."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError, SchemaDriftError
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind, bound_from_facts
from streamjoin_ds.spec.event_time import MAX_TS_US, MIN_TS_US
from streamjoin_ds.spec.expression.predicate import band
from tests.support.examples import examples

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
KERNELS = [name for name in kernel_names() if name != "auto"]
QUICK = examples(60)


def engine_of(on: Any, schema: Any = None, *, window: str = "1h", kernel: str = "auto", **stream: Any) -> JoinEngine:
    streams = [Stream(name, schema=schema, **stream) for name in ("l", "r")]
    return JoinEngine(Join(streams, on, window), execution=Execution(kernel=kernel))


def timed(counts: list[int | None], unit: str) -> pa.Table:
    """Return rows at one event time, with keys of this unit."""
    return pa.table({"ts": pa.array([0] * len(counts), pa.timestamp("us")), "p": pa.array(counts, pa.timestamp(unit))})


def pairs_of(result: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(result["l_seq"].to_pylist(), result["r_seq"].to_pylist(), strict=True))


Test = Callable[[int, int], bool]
US = 1000
# Conditions, and whether each holds of two keys in nanoseconds.
CONDITIONS: dict[str, Test] = {
    "l.p = r.p": operator.eq,
    "l.p <> r.p": operator.ne,
    "l.p < r.p": operator.lt,
    "l.p <= r.p": operator.le,
    "NOT l.p < r.p": operator.ge,
    "abs(l.p - r.p) <= INTERVAL 1 MICROSECOND": lambda left, right: abs(left - right) <= US,
    "abs(l.p - r.p) < INTERVAL 1 MICROSECOND": lambda left, right: abs(left - right) < US,
    "l.p - r.p BETWEEN INTERVAL 0 SECONDS AND INTERVAL 2 SECONDS": lambda left, right: (
        0 <= left - right <= 2_000_000 * US
    ),
    "l.p - r.p BETWEEN INTERVAL 0 SECONDS AND INTERVAL 3000 DAYS": (
        lambda left, right: 0 <= left - right <= 3000 * 86_400_000_000 * US
    ),
    "l.p - r.p BETWEEN INTERVAL -200000 DAYS AND INTERVAL 0 SECONDS": (
        lambda left, right: -200_000 * 86_400_000_000 * US <= left - right <= 0
    ),
    "l.p + INTERVAL 1 MICROSECOND > r.p": lambda left, right: left + US > right,
    "(l.p - r.p) * 3 < INTERVAL 4 MICROSECONDS": lambda left, right: (left - right) * 3 < 4 * US,
    "l.p = r.p OR l.p > r.p + INTERVAL 1 SECOND": lambda left, right: left == right or left > right + 1_000_000 * US,
    "l.p > TIMESTAMP '1970-01-01 00:00:00.000001' AND l.p >= r.p": lambda left, right: left > US and left >= right,
    "l.p IS NOT NULL AND r.p > DATE '1970-01-01'": lambda _, right: right > 0,
}


@st.composite
def keys(draw: st.DrawFn, unit: str) -> list[int | None]:
    """Draw keys of a unit: near each other, near the ends of int64 and of the years, and nulls."""
    ends = [0, 0, 0, INT64_MIN, INT64_MAX, INT64_MAX // UNITS_NS[unit], INT64_MIN // UNITS_NS[unit]]
    ends += [MAX_TS_US * US // UNITS_NS[unit], MIN_TS_US * US // UNITS_NS[unit]]
    near = st.builds(operator.add, st.sampled_from(ends), st.one_of(st.integers(-3, 3), st.integers(-2001, 2001)))
    count = near.map(lambda value: min(max(value, INT64_MIN), INT64_MAX))
    return draw(st.lists(st.one_of(count, count, count, st.none()), min_size=1, max_size=8))


def as_ns(count: int | None, unit: str) -> int | None:
    """Return the key in nanoseconds; None for a null, and for a key whose row is rejected."""
    ns = None if count is None else count * UNITS_NS[unit]
    return ns if ns is not None and MIN_TS_US <= ns // US <= MAX_TS_US else None


@QUICK
@given(st.data(), st.sampled_from(list(CONDITIONS)), st.sampled_from(list(UNITS_NS)), st.sampled_from(list(UNITS_NS)))
def test_keys_of_any_units_are_compared_exactly(data: st.DataObject, on: str, left_unit: str, right_unit: str) -> None:
    left, right = data.draw(keys(left_unit)), data.draw(keys(right_unit))
    expected = [
        (l_place, r_place)
        for l_place, l_key in enumerate(as_ns(key, left_unit) for key in left)
        for r_place, r_key in enumerate(as_ns(key, right_unit) for key in right)
        if l_key is not None and r_key is not None and CONDITIONS[on](l_key, r_key)
    ]
    for kernel in (KERNELS[0], "reference"):
        engine = engine_of(on, kernel=kernel)
        result = engine.push({"l": timed(left, left_unit), "r": timed(right, right_unit)})
        assert pairs_of(result) == expected
        rejected = {"l": (left, left_unit), "r": (right, right_unit)}
        assert engine.counters["rejected_rows"] == {
            name: sum(key is not None and as_ns(key, unit) is None for key in keys_of)
            for name, (keys_of, unit) in rejected.items()
        }
        for name, (keys_of, unit) in rejected.items():  # a result has microseconds, rounded down
            places = result[f"{name}_seq"].to_pylist()
            assert result.schema.field(f"{name}_p").type == pa.timestamp("us", tz="UTC")
            found = result[f"{name}_p"].cast(pa.int64()).to_pylist()
            assert found == [as_ns(keys_of[place], unit) // US for place in places]


@pytest.mark.parametrize("rows", [300, 70_000])  # runs, and bucket grids
def test_many_keys_of_nanoseconds(rows: int) -> None:
    rng = np.random.default_rng(rows)
    sides = {name: rng.integers(0, rows, rows) for name in ("l", "r")}
    engine = engine_of("l.p = r.p")
    found = []
    for begin in range(0, rows, 5_000):
        batch = {name: timed(values[begin : begin + 5_000].tolist(), "ns") for name, values in sides.items()}
        found.append(engine.push(batch).num_rows)
    counts = [np.bincount(values, minlength=rows) for values in sides.values()]
    assert sum(found) == int((counts[0] * counts[1]).sum())


@pytest.mark.parametrize(
    ("kind", "unit"), [(pa.timestamp("ns"), "us"), (pa.timestamp("ns", tz="UTC"), "s"), (pa.int64(), "ns")]
)
def test_event_times_in_nanoseconds_are_compared_as_they_are(kind: pa.DataType, unit: str) -> None:
    table = pa.table({"ts": pa.array([1, 2, 1001], kind)})
    for on, expected in (("l.ts = r.ts", 3), ("l.ts < r.ts", 3), ("abs(l.ts - r.ts) <= INTERVAL 1 MICROSECOND", 9)):
        engine = engine_of(on, time_unit=unit)
        result = engine.push({"l": table, "r": table})
        assert result.num_rows == expected, on
        assert set(result["l_ts"].cast(pa.int64()).to_pylist()) <= {0, 1}
        dicts = [{"ts": time} for time in (1, 2, 1001)]
        if unit == "ns":
            other = engine_of(on, pa.schema([("ts", kind)]), time_unit=unit)
            assert other.push({"l": dicts, "r": dicts}).equals(result)
    moments = [{"ts": pd.Timestamp(time, unit="ns")} for time in (1, 2, 1001)]
    engine = engine_of("l.ts = r.ts", pa.schema([("ts", kind)]), time_unit=unit)
    assert engine.push({"l": moments, "r": moments}).num_rows == 3


def test_nanoseconds_beside_microseconds_saved_and_restored() -> None:
    on = ["l.p = r.p", "l.q < r.p"]
    schemas = {
        "l": pa.schema([("ts", pa.timestamp("us")), ("p", pa.timestamp("us")), ("q", pa.timestamp("ns"))]),
        "r": pa.schema([("ts", pa.timestamp("us")), ("p", pa.timestamp("ns"))]),
    }
    join = Join([Stream("l"), Stream("r")], on, "1h")
    first = {"l": pa.table({"ts": [0], "p": [1], "q": [999]}).cast(schemas["l"])}
    second = {"r": pa.table({"ts": [0, 0, 0], "p": [1000, 1001, 999]}).cast(schemas["r"])}
    engine = JoinEngine(join, schemas)
    engine.push(first)
    restored = JoinEngine(bound_from_facts(engine.bound.to_facts()))
    restored.restore(engine.save())
    result = restored.push(second)
    assert result["r_seq"].to_pylist() == [0]
    assert engine.push(second).equals(result)


def test_only_joins_over_nanoseconds_are_other_joins_now() -> None:
    def bound(kind: str, on: str) -> BoundJoin:
        schema = pa.schema([("ts", pa.timestamp(kind)), ("p", pa.timestamp(kind)), ("x", pa.int64())])
        return bind(Join([Stream("l"), Stream("r")], on, "1h"), {"l": schema, "r": schema})

    for on in ("l.x = r.x", "l.x < r.x"):  # nothing compares the times: the fingerprint is as it was
        assert bound("ns", on).fingerprint == bound("us", on).fingerprint == bound("s", on).fingerprint
    for on in ("l.p = r.p", "l.p < r.p", "l.ts < r.ts"):
        assert bound("ns", on).fingerprint != bound("us", on).fingerprint == bound("ms", on).fingerprint
        again = bound_from_facts(bound("ns", on).to_facts())
        assert again.fingerprint == bound("ns", on).fingerprint
        assert again.tuple_schema(0) == bound("ns", on).tuple_schema(0)


def test_a_name_that_the_join_uses_itself() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("p", pa.timestamp("ns")), ("_ns_p", pa.int64())])
    with pytest.raises(ColumnError, match="_ns_p"):
        bind(Join([Stream("l"), Stream("r")], "l.p = r.p", "1h"), {"l": schema, "r": schema})
    bind(Join([Stream("l"), Stream("r")], "l._ns_p = r._ns_p", "1h"), {"l": schema, "r": schema})


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_of_day_are_compared_with_literals(unit: str) -> None:
    nanoseconds = [0, 32_399_999_999_999, 32_400_000_000_000, 63_000_000_001_000, 86_399_999_999_000, None]
    column = pa.array(nanoseconds).cast(pa.time64("ns")).cast(pa.time64(unit), safe=False)
    rows = pa.table({"ts": pa.array([0] * len(column), pa.timestamp("us")), "p": column})
    for on, wanted in {
        "l.p >= TIME '09:00' AND l.p <= TIME '17:30:00.000001'": [2, 3],
        "l.p NOT BETWEEN TIME '09:00' AND TIME '17:30'": [0, 1, 3, 4],
        "l.p IN (TIME '00:00', TIME '23:59:59.999999')": [0, 4],
        "l.p - TIME '09:00' = INTERVAL 0 SECONDS": [2],
    }.items():
        found = engine_of(on).push({"l": rows, "r": rows[:1]})
        assert sorted(found["l_seq"].to_pylist()) == wanted, on


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("make", [pa.duration, pa.time64], ids=["duration", "time of day"])
@pytest.mark.parametrize(
    ("on", "holds"),
    [
        ("l.p = r.p", lambda left, right: left == right),
        ("abs(l.p - r.p) <= INTERVAL 1 MICROSECOND", lambda left, right: abs(left - right) <= 1000),
        (
            "l.p - r.p BETWEEN INTERVAL 0 SECONDS AND INTERVAL 2 MICROSECONDS",
            lambda left, right: 0 <= left - right <= 2000,
        ),
        ("l.p < r.p", lambda left, right: left < right),
        ("l.p <> r.p", lambda left, right: left != right),
        ("l.p IS NOT DISTINCT FROM r.p", lambda left, right: left == right),
    ],
)
def test_durations_and_times_of_day_are_compared_to_the_nanosecond(
    on: str, holds: Callable[[int, int], bool], make: Callable[[str], pa.DataType], coarse: bool
) -> None:
    """Beside microseconds too, and in the state."""
    left, right = [0, 1, 999, 1000, 1001, 2999, 3000, 86_399_999_999_999], [0, 1000, 2000, 3000]
    right += [] if coarse else [1, 1001, 1999]
    kind = make("us" if coarse else "ns")
    columns = {"l": pa.array(left).cast(make("ns")), "r": pa.array(right).cast(make("ns")).cast(kind)}
    tables = {
        name: pa.table({"ts": pa.array([0] * len(column), pa.timestamp("us")), "p": column})
        for name, column in columns.items()
    }
    engine = engine_of(on)
    assert not engine.push({"l": tables["l"], "r": tables["r"][:0]}).num_rows
    restored = JoinEngine(bound_from_facts(engine.bound.to_facts()))
    restored.restore(engine.save())
    result = restored.push({"r": tables["r"]})
    found = sorted(zip(result["l_seq"].to_pylist(), result["r_seq"].to_pylist(), strict=True))
    assert found == [(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if holds(one, other)]
    assert result.schema.field("l_p").type == make("ns")
    assert result["l_p"].equals(tables["l"]["p"].take(result["l_seq"]))
    assert result["r_p"].equals(tables["r"]["p"].take(result["r_seq"]))


@pytest.mark.parametrize(
    "times",
    [
        *(pa.array([INT64_MAX, INT64_MIN, 0], pa.timestamp(unit)) for unit in ("s", "ms", "us")),
        pa.array([2**31 - 1, -(2**31), 0], pa.int32()).cast(pa.date32()),
        pa.array([INT64_MAX, INT64_MIN, 0], pa.int64()).view(pa.date64()),
        pa.array([2**64 - 1, 2**63, 0], pa.uint64()),
        pa.array([1e300, float("nan"), 0.0]),
    ],
    ids=lambda array: str(array.type),
)
def test_times_out_of_range_are_rejected_rows(times: pa.Array) -> None:
    engine = engine_of("l.x = r.x")
    table = pa.table({"ts": times, "x": [1, 1, 1]})
    result = engine.push({"l": table, "r": table})
    assert result["event_time"].cast(pa.int64()).to_pylist() == [0]
    assert engine.counters["rejected_rows"] == {"l": 2, "r": 2}
    assert str(engine.rejected["l"]["ts"].chunk(0)) == str(times[:2])
    assert engine.watermark == 0
    # In any other column such a time is rejected as well.
    if not pa.types.is_integer(times.type) and not pa.types.is_floating(times.type):
        engine = engine_of("l.p = r.p")
        table = pa.table({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "p": times})
        assert engine.push({"l": table, "r": table})["l_p"].to_pylist() == [
            date(1970, 1, 1) if pa.types.is_date(times.type) else datetime(1970, 1, 1, tzinfo=timezone.utc)
        ]
        assert engine.counters["rejected_rows"] == {"l": 2, "r": 2}


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1), ("ns", Decimal("0.001"))])
@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("ns"), pa.int64(), pa.float64()])
def test_a_number_in_a_dict_is_in_the_streams_unit(unit: str, factor: Any, kind: pa.DataType) -> None:
    schema = pa.schema([("ts", kind), ("x", pa.int64())])
    second = int(1_000_000 / factor)
    for same in (second, float(second), np.int64(second), np.float64(second), np.int32(second), Decimal(second)):
        engine = engine_of("l.x = r.x", schema, time_unit=unit)
        others = [{"ts": same, "x": 1}, {"ts": second, "x": 2}, {"ts": datetime(2024, 1, 1), "x": 3}]
        result = engine.push({"l": {"ts": same, "x": 1}, "r": others})
        assert result["r_ts"].cast(pa.int64()).to_pylist() == [1_000_000], type(same)


def test_moments_of_any_form_in_dicts() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=timezone.utc)
    forms = [
        moment,
        moment.replace(tzinfo=None),
        moment.astimezone(timezone(timedelta(hours=9))),
        pd.Timestamp(moment),
        pd.Timestamp(moment) + pd.Timedelta(999, "ns"),
        np.datetime64(moment.replace(tzinfo=None)),
        np.datetime64(moment.replace(tzinfo=None)).astype("datetime64[ns]") + np.timedelta64(7, "ns"),
        moment.timestamp(),
        Decimal("1714979289.1234567"),
    ]
    for form in forms:
        engine = engine_of((), {"ts": "timestamp[us]"}, window="0s", time_unit="s")
        result = engine.push({"l": {"ts": form}, "r": [{"ts": moment}, {"ts": form}, {"ts": None}, {"ts": pd.NaT}]})
        assert result["event_time"].to_pylist() == [moment, moment], form
        assert engine.counters["rejected_rows"] == {"l": 0, "r": 2}
    far = [np.datetime64("NaT"), np.datetime64(10**12, "Y"), np.datetime64(-(10**6), "M"), 1e30, -float("inf"), 10**40]
    engine = engine_of((), {"ts": "timestamp[us]", "p": "timestamp[us]"}, time_unit="s")
    engine.push({"l": [{"ts": value, "p": None} for value in far]})
    assert engine.counters["rejected_rows"]["l"] == len(far)
    assert engine.rejected["l"].num_rows == len(far)


@pytest.mark.parametrize("value", ["2024-01-01", True, object(), [1], b"1", 1j])
def test_what_is_no_time_is_named(value: object) -> None:
    engine = engine_of("l.x = r.x", {"ts": "timestamp[us]", "x": "int64"}, time_unit="s")
    with pytest.raises(SchemaDriftError, match=r"'ts' of stream l is not an event time.*in s, the stream's time_unit"):
        engine.push({"l": [{"ts": 1, "x": 1}, {"ts": value, "x": 1}]})
    assert engine.counters["read_rows"]["l"] == 0


@pytest.mark.parametrize("kind", ["timestamp[us]", "timestamp[ns]"])
def test_other_moments_in_dicts_out_of_range(kind: str) -> None:
    schema = {"ts": "int64", "p": kind}
    engine = engine_of("l.p = r.p", schema)
    kept = [datetime(2024, 1, 1, tzinfo=timezone.utc), pd.Timestamp("2024-01-01"), np.datetime64("2024-01-01"), None]
    far = [np.datetime64(10**12, "Y"), *([datetime(9999, 1, 1)] if kind.endswith("[ns]") else [])]
    rows = [{"ts": place, "p": value} for place, value in enumerate([*kept, *far])]
    assert engine.push({"l": rows, "r": rows}).num_rows == 9
    assert engine.counters["rejected_rows"] == {"l": len(far), "r": len(far)}
    assert engine.rejected["l"]["ts"].to_pylist() == list(range(len(kept), len(kept) + len(far)))


def test_a_float64_is_not_rounded_to_a_float32_column() -> None:
    schema = {"ts": "int64", "x": "float32"}
    engine = engine_of("l.x = r.x", schema)
    with pytest.raises(SchemaDriftError, match=r"'x' of stream l come as double.*must be float"):
        engine.push({"l": pa.table({"ts": [1], "x": [0.1]})})
    assert engine.counters["read_rows"]["l"] == 0
    engine.push({"l": pa.table({"ts": [1], "x": pa.array([0.1], pa.float32())})})
    assert engine.push({"r": {"ts": 1, "x": 0.1}}).num_rows == 1  # Python has no float32: the nearest one is meant


def test_lists_of_nanoseconds_and_views_of_strings() -> None:
    table = pa.table(
        {
            "ts": pa.array([1, None], pa.timestamp("us")),
            "p": pa.array([[1001, -1], None], pa.list_(pa.timestamp("ns"))),
            "s": pa.array(["a", "b"], pa.string_view()),
            "b": pa.array([b"a", None], pa.binary_view()),
        }
    )
    engine = engine_of("l.s = r.s")
    result = engine.push({"l": table, "r": table})
    assert result["l_p"].cast(pa.list_(pa.int64())).to_pylist() == [[1, -1]]
    assert result["l_s"].to_pylist() == ["a"]
    assert engine.rejected["r"]["s"].to_pylist() == ["b"]


def test_durations_of_a_part_of_a_microsecond_are_refused() -> None:
    with pytest.raises(PredicateError, match="not whole microseconds"):
        band("l.p", "r.p", pd.Timedelta(1500, "ns"))
    with pytest.raises(PredicateError, match="must be numbers or durations"):
        band("l.p", "r.p", np.timedelta64(5, "s"))
    with pytest.raises(ArgumentError, match="whole microseconds"):
        Stream("l", delay=pd.Timedelta(1500, "ns"))
    assert band("l.p", "r.p", pd.Timedelta(2, "us")) == band("l.p", "r.p", "2us")


def test_a_push_of_no_rows_at_all() -> None:
    engine = engine_of("l.ts = r.ts", pa.schema([("ts", pa.timestamp("ns"))]))
    assert engine.push({"l": [], "r": []}).num_rows == 0
