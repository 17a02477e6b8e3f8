"""Fixtures and settings that the tests of several rooms share."""

from __future__ import annotations

import gc
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.examples import register_profiles
from tests.support.java import quick_to_start
from tests.support.kafka import KafkaBroker, kafka_jars
from tests.support.longest import by_length
from tests.support.scratch import files_in_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each child would make threads that spin for a while, for nothing
register_profiles()
quick_to_start()
files_in_memory()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the `spark` fixture and further forms, and put the tests of the longest files first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    for item in _further_forms(items):
        item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: by_length(item.path))


def pytest_collection_finish() -> None:
    """Keep what was imported out of the garbage collector, which takes up to a tenth of the tests' CPU time else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _further_forms(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of tests marked `each_value` that have no value of an argument which others have not.

    As few as meet each value remain: "each choice" of Ammann and Offutt, Introduction to Software Testing, 6.1.
    """
    cases: dict[str, dict[pytest.Item, set[tuple[str, str]]]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("each_value") and isinstance(item, pytest.Function):
            values = {(name, repr(value)) for name, value in item.callspec.params.items()}
            cases[item.nodeid.partition("[")[0]][item] = values
    for left in cases.values():
        met: set[tuple[str, str]] = set()
        while left:
            most = max(left, key=lambda item: len(left[item] - met))
            values = left.pop(most)
            if values <= met:
                yield most
            met |= values


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
