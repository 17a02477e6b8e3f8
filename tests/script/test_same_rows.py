"""Any text that is understood gives the rows that DuckDB gives over static tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.script.test_asked import ours, theirs
from tests.support.examples import examples

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
