"""Distances on the globe beside GeographicLib, and what they find."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.expression.calculation import output_values
from streamjoin_ds.spec.expression.parser import parse_value
from streamjoin_ds.spec.expression.tree import normalised
from streamjoin_ds.spec.expression.types import typed_value
from streamjoin_ds.spec.functions.globe import MODELS
from streamjoin_ds.testing.oracle import oracle_join
from tests.engine.test_oracle import SMALL
from tests.support.examples import examples

PLACES = pa.schema([(name, pa.float64()) for name in ("lat", "lon", "a", "o")])
TUPLES = pa.schema([("ts", pa.int64()), ("lat", pa.float64()), ("lon", pa.float64())])


def calculated(text: str, rows: pa.Table) -> list[Any]:
    node = typed_value(normalised(parse_value(text, "e")), lambda column: rows.schema.field(column.name).type)
    batch = rows.combine_chunks().to_batches()[0]
    kind = pa.bool_() if node.family == "boolean" else pa.float64()
    return list(output_values(node, kind, rows.num_rows, lambda column: batch.column(column.name)).to_pylist())


def pairs(count: int, seed: int) -> pa.Table:
    """Return pairs of places: anywhere, near each other, nearly opposite, on the equator, at the poles."""
    chooser = random.Random(seed)
    rows = []
    for _ in range(count):
        lat, lon = math.degrees(math.asin(chooser.uniform(-1, 1))), chooser.uniform(-180, 180)
        far = math.degrees(math.asin(chooser.uniform(-1, 1))), chooser.uniform(-360, 360)
        kind = chooser.randrange(5)
        if kind == 1:
            far = lat + chooser.gauss(0, 0.02), lon + chooser.gauss(0, 0.05) + chooser.choice([0, 360, -360])
        elif kind == 2:
            far = -lat + chooser.gauss(0, 0.3), lon + 180 + chooser.gauss(0, 0.3)
        elif kind == 3:
            lat, far = 0.0, (chooser.choice([0.0, 1e-9, 0.2]), lon + chooser.choice([180, 179.5, 179.39, 90, 0]))
        elif kind == 4:
            lat, far = chooser.choice([90.0, -90.0, 89.9999]), (chooser.choice([90.0, -90.0, -89.99999]), far[1])
        rows.append(
            (lat, lon, min(max(far[0], -90.0), 90.0), (far[1] + 180) % 360 - 180 if abs(far[1]) > 360 else far[1])
        )
    return pa.table(dict(zip(PLACES.names, zip(*rows, strict=True), strict=True)), schema=PLACES)


@pytest.mark.parametrize(
    ("model", "radius", "flattening", "most_m"), [("sphere", 6371008.8, 0, 0.01), ("wgs84", 0, 0, 1e-3)]
)
def test_distances_are_those_of_geographiclib(model: str, radius: float, flattening: float, most_m: float) -> None:
    geodesic = pytest.importorskip("geographiclib.geodesic").Geodesic  # the extra `test` has it
    earth = geodesic.WGS84 if model == "wgs84" else geodesic(radius, flattening)
    rows = pairs(1000, 1)
    found = calculated(f"distance_m(lat, lon, a, o, '{model}')", rows)
    wanted = [earth.Inverse(*row.values())["s12"] for row in rows.to_pylist()]
    assert max(abs(one - other) for one, other in zip(found, wanted, strict=True)) < most_m
    if model == "sphere":
        assert found == calculated("distance_m(lat, lon, a, o)", rows)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("metres", [0, 1, 5000, 250_000, 999_999, 5_000_000])
def test_what_is_decided_without_the_distance_is_what_the_distance_says(model: str, metres: int) -> None:
    rows = pairs(3000, metres)
    found = calculated(f"distance_m(lat, lon, a, o, '{model}') <= {metres}", rows)
    assert found == [one <= metres for one in calculated(f"distance_m(lat, lon, a, o, '{model}')", rows)]
    north = np.linspace(0, 2 * metres / MODELS[model], 1000) / math.pi * 180  # many of them close to the bound
    line = pa.table({"lat": 50 - north, "lon": north * 0, "a": north * 0 + 50, "o": north * 0}, schema=PLACES)
    asked = calculated(f"distance_m(lat, lon, a, o, '{model}')", line)
    for metre in (asked[500], asked[731]):
        text = f"distance_m(lat, lon, a, o, '{model}')"
        assert calculated(f"{text} <= {metre!r}", line) == [one <= metre for one in asked]
        assert calculated(f"{text} < {metre!r}", line) == [one < metre for one in asked]


def test_what_is_no_place_has_no_distance() -> None:
    odd = [(90.1, 0, 0, 0), (-90.1, 0, 0, 0), (0, 361, 0, 0), (0, 0, 0, -361), (None, 0, 0, 0), (0, 0, 0, None)]
    odd += [(math.nan, 0, 0, 0), (0, math.inf, 0, 0), (0, 0, -math.inf, 0)]
    rows = pa.table(dict(zip(PLACES.names, zip(*odd, strict=True), strict=True)), schema=PLACES)
    for model in MODELS:
        assert calculated(f"distance_m(lat, lon, a, o, '{model}')", rows) == [None] * len(odd)
        assert calculated(f"distance_m(lat, lon, a, o, '{model}') <= 5000", rows) == [None] * len(odd)
    ends = pa.table({"lat": [90.0], "lon": [360.0], "a": [90.0], "o": [-77.0]}, schema=PLACES)
    assert calculated("distance_m(lat, lon, a, o) <= 0.001", ends) == [True]


@pytest.mark.parametrize("model", ["'wgs72'", "lat"])
def test_an_unknown_model_is_refused(model: str) -> None:
    with pytest.raises(PredicateError, match="a model of the earth"):
        calculated(f"distance_m(lat, lon, a, o, {model})", pairs(1, 1))


def place(chooser: random.Random) -> dict[str, Any]:
    """Return a place: around one of a few points, at a pole, on the date line, anywhere, or none."""
    lat = chooser.choice([90, -90, 89.97, 91, math.nan, None, chooser.uniform(-90, 90), 89.9 + chooser.random() / 10])
    lon = chooser.choice([180, -180, 179.98, -179.99, 540, None, chooser.uniform(-360, 360)])
    is_near = chooser.random() < 0.6
    return {
        "lat": chooser.choice([50, 0, -60]) + chooser.gauss(0, 0.05) if is_near else lat,
        "lon": chooser.choice([180, -180, 5]) + chooser.gauss(0, 0.05) if chooser.random() < 0.6 else lon,
    }


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    metres=st.sampled_from([0, 100, 5000, 40_000, 2_000_000, 9_900_000, 19_990_000]),
    strict=st.sampled_from(["<", "<="]),
    turned=st.booleans(),
)
def test_a_join_finds_all_that_are_near(seed: int, metres: int, strict: str, turned: bool) -> None:
    chooser = random.Random(seed)
    tables = {name: [{"ts": n, **place(chooser)} for n in range(30)] for name in "ew"}
    sides = "w.lat, w.lon, e.lat, e.lon" if turned else "e.lat, e.lon, w.lat, w.lon"
    streams = [Stream(name, schema=TUPLES) for name in "ew"]
    join = Join(streams, f"distance_m({sides}) {strict} {metres}", "1h", f"distance_m({sides}) AS metres")
    engine = JoinEngine(join, tuning=SMALL)
    given_rows = {name: pa.Table.from_pylist(rows, TUPLES) for name, rows in tables.items()}
    found = [
        engine.push({name: rows.slice(begin, 8) for name, rows in given_rows.items()}) for begin in range(0, 30, 8)
    ]
    result = pa.concat_tables([*found, engine.finish()])
    numbers = {(row["e_seq"], row["w_seq"]): row["metres"] for row in result.to_pylist()}
    wanted = {(row["e_seq"], row["w_seq"]): row["metres"] for row in oracle_join(join, tables)}
    assert numbers.keys() == wanted.keys()
    assert all(math.isclose(one, wanted[key], rel_tol=1e-12) for key, one in numbers.items())


@pytest.mark.parametrize("model", list(MODELS))
def test_what_finds_leaves_out_no_pair_and_few_others(model: str) -> None:
    """The limits say of each pair whether an index would find it: all that are near, and not twice as many."""
    chooser = random.Random(3)
    text = f"distance_m(e.lat, e.lon, w.lat, w.lon, '{model}') <= 40000"
    bound = bind(Join([Stream(name, schema=TUPLES) for name in "ew"], text, "1s"), dict.fromkeys("ew", TUPLES))
    rows = [pa.Table.from_pylist([{"ts": n, **place(chooser)} for n in range(200)], TUPLES) for _ in "ew"]
    keys = [
        [limit.values(200, lambda column, table=table: table[column.name].combine_chunks()) for limit in limits]  # type: ignore[misc]
        for limits, table in zip(bound.limits, rows, strict=True)
    ]
    is_found = np.ones((200, 200), np.bool_)
    for condition in bound.finding:
        left = keys[0][condition.left_key - len(bound.keys[0])][:, None]
        right = keys[1][condition.right_key - len(bound.keys[1])][None, :]
        with np.errstate(over="ignore"):
            is_found &= (left - right >= condition.lo) & (left - right <= condition.hi)
    cross = {"lat": np.repeat(rows[0]["lat"], 200), "lon": np.repeat(rows[0]["lon"], 200)}
    cross |= {"a": np.tile(rows[1]["lat"], 200), "o": np.tile(rows[1]["lon"], 200)}
    table = pa.table({name: pa.array(values, pa.float64()) for name, values in cross.items()}, schema=PLACES)
    is_near = np.array(
        [one is True for one in calculated(text.replace("e.", "").replace("w.lat", "a").replace("w.lon", "o"), table)]
    )
    is_near = is_near.reshape(200, 200)
    assert not (is_near & ~is_found).any()
    near_pairs = int(is_near.sum())
    valid = [np.array([one is not None and abs(one) <= 90 for one in table["lat"].to_pylist()]) for table in rows]
    away = (
        is_found & valid[0][:, None] & valid[1][None, :] & (np.abs(np.array(rows[0]["lat"].to_numpy())) < 80)[:, None]
    )
    assert near_pairs > 1000
    assert away.sum() < 8 * near_pairs
