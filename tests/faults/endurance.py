"""One Spark session that lives long: ``python -m tests.faults.endurance --lives 40``; with bounds on what may grow.

The soak plays Spark's part itself, so it has no Java. Here a join runs on a real Spark as fast as it can, and is
stopped and started again in the same session, as in a notebook or a service. At the end of each life Java collects its
garbage and all measures are taken. A life of the second quarter is compared with one of the last: before that, Java
compiles and caches fill.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psutil

from streamjoin_ds import Generator, Stream, StreamJoin, band
from streamjoin_ds.spark.session import spark_session
from tests.support.processes import process_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["GROWTH", "LIMITS", "broken", "grown", "live", "measured"]

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


def live(session: SparkSession, folder: Path, batches: int) -> dict[str, float]:
    """Run a join for so many batches more, stop it, and return its session's measures by name."""
    streams = [Stream(side, Generator("band2d", {"rate": 1_000, "seed": 1, "side": side})) for side in ("r", "s")]
    join = StreamJoin(streams, on=[band("r.x", "s.a", 10), band("r.y", "s.b", 10)], window="5s")
    query = join.start(session, folder / "matches", folder / "checkpoint", max_rows_per_batch=1_000)
    triggers: dict[int, float] = {}
    try:
        while len(triggers) < batches and query.isActive:
            time.sleep(0.1)
            for progress in query.recentProgress:
                triggers[progress["batchId"]] = progress["durationMs"].get("triggerExecution", 0) / 1_000
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure
    return {"trigger_s": statistics.median(triggers.values()), **measured(session)}


def measured(session: SparkSession) -> dict[str, float]:
    """Return what Java tells of itself after collecting its garbage, and what the system tells of all processes."""
    java: Any = session.sparkContext._jvm
    java.java.lang.System.gc()
    factory = java.java.lang.management.ManagementFactory
    pools = {pool.getName(): pool.getUsage() for pool in factory.getMemoryPoolMXBeans()}
    code = [usage for name, usage in pools.items() if name.startswith("Code")]
    code_bytes = sum(usage.getUsed() for usage in code)
    driver = psutil.Process()
    looks = [process_facts(process) for process in (driver, *driver.children(recursive=True))]
    processes = [facts for facts in looks if facts is not None]
    return {
        "heap_bytes": factory.getMemoryMXBean().getHeapMemoryUsage().getUsed(),
        "classes": factory.getClassLoadingMXBean().getLoadedClassCount(),
        "class_bytes": pools["Metaspace"].getUsed(),
        "code_bytes": code_bytes,
        "code_share": code_bytes / sum(usage.getMax() for usage in code),
        "threads": sum(facts.threads for facts in processes),
        "open_files": sum(facts.open_files for facts in processes),
        "maps": sum(len(facts.maps) for facts in processes),
        "resident_bytes": sum(facts.resident_bytes for facts in processes),
    }


def grown(lives: list[dict[str, float]]) -> dict[str, float]:
    """Return by measure how often as large it is in the last quarter of eight lives or more as in the second."""
    quarter = len(lives) // 4

    def median(measure: str, first: int) -> float:
        return statistics.median(life[measure] for life in lives[first : first + quarter])

    return {measure: median(measure, len(lives) - quarter) / median(measure, quarter) for measure in GROWTH}


def broken(lives: list[dict[str, float]]) -> list[str]:
    """Return the bounds that do not hold, as text."""
    growth = grown(lives)
    largest = {measure: max(life[measure] for life in lives) for measure in LIMITS}
    texts = [f"{name} grew {growth[name]:.2f} times, at most {most:g}" for name, most in _over(GROWTH, growth)]
    return texts + [f"{name} came to {largest[name]:.3g}, at most {most:g}" for name, most in _over(LIMITS, largest)]


def _over(most: Mapping[str, float], found: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name, bound) for name, bound in most.items() if found[name] > bound]


@click.command()
@click.option("--lives", type=click.IntRange(min=8), default=40, show_default=True)
@click.option("--batches", type=int, default=100, show_default=True, help="Of each life.")
def main(lives: int, batches: int) -> None:
    """Let one session live through starts and stops; a bound that does not hold ends it with status 1."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-endurance-") as folder:
        session = spark_session("endurance", master="local[2,4]", quick_compiler=True)
        found: list[dict[str, float]] = []
        for number in range(lives):
            found.append(live(session, Path(folder), batches))
            told = ", ".join(f"{name} {value:.4g}" for name, value in found[-1].items())
            click.echo(f"life {number}: {told}")
        session.stop()
    click.echo(", ".join(f"{name} {value:.2f} times" for name, value in grown(found).items()))
    violations = broken(found)
    click.echo("\n".join(violations) or "within all bounds")
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
