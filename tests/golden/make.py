"""Make a golden checkpoint of each kind of join: ``python -m tests.golden.make 0.1.0``. One that is there is kept.

It runs on the code of a release as it was: in a worktree of it, with this file and `tests.support.kinds` as they are.
The folder ``v1`` is of an older form of this file, and is read as that one wrote it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from streamjoin_ds import StreamJoin
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spark.admission import ReadMaxRows
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from streamjoin_ds.stream.source_facts import bound_join
from tests.support.kinds import EVERY, KINDS, Kind, json_line
from tests.support.microbatch import MicroBatches
from tests.support.topics import fake_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    _Frames = Mapping[str, DataFrame]

FOLDER = Path(__file__).parent
LAYOUT = Layout((1, 2))
MAX_ROWS = 90
BLOCK_BYTES = 1_800
KIND_ROWS = 70
KIND_BATCHES = 3
SPARK = "under Spark"
SPARK_BATCHES = 4
TOPICS = "topics"
FRAMES = "frames"
FIRST_FILES = 2  # that frames have in the first life; the rest comes in the second
MOVED = "/moved"  # in the place of the folder where a checkpoint over frames was made


def golden_join() -> BoundJoin:
    """Return a join of columns of every kind: integers, floats of both widths, fixed and long texts, booleans."""
    streams = [
        Stream(side, Generator("band2d", {"side": side, "rate": 50, "rows": 450, "seed": 3, "low": 1, "high": 60}))
        for side in ("r", "s")
    ]
    join = Join(streams, "abs(r.x - s.a) <= 3 AND abs(r.y - s.b) <= 3", {"r": "5s", "s": "3s"})
    return bind(join, {stream.name: infer_schema(stream) for stream in streams})


def batches(folder: Path) -> MicroBatches:
    """Return the query of the golden checkpoint in another folder."""
    return MicroBatches(
        golden_join(), folder, LAYOUT, max_rows_per_batch=MAX_ROWS, block_bytes=BLOCK_BYTES, retain_batches=2
    )


def held(plan_of: MicroBatches) -> list[list[list[int]]]:
    """Return the sorted numbers of the tuples in each cell's windows."""
    windows = [CellWindows(plan_of.plan, cell, blob).engine.windows for cell, blob in sorted(plan_of.states.items())]
    return [[sorted(seq for run in w.runs for seq in run.tuples["_seq"].to_pylist()) for w in cell] for cell in windows]


def gone_on(query: MicroBatches) -> list[list[object]]:
    """Return the results from here to the end of the input, found by the cells alone, without a commit.

    A result is a list of its columns as text, without the batch id.
    """
    query.reader.prepareForTriggerAvailableNow()
    found = []
    while True:
        end = json.loads(json.dumps(query.reader.latestOffset(query.offset, ReadMaxRows(MAX_ROWS))))
        if end == query.offset:
            return sorted(found, key=repr)
        for report in query.cells(query.exchanged(query.offset, end)):
            facts = json.loads(report.facts)
            if report.kind == "file" and facts["table"] == "matches":
                table = pq.read_table(Path(query.plan.table_root) / facts["path"]).drop_columns(["batch_id"])
                found += [[str(value) for value in row.values()] for row in table.to_pylist()]
        query.offset, query.batch_id = end, query.batch_id + 1


def of_kind(kind: Kind, folder: Path) -> MicroBatches:
    """Return the query of a kind over the input in the folder ``in`` of this process's folder, where its files lie."""
    layout = Layout.parse("1x2" if kind.layouts[0] == "ranges" else kind.layouts[0], len(kind.names))
    return MicroBatches(
        bound_join(kind.join("in")),
        folder,
        layout,
        max_rows_per_batch=KIND_ROWS,
        block_bytes=BLOCK_BYTES,
        retain_batches=2,
        layout_kind="ranges" if kind.layouts[0] == "ranges" else "grid",
    )


def of_topics(patch: pytest.MonkeyPatch, folder: Path) -> MicroBatches:
    """Return a query over topics in memory, of three partitions each."""
    kind = KINDS["inner"]
    topics = fake_topics(patch, **dict.fromkeys(kind.names, 3))
    for name in kind.names:
        for row in kind.rows(name):
            topics.logs[name][row["id"] % 3].append(json_line(row).encode())
    join = kind.join("in")
    streams = [
        replace(stream, source=f"kafka://broker:9092/{stream.name}?format=json&start=earliest")
        for stream in join.streams
    ]
    asked = StreamJoin(streams, list(join.predicates), join.window, select=list(join.select))
    return MicroBatches(
        bound_join(asked), folder, LAYOUT, max_rows_per_batch=KIND_ROWS, block_bytes=BLOCK_BYTES, retain_batches=2
    )


def frames_join(session: SparkSession, folder: Path, files: int | None = None) -> tuple[StreamJoin, _Frames]:
    """Return the join over DataFrames of a folder's input, and these; there may be so many files of each alone."""
    kind, source = EVERY[FRAMES], folder / "in"
    kind.give_input(source)
    for name in kind.names if files is not None else ():
        for path in sorted((source / name).iterdir())[files:]:
            path.unlink()
    return kind.join(source), kind.frames(session, source)


def move_frames(folder: Path, before: str, after: str) -> None:
    """Put another folder into the files by which Spark knows what it has read, which hold whole paths."""
    for path in list((folder / "checkpoint" / "sources").glob("*/*")):
        if path.suffix == ".crc":
            path.unlink()
        else:
            path.write_text(path.read_text().replace(before, after))


def spark_join() -> StreamJoin:
    """Return the join of the checkpoint that Spark wrote: of generated streams, so it does not matter where it lies."""
    bound = golden_join().join
    return StreamJoin(bound.streams, list(bound.predicates), bound.window, how="left", select=["r.x", "s.a"])


def _make_kind(kind: Kind, folder: Path) -> None:
    os.chdir(folder)
    kind.give_input(Path("in"))
    _begin(of_kind(kind, folder / "query"))


def _make_topics(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _begin(of_topics(patch, folder / "query"))


def _make_frames(folder: Path) -> None:
    session = spark_session("golden", master="local[2]", log_path=folder / "spark.log")
    join, frames = frames_join(session, folder, FIRST_FILES)
    join.start(
        session, folder / "matches", folder / "checkpoint", frames=frames, layout="1x2", available_now=True
    ).awaitTermination()
    session.stop()
    (folder / "spark.log").unlink(missing_ok=True)  # where Java ran before, it keeps the log that it had
    shutil.rmtree(folder / "in")
    move_frames(folder, str(folder), MOVED)


def _begin(query: MicroBatches) -> None:
    """Do the first batches, and write what Spark would keep."""
    query.reader.prepareForTriggerAvailableNow()
    for _ in range(KIND_BATCHES):
        assert query.step()
    CheckpointIdentity.create(query.folder, query.bound, query.layout, query.layout.cells)
    for cell, blob in query.states.items():
        (query.folder / f"state-{cell}.bin").write_bytes(blob)
    (query.folder / "offset.json").write_text(json.dumps(query.offset))


def _make_spark(folder: Path) -> None:
    session = spark_session("golden", master="local[2]", log_path=folder / "spark.log")
    paths = folder / "matches", folder / "checkpoint"
    query = spark_join().start(session, *paths, max_rows_per_batch=MAX_ROWS, layout="1x2")
    while (query.lastProgress or {}).get("batchId", -1) < SPARK_BATCHES:
        time.sleep(0.01)
    query.stop()
    session.stop()
    (folder / "spark.log").unlink()


def main() -> None:
    """Write the archives of the version that the command line names: those that are not there."""
    version = sys.argv[1]
    (target := FOLDER / version).mkdir(exist_ok=True)
    others = {SPARK: _make_spark, TOPICS: _make_topics, FRAMES: _make_frames}
    for name in (*KINDS, *others):
        archive = target / f"{name.replace(' ', '-')}.tar.xz"
        if archive.exists():
            continue
        with tempfile.TemporaryDirectory() as root:
            _make_kind(KINDS[name], Path(root)) if name in KINDS else others[name](Path(root))
            with tarfile.open(archive, "w:xz", preset=9) as packed:
                packed.add(root, ".")
            os.chdir(FOLDER)
        print(archive, archive.stat().st_size)


if __name__ == "__main__":
    main()
