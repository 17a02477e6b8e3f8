"""The examples `unconfirmed.py` and `.sql`: their rows are those of NOT EXISTS in DuckDB over the same files."""

from __future__ import annotations

import runpy
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamjoin_ds import JoinEngine
from streamjoin_ds.script.script import Script
from tests.support.real_data import FILES, needs_data, recorded

A_YEAR_LATER = pa.scalar(datetime(2014, 3, 1, tzinfo=timezone.utc))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.shared
@needs_data
def test_their_rows_are_those_of_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ending in ("py", "sql"):
        assert len((EXAMPLES / f"unconfirmed.{ending}").read_text().splitlines()) < 60
    for name, stream in (("urban", "u"), ("suburban", "s")):
        (tmp_path / f"{name}.csv.gz").symlink_to(FILES[stream])
    monkeypatch.chdir(tmp_path)
    (step,) = Script((EXAMPLES / "unconfirmed.sql").read_text()).steps
    in_python = runpy.run_path(str(EXAMPLES / "unconfirmed.py"))["unconfirmed"]("urban.csv.gz", "suburban.csv.gz")
    given = {name: recorded(name).filter(pc.less(pc.field("ts"), A_YEAR_LATER)) for name in "us"}
    with duckdb.connect() as connection:
        for name, rows in given.items():
            connection.register(name, rows)
        expected = connection.execute(
            'SELECT u.seq, u.station, u."PM2.5" FROM u WHERE u."PM2.5" >= 300 AND NOT EXISTS (SELECT 1 FROM s '
            'WHERE abs(u."PM2.5" - s."PM2.5") <= 100 AND s.ts BETWEEN u.ts AND u.ts + INTERVAL 6 HOURS)'
        ).fetchall()
    assert len(expected) > 100
    for join in (in_python, step.checked(None).request.join):
        engine = JoinEngine(join)
        pushed = engine.push({name: rows.drop(["seq"]) for name, rows in given.items()})
        found = pa.concat_tables([pushed, engine.finish()])
        columns = (found[name].to_pylist() for name in ("u_seq", "u_station", "u_PM2.5"))
        assert sorted(zip(*columns, strict=True)) == sorted(expected)
