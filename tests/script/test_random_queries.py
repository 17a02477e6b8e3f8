"""Any text that is understood gives the rows that DuckDB gives over static tables."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import JoinEngine
from tests.script.test_queries import asked, ours, theirs
from tests.support.examples import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
SIDES = st.sampled_from([("e", "w"), ("w", "e")])
SMALL = st.integers(0, 3)
US = st.integers(2, 6_000_000)


@st.composite
def atoms(draw: st.DrawFn) -> str:
    left, right = draw(SIDES)
    compared, small = draw(COMPARED), draw(SMALL)
    return draw(
        st.sampled_from(
            [
                f"abs({left}.x - {right}.x) <= {small / 4}",
                f"{left}.x {compared} {right}.x + {small}",
                f"{left}.n {compared} {right}.n",
                f"{left}.n BETWEEN {right}.n - {small} AND {right}.n + 1",
                f"{left}.s {draw(st.sampled_from(['=', '<>', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM']))} {right}.s",
                f"{left}.n IS {draw(st.sampled_from(['', 'NOT ']))}NULL",
                f"{left}.s IN ('a', 'c') AND {left}.n * 2 > {small}",
                f"{left}.day <= {right}.day",
                f"{left}.ts <> {right}.ts",
            ]
        )
    )


CONDITIONS = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"NOT ({part})"),
    ),
    max_leaves=4,
)


@st.composite
def bounds(draw: st.DrawFn) -> str:
    """Bounds on both sides of the event times, in one of their forms."""
    (left, right), low, high = draw(SIDES), draw(US), draw(US)
    less, more = draw(st.sampled_from(["<", "<="])), draw(st.sampled_from([">", ">="]))
    lower, upper = f"{right}.ts - INTERVAL {low} MICROSECONDS", f"{right}.ts + INTERVAL {high} MICROSECONDS"
    # Strict on both sides, bounds of a microsecond have no room: `US` begins with 2.
    first, last = f"INTERVAL {low // 2} MICROSECONDS", f"INTERVAL {low // 2 + high} MICROSECONDS"
    return draw(
        st.sampled_from(
            [
                f"{left}.ts BETWEEN {lower} AND {upper}",
                f"{left}.ts {more} {lower} AND {left}.ts {less} {upper}",
                f"{upper} {more} {left}.ts AND {lower} {less} {left}.ts",
                f"{left}.ts {more} {right}.ts + {first} AND {left}.ts {less} {right}.ts + {last}",
                f"{left}.ts - {right}.ts BETWEEN {first} AND {last}",
            ]
        )
    )


KINDS = [",", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(KINDS))
    condition, within = draw(CONDITIONS), draw(bounds())
    both = " AND ".join(draw(st.permutations([condition, within])))
    if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") and draw(st.booleans()):
        second = f"{draw(CONDITIONS)} AND {draw(bounds())}".replace("w.", "v.")
        return f"SELECT e.ts, e.n, e.s FROM e {kind} w ON {both} {kind} v ON {second}"
    items = "e.ts, e.n, e.s" if kind.endswith(("SEMI JOIN", "ANTI JOIN")) else "e.ts, w.ts AS other, e.n, w.s"
    return f"SELECT {items} FROM e {kind} w {'WHERE' if kind == ',' else 'ON'} {both}"


@given(texts())
@examples(60)
def test_a_text_gives_the_rows_of_duckdb(text: str) -> None:
    assert ours(text) == theirs(text)


# Every value meets every other. NaN is left out: to Spark and DuckDB it is equal to itself.
_ENDS = [math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, 0.1, float(2**53), None]
_SINGLES = [math.inf, -math.inf, 0.0, -0.0, 2.0**-149, 1.5, float(2**24), float(2**53), -1.5, None]
_TIMES = pa.repeat(pa.scalar(0, pa.int64()), len(_ENDS)).cast(pa.timestamp("us"))
_COUNTED = {"k": pa.array(range(len(_ENDS))), "ts": _TIMES}
_FLOATS = {
    "e": pa.table({**_COUNTED, "x": _ENDS, "g": pa.array(_SINGLES, pa.float32()), "n": [*range(9), 2**53]}),
    "w": pa.table({**_COUNTED, "x": _ENDS[::-1], "g": pa.array(_SINGLES, pa.float32()), "n": [2**53, *range(9)]}),
}
_STREAMS = "".join(
    f"CREATE STREAM {name} (k BIGINT, ts TIMESTAMP, x DOUBLE, g FLOAT, n BIGINT) WITH (source = '{name}.csv');"
    for name in _FLOATS
)
_EQUALITIES = [
    f"SELECT {items} FROM e {kind} w ON {condition} AND e.ts BETWEEN w.ts - INTERVAL 1 SECOND AND w.ts"
    for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
    for items in ("e.k" if kind.startswith(("LEFT S", "LEFT A")) else "e.k, w.k AS o",)
    for condition in (
        "e.x = w.x",
        "e.x = w.g",
        "e.g = w.g AND e.x = w.x",
        "(e.x = w.x OR e.n < w.k)",
        "e.x BETWEEN w.x AND w.x",
        "e.x = w.n",
        "e.g = w.n AND e.k + w.k > 1",
        "NOT e.x <> w.x",
        "e.x IS NOT DISTINCT FROM w.x",
    )
]


def _found(text: str) -> Counter[tuple[Any, ...]]:
    request = asked(text, _STREAMS)
    engine = JoinEngine(request.request.join)
    results = pa.concat_tables([engine.push(_FLOATS), engine.finish()])
    columns = [column.to_pylist() for column in results.select(list(request.columns or ())).columns]
    return Counter(zip(*columns, strict=True))


def test_equal_floats_are_those_of_duckdb() -> None:
    with duckdb.connect() as connection:
        for name, table in _FLOATS.items():
            connection.register(name, table)
        for text in _EQUALITIES:
            assert _found(text) == Counter(
                connection.execute(text.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")).fetchall()
            ), text


@pytest.mark.long
def test_equal_floats_are_those_of_spark(spark: SparkSession) -> None:
    for name, table in _FLOATS.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    for text in _EQUALITIES:
        assert _found(text) == Counter(map(tuple, spark.sql(text).collect())), text
