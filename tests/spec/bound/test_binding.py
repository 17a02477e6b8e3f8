"""Binding a join to types: keys, orientation, the result's columns, and errors that help."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ColumnError, PredicateError, StreamJoinError
from streamjoin_ds.spec import Condition, Join, Key, Stream, band, bind, equal
from streamjoin_ds.spec.columns import SEQ, TS
from tests.spec.joins import TIME, bound_pair, schema, two

UTC = pa.timestamp("us", tz="UTC")


def test_the_time_rule_is_the_first_condition_of_each_pair() -> None:
    names = ("a", "b", "c")
    join = Join([Stream(name) for name in names], (), {"a": "1s", "b": "2s", "c": "3s"})
    bound = bind(join, dict.fromkeys(names, pa.schema([TIME])))
    assert [(c.left_stream, c.right_stream, c.left_key, c.right_key, c.lo, c.hi) for c in bound.conditions] == [
        (0, 1, 0, 0, -1_000_000, 2_000_000),
        (0, 2, 0, 0, -1_000_000, 3_000_000),
        (1, 2, 0, 0, -2_000_000, 3_000_000),
    ]
    assert bound.keys == ((Key("ts", "int"),),) * 3


@pytest.mark.parametrize(("left", "right", "lo", "hi"), [("e.x", "w.x", -3, 5), ("w.x", "e.x", -5, 3)])
def test_conditions_point_from_the_first_stream_to_the_second(left: str, right: str, lo: int, hi: int) -> None:
    bound = bound_pair(band(left, right, lo=lo, hi=hi), pa.int32(), pa.int64())
    assert bound.conditions[1] == Condition(0, 1, 1, 1, "int", -3, 5, "e.x - w.x BETWEEN -3 AND 5")


def test_residuals_point_the_same_way() -> None:
    for text in ("e.x <> w.x", "w.x <> e.x"):
        (term,) = bound_pair(text, pa.string(), pa.string()).terms
        assert (term.streams, term.text, term.condition.op) == ((0, 1), "e.x <> w.x", "<>")


def test_strings_are_found_by_hash_and_decided_by_value() -> None:
    bound = bound_pair("w.x = e.x", pa.string(), pa.large_string())
    assert bound.keys[0] == (Key("ts", "int"), Key("x", "hash"))
    assert bound.conditions[1].kind == "hash"
    assert [(term.streams, term.text) for term in bound.terms] == [((0, 1), "e.x = w.x")]


def test_a_column_compared_as_float_and_as_integer_has_two_keys() -> None:
    join = two("abs(e.x - w.f) <= 1 AND e.x = w.i")
    bound = bind(join, {"e": schema(x=pa.int32()), "w": schema(f=pa.float32(), i=pa.int64())})
    assert bound.keys[0] == (Key("ts", "int"), Key("x", "float"), Key("x", "int"))
    assert bound.keys[1] == (Key("ts", "int"), Key("f", "float"), Key("i", "int"))


def test_one_key_serves_several_conditions() -> None:
    names = ("a", "b", "c")
    join = Join([Stream(name) for name in names], "a.x = b.x AND b.x = c.x AND abs(a.x - c.x) <= 1", "1m")
    bound = bind(join, dict.fromkeys(names, schema(x=pa.int32())))
    assert all(keys == (Key("ts", "int"), Key("x", "int")) for keys in bound.keys)
    assert len(bound.conditions) == 3 + 3


def test_order_and_repetition_of_predicates_do_not_matter() -> None:
    schemas = {name: schema(x=pa.int32(), y=pa.float64(), s=pa.string()) for name in ("e", "w")}
    texts = ["abs(e.x - w.x) <= 2", "e.s = w.s", "abs(w.y - e.y) <= 0.5", "e.s <> w.s"]
    one = bind(two(texts), schemas)
    other = bind(two([*reversed(texts), "w.s = e.s", "abs(w.x - e.x) <= 2.0", "w.x - e.x BETWEEN -2 AND 2"]), schemas)
    assert (one.keys, one.conditions, one.terms) == (other.keys, other.conditions, other.terms)


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.date32(), pa.timestamp("s"), pa.uint32()])
def test_an_event_time_is_compared_as_time_whatever_it_was_in_the_file(kind: pa.DataType) -> None:
    join = Join(
        [Stream("e", time_unit="s"), Stream("w", time_unit="s")], "abs(e.ts - w.ts) <= INTERVAL 5 SECONDS", "1h"
    )
    bound = bind(join, dict.fromkeys(("e", "w"), pa.schema([("ts", kind)])))
    assert (bound.conditions[1].lo, bound.conditions[1].hi) == (-5_000_000, 5_000_000)
    assert (bound.conditions[1].left_key, bound.conditions[1].right_key) == (0, 0)
    assert bound.keys == ((Key("ts", "int"),),) * 2
    assert bound.schemas[0].field("ts").type == UTC
    number = Join([Stream("e", time_unit="s"), Stream("w", time_unit="s")], "abs(e.ts - w.ts) <= 5", "1h")
    with pytest.raises(PredicateError, match="no unit") as caught:
        bind(number, dict.fromkeys(("e", "w"), pa.schema([("ts", kind)])))
    assert "INTERVAL 5 SECONDS" in caught.value.hint


def test_tuples_inside_the_house() -> None:
    bound = bind(
        two("e.x = w.x", select=["e.y"]),
        {name: schema(x=pa.uint8(), y=pa.string(), z=pa.bool_()) for name in ("e", "w")},
    )
    assert bound.schemas[0].names == ["ts", "x", "y"]
    assert bound.schemas[1].names == ["ts", "x"]
    assert bound.tuple_schema(0).names == [TS, SEQ, "x", "y"]
    assert bound.tuple_schema(0).field("x").type == pa.int16()
    assert not bound.tuple_schema(0).field(TS).nullable
    assert not bound.tuple_schema(0).field(SEQ).nullable


def test_the_result_and_what_is_never_null_in_it() -> None:
    columns = {"b": pa.float64(), "n": pa.int8(), "h": pa.string(), "free": pa.string()}
    bound = bind(
        two("abs(e.b - w.b) <= 1 AND e.n <> w.n AND e.h = w.h"), {"e": schema(**columns), "w": schema(**columns)}
    )
    expected = [f"{stream}_{name}" for stream in ("e", "w") for name in ("ts", *columns)]
    assert bound.result_schema.names == [*expected, "e_seq", "w_seq", "event_time", "batch_id"]
    nullable = {field.name for field in bound.result_schema if field.nullable}
    assert nullable == {"e_free", "w_free"}
    assert bound.result_schema.field("event_time").type == UTC


def test_a_column_that_cannot_be_null_stays_so() -> None:
    never = pa.schema([TIME, pa.field("x", pa.int8(), nullable=False)])
    assert not bind(two(), {"e": never, "w": never}).result_schema.field("e_x").nullable


def test_a_selected_column_gets_the_name_that_is_given() -> None:
    schemas = {"e": schema(x=pa.float64(), y=pa.int64()), "w": schema(x=pa.float64())}
    bound = bind(two(select="e.x AS a, e.x, w.`x` as `b``c`"), schemas)
    assert [(column.name, column.stream, column.column) for column in bound.result] == [
        ("a", 0, "x"), ("e_x", 0, "x"), ("b`c", 1, "x"),
    ]  # fmt: skip
    assert bound.result_schema.field("a").type == pa.float64()
    assert bound.fingerprint != bind(two(select="e.x AS d, e.x, w.`x` as `b``c`"), schemas).fingerprint
    with pytest.raises(ColumnError, match="collides"):
        bind(two(select="e.x AS a, w.x AS A"), schemas)
    with pytest.raises(ColumnError, match="Delta does not allow"):
        bind(two(select="e.x AS `a b`"), schemas)
    with pytest.raises(ColumnError, match="one name to all columns"):
        two(select="e.* AS a")


def test_selection_keeps_the_streams_order_and_each_column_once() -> None:
    schemas = {name: schema(x=pa.int8(), y=pa.int8()) for name in ("e", "w")}
    bound = bind(two(select=["w.y", "e.`y`", "e.x", "e.y", "w.*"]), schemas)
    assert [column.name for column in bound.result] == ["e_y", "e_x", "w_y", "w_ts", "w_x"]
    assert bind(two(select=[]), schemas).result_schema.names == ["e_seq", "w_seq", "event_time", "batch_id"]


@pytest.mark.parametrize(
    ("arguments", "columns", "name", "hint"),
    [
        ({"on": "e.latitud = w.x"}, {"latitude": pa.int8()}, "e.latitud", "did you mean 'latitude'?"),
        ({"on": "e.X = w.x"}, {"x": pa.int8()}, "e.X", "did you mean 'x', as names are case-sensitive"),
        ({"on": "e.nothing = w.x"}, {"x": pa.int8()}, "e.nothing", "its columns are ts, x"),
        ({"select": ["w.X"]}, {"x": pa.int8()}, "w.X", "did you mean 'x', as names are case-sensitive"),
        ({"select": ["e.seq"]}, {"seq": pa.int8()}, "e_seq", "give it another name"),
        ({}, {"seq": pa.int8()}, "e_seq", "leave it out with select"),
        ({}, {"SEQ": pa.int8()}, "e_SEQ", "Delta ignores case"),
        ({}, {"x": pa.int8(), "X": pa.int8()}, "e_X", "Delta ignores case"),
        ({}, {TS: pa.int64()}, TS, "rename the column"),
        ({}, {SEQ: pa.int64()}, SEQ, "rename the column"),
        ({"on": "e._seq = w._seq", "select": ["e.ts"]}, {SEQ: pa.int64()}, SEQ, "rename the column"),
        ({}, {"x": pa.month_day_nano_interval()}, "e.x", "leave it out with select"),
        ({"on": "e.x = w.x", "select": ["e.ts"]}, {"x": pa.list_(pa.month_day_nano_interval())}, "e.x", "cast it"),
    ],
)
def test_columns_that_cannot_be(
    arguments: dict[str, Any], columns: dict[str, pa.DataType], name: str, hint: str
) -> None:
    with pytest.raises(ColumnError) as caught:
        bind(two(**arguments), {"e": schema(**columns), "w": schema(**{"x": pa.int8(), **columns})})
    assert caught.value.name == name
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("streams", "columns", "name"),
    [
        (("event", "w"), {"time": pa.int8()}, "event_time"),
        (("batch", "w"), {"id": pa.int8()}, "batch_id"),
        (("a", "a_b"), {"b_seq": pa.int8()}, "a_b_seq"),
        (("a", "a_b"), {"b_x": pa.int8(), "x": pa.int8()}, "a_b_x"),
    ],
)
def test_names_that_collide_across_streams(
    streams: tuple[str, str], columns: dict[str, pa.DataType], name: str
) -> None:
    join = Join([Stream(stream) for stream in streams], window="1m")
    with pytest.raises(ColumnError, match="collides") as caught:
        bind(join, dict.fromkeys(streams, schema(**columns)))
    assert caught.value.name == name


def test_what_is_not_wanted_may_be_anything() -> None:
    odd = pa.schema([TIME, ("x", pa.int8()), ("a b", pa.duration("s")), ("seq", pa.uint64()), (TS, pa.int8())])
    bound = bind(two("e.x = w.x", select=["e.x"]), {"e": odd, "w": odd})
    assert bound.schemas[0].names == ["ts", "x"]


def test_schemas_that_cannot_be() -> None:
    with pytest.raises(ColumnError, match="no schema") as caught:
        bind(two(), {"e": schema()})
    assert caught.value.name == "w"
    twice = pa.schema([TIME, ("x", pa.int8()), ("x", pa.int16())])
    with pytest.raises(ColumnError, match="more than one") as caught:
        bind(two(select=["w.ts"]), {"e": twice, "w": schema()})
    assert caught.value.name == "e.x"
    with pytest.raises(ColumnError, match="no column 'ts'"):
        bind(two(), {"e": pa.schema([("x", pa.int8())]), "w": schema()})


def test_a_long_list_of_columns_is_cut() -> None:
    wide = schema(**{f"column{n:04}": pa.int8() for n in range(3000)})
    with pytest.raises(ColumnError) as caught:
        bind(two("e.zzz = w.zzz"), {"e": wide, "w": wide})
    assert "and 2981 more" in caught.value.hint
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("on", "left", "right", "why"),
    [
        ("abs(e.x - w.x) <= 1", pa.string(), pa.string(), "which have no difference"),
        ("abs(e.x - w.x) <= 1", pa.bool_(), pa.bool_(), "which have no difference"),
        ("abs(e.x - w.x) <= 1", pa.binary(), pa.binary(), "which have no difference"),
        ("abs(e.x - w.x) <= 1", pa.string(), pa.int64(), "compares string with int64"),
        ("e.x = w.x", pa.string(), pa.int64(), "compares string with int64"),
        ("e.x = w.x", pa.bool_(), pa.int64(), "compares bool with int64"),
        ("e.x = w.x", pa.list_(pa.int8()), pa.list_(pa.int16()), "compares list<int8> with list<int16>"),
        ("e.x <> w.x", pa.list_(pa.int8()), pa.list_(pa.int16()), "compares list<int8> with list<int16>"),
        ("e.x = w.x", pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), "compares list<int8> with struct<a: int8>"),
        ("e.x = w.x", pa.list_(pa.int8()), pa.string(), "compares list<int8> with string"),
        ("e.x <> w.x", pa.list_(pa.int8()), pa.string(), "compares list or struct with string"),
        ("abs(e.x - w.x) <= 1", pa.list_(pa.int8()), pa.list_(pa.int8()), "which have no difference"),
        ("coalesce(e.x, w.x) = e.x", pa.list_(pa.int8()), pa.list_(pa.int8()), "chooses among lists or structs"),
        ("e.x = w.x", pa.date32(), pa.timestamp("us"), "compares date32"),
        ("abs(e.x - w.x) <= 1", pa.timestamp("us"), pa.timestamp("us"), "no unit"),
        ("abs(e.x - w.x) <= 1", pa.date32(), pa.date32(), "no unit"),
        ("abs(e.x - w.x) <= INTERVAL 1 DAY", pa.int64(), pa.int64(), "with a duration"),
        ("abs(e.x - w.x) <= INTERVAL 1 DAY", pa.float64(), pa.float64(), "with a duration"),
        ("abs(e.x - w.x) <= INTERVAL 1 DAY", pa.decimal128(9, 2), pa.decimal128(9, 2), "with a duration"),
        ("e.x <> w.x", pa.string(), pa.int64(), "compares string with number"),
        ("e.x < w.x", pa.list_(pa.int8()), pa.list_(pa.int8()), "compares list or struct values by '<'"),
        ("e.x > w.x", pa.bool_(), pa.bool_(), "compares boolean values by '<'"),
        ("e.x > '2024-01-01'", pa.timestamp("us"), pa.int8(), "compares string with timestamp"),
        ("NOT w.x <= e.x", pa.string(), pa.float64(), "'e.x < w.x' compares string with float, in 'NOT (w.x <= e.x)'"),
        ("e.x - w.x > 5", pa.timestamp("us"), pa.timestamp("us"), "compares number with interval"),
        ("e.x + w.x > 5", pa.timestamp("us"), pa.timestamp("us"), "timestamp + timestamp, which is not defined"),
        ("e.x * INTERVAL 1 DAY > INTERVAL 1 DAY", pa.decimal128(9, 2), pa.int8(), "number * interval"),
        ("-e.x > 5", pa.string(), pa.int8(), "needs a number or a duration, not string"),
        ("NOT e.x", pa.int8(), pa.int8(), "where a condition belongs"),
        ("e.x OR w.x > 1", pa.float64(), pa.int8(), "where a condition belongs"),
        ("e.x", pa.string(), pa.int8(), "is of type string, not a condition"),
        ("e.x * e.x * w.x * w.x > 1", pa.int64(), pa.int64(), "more than 76 digits"),
        ("e.x * w.x > 1", pa.decimal128(38, 2), pa.decimal128(38, 2), "more than 76 digits"),
        ("e.x > w.x", pa.decimal128(38, 38), pa.decimal128(38, 0), "more than 76 digits"),
    ],
)
def test_types_that_cannot_be_compared(on: str, left: pa.DataType, right: pa.DataType, why: str) -> None:
    with pytest.raises(PredicateError) as caught:
        bound_pair(on, left, right)
    assert why in caught.value.message
    assert caught.value.name == "e.x"


@pytest.mark.parametrize(
    ("on", "kind", "hint"),
    [
        ("e.x + 1 > w.x", pa.string(), "CAST(w.x AS DOUBLE) makes a number of the text"),
        ("NOT (e.x + 1 > w.x)", pa.string(), "CAST(w.x AS DOUBLE) makes a number of the text"),
        ("w.x = 'a'", pa.float64(), "write a number without quotes"),
        ("w.x IN (1, 'a')", pa.int64(), "write a number without quotes"),
        ("w.x <> 'true'", pa.bool_(), "CAST('true' AS BOOLEAN) makes a truth value of the text"),
        ("w.x > '2024-01-01'", pa.timestamp("us"), "write TIMESTAMP '2024-01-31 12:00:00'"),
        ("w.x > '2024-01-01'", pa.date32(), "write DATE '2024-01-31'"),
        ("w.x > '12:00'", pa.time64("us"), "write TIME '12:00:00'"),
        ("w.x - w.x > 5", pa.timestamp("us"), "write INTERVAL 5 SECONDS for a duration"),
        ("w.x < TIME '12:00'", pa.timestamp("us"), "cast one of them in the input"),
    ],
)
def test_a_hint_says_how_two_types_are_compared(on: str, kind: pa.DataType, hint: str) -> None:
    with pytest.raises(PredicateError) as caught:
        bound_pair(on, pa.float64(), kind)
    assert caught.value.hint == hint
    assert caught.value.hint


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int8(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.decimal128(9, 2), pa.decimal128(30, 2)),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.decimal128(9, 2), pa.int64()),
        (pa.decimal128(9, 2), pa.float32()),
        (pa.date32(), pa.timestamp("us")),
        (pa.bool_(), pa.bool_()),
        (pa.timestamp("s"), pa.timestamp("ns", tz="UTC")),
    ],
)
def test_types_that_can_be_unequal(left: pa.DataType, right: pa.DataType) -> None:
    assert len(bound_pair("e.x <> w.x", left, right).terms) == 1


def test_dotted_and_quoted_names_are_bound() -> None:
    odd = pa.schema([TIME, ("PM2.5", pa.float64()), ("a`b", pa.int8())])
    bound = bind(two('abs(e."PM2.5" - w.`PM2.5`) <= 5', select=["e.PM2.5", "w.`a``b`"]), {"e": odd, "w": odd})
    assert bound.result_schema.names[:2] == ["e_PM2.5", "w_a`b"]
    assert bound.keys[0][1] == Key("PM2.5", "float")


@pytest.mark.parametrize(
    ("on", "kind", "name", "words"),
    [
        (equal("e.x", "w.y"), ColumnError, "w.y", "no column 'y'"),
        (band("e.x", "w.x", 10**300), PredicateError, "e.x", "outside the 64-bit integers"),
        ("abs(e.x - w.x) <= 1e300", PredicateError, "e.x", "outside the 64-bit integers"),
    ],
)
def test_every_error_is_ours(on: Any, kind: type[StreamJoinError], name: str, words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        bound_pair(on, pa.int64(), pa.int64())
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.decimal128(9, 2), pa.int64()),
        (pa.decimal128(9, 2), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.decimal128(38, 2), pa.decimal128(38, 2)),
    ],
)
def test_decimals_beside_other_numbers_are_found_by_limits_and_decided_exactly(
    left: pa.DataType, right: pa.DataType
) -> None:
    time = ("ts", pa.timestamp("us", tz="UTC"))
    for on in ("e.x = w.x", "abs(e.x - w.x) <= 0.3"):
        bound = bind(
            Join([Stream("e"), Stream("w")], on, "1m"),
            {"e": pa.schema([time, ("x", left)]), "w": pa.schema([time, ("x", right)])},
        )
        assert len(bound.conditions) == bound.window_conditions
        assert bound.terms
        assert [len(one.bounds) for one in bound.finders.intervals] == [2]
