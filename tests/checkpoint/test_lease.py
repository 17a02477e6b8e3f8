"""The lease of a checkpoint in a bucket: one driver at a time, by conditions of the store, and by no other clock."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamjoin_ds.blocks.object_store import ATTEMPTS, Conditional
from streamjoin_ds.blocks.place import StorePath, below, place_of
from streamjoin_ds.checkpoint import lease
from streamjoin_ds.checkpoint.layout_notes import epochs_over, note_epochs_over
from streamjoin_ds.checkpoint.lease import leased
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.checkpoint.lock import driving, held
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.checkpoint.spark_files import SparkFiles
from streamjoin_ds.errors import ArgumentError, CheckpointInUseError, StoreUnreachableError
from streamjoin_ds.plan import EpochsOver
from tests.support.s3 import BUCKET, S3, forget, needs_s3, served

ClientError = pytest.importorskip("botocore.exceptions").ClientError

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
    server.line.left_bytes, server.line.lost = None, []
    forget()


class Waits:
    """Stands for the waits between looks at a lease: `between` is called in each of them."""

    def __init__(self) -> None:
        self.count = 0
        self.between: Callable[[], object] = lambda: None

    def __call__(self, seconds: float) -> None:
        assert seconds == lease._LOOK_S
        self.count += 1
        self.between()


def test_one_that_is_renewed_is_refused_by_name(place: StorePath) -> None:
    waits, objects = Waits(), Conditional(str(place / "lock"))
    first = leased(objects, pause=waits)
    waits.between = first.renew
    with pytest.raises(CheckpointInUseError, match=r"in use by process \d+ on .*, since 20"):
        leased(objects, pause=waits)
    assert waits.count == 1
    first.release()
    leased(objects, pause=waits).release()
    assert waits.count == 1


def test_one_that_stands_still_is_taken_over_and_its_holder_is_told(place: StorePath) -> None:
    waits, objects = Waits(), Conditional(str(place / "lock"))
    killed = leased(objects, pause=waits)
    second = leased(objects, pause=waits)
    assert waits.count == lease._STILL_S / lease._LOOK_S
    third = leased(objects, pause=waits, take_over=True)
    assert waits.count == lease._STILL_S / lease._LOOK_S
    told = threading.Event()
    second.call_when_lost(told.set)
    second.renew()
    assert told.is_set()
    assert second.is_lost
    late = threading.Event()
    second.call_when_lost(late.set)  # a query that starts when the lease is lost already
    assert late.is_set()
    third.release()
    killed.release()


def test_one_that_slept_and_ends_leaves_the_lease_of_the_one_in_its_place(place: StorePath) -> None:
    objects = Conditional(str(place / "lock"))
    slept = leased(objects)
    third = leased(objects, take_over=True)
    before = objects.get()
    slept.release()
    assert objects.get() == before
    third.renew()
    assert not third.is_lost


@pytest.mark.parametrize("answers", [1, ATTEMPTS])
def test_a_renewal_whose_answer_is_lost_is_one_all_the_same(place: StorePath, server: S3, answers: int) -> None:
    """One lost answer: the client asks again, and its condition does not hold any more. All lost: the next finds it."""
    objects = Conditional(str(place / "lock"))
    only = leased(objects)
    server.line.lost = [b"/lock"] * answers
    with contextlib.nullcontext() if answers < ATTEMPTS else pytest.raises(StoreUnreachableError):
        only.renew()
    assert server.line.lost == []
    only.renew()
    assert not only.is_lost
    only.release()
    leased(objects, pause=Waits()).release()


@pytest.mark.parametrize("answers", [1, 2])
def test_a_start_whose_answer_is_lost_does_not_wait_for_itself(place: StorePath, server: S3, answers: int) -> None:
    waits = Waits()
    server.line.lost = [b"/lock"] * answers
    leased(Conditional(str(place / "lock")), pause=waits).release()
    assert waits.count == 0
    assert server.line.lost == []


def test_who_cleans_up_is_waited_for_and_refused_if_it_goes_on_for_ever(place: StorePath) -> None:
    waits, objects = Waits(), Conditional(str(place / "lock"))
    tidying = leased(objects, briefly=True)
    waits.between = tidying.renew
    with pytest.raises(CheckpointInUseError):
        leased(objects, pause=waits)
    assert waits.count == lease.BRIEF_WAIT_S / lease._LOOK_S
    waits.between = tidying.release
    leased(objects, pause=waits).release()
    assert waits.count == lease.BRIEF_WAIT_S / lease._LOOK_S + 1


def test_of_two_starts_at_once_one_wins(place: StorePath) -> None:
    objects = Conditional(str(place / "lock"))
    found: list[str | None] = []
    racers = [threading.Thread(target=lambda: found.append(objects.put(b"x", if_none=True))) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len([tag for tag in found if tag is not None]) == 1


@pytest.mark.parametrize(("ignored", "told"), [("IfNoneMatch", "If-None-Match"), ("IfMatch", "If-Match")])
def test_a_store_without_conditions_is_refused(place: StorePath, ignored: str, told: str) -> None:
    objects = Conditional(str(place / "lock"))
    asked = objects._client.put_object
    objects._client.put_object = lambda **facts: asked(**{name: facts[name] for name in facts if name != ignored})
    with pytest.raises(ArgumentError, match=rf"does not heed conditions \({told}\)"):
        leased(objects, pause=Waits())


def test_a_store_that_knows_no_conditions_is_refused(place: StorePath) -> None:
    objects = Conditional(str(place / "lock"))

    def put_object(**_: object) -> object:
        raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 501}}, "PutObject")  # type: ignore[typeddict-item]

    objects._client.put_object = put_object
    with pytest.raises(ArgumentError, match=r"does not heed conditions \(If-None-Match\)"):
        leased(objects, pause=Waits())


def test_the_lock_of_a_checkpoint_is_its_lease(place: StorePath) -> None:
    lock = driving(place)
    assert lock.is_held
    with held(place) as is_free:
        assert is_free  # nothing drives yet
    objects = Conditional(str(place / ".driver.lock"))
    assert not json.loads(objects.get()[0])["ended"]
    lock.give_up()
    assert json.loads(objects.get()[0])["ended"]
    driving(place).give_up()


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
