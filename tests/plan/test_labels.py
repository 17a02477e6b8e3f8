"""Cell labels are distinct, and Spark's own hash spreads them evenly over the partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan import cell_labels, spark_hash, spark_partition

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
