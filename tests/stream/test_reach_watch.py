"""Brokers and stores that are away are said once, and so is that they are back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds import Stream, Table
from streamjoin_ds.blocks.object_store import answers, store_of
from streamjoin_ds.logs import Reach
from streamjoin_ds.source.kafka.topic import KafkaUrl
from streamjoin_ds.spec import Join
from streamjoin_ds.stream import reach_watch
from streamjoin_ds.stream.reach_watch import BrokerWatch, StoreWatch, watch_reach
from tests.support.kafka import free_port, mock_cluster
from tests.support.s3 import BUCKET, forget, needs_s3, served

pytest.importorskip("confluent_kafka")
from confluent_kafka import KafkaError, KafkaException

AWAY = "stream e: no broker answers; the query waits, and ends after 120 s"


class Client:
    """Answers as a test says."""

    def __init__(self, answers: Iterator[bool]) -> None:
        self._answers = answers

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout) == ("t", 1.0)
        if not next(self._answers):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout: float) -> None:
        """Hear nothing."""


def test_each_change_is_said_once() -> None:
    said: list[str] = []
    now = iter([10.0, 47.0])
    reach = Reach("topic t", said.append, "it waits", lambda: next(now))
    for is_there in (True, True, False, False, False, True, True):
        reach.note(answers=is_there)
    assert said == ["topic t: no broker answers; it waits", "topic t: the broker is back, after 37 s"]


def test_one_slow_answer_is_no_broker_that_is_away() -> None:
    said: list[str] = []
    watch = BrokerWatch(KafkaUrl.parse("kafka://b:1/t?format=json"), ["e"], said.append)
    watch._errors.names.clear()
    answers = [True, False, True, False, False, False, False, True, True, False, True]
    counts = []
    watch._client = Client(iter(answers))
    for _ in range(7):
        watch.ask()
        counts.append(len(said))
    assert counts == [0, 0, 1, 1, 2, 2, 2]
    assert said[0] == AWAY
    assert said[1].startswith("stream e: the broker is back, after ")


def test_what_librdkafka_knows_is_said_at_once() -> None:
    said: list[str] = []
    watch = BrokerWatch(KafkaUrl.parse(f"kafka://127.0.0.1:{free_port()}/t?format=json"), ["e"], said.append)
    watch.ask()
    assert said == [AWAY]


def joined(*streams: Stream, **more: Any) -> Join:
    return Join([*streams, Stream("w", "files/")], f"abs({streams[0].name}.x - w.x) <= 1", "1s", **more)


def ended(threads: list[threading.Thread]) -> int:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return len(threads)


def test_the_driver_logs_it_until_the_query_is_over(caplog: pytest.LogCaptureFixture) -> None:
    left = iter([False, False, True])
    waits: list[float] = []
    port = free_port()
    join = joined(*(Stream(name, f"kafka://127.0.0.1:{port}/{name}?format=json") for name in ("e", "r")))
    assert ended(watch_reach(join, "m", "c", lambda: next(left), waits.append)) == 1
    assert waits == [0.5, 0.5]
    assert caplog.messages == [AWAY.replace("stream e", "streams e, r")]
    with mock_cluster("t") as servers:
        left = iter([False, False, True])
        join = joined(Stream("e", f"kafka://{servers}/t?format=json"))
        assert ended(watch_reach(join, "m", "c", lambda: next(left), waits.append)) == 1
    assert len(caplog.messages) == 1


def test_what_cannot_be_watched_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch_reach(joined(Stream("e", "files/")), "m", "file:/c", lambda: True) == []
    lacks = joined(Stream("e", "kafka://b:1/t?format=json&settings=/no/such/file"))
    assert watch_reach(lacks, "m", "c", lambda: True) == []

    def broken() -> bool:
        raise ConnectionError

    made: Any = lambda *_: None  # noqa: E731 - a watch that is never asked
    monkeypatch.setattr(reach_watch, "BrokerWatch", made)
    assert ended(watch_reach(joined(Stream("e", "kafka://b:1/t?format=json")), "m", "c", broken)) == 1


def test_one_request_to_a_store_that_fails_is_no_store_that_is_away() -> None:
    said: list[str] = []
    answered = iter([True, False, True, False, False, False, False, True])
    watch = StoreWatch(
        "s3a://k:v@b/x", ["stream e"], said.append, lambda _, patience_s: patience_s == 1 and next(answered)
    )
    counts = []
    for _ in range(5):
        watch.ask()
        counts.append(len(said))
    assert counts == [0, 0, 1, 1, 2]
    assert said[0] == "stream e: the store s3://b does not answer; the query waits, and ends if that lasts"
    assert said[1].startswith("stream e: the store s3://b is back, after ")


@needs_s3
def test_a_store_that_is_away_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cut line is a store that is away; that there is no such bucket is an answer."""
    with served(tmp_path) as s3:
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        forget()
        place = f"s3://{BUCKET}"
        rounds, over = itertools.count(), 9

        def wait(_: float) -> None:
            s3.line.left_bytes = 0 if next(rounds) in (2, 3, 4) else None

        join = joined(Stream("e", f"{place}/e"), tables=[Table("t", f"{place}/t.csv")])
        looks = iter([*[False] * over, True])
        assert ended(watch_reach(join, f"{place}/m", f"s3a://{BUCKET}/c", lambda: next(looks), wait)) == 1
        needs = f"stream e, table t, the tables, the checkpoint: the store {place}"
        assert caplog.messages == [
            f"{needs} does not answer; the query waits, and ends if that lasts",
            f"{needs} is back, after 0 s",
        ]
        assert answers("s3://no-such-bucket/x", 1.0)
    forget()


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3a://bucket/folder", "s3://bucket"),
        ("s3://key:secret@bucket/x?region=r", "s3://bucket"),
        ("s3://bucket?region=r", "s3://bucket"),
        ("hdfs://user@host:8020/x", "hdfs://host:8020"),
    ],
)
def test_a_store_s_name_has_no_credentials(location: str, name: str) -> None:
    assert store_of(location) == name
