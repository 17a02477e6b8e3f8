"""A join without Spark: exact, at every step of a batch, and its checkpoint goes on under Spark, and back."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.batch_log import BatchLog
from streamjoin_ds.checkpoint.inspection import inspected, opened, sparks_state_rows, state_rows
from streamjoin_ds.checkpoint.spark_files import SparkFiles
from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.sink import durability, log
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.files.file_scan import FileScan
from streamjoin_ds.stream.batch_planner import BatchPlanner
from streamjoin_ds.stream.commit import forget_committers
from streamjoin_ds.stream.local_query import LocalQuery, start_local
from streamjoin_ds.stream.query_options import QueryOptions
from tests.support.kinds import EVERY, MAX_ROWS, Kind, facts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_SOURCES = sorted(name for name, kind in EVERY.items() if kind.form != "frames")
# Where a driver may end within a batch, and the next one begins: before each of these is done, and after it.
STEPS = {
    "planned": (BatchLog, "plan_batch"),
    "states": (BatchLog, "keep_states"),
    "tables": (Committer, "commit"),
    "done": (BatchLog, "end_batch"),
}


class _KilledError(Exception):
    """Stands for the end of a process."""


class Run:
    """One join of a kind over a folder, which several drivers run one after the other."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.input = folder / "in"
        kind.give_input(self.input)
        self.table, self.checkpoint = str(folder / "matches"), str(folder / "checkpoint")

    def local(self, **options: Any) -> LocalQuery:
        asked = QueryOptions(available_now=True, max_rows_per_batch=MAX_ROWS, **options)
        return start_local(self.kind.join(str(self.input)), self.table, self.checkpoint, asked)

    def to_the_end(self, **options: Any) -> None:
        query = self.local(**options)
        assert query.awaitTermination(120)

    def killed(self, monkeypatch: pytest.MonkeyPatch, step: str, when: str, batch: int) -> None:
        """Run batches, and end before or after a step of one of them, as by a kill: nothing after it happens."""
        owner, name = STEPS[step]
        original = getattr(owner, name)
        seen = [0]

        def call(own: Any, *arguments: Any, **options: Any) -> Any:
            seen[0] += 1
            is_now = seen[0] == batch + 1
            if is_now and when == "before":
                raise _KilledError
            outcome = original(own, *arguments, **options)
            if is_now:
                raise _KilledError
            return outcome

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, call)
            query = self.local()
            with pytest.raises(_KilledError):
                query.awaitTermination(120)
        forget_committers()

    def under_spark(self, spark: SparkSession, **options: Any) -> None:
        query = self.kind.join(str(self.input)).start(
            spark, self.table, self.checkpoint, max_rows_per_batch=MAX_ROWS, available_now=True, **options
        )
        assert query.awaitTermination(120)

    def check_state(self, spark: SparkSession) -> None:
        """The state is read without Spark as Spark itself reads it."""
        _, identity = opened(self.checkpoint)
        assert identity is not None
        folder = identity.spark_folder(Path(self.checkpoint))
        assert isinstance(folder, Path)
        found = state_rows(lambda: pytest.fail("Spark was asked"), folder)
        assert sorted(found) == sorted(sparks_state_rows(spark, folder))

    def check(self) -> None:
        found = scanned(DeltaTable(self.table)).to_table().to_pylist()
        assert facts_of(found) == self.kind.expected(str(self.input))
        assert facts_of(found), "the kind has results"
        metrics = scanned(DeltaTable(f"{self.table}_metrics")).to_table()
        sizes = pa.table(DeltaTable(self.table).get_add_actions())["size_bytes"].to_pylist()
        assert sum(metrics["match_bytes"].to_pylist()) == sum(sizes), "the metrics say how many bytes matches take"


@pytest.mark.parametrize("name", OF_SOURCES)
def test_every_kind_of_join_is_exact(name: str, tmp_path: Path) -> None:
    run = Run(EVERY[name], tmp_path)
    run.to_the_end()
    run.check()
    run.to_the_end()  # there is nothing new
    run.check()
    assert inspected(lambda: pytest.fail("Spark was asked"), run.checkpoint).cells


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_done_once_wherever_its_driver_ends(
    step: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(EVERY["full"], tmp_path)
    for batch in (0, 1):
        run.killed(monkeypatch, step, when, batch)
    run.to_the_end(cells=2)
    run.check()


def test_a_checkpoint_goes_on_under_spark_and_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each driver ends within a batch, and the next one is of the other sort."""
    for number, (step, when) in enumerate((("planned", "after"), ("states", "after"), ("tables", "after"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Run(EVERY["left"], folder)
        run.killed(monkeypatch, step, when, 1)
        run.under_spark(spark, layout="1x2" if number == 1 else "auto")
        run.check()
        run.check_state(spark)
        run.to_the_end()
        run.check()


def test_a_batch_waits_for_the_device_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cells and commit wrote is forced before the first entry, entries before that of the punctuation."""
    steps: list[tuple[str, set[str]]] = []
    commit, forced, named, fsync = Committer.commit, durability._forced, log.put_new, os.fsync
    batches: list[list[tuple[str, set[str]]]] = []

    def committing(own: Committer, *arguments: Any, **options: Any) -> Any:
        outcome = commit(own, *arguments, **options)
        batches.append(steps[:])
        steps.clear()
        return outcome

    def forcing(paths: list[str]) -> None:
        steps.extend([("forced", set(paths))] if paths else [])
        forced(paths)

    def naming(aside: str, path: str) -> bool:
        steps.append(("named", {path}))
        return named(aside, path)

    def of_a_group(descriptor: int) -> None:
        assert os.readlink(f"/proc/self/fd/{descriptor}") in steps[-1][1]
        fsync(descriptor)

    run = Run(EVERY["inner"], tmp_path)
    run.killed(monkeypatch, "planned", "after", 0)  # the tables are made, and no batch is done
    monkeypatch.setattr(Committer, "commit", committing)
    monkeypatch.setattr(durability, "_forced", forcing)
    monkeypatch.setattr(log, "put_new", naming)
    monkeypatch.setattr(LocalQuery, "start", lambda own: monkeypatch.setattr(os, "fsync", of_a_group) or own._run())
    steps.clear()
    query = run.local()
    assert query.exception() is None
    assert len(batches) > 2
    for number, batch in enumerate(batches[1:], 1):
        kinds = [kind for kind, _ in batch]
        assert kinds == ["forced", "forced", "named", "named", "named", "forced", "forced", "named", "forced", "forced"]
        paths = [path for kind, of_group in batch for path in of_group if kind == "forced"]
        assert len(paths) == len(set(paths)), "nothing is forced twice"
        assert str(tmp_path / f"checkpoint/offsets/{number}") in batch[0][1]
        assert any(path.startswith(f"{run.table}/batch-{number:08d}") for path in batch[0][1]), "a cell's file"
    run.check()


class Folders:
    """A join of two folders of small files, in batches of fewer records than there are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.join = StreamJoin([Stream(side, str(folder / side)) for side in "ew"], "abs(e.x - w.x) <= 0.5", "1ms")
        for side in "ew":
            (folder / side).mkdir()
            for number in range(6):
                self.write(side, number)

    def write(self, side: str, number: int, columns: str = "ts,x") -> None:
        rows = [f"{1_700_000_000_000_000 + k},{k % 7}.5" for k in range(100 * number, 100 * number + 100)]
        (self._folder / side / f"{number}.csv").write_text("\n".join([columns, *rows, ""]))

    def run(self) -> int:
        query = self.join.run_local(
            self._folder / "matches", self._folder / "checkpoint", available_now=True, max_rows_per_batch=200
        )
        query.awaitTermination(60)
        return self.matches()

    def matches(self) -> int:
        return int(scanned(DeltaTable(str(self._folder / "matches"))).count_rows())


def test_records_of_the_next_batch_are_looked_at_while_a_full_one_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, phase, extend = Counter[str](), [""], FileScan._extend

    def counted(scan: FileScan) -> int:
        records = extend(scan)
        found[phase[0]] += records
        return records

    for step in ("latest", "look_ahead"):
        original = getattr(BatchPlanner, step)

        def noted(*asked: Any, step: str = step, original: Any = original, **named: Any) -> Any:
            phase[0] = "a later latest" if step == "latest" and found["look_ahead"] else step
            return original(*asked, **named)

        monkeypatch.setattr(BatchPlanner, step, noted)
    monkeypatch.setattr(FileScan, "_extend", counted)
    assert Folders(tmp_path).run() == sum((a % 7) == (b % 7) for a in range(600) for b in range(600))
    assert found["look_ahead"] > found["latest"] > 0 == found["a later latest"], found


def test_a_file_that_cannot_be_read_ends_the_query_behind_the_batch_before_it(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.write("e", 3, columns="ts,y")
    with pytest.raises(StreamJoinError, match=r"3\.csv"):
        folders.run()
    before = folders.matches()
    assert before > 0
    with pytest.raises(StreamJoinError, match=r"3\.csv"):
        folders.run()
    assert folders.matches() == before
    folders.write("e", 3)
    assert folders.run() == sum((a % 7) == (b % 7) for a in range(600) for b in range(600))


def test_a_state_that_only_spark_reads_is_refused_by_name(tmp_path: Path) -> None:
    run = Run(EVERY["inner"], tmp_path)
    run.to_the_end()
    offsets = tmp_path / "checkpoint" / "offsets"
    newest = max(offsets.iterdir(), key=lambda path: int(path.name))
    newest.write_text(newest.read_text().replace("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"))
    with pytest.raises(ArgumentError, match="without Spark") as caught:
        run.local()
    assert "run it under Spark" in caught.value.hint


def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamjoin_ds.checkpoint.batch_log._PURGE_EVERY", 1)
    monkeypatch.setattr("streamjoin_ds.stream.local_query._RETAINED", 2)
    run = Run(EVERY["inner"], tmp_path)
    run.to_the_end()
    run.check()
    found = SparkFiles.of(tmp_path / "checkpoint", 1)
    assert len(found.offsets) <= 3 >= len(found.commits)
    assert max(found.offsets) > 3
    assert len(list((tmp_path / "checkpoint/state/0/0").iterdir())) <= 4
