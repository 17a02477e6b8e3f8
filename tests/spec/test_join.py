"""Joins as they are written: their checks, and their way through JSON."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError, StreamJoinError, WindowError
from streamjoin_ds.spec import (
    Band,
    Column,
    Generator,
    Join,
    Stream,
    TimeWindow,
    band,
    bind,
    bound_from_facts,
    equal,
    not_equal,
)
from tests.spec.joins import bound_pair, schema, two

E, W = Stream("e", "e.csv"), Stream("w", "w.csv")


@pytest.mark.parametrize(
    ("streams", "arguments", "name", "hint"),
    [
        ([E], {}, "streams", "two names"),
        ([Stream(f"s{n}") for n in range(9)], {}, "streams", "two names"),
        ([E, Stream("e", "x")], {}, "e", "its own name"),
        ([E, Stream("E", "x")], {}, "e", "upper and lower case"),
        ([E, "w.csv"], {}, "streams", "Stream("),
        ([E, W], {"on": "e.x = W.x"}, "W", "did you mean 'w', as names are case-sensitive"),
        ([E, W], {"on": "e.x = v.x"}, "v", "the streams are e, w"),
        ([E, W], {"on": None}, "on", "abs("),
        ([E, W], {"on": [3]}, "on", "abs("),
        ([E, W], {"on": {"e.x": "w.x"}}, "on", "abs("),
        ([E, W], {"select": ["v.x"]}, "v.x", "the streams are"),
        ([E, W], {"select": "e"}, "e", "stream.column"),
        ([E, W], {"select": "e.x,"}, "", "stream.column"),
        ([E, W], {"window": None}, "window", "WITHIN 15 SECONDS"),
        ([E, W], {"window": TimeWindow((1,))}, "window", "one for each"),
        ([E, W], {"window": "5"}, "window", "unit"),
    ],
)
def test_refused(streams: Any, arguments: dict[str, Any], name: str, hint: str) -> None:
    with pytest.raises(StreamJoinError) as caught:
        Join(streams, **{"window": "1m", **arguments})
    assert caught.value.name == name
    assert hint in caught.value.hint


def test_kinds_of_error() -> None:
    with pytest.raises(WindowError, match="no window is given for the stream 'w'"):
        two(window={"e": "1s"})
    with pytest.raises(ColumnError, match="select names the stream 'v'"):
        two(select=["v.x"])
    with pytest.raises(ArgumentError, match=r"'e\.x = v\.x' names the stream 'v'"):
        two("e.x = v.x")
    for kind in (WindowError, ColumnError, ArgumentError, PredicateError):
        assert issubclass(kind, ValueError)


def test_no_predicates_is_a_cross_product() -> None:
    assert two().predicates == two([]).predicates == ()


def test_selection_defaults_to_everything() -> None:
    assert two().select == ("e.*", "w.*")
    assert two(select="e.x, w.*").select == two(select=["e.x", "w.*"]).select == ("e.x", "w.*")


def test_declared_schemas_are_checked_at_once() -> None:
    streams = [Stream(name, schema={"ts": "timestamp", "x": "string"}) for name in ("e", "w")]
    Join(streams, "e.x = w.x", "1m")
    with pytest.raises(PredicateError, match="difference"):
        Join(streams, "abs(e.x - w.x) <= 1", "1m")


bounds = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**30), 10**30, allow_nan=False),
    st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
)


@given(bounds, bounds, st.booleans(), st.integers(0, 10**12))
def test_json_brings_back_an_equal_join(one: Any, other: Any, included: bool, window_us: int) -> None:
    if isinstance(one, timedelta) != isinstance(other, timedelta):
        other = one
    lo, hi = sorted((one, other))
    on = [Band(Column("e", "a.b"), Column("w", "c`d"), lo, hi), equal("e.x", "w.x"), not_equal("w.id", "e.id")]
    streams = [
        Stream("e", Generator("sensor", {"rate": 0.1, "seed": 3})),
        Stream("w", "w.csv", delay="1s", time="when"),
    ]
    join = Join(streams, on, TimeWindow((window_us, 0)), ["e.`a.b`", "w.*"], include_self_pairs=included)
    again = Join.from_facts(json.loads(json.dumps(join.to_facts())))
    assert again == join
    assert again.to_facts() == join.to_facts()
    for before, after in zip(join.predicates, again.predicates, strict=True):
        if isinstance(before, Band) and isinstance(after, Band):
            assert isinstance(before.lo, float) == isinstance(after.lo, float)
            assert repr(float(before.lo)) == repr(float(after.lo)) if isinstance(before.lo, float) else True


@pytest.mark.parametrize(
    ("on", "left", "right"),
    [
        (band("e.x", "w.x", 0.1), pa.float64(), pa.float32()),
        (band("e.x", "w.x", Decimal("0.1")), pa.float64(), pa.int32()),
        (band("e.x", "w.x", lo=-3, hi=2**62), pa.uint32(), pa.int8()),
        (band("w.x", "e.x", lo="-5s", hi="1h"), pa.timestamp("ms"), pa.timestamp("ns", tz="UTC")),
        (band("e.x", "w.x", "2d"), pa.date32(), pa.date64()),
        (band("e.x", "w.x", Decimal("0.3")), pa.decimal128(10, 2), pa.decimal64(9, 2)),
        ("e.x = w.x", pa.string(), pa.dictionary(pa.int8(), pa.string())),
        ("e.x = w.x", pa.bool_(), pa.bool_()),
        ("w.x <> e.x AND w.x = e.x", pa.large_binary(), pa.binary(4)),
        ((), pa.list_(pa.struct([pa.field("a", pa.uint8(), False)])), pa.null()),
    ],
)
def test_json_brings_back_an_equal_bound_join(on: Any, left: pa.DataType, right: pa.DataType) -> None:
    bound = bound_pair(on, left, right)
    again = bound_from_facts(json.loads(json.dumps(bound.to_facts())))
    assert again == bound
    assert again.fingerprint == bound.fingerprint
    assert again.result_schema.equals(bound.result_schema, check_metadata=True)
    assert again.to_facts() == bound.to_facts()


def test_a_subclass_comes_back_as_itself() -> None:
    class MyJoin(Join):
        pass

    join = MyJoin([E, W], "e.x = w.x", "1m")
    again = MyJoin.from_facts(join.to_facts())
    assert type(again) is MyJoin
    assert again == join
    bound = bind(join, {"e": schema(x=pa.int8()), "w": schema(x=pa.int8())})
    assert bound_from_facts(bound.to_facts()).fingerprint == bound.fingerprint


def test_a_self_join_sets_no_files_aside() -> None:
    """A file that is set aside moves the numbers after it, but by its number a self-join knows a tuple as itself."""
    streams = [Stream(name, source="data/", on_bad_file=kind) for name, kind in (("a", "stop"), ("b", "quarantine"))]
    with pytest.raises(ArgumentError, match="the input of b is read twice") as caught:
        Join(streams, "abs(a.x - b.x) <= 1", "1s")
    assert caught.value.name == "on_bad_file"
    assert (
        Join(streams, "abs(a.x - b.x) <= 1", "1s", include_self_pairs=True).streams[1].source.on_bad_file
        == "quarantine"
    )
    Join([streams[0], Stream("b", source="others/", on_bad_file="quarantine")], "abs(a.x - b.x) <= 1", "1s")


@pytest.mark.parametrize(
    ("option", "one", "other"),
    [("format", "delta", "results"), ("on_change", "stop", "ignore"), ("starting_version", None, 3)],
)
def test_a_self_join_reads_its_table_in_one_way(option: str, one: object, other: object) -> None:
    streams = [Stream(name, "table/", **{option: value}) for name, value in (("a", one), ("b", other))]  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="is read twice") as caught:
        Join(streams, "abs(a.x - b.x) <= 1", "1s")
    assert caught.value.name == option
    Join(streams, "abs(a.x - b.x) <= 1", "1s", include_self_pairs=True)
    Join([Stream("a", "t.csv"), Stream("b", "t.csv", format="csv")], "abs(a.x - b.x) <= 1", "1s")
