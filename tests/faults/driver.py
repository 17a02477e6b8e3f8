"""A driver that kills itself, with its JVM, at a named point of a named batch: run in a process of its own.

    python -m tests.faults.driver TABLE CHECKPOINT [POINT BATCH]

The points are those of ARCHITECTURE.md, "Crash points", in the order in which a batch passes them:

    C1 planning         the batch before is done, this one's offsets are not logged
    C2 offset_logged    this batch's offsets are logged
    C3 some_state       one state partition is written, maybe not the other
    C5 before_commit    all state and data files are written (C4 is a moment before), nothing in a table's log
       between_tables   ledger and metrics are in the table, matches are not
    C6 after_commit     matches are in the table, Spark's commit log is without the batch
    C7 batch_logged     Spark's commit log has the batch, the source has not been told
    C8 after_batch      the batch is done, the next one has run up to its commit

    moving              the files for another number of cells are being written (`streamjoin_ds.checkpoint.move`)

There are other points. ``worker``: the driver goes on, and the Python workers of that batch are killed while they work.
``workers``: those of every batch from that one on are killed. ``servers``: in each batch something happens to the
window server, drawn by the number that stands in the batch's place (`SERVER_FAULTS`). ``oom``: every worker that takes
up work in that batch is killed, until the query ends. ``memory``: from that batch on no Python process below Spark gets
any more. ``pause``: the whole tree of processes stops between the tables' commits, like a machine that went to sleep,
until somebody sends SIGCONT. ``take_over``: nothing dies, and the checkpoint is taken over from a driver that sleeps.

Environment variables say another layout, a kind of join (`tests.support.kinds`) with the folder of its input, and that
the driver runs without Spark: then there is no JVM, and there are no workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from streamjoin_ds import Generator, Stream, StreamJoin, band
from streamjoin_ds.cli.main import error_text
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream.commit import BatchCommit
from tests.support import kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamjoin_ds.stream.local_query import LocalQuery

ROWS = 4_000
MAX_ROWS_PER_BATCH = 1_700  # five batches
HOOKED = ("before_commit", "between_tables", "after_commit", "after_batch")
WATCHED = ("planning", "offset_logged", "some_state", "batch_logged", "moving")
POINTS = (*WATCHED[:3], *HOOKED[:3], WATCHED[3], HOOKED[3])  # without "moving", which is of no batch
_POLL_S = 0.0005
SERVER_FAULTS = {
    "idle": "it is killed before the batch",
    "busy": "it is killed while it joins a cell",
    "repeat": "the workers are killed while it joins a cell: others ask for the same again",
    "socket": "its socket is gone: there are two servers",
    "memory": "it gets no more memory",
    "frozen": "it stands still until the batch is over, and then goes on",
}
LAYOUT, KIND, INPUT = "STREAMJOIN_TEST_LAYOUT", "STREAMJOIN_TEST_KIND", "STREAMJOIN_TEST_INPUT"
LOCAL = "STREAMJOIN_TEST_LOCAL"


def join(window: str = "20s", eps: float = 100.0) -> StreamJoin:
    """Return a small band join of two generated streams; a window holds half of its stream."""

    def side(name: str) -> Generator:
        return Generator("band2d", {"side": name, "rate": 100, "rows": ROWS, "seed": 7})

    return StreamJoin(
        [Stream("r", side("r"), delay="1s"), Stream("s", side("s"), delay="1s")],
        on=[band("r.x", "s.a", eps), band("r.y", "s.b", eps)],
        window=window,
        select=["r.x", "s.a"],
    )


def started(spark: SparkSession | None, table: str, checkpoint: str, *, take_over: bool) -> StreamingQuery | LocalQuery:
    """Return the query of the kind that the environment names, over all of its input."""
    layout, kind = os.environ.get(LAYOUT, "1x2"), kinds.EVERY.get(os.environ.get(KIND, ""))
    options = {"available_now": True, "layout": layout, "take_over": take_over}
    asked, most = (join(), MAX_ROWS_PER_BATCH) if kind is None else (kind.join(os.environ[INPUT]), kinds.MAX_ROWS)
    if spark is None:
        return asked.run_local(table, checkpoint, max_rows_per_batch=most, **options)
    if kind is None:
        return asked.start(spark, table, checkpoint, max_rows_per_batch=most, **options)
    if kind.form == "frames":
        return asked.start(spark, table, checkpoint, frames=kind.frames(spark, os.environ[INPUT]), **options)
    return asked.start(spark, table, checkpoint, max_rows_per_batch=most, **options)


def kill_everything() -> None:
    """Kill this process and all below it, as a power cut would: no handler of Python or Java runs."""
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


def watch_for(point: str, batch_id: int, checkpoint: Path, java_pid: int | None) -> None:
    """Make the process kill itself when Spark's files show that `point` of batch `batch_id` is reached.

    What they show stays: on a busy machine the watcher may sleep through the point, and kills a moment after it.
    """

    def generation_now() -> int | None:
        try:
            return int(json.loads((checkpoint / "join.json").read_bytes()).get("generation", 0))
        except FileNotFoundError:
            return None

    moved = checkpoint / f"generation-{(generation_now() or 0) + 1}"

    def reached() -> bool:
        if point == "moving":
            return moved.exists()
        generation = generation_now()
        if generation is None:
            return False
        folder = checkpoint / f"generation-{generation}" if generation else checkpoint
        commits, offsets, state = folder / "commits", folder / "offsets", folder / "state" / "0"
        if point == "planning":
            return (commits / str(batch_id - 1)).exists()
        if point == "some_state":
            names = (f"{batch_id + 1}.delta", f"{batch_id + 1}.snapshot")  # the second of a driver without Spark
            return any((state / part / name).exists() for part in ("0", "1", "2", "3") for name in names)
        return ((offsets if point == "offset_logged" else commits) / str(batch_id)).exists()

    def hunt() -> None:
        while not reached():
            time.sleep(_POLL_S)
        if java_pid is not None:
            os.kill(java_pid, signal.SIGKILL)
        kill_everything()

    threading.Thread(target=hunt, daemon=True).start()


def pause_everything(checkpoint: Path) -> None:
    """Stop this process and all below it.

    The process ids of the children are left in a file for whoever wakes them.
    """
    children = psutil.Process().children(recursive=True)
    Path(f"{checkpoint}.paused").write_text(" ".join(str(child.pid) for child in children))
    for child in children:
        child.send_signal(signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def arm_pause(batch_id: int, checkpoint: Path) -> None:
    original_before = Committer.commit_before

    def commit_before(self: Committer, batch: int, *arguments: object, **options: object) -> object:
        done = original_before(self, batch, *arguments, **options)  # type: ignore[arg-type]
        if batch == batch_id:
            pause_everything(checkpoint)
        return done

    Committer.commit_before = commit_before  # type: ignore[method-assign,assignment]


def is_of_daemon(process: psutil.Process) -> bool:
    """Whether a process is a daemon of Spark's Python workers, or forked by one."""
    return not {"pyspark.daemon", "streamjoin_ds.spark.worker_daemon"}.isdisjoint(process.cmdline())


def workers() -> list[psutil.Process]:
    """Return the Python workers of this driver's Spark: the children of its daemons, busy or waiting."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = child.parent()
            if parent is not None and is_of_daemon(parent):
                found.append(child)
    return found


def arm_workers(batch_id: int, *, further: bool) -> None:
    """Kill the workers that wait in a batch, and one more that takes up work; `further`: in later batches too."""
    original = BatchCommit.__call__

    def call(self: BatchCommit, frame: DataFrame, batch: int) -> None:
        if batch != batch_id and not (further and batch > batch_id):
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


def servers() -> list[psutil.Process]:
    """Return the window servers of this driver's Spark. One whose worker is dead is nobody's child."""
    below = {str(child.pid) for child in psutil.Process().children(recursive=True)}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if "streamjoin_ds.cell.window_server" in command and command[-1] in below:
                found.append(process)
    return found


def arm_servers(seed: int) -> None:
    """Have something happen to the window server in each batch."""
    original, dice = BatchCommit.__call__, random.Random(seed)

    def call(self: BatchCommit, frame: DataFrame, batch: int) -> None:
        # Others wait 20 s for one that stands still: of eleven faults it is one.
        fault = dice.choice([*[*SERVER_FAULTS][:-1] * 2, "frozen"])
        delay_s, over = dice.random() / 20, threading.Event()
        before = {server: server.num_threads() for server in servers()}
        if fault in ("busy", "repeat"):
            hunter = threading.Thread(target=_strike, args=(fault, before, delay_s, over))
            hunter.start()
            try:
                original(self, frame, batch)
            finally:
                over.set()
                hunter.join()
            return
        for server in before:
            with contextlib.suppress(psutil.Error, FileNotFoundError):
                _befall(fault, server)
        original(self, frame, batch)
        for server in before:
            with contextlib.suppress(psutil.Error):
                server.send_signal(signal.SIGCONT)
                server.rlimit(psutil.RLIMIT_AS, (psutil.RLIM_INFINITY,) * 2)

    BatchCommit.__call__ = call  # type: ignore[method-assign,assignment]


def _befall(fault: str, server: psutil.Process) -> None:
    """Do to a server what is done before a batch."""
    if fault == "idle":
        server.kill()
    elif fault == "frozen":
        server.send_signal(signal.SIGSTOP)
    elif fault == "memory":
        server.rlimit(psutil.RLIMIT_AS, (server.memory_info().vms,) * 2)
    else:
        Path(server.cmdline()[-2]).unlink()
    print(f"server: {fault}")


def _strike(fault: str, idle_threads: dict[psutil.Process, int], delay_s: float, over: threading.Event) -> None:
    """Kill a server that has taken up work, or the workers that wait for it, a moment later."""
    while not over.wait(_POLL_S):
        for server in servers():
            with contextlib.suppress(psutil.Error):
                if server.num_threads() > idle_threads.get(server, 1):
                    time.sleep(delay_s)
                    for process in [server] if fault == "busy" else workers():
                        process.kill()
                    print(f"server: {fault}")
                    return


_TO_BEGIN_BYTES = 96 * 2**20  # what a worker needs until it can say that it has no memory


def arm_memory(batch_id: int, *, is_killed: bool) -> None:
    """Let no worker have more memory from a batch on, or kill those of the batch, as a system does that is short."""
    original = BatchCommit.__call__

    def call(self: BatchCommit, frame: DataFrame, batch: int) -> None:
        if batch != batch_id:
            return original(self, frame, batch)
        done = threading.Event()

        def hunt() -> None:
            while not done.is_set():
                for worker in workers():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.send_signal(signal.SIGKILL)

        hunter = threading.Thread(target=hunt)
        if is_killed:
            hunter.start()
        else:
            for worker in workers():  # those that take their place can begin, and need more to import
                worker.kill()
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if is_of_daemon(process):
                        process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + _TO_BEGIN_BYTES,) * 2)
        try:
            original(self, frame, batch)
        finally:
            done.set()
            if is_killed:
                hunter.join()

    BatchCommit.__call__ = call  # type: ignore[method-assign,assignment]


def main() -> None:
    table, checkpoint, *armed = sys.argv[1:]
    point, batch_id = (armed[0], int(armed[1])) if armed else ("", 0)
    if point in ("worker", "workers"):
        arm_workers(batch_id, further=point == "workers")
    elif point == "servers":
        arm_servers(batch_id)
    elif point in ("memory", "oom"):
        arm_memory(batch_id, is_killed=point == "oom")
    elif point == "pause":
        arm_pause(batch_id, Path(checkpoint))
    elif point in HOOKED:
        arm(point, batch_id)
    spark = None
    if not os.environ.get(LOCAL):
        # Without memory a worker is to fail as it imports; our own daemon has done that before.
        conf = {"spark.python.daemon.module": "pyspark.daemon"} if point == "memory" else {}
        spark = spark_session("fault", master="local[2,4]", delta=False, log_path=f"{checkpoint}.log", conf=conf)
    if point in WATCHED:
        watch_for(point, batch_id, Path(checkpoint), spark and spark.sparkContext._gateway.proc.pid)
    try:
        started(spark, table, checkpoint, take_over=point == "take_over").awaitTermination()
    except Exception as error:
        print(error_text(error)[0])
        raise
    print("finished")


if __name__ == "__main__":
    main()
