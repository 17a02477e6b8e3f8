"""A real broker for the tests that need what the mock lacks: transactions, times, retention, ids, logins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.kafka import KafkaBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for all tests of a process; each takes topics of its own."""
    pytest.importorskip("confluent_kafka")
    if shutil.which("mvn") is None:
        pytest.skip("Maven fetches the broker's jars")
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker")
    yield broker
    broker.stop()
