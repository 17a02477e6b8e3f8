"""Runs a join to its end, or until it is interrupted, with a display beside it."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamjoin_ds.cli.display import Display
from streamjoin_ds.stream.commit import watch
from streamjoin_ds.stream.join import StreamJoin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_join"]

_POLL_S = 1  # seconds between two looks for Ctrl-C or SIGTERM


def _held_back(progress: Any) -> dict[str, int]:
    """Return for each stream the bytes of an unfinished last line, as the query's last progress says.

    Empty where there is none, or the source has not reported yet.
    """
    if not progress or not progress["sources"] or not progress["sources"][0].get("latestOffset"):
        return {}
    reported = progress["sources"][0]["latestOffset"]
    facts = json.loads(reported) if isinstance(reported, str) else reported
    return {name: int(size) for name, size in facts.get("held_back_bytes", {}).items() if size}


def run_join(
    spark: SparkSession, join: StreamJoin, to: str, checkpoint: str, options: Mapping[str, Any], display: Display
) -> bool:
    """Start the join, show its batches and wait for its end; return False if it was interrupted, else True.

    Ctrl-C and SIGTERM stop the query; a restart with the same checkpoint goes on from there.
    """
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with watch(display.batch), display:
            query = join.start(spark, to, checkpoint, **options)
            while not query.awaitTermination(_POLL_S):
                if interrupted:
                    query.stop()
                    break
            display.totals.held_back_bytes = _held_back(query.lastProgress)
        return not interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
