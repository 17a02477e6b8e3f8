"""Equality of floats: values are compared, so an infinity meets itself; a band of no width subtracts as others do."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.tuning import DEFAULT, ProbeTuning
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join, Nearest, Stream, band, bind, equal
from streamjoin_ds.spec.row_kind import HOWS
from streamjoin_ds.testing.oracle import oracle_join, oracle_numbers
from tests.engine.scenarios import Scenario, numbers_of, pushed, window_of
from tests.engine.test_how import check_every_push, of_kind
from tests.engine.test_oracle import SMALL

KERNELS = [name for name in kernel_names() if name != "auto"]
SLICED = dataclasses.replace(SMALL, probe=ProbeTuning(scan_pairs=0, slice_probes=8, least_part_ns=100.0))
ENDS = [math.inf, -math.inf, math.nan, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 1.0]


def side(name: str, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Stream, pa.Table]:
    table = pa.table({"ts": np.arange(len(x)), "x": x, "y": y})
    return Stream(name, time="ts", delay="1s", schema=table.schema), table


def scenario_of(dice: random.Random) -> Scenario:
    """Return a join whose streams are tied by equalities of floats, most of which are infinite, zero or NaN."""
    names = dice.choice(("lr", "lr", "lrs"))
    on = [f"{dice.choice(names[:at])}.x = {names[at]}.x" for at in range(1, len(names))]
    on += dice.choice(([], [], ["abs(l.y - r.y) <= 1"], ["(l.y = r.y OR l.x < r.y)"], ["l.y = r.y"], ["l.x <> r.y"]))
    tables = {}
    for name in names:
        kinds, count = [dice.choice((pa.float64(), pa.float32())) for _ in "xy"], dice.choice((4, 12, 24))
        columns = [pa.array(dice.choices(ENDS, k=count)).cast(kind, safe=False) for kind in kinds]
        tables[name] = pa.table({"t": dice.choices(range(41), k=count), "x": columns[0], "y": columns[1]})
    window = window_of(dice, dice.choice(("time", "time", "count", "periodic")), len(names))
    streams = [Stream(name, time="t", delay="40us", schema=table.schema) for name, table in tables.items()]
    return Scenario(Join(streams, " AND ".join(on), window), tables)


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_the_contracts(seed: int) -> None:
    dice = random.Random(seed)
    scenario, tuning = scenario_of(dice), dice.choice([DEFAULT, SMALL, SLICED])
    options: dict[str, Any] = {"kernel": dice.choice(KERNELS), "chunk_rows": 64, "tuning": tuning}
    if scenario.join.window.kind != "count" and dice.random() < 0.4:
        options["bucket_rows"] = 4
    how = dice.choice(HOWS)
    if how == "inner" or len(scenario.tables) > 2 or scenario.join.window.kind != "time":
        _, found, so_far = pushed(scenario.join, scenario, seed, dice, **options)
        numbers = [row for one in found for row in numbers_of(scenario.join, one)]
        assert sorted(numbers) == oracle_numbers(scenario.join, so_far)
    else:
        check_every_push(of_kind(scenario, how), seed, **options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("kind", "bucket_rows", "also"),
    [(np.float64, None, ""), (np.float32, None, " AND abs(l.y - r.y) <= 1"), (np.float32, 500, "")],
)
def test_large_windows_have_every_pair(kernel: str, kind: type, bucket_rows: int | None, also: str) -> None:
    """Runs are sorted, searched by steps and fences, laid out in buckets, or are a bucket grid."""
    dice = np.random.default_rng(5)
    values = np.concatenate([dice.normal(0, 1e3, 700), [*ENDS[:5], 2.0**-149, 2.0**127, 1.0] * 4]).astype(kind)
    columns = {
        name: (dice.choice(values, size), dice.integers(0, 9, size)) for name, size in (("l", 3000), ("r", 2500))
    }
    (left, l_table), (right, r_table) = (side(name, *of) for name, of in columns.items())
    join = Join([left, right], f"l.x = r.x{also}", "1s")
    engine = JoinEngine(join, execution=Execution(kernel=kernel), bucket_rows=bucket_rows)
    found = [engine.push({"l": l_table[:2000]}), engine.push({"r": r_table}), engine.push({"l": l_table[2000:]})]
    expected = columns["l"][0][:, np.newaxis] == columns["r"][0]
    if also:
        expected &= abs(columns["l"][1][:, np.newaxis] - columns["r"][1]) <= 1
    assert expected[np.isposinf(columns["l"][0])].any()
    pairs = {pair for one in found for pair in numbers_of(join, one)}
    assert pairs == set(zip(*(places.tolist() for places in np.nonzero(expected)), strict=True))
    counted = JoinEngine(Join([left, right], f"l.x = r.x{also}", "1s", reduce={"n": "count(*)"}))
    counts = pa.concat_tables([counted.push({"l": l_table, "r": r_table}), counted.finish()]).sort_by("l_seq")
    assert counts["n"].to_pylist() == [count for count in expected.sum(axis=1).tolist() if count]


def test_what_compares_and_what_subtracts() -> None:
    (left, l_table), (right, r_table) = (side(name, np.array(ENDS), np.zeros(len(ENDS))) for name in "lr")
    plain = {(n, n) for n in range(len(ENDS)) if n != 2} | {(3, 4), (4, 3)}
    infinite = {(0, 0), (1, 1)}
    for on, expected in (
        ("l.x = r.x", plain),
        (equal("l.x", "r.x"), plain),
        ("l.x BETWEEN r.x AND r.x", plain),
        ("l.x >= r.x AND l.x <= r.x", plain),
        ("NOT l.x <> r.x", plain),
        ("l.x = r.x OR l.y > r.y", plain),
        ("l.x IS NOT DISTINCT FROM r.x", plain | {(2, 2)}),
        ("abs(l.x - r.x) <= 0", plain - infinite),
        (band("l.x", "r.x", 0), plain - infinite),
        ("l.x - r.x BETWEEN 0 AND 0", plain - infinite),
        ("l.x - r.x = 0", plain - infinite),
        (["l.x = r.x", band("l.x", "r.x", 0)], plain - infinite),
    ):
        join = Join([left, right], on, "1s")
        found = JoinEngine(join).push({"l": l_table, "r": r_table})
        assert set(numbers_of(join, found)) == expected, on
        assert oracle_numbers(join, {"l": l_table, "r": r_table}) == sorted(expected), on
    lonely = JoinEngine(Join([left, right], "l.x = r.x", "1s", ["l.x"], how="anti"))
    lonely.push({"l": l_table, "r": r_table})
    assert lonely.finish()["l_seq"].to_pylist() == [2]


def test_a_self_join_and_the_nearest_have_equal_infinities_too() -> None:
    (stream, table) = side("e", np.array([*ENDS, *ENDS[::-1]]), np.arange(2 * len(ENDS)) % 5)
    streams = [dataclasses.replace(stream, name=name, source="e.parquet") for name in "ef"]
    tables = {"e": table, "f": table}
    for join in (
        Join(streams, "e.x = f.x", "1s"),
        Join(streams, "e.x = f.x", "1s", nearest=Nearest(2, "abs(e.y - f.y)"), how="left"),
        Join([*streams, dataclasses.replace(stream, name="g")], "e.x = f.x AND f.x = g.x", "1s"),
    ):
        engine = JoinEngine(join)
        given_now = {name: table for name in join.names}
        found = pa.concat_tables([engine.push(given_now), engine.finish()])
        columns = [f"{name}_seq" for name in join.names]
        rows = zip(*(found[name].to_pylist() for name in columns), strict=True)
        expected = [tuple(row[name] for name in columns) for row in oracle_join(join, {**tables, "g": table})]
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
        assert (0, 2 * len(ENDS) - 1) in [row[:2] for row in expected]


def test_a_state_from_before_equality_was_no_band_goes_on() -> None:
    """Both have one fingerprint and one form of the state; a join's facts without a word are an equality's."""
    (left, l_table), (right, r_table) = (side(name, np.array(ENDS), np.zeros(len(ENDS))) for name in "lr")
    join = Join([left, right], "l.x = r.x", "1s")
    facts = join.to_facts()
    assert Join.from_facts(facts) == join
    (told,) = facts["predicates"]  # type: ignore[misc]
    assert sorted(told) == ["hi", "kind", "left", "lo", "right"]  # type: ignore[call-overload]
    without_width = Join([left, right], band("l.x", "r.x", 0), "1s")
    assert Join.from_facts(without_width.to_facts()) == without_width
    schemas = {"l": l_table.schema, "r": r_table.schema}
    assert bind(join, schemas).fingerprint != bind(without_width, schemas).fingerprint
    engine = JoinEngine(join)
    engine.push({"l": l_table})
    again = JoinEngine(join)
    again.restore(engine.save())
    assert (0, 0) in numbers_of(join, again.push({"r": r_table}))
