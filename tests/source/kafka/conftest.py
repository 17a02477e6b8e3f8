"""A real broker for the tests that need what the mock lacks: transactions, times, retention, ids, logins."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.kafka import KafkaBroker, kafka_jars


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for all tests of a process; each takes topics of its own."""
    pytest.importorskip("confluent_kafka")
    try:
        kafka_jars()
    except (OSError, subprocess.SubprocessError):
        pytest.skip("the broker's jars are not cached, and Maven could not fetch them")
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker")
    yield broker
    broker.stop()
