"""A query over `StreamJoin.dataframe` whose windows lie in a folder of blocks, in a process that may be killed.

    python -m tests.support.frame_query FOLDER BLOCKS [BATCH]

Reads ``FOLDER/l`` and ``FOLDER/r``, a file a batch, into ``FOLDER/out`` with the checkpoint ``FOLDER/checkpoint``.
With BATCH it kills itself and its JVM as soon as that batch's state has been written but not committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from streamjoin_ds import Stream, StreamJoin, equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["expected", "started", "write_input"]

FILES, ROWS = 6, 2_000
WINDOW_MS = 4_000
_TEXT = "x" * 40  # so that a batch of a stream is above the 64 KiB from which a run is a block
_START = datetime(2024, 1, 1, tzinfo=timezone.utc)
_STEPS = {"l": 3, "r": 7}
_POLL_S = 0.0005


def tuples(step: int) -> list[dict[str, Any]]:
    """Return tuples, one a millisecond."""
    count = FILES * ROWS
    return [
        {"ts": _START + timedelta(milliseconds=n), "x": n * step % 1_009, "text": f"{n}{_TEXT}"} for n in range(count)
    ]


def expected() -> list[tuple[str, str]]:
    """Return the texts of each pair, sorted."""
    by_x: dict[int, list[tuple[int, str]]] = {}
    for n, row in enumerate(tuples(_STEPS["r"])):
        by_x.setdefault(row["x"], []).append((n, row["text"]))
    pairs = (
        (row["text"], text)
        for n, row in enumerate(tuples(_STEPS["l"]))
        for m, text in by_x.get(row["x"], ())
        if abs(n - m) <= WINDOW_MS
    )
    return sorted(pairs)


def write_input(folder: Path) -> None:
    """Write the files of both streams."""
    for name, step in _STEPS.items():
        (folder / name).mkdir()
        rows = tuples(step)
        for number in range(FILES):
            path = folder / name / f"{number}.json"
            part = rows[number * ROWS : (number + 1) * ROWS]
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in part))
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source goes by the files' times


def started(spark: SparkSession, folder: Path, blocks: str) -> StreamingQuery:
    """Start the query over all that is there; return it."""
    join = StreamJoin([Stream("l"), Stream("r")], on=[equal("l.x", "r.x")], window=f"{WINDOW_MS}ms")
    reader = spark.readStream.schema("ts TIMESTAMP, x BIGINT, text STRING").option("maxFilesPerTrigger", 1)
    frames = {name: reader.json(str(folder / name)).withWatermark("ts", "0 seconds") for name in _STEPS}
    return (
        join.dataframe(frames, layout="1x2", blocks=blocks)
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _kill_at(folder: Path, batch: int) -> None:
    """Kill this process and its JVM when a partition's state of `batch` is written and the batch is not committed."""
    state, commit = folder / "checkpoint" / "state" / "0", folder / "checkpoint" / "commits" / str(batch)
    while not any(path.stem == str(batch + 1) for path in state.glob("*/*") if path.name[0] != "."):
        time.sleep(_POLL_S)
    print("killed before" if not commit.exists() else "killed after", "the commit", flush=True)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    from streamjoin_ds.spark.session import spark_session

    folder, blocks = Path(sys.argv[1]), sys.argv[2]
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.minBatchesToRetain": "2"}
    spark = spark_session("frame query", master="local[2]", delta=False, conf=conf)
    if len(sys.argv) > 3:
        threading.Thread(target=_kill_at, args=(folder, int(sys.argv[3])), daemon=True).start()
    started(spark, folder, blocks).awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main()
