"""``streamjoin sql``: joins from a text of SQL statements, into Delta tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from streamjoin_ds.cli.display import Display
from streamjoin_ds.cli.join_options import JoinCommand, flags
from streamjoin_ds.cli.run import check_request, opened, run_queries
from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.request.request import given_flags
from streamjoin_ds.script.script import Script, Step
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.stream.commit import BatchSummary, watch
from streamjoin_ds.stream.run_keys import RUN_KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamjoin_ds.script.query_builder import AskedJoin

__all__ = ["command"]


@click.command("sql", cls=JoinCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-e", "text", metavar="STATEMENTS", help="The statements themselves, instead of a file.")
@click.option("--explain", "is_explained", is_flag=True, help="Print the plan of each query, and start none.")
@flags(*(name for name in RUN_KEYS if name != "to"))  # what is joined, and where it goes, is said in the text
@click.option("--json", "as_json", is_flag=True, help="Print the totals of each query as one JSON object a line.")
def command(file: Path | None, text: str | None, is_explained: bool, as_json: bool, **given: Any) -> None:
    """Run the queries of FILE until they are stopped (Ctrl-C) or, with --available-now, their input ends.

    FILE holds SQL statements: CREATE STREAM, SET, INSERT INTO table SELECT ... FROM e JOIN w ON ..., EXPLAIN. Flags win
    over its options.
    """
    script = Script(_read(file, text), given_flags(given))
    for step in script.steps:
        if step.asked.statement.table is None and not (step.is_explained or is_explained):
            hint = "write INSERT INTO table SELECT ..."
            why = "this query does not say where its results go"
            raise step.asked.refused(why, hint)
    starting = [step for step in script.steps if not (step.is_explained or is_explained)]
    if not script.needs_catalog:  # all is checked before Spark is started
        for step, joined in zip(starting, script.checked(starting, None), strict=True):
            try:
                check_request(joined.request)
            except StreamJoinError as error:  # noqa: PERF203 - a text has few queries
                raise step.asked.named(error) from None
    is_needed = starting or script.needs_catalog
    spark = opened(script.session, "sql", Console(stderr=True), quiet=as_json) if is_needed else None
    catalog = script.catalog(spark)
    joins = script.checked(starting, catalog)
    for step in script.steps:
        if step not in starting:
            click.echo(step.plan(catalog))
    if starting:
        _run(spark, starting, joins, as_json=as_json)


def _read(file: Path | None, text: str | None) -> str:
    if (file is None) == (text is None):
        msg = "the statements are given twice" if file is not None else "no statements were given"
        raise ArgumentError(msg, name="file", hint="give a file, or -e and the statements")
    if file is None:
        return text or ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        msg = f"the file {file} cannot be read"
        raise ArgumentError(msg, name="file", hint="give the path of a file of SQL statements, in UTF-8") from None


def _run(spark: SparkSession | None, steps: list[Step], joins: list[AskedJoin], *, as_json: bool) -> None:
    """Run the queries until all have ended, and print what each has done."""
    console = Console(stderr=True)
    tables = [str(joined.request.to) for joined in joins]
    names = tables if len(tables) > 1 else [""]
    displays = [Display(console, quiet=as_json, name=name) for name in names]
    by_table = {TableSet(table).root: display for table, display in zip(tables, displays, strict=True)}

    def batch(summary: BatchSummary) -> None:
        by_table[summary.table].batch(summary)

    with watch(batch):
        finished = run_queries(lambda: Script.start(spark, steps, joins), displays)
    for joined, display in zip(joins, displays, strict=True):
        request = joined.request
        display.end(str(request.to), str(request.checkpoint), finished=finished, as_json=as_json)
