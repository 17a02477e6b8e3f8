"""The example `examples/alike.sql`: its rows are those that DuckDB finds with the same SELECT over the same files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyarrow import csv

from streamjoin_ds import JoinEngine
from streamjoin_ds.cli.main import group
from streamjoin_ds.script.script import Script
from streamjoin_ds.sink.reader import scanned

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "alike.sql"
TEXT = EXAMPLE.read_text()
PAIRS = 240
TIMEOUT_S = 300


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(group, arguments, prog_name="streamjoin")
    assert done.exit_code == 0, done.output
    return done.output


def plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def theirs(folder: Path) -> Counter[tuple[Any, ...]]:
    """Return the rows of the example's SELECT over the files."""
    with duckdb.connect() as connection:
        for name in ("kennedy", "newark"):
            path = f"{folder}/{name}.csv.gz"
            connection.execute(f"CREATE TABLE {name} AS SELECT * REPLACE (ts::TIMESTAMP AS ts) FROM '{path}'")
        select = TEXT[TEXT.index("SELECT k.ts") :]
        return Counter(tuple(map(plain, row)) for row in connection.execute(select).fetchall())


def test_its_rows_are_those_of_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(TEXT.splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    invoke("data", "flights", "./")
    assert "find        abs(k.air_time - n.air_time) <= 5" in invoke("sql", str(EXAMPLE), "--explain")
    (step,) = Script(TEXT).steps
    joined = step.checked(None)
    engine = JoinEngine(joined.request.join)
    found = engine.push({"k": csv.read_csv("kennedy.csv.gz"), "n": csv.read_csv("newark.csv.gz")})
    columns = [column.to_pylist() for column in found.select(list(joined.columns)).columns]
    rows = Counter(tuple(map(plain, row)) for row in zip(*columns, strict=True))
    assert rows.total() == PAIRS
    assert rows == theirs(tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_its_commands_find_the_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("data", "flights", "./")
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "sql", str(EXAMPLE), "--available-now", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    totals = json.loads(done.stdout)
    assert (totals["matches"], totals["table"], totals["finished"]) == (PAIRS, "alike", True)
    assert scanned(DeltaTable("alike")).to_table().num_rows == PAIRS
