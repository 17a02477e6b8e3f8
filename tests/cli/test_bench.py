"""`streamjoin bench`: what DuckDB is given is the same join, and what cannot be measured is refused by name."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from streamjoin_ds import Join, Stream
from streamjoin_ds.cli.bench import command, duckdb_queries
from streamjoin_ds.spec import bind
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.support.examples import examples

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("odd-name", pa.float64()), ("n", pa.int32())])
VALUES = st.sampled_from([*range(-4, 5), 0.1, -0.3, 2.5, math.nan, math.inf, -math.inf, None])
ROWS = st.lists(st.tuples(st.integers(0, 8), VALUES, st.none() | st.integers(-3, 3)), max_size=12)
CONDITIONS = (
    "abs(l.`odd-name` - r.`odd-name`) <= 0.5",
    "l.`odd-name` - r.`odd-name` BETWEEN -2 AND 0.5 AND r.n - l.n BETWEEN 0 AND 1",
    "abs(l.n - r.n) <= 1 AND (l.`odd-name` > r.`odd-name` OR r.n = 0)",
    "l.n = r.n",
    "l.`odd-name` = r.`odd-name`",
    "NOT (l.`odd-name` - r.`odd-name` < 0 OR l.n = 3) AND l.`odd-name` IN (0, r.`odd-name`, r.n)",
)


@pytest.mark.parametrize("condition", CONDITIONS)
@examples(40)
@given(left=ROWS, right=ROWS)
@example(left=[(0, math.nan, 0)], right=[(0, 0, 0), (0, math.nan, 0), (0, math.inf, 0)])
@example(left=[(0, math.inf, 0), (0, math.nan, 0)], right=[(0, math.inf, 0), (0, math.nan, 1)])
def test_duckdb_is_given_the_same_join(condition: str, left: list, right: list) -> None:
    streams = [Stream("l", schema=SCHEMA), Stream("r", schema=SCHEMA, where="n IS NULL OR `odd-name` > -4")]
    bound = bind(Join(streams, condition, {"l": "3us", "r": "1us"}), {"l": SCHEMA, "r": SCHEMA})
    tables = {
        name: pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
        for name, rows in (("l", left), ("r", right))
    }
    expected = len(oracle_numbers(bound.join, tables, lateness=False))
    with duckdb.connect(config={"threads": 1}) as database:
        for name, table in tables.items():
            database.register(name, table)
        queries = duckdb_queries(bound)
        assert ("by grid cells" in queries) == ("abs" in condition or "BETWEEN" in condition)
        assert {way: len(database.execute(query).fetchall()) for way, query in queries.items()} == dict.fromkeys(
            queries, expected
        )


def test_duckdb_is_given_no_other_join() -> None:
    streams = [Stream(name, schema=SCHEMA) for name in "lrs"]
    schemas = dict.fromkeys("lrs", SCHEMA)
    for join in (
        Join(streams, "l.n = r.n AND r.n = s.n", "1s"),
        Join(streams[:2], "l.n = r.n", "last 10"),
        Join(streams[:2], "l.n = r.n", "1s", how="left"),
    ):
        assert duckdb_queries(bind(join, {name: schemas[name] for name in join.names})) == {}


def test_a_stream_without_an_end_is_refused_by_name() -> None:
    streams = ["--stream", "r=gen:band2d?side=r", "--stream", "s=gen:band2d?side=s&rows=10"]
    asked = [*streams, "--on", "abs(r.x - s.a) <= 1", "--window", "1s"]
    refused = CliRunner().invoke(command, asked)
    assert getattr(refused.exception, "name", None) == "r"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.delta
def test_a_join_is_measured_beside_duckdb(tmp_path) -> None:
    streams = [text for side in "rs" for text in ("--stream", f"{side}=gen:band2d?side={side}&rows=2000")]
    given = [*streams, "--on", "|r.x - s.a| <= 100 AND |r.y - s.b| <= 100", "--window", "1 minute", "--runs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "streamjoin_ds.cli.main", "bench", *given, "--json"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ways = {way["way"]: way for way in json.loads(done.stdout)}
    assert list(ways) == ["streamjoin", "duckdb, as written", "duckdb, by grid cells"]
    assert len({way["matches"] for way in ways.values()}) == 1
    assert all(way["rows"] == 4000 and len(way["seconds"]) == 2 and way["rows_per_second"] > 0 for way in ways.values())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("streamjoin-bench")] == []
