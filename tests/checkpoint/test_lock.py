"""The lock of a checkpoint: one process holds it at a time, and it goes with that process, not with its children."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamjoin_ds.checkpoint.lease import BRIEF_WAIT_S
from streamjoin_ds.checkpoint.lock import LOCK_FILE, _locked, driving, held
from streamjoin_ds.errors import CheckpointInUseError

HOLD = (
    "import pathlib, sys\nfrom streamjoin_ds.checkpoint.lock import driving\n"
    "driving(pathlib.Path(sys.argv[1]), briefly=len(sys.argv) > 2)\nprint('held', flush=True)\nsys.stdin.read()\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return (tmp_path / "ckpt").resolve()


@pytest.fixture
def other(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = holding(folder)
    yield process
    process.kill()
    process.communicate()


def holding(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder), *more]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


class Query:
    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def isActive(self) -> bool:
        return not self.ended.is_set()

    def awaitTermination(self) -> object:
        return self.ended.wait()


def is_free(folder: Path) -> bool:
    code = HOLD.replace("sys.stdin.read()", "")
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, check=False).returncode == 0


def test_a_second_driver_is_refused_by_name(folder: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(CheckpointInUseError, match=f"process {other.pid} on {os.uname().nodename}") as caught:
        driving(folder)
    assert "--take-over" in caught.value.hint
    with held(folder) as alone:
        assert not alone


def test_a_killed_driver_s_lock_goes_by_itself(folder: Path, other: subprocess.Popen[str]) -> None:
    assert not is_free(folder)
    other.kill()
    other.communicate()
    lock = driving(folder)
    assert lock.is_held
    lock.give_up()
    assert is_free(folder)


def test_a_sleeping_driver_is_taken_over(folder: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGSTOP)
    with pytest.raises(CheckpointInUseError):
        driving(folder)
    lock = driving(folder, take_over=True)
    assert lock.is_held
    assert not is_free(folder)  # a third process meets the new lock
    other.send_signal(signal.SIGCONT)
    lock.give_up()
    assert is_free(folder)


def test_it_is_held_as_long_as_the_query_lives(folder: Path) -> None:
    first, second = Query(), Query()
    lock = driving(folder)
    lock.hold_while(first)
    assert lock.is_driven
    assert not is_free(folder)
    again = driving(folder)  # the same process may start again: Spark itself stops the first query
    assert again is lock
    again.hold_while(second)
    first.ended.set()
    for thread in threading.enumerate():
        if thread.name == "streamjoin-lock":
            thread.join(0.2)
    assert not is_free(folder)
    second.ended.set()
    for thread in threading.enumerate():
        if thread.name == "streamjoin-lock":
            thread.join()
    assert is_free(folder)


def test_where_no_query_was_started_it_is_free_again(folder: Path) -> None:
    driving(folder).give_up()
    assert is_free(folder)
    assert (folder / LOCK_FILE).exists()


def _child(ready: object, go: object) -> None:
    ready.set()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]


def test_a_forked_child_does_not_hold_it(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, go = context.Event(), context.Event()
    lock = driving(folder)
    child = context.Process(target=_child, args=(ready, go))
    child.start()
    ready.wait()
    lock.give_up()
    assert is_free(folder)
    go.set()
    child.join()


def test_who_tidies_up_is_waited_for(folder: Path) -> None:
    tidying = holding(folder, "briefly")
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(driving(folder).is_held))
    waiting.start()
    waiting.join(0.2)
    assert not found
    tidying.communicate("")
    waiting.join()
    assert found == [True]
    driving(folder).give_up()
    driving(folder).give_up()


def test_a_file_system_without_locks_is_driven_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    lock = driving(folder)
    assert not lock.is_held
    lock.give_up()


def test_who_tidies_up_for_ever_is_named_and_the_start_ends(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    tidying = holding(folder, "briefly")
    tidying.send_signal(signal.SIGSTOP)
    pauses: list[float] = []
    path = folder / LOCK_FILE
    with pytest.raises(CheckpointInUseError, match=rf"in use by process {tidying.pid} on \S+, since 20\S+Z"):
        _locked(path, take_over=False, briefly=False, pause=pauses.append)
    assert sum(pauses) == pytest.approx(BRIEF_WAIT_S, abs=0.1)
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"the checkpoint is held by process {tidying.pid} on" in told
    assert "which cleans it up or mends it: waiting for up to 120 s" in told
    driving(folder, take_over=True).give_up()
    tidying.kill()
    tidying.communicate()


def test_who_has_just_taken_it_has_a_moment_to_say_who_it_is(folder: Path) -> None:
    """What the file says may be of the one before: an empty file, or a driver that is gone."""
    path = folder / LOCK_FILE
    for before in (b"", b'{"pid": 1, "host": "gone", "briefly": false}'):
        tidying, looks = holding(folder, "briefly"), []
        facts = path.read_bytes()
        path.write_bytes(before)

        def pause(
            seconds: float, looks: list[float] = looks, facts: bytes = facts, it: subprocess.Popen[str] = tidying
        ) -> None:
            looks.append(seconds)
            if len(looks) == 1:
                path.write_bytes(facts)
            elif len(looks) == 3:
                it.kill()
                it.communicate()

        descriptor = _locked(path, take_over=False, briefly=False, pause=pause)
        assert descriptor is not None
        assert len(looks) >= 3
        os.close(descriptor)
