"""A join as a live query in a process of its own: it fills its windows, goes on, and reports what each batch did.

::

    parent                                          this process
      │── LiveTask (argument, JSON) ───────────────►│ session, query
      │◄── {"event": "session"} ────────────────────│
      │◄── {"event": "batch", ...} a commit ────────│ windows fill, then the batches that count
      │◄── {"event": "done", "triggers": [...]} ────│ Spark's own times of each trigger
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream.commit import BatchSummary, watch
from streamjoin_ds.stream.join import StreamJoin
from tests.bench.suites.processes import answers
from tests.bench.suites.workloads import band2d

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LiveTask", "main"]

# The selected columns. With its event time and batch id a result has six columns, as in the papers (and each `seq`).
_SELECT = ("r.x", "r.y", "s.a", "s.b")
_PROGRESS_WITHIN_S = 10.0  # seconds in which Spark must report a trigger after its commit
_PROGRESS_KEPT = 100_000  # triggers that Spark remembers: all
_WARM_TRIGGERS = 10  # empty triggers that are not measured


@dataclass(frozen=True, slots=True)
class LiveTask:
    """One live query over two endless ``band2d`` streams.

    Attributes
    ----------
    folder : str
        Folder for table and checkpoint; a second task with the same folder goes on where the first one was.
    rate : int
        Tuples of each stream in a second of event time.
    window_us : int
        Length of the windows, in microseconds.
    eps : int
        Half of the bands' width, in both attributes; values are uniform from 1 to 10 000.
    batches : int
        Batches after the windows are full.
    batch_rows : int
        Most rows of a batch, both streams together.
    fill_rows : int
        Tuples, both streams together, after which the windows count as full; 0: they do from the first batch on.
    fill_batch_rows : int
        Most rows of a batch while the windows fill, by a query that is then started again; 0: `batch_rows`, by the same
        query.
    pace : str
        "max", or how many times as fast as real time event time goes. It does not hold for a fill by its own query.
    keep_rows : bool
        False: after each commit its rows are deleted from the table, and its files from the disk, so that hours of
        matches need no room. The query does not read them. The deletion counts as part of the batch.
    weigh : bool
        Whether to report how many bytes of state each batch wrote.
    empty_triggers : int
        How many triggers of a query that does nothing are measured afterwards, in the same session
        (`_empty_triggers_ms`).
    rates : str
        Instead of `rate`: rates that change, as the generator's parameter `rates` says them.
    rows : int
        Tuples, both streams together, after which the query ends; 0: after `batches`.
    max_delay : str
        As `StreamJoin.start` takes it; "" for no bound.
    second_rates : str
        The second stream's rates, in the form of `rates`; "" where they are those of the first.
    cells : int
        Number of cells; 0: as many as there are cores.
    layout : str
        As `StreamJoin.start` takes it.
    """

    folder: str
    rate: int
    window_us: int
    eps: int
    batches: int
    batch_rows: int
    fill_rows: int = 0
    fill_batch_rows: int = 0
    pace: str = "max"
    keep_rows: bool = True
    weigh: bool = False
    empty_triggers: int = 0
    rates: str = ""
    rows: int = 0
    max_delay: str = ""
    second_rates: str = ""
    cells: int = 0
    layout: str = "auto"

    def join(self) -> StreamJoin:
        """Return the join."""
        rates = self.rates or self.rate
        return band2d(
            rates, f"{self.window_us}us", select=_SELECT, eps=self.eps, second_rate=self.second_rates or rates
        )

    @property
    def table(self) -> Path:
        """Folder of the matches."""
        return Path(self.folder) / "matches"

    @property
    def checkpoint(self) -> Path:
        """Folder of the checkpoint."""
        return Path(self.folder) / "checkpoint"


class _Live:
    """The query of a task, from its start to the last batch that is wanted."""

    def __init__(self, task: LiveTask, tell: Callable[[dict[str, Any]], None]) -> None:
        self._task, self._tell = task, tell
        self._weight = _Weight(task.checkpoint) if task.weigh else None
        self._rows = 0
        self._full_batches = 0
        self._wanted = threading.Event()

    def run(self) -> None:
        """Fill the windows, go on, and tell the parent what happens."""
        task = self._task
        session = spark_session("python -m tests.bench stream", quick_compiler=True)  # as `streamjoin run` makes it
        session.conf.set("spark.sql.streaming.numRecentProgressUpdates", _PROGRESS_KEPT)
        self._tell({"event": "session", "at_s": time.time()})
        with watch(self._committed):
            if task.fill_rows and task.fill_batch_rows:
                self._awaited(self._started(session, task.fill_batch_rows, "max"))
            self._wanted.clear()
            query = self._started(session, task.batch_rows, task.pace)
            triggers = self._awaited(query)
        empty_ms = _empty_triggers_ms(session, task) if task.empty_triggers else []
        self._tell({"event": "done", "triggers": triggers, "empty_ms": empty_ms})
        session.stop()

    def _started(self, session: Any, rows: int, pace: str) -> StreamingQuery:
        task = self._task
        options = {"pace": pace}
        return task.join().start(
            session,
            task.table,
            task.checkpoint,
            max_rows_per_batch=rows,
            max_delay=task.max_delay or None,
            layout=task.layout,
            cells=task.cells or None,
            source_options=options,
        )

    def _awaited(self, query: StreamingQuery) -> list[dict[str, Any]]:
        """Let the query run until enough is committed, and return Spark's times of its triggers."""
        while not self._wanted.wait(0.1):
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
        # Spark reports a trigger a moment after its commit.
        known, until = len(query.recentProgress), time.monotonic() + _PROGRESS_WITHIN_S
        while len(query.recentProgress) == known and time.monotonic() < until and query.isActive:
            time.sleep(0.02)
        progress = [json.loads(entry.json) for entry in query.recentProgress]
        query.stop()
        return [{key: entry[key] for key in ("batchId", "timestamp", "durationMs")} for entry in progress]

    def _committed(self, summary: BatchSummary) -> None:
        task = self._task
        full = self._rows >= task.fill_rows
        self._rows += sum(summary.read.values())
        if not task.keep_rows:
            _delete_rows(task.table)
        self._tell(
            {
                "event": "batch",
                "at_s": time.time(),
                "batch_id": summary.batch_id,
                "full": full,
                "read": list(summary.read.values()),
                "matches": summary.matches,
                "state_rows": summary.state_rows,
                **(self._weight.new_bytes() if self._weight is not None else {}),
            }
        )
        self._full_batches += full
        filling = task.fill_batch_rows and not full
        is_done = self._rows >= task.rows if task.rows else self._full_batches >= task.batches
        if is_done or (filling and self._rows >= task.fill_rows):
            self._wanted.set()


def _empty_triggers_ms(session: Any, task: LiveTask) -> list[float]:
    """Return how many milliseconds Spark takes for triggers of two stages with a row, a count and an empty sink."""
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    query = (
        rows.groupBy("value")
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"{task.folder}/empty-checkpoint")
        .foreachBatch(lambda frame, number: frame.collect())
        .start()
    )
    wanted = task.empty_triggers + _WARM_TRIGGERS
    while len(query.recentProgress) < wanted:
        if query.awaitTermination(0.1):
            break
    took = [float(entry.durationMs["triggerExecution"]) for entry in query.recentProgress]
    query.stop()
    return took[_WARM_TRIGGERS:wanted]


class _Weight:
    """Weighs the files under a checkpoint that hold windows: the engine's blocks, and Spark's own files of state."""

    def __init__(self, checkpoint: Path) -> None:
        self._folders = {"block_bytes": checkpoint / "blocks", "row_bytes": checkpoint / "state"}
        self._seen: set[Path] = set()

    def new_bytes(self) -> dict[str, int]:
        """Return the bytes of files that are new since the last call, as ``block_bytes`` and ``row_bytes``."""
        return {name: sum(self._new_sizes(folder)) for name, folder in self._folders.items()}

    def _new_sizes(self, folder: Path) -> Iterator[int]:
        for path in folder.rglob("*"):
            if path not in self._seen and path.is_file():
                self._seen.add(path)
                with contextlib.suppress(FileNotFoundError):
                    yield path.stat().st_size


def _delete_rows(table: Path) -> None:
    """Delete all rows of a table, in a commit of their own, and their files on the disk."""
    from deltalake import DeltaTable

    DeltaTable(str(table)).delete()
    for path in table.glob("*.parquet"):
        path.unlink()


def main(text: str) -> None:
    """Run the task that `text` describes."""
    _Live(LiveTask(**json.loads(text)), answers()).run()


if __name__ == "__main__":
    main(sys.argv[1])
