"""kill -9 of driver and JVM: restarted, the table is the one of an undisturbed run, row for row."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.readers import open_feed
from streamjoin_ds.stream.query import bound_join
from tests.faults.driver import POINTS, ROWS, join

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("driver.py")
TIMEOUT_S = 240


def run_driver(table: Path, checkpoint: Path, *armed: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.faults.driver", str(table), str(checkpoint), *armed]
    root = DRIVER.parents[2]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=root)


def rows(path: Path | str, *, without: tuple[str, ...] = ()) -> list[dict[str, object]]:
    table = scanned(DeltaTable(str(path))).to_table()
    table = table.drop_columns([name for name in without if name in table.column_names])
    return table.sort_by([(name, "ascending") for name in table.column_names]).to_pylist()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run_driver(folder / "matches", folder / "checkpoint")
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "matches"


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_driver_loses_and_repeats_nothing(point: str, undisturbed: Path, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    killed = run_driver(table, checkpoint, point, "2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]

    again = run_driver(table, checkpoint)
    assert again.returncode == 0, again.stderr[-2000:]

    expected = rows(undisturbed)
    assert len(expected) > 100
    assert rows(table) == expected
    for companion in ("ledger", "late", "punctuations"):
        kept = ("committed_at",)
        assert rows(f"{table}_{companion}", without=kept) == rows(f"{undisturbed}_{companion}", without=kept)


def test_the_undisturbed_run_is_right(undisturbed: Path) -> None:
    """Its rows are those that plain Python finds: the fault tests compare with a table that is itself checked."""
    bound = bound_join(join())
    streams = {
        stream.name: generated(stream, schema) for stream, schema in zip(join().streams, bound.schemas, strict=True)
    }
    found = scanned(DeltaTable(str(undisturbed))).to_table(columns=["r_seq", "s_seq"])
    pairs = sorted(zip(found["r_seq"].to_pylist(), found["s_seq"].to_pylist(), strict=True))
    assert pairs == counted(streams)
    for row in rows(f"{undisturbed}_ledger"):
        assert row["read"] == row["stored"] + row["late"] + row["rejected"]  # type: ignore[operator]


def generated(stream: Stream, schema: pa.Schema) -> pa.Table:
    feed = open_feed(stream, schema)
    start = feed.initial()
    end = feed.advance(start, feed.frontier(start, ROWS).rows)
    return pa.Table.from_batches([chunk.tuples for chunk in feed.read(start, end)])


def counted(streams: dict[str, pa.Table]) -> list[tuple[int, int]]:
    """DuckDB's answer, by the contract's form of the band."""
    connection = duckdb.connect()
    for name, table in streams.items():
        connection.register(name, table)
    answer = connection.sql(
        "SELECT r._seq, s._seq FROM r, s WHERE abs(r.x - s.a) <= 100 AND abs(r.y - s.b) <= 100 "
        "AND abs(r._ts - s._ts) <= 20000000"
    )
    return sorted(answer.fetchall())
