"""Exact numbers beside floats: each becomes the nearest float, as Python's fractions say; distances."""

from __future__ import annotations

import random
import warnings
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.spec import Join, Nearest, Stream, bind
from streamjoin_ds.spec.expression.calculation import output_type, output_values
from streamjoin_ds.spec.expression.evaluation import float_values, holds
from streamjoin_ds.spec.expression.parser import parse_condition, parse_value
from streamjoin_ds.spec.expression.tree import normalised
from streamjoin_ds.spec.expression.types import typed_condition, typed_value
from streamjoin_ds.testing.oracle import oracle_numbers
from streamjoin_ds.testing.values import oracle_value

SAME = "e.x = e.a AND NOT (e.x < e.a OR e.x > e.a)"
DIGITS = Context(prec=100)
JOIN = Join([Stream("e", time="none"), Stream("w", time="none")], (), "1s")


def typed(text: str, column: pa.Array) -> Any:
    return typed_value(normalised(parse_value(text, "e")), lambda _: column.type)


def values(text: str, column: pa.Array) -> list[Any]:
    """Return an expression over a column `a` as a column of a result."""
    expression, node = parse_value(text, "e"), typed(text, column)
    return list(output_values(node, output_type(expression, node), len(column), lambda _: column).to_pylist())


def float32(number: Fraction) -> float:
    """Return the float32 nearest to a number, ties to even, found by its digits in base 2."""
    if not number:
        return 0.0
    size = number.numerator.bit_length() - number.denominator.bit_length()
    unit = Fraction(2) ** max(size - 24, -149)
    while abs(number) / unit >= 1 << 24:
        unit *= 2
    found = round(number / unit) * unit
    return float("inf") if found >= 2**128 else -float("inf") if -found >= 2**128 else float(found)


def scaled(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, DIGITS)


def drawn(precision: int, scale: int, count: int, seed: int) -> list[Decimal | None]:
    """Return decimals of every length, of both signs, among them those halfway between two float64, and a null."""
    rng = random.Random(seed)
    found: list[Decimal | None] = [None, Decimal(0), scaled(10**precision - 1, scale), scaled(1 - 10**precision, scale)]
    for _ in range(count):
        unscaled = rng.randrange(10 ** rng.randint(1, precision))
        found.append(scaled(unscaled * rng.choice((1, -1)), scale))
        bits = rng.choice((24, 53))  # a number of one bit more than a float has, at times with some digits behind it
        tie = ((rng.getrandbits(bits - 1) | 1 << (bits - 1)) * 2 + 1) << rng.randint(0, 40)
        beside = (tie * 10**scale + near for near in (0, 1, -1))
        found += [scaled(unscaled, scale) for unscaled in beside if unscaled < 10**precision]
    return found


@pytest.mark.parametrize("places", [1, 2])
def test_every_decimal_of_one_or_two_places_becomes_the_nearest_float(places: int) -> None:
    numbers = range(-2_000, 100_001)
    column = pa.array([scaled(number, places) for number in numbers], pa.decimal128(7, places))
    expected = [number / 10**places for number in numbers]  # of Python's whole numbers it is rounded once
    assert values("CAST(a AS DOUBLE)", column) == expected
    assert float_values(typed("a", column), len(column), lambda _: column).tolist() == expected
    columns = {"a": column, "x": pa.array(expected, pa.float64())}
    condition = typed_condition(normalised(parse_condition(SAME)), lambda of: columns[of.name].type)
    assert holds(condition, len(column), lambda of: columns[of.name]).all()


@pytest.mark.parametrize(
    ("precision", "scale"), [(18, 0), (18, 2), (18, 18), (20, 0), (38, 0), (38, 10), (38, 22), (38, 23), (38, 38)]
)
def test_long_decimals_are_rounded_once(precision: int, scale: int) -> None:
    numbers = drawn(precision, scale, 1_000, precision * 100 + scale)
    column = pa.array([None, *numbers], pa.decimal128(precision, scale)).slice(1)  # with an offset
    exact = [None if number is None else Fraction(number) for number in numbers]
    assert values("CAST(a AS DOUBLE)", column) == [None if one is None else float(one) for one in exact]
    assert values("CAST(a AS DOUBLE)", column[:0]) == []
    assert values("CAST(a AS FLOAT)", column) == [None if one is None else float32(one) for one in exact]


def test_what_a_calculation_makes_of_decimals_is_rounded_once_too() -> None:
    numbers = drawn(37, 37, 500, 7)
    column = pa.array(numbers, pa.decimal128(37, 37))
    # Products of 74 places: far below the smallest normal float32 and its subnormal ones.
    expected = [None if one is None else Fraction(one) ** 2 for one in numbers]
    assert values("CAST(a * a AS DOUBLE)", column) == [None if one is None else float(one) for one in expected]
    assert values("CAST(a * a AS FLOAT)", column) == [None if one is None else float32(one) for one in expected]
    large = pa.array(drawn(37, 0, 500, 8), pa.decimal128(37, 0))
    squares = [None if one is None else Fraction(one) ** 2 for one in large.to_pylist()]
    assert values("CAST(a * a AS FLOAT)", large) == [None if one is None else float32(one) for one in squares]


def test_whole_numbers_and_texts_become_the_nearest_float32() -> None:
    rng = random.Random(3)
    ties = [((rng.getrandbits(23) | 1 << 23) * 2 + 1) << 38 for _ in range(200)]  # halfway between two float32
    numbers = [near + more for near in ties for more in (-1, 0, 1)] + [-(2**63), 2**63 - 1, 2**53 + 1]
    expected = [float32(Fraction(number)) for number in numbers]
    assert values("CAST(a AS FLOAT)", pa.array(numbers, pa.int64())) == expected
    assert values("CAST(a AS FLOAT)", pa.array(map(str, numbers))) == expected
    texts = ["0.1", "1e-46", "7.1e-46", "-1e-45", "340282356779733661637539395458142568447.5", "3.5e38", "1e400", "x"]
    texts += [f"{tie}.{'0' * 30}1" for tie in ties[:50]] + [f" +{tie}.0e0 " for tie in ties[:50]] + ["-inf", "1e-400"]
    found = values("CAST(a AS FLOAT)", pa.array(texts))
    for text, one in zip(texts, found, strict=True):
        special = {"x": None, "-inf": -float("inf")}
        assert one == (special[text] if text in special else float32(Fraction(text.strip()))), text


def test_the_oracle_rounds_to_float32_as_the_digits_in_base_2_say() -> None:
    cast = parse_value("CAST(e.a AS FLOAT)", "e")
    for number in drawn(38, 20, 300, 5)[1:]:
        assert number is not None
        assert oracle_value(JOIN, cast, {"e": {"a": number}}) == float32(Fraction(number))


def test_a_decimal_beside_a_float_meets_what_it_meets_in_python() -> None:
    rng = random.Random(11)
    moment, count = pa.scalar(0, pa.int64()).cast(pa.timestamp("us", "UTC")), 150
    decimals = pa.array(
        [Decimal("21.15"), *(scaled(rng.randrange(3_000), 2) for _ in range(count))], pa.decimal128(6, 2)
    )
    floats = pa.array([20.15, *(rng.randrange(3_000) / 100 for _ in range(count))])
    times = pa.repeat(moment, count + 1)
    tables = {"l": pa.table({"ts": times, "a": decimals}), "r": pa.table({"ts": times, "b": floats})}
    streams = [Stream(name, delay="1h", schema=table.schema) for name, table in tables.items()]
    for condition in ("abs(l.a - r.b) <= 1.0", "l.a = r.b", "l.a < r.b AND l.a > r.b - 0.5"):
        join = Join(streams, condition, "1s", select=["l.a", "r.b", "abs(l.a - r.b) AS gap"])
        found = JoinEngine(join).push(tables)
        pairs = sorted(zip(found["l_seq"].to_pylist(), found["r_seq"].to_pylist(), strict=True))
        assert pairs == oracle_numbers(join, tables)
        assert found["gap"].to_pylist() == [
            abs(float(Fraction(a)) - b) for a, b in zip(found["l_a"].to_pylist(), found["r_b"].to_pylist(), strict=True)
        ]
    assert (0, 0) in sorted(oracle_numbers(Join(streams, "abs(l.a - r.b) <= 1.0", "1s"), tables))


ENDS = [-(2**63), -(2**63) + 1, -(2**62), -513, -1, 0, 1, 2**53, 2**53 + 1, 2**62, 2**63 - 513, 2**63 - 512, 2**63 - 1]


def test_whole_numbers_are_in_order_at_the_ends_of_64_bits() -> None:
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    streams = [Stream(name, schema=schema) for name in "ew"]
    for text, values in {"w.x": ENDS, "e.x - w.x": [a - b for a, b in product(ENDS, ENDS)]}.items():
        bound = bind(Join(streams, "abs(e.x - w.x) <= 1", "9us", nearest=Nearest(1, text)), dict.fromkeys("ew", schema))
        pairs = [(0, value) for value in ENDS] if text == "w.x" else list(product(ENDS, ENDS))
        columns = {"e": pa.array([own for own, _ in pairs]), "w": pa.array([other for _, other in pairs])}
        assert bound.distance is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a float that int64 cannot hold becomes any number
            near, rest = bound.distance.values(len(pairs), lambda column: columns[column.stream])  # noqa: B023
        assert rest is not None
        found = sorted(range(len(pairs)), key=lambda n: (near[n], rest[n]))
        assert [values[n] for n in found] == sorted(values), text
        assert [float(value) for value in values] == near.tolist()
