"""The command itself, run once with every real side at a tiny size."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from tests.bench import text_files
from tests.bench.results import bench
from tests.bench.suites.paths.report import MEASURES
from tests.bench.suites.sides import OURS, SIDES


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
@pytest.mark.parametrize("peers", [("duckdb",), pytest.param(SIDES[1:], marks=pytest.mark.campaign)], ids=len)
def test_sides_agree_and_are_reported_as_json(tmp_path, peers):
    chosen = () if peers == SIDES[1:] else [word for peer in peers for word in ("--peer", peer)]
    done = bench("band2d-small", "--rows", "1500", "--quick", "--json", *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    [best] = [row["peer"] for row in rows if row["measure"] == "speedup_over_best"]
    assert {(row["measure"], row["peer"]) for row in rows} == {
        (measure, peer) for measure in (*(m.name for m in MEASURES), "speedup") for peer in peers
    } | {("speedup_over_best", best)}
    batches = dict(re.findall(r"run 1 of 1: (\S+) .* matches, (\d+) batches", done.stderr))
    assert batches["streamjoin"] == "8"
    assert 1 <= int(batches.get("spark", 8)) <= 8  # 8 too, unless Spark's time limit cuts it off
    assert all(row["value"] > 0 and row["peak_mib"] > 50 for row in rows if row["measure"] != "results_per_second")
    assert all(row["workload"] == "band2d-small" and "at_least" not in row for row in rows)
    for side in (OURS, *peers):
        assert f"warm-up: {side}" in done.stderr
        assert f"run 1 of 1: {side}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_not_there_is_said_in_one_line(tmp_path):
    done = bench("flights", "--data", str(tmp_path), "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert done.stderr.count("\n") == 1
    assert "flights: left out" in done.stderr


@pytest.mark.slow
def test_an_unknown_workload_is_one_line_and_no_stack_trace(tmp_path):
    done = bench("band9d", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("bench: ARGUMENT: there is no workload 'band9d'")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["paths", "--help"]])
def test_help_names_workloads_and_options(tmp_path, arguments):
    done = bench(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    for word in ("band2d-small", "input-bound", "--json", "--runs", "--quick", "--data", "--peer"):
        assert word in done.stdout.replace("\n", "").replace(" ", "") or word in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("times", ["local", "ms"])
def test_duckdb_finds_the_same_in_files_of_text(times):
    done = CliRunner().invoke(text_files.main, ["--records", "60000", "--runs", "1", "--times", times])
    assert done.exit_code == 0, done.output
    said = (
        r"2 files of 60,000 records, [1-9][\d,]* matches\n(streamjoin run --local|DuckDB): .* CPU s\nDuckDB: .* CPU s\n"
    )
    assert re.fullmatch(said, done.output)
