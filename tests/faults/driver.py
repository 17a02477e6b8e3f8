"""A driver that kills itself, with its JVM, at a named point of a named batch: run as a process of its own.

    python tests/faults/driver.py TABLE CHECKPOINT [POINT BATCH]

Points: ``before_commit`` (all state written, nothing in the table), ``between_tables`` (ledger and metrics in, matches
not), ``after_commit`` (matches in the table, Spark's commit log without the batch), ``after_batch`` (the batch is done,
the next one has run up to its commit). ``worker`` is none of them: the driver goes on, but the Python workers of that
batch are killed while they work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import psutil

from streamjoin_ds import Generator, Stream, StreamJoin, band
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.stream.commit import BatchCommit
from streamjoin_ds.stream.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 4_000
MAX_ROWS_PER_BATCH = 1_700  # five batches
POINTS = ("before_commit", "between_tables", "after_commit", "after_batch")


def join(window: str = "20s", eps: float = 100.0) -> StreamJoin:
    """A small band join of two generated streams; the windows hold about a third of the input."""

    def side(name: str) -> Generator:
        return Generator("band2d", {"side": name, "rate": 100, "rows": ROWS, "seed": 7})

    return StreamJoin(
        [Stream("r", side("r"), delay="1s"), Stream("s", side("s"), delay="1s")],
        on=[band("r.x", "s.a", eps), band("r.y", "s.b", eps)],
        window=window,
        select=["r.x", "s.a"],
    )


def kill_everything() -> None:
    """What a power cut is to these processes: no handler of Python or Java runs."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, batch_id: int) -> None:
    """Make the process kill itself at `point` of batch `batch_id`."""
    original, original_before = Committer.commit, Committer.commit_before

    def commit(self: Committer, batch: int, *arguments: object, **options: object) -> object:
        if point == "after_batch" and batch == batch_id + 1:
            kill_everything()
        if point == "before_commit" and batch == batch_id:
            kill_everything()
        outcome = original(self, batch, *arguments, **options)  # type: ignore[arg-type]
        if point == "after_commit" and batch == batch_id:
            kill_everything()
        return outcome

    def commit_before(self: Committer, batch: int, *arguments: object, **options: object) -> object:
        done = original_before(self, batch, *arguments, **options)  # type: ignore[arg-type]
        if point == "between_tables" and batch == batch_id:
            kill_everything()
        return done

    Committer.commit, Committer.commit_before = commit, commit_before  # type: ignore[method-assign,assignment]


def workers() -> list[psutil.Process]:
    """Python workers of this driver's Spark: the children of its `pyspark.daemon`, busy or waiting."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = child.parent()
            if parent is not None and "pyspark.daemon" in parent.cmdline():
                found.append(child)
    return found


def arm_workers(batch_id: int) -> None:
    """Kill those that wait for the batch's tasks, and one more that has taken up work after them."""
    original = BatchCommit.__call__

    def call(self: BatchCommit, frame: DataFrame, batch: int) -> None:
        if batch != batch_id:
            return original(self, frame, batch)
        waiting = workers()
        for worker in waiting:
            worker.send_signal(signal.SIGKILL)
        done = threading.Event()
        busy: list[psutil.Process] = []

        def hunt() -> None:
            while not busy and not done.is_set():
                for worker in workers():
                    if worker not in waiting and not busy:
                        busy.append(worker)
                        worker.send_signal(signal.SIGKILL)

        hunter = threading.Thread(target=hunt)
        hunter.start()
        try:
            original(self, frame, batch)
        finally:
            done.set()
            hunter.join()
        print(f"killed {len(waiting)} that waited and {len(busy)} at work")

    BatchCommit.__call__ = call  # type: ignore[method-assign,assignment]


def main() -> None:
    table, checkpoint, *armed = sys.argv[1:]
    if armed and armed[0] == "worker":
        arm_workers(int(armed[1]))
    elif armed:
        arm(armed[0], int(armed[1]))
    spark = spark_session("fault", master="local[2,4]", delta=False, log_path=f"{checkpoint}.log")
    query = join().start(
        spark, table, checkpoint, available_now=True, max_rows_per_batch=MAX_ROWS_PER_BATCH, layout="1x2"
    )
    query.awaitTermination()
    print("finished")


if __name__ == "__main__":
    main()
