"""`distance_m` beside its box alone, on recorded positions: ``.venv/bin/python -m tests.bench.distance``.

The flights of ../shared/data are repeated one after the other in time, each time with other offsets of a few metres.
Both joins find by the same box; that of `distance_m` decides besides by the distance. Runs take turns.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import click
import numpy as np
import pyarrow as pa

from streamjoin_ds import JoinEngine
from streamjoin_ds.spec import Join, Stream
from tests.support.real_data import recorded

_BATCH = 20_000
_WINDOW = "60s"
_METRES = 5_000
# A degree of latitude is about 111 km; at 45.8 degrees north, where the positions end, one of longitude 77 km.
_BOX = f"abs(e.latitude - w.latitude) <= {_METRES / 111_195} AND abs(e.longitude - w.longitude) <= {_METRES / 77_000}"
_CONDITIONS = {
    "box": _BOX,
    "distance": f"distance_m(e.latitude, e.longitude, w.latitude, w.longitude) <= {_METRES}",
    "wgs84": f"distance_m(e.latitude, e.longitude, w.latitude, w.longitude, 'wgs84') <= {_METRES}",
}


def repeated(stream: str, times: int) -> pa.Table:
    """Return a stream's positions, repeated in time."""
    table = recorded(stream).select(["ts", "latitude", "longitude"]).drop_null()
    dice = np.random.default_rng(len(stream))
    ts_us = table["ts"].cast(pa.int64()).to_numpy()
    span_us = int(ts_us.max() - ts_us.min()) + 10**9
    degrees = [np.tile(table[name].to_numpy(), times) for name in ("latitude", "longitude")]
    columns = [
        pa.array(np.concatenate([ts_us + n * span_us for n in range(times)]), pa.int64()),
        *(pa.array(values + dice.normal(0, 1e-4, len(values))) for values in degrees),
    ]
    return pa.table(columns, names=["ts", "latitude", "longitude"])


def run(tables: dict[str, pa.Table], on: str) -> tuple[float, int]:
    """Return the CPU seconds of a join, and how many matches it has."""
    kinds: Any = {"ts": "int64", "latitude": "float64", "longitude": "float64"}
    engine = JoinEngine(Join([Stream(name, schema=kinds) for name in tables], on, _WINDOW, ["e.ts", "w.ts"]))
    begins = {name: table["ts"].to_numpy() for name, table in tables.items()}
    first = min(int(times[0]) for times in begins.values())
    last = max(int(times[-1]) for times in begins.values())
    rows = sum(table.num_rows for table in tables.values())
    edges = np.linspace(first, last + 1, max(rows // _BATCH, 1) + 1)
    cuts = {name: np.searchsorted(times, edges) for name, times in begins.items()}
    matches, began = 0, time.process_time()
    for n in range(len(edges) - 1):
        part = {name: table.slice(cuts[name][n], cuts[name][n + 1] - cuts[name][n]) for name, table in tables.items()}
        matches += engine.push(part).num_rows
    return time.process_time() - began, matches


@click.command()
@click.option("--times", type=click.IntRange(min=1), default=20, show_default=True, help="Repetitions of the flights.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
def main(times: int, runs: int) -> None:
    """Print the medians of the CPU seconds, and the ratios to the box within the same turn."""
    tables = {name: repeated(name, times).sort_by("ts") for name in "ew"}
    took: dict[str, list[float]] = {name: [] for name in _CONDITIONS}
    found: dict[str, int] = {}
    for _ in range(runs):
        for name, on in _CONDITIONS.items():
            seconds, found[name] = run(tables, on)
            took[name].append(seconds)
    click.echo(f"{sum(table.num_rows for table in tables.values()):,} positions, window {_WINDOW}")
    for name, seconds in took.items():
        ratio = statistics.median(own / box for own, box in zip(seconds, took["box"], strict=True))
        click.echo(f"{name}: {statistics.median(seconds):.3f} CPU s, {ratio:.2f} x the box, {found[name]:,} matches")


if __name__ == "__main__":
    main()
