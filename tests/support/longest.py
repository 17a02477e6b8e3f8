"""The test files that take longest begin first, so that no worker is left alone with one of them at the end."""

from __future__ import annotations

from pathlib import Path

__all__ = ["by_length"]

_TESTS = Path(__file__).resolve().parents[1]
# In the order of the time that they take, CPU and waits: from three minutes down to twenty seconds.
_LONGEST = (
    "faults/test_driver_kill.py",
    "cli/test_repair.py",
    "test_documents.py",
    "faults/test_planted.py",
    "engine/storage/bucket_grid/test_bucket_window.py",
    "faults/test_seeds.py",
    "sql/test_sql_files.py",
    "stream/test_cluster.py",
    "stream/test_restart.py",
    "stream/test_how.py",
    "stream/test_window_kinds.py",
    "stream/test_cells.py",
    "cli/test_demo.py",
    "cell/test_epochs.py",
    "stream/test_dataframe.py",
    "faults/test_power.py",
    "stream/test_range_cells.py",
    "stream/test_reduce.py",
    "engine/storage/test_merge_policy.py",
    "stream/test_topics_on_spark.py",
    "faults/test_soak.py",
    "source/kafka/test_broker.py",
    "checkpoint/test_move.py",
    "stream/test_execution.py",
    "engine/test_interruptions.py",
    "sink/test_maintenance.py",
    "spark/test_session.py",
    "stream/test_real_data_model.py",
    "stream/test_ranges.py",
    "sink/test_faults.py",
    "faults/test_disk_full.py",
    "cli/test_run.py",
    "stream/test_frame_query.py",
    "stream/test_progress.py",
    "stream/test_sensors.py",
    "stream/test_invariance.py",
    "stream/test_filters.py",
    "stream/test_clocks.py",
    # What takes longest of `make test-all` alone.
    "faults/test_exhaustive.py",
    "stream/test_blocks_on_s3.py",
    "faults/test_endurance.py",
    "stream/test_delta_source.py",
    "stream/test_unique_on_spark.py",
    "bench/figures/test_panels.py",
    "bench/test_engine_bench.py",
    "examples/test_kafka.py",
    "spark/test_class_archive.py",
)
# Strict, so that a file that was renamed is an error.
_PLACES = {(_TESTS / name).resolve(strict=True): place for place, name in enumerate(_LONGEST)}


def by_length(path: Path) -> int:
    """Return a file's place in the order; files that are not listed come last, in the order that they had."""
    return _PLACES.get(path, len(_PLACES))
