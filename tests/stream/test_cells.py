"""Another number of cells at a restart, on real Spark: the same rows, and a move that may be cut off at any step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamjoin_ds.checkpoint import move as move_file
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.checkpoint.recovery import recovered
from streamjoin_ds.checkpoint.spark_files import SparkFiles
from streamjoin_ds.errors import ArgumentError, CheckpointInUseError, LayoutError
from streamjoin_ds.sink.tables import TableSet
from tests.stream.test_restart import expected, joined, rows, run, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PART = 40


class CutOff(Exception):
    """The driver was killed here."""


def run_parts(spark: SparkSession, folder: Path, *options: dict[str, Any]) -> list[Any]:
    """Run the join over one more part of the input each time; return what `inspect` says after each."""
    found = []
    for number, given in enumerate(options):
        write(folder / "in", number * PART, (number + 1) * PART)
        run(spark, joined(folder / "in"), folder / "m", folder / "c", **given)
        found.append(inspected(lambda: spark, str(folder / "c")))
    return found


def test_more_and_fewer_cells_on_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    found = run_parts(spark, tmp_path, {"cells": 2}, {"cells": 4}, {"cells": 1}, {"layout": "1x3"}, {})
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
    assert [checkpoint.layout.count("x") for checkpoint in found] == [1] * 5
    assert CheckpointIdentity.load(tmp_path / "c").partitions == 1, "without a word one machine has one cell"
    assert found[3].layout == "1x3"
    last = {cell.cell: cell for cell in found[-1].cells}
    assert {cell.partition for cell in last.values()} == {0}


def test_what_contradicts_itself_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, PART)
    for options, error in (
        ({"cells": 3, "layout": "1x2"}, ArgumentError),
        ({"cells": 0}, ArgumentError),
        ({"cells": True}, ArgumentError),
    ):
        with pytest.raises(error) as caught:
            run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", **options)
        assert caught.value.name == "cells"
    assert not (tmp_path / "c").exists()


def test_a_move_that_is_cut_off_at_any_step_is_done_or_never_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change to a file is a step: the driver dies before each of them, and the next one moves again."""
    run_parts(spark, tmp_path, {"cells": 2})
    write(tmp_path / "in", PART, 2 * PART)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "c", before)
    # A batch that was planned and not done: the driver died in it.
    last = max(SparkFiles.of(before, 2).offsets)
    (before / "commits" / str(last)).unlink()
    (before / "commits" / f".{last}.crc").unlink()
    identity = CheckpointIdentity.load(before)
    results = set()
    for step in range(200):
        checkpoint = tmp_path / "c"
        shutil.rmtree(checkpoint)
        shutil.copytree(before, checkpoint)
        done = _moved_until(checkpoint, identity, step, monkeypatch)
        found = CheckpointIdentity.load(checkpoint)
        results.add((found.generation, found.partitions))
        _in_order(checkpoint, found, last)
        if found.generation == 0:
            recovered(checkpoint, TableSet(str(tmp_path / "m")), 2)
            _in_order(checkpoint, move_file.moved(checkpoint, found, 4), last)
        if done:
            break
    assert results == {(0, 2), (1, 4)}
    assert step > 15
    # Spark goes on with it, from the batch that was cut off.
    run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", cells=4)
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
    # A driver that slept all the while cannot plan a batch of its own.
    assert (tmp_path / "c" / "offsets" / str(last + 1)).read_text() == move_file.FENCE


def _in_order(checkpoint: Path, identity: CheckpointIdentity, last: int) -> None:
    found = SparkFiles.of(identity.spark_folder(checkpoint), identity.partitions)
    assert found.has_state(last)
    assert len(found.state(last)) == identity.partitions
    assert found.query_id is not None
    assert (max(found.offsets), max(found.commits)) == (last, last - 1)
    for number in (last - 1, last):
        conf = json.loads(found.offsets[number].splitlines()[1])["conf"]
        assert conf["spark.sql.shuffle.partitions"] == str(identity.partitions)


def test_a_driver_that_was_not_dead_is_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    run_parts(spark, tmp_path, {"cells": 2})
    identity = CheckpointIdentity.load(tmp_path / "c")
    last = max(SparkFiles.of(tmp_path / "c", 2).offsets)
    (tmp_path / "c" / "offsets" / str(last + 1)).write_text("v1\n{")  # it is being written
    with pytest.raises(CheckpointInUseError, match="believed dead"):
        move_file.moved(tmp_path / "c", identity, 4)
    assert CheckpointIdentity.load(tmp_path / "c") == identity


def _moved_until(checkpoint: Path, identity: CheckpointIdentity, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Move to 4 cells, and die before this step. Return whether it came to its end."""
    left = [step]

    def dies(change: Any) -> Any:
        def changed(*given: Any, **more: Any) -> Any:
            if not left[0]:
                raise CutOff
            left[0] -= 1
            return change(*given, **more)

        return changed

    places = (os, "replace"), (Path, "write_bytes"), (Path, "write_text"), (Path, "open"), (shutil, "rmtree")
    with monkeypatch.context() as patched:
        for owner, name in places:
            patched.setattr(owner, name, dies(getattr(owner, name)))
        try:
            move_file.moved(checkpoint, identity, 4)
        except CutOff:
            return False
    return True


def test_state_that_cannot_be_moved_keeps_its_cells(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_parts(spark, tmp_path, {"cells": 3})
    entry = max((tmp_path / "c" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    identity = CheckpointIdentity.load(tmp_path / "c")
    found = SparkFiles.of(tmp_path / "c", 3)
    assert move_file.is_movable(tmp_path / "c", identity)
    assert found.provider
    with monkeypatch.context() as patched:
        patched.setattr(SparkFiles, "provider", property(lambda self: provider))
        assert not move_file.is_movable(tmp_path / "c", identity)
        with pytest.raises(LayoutError) as caught:
            run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", cells=2)
        assert caught.value.name == "cells"
        write(tmp_path / "in", PART, 2 * PART)
        run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c")
    assert "keeps its 3 cells" in caplog.text
    assert CheckpointIdentity.load(tmp_path / "c").partitions == 3
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
    assert entry.exists()
