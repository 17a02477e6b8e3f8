"""``streamjoin run``: a join from the command line or a TOML file, into Delta tables.

`run_join` and `run_queries` run joins to their end, or until they are interrupted, with a display beside them; other
commands use them too.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from streamjoin_ds.checkpoint.lock import check_not_taken_over
from streamjoin_ds.cli.display import Display
from streamjoin_ds.cli.join_options import JoinCommand, flags, join_options
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.request import Request, request_of, required
from streamjoin_ds.stream.commit import watch
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.query import check
from streamjoin_ds.stream.query_options import QueryOptions
from streamjoin_ds.stream.run_keys import keys_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamjoin_ds.stream.local_query import LocalQuery

__all__ = ["check_request", "command", "held_back", "opened", "run_join", "run_queries"]


_POLL_S = 1  # seconds between two looks for Ctrl-C or SIGTERM


def held_back(progress: Any) -> dict[str, int]:
    """Return for each stream the bytes of an unfinished last line, as the query's last progress says.

    Empty where there is none, or the source has not reported yet.
    """
    if not progress or not progress["sources"]:
        return {}
    source = progress["sources"][0]
    # pyspark before 4.2 gives an offset as Python writes a dict. Only its JSON is Spark's own.
    reported = (json.loads(source.json) if hasattr(source, "json") else source).get("latestOffset") or {}
    facts = json.loads(reported) if isinstance(reported, str) else reported
    return {name: int(size) for name, size in facts.get("held_back_bytes", {}).items() if size}


def opened(session: Mapping[str, Any], command: str, console: Console, *, quiet: bool = False) -> SparkSession | None:
    """Return the session of Spark that a command asks for; None: it runs in this process, without Spark.

    It does where the option ``local`` says so, and where Spark is not installed.

    Raises
    ------
    ArgumentError
        There are options of a session, and no session.
    """
    for name in session if session.get("local") else ():
        if name != "local":
            msg = f"{name} is of a session of Spark, and with local there is none"
            raise ArgumentError(msg, name=name, hint=f"leave {name} out, or local")
    is_local, told = session.get("local", False), ""
    if not is_local and find_spec("pyspark") is None:
        is_local, told = True, "Spark is not installed: the join runs in this process (--local)"
    spark = None
    if not is_local:
        # Spark is imported and started only once all that was asked has been understood and checked.
        from streamjoin_ds.spark.session import session_log_path, spark_session

        spark = spark_session(f"streamjoin {command}", **session, quick_compiler=True)
        told = f"Spark's own log: {session_log_path(spark)} (on one machine --local needs no Spark)"
    if told and not quiet:
        console.print(told, style="dim", highlight=False, soft_wrap=True)
    return spark


def check_request(request: Request) -> None:
    """Refuse what a start would refuse and needs no session: Spark takes some seconds to begin.

    Raises
    ------
    StreamJoinError
        As `StreamJoin.start`.
    """
    options = dict(request.run)
    reading = tuple(options.pop("source_options", {}).items())
    check(request.join, str(request.checkpoint), QueryOptions(source_options=reading, **options))


def run_join(
    spark: SparkSession | None, join: StreamJoin, to: str, checkpoint: str, options: Mapping[str, Any], display: Display
) -> bool:
    """Start the join, show its batches and wait for its end; return False if it was interrupted, else True.

    Without a session it runs in this process. Ctrl-C and SIGTERM stop the query; a restart with the same checkpoint
    goes on from there.
    """

    def start() -> list[StreamingQuery | LocalQuery]:
        if spark is None:
            return [join.run_local(to, checkpoint, **options)]
        return [join.start(spark, to, checkpoint, **options)]

    with watch(display.batch):
        return run_queries(start, [display])


def run_queries(start: Callable[[], Sequence[StreamingQuery | LocalQuery]], displays: Sequence[Display]) -> bool:
    """Start queries and wait for the end of all; return False if they were interrupted, else True.

    Ctrl-C and SIGTERM stop them all, and so does the error of one of them, which is raised.

    Parameters
    ----------
    start : callable
        Starts the queries.
    displays : sequence of Display
        One for each query.
    """
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    queries: Sequence[StreamingQuery | LocalQuery] = []
    try:
        with contextlib.ExitStack() as shown:
            for display in displays:
                shown.enter_context(display)
            queries = start()
            while not _all_ended(queries):
                if interrupted:
                    break
            for query, display in zip(queries, displays, strict=True):
                query.stop()
                display.totals.held_back_bytes = held_back(query.lastProgress)
        return not interrupted
    finally:
        for query in queries:
            query.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _all_ended(queries: Sequence[StreamingQuery | LocalQuery]) -> bool:
    """Whether all queries have ended; wait a moment where one has not, and raise the error of one that failed."""
    for query in queries:
        if not query.isActive:
            query.awaitTermination()
            check_not_taken_over(query)
    running = [query for query in queries if query.isActive]
    if running:
        running[0].awaitTermination(_POLL_S)
    return not running


@click.command("run", cls=JoinCommand)
@join_options
@flags(*keys_of("place", "start", "session"))
@click.option("--json", "as_json", is_flag=True, help="Print the totals as one JSON object.")
def command(config: Path | None, as_json: bool, **given: Any) -> None:
    """Run a join until it is stopped (Ctrl-C) or, with --available-now, its input ends."""
    request = request_of(config, given)
    to = required(request.to, "to", "give the folder of the table of matches, for example --to ./matches")
    checkpoint = required(
        request.checkpoint, "checkpoint", "give a folder of its own, for example --checkpoint ./matches.ckpt"
    )
    check_request(request)
    console = Console(stderr=True)
    spark = opened(request.session, "run", console)
    display = Display(console, quiet=as_json)
    finished = run_join(spark, request.join, to, checkpoint, request.run, display)
    display.end(to, checkpoint, finished=finished, as_json=as_json)
