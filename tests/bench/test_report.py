from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from tests.bench.results import result, run
from tests.bench.suites.paths.report import MEASURES, facts, table
from tests.bench.suites.sides import OURS

_KEYS = {"workload", "measure", "value", "unit", "peer", "peer_value", "cores", "peak_mib"}
# Ours takes 1.0, 4.0 and 2.0 seconds for 1 000 rows, so it is 10, 2.5 and 40 times as fast.
_SPARK = [run(1000, 10.0), run(1000, 10.0), run(500, 40.0)]


def _text(results):
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - the console's own
    console.print(table(results))
    return console.export_text()


def _of(rows, measure, peer="spark"):
    [row] = [row for row in rows if (row["measure"], row["peer"]) == (measure, peer)]
    return row


def test_every_measure_stands_beside_every_peer():
    rows = facts([result(spark=_SPARK, duckdb=_SPARK)])
    assert all(row.keys() >= _KEYS and row.keys() <= _KEYS | {"at_least"} for row in rows)
    expected = {(measure.name, peer) for measure in MEASURES for peer in ("spark", "duckdb")}
    expected |= {("speedup", "spark"), ("speedup", "duckdb"), ("speedup_over_best", "spark")}
    assert sorted((row["measure"], row["peer"]) for row in rows) == sorted(expected)
    assert json.loads(json.dumps(rows)) == rows


def test_values_are_medians_and_the_speedup_is_the_median_of_the_pairs():
    rows = facts([result(spark=_SPARK)])
    throughput = _of(rows, "rows_per_second")
    assert (throughput["value"], throughput["peer_value"]) == (500.0, 100.0)
    assert _of(rows, "results_per_second")["value"] == 5.0
    assert _of(rows, "cpu_per_row")["value"] == 1000.0
    # Rows a second, ours over Spark's, pair by pair: 1000 / 100, 250 / 100, 500 / 12.5.
    assert _of(rows, "speedup")["value"] == 10.0


def test_the_target_stands_at_its_measure_only():
    rows = facts([result(spark=_SPARK, duckdb=_SPARK), result("input-bound", duckdb=_SPARK)])
    targets = [(row["workload"], row["measure"], row["peer"], row["at_least"]) for row in rows if "at_least" in row]
    assert targets == [("input-bound", "rows_per_second", "duckdb", 3e6)]
    rows = facts([result(spark=_SPARK, spark_tuned=_SPARK)])
    assert [row["measure"] for row in rows if "at_least" in row] == ["speedup"]


def test_without_peers_the_peer_is_null():
    rows = facts([result()])
    assert [row["measure"] for row in rows] == [measure.name for measure in MEASURES]
    assert all(row["peer"] is None and row["peer_value"] is None for row in rows)


@pytest.mark.parametrize(("times", "verdict"), [(29.0, "NOT met (29)"), (50.0, "met (50)")])
def test_the_table_says_whether_a_target_is_met(times, verdict):
    spark = [run(1000, times * seconds) for seconds in (1.0, 4.0, 2.0)]
    assert f"target: at least 30 x spark-tuned: {verdict}" in _text([result(spark_tuned=spark)])


def test_the_table_names_sides_and_what_a_peer_did_not_take_in():
    text = _text([result(spark=_SPARK, duckdb=[run(400, 1.0)] * 3)])
    assert "within the time limit the first 400 of 1,000 rows" in text
    for side in (OURS, "spark", "duckdb"):
        assert f"  {side}: 4 batches, somehow" in text
    assert "10.0 x" in text


def test_a_target_against_a_peer_that_was_left_out_is_neither_met_nor_missed():
    assert "target: 30 x spark-tuned, which was not measured" in _text([result()])


def test_a_busy_machine_is_told_of():
    spark = [replace(made, others_cores=1.5) for made in _SPARK]
    assert "Other programs kept up to 1.5 cores busy" in _text([result(spark=spark)])
    assert "Other programs" not in _text([result(spark=_SPARK)])


def test_the_fastest_peer_is_the_one_that_ours_is_held_against():
    tuned = [run(1000, 5.0)] * 3
    rows = facts([result(spark=_SPARK, spark_tuned=tuned)])
    [best] = [row for row in rows if row["measure"] == "speedup_over_best"]
    # Rows a second, ours over the peer's, pair by pair: 1000 / 200, 250 / 200, 500 / 200.
    assert (best["peer"], best["value"]) == ("spark-tuned", 2.5)
    assert "over the best peer, spark-tuned: 2.5 x" in _text([result(spark=_SPARK, spark_tuned=tuned)])


def test_other_batches_are_not_compared():
    rows = facts([result("input-bound", spark=_SPARK)])
    assert not any("speedup" in row["measure"] for row in rows)
    text = _text([result("input-bound", spark=_SPARK)])
    assert "so their speeds are not compared" in text
    assert "10.0 x" not in text
