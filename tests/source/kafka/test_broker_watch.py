"""Brokers that are away are said once, and so is that they are back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamjoin_ds.kafka.client import Reach
from streamjoin_ds.source.kafka import broker_watch
from streamjoin_ds.source.kafka.broker_watch import BrokerWatch, watch_brokers
from streamjoin_ds.source.kafka.url import KafkaUrl
from streamjoin_ds.spec.stream import Stream
from tests.support.kafka import free_port, mock_cluster

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
    for answers in (True, True, False, False, False, True, True):
        reach.note(answers=answers)
    assert said == ["topic t: no broker answers; it waits", "topic t: the broker is back, after 37 s"]


def test_one_slow_answer_is_no_broker_that_is_away() -> None:
    said: list[str] = []
    watch = BrokerWatch(KafkaUrl.parse("kafka://b:1/t?format=json"), ["e"], said.append)
    watch._errors.names.clear()
    answers = [True, False, True, False, False, False, False, True, True, False, True]
    counts = []
    watch._client = Client(iter(answers))
    for _ in answers:
        watch.ask()
        counts.append(len(said))
    assert counts == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert said[0] == AWAY
    assert said[1].startswith("stream e: the broker is back, after ")


def test_what_librdkafka_knows_is_said_at_once() -> None:
    said: list[str] = []
    watch = BrokerWatch(KafkaUrl.parse(f"kafka://127.0.0.1:{free_port()}/t?format=json"), ["e"], said.append)
    watch.ask()
    assert said == [AWAY]


def test_the_driver_logs_it_until_the_query_is_over(caplog: pytest.LogCaptureFixture) -> None:
    left = iter([False, False, True])
    waits: list[float] = []
    port = free_port()
    streams = [Stream(name, f"kafka://127.0.0.1:{port}/{name}?format=json") for name in ("e", "r")]
    thread = watch_brokers([*streams, Stream("w", "files/")], lambda: next(left), waits.append)
    assert thread is not None
    thread.join(20)
    assert not thread.is_alive()
    assert waits == [1.0, 1.0]
    assert caplog.messages == [AWAY.replace("stream e", "streams e, r")]
    with mock_cluster("t") as servers:
        left = iter([False, False, True])
        found = watch_brokers([Stream("e", f"kafka://{servers}/t?format=json")], lambda: next(left), waits.append)
        assert found is not None
        found.join(20)
    assert len(caplog.messages) == 1


def test_what_cannot_be_watched_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch_brokers([Stream("w", "files/")], lambda: True) is None
    lacks = Stream("e", "kafka://b:1/t?format=json&settings=/no/such/file")
    assert watch_brokers([lacks], lambda: True) is None

    def broken() -> bool:
        raise ConnectionError

    made: Any = lambda *_: None  # noqa: E731 - a watch that is never asked
    monkeypatch.setattr(broker_watch, "BrokerWatch", made)
    ended = watch_brokers([Stream("e", "kafka://b:1/t?format=json")], broken)
    assert ended is not None
    ended.join(10)
    assert not ended.is_alive()
