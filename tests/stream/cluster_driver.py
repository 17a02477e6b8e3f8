"""A driver of a cluster, in a process of its own: ``python -m tests.stream.cluster_driver MASTER FOLDER OPTIONS``."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path

import psutil

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.plan import Plan
from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream import query as queries
from streamjoin_ds.stream.commit import watch
from tests.faults.driver import MAX_ROWS_PER_BATCH, join
from tests.support.class_archive import archive_options


def executors() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                found.append(process)
    return found


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
    original = queries._plan

    def seen(*arguments):  # type: ignore[no-untyped-def]
        plans.append(original(*arguments))
        return plans[-1]

    queries._plan = seen
    killed: list[int] = []

    def committed(summary) -> None:  # type: ignore[no-untyped-def]
        if summary.batch_id == options.get("kill_in_batch"):
            victim = executors()[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)

    facts: dict[str, object] = {"error": None}
    checkpoint = Path(options.get("hide") or folder / "ckpt")
    try:
        with watch(committed):
            query = join().start(
                spark,
                folder / "matches",
                checkpoint,
                available_now=True,
                max_rows_per_batch=MAX_ROWS_PER_BATCH,
                layout="1x2",
                exchange=options.get("exchange", "auto"),
            )
            query.awaitTermination()
    except StreamJoinError as error:
        facts["error"] = str(error)
    if plans:
        facts |= {"exchange": plans[0].exchange, "blocks": plans[0].state_root}
    print(json.dumps({**facts, "killed": killed}), flush=True)


if __name__ == "__main__":
    main()
