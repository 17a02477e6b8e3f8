"""Fixtures and settings that the tests of several rooms share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.examples import register_profiles
from tests.support.java import quick_to_start
from tests.support.kafka import KafkaBroker, kafka_jars
from tests.support.longest import by_length

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

register_profiles()
quick_to_start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the `spark` fixture, and put the tests of the longest files first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: by_length(item.path))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The one Spark session of this process: ours, with Delta, two cores, four attempts a task.

    A process has one JVM with one set of settings. A test that needs other settings starts a process of its own.
    """
    from streamjoin_ds.spark.release import has_python_sources
    from streamjoin_ds.spark.session import spark_session

    log_path: Path = tmp_path_factory.mktemp("spark") / "spark.log"
    # Of 3.5 only DataFrames are tested, without Delta's jars.
    return spark_session("tests", master="local[2,4]", log_path=log_path, delta=has_python_sources())


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the tests of a process that need what the mock lacks; each takes topics of its own."""
    pytest.importorskip("confluent_kafka")
    try:
        kafka_jars()
    except (OSError, subprocess.SubprocessError):
        pytest.skip("the broker's jars are not cached, and Maven could not fetch them")
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker")
    yield broker
    broker.stop()
