"""The test files that take longest begin first, so that no worker is left alone with one of them at the end."""

from __future__ import annotations

from pathlib import Path

__all__ = ["by_length"]

_TESTS = Path(__file__).resolve().parents[1]
# In the order of the time that they take, CPU and waits: from two minutes down to ten seconds.
_LONGEST = (
    "faults/test_driver_kill.py",
    "spark/test_class_archive.py",
    "faults/test_seeds.py",
    "faults/test_exhaustive.py",
    "stream/test_cluster.py",
    "bench/test_command.py",
    "faults/test_planted.py",
    "faults/test_soak.py",
    "source/kafka/test_broker.py",
    "stream/test_delta_source.py",
    "stream/test_partitions.py",
    "test_readme.py",
    "bench/test_stream_suite.py",
    "stream/test_execution.py",
    "stream/test_window_kinds.py",
    "sink/test_long_log.py",
    "stream/test_invariance.py",
    "stream/test_frames.py",
    "sql/test_sql_files.py",
    "stream/test_restart.py",
    "stream/test_topics_on_spark.py",
    "source/delta/test_spark_tables.py",
    "examples/test_kafka.py",
    "stream/test_frame_query.py",
    "stream/test_partitions_on_spark.py",
    "faults/test_disk_full.py",
    "cli/test_demo.py",
    "spark/test_session.py",
    "spark/test_scratch.py",
    "faults/test_power.py",
    "faults/test_storage.py",
)
# Strict, so that a file that was renamed is an error.
_PLACES = {(_TESTS / name).resolve(strict=True): place for place, name in enumerate(_LONGEST)}


def by_length(path: Path) -> int:
    """Return a file's place in the order; files that are not listed come last, in the order that they had."""
    return _PLACES.get(path, len(_PLACES))
