"""The example `examples/vessels.py`: its rows are those that DuckDB ranks among all pairs."""

from __future__ import annotations

import runpy
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from streamjoin_ds import JoinEngine

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vessels.py"
ROWS = 3_000


def positions() -> pa.Table:
    """Return an hour of 40 vessels on a square of 20 km, in the order of time."""
    dice = np.random.default_rng(7)
    seconds = np.sort(dice.integers(0, 3_600, ROWS))
    columns = {"ts": (seconds + 1_700_000_000) * 1_000_000, "vessel": dice.integers(0, 40, ROWS)}
    columns |= {name: np.round(dice.uniform(0, 20_000, ROWS), 1) for name in "xy"}
    return pa.table({name: pa.array(values) for name, values in columns.items()}).set_column(
        0, "ts", pa.array(columns["ts"], pa.timestamp("us", tz="UTC"))
    )


@pytest.mark.slow
def test_its_rows_are_those_of_duckdb(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60
    table, path = positions(), tmp_path / "positions.csv"
    csv.write_csv(table, path)
    engine = JoinEngine(runpy.run_path(str(EXAMPLE))["encounters"](str(path)))
    found = pa.concat_tables([engine.push({"a": table, "b": table}), engine.finish()])
    with duckdb.connect() as connection:
        connection.register("given", table.append_column("seq", pa.array(range(ROWS))))
        apart = "(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)"
        expected = connection.execute(
            f"SELECT a.seq, b.seq FROM given a JOIN given b ON {apart} <= 1852 * 1852 AND a.vessel <> b.vessel "
            "AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 60000000 "
            f"QUALIFY row_number() OVER (PARTITION BY a.seq ORDER BY {apart}, b.ts, b.seq) = 1"
        ).fetchall()
    assert len(expected) > 1_000
    assert sorted(zip(found["a_seq"].to_pylist(), found["b_seq"].to_pylist(), strict=True)) == sorted(expected)
