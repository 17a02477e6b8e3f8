"""The example `examples/unconfirmed.py`: its rows are those of DuckDB's NOT EXISTS over the same files."""

from __future__ import annotations

import runpy
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamjoin_ds import JoinEngine
from tests.support.real_data import FILES, needs_data, recorded

A_YEAR_LATER = pa.scalar(datetime(2014, 3, 1, tzinfo=timezone.utc))
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "unconfirmed.py"


@pytest.mark.slow
@pytest.mark.shared
@needs_data
def test_its_rows_are_those_of_duckdb() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60
    join = runpy.run_path(str(EXAMPLE))["unconfirmed"](str(FILES["u"]), str(FILES["s"]))
    given = {name: recorded(name).filter(pc.less(pc.field("ts"), A_YEAR_LATER)) for name in "us"}
    engine = JoinEngine(join)
    found = pa.concat_tables([engine.push({name: rows.drop(["seq"]) for name, rows in given.items()}), engine.finish()])
    with duckdb.connect() as connection:
        for name, rows in given.items():
            connection.register(name, rows)
        expected = connection.execute(
            'SELECT u.seq, u.station, u."PM2.5" FROM u WHERE u."PM2.5" >= 300 AND NOT EXISTS (SELECT 1 FROM s '
            'WHERE abs(u."PM2.5" - s."PM2.5") <= 100 AND s.ts BETWEEN u.ts AND u.ts + INTERVAL 6 HOURS)'
        ).fetchall()
    assert len(expected) > 100
    columns = (found[name].to_pylist() for name in ("u_seq", "u_station", "u_PM2.5"))
    assert sorted(zip(*columns, strict=True)) == sorted(expected)
