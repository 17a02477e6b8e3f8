"""Distances on the globe in a join: a kernel decides plain places, all else is decided as any condition is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.probe import residual
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join, Stream
from streamjoin_ds.spec.expression.node import Typed
from streamjoin_ds.spec.functions.globe import distances

ROWS, METRES = 1100, 40_000
PLACE = Typed("column", "float")


def places(seed: int, kind: pa.DataType) -> pa.Table:
    """Return places by the date line and at a pole, and some that are none."""
    chooser = np.random.default_rng(seed)
    lat, lon = chooser.normal(50, 0.5, ROWS), 180 + chooser.normal(0, 0.8, ROWS)
    lon[::2] -= 360
    lat[::10], lon[::10] = 90 - np.abs(chooser.normal(0, 0.2, ROWS // 10)), chooser.uniform(-360, 360, ROWS // 10)
    lat[5], lat[6], lon[7], lon[8] = np.nan, 90.5, 361.0, np.inf
    values = [pa.array([*one.tolist()[:-1], None], pa.float64()).cast(kind, safe=False) for one in (lat, lon)]
    return pa.table({"ts": np.arange(ROWS), "lat": values[0], "lon": values[1]})


def pairs_of(left: pa.Table, right: pa.Table, model: str) -> list[tuple[int, int]]:
    columns = [table[name].cast(pa.float64()).to_numpy() for table in (left, right) for name in ("lat", "lon")]
    lat_1, lon_1, lat_2, lon_2 = (np.repeat(c, ROWS) if n < 2 else np.tile(c, ROWS) for n, c in enumerate(columns))
    valid = (np.abs(lat_1) <= 90) & (np.abs(lat_2) <= 90) & (np.abs(lon_1) <= 360) & (np.abs(lon_2) <= 360)
    valid &= np.abs(lat_1 - lat_2) < 1
    where = np.flatnonzero(valid)
    node = Typed("distance_m", "float", (PLACE,) * 4 + (Typed("literal", "string", value=model),))
    near = where[distances(node, [one[where] for one in (lat_1, lon_1, lat_2, lon_2)]) <= METRES]
    return list(zip((near // ROWS).tolist(), (near % ROWS).tolist(), strict=True))


@pytest.mark.parametrize("model", ["sphere", "wgs84"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_pairs_are_those_of_the_distance(model: str, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every kernel, one stream's places in runs, the other's in a tail and in pairs that are summed up."""
    asked: list[Any] = []
    holds = residual.holds
    monkeypatch.setattr(residual, "holds", lambda *args: (asked.append(args), holds(*args))[1])
    tables = {"e": places(1, kind), "w": places(2, kind)}
    wanted = pairs_of(tables["e"], tables["w"], model)
    assert len(wanted) > 5000
    schema = pa.schema([("ts", pa.int64()), ("lat", kind), ("lon", kind)])
    on = f"distance_m(w.lat, w.lon, e.lat, e.lon, '{model}') <= {METRES}"
    for name in kernel_names() if kind == pa.float64() else ["auto"]:
        engine = JoinEngine(
            Join([Stream(name, schema=schema) for name in "ew"], on, "1h"), execution=Execution(kernel=name)
        )
        engine.push({"e": tables["e"]})
        found = [engine.push({"w": tables["w"].slice(0, 1030)}), engine.push({"w": tables["w"].slice(1030)})]
        pairs = [pair for one in found for pair in zip(*(one[f"{n}_seq"].to_pylist() for n in "ew"), strict=True)]
        assert sorted(pairs) == wanted
    assert bool(asked) == (kind != pa.float64())
    counted = Join([Stream(name, schema=schema) for name in "ew"], on, "1h", reduce={"n": "count(*)"})
    engine = JoinEngine(counted)
    engine.push(tables)
    assert sum(engine.finish()["n"].to_pylist()) == len(wanted)
