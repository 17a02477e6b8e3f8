"""The suite of live queries: what it computes from a query's events, and one real run of the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.stream.source_facts import bound_join
from tests.bench.results import bench
from tests.bench.suites.live.finding import Finding, StreamSettings
from tests.bench.suites.live.live import LiveTask, _delete_rows, _Weight
from tests.bench.suites.live.live_process import LiveRun
from tests.bench.suites.live.rate_change import RateChange, RateRun
from tests.bench.suites.live.report import stream_facts, stream_table
from tests.bench.suites.live.step_load import StepLoad, tuple_delays
from tests.bench.suites.live.suite import LONG, MEASURES, measure_streams
from tests.bench.suites.paths.inputs import first_tuples
from tests.bench.suites.processes import BenchError

_TASK = LiveTask("nowhere", rate=100, window_us=5_000_000, eps=300, batches=3, batch_rows=200)


def _batch(number, at_s, *, full=True, read=(100, 100), matches=0):
    return {
        "at_s": at_s, "batch_id": number, "full": full, "read": list(read), "matches": matches,
        "state_rows": 0,
    }  # fmt: skip


def _trigger(number, second, milliseconds):
    timestamp = f"2026-11-20T00:00:{second:06.3f}Z"
    return {"batchId": number, "timestamp": timestamp, "durationMs": {"triggerExecution": milliseconds}}


def test_rates_are_medians_from_commit_to_commit_over_full_windows_only():
    times = [(0.0, False), (9.0, False), (10.0, True), (12.0, True), (16.0, True)]
    run = LiveRun(_TASK, 0.0, batches=[_batch(n, at_s, full=full) for n, (at_s, full) in enumerate(times)])
    assert [seconds for seconds, _ in run.full_steps()] == [1.0, 2.0, 4.0]
    assert run.rate(lambda batch: sum(batch["read"])) == 100.0


def test_a_tuple_waits_for_the_trigger_after_its_event_and_for_its_commit():
    epoch = 1_795_132_800.0  # 2026-11-20
    run = LiveRun(_TASK, 0.0)
    run.triggers = [_trigger(4, 10.0, 400), _trigger(5, 11.0, 250), _trigger(6, 11.5, 300)]
    run.batches = [_batch(4, epoch + 10.4, full=False), _batch(5, epoch + 11.25), _batch(6, epoch + 11.8)]
    assert run.trigger_ms() == [250.0, 300.0]
    waits = run.waits_ms()
    # Tuples of batch 5 are due from 10.0 to 11.0 and committed at 11.25, those of batch 6 due from 11.0 to 11.5 and
    # committed at 11.8.
    assert np.allclose([min(waits[:50]), max(waits[:50])], [260, 1240])
    assert np.allclose([min(waits[50:]), max(waits[50:])], [305, 795])
    assert len(waits) == 100


def test_every_tuple_of_a_load_in_steps_has_its_own_delay():
    epoch = 1_795_132_800.0
    load = StepLoad(10, (2, 1), 1, 2)
    assert load.rates == "0s:10,2s:20,3s:10"
    assert load.rows == 50
    run = LiveRun(replace(_TASK, rates=load.rates), 0.0)
    # The clock starts at 8.0 s. Batch 2 takes all that is due at 10.45 s; after it more is due than batches take.
    run.batches = [
        _batch(0, epoch + 8.4, read=(1, 1)),
        _batch(1, epoch + 9.4, read=(9, 9)),
        _batch(2, epoch + 11.0, read=(20, 20)),
        _batch(3, epoch + 12.0, read=(2, 2)),
        _batch(4, epoch + 13.0, read=(18, 18)),
    ]
    run.triggers = [_trigger(2, 10.445, 300), _trigger(3, 11.2, 300), _trigger(4, 12.2, 300)]
    for trigger in run.triggers:
        trigger["durationMs"]["latestOffset"] = 8
    due_s, delay_ms = tuple_delays(run)
    assert len(due_s) == len(delay_ms) == 100
    start_s = 10.445 - 2.45  # the last of batch 2 was due 2.45 s after the first
    assert np.allclose(due_s[:50], due_s[50:])
    assert np.allclose([due_s[0], due_s[9], due_s[20], due_s[29], due_s[40]], [0, 0.9, 2.0, 2.45, 3.0])
    commits_s = np.repeat([8.4, 9.4, 11.0, 12.0, 13.0], [1, 9, 20, 2, 18])
    assert np.allclose(delay_ms[:50], 1000 * (commits_s - start_s - due_s[:50]))
    steps = load.by_step(due_s, delay_ms)
    assert [len(step) for step in steps] == [40, 20]
    assert np.isclose(max(steps[1]), 1000 * (13.0 - start_s - 3.0))
    run.triggers = []
    with pytest.raises(BenchError):
        tuple_delays(run)


def test_a_load_whose_rate_grows_has_as_many_tuples_as_it_says():
    change = RateChange(100, 20, 30, 5, 10)
    task = change.task("nowhere", "grid")
    tables = [first_tuples(bound_join(task.join()), stream, 100 * 30 + stream * 100 * 20 * 19 + 1) for stream in (0, 1)]
    seconds = [(table["ts"].cast(pa.int64()).to_numpy() - tables[0]["ts"][0].value) / 1e6 for table in tables]
    counts = [int(np.count_nonzero(since_s < 30)) for since_s in seconds]
    assert counts == [3_000, 1_000 + 2_000 * 20]
    assert np.count_nonzero(seconds[1] < 10) == 1_000
    assert sum(counts) == change.rows == task.rows
    assert (task.batch_rows, task.window_us, task.cells) == (8_800, 3_000_000, 16)
    assert RateChange(100, 1, 30, 5, 10).rows == 6_000


def _metrics(number, shipped, layout):
    return [{"batch_id": number, "shipped_rows": count, "layout": layout} for count in shipped]


def test_what_a_query_whose_layout_follows_the_rates_did():
    task = replace(_TASK, rows=1_400)
    run = LiveRun(task, 0.0, cpu_s=7.0, batches=[_batch(n, 10.0 + n, matches=n) for n in range(9)])
    layouts = ["4x4"] * 6 + ["1x16"] * 3
    metrics = [row for n, layout in enumerate(layouts) for row in _metrics(n, (300, 10 * n), layout)]
    run.triggers = [_trigger(n, n, 400 if n == 6 else 100 * (n % 3 + 1)) for n in range(9)]
    told = RateRun.of(run, metrics)
    assert told.wall_s == 6.0
    assert told.read == (200,) * 7, "the query went on until it was stopped"
    assert told.matches == tuple(range(7))
    assert told.shipped == tuple(300 + 10 * n for n in range(7))
    assert (told.changing, told.epochs, told.skipped) == ((6,), ("4x4", "1x16"), 0)
    assert told.changing_over_others() == [400 / 300], "batch 5; the first ones are no others"
    long = replace(told, layouts=("4x4",) * 20 + ("1x16",) * 30, trigger_ms={n: 10.0 + n for n in range(50)})
    assert long.changing_over_others() == [30 / 30], "batches 15 to 25"
    fixed = replace(told, layouts=("4x4",) * 7, trigger_ms=dict.fromkeys(range(7), 200.0))
    assert told.changing_over(fixed) == 2.0
    assert (fixed.changing_over_others(), fixed.changing_over(told)) == ([], 1.0)
    del run.batches[3]
    run.batches[3]["read"] = [0, 0]
    assert RateRun.of(run, metrics).skipped == 2


def _true_matches(counts):
    """Return the number of matches of the streams' first tuples, by a look at every pair."""
    bound = bound_join(_TASK.join())
    left, right = (first_tuples(bound, stream, rows) for stream, rows in enumerate(counts))
    x, y, a, b = (column.to_numpy().astype(np.float64) for column in (left["x"], left["y"], right["a"], right["b"]))
    left_us, right_us = (table["ts"].cast(pa.int64()).to_numpy() for table in (left, right))
    near = (abs(x[:, None] - a) <= 300) & (abs(y[:, None] - b) <= 300)
    return int((near & (abs(left_us[:, None] - right_us) <= _TASK.window_us)).sum())


def test_the_matches_of_the_first_batches_are_counted_again():
    matches = _true_matches((900, 1_100))
    assert matches > 100
    run = LiveRun(_TASK, 0.0, batches=[_batch(0, 1.0, read=(900, 1_100), matches=matches)])
    run.check()
    for wrong in (matches - 1, matches + 1):
        run.batches[0]["matches"] = wrong
        with pytest.raises(BenchError, match="independent count"):
            run.check()


def test_deleted_rows_are_gone_from_the_table_and_from_the_disk(tmp_path):
    table = tmp_path / "matches"
    for value in (1, 2):
        write_deltalake(str(table), pa.table({"x": [value]}), mode="append")
    _delete_rows(table)
    assert scanned(DeltaTable(str(table))).to_table().num_rows == 0
    assert list(table.glob("*.parquet")) == []
    write_deltalake(str(table), pa.table({"x": [3]}), mode="append")
    assert scanned(DeltaTable(str(table))).to_table()["x"].to_pylist() == [3]


def test_state_is_weighed_once_when_it_is_new(tmp_path):
    for name, size in (("blocks/a.arrow", 10), ("state/0/1/1.delta", 5), ("offsets/1", 100)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    weight = _Weight(tmp_path)
    assert weight.new_bytes() == {"block_bytes": 10, "row_bytes": 5}
    assert weight.new_bytes() == {"block_bytes": 0, "row_bytes": 0}
    (tmp_path / "blocks" / "b.arrow").write_bytes(b"xx")
    assert weight.new_bytes() == {"block_bytes": 2, "row_bytes": 0}


def test_bytes_a_row_are_of_full_windows_only():
    batches = [_batch(0, 1.0, full=False), _batch(1, 2.0), _batch(2, 3.0, read=(100, 300))]
    for batch, written in zip(batches, (9_999, 1_000, 200), strict=True):
        batch["block_bytes"] = written
    assert LiveRun(_TASK, 0.0, batches=batches).bytes_per_row("block_bytes") == 1_200 / 600


@pytest.mark.parametrize(
    ("at_least", "at_most", "met"), [(None, None, None), (5.0, None, True), (6.0, None, False), (None, 4.0, False)]
)
def test_a_bound_is_met_or_not_and_is_told(at_least, at_most, met):
    finding = Finding("band2d", "speed", 5.0, "times", at_least, at_most, "duckdb", 0.5, 100.0, "somehow")
    assert finding.met is met
    [row] = stream_facts([finding])
    assert row.keys() - {"at_least", "at_most"} == {
        "workload", "measure", "value", "unit", "peer", "peer_value", "cores", "peak_mib",
    }  # fmt: skip
    assert (row.get("at_least"), row.get("at_most")) == (at_least, at_most)
    assert json.loads(json.dumps(row)) == row
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - the console's own
    console.print(stream_table([finding, replace(finding, others_cores=1.2)]))
    text = console.export_text()
    assert ("NO" in text) is (met is False)
    assert "band2d, speed: somehow" in text
    assert "up to 1.2 cores busy" in text


def test_unknown_names_are_refused_before_anything_runs():
    with pytest.raises(ArgumentError, match="no measure 'speed'"):
        measure_streams(["full-windows", "speed"], StreamSettings(), print)
    with pytest.raises(ArgumentError, match="no peer 'flink'"):
        StreamSettings(peers=("flink",))


@pytest.mark.slow
def test_help_names_every_measure_and_the_long_one_is_by_name_only(tmp_path):
    done = bench("stream", "--help", cwd=tmp_path)
    assert done.returncode == 0
    shown = "".join(done.stdout.split())  # the help may be wrapped anywhere
    assert all(name in shown for name in MEASURES)
    assert LONG == ("rate", "rates")


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
def test_a_live_query_is_measured_killed_and_started_again(tmp_path):
    values, by_measure = _measured("restart", cwd=tmp_path)
    assert 0 < by_measure["session"] < by_measure["first_commit"]
    assert not any("at_least" in row or "at_most" in row for row in values.values())
    assert list(tmp_path.iterdir()) == []


def _measured(*names, cwd):
    done = bench("stream", *names, "--quick", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    values = {(row["workload"], row["measure"]): row for row in json.loads(done.stdout)}
    return values, {measure: row["value"] for (_, measure), row in values.items()}


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.delta
def test_live_queries_are_measured(tmp_path):
    values, by_measure = _measured("trigger", "delay", "rate", "rates", cwd=tmp_path)
    change = "band2d, 1:1 then 1:20"
    assert values[change, "shipped_share"]["value"] < 100
    assert values["band2d, 1:1", "shipped_share"]["value"] == 100
    assert values[change, "layouts"]["value"] == 2
    assert by_measure["batches_skipped"] == 0
    assert 0 < by_measure["trigger_p50"] <= by_measure["trigger_p99"]
    assert by_measure["trigger_p50"] / 2 < by_measure["due_to_commit_p50"] <= by_measure["due_to_commit_p99"]
    assert by_measure["trigger_over_empty"] * by_measure["empty_trigger_p50"] == pytest.approx(
        by_measure["trigger_p50"], rel=0.01
    )
    assert 0 < by_measure["step_1_p99"] < 60_000
    assert by_measure["real_time"] > 0
    assert by_measure["peak_memory"] > 200
    assert not any("at_least" in row or "at_most" in row for row in values.values())
    assert list(tmp_path.iterdir()) == []
