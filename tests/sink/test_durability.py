"""What a commit forces to the device, and in which order."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.errors import TableWriteError
from streamjoin_ds.sink import durability as durability_file
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.writer import FileReport, TableWriter


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that `os.fsync` is called for, in order."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return found


def written(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return str(path)


def test_what_is_new_in_the_checkpoint(tmp_path: Path, forced: list[str]) -> None:
    first = {written(tmp_path / name) for name in ("metadata", "offsets/0", "offsets/.0.crc", "state/0/1/1.delta")}
    for name in ("blocks/a.arrow", "exchange/b.arrow", "offsets/.1.tmp", "offsets/..1.tmp.crc", ".driver.lock"):
        written(tmp_path / name)
    durability = Durability(str(tmp_path))
    durability.checkpoint()
    durability.flush()
    folders = {str(tmp_path / name) for name in ("", "offsets", "state", "state/0", "state/0/1")}
    assert set(forced) == first | folders
    assert max(map(forced.index, first)) < min(map(forced.index, folders))  # bytes first, then names
    forced.clear()
    new = written(tmp_path / "offsets/1")
    durability.checkpoint()
    durability.flush()
    assert forced == [new, str(tmp_path / "offsets")]
    forced.clear()
    durability.flush()
    assert forced == []
    durability.checkpoint(anew=True)
    durability.flush()
    assert set(forced) == first | folders | {new}


def test_entries_whoever_wrote_them(tmp_path: Path, forced: list[str]) -> None:
    log = tmp_path / "matches" / "_delta_log"
    written(log / f"{0:020d}.json")
    durability = Durability()
    durability.opened(str(tmp_path / "matches"))
    durability.flush()
    assert str(log / f"{0:020d}.json") in forced
    assert {str(log), str(tmp_path / "matches"), str(tmp_path)} <= set(forced)
    forced.clear()
    two = [written(log / f"{version:020d}.json") for version in (1, 2)]
    durability.entries(str(tmp_path / "matches"))
    durability.flush()
    assert (set(forced[:-1]), forced[-1]) == (set(two), str(log))


def test_a_log_before_what_it_replaced_goes(tmp_path: Path, forced: list[str]) -> None:
    log = tmp_path / "matches" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}")
    durability = Durability()
    durability.log(str(tmp_path / "matches"))
    assert str(log / f"{0:020d}.json") in forced
    forced.clear()
    (log / f"{1:020d}.json").write_text("{}")
    durability.log(str(tmp_path / "matches"))
    assert forced == [str(log / f"{1:020d}.json"), str(log)]  # what was forced once is not forced again
    forced.clear()
    Durability(durable=False).log(str(tmp_path / "matches"))
    assert forced == []


def test_nothing_where_it_is_not_asked_for_or_of_no_use(tmp_path: Path, forced: list[str]) -> None:
    path = written(tmp_path / "offsets" / "0")
    for durability in (Durability(str(tmp_path), durable=False), Durability()):
        durability.checkpoint()
        durability.files([path] if durability._durable is False else ["s3://bucket/matches/a.parquet"])
        durability.opened("s3://bucket/matches")
        durability.entries("s3://bucket/matches")
        durability.flush()
    assert forced == []


def test_a_device_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    path = written(tmp_path / "a.parquet")
    monkeypatch.setattr(os, "fsync", refuses)
    durability = Durability()
    durability.files([path])
    with pytest.raises(TableWriteError, match="Input/output error") as caught:
        durability.flush()
    assert caught.value.name == path
    assert caught.value.hint.startswith("check the device")


def test_too_many_open_files_are_not_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: str, flags: int) -> None:
        raise OSError(24, "Too many open files", path)

    durability = Durability()
    durability.files([written(tmp_path / "a.parquet")])
    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(TableWriteError, match="Too many open files") as caught:
        durability.flush()
    monkeypatch.undo()
    assert "ulimit -n" in caught.value.hint


def test_what_was_purged_meanwhile_needs_nothing_and_its_neighbour_is_forced(tmp_path: Path, forced: list[str]) -> None:
    durability = Durability(str(tmp_path))
    paths = [written(tmp_path / "offsets" / name) for name in "01"]
    durability.checkpoint()
    Path(paths[0]).unlink()
    durability.flush()
    assert paths[1] in forced
    assert paths[0] not in forced


def test_more_files_than_are_opened_at_once(tmp_path: Path, forced: list[str]) -> None:
    paths = [written(tmp_path / f"{number}.json") for number in range(150)]
    before = len(os.listdir("/proc/self/fd"))
    durability = Durability()
    durability.files([*paths[:99], str(tmp_path / "purged.json"), *paths[99:]])
    durability.flush()
    assert (sorted(forced[:-1]), forced[-1]) == (sorted(paths), str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_wait_side_by_side_and_all_have_ended_before_an_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the first, each file waits for another one here, so one after the other none would end."""
    paths, both, ended = [written(tmp_path / name) for name in "abc"], threading.Barrier(2, timeout=60), []

    def refuses(descriptor: int) -> None:
        ended.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if len(ended) == 1:
            return
        both.wait()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuses)
    durability = Durability()
    durability.files(paths)
    with pytest.raises(TableWriteError, match="Input/output error") as caught:
        durability.flush()
    assert caught.value.name in paths
    assert set(ended) == set(paths)


def test_a_process_that_ends_forces_without_threads(
    tmp_path: Path, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(durability_file, "_threads", lambda: ended)
    paths = [written(tmp_path / name) for name in "abc"]
    durability = Durability()
    durability.files(paths)
    durability.flush()
    assert forced == [*paths, str(tmp_path)]


def test_a_file_that_is_written_anew_is_forced_again(tmp_path: Path, forced: list[str]) -> None:
    """An attempt that comes late writes a state once more: what it puts in place of the first one is not forced."""
    state = Path(written(tmp_path / "state" / "0" / "0" / "2.delta"))
    durability = Durability(str(tmp_path))
    durability.checkpoint()
    durability.flush()
    forced.clear()
    durability.checkpoint()
    durability.flush()
    assert forced == []
    late = Path(written(tmp_path / "state" / "0" / "0" / "late"))
    late.replace(state)
    durability.checkpoint()
    durability.flush()
    assert str(state) in forced


ROWS = pa.table({"v": np.random.default_rng(1).integers(0, 1 << 60, 1 << 16)})


def of_a_large_file(folder: Path, *, durable: bool) -> TableWriter:
    """A writer that has written a part, which is forced behind it."""
    writer = TableWriter(str(folder), ROWS.schema, table="matches", batch_id=1, label="0", durable=durable, behind=True)
    writer.write(ROWS)
    return writer


def forced_by_a_commit(folder: Path, writer: TableWriter) -> list[FileReport]:
    reports, commit = writer.close(), Durability()
    commit.files([str(folder / report.path) for report in reports])
    commit.flush()
    return reports


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_file_is_forced_behind_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Whoever forces the file waits until all of it is on the device: here that is after a while."""
    sizes: dict[int, int] = {}
    begun, may_end = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        facts = os.fstat(descriptor)
        begun.set()
        assert may_end.wait(60)
        sizes[facts.st_ino] = max(facts.st_size, sizes.get(facts.st_ino, 0))

    monkeypatch.setattr(durability_file, "_STEP_BYTES", 1)
    monkeypatch.setattr(os, "fsync", slow)
    writer = of_a_large_file(tmp_path, durable=durable)
    assert begun.wait(60)  # the first part is being forced, and the next one is written meanwhile
    writer.write(ROWS)
    threading.Timer(0.2, may_end.set).start()
    (report,) = writer.close() if durable else forced_by_a_commit(tmp_path, writer)
    facts = (tmp_path / report.path).stat()
    assert sizes[facts.st_ino] == facts.st_size == report.size_bytes
    assert durability_file._left == {}


@pytest.mark.parametrize("durable", [True, False])
def test_a_step_that_fails_behind_the_writer_fails_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The system says it once: the next `fsync` of the file succeeds, and its bytes are lost."""
    failed = threading.Event()

    def fails_once(descriptor: int) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(durability_file, "_STEP_BYTES", 1)
    monkeypatch.setattr(os, "fsync", fails_once)
    writer = of_a_large_file(tmp_path, durable=durable)
    with pytest.raises(TableWriteError, match="Input/output error"):
        forced_by_a_commit(tmp_path, writer)
    assert failed.is_set()
