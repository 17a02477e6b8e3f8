"""The join over two streaming DataFrames in a process of its own; it ends when all files are read.

::

    parent ── way, folder and FrameLoad (argument, JSON) ──► this process
           ◄── {"commits_s": [...], "matches"} ───────────
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamjoin_ds.spark.session import spark_session
from tests.bench.suites.frames.frame_load import FrameLoad
from tests.bench.suites.processes import answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["main"]


def main(text: str) -> None:
    """Run the query that `text` describes, to its end."""
    answer = answers()
    given = json.loads(text)
    folder, load = Path(given["folder"]), FrameLoad(**given["load"])
    session = spark_session("python -m tests.bench frames", quick_compiler=True)
    schema = session.read.parquet(str(folder / "r")).schema
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    frames: dict[str, DataFrame] = {name: reader.parquet(str(folder / name)) for name in ("r", "s")}
    out = folder / given["way"]
    if given["way"] == "start":
        query = load.join().start(
            session, out / "matches", out / "checkpoint", frames=frames, order_by="number", available_now=True
        )
    else:
        marked = {name: frame.withWatermark("ts", "0 seconds") for name, frame in frames.items()}
        writer = load.join().dataframe(marked).writeStream.format("delta").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "matches"))
    query.awaitTermination()
    commits = [path for path in (out / "checkpoint" / "commits").iterdir() if path.name.isdigit()]
    times = sorted(path.stat().st_mtime for path in commits)
    matches = session.read.format("delta").load(str(out / "matches")).count()
    answer({"commits_s": times, "matches": matches})
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
