"""A driver of a cluster, in a process of its own: ``python -m tests.stream.cluster_driver MASTER FOLDER OPTIONS``."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.plan import Plan
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream import query as queries
from streamjoin_ds.stream.commit import watch
from tests.faults.driver import MAX_ROWS_PER_BATCH, join
from tests.support.class_archive import archive_options
from tests.support.kinds import KINDS, MAX_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executors(spark: SparkSession) -> list[psutil.Process]:
    """Return the processes that run this driver's tasks; another driver on the machine has its own."""
    port = spark.sparkContext.getConf().get("spark.driver.port")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            is_one = any("CoarseGrainedExecutorBackend" in word for word in words)
            if is_one and any(word.endswith(f"@127.0.0.1:{port}") for word in words):
                found.append(process)
    return found


def hunt(spark: SparkSession, kills: int, killed: list[int], done: threading.Event) -> None:
    """Kill an executor in each of the next batches, while its cells are at work: what they have not fetched is lost."""
    tracker, seen = spark.sparkContext.statusTracker(), set[int]()
    while len(killed) < kills and not done.is_set():
        for job in tracker.getActiveJobsIds():
            facts = tracker.getJobInfo(job)
            stages = sorted(facts.stageIds) if facts is not None else []
            # The first batch is let go: both executors are there then, and have run tasks.
            if len(stages) < 2 or job in seen or stages[-1] not in tracker.getActiveStageIds() or not job:
                continue
            seen.add(job)
            victims = executors(spark)
            if len(victims) > 1:
                victim = victims[len(killed) % 2]
                victim.send_signal(signal.SIGKILL)
                killed.append(victim.pid)
        time.sleep(0.001)


def main() -> None:
    master, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    folder.mkdir(exist_ok=True)
    conf = {"spark.driver.host": "127.0.0.1", "spark.cores.max": "2", "spark.executor.memory": "512m"}
    conf |= {"spark.executor.extraJavaOptions": " ".join(archive_options())}
    conf |= {"spark.driver.extraJavaOptions": " ".join(archive_options())}  # a session sets it with a local master only
    # Both workers must be there when they are asked what they see.
    conf |= {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    spark = spark_session("cluster", master=master, delta=False, log_path=folder / "spark.log", conf=conf)
    plans: list[Plan] = []
    original = queries.plan_for

    def seen(*arguments):  # type: ignore[no-untyped-def]
        plans.append(original(*arguments))
        return plans[-1]

    queries.plan_for = seen
    killed: list[int] = []

    kind = KINDS.get(options.get("kind", ""))

    def committed(summary) -> None:  # type: ignore[no-untyped-def]
        if kind is not None and kind.has_table:
            kind.change_table(folder / "in", summary.batch_id + 1)
        if summary.batch_id == options.get("kill_in_batch"):
            victim = executors(spark)[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)

    done = threading.Event()
    asked = join() if kind is None else kind.join(folder / "in")
    facts: dict[str, object] = {"error": None}
    checkpoint = Path(options.get("hide") or folder / "ckpt")
    try:
        with watch(committed):
            query = asked.start(
                spark,
                folder / "matches",
                checkpoint,
                available_now=True,
                max_rows_per_batch=MAX_ROWS if kind else MAX_ROWS_PER_BATCH,
                layout="1x2",
                exchange=options.get("exchange", "auto"),
            )
            if "kills" in options:
                threading.Thread(target=hunt, args=(spark, options["kills"], killed, done), daemon=True).start()
            query.awaitTermination()
    except StreamJoinError as error:
        facts["error"] = str(error)
    done.set()
    if plans:
        facts |= {"exchange": plans[0].exchange, "blocks": plans[0].state_root}
    print(json.dumps({**facts, "killed": killed}), flush=True)


if __name__ == "__main__":
    main()
