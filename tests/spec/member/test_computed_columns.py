from __future__ import annotations

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError, ColumnError, PredicateError
from streamjoin_ds.spec import Join, Stream, bind, bound_from_facts
from streamjoin_ds.spec.columns import TIMESTAMP
from streamjoin_ds.spec.member.computed_columns import all_columns

WRITTEN = pa.schema([("ts", TIMESTAMP), ("kn", pa.float64()), ("n", pa.int64()), ("t", pa.string())])
W = Stream("w", schema={"ts": "timestamp[us]", "x": "double"})
SPEED = {"m": "kn * 0.5"}


def bound(stream: Stream, on: str = "abs(e.m - w.x) <= 1", select: str | None = "e.m, w.x"):  # type: ignore[no-untyped-def]
    return bind(Join([stream, W], on, "10s", select), {"e": WRITTEN, "w": W.schema})


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("kn * 0.5", pa.float64()),
        ("n + 1", pa.int64()),
        ("e.n", pa.int64()),
        ("cast(n as decimal(12, 2))", pa.decimal128(12, 2)),
        ("t || 'x'", pa.string()),
        ("n > 3", pa.bool_()),
        ("ts + INTERVAL 1 HOUR", TIMESTAMP),
        ("cast(ts as date)", pa.date32()),
    ],
)
def test_a_computed_column_has_the_type_of_its_expression(expression: str, kind: pa.DataType) -> None:
    found = all_columns(Stream("e", columns={"c": expression}), WRITTEN)
    assert found.names == [*WRITTEN.names, "c"]
    assert found.field("c").type == kind


def test_the_three_ways_of_writing_columns_are_one() -> None:
    given = [{"a": "n + 1", "b": "t || ','"}, "n + 1 AS a, t || ',' AS b", ["n + 1 AS a", "t || ',' AS b"]]
    assert len({Stream("e", columns=one).columns for one in given}) == 1


def test_only_the_written_columns_that_are_used_are_read() -> None:
    found = bound(Stream("e", columns=SPEED | {"unused": "t || 'x'"}))
    assert found.read_schemas[0].names == ["ts", "m"]
    assert found.written_schemas[0].names == ["ts", "kn"]


def test_a_column_may_take_the_place_of_a_written_one_which_its_expression_reads() -> None:
    found = all_columns(Stream("e", columns={"t": "cast(t as int)", "u": "t || 'x'"}), WRITTEN)
    assert [found.field(name).type for name in ("t", "u")] == [pa.int32(), pa.string()]


def test_a_name_that_is_computed_alone_stands_for_its_expression() -> None:
    found = bound(Stream("e", columns={"m": "half + 1", "half": "kn / 2"}))
    assert found.written_schemas[0].names == ["ts", "kn"]
    with pytest.raises(ColumnError, match="'a' of stream e is computed of itself"):
        bound(Stream("e", columns=SPEED | {"a": "b + 1", "b": "a + 1"}))


def test_a_schema_states_the_type_of_a_computed_column() -> None:
    stream = Stream("e", schema={"ts": "timestamp[us]", "n": "int64", "c": "decimal128(9, 1)"}, columns={"c": "n / 3"})
    assert stream.schema is not None
    assert stream.schema.names == ["ts", "n"]
    assert all_columns(stream, stream.schema).field("c").type == pa.decimal128(9, 1)
    other = Stream("e", schema={"ts": "timestamp[us]", "n": "int64", "c": "list<int64>"}, columns={"c": "n / 3"})
    with pytest.raises(ColumnError, match=r"declared as list<item: int64>"):
        all_columns(other, WRITTEN)


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"m": "no_such * 2"}, ColumnError, "no column 'no_such', of which 'm' is computed"),
        ({"m": "kn * t"}, PredicateError, "calculates float \\* string"),
        ({"m": "w.x * 2"}, ColumnError, "no column 'w.x', of which 'm' is computed"),
        ({"m": "kn *"}, PredicateError, "cannot read the expression"),
        ("kn * 2", ArgumentError, "an expression without a name"),
        ("cast(kn as int)", ArgumentError, "an expression without a name"),
        ("kn AS a, n AS a", ArgumentError, "names 'a' twice"),
        ({"_ts": "kn"}, ArgumentError, "which the join itself uses"),
        (7, ArgumentError, "no mapping of names to expressions"),
    ],
)
def test_what_is_no_computed_column_is_refused(columns: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        bound(Stream("e", columns=columns))


def test_a_bound_join_is_the_same_after_it_was_written_down() -> None:
    stream = Stream("e", columns={"n": "n * 2", "m": "n + kn"}, where="n > 3")
    found = bound(stream, select="e.n, e.t, e.m")
    again = bound_from_facts(found.to_facts())
    assert again.fingerprint == found.fingerprint
    assert again.read_schemas == found.read_schemas
    assert again.join.streams[0].columns == found.join.streams[0].columns


@pytest.mark.parametrize("on", ["abs(e.m - w.x) <= 1", "e.ts = w.ts"])
def test_a_bound_join_is_read_back_where_a_computed_column_is_not_used(on: str) -> None:
    found = bound(Stream("e", columns=SPEED | {"unused": "t || 'x'", "third": "unused || 'y'"}), on, "w.x")
    again = bound_from_facts(bound_from_facts(found.to_facts()).to_facts())
    assert again.fingerprint == found.fingerprint
    assert again.written_schemas == found.written_schemas


def test_what_a_used_column_is_made_of_is_a_join_s_identity() -> None:
    one = bound(Stream("e", columns=SPEED))
    assert bound(Stream("e", columns={"m": "kn * 0.6"})).fingerprint != one.fingerprint
    assert bound(Stream("e", columns=SPEED | {"unused": "n + 1"})).fingerprint == one.fingerprint
    assert bound(Stream("e", columns={"m": "try_cast(t as double)"})).fingerprint != (
        bound(Stream("e", columns={"m": "cast(t as double)"})).fingerprint
    )


def test_the_event_time_may_be_computed() -> None:
    stream = Stream("e", columns={"ts": "t || 'Z'", "m": "kn"})
    found = bound(stream)
    assert found.read_schemas[0].field("ts").type == TIMESTAMP
    assert found.written_schemas[0].names == ["t", "kn"]
    with pytest.raises(ColumnError, match="cannot be an event time"):
        bound(Stream("e", columns={"ts": "n > 3", "m": "kn"}))


DATED = pa.schema([("Date", pa.date32()), ("Time", pa.string()), ("kn", pa.float64())])


@pytest.mark.parametrize(
    ("time", "schema"),
    [
        ("Date || ' ' || Time", DATED),
        ("to_timestamp(n / 1000)", pa.schema([("n", pa.int64()), ("kn", pa.float64())])),
        ("(week * 604800 + second)", pa.schema([("week", pa.int32()), ("second", pa.float64()), ("kn", pa.float64())])),
        ("`a (s)` || 'Z'", pa.schema([("a (s)", pa.string()), ("kn", pa.float64())])),
    ],
)
def test_the_time_may_be_an_expression_which_makes_the_column_ts(time: str, schema: pa.Schema) -> None:
    stream = Stream("e", time=time, columns={"m": "kn"})
    assert stream.time == "ts"
    found = bind(Join([stream, W], "abs(e.m - w.x) <= 1", "10s"), {"e": schema, "w": W.schema})
    assert found.read_schemas[0].field("ts").type == TIMESTAMP
    assert found.read_schemas[0].names == [*schema.names, "ts", "m"]
    assert bound_from_facts(found.to_facts()).fingerprint == found.fingerprint


@pytest.mark.parametrize(
    "time", ["Date/Time", "Date Time", "time (s)", "Timestamp(UTC)", "t-1", "a.b", "max(ts)", "it's"]
)
def test_an_ordinary_name_of_a_column_stays_a_name(time: str) -> None:
    assert Stream("e", time=time).time == time


def test_a_column_whose_name_reads_as_an_expression_is_the_time_all_the_same() -> None:
    schema = pa.schema([("hour(UTC)", TIMESTAMP), ("kn", pa.float64())])
    assert Stream("e", time="hour(UTC)", schema=schema).time == "hour(UTC)"
    stream = Stream("e", time="lower(UTC)", columns={"m": "kn"})
    schema = pa.schema([("lower(UTC)", TIMESTAMP), ("kn", pa.float64())])
    found = bind(Join([stream, W], "abs(e.m - w.x) <= 1", "10s"), {"e": schema, "w": W.schema})
    assert found.written_schemas[0].names == ["lower(UTC)", "kn"]


def test_an_expression_as_time_needs_the_name_ts() -> None:
    stream = Stream("e", time="t || 'Z'", columns=SPEED)
    with pytest.raises(ColumnError, match="the stream has a column 'ts' already") as told:
        bound(stream)
    assert "columns={'at': " in told.value.hint
    named = Stream("e", time="at", columns={"at": "t || 'Z'", **SPEED})  # as the hint says
    assert bound(named).written_schemas[0].names == ["t", "kn"]
    with pytest.raises(ArgumentError, match="columns has a column 'ts' beside it"):
        Stream("e", time="t || 'Z'", columns={"ts": "n"})
