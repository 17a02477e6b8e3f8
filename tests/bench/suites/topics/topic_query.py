"""The join over two topics in a process of its own: it reads all that is there, and tells of each commit.

::

    parent ── TopicLoad and folder (argument, JSON) ──► this process
           ◄── {"at_s", "read", "matches"} a commit ───
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from streamjoin_ds.spark.session import spark_session
from streamjoin_ds.stream.commit import BatchSummary, watch
from tests.bench.suites.processes import answers
from tests.bench.suites.topics.topic_load import TopicLoad

__all__ = ["main"]


def main(text: str) -> None:
    """Run the query that `text` describes, to its end."""
    answer = answers()
    given = json.loads(text)
    folder, load = Path(given["folder"]), TopicLoad(**given["load"])

    def tell(summary: BatchSummary) -> None:
        facts = {"at_s": time.time(), "read": sum(summary.read.values()), "matches": summary.matches}
        answer(facts)

    session = spark_session("python -m tests.bench kafka", quick_compiler=True)
    with watch(tell):
        query = load.join().start(
            session,
            folder / "matches",
            folder / "checkpoint",
            available_now=True,
            max_rows_per_batch=given["batch_rows"],
        )
        query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
