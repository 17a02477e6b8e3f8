"""One driver over the topics: ``python -m tests.faults.topics.life FACTS``; it is killed, or kills itself.

FACTS is a JSON object: `folder`, `servers`, `topics`, `max_rows`, and maybe `drain` (read all that is there, then end),
`point` and `batch` (kill yourself there; `workers` kills the workers of every batch from that one on).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from streamjoin_ds.spark.session import spark_session
from tests.faults.driver import HOOKED, WATCHED, arm, arm_workers, watch_for
from tests.faults.topics.load import topics_join


def main(text: str) -> None:
    """Run the driver that `text` describes."""
    facts = json.loads(text)
    folder, point, batch = Path(facts["folder"]), facts.get("point", ""), facts.get("batch", 0)
    checkpoint = folder / "checkpoint"
    if point == "workers":
        arm_workers(batch, further=True)
    elif point in HOOKED:
        arm(point, batch)
    spark = spark_session("faults of topics", master="local[2,4]", delta=False, log_path=folder / "spark.log")
    if point in WATCHED:
        watch_for(point, batch, checkpoint, spark.sparkContext._gateway.proc.pid)
    drains = facts.get("drain", False)
    query = topics_join(facts["servers"], tuple(facts["topics"])).start(
        spark,
        folder / "matches",
        checkpoint,
        max_rows_per_batch=facts["max_rows"],
        layout="2x1",
        **({"available_now": True} if drains else {"trigger": "200ms"}),
    )
    query.awaitTermination()
    print("finished")


if __name__ == "__main__":
    main(sys.argv[1])
