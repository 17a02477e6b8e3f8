"""How fast the commit puts the cells' answers together: ``.venv/bin/python -m tests.bench.answers``.

Each join runs in a grid in which two cells tell of every tuple. What is measured is `whole_answers` alone, in the
driver: reading what the cells tell and making rows of it, without writing these.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv

from streamjoin_ds.cell.answers import whole_answers
from streamjoin_ds.plan import Layout
from streamjoin_ds.spec import Join, Nearest, Stream, bind
from streamjoin_ds.stream import commit
from tests.support.microbatch import MicroBatches

_SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
_BEGIN_US, _STEP_US = 1_700_000_000_000_000, 1_000
_JOINS: dict[str, dict[str, Any]] = {
    "semi": {"how": "semi"},
    "nearest": {"how": "left", "nearest": Nearest(1, "abs(e.x - w.x)")},
    "nearest 3": {"how": "left", "nearest": Nearest(3, "abs(e.x - w.x)")},
    "count": {"how": "left", "reduce": {"n": "count(*)"}},
    "sums": {"how": "left", "reduce": {"n": "count(*)", "s": "sum(w.x)", "m": "max(w.x)", "a": "avg(w.x)"}},
    "held": {"how": "left", "reduce": {"n": "count(*)", "q": "quantile(w.x, 0.5)", "d": "stddev(w.x)"}},
}


def measured(options: dict[str, Any], rows: int) -> float:
    """Return how many rows a second are made of the cells' answers."""
    spent_s = 0.0

    def timed(*args: Any) -> list[tuple[int, pa.Table]]:
        nonlocal spent_s
        began = time.process_time()
        found = list(whole_answers(*args))
        spent_s += time.process_time() - began
        return found

    dice = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name, patch.object(commit, "whole_answers", timed):
        folder = Path(name)
        for stream in "ew":
            ts = pa.array(_BEGIN_US + np.arange(rows) * _STEP_US, pa.timestamp("us"))
            pyarrow.csv.write_csv(pa.table({"ts": ts, "x": dice.uniform(0, 1000, rows)}), folder / f"{stream}.csv")
        streams = [Stream(stream, str(folder / f"{stream}.csv"), schema=_SCHEMA) for stream in "ew"]
        bound = bind(Join(streams, "abs(e.x - w.x) <= 0.5", "5s", **options), dict.fromkeys("ew", _SCHEMA))
        matches = MicroBatches(bound, folder, Layout.parse("2x2", 2), max_rows_per_batch=100_000).run()
    return int(matches.num_rows) / spent_s


@click.command(help=__doc__)
@click.option("--rows", default=200_000, show_default=True, help="Tuples of each stream.")
@click.option("--turns", default=5, show_default=True)
def main(rows: int, turns: int) -> None:
    """Print the rows a second of CPU time, by join."""
    for name, options in _JOINS.items():
        found = [measured(options, rows) for _ in range(turns)]
        spread = f"{min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}"
        click.echo(f"{name:<10} {statistics.median(found) / 1e6:.2f} M rows/s ({spread})")


if __name__ == "__main__":
    main()
