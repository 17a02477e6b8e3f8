"""The fingerprint changes when, and only when, the rows of the result could."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, band, bind, equal, not_equal

COLUMNS = {"x": pa.float64(), "i": pa.int64(), "s": pa.string(), "d": pa.decimal128(9, 2), "PM2.5": pa.float32()}


TEXT = "abs(e.x - w.x) <= 0.1 AND e.i = w.i AND e.s <> w.s"


def made(
    *,
    streams: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    on: Any = "abs(e.x - w.x) <= 0.1 AND e.i = w.i AND e.s <> w.s",
    window: Any = "e=6h,w=1h",
    columns: dict[str, pa.DataType] = COLUMNS,
    nullable: bool = True,
    metadata: dict[str, str] | None = None,
    **arguments: Any,
) -> BoundJoin:
    """Return a bound join, the same one unless the arguments change it."""
    sides = [
        Stream(**{"name": name, "source": f"{name}.csv", "delay": "2s", **facts})
        for name, facts in zip(("e", "w"), streams, strict=True)
    ]
    time = sides[0].time
    fields = [pa.field(name, kind, nullable) for name, kind in columns.items()]
    schema = pa.schema([(time, pa.timestamp("us", tz="UTC")), *fields], metadata)
    return bind(Join(sides, on, window, **arguments), {stream.name: schema for stream in sides})


BASE = made().fingerprint

OTHER: dict[str, Callable[[], BoundJoin]] = {
    "window": lambda: made(window="e=6h,w=2h"),
    "window of one": lambda: made(window="e=6h,w=3600000001us"),
    "windows swapped": lambda: made(window="e=1h,w=6h"),
    "eps": lambda: made(on="abs(e.x - w.x) <= 0.2 AND e.i = w.i AND e.s <> w.s"),
    "eps by one ulp": lambda: made(
        on=[band("e.x", "w.x", 0.10000000000000002), equal("e.i", "w.i"), not_equal("e.s", "w.s")]
    ),
    "one end": lambda: made(on=[band("e.x", "w.x", lo=-0.1, hi=0.2), equal("e.i", "w.i"), not_equal("e.s", "w.s")]),
    "band of another column": lambda: made(on="abs(e.x - w.`PM2.5`) <= 0.1 AND e.i = w.i AND e.s <> w.s"),
    "no equality": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.s <> w.s"),
    "no residual": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.i = w.i"),
    "one predicate more": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.i = w.i AND e.s <> w.s AND e.d = w.d"),
    "a band of no width": lambda: made(on="abs(e.x - w.x) <= 0 AND e.i = w.i AND e.s <> w.s"),
    "an equality of floats": lambda: made(on="e.x = w.x AND e.i = w.i AND e.s <> w.s"),
    "equal, not unequal": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.i = w.i AND e.s = w.s"),
    "a condition more": lambda: made(on=f"{TEXT} AND e.x + w.x > 1"),
    "another condition": lambda: made(on=f"{TEXT} AND e.x + w.x > 2"),
    "a condition on one": lambda: made(on=f"{TEXT} AND e.x > 1"),
    "filter of the other": lambda: made(streams=({}, {"where": "x > 1"})),
    "unequal or null": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.i = w.i AND (e.s <> w.s OR e.s IS NULL)"),
    "delay": lambda: made(streams=({"delay": "3s"}, {})),
    "delay of the other": lambda: made(streams=({}, {"delay": "3s"})),
    "name": lambda: made(
        streams=({}, {"name": "v"}), on="abs(e.x - v.x) <= 0.1 AND e.i = v.i AND e.s <> v.s", window="e=6h,v=1h"
    ),
    "time column": lambda: made(streams=({"time": "when"}, {"time": "when"})),
    "time unit": lambda: made(streams=({"time_unit": "ms"}, {})),
    "type of a selected column": lambda: made(columns={**COLUMNS, "PM2.5": pa.float64()}),
    "type of a compared column": lambda: made(columns={**COLUMNS, "x": pa.float32()}),
    "a column more": lambda: made(columns={**COLUMNS, "more": pa.int8()}),
    "selection": lambda: made(select=["e.*"]),
    "order of the selection": lambda: made(select=["e.i", "e.x", "w.*"]),
    "self-pairs": lambda: made(include_self_pairs=True),
    "one input": lambda: made(streams=({"source": "a.csv"}, {"source": "a.csv"})),
    "generator": lambda: made(streams=({"source": Generator("band2d", {"seed": 1})}, {})),
    "generator's parameter": lambda: made(streams=({"source": Generator("band2d", {"seed": 2})}, {})),
}

SAME: dict[str, Callable[[], BoundJoin]] = {
    "again": made,
    "function, float": lambda: made(on=[band("e.x", "w.x", 0.1), equal("e.i", "w.i"), not_equal("e.s", "w.s")]),
    "function, decimal": lambda: made(on=[band("e.x", "w.x", Decimal("0.1")), "e.i = w.i", "e.s <> w.s"]),
    "another spelling": lambda: made(on="w.s != e.s AND e.x BETWEEN w.x - .1 AND w.x + 1e-1 AND abs(w.i - e.i) <= 0"),
    "other order": lambda: made(on="e.s <> w.s AND e.i = w.i AND abs(w.x - e.x) <= 0.100"),
    "said twice": lambda: made(on="abs(e.x - w.x) <= 0.1 AND e.i = w.i AND e.s <> w.s AND w.i = e.i AND NOT e.s = w.s"),
    "half an integer": lambda: made(on="abs(e.x - w.x) <= 0.1 AND abs(e.i - w.i) <= 0.5 AND e.s <> w.s"),
    "window spelled out": lambda: made(window={"w": "60 minutes", "e": "360m"}),
    "paths": lambda: made(streams=({"source": "/elsewhere/e.csv.gz"}, {"source": "s3://b/w"})),
    "format": lambda: made(streams=({"format": "csv"}, {"format": "parquet"})),
    "delay spelled out": lambda: made(streams=({"delay": "2000 ms"}, {"delay": "2 seconds"})),
    "selection spelled out": lambda: made(select=[f"{s}.{c}" for s in "ew" for c in ("ts", *COLUMNS)]),
    "selection said twice": lambda: made(select=["e.*", "e.x", "w.*", "w.`PM2.5`"]),
    "nullability": lambda: made(nullable=False),
    "metadata": lambda: made(metadata={"pandas": "{}"}),
    "a wider type in the file": lambda: made(columns={**COLUMNS, "s": pa.large_string(), "d": pa.decimal64(9, 2)}),
    "declared": lambda: made(streams=({"schema": {"ts": "timestamp", "x": "int8"}}, {})),
}


@pytest.mark.parametrize("what", OTHER)
def test_another_join(what: str) -> None:
    assert OTHER[what]().fingerprint != BASE


@pytest.mark.parametrize("what", SAME)
def test_the_same_join(what: str) -> None:
    join = SAME[what]()
    assert join.fingerprint == BASE
    # State numbers its keys: the same fingerprint must mean the same keys in the same places.
    assert join.keys == made().keys
    assert [(c.left_key, c.right_key, c.lo, c.hi) for c in join.conditions] == [
        (c.left_key, c.right_key, c.lo, c.hi) for c in made().conditions
    ]


def test_a_filter_is_the_same_join_wherever_it_is_written() -> None:
    filtered = made(streams=({"where": "x > 1 AND i IS NOT NULL"}, {}))
    for text in ("e.x > 1 AND NOT e.i IS NULL", "e.i IS NOT NULL AND 1.0 < e.x", "NOT (e.i IS NULL OR e.x <= 1)"):
        assert made(on=f"{TEXT} AND {text}").fingerprint == filtered.fingerprint
    assert filtered.fingerprint != BASE


def test_no_two_changes_are_one() -> None:
    fingerprints = {what: make().fingerprint for what, make in OTHER.items()}
    for one, other in itertools.combinations(fingerprints, 2):
        assert fingerprints[one] != fingerprints[other], (one, other)


def test_self_pairs_over_one_input_moved_together() -> None:
    here = made(streams=({"source": "a.csv"}, {"source": "a.csv"})).fingerprint
    there = made(streams=({"source": "/b/a.csv"}, {"source": "/b/a.csv"})).fingerprint
    assert here == there


def test_golden() -> None:
    # Tables and checkpoints in the field hold this value. Another one would make all of them foreign.
    assert len(BASE) == 32
    assert BASE == "3b7f70513fa2bcc5c2f9e81e852abae6"
    # As it was when an equality of floats was a band of no width.
    assert OTHER["an equality of floats"]().fingerprint == "e9c5bbc9912ce55d560af41a3764b755"
    assert made(on="e.x = w.x AND e.d = w.d AND abs(e.x - w.i) <= 0").fingerprint == "90adf0753031bbfcd0cfb3e3c1434175"
