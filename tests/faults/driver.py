"""A driver that kills itself, with its JVM, at a named point of a named batch: run as a process of its own.

    python tests/faults/driver.py TABLE CHECKPOINT [POINT BATCH]

Points: ``before_commit`` (all state written, nothing in the table),
``between_tables`` (ledger and metrics in, matches not), ``after_commit`` (matches in the table, Spark's commit log
without the batch), ``after_batch`` (the batch is done, the next one is being planned).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from streamjoin_ds import Generator, Stream, StreamJoin, band
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.stream.session import spark_session

ROWS = 6_000
MAX_ROWS_PER_BATCH = 2_500
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
    import psutil

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


def main() -> None:
    table, checkpoint, *armed = sys.argv[1:]
    if armed:
        arm(armed[0], int(armed[1]))
    spark = spark_session("fault", master="local[2,4]", delta=False, log_path=f"{checkpoint}.log")
    query = join().start(
        spark, table, checkpoint, available_now=True, max_rows_per_batch=MAX_ROWS_PER_BATCH, layout="1x2"
    )
    query.awaitTermination()
    print("finished")


if __name__ == "__main__":
    main()
