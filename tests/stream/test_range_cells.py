"""Layouts of ranges on real Spark: the same rows, with other cells and other kinds of layout at each restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.inspection import inspected
from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import is_of_ranges
from tests.stream.test_restart import expected, joined, rows, run, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PART = 120


@pytest.mark.long
def test_ranges_with_more_and_fewer_cells_and_grids_between(spark: SparkSession, tmp_path: Path) -> None:
    layouts = []
    lives = (
        {"layout": "ranges", "cells": 4},
        {"layout": "ranges", "cells": 2},
        {"layout": "1x3"},
        {"layout": "ranges", "cells": 2},
    )
    for number, options in enumerate(lives):
        write(tmp_path / "in", number * PART, (number + 1) * PART)
        run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", max_rows_per_batch=70, **options)
        layouts.append(inspected(lambda: spark, str(tmp_path / "c")).layout)
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
    assert len(rows(tmp_path / "m")) > 1_000
    identity = CheckpointIdentity.load(tmp_path / "c")
    assert identity is not None
    assert is_of_ranges(identity.layout), "the inputs were there before the first batch, and ranges were chosen by them"
    assert [("ranges" in layout, layout == "1x3") for layout in layouts] == [
        (True, False),
        (True, False),
        (False, True),
        (True, False),
    ]
    assert identity.partitions == 2
    write(tmp_path / "in", len(lives) * PART, (len(lives) + 1) * PART)
    run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", layout="ranges")
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
    identity = CheckpointIdentity.load(tmp_path / "c")
    assert identity is not None
    assert identity.partitions == 1, "without a word one machine has one cell"


@pytest.mark.long
def test_ranges_come_once_there_are_keys(spark: SparkSession, tmp_path: Path) -> None:
    """The inputs begin with too few records to choose ranges by; a running sample of the keys chooses them later."""
    write(tmp_path / "in", 0, 40)
    run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", layout="ranges", cells=2)
    assert inspected(lambda: spark, str(tmp_path / "c")).layout == "1x2"
    for number in range(1, 5):
        write(tmp_path / "in", number * 40, (number + 1) * 40)
        run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", layout="ranges", cells=2)
    assert (tmp_path / "c" / "key_sample.arrow").exists()
    assert "ranges" in inspected(lambda: spark, str(tmp_path / "c")).layout
    assert rows(tmp_path / "m") == expected(tmp_path / "in")


def test_a_join_without_a_column_for_ranges_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 10)
    streams = [Stream(name, tmp_path / "in" / name, time_unit="s") for name in ("l", "r")]
    join = StreamJoin(streams, on="l.x <> r.x", window="10s")
    with pytest.raises(LayoutError) as caught:
        run(spark, join, tmp_path / "m", tmp_path / "c", layout="ranges")
    assert (caught.value.name, "grid" in caught.value.hint) == ("layout", True)
    assert not (tmp_path / "c").exists()
    with pytest.raises(LayoutError):
        join.explain(layout="ranges")


def test_an_offset_of_ranges_is_refused_by_versions_before(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, PART)
    run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", layout="1x2")
    write(tmp_path / "in", PART, 2 * PART)
    run(spark, joined(tmp_path / "in"), tmp_path / "m", tmp_path / "c", layout="ranges", cells=2)
    versions = set()
    for path in (tmp_path / "c" / "offsets").glob("[0-9]*"):
        versions.add(json.loads(path.read_text().splitlines()[-1])["version"])
    assert versions - {8} == {1, 6}  # 8: a batch left records for the next one
    assert rows(tmp_path / "m") == expected(tmp_path / "in")
