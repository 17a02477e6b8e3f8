"""The lease of a checkpoint in a bucket: one driver at a time, by conditions of the store, and by no other clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamjoin_ds.blocks.conditional import Conditional
from streamjoin_ds.blocks.place import StorePath, below, place_of
from streamjoin_ds.checkpoint import lease
from streamjoin_ds.checkpoint.epochs_over import EpochsOver, epochs_over, note_epochs_over
from streamjoin_ds.checkpoint.lease import leased
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.checkpoint.lock import driving, held
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.checkpoint.spark_files import SparkFiles
from streamjoin_ds.errors import ArgumentError, CheckpointInUseError, StoreUnreachableError
from tests.support.s3 import BUCKET, S3, forget, needs_s3, served

pytestmark = [needs_s3, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with served(tmp_path_factory.mktemp("s3")) as s3:
        yield s3


@pytest.fixture
def place(server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorePath]:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    forget()
    found = checkpoint_place(f"s3://{BUCKET}/{tmp_path.name}/checkpoint")
    assert isinstance(found, StorePath)
    assert str(found).startswith("s3a://")
    yield found
    server.line.left_bytes = None
    forget()


class Waits:
    """Stands for the waits between looks at a lease: `between` is called in each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.between = lambda: None
        monkeypatch.setattr(lease, "sleep", self._wait)  # of that module alone: other threads sleep too

    def _wait(self, seconds: float) -> None:
        assert seconds == lease._LOOK_S
        self.count += 1
        self.between()


def test_one_that_is_renewed_is_refused_by_name(place: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, objects = Waits(monkeypatch), Conditional(str(place / "lock"))
    first = leased(str(place / "lock"))

    def renew() -> None:
        first._tag = objects.put(lease._facts(False), if_tag=first._tag) or ""

    waits.between = renew
    with pytest.raises(CheckpointInUseError, match="in use by process"):
        leased(str(place / "lock"))
    assert waits.count == 1
    first.release()
    leased(str(place / "lock")).release()
    assert waits.count == 1


def test_one_that_stands_still_is_taken_over_and_its_holder_is_told(
    place: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    monkeypatch.setattr(lease, "_RENEW_S", 1e6)
    killed = leased(str(place / "lock"))
    second = leased(str(place / "lock"))
    assert waits.count == lease._STILL_S / lease._LOOK_S
    third = leased(str(place / "lock"), take_over=True)
    assert waits.count == lease._STILL_S / lease._LOOK_S
    told = threading.Event()
    second.when_lost = told.set
    monkeypatch.setattr(second, "_ended", Ticks())
    second._renew()
    assert told.is_set()
    assert second.is_lost
    second.release()  # it is not its own any more
    assert Conditional(str(place / "lock")).get()[1] is not None
    third.release()
    killed.release()


class Ticks:
    """An event that is never set, and that is waited for in no time."""

    def wait(self, seconds: float) -> bool:
        return False

    def is_set(self) -> bool:
        return False

    def set(self) -> None:
        pass


def test_of_two_starts_at_once_one_wins(place: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    Waits(monkeypatch)
    objects = Conditional(str(place / "lock"))
    found: list[str | None] = []
    racers = [threading.Thread(target=lambda: found.append(objects.put(b"x", if_none=True))) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len([tag for tag in found if tag is not None]) == 1


def test_a_store_without_conditions_is_refused(place: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conditional, "put", lambda *_, **__: "tag")
    with pytest.raises(ArgumentError, match="does not heed conditions"):
        leased(str(place / "lock"))


def test_the_lock_of_a_checkpoint_is_its_lease(place: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    Waits(monkeypatch)
    lock = driving(place)
    assert lock.is_held
    with held(place) as is_free:
        assert is_free  # nothing drives yet
    assert (place / ".driver.lock").exists()
    lock.give_up()
    assert not (place / ".driver.lock").exists()


def test_the_files_of_a_checkpoint(place: StorePath, server: S3) -> None:
    assert not (place / "commits").exists()
    assert SparkFiles.of(place, 2).offsets == {}
    put(place / "commits" / "0", 'v1\n{"nextBatchWatermarkMs":0}')
    put(place / "offsets" / "0", 'v1\n{"conf":{}}\n{"a":1}')
    put(place / "offsets" / "1", "torn")
    (place / "metadata").write_text('{"id":"q"}')
    found = SparkFiles.of(place, 2)
    assert (found.commits, set(found.offsets), found.torn_offsets, found.query_id) == ({0}, {0}, {1}, "q")
    assert sorted(path.name for path in (place / "offsets").iterdir()) == ["0", "1"]
    (place / "offsets" / "1").replace(place / "recovery" / "torn" / "1")
    assert (place / "recovery" / "torn" / "1").read_text() == "torn"
    assert not (place / "offsets" / "1").exists()
    with pytest.raises(FileNotFoundError):
        (place / "offsets" / "1").read_bytes()
    (place / "offsets" / "1").unlink(missing_ok=True)
    note_epochs_over(place, [3, 4], EpochsOver((0,), 1, 2))
    assert epochs_over(place, [3, 4]) == EpochsOver((0,), 1, 2)
    server.line.left_bytes = 0
    with pytest.raises(StoreUnreachableError, match="cannot be read"):
        (place / "metadata").read_bytes()


def test_where_a_checkpoint_may_lie(tmp_path: Path) -> None:
    assert checkpoint_place(str(tmp_path)) == tmp_path
    assert str(place_of("s3a://b/c/")) == "s3a://b/c"
    assert below("s3a://b/c/", "blocks") == "s3a://b/c/blocks"
    assert below(tmp_path, "blocks") == str(tmp_path / "blocks")
    for location in ("s3a://key:sEcReT@b/c", "s3a://b/c?secret=sEcReT", "s3a://b", "gs://b/sEcReT", "hdfs://h/sEcReT"):
        with pytest.raises(ArgumentError) as caught:
            checkpoint_place(location)
        assert "sEcReT" not in str(caught.value)
        assert caught.value.name == "checkpoint"
