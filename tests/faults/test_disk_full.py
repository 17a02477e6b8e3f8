"""A small file system fills up under a real query, which stops by name, and goes on exactly when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Generator, Stream, StreamJoin, band
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import bind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 12_000  # rows of each stream
BATCHES = 4
ROOM_BYTES = 64 << 20
# The error of a query whose Python process takes more than some ten seconds to start; it has read nothing then.
NOT_STARTED = "Python worker failed to connect back"
STARTS = 3


class SmallDisk:
    """A file system in memory that holds so many bytes, until it is grown."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        done = self._mounted(f"size={size_bytes}", "-t", "tmpfs", "tmpfs")
        if done.returncode:
            pytest.skip(f"this process may not mount a small file system: {done.stderr.strip()}")

    def grow(self, size_bytes: int) -> None:
        done = self._mounted(f"remount,size={size_bytes}")
        assert done.returncode == 0, done.stderr

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, capture_output=True)

    def _mounted(self, options: str, *what: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-o", options, *what, str(self.path)]
        try:
            return subprocess.run(command, check=False, capture_output=True, text=True)
        except FileNotFoundError as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], SmallDisk]]:
    disks: list[SmallDisk] = []

    def made(path: Path, size_bytes: int) -> SmallDisk:
        disks.append(SmallDisk(path, size_bytes))
        return disks[-1]

    yield made
    for disk in disks:
        disk.remove()


def joined() -> StreamJoin:
    """Return a join whose windows hold all of the input, and so grow until it ends."""

    def side(name: str) -> Generator:
        return Generator("band2d", {"side": name, "rate": 1_000, "rows": ROWS, "seed": 11})

    return StreamJoin(
        [Stream("r", side("r")), Stream("s", side("s"))],
        on=[band("r.x", "s.a", 40.0), band("r.y", "s.b", 40.0)],
        window="1h",
        select=["r.x", "s.a"],
    )


def expected() -> list[tuple[int, int]]:
    """Return the pairs that DuckDB finds in the same tuples."""
    asked, connection = joined(), duckdb.connect()
    bound = bind(asked, {stream.name: infer_schema(stream) for stream in asked.streams})
    for number, stream in enumerate(asked.streams):
        feed = open_feed(stream, bound.schemas[number])
        connection.register(
            stream.name, pa.Table.from_batches([chunk.tuples for chunk in feed.read(feed.initial(), None)])
        )
    return connection.sql(
        "SELECT r._seq, s._seq FROM r, s"
        " WHERE abs(r.x - s.a) <= 40 AND abs(r.y::DOUBLE - s.b::DOUBLE) <= 40 ORDER BY ALL"
    ).fetchall()


def pairs(table: Path) -> list[tuple[int, int]]:
    matches = scanned(DeltaTable(str(table))).to_table()
    return sorted(zip(matches["r_seq"].to_pylist(), matches["s_seq"].to_pylist(), strict=True))


# What fills up: the folder, its first size, the error that then names it, and the batches that are done before. Blocks
# take up to 150 KiB a batch and stay. The exchange takes 152 KiB, which go again. The tables take about 70 KiB.
FULL = [
    pytest.param("checkpoint/blocks", 315 << 10, "BLOCK_WRITE", 2, id="blocks"),
    pytest.param("checkpoint/exchange", 100 << 10, "BLOCK_WRITE", 0, id="exchange", marks=pytest.mark.campaign),
    pytest.param("tables", 200 << 10, "TABLE_WRITE", 2, id="tables", marks=pytest.mark.campaign),
]


@pytest.mark.parametrize(("folder", "size_bytes", "code", "batches"), FULL)
def test_a_disk_that_fills_up_stops_the_query_by_name_until_there_is_room(
    spark: SparkSession,
    tmp_path: Path,
    small_disk: Callable[[Path, int], SmallDisk],
    folder: str,
    size_bytes: int,
    code: str,
    batches: int,
) -> None:
    from pyspark.errors import StreamingQueryException

    disk = small_disk(tmp_path / folder, size_bytes)
    table, checkpoint = tmp_path / "tables" / "matches", tmp_path / "checkpoint"

    def run() -> None:
        for start in range(STARTS):
            query = joined().start(
                spark, table, checkpoint, available_now=True, max_rows_per_batch=2 * ROWS // BATCHES, layout="1x2"
            )
            try:
                return query.awaitTermination()
            except StreamingQueryException as error:
                if NOT_STARTED not in str(error) or start + 1 == STARTS:
                    raise

    with pytest.raises(StreamingQueryException) as stopped:
        run()
    assert f"{code}: " in str(stopped.value), str(stopped.value)
    assert "No space left on device" in str(stopped.value)
    right, before = expected(), pairs(table)
    assert DeltaTable(str(table)).version() == batches  # what was written of the next batch is in no table
    assert set(before) <= set(right)
    assert len(set(before)) == len(before) < len(right)
    disk.grow(ROOM_BYTES)
    run()
    assert pairs(table) == right
    ledger = scanned(DeltaTable(f"{table}_ledger")).to_table().to_pylist()
    assert sorted(row["batch_id"] for row in ledger) == sorted([*range(BATCHES)] * 2)
    assert sum(row["read"] for row in ledger) == 2 * ROWS
