"""Random conditions over columns of every type, and rows for them, for tests of whatever decides conditions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamjoin_ds.spec import Call, Column, Expression, Literal
from streamjoin_ds.spec.expression.tree import COMPARISONS, call

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
NUMBERS = [-7, -2, -1, 0, 1, 2, 3, 10]

# The columns of each family of types, with their types and the values to choose from.
COLUMNS: dict[str, dict[str, tuple[pa.DataType, list[Any]]]] = {
    "number": {
        "i8": (pa.int8(), [*NUMBERS, -128, 127]),
        "i32": (pa.int32(), [*NUMBERS, -(2**31), 2**31 - 1]),
        "i64": (pa.int64(), [*NUMBERS, INT64_MIN, INT64_MIN + 1, INT64_MAX, 2**53 + 1]),
        "j64": (pa.int64(), [*NUMBERS, INT64_MIN, INT64_MAX]),
        "d2": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (-250, -100, -1, 0, 1, 50, 100, 300)]),
        "d5": (pa.decimal128(18, 5), [Decimal(n).scaleb(-5) for n in (-100000, -1, 0, 1, 50000, 10**18 - 1)]),
    },
    "float": {
        "f": (pa.float64(), [*map(float, NUMBERS), 0.5, 0.1, -0.0, math.nan, math.inf, -math.inf, 2.0**53, 1e308]),
        "g": (pa.float32(), [*map(float, NUMBERS), 0.5, math.nan, math.inf]),
    },
    "timestamp": {"t": (pa.timestamp("us", tz="UTC"), [EPOCH + timedelta(seconds=n) for n in (-1, 0, 1, 43200)])},
    "date": {"day": (pa.date32(), [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1), date(1, 1, 1)])},
    "string": {"s": (pa.string(), ["", "a", "b", "it's", "\u00e4", "Z"]), "u": (pa.string(), ["", "a", "ab"])},
    "boolean": {"b": (pa.bool_(), [True, False]), "c": (pa.bool_(), [True, False])},
}
SCHEMA = pa.schema([(name, kind) for family in COLUMNS.values() for name, (kind, _) in family.items()])
LITERALS: dict[str, list[Any]] = {
    "number": [0, 1, -1, 2, 3, 7, 2**63, -(2**63) - 1, Decimal("0.5"), Decimal("0.10"), Decimal("-2.500001")],
    "float": [Decimal("1e100")],
    "timestamp": [EPOCH, EPOCH + timedelta(microseconds=1)],
    "date": [date(2024, 2, 29), date(2024, 3, 1)],
    "interval": [timedelta(0), timedelta(seconds=1), timedelta(hours=-12), timedelta(days=1)],
    "string": ["", "a", "it's", "\u00e4"],
    "boolean": [True, False],
}

UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"]
FIELDS = ["year", "quarter", "month", "week", "day", "dayofweek", "doy", "hour", "minute", "second"]


@st.composite
def values(draw: st.DrawFn, family: str, depth: int, streams: Sequence[str]) -> Expression:
    """Draw an expression whose values are of this family."""
    kind = draw(st.integers(0, 5))
    if family == "boolean" and depth and kind > 1:
        return draw(conditions(depth - 1, streams))
    if depth and kind > 2:
        if family in ("number", "float"):
            if draw(st.booleans()):
                return draw(functions(family, depth - 1, streams))
            of_floats = ["/", "+", "*", "%", "sqrt"]
            op = draw(st.sampled_from(["+", "-", "*", "%", "neg", "abs"] if family == "number" else of_floats))
            sides = ("number", "number") if family == "number" else draw(st.permutations(["float", "number"]))
            operands = [draw(values(side, depth - 1, streams)) for side in sides]
            return Call(op, tuple(operands[: 1 if op in ("neg", "abs", "sqrt") else 2]))
        if family == "string" or (family == "timestamp" and kind == 5):
            return draw(functions(family, depth - 1, streams))
        if family == "interval":
            times = [draw(values(draw(st.sampled_from(["timestamp", "date"])), depth - 1, streams)) for _ in "lr"]
            return draw(
                st.sampled_from(
                    [call("-", *times), call("*", call("-", *times), Literal(2)), call("neg", call("-", *times))]
                )
            )
        if family == "timestamp":
            return call(
                draw(st.sampled_from("+-")), *(draw(values(f, depth - 1, streams)) for f in ("timestamp", "interval"))
            )
    if kind == 0 or family == "interval":
        return Literal(draw(st.sampled_from([*LITERALS[family], None] if kind == 0 else LITERALS[family])))
    return Column(draw(st.sampled_from(streams)), draw(st.sampled_from(sorted(COLUMNS[family]))))


@st.composite
def functions(draw: st.DrawFn, family: str, depth: int, streams: Sequence[str]) -> Expression:
    """Draw a function whose values are of this family."""

    def one(of: str = family) -> Expression:
        return draw(values(of, depth, streams))

    def choice() -> Expression:
        op = draw(st.sampled_from(["coalesce", "nullif", "greatest", "least", "case"]))
        if op != "case":
            return call(op, *(one() for _ in range(2)))
        parts = [draw(conditions(0, streams)), one(), draw(conditions(0, streams)), one()][
            : 2 * draw(st.integers(1, 2))
        ]
        return Call(op, (*parts, one()) if draw(st.booleans()) else tuple(parts))

    def number() -> Expression:
        return one(draw(st.sampled_from(["number", "float"])))

    def rounded(of: str) -> Expression:
        return call("round", one(of), Literal(draw(st.integers(-2, 3))))

    def cast(kinds: Sequence[str], of: Sequence[str]) -> Expression:
        return call("cast", one(draw(st.sampled_from(of))), Literal(draw(st.sampled_from(kinds))))

    made: dict[str, list[Callable[[], Expression]]] = {
        "number": [
            choice,
            lambda: call(draw(st.sampled_from(["floor", "ceil"])), number()),
            lambda: rounded("number"),
            lambda: cast(
                ["tinyint", "int", "bigint", "decimal(12, 2)", "decimal(38, 4)"], ["number", "float", "boolean"]
            ),
            lambda: call("extract", Literal(draw(st.sampled_from(FIELDS))), one("timestamp")),
        ],
        "float": [
            choice,
            lambda: call(
                draw(st.sampled_from(["exp", "ln", "sin", "cos", "tan", "radians", "degrees"])),
                call("*", number(), Literal(Decimal("1e100"))),
            ),
            lambda: call(draw(st.sampled_from(["exp", "ln", "sin", "cos", "tan", "radians", "degrees"])), number()),
            lambda: call(draw(st.sampled_from(["power", "atan2"])), number(), number()),
            lambda: rounded("float"),
            lambda: cast(["double"], ["number", "float"]),
        ],
        "string": [
            choice,
            lambda: call(draw(st.sampled_from(["upper", "lower"])), one()),
            lambda: Call("concat", tuple(one() for _ in range(draw(st.integers(1, 3))))),
            lambda: call("substr", one(), *(Literal(draw(st.integers(-3, 3))) for _ in range(draw(st.integers(1, 2))))),
            lambda: cast(["string"], ["boolean"]),
        ],
        "timestamp": [choice, lambda: call("date_trunc", Literal(draw(st.sampled_from(UNITS))), one())],
    }
    return draw(st.sampled_from(made[family]))()


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3, streams: Sequence[str] = ("e",)) -> Expression:
    """Draw a condition of any of the forms that are understood."""
    kind = draw(st.integers(0, 9 if depth else 5))
    if kind >= 8:
        return call("not", draw(conditions(depth - 1, streams)))
    if kind >= 6:
        operands = draw(st.lists(conditions(depth - 1, streams), min_size=2, max_size=3))
        return Call(draw(st.sampled_from(["and", "or"])), tuple(operands))
    family = draw(st.sampled_from(["number", "number", "float", "timestamp", "interval", "string", "boolean"]))
    if kind == 5 and family != "interval":
        return call("is_null", draw(values(family, depth, streams)))
    other = {"float": "number", "timestamp": "date"}.get(family, family) if draw(st.booleans()) else family
    sides = [draw(values(draw(st.sampled_from([family, other])), min(depth, 2), streams)) for _ in range(3)]
    if family == "boolean":
        return call(draw(st.sampled_from(["=", "<>", "same"])), *sides[:2])
    if family == "string" and draw(st.booleans()):
        pattern = Literal(draw(st.sampled_from(["%", "_", "a%", "%'%", "", "\\%"])))
        return call("like", sides[0], draw(st.sampled_from([pattern, sides[1]])))
    if kind == 4:
        return Call("between", tuple(sides))
    if kind == 3:
        return Call("in", tuple(sides))
    return call(draw(st.sampled_from([*COMPARISONS, "same"])), *sides[:2])


def table(seed: int, rows: int) -> pa.Table:
    """Return rows of all columns, in which a quarter of the values is null."""
    chooser = random.Random(seed)
    cells = {name: of for family in COLUMNS.values() for name, (_, of) in family.items()}
    drawn = {
        name: [None if chooser.random() < 0.25 else chooser.choice(of) for _ in range(rows)]
        for name, of in cells.items()
    }
    return pa.table(drawn, schema=SCHEMA)
