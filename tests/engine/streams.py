"""A small two-stream join and tuples for it, for tests that need no variety."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import EXECUTION_OPTIONS, Execution
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind

TIME = pa.timestamp("us", tz="UTC")


def band_join(window: str = "1s", on: str = "abs(r.x - s.a) <= 10 and abs(r.y - s.b) <= 10") -> BoundJoin:
    """Return the two-dimensional band join of r(x, y, v) and s(a, b, tag)."""
    schemas = {
        "r": pa.schema([("ts", TIME), ("x", pa.float64()), ("y", pa.float64()), ("v", pa.float32())]),
        "s": pa.schema([("ts", TIME), ("a", pa.float64()), ("b", pa.float64()), ("tag", pa.string())]),
    }
    return bind(Join([Stream("r"), Stream("s")], on, window), schemas)


def tuples(
    bound: BoundJoin,
    stream: int,
    rows: int,
    *,
    start_us: int = 0,
    span_us: int = 1_000_000,
    seed: int = 0,
    seq: int = 0,
) -> pa.Table:
    """Return random tuples in the inside form: keys in 0..1000, times sorted, numbers from `seq`."""
    rng = np.random.default_rng([seed, stream, start_us])
    columns: list[pa.Array] = []
    for field in bound.tuple_schema(stream):
        if field.name == "_ts":
            columns.append(pa.array(np.sort(rng.integers(start_us, start_us + span_us, rows))))
        elif field.name == "_seq":
            columns.append(pa.array(np.arange(seq, seq + rows)))
        elif pa.types.is_string(field.type):
            columns.append(pa.array([None if n % 7 == 0 else f"t{n}" for n in range(rows)], pa.string()))
        else:
            columns.append(pa.array(rng.random(rows) * 1000).cast(field.type, safe=False))
    return pa.Table.from_arrays(columns, schema=bound.tuple_schema(stream))


def pairs(chunks: list[pa.Table]) -> list[tuple[int, int]]:
    """Return the pairs of tuples' numbers in the results, sorted."""
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        found += zip(chunk["r_seq"].to_pylist(), chunk["s_seq"].to_pylist(), strict=True)
    return sorted(found)


def filled(bound: BoundJoin, pushes: int = 4, rows: int = 300, **options: object) -> WindowJoin:
    """Return a join with some tuples in its windows, and the last second still open."""
    join = WindowJoin(bound, **engine_options(**options))
    for n in range(pushes):
        batch = {s: tuples(bound, s, rows, start_us=n * 1_000_000, seq=n * rows) for s in (0, 1)}
        for _ in join.push(batch, n * 1_000_000):
            pass
    return join


def engine_options(**options: Any) -> dict[str, Any]:
    """Return options of an engine by their names as its arguments: those of an `Execution` become one."""
    asked = {name: options.pop(name) for name in EXECUTION_OPTIONS if name in options}
    return {"execution": Execution(**asked), **options} if asked else options
