"""The log of a query without Spark: what it says of a batch never changes, and what it cannot write is told by name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.checkpoint import batch_log
from streamjoin_ds.checkpoint.batch_log import BatchLog
from streamjoin_ds.checkpoint.spark_files import SparkFiles, source_offset
from streamjoin_ds.errors import BlockWriteError, CheckpointInUseError
from tests.plan.test_plan import a_plan

Open = Callable[[], BatchLog]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    of_query = a_plan("1x2", block_root=str(tmp_path), retain_batches=1)
    return lambda: BatchLog(of_query)


def batch(log: BatchLog, seq: int) -> None:
    log.plan_batch({"seq": seq}, 0)
    log.keep_states({0: b"left", 1: b"right"})
    log.end_batch()


def test_a_driver_that_was_stopped_finds_that_another_one_went_on(opened: Open, tmp_path: Path) -> None:
    log = opened()
    batch(log, 1)
    log.plan_batch({"seq": 2}, 0)
    other = opened()
    assert other.planned == {"seq": 2}
    other.keep_states({0: b"left", 1: b"right"})
    other.end_batch()
    log.keep_states({0: b"left", 1: b"right"})
    with pytest.raises(CheckpointInUseError, match="taken the checkpoint over"):
        log.end_batch()


def test_the_end_of_a_batch_is_planned_once(opened: Open, tmp_path: Path) -> None:
    log, other = opened(), opened()
    batch(other, 1)
    with pytest.raises(CheckpointInUseError):
        log.plan_batch({"seq": 2}, 0)
    assert source_offset(SparkFiles.of(tmp_path, 6).offsets[0]) == {"seq": 1}
    assert not list(tmp_path.glob("**/.*.tmp"))


def test_a_full_disk_is_told_by_name(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened()

    def full(path: Path, data: bytes) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BlockWriteError, match="No space left on device") as told:
        log.plan_batch({"seq": 1}, 0)
    assert told.value.passes


def test_what_a_driver_had_not_named_when_it_ended_goes_with_its_batch(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_log, "_PURGE_EVERY", 1)
    log = opened()
    batch(log, 1)
    torn = [tmp_path / name for name in ("offsets/.0.1f.tmp", "state/0/0/.1.snapshot.1f.tmp", "commits/.9.1f.tmp")]
    for path in torn:
        path.write_bytes(b"")
    for seq in range(2, 8):
        batch(log, seq)
    assert [path.exists() for path in torn] == [False, False, True]
