"""Layouts: every combination meets once, every row has one home; labels of cells lie evenly over the partitions."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import Layout, cell_labels, spark_hash, spark_partition
from streamjoin_ds.plan.layout import group_of
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.columns import SEQ

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64())])
JOIN = Join([Stream(name, time="ts") for name in "lr"], "abs(l.x - r.x) <= 1", "5s")

layouts = st.integers(2, 4).flatmap(lambda n: st.tuples(*[st.integers(1, 5)] * n)).map(Layout)


@given(layouts)
def test_every_combination_of_groups_meets_in_exactly_one_cell(layout: Layout) -> None:
    for groups in itertools.product(*map(range, layout.counts)):
        met = set.intersection(*(set(layout.cells_of(stream, group)) for stream, group in enumerate(groups)))
        assert len(met) == 1
        (cell,) = met
        assert tuple(layout.group_in_cell(cell, stream) for stream in range(len(groups))) == groups


@given(layouts)
def test_a_group_is_copied_to_as_many_cells_as_the_layout_says(layout: Layout) -> None:
    for stream, count in enumerate(layout.counts):
        cells = [layout.cells_of(stream, group) for group in range(count)]
        assert all(list(part) == sorted(part) and len(part) == layout.copies(stream) for part in cells)
        assert sorted(itertools.chain(*cells)) == list(range(layout.cells))


@given(layouts)
def test_each_group_has_one_home_among_its_cells(layout: Layout) -> None:
    for stream, count in enumerate(layout.counts):
        homes = [layout.home_cell(stream, group) for group in range(count)]
        for group, home in enumerate(homes):
            assert home in layout.cells_of(stream, group)
        assert [cell for cell in range(layout.cells) if layout.is_home(cell, stream)] == sorted(set(homes))
        assert len(set(homes)) == count


@given(layouts, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_home_cells_count_every_row_once(layout: Layout, numbers: list[int]) -> None:
    seq = np.array(numbers, dtype=np.int64)
    for stream, count in enumerate(layout.counts):
        groups = group_of(seq, count)
        assert groups.dtype == np.int32
        assert groups.tolist() == [number % count for number in numbers]
        counted = [0] * len(numbers)
        for cell in range(layout.cells):
            if layout.is_home(cell, stream):
                for row in np.flatnonzero(groups == layout.group_in_cell(cell, stream)):
                    counted[row] += 1
        assert counted == [1] * len(numbers)


@given(st.sampled_from([2, 7, 8, 16, 300]), st.lists(st.integers(0, 10**12), unique=True, max_size=60))
def test_each_tuple_is_in_its_group_and_in_its_place(count: int, seqs: list[int]) -> None:
    seq = np.array(sorted(seqs), np.int64)
    tuples = pa.table({SEQ: seq, "text": [str(number) for number in seq.tolist()]})
    bound = bind(JOIN, {name: SCHEMA for name in "lr"})
    found = dict(Layout((count, 1)).shares(bound, 0, tuples))
    assert set(found) == set(range(count))
    for group, share in found.items():
        assert share == tuples.filter(pa.array(seq % count == group))


def test_tuples_are_dealt_in_turn() -> None:
    groups = group_of(np.arange(-4, 8), 3)
    assert groups.tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(("text", "counts"), [("1x2", (1, 2)), (" 3x1x4 ", (3, 1, 4)), ("4096x1", (4096, 1))])
def test_parse(text: str, counts: tuple[int, ...]) -> None:
    layout = Layout.parse(text, len(counts))
    assert layout.counts == counts
    assert Layout.parse(str(layout), len(counts)) == layout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "2x",
        "x2",
        "2X2",
        "2x2x2",
        "0x1",
        "-1x2",
        "1.5x2",
        "65x64",
        "99999x1",
        "2 x 2",
        "2x2\n2",
        "1e1x1",
        "2x" * 50 + "2",
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Layout.parse(text, 2)
    assert caught.value.name == "layout"
    assert "1x2" in caught.value.hint or "2x2" in caught.value.hint


@pytest.mark.parametrize("counts", [(), (0,), (0, 1), (1, -1), (64, 65)])
def test_counts_are_checked(counts: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError):
        Layout(counts)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 16, 200, 1000])
@pytest.mark.parametrize("cells", [1, 2, 5, 16, 64])
def test_labels_land_on_their_partitions(cells: int, partitions: int) -> None:
    labels = cell_labels(cells, partitions)
    assert len(set(labels)) == cells
    assert all(0 <= label < 2**31 for label in labels)
    assert [spark_partition(label, partitions) for label in labels] == [cell % partitions for cell in range(cells)]
    assert max(Counter(spark_partition(label, partitions) for label in labels).values()) == -(-cells // partitions)


def test_labels_do_not_change() -> None:
    # The state of every checkpoint holds these labels.
    assert cell_labels(4, 4) == (12, 6, 2, 0)
    assert cell_labels(4096, 4096)[:3] == cell_labels(3, 4096)


def test_the_most_cells() -> None:
    labels = cell_labels(4096, 4096)
    assert sorted(spark_partition(label, 4096) for label in labels) == list(range(4096))


@pytest.mark.parametrize(("cells", "partitions"), [(0, 1), (1, 0), (-1, 2), (2, -1)])
def test_a_grid_has_cells_and_partitions(cells: int, partitions: int) -> None:
    with pytest.raises(LayoutError):
        cell_labels(cells, partitions)


@pytest.mark.spark
def test_the_hash_is_sparks(spark: SparkSession) -> None:
    partitions = 4
    labels = cell_labels(3 * partitions, partitions)
    values = sorted({*range(-50, 50), 2**31 - 1, -(2**31), 65536, -65536, *cell_labels(64, 64), *labels})
    # The values are rows of SQL text: a frame made of Python values would start Python workers for nothing.
    listed = ", ".join(f"({value})" for value in values)
    frame = spark.sql(f"SELECT CAST(col1 AS INT) AS value FROM VALUES {listed}").repartition(partitions, "value")
    rows = frame.selectExpr("value", "hash(value) AS hash", "spark_partition_id() AS partition").collect()
    assert len(rows) == len(values)
    for row in rows:
        assert spark_hash(row["value"]) == row["hash"]
        assert spark_partition(row["value"], partitions) == row["partition"]
    placed = {row["value"]: row["partition"] for row in rows}
    assert [placed[label] for label in labels] == [cell % partitions for cell in range(len(labels))]
