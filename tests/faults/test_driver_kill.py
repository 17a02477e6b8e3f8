"""kill -9 of driver and JVM, and of Python workers: the tables are those of an undisturbed run, row for row.

That run is without Spark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.spark_files import source_offset
from streamjoin_ds.plan import Epochs, is_of_ranges
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import bind
from tests.faults.driver import HOOKED, INPUT, KIND, LAYOUT, LOCAL, MAX_ROWS_PER_BATCH, POINTS, ROWS, join
from tests.support.kinds import EVERY

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240
BATCHES = -(-2 * ROWS // MAX_ROWS_PER_BATCH)
PAIR = ("r_seq", "s_seq")


def run_driver(
    table: Path,
    checkpoint: Path,
    *armed: str,
    timeout_s: int = TIMEOUT_S,
    layout: str = "1x2",
    kind: str = "",
    given: Path | None = None,
    local: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a life of a driver; of a kind of join, if one is named, over the input in the folder `given`."""
    command = [sys.executable, "-m", "tests.faults.driver", str(table), str(checkpoint), *armed]
    environment = {**os.environ, LAYOUT: layout, KIND: kind, INPUT: str(given), LOCAL: "1" * local}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT, env=environment
    )


def rows(path: Path | str, *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    table = scanned(DeltaTable(str(path))).to_table()
    table = table.drop_columns([name for name in without if name in table.column_names])
    # Arrow sorts by no list, such as of collected partners; what is left tells rows apart.
    sorts = [(column.name, "ascending") for column in table.schema if not pa.types.is_nested(column.type)]
    return table.sort_by(sorts).to_pylist()


def pairs(found: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """Return what tells results apart: their tuples' numbers, with -1 for a stream that lacks, their window or rank."""
    further = ("window_id", "rank", "z_lo")
    names = sorted(name for name in found[0] if name.endswith("_seq") or name in further) if found else []
    return sorted(tuple(-1 if row[name] is None else row[name] for name in names) for row in found)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run_driver(folder / "matches", folder / "checkpoint", local=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "matches"


def assert_as_undisturbed(table: Path, undisturbed: Path, *, planned_anew: bool = False) -> None:
    # Each batch joins the version that the table beside the streams has then; all have the same rows but for this.
    version = ("z_zone",)
    assert rows(table, without=version) == rows(undisturbed, without=version)
    for companion in ("ledger", "late", "rejects", "punctuations"):
        # What was decided when a batch was planned tells of its layout, and of the table's version.
        kept = ("committed_at", "decided") if planned_anew else ("committed_at",)
        assert rows(f"{table}_{companion}", without=kept) == rows(f"{undisturbed}_{companion}", without=kept)


def test_the_undisturbed_run_is_duckdbs(undisturbed: Path) -> None:
    """The table with which the fault tests compare is checked itself, against the same tuples joined by DuckDB."""
    asked = join()
    bound = bind(asked, {stream.name: infer_schema(stream) for stream in asked.streams})
    connection = duckdb.connect()
    for number, stream in enumerate(asked.streams):
        feed = open_feed(stream, bound.schemas[number])
        tuples = pa.Table.from_batches([chunk.tuples for chunk in feed.read(feed.initial(), None)])
        assert tuples.num_rows == ROWS
        connection.register(stream.name, tuples)
    expected = connection.sql(
        "SELECT r._seq, s._seq FROM r, s WHERE abs(r._ts - s._ts) <= 20000000"
        " AND abs(r.x - s.a) <= 100 AND abs(r.y::DOUBLE - s.b::DOUBLE) <= 100 ORDER BY ALL"
    ).fetchall()
    assert len(expected) > 1_000
    assert pairs(rows(undisturbed)) == expected
    ledger = rows(f"{undisturbed}_ledger")
    assert {row["batch_id"] for row in ledger} == set(range(BATCHES))
    for row in ledger:
        assert row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"]
    assert sum(row["read"] for row in ledger) == 2 * ROWS


def kill_each(
    table: Path, checkpoint: Path, undisturbed: Path, lives: Sequence[tuple[str, int, str]], *, local: bool = False
) -> None:
    """Start a driver for each life, killed at a point of a batch: results come once, are right, and none goes away."""
    expected, before = pairs(rows(undisturbed)), 0
    for point, batch, layout in lives:
        killed = run_driver(table, checkpoint, point, str(batch), layout=layout, local=local)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr[-2000:])
        so_far = pairs(rows(table))
        assert len(set(so_far)) == len(so_far), point
        assert set(so_far) <= set(expected), point
        assert len(so_far) >= before, point
        before = len(so_far)


@pytest.mark.long
def test_drivers_without_spark_are_killed_and_spark_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    """At each point but the first, all on one checkpoint."""
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    batches = (0, 0, 1, 1, 2, 2, 3)
    lives = [(point, batch, "1x2") for point, batch in zip(POINTS[1:], batches, strict=True)]
    kill_each(table, checkpoint, undisturbed, lives, local=True)
    again = run_driver(table, checkpoint)
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed)


def test_drivers_are_killed_and_workers_while_cells_change(undisturbed: Path, tmp_path: Path) -> None:
    """One checkpoint is killed before a commit without Spark, and then under Spark: at a move of its cells, and later.

    The last start asks for fewer cells again, and loses workers. The tests below do more of each.
    """
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    kill_each(table, checkpoint, undisturbed, [("before_commit", 1, "1x2")], local=True)
    kill_each(table, checkpoint, undisturbed, [("moving", 0, "2x2"), ("after_commit", 2, "2x2")])
    again = run_driver(table, checkpoint, "worker", str(BATCHES - 1), layout="2x1")
    assert again.returncode == 0, again.stderr[-2000:]
    assert "killed" in again.stdout
    assert "killed 0 that waited and 0 at work" not in again.stdout
    assert_as_undisturbed(table, undisturbed, planned_anew=True)
    identity = CheckpointIdentity.load(checkpoint)
    assert identity is not None
    assert (identity.generation, identity.partitions) == (2, 2)


@pytest.mark.long
def test_a_driver_killed_at_every_point_loses_and_repeats_nothing(undisturbed: Path, tmp_path: Path) -> None:
    """One checkpoint is killed in one batch after the other, each time at another point. The last start finishes."""
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    kill_each(table, checkpoint, undisturbed, [(point, batch, "1x2") for batch, point in enumerate(HOOKED)])
    again = run_driver(table, checkpoint)
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed)


@pytest.mark.long
def test_killed_workers_are_replaced_and_change_nothing(undisturbed: Path, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    done = run_driver(table, checkpoint, "worker", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "killed" in done.stdout
    assert "killed 0 that waited and 0 at work" not in done.stdout
    assert "Lost task" in Path(f"{checkpoint}.log").read_text()  # a task of the batch did die, and was tried again
    assert_as_undisturbed(table, undisturbed)


@pytest.mark.long
def test_workers_without_memory_end_the_query_by_name_and_it_goes_on_with_more(
    undisturbed: Path, tmp_path: Path
) -> None:
    """Nothing of the batch is in a table then. One whose workers die now and then is another test's: it goes on."""
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    for point, said in (("memory", "had no memory left"), ("oom", "were ended from outside")):
        ended = run_driver(table, checkpoint, point, "1")
        assert ended.returncode == 1, ended.stderr[-2000:]
        assert "WORKER_MEMORY: " in ended.stdout, ended.stdout + ended.stderr[-2000:]
        assert said in ended.stdout
        assert {row["batch_id"] for row in rows(f"{table}_ledger")} == {0}, point
    again = run_driver(table, checkpoint)
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed)


@pytest.mark.long
def test_a_driver_killed_while_its_cells_change(undisturbed: Path, tmp_path: Path) -> None:
    """Each start asks for another layout, with more or fewer cells; it is killed while these are made, and later."""
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    lives = (
        ("offset_logged", 1, "1x2"),
        ("moving", 0, "2x2"),
        ("some_state", 1, "2x2"),
        ("batch_logged", 2, "1x1"),
        ("planning", 4, "3x1"),
    )
    kill_each(table, checkpoint, undisturbed, lives)
    again = run_driver(table, checkpoint, layout="2x1")
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed, planned_anew=True)
    identity = CheckpointIdentity.load(checkpoint)
    assert identity is not None
    assert (identity.generation, identity.partitions) == (4, 2)
    epochs = epochs_of(identity.spark_folder(checkpoint), BATCHES - 1)
    assert epochs is not None
    assert str(epochs.current.layout) == "2x1"


def epochs_of(checkpoint: Path, batch: int) -> Epochs | None:
    text = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8")
    return BatchPlan.from_offset(source_offset(text), ["r", "s"]).layout.epochs


@pytest.mark.campaign
def test_a_driver_killed_in_the_batch_that_changes_the_kind_of_layout(undisturbed: Path, tmp_path: Path) -> None:
    """A grid, ranges of a column, and a grid again: each change is killed, and is done again as it was."""
    table, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    lives = (("offset_logged", 1, "1x2"), ("some_state", 2, "ranges"), ("before_commit", 3, "2x1"))
    kill_each(table, checkpoint, undisturbed, lives)
    again = run_driver(table, checkpoint, layout="ranges")
    assert again.returncode == 0, again.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed, planned_anew=True)
    kinds = []
    for batch in range(BATCHES):
        epochs = epochs_of(checkpoint, batch)
        kinds.append(epochs is not None and is_of_ranges(epochs.current.layout))
    assert kinds == [False, False, True, False, False], "the last change waits until an older epoch is over"


def sleep_through(
    table: Path,
    checkpoint: Path,
    undisturbed: Path,
    batch: int,
    *,
    timeout_s: int = TIMEOUT_S,
    layout: str = "1x2",
    kind: str = "",
    given: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Return the end of a driver that slept in `batch` while another took its checkpoint over and finished.

    The other has the given layout, and as many cells.

    The sleeper has checked the tables, and has not committed yet. When it wakes up, its check is out of date.
    """
    command = [sys.executable, "-m", "tests.faults.driver", str(table), str(checkpoint), "pause", str(batch)]
    first = EVERY[kind].layouts[0] if kind else "1x2"
    sleeper = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, LAYOUT: first, KIND: kind, INPUT: str(given)},
    )
    asleep = psutil.Process(sleeper.pid)
    end = time.monotonic() + timeout_s
    while asleep.status() != psutil.STATUS_STOPPED:
        assert sleeper.poll() is None, sleeper.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    refused = run_driver(table, checkpoint, timeout_s=timeout_s, layout=first, kind=kind, given=given)
    assert refused.returncode == 1
    assert f"CHECKPOINT_IN_USE: the checkpoint is in use by process {sleeper.pid}" in refused.stderr
    other = run_driver(table, checkpoint, "take_over", "0", timeout_s=timeout_s, layout=layout, kind=kind, given=given)
    assert other.returncode == 0, other.stderr[-2000:]
    assert_as_undisturbed(table, undisturbed, planned_anew=True)
    for pid in map(int, Path(f"{checkpoint}.paused").read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    sleeper.send_signal(signal.SIGCONT)
    output, errors = sleeper.communicate(timeout=timeout_s)
    ended = subprocess.CompletedProcess(command, sleeper.returncode, output, errors)
    if (
        batch == (EVERY[kind].batches if kind else BATCHES) - 1
        and (checkpoint / "generation-1").exists()
        and not sleeper.returncode
    ):
        # The tables have its last batch, and what it writes then lies where nobody reads. The fence would stop the next
        # batch, and there is none.
        return ended
    assert sleeper.returncode not in (0, -signal.SIGKILL), sleeper.returncode
    # The error is ours if the driver comes to a commit of its own. It is Spark's if our check finds the batch done and
    # leaves it at that.
    assert any(name in errors for name in ("COMMIT_CONFLICT", "CONCURRENT_STREAM_LOG_UPDATE")), errors[-2000:]
    return ended


@pytest.mark.campaign
def test_a_driver_that_slept_while_another_went_on_changes_nothing(undisturbed: Path, tmp_path: Path) -> None:
    table = tmp_path / "matches"
    sleep_through(table, tmp_path / "checkpoint", undisturbed, 1, layout="2x2")
    assert_as_undisturbed(table, undisturbed, planned_anew=True)
