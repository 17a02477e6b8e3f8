"""The suite of topics: messages a second from a broker to committed matches, which are counted independently."""

from __future__ import annotations

import importlib.util
import statistics
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from streamjoin_ds.errors import DependencyMissingError
from tests.bench.suites.live.finding import Finding
from tests.bench.suites.live.query_runs import answered, query_folder, query_log
from tests.bench.suites.processes import BenchError, load_psutil
from tests.bench.suites.topics.topic_load import TopicLoad

__all__ = ["FORMATS", "PEERS", "TopicSettings", "measure_topics"]

FORMATS = {"json": 400_000.0, "fixed": 1_000_000.0}
"""What messages hold, and how many of them a second there must be at least on two cores."""
PEERS = {
    "spark": ("spark_query", "its own Kafka source and join, {} commits, Parquet files, state in RocksDB"),
    "pathway": ("pathway_query", "its own Kafka reader and interval join over equal cells, all at once, lines of JSON"),
}
"""Modules of peers, and what their queries are."""
_WITHIN_S = 900.0


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How to measure.

    Attributes
    ----------
    servers : str
        ``host:port`` of the brokers.
    formats : sequence of str
        Keys of `FORMATS`.
    messages : int
        Messages of each topic.
    partitions : int
        Partitions of each topic.
    batch_rows : int
        Most messages of a batch, both topics together.
    runs : int
        Measured runs of each format; the first reads what the broker still has in memory, as the others do.
    quick : bool
        Whether this only shows that all works. There are then no bounds.
    peers : sequence of str
        Keys of `PEERS`, whose own joins are measured too, of JSON, once.
    """

    servers: str
    formats: Sequence[str] = tuple(FORMATS)
    messages: int = 4_000_000
    partitions: int = 4
    batch_rows: int = 1_000_000
    runs: int = 5
    quick: bool = False
    peers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _TopicRun:
    """One query over all messages."""

    per_second: float  # from the first commit to the last
    per_cpu_second: float  # of all processes but the broker, their start among it
    batches: int
    peak_mib: float
    others_cores: float


def measure_topics(settings: TopicSettings, say: Callable[[str], None]) -> Iterator[Finding]:
    """Measure each format, over topics that are made for it and removed afterwards.

    Raises
    ------
    BenchError
        A query failed, or its matches are wrong.
    DependencyMissingError
        psutil, confluent-kafka or a peer is not installed.
    """
    load_psutil()
    if "pathway" in settings.peers and importlib.util.find_spec("pathway") is None:
        msg = "The package pathway, which is to be measured beside this one, is not installed."
        raise DependencyMissingError(msg, name="pathway", hint="pip install pathway")
    for kind in settings.formats:
        name = f"streamjoin-bench-{uuid.uuid4().hex[:8]}"
        load = TopicLoad(settings.servers, name, kind, settings.messages, settings.partitions)
        try:
            load.send()
            expected = load.matches()
            say(f"  {kind}: {2 * settings.messages:,} messages sent; {expected:,} matches")
            runs, peers = [], {}
            for _ in range(settings.runs):
                runs.append(_run(load, settings.batch_rows, expected))
                say(f"  {kind}: {runs[-1].per_second:,.0f} messages/s, {runs[-1].per_cpu_second:,.0f} a CPU second")
            for peer in settings.peers if kind == "json" else ():
                peers[peer] = _run(load, settings.batch_rows, expected, PEERS[peer][0])
                say(f"  {kind}, {peer}: {peers[peer].per_second:,.0f} messages/s")
        finally:
            load.remove()
        workload = f"kafka, {kind}, {settings.partitions} partitions a topic"
        bound = None if settings.quick else FORMATS[kind]
        note = (
            f"from the first of {runs[0].batches} commits to the last, {2 * settings.messages:,} messages that the "
            f"broker has, {expected:,} matches; {len(runs)} runs, the broker on the same machine"
        )
        yield Finding(
            workload,
            "messages_per_second",
            statistics.median(run.per_second for run in runs),
            "messages/s",
            bound,
            note=note,
            peak_mib=max(run.peak_mib for run in runs),
            others_cores=max(run.others_cores for run in runs),
        )
        per_cpu = statistics.median(run.per_cpu_second for run in runs)
        yield Finding(workload, "messages_per_cpu_second", per_cpu, "messages/s", note="without the broker's CPU time")
        for peer, run in peers.items():
            note = PEERS[peer][1].format(run.batches)
            yield Finding(f"{workload}: {peer}", "messages_per_second", run.per_second, "messages/s", note=note)


def _run(load: TopicLoad, batch_rows: int, expected: int, module: str = "topic_query") -> _TopicRun:
    with query_log() as log, query_folder() as folder:
        given = {"folder": folder, "load": asdict(load), "batch_rows": batch_rows}
        commits, use = answered(f"topics.{module}", given, log, name="kafka", within_s=_WITHIN_S)
        read, found = (sum(commit[what] for commit in commits) for what in ("read", "matches"))
        if (read, found) != (2 * load.messages, expected):
            msg = (
                f"the join read {read:,} of {2 * load.messages:,} messages and gave {found:,} matches, "
                f"but an independent count {expected:,}"
            )
            raise BenchError(msg, name="kafka", hint="no measurement of it is valid until both agree")
        took_s = commits[-1]["at_s"] - commits[0]["at_s"] if len(commits) > 1 else float("nan")
        return _TopicRun(
            (read - commits[0]["read"]) / took_s,
            read / use.cpu_seconds,
            len(commits),
            use.peak_bytes / 2**20,
            use.others_cores,
        )
