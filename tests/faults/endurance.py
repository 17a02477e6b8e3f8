"""One Spark session that lives long: ``python -m tests.faults.endurance --lives 40``; with bounds on what may grow.

The soak plays Spark's part itself, so it has no Java. Here queries of several kinds (`lives`) run on a real Spark as
fast as they can, one after the other, and are stopped and started again in the same session, as in a notebook or a
service. A life is one turn of all kinds. At its end Java collects its garbage and all measures are taken. A life of the
second quarter is compared with one of the last: before that, Java compiles and caches fill.

Spark 4.2 itself keeps something of each query that ran, until its session ends: a thread and some open files
(`Life.left_files`). A plain query over a plain Python source leaves the same. They are taken off before measures are
compared, so a file more for each start breaks the bound.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psutil

from streamjoin_ds.spark.session import spark_session
from tests.faults.lives import KINDS, Life
from tests.support.processes import process_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["GROWTH", "LIMITS", "broken", "grown", "left_by_spark", "live", "measured"]

# By measure: how often as large it may be in the last quarter of the lives as in the second.
GROWTH: Mapping[str, float] = {
    "trigger_s": 1.3,  # the median trigger of a life
    "heap_bytes": 1.3,  # of Java, after its garbage is collected
    "classes": 1.1,  # that Java has loaded
    "class_bytes": 1.1,  # what Java keeps for them
    "code_bytes": 1.3,  # that Java has compiled: still a little more in each life
    "threads": 1.2,  # of all processes
    "open_files": 1.2,
    "maps": 1.2,
    "resident_bytes": 1.3,
}
# By measure: the most that it may be in any life.
LIMITS: Mapping[str, float] = {
    # Compiled code, as a share of what Java reserves for it: near 1 it stops compiling, and in the end linking.
    "code_share": 0.5,
}
_COLLECTIONS = 3  # of garbage, of which the smallest heap counts
_BATCH_WITHIN_S = 120.0  # of the start, or of the batch before it


def live(session: SparkSession, kinds: Iterable[Life], batches: int) -> dict[str, float]:
    """Run each query for so many batches more, one after the other, and return their session's measures by name."""
    triggers: list[float] = []
    for kind in kinds:
        triggers += _triggers(kind.start(session, batches), batches)
    return {"trigger_s": statistics.median(triggers), **measured(session)}


def _triggers(query: StreamingQuery, batches: int) -> list[float]:
    """Wait for so many batches of a query, stop it, and return their triggers' seconds."""
    triggers: dict[int, float] = {}
    until = time.monotonic() + _BATCH_WITHIN_S
    try:
        while len(triggers) < batches and query.isActive:
            if time.monotonic() > until:
                msg = f"no batch for {_BATCH_WITHIN_S:g} s, after {len(triggers)} of {batches}"
                raise TimeoutError(msg)
            time.sleep(0.1)
            for progress in query.recentProgress:
                if progress["batchId"] not in triggers and progress["durationMs"].get("addBatch"):
                    triggers[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1_000
                    until = time.monotonic() + _BATCH_WITHIN_S
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure
    return list(triggers.values())


def measured(session: SparkSession) -> dict[str, float]:
    """Return what Java tells of itself after collecting its garbage, and what the system tells of all processes."""
    java: Any = session.sparkContext._jvm
    factory = java.java.lang.management.ManagementFactory
    heap_bytes = min(_collected_heap_bytes(java, factory) for _ in range(_COLLECTIONS))
    pools = {pool.getName(): pool.getUsage() for pool in factory.getMemoryPoolMXBeans()}
    code = [usage for name, usage in pools.items() if name.startswith("Code")]
    code_bytes = sum(usage.getUsed() for usage in code)
    driver = psutil.Process()
    looks = [process_facts(process) for process in (driver, *driver.children(recursive=True))]
    processes = [facts for facts in looks if facts is not None]
    return {
        "heap_bytes": heap_bytes,
        "classes": factory.getClassLoadingMXBean().getLoadedClassCount(),
        "class_bytes": pools["Metaspace"].getUsed(),
        "code_bytes": code_bytes,
        "code_share": code_bytes / sum(usage.getMax() for usage in code),
        "threads": sum(facts.threads for facts in processes),
        "open_files": sum(facts.open_files for facts in processes),
        "maps": sum(len(facts.maps) for facts in processes),
        "resident_bytes": sum(facts.resident_bytes for facts in processes),
    }


def _collected_heap_bytes(java: Any, factory: Any) -> int:
    """Return what Java's heap holds after both sides collected their garbage.

    Python's cycles hold objects of Java. Spark's cleaner drops blocks and broadcasts only once Java has found their
    owners dead, and on a thread of its own. So the first collection can leave what the next one frees.
    """
    gc.collect()
    java.java.lang.System.gc()
    return int(factory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def left_by_spark(kinds: Iterable[Life]) -> dict[str, float]:
    """Return by measure what Spark itself keeps of each life."""
    kinds = list(kinds)
    return {"open_files": sum(kind.left_files for kind in kinds), "threads": len(kinds)}


def grown(lives: list[dict[str, float]], left: Mapping[str, float]) -> dict[str, float]:
    """Return by measure how often as large it is in the last quarter of eight lives or more as in the second.

    Parameters
    ----------
    lives : list of dict
        The measures of each life.
    left : mapping
        What each life leaves, by measure, that is not counted.
    """
    quarter = len(lives) // 4

    def median(measure: str, first: int) -> float:
        own = (life[measure] - number * left.get(measure, 0) for number, life in enumerate(lives))
        return statistics.median(list(own)[first : first + quarter])

    return {measure: median(measure, len(lives) - quarter) / median(measure, quarter) for measure in GROWTH}


def broken(lives: list[dict[str, float]], left: Mapping[str, float]) -> list[str]:
    """Return the bounds that do not hold, as text."""
    growth = grown(lives, left)
    largest = {measure: max(life[measure] for life in lives) for measure in LIMITS}
    texts = [f"{name} grew {growth[name]:.2f} times, at most {most:g}" for name, most in _over(GROWTH, growth)]
    return texts + [f"{name} came to {largest[name]:.3g}, at most {most:g}" for name, most in _over(LIMITS, largest)]


def _over(most: Mapping[str, float], found: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name, bound) for name, bound in most.items() if found[name] > bound]


@click.command()
@click.option("--lives", type=click.IntRange(min=8), default=40, show_default=True)
@click.option("--batches", type=int, default=100, show_default=True, help="Of each query in each life.")
@click.option("--of", "names", multiple=True, type=click.Choice(list(KINDS)), help="Kinds of queries; by default all.")
def main(lives: int, batches: int, names: tuple[str, ...]) -> None:
    """Let one session live through starts and stops; a bound that does not hold ends it with status 1."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamjoin-endurance-")))
        kinds = [KINDS[name](folder / name) for name in names or KINDS]
        for kind in kinds:
            stack.callback(kind.close)
        session = spark_session("endurance", master="local[2,4]", quick_compiler=True)
        stack.callback(session.stop)
        found: list[dict[str, float]] = []
        for number in range(lives):
            found.append(live(session, kinds, batches))
            told = ", ".join(f"{name} {value:.4g}" for name, value in found[-1].items())
            click.echo(f"life {number}: {told}")
    left = left_by_spark(kinds)
    click.echo(", ".join(f"{name} {value:.2f} times" for name, value in grown(found, left).items()))
    violations = broken(found, left)
    click.echo("\n".join(violations) or "within all bounds")
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
