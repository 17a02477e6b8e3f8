"""`streamjoin doctor`: what this machine has and lacks, one line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain

import click

from streamjoin_ds.cli.checks import Check, machine_checks, spark_checks
from streamjoin_ds.errors import hinted

__all__ = ["command"]


@click.command("doctor", short_help="Check that this machine has what a join needs, and say what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--spark", "with_spark", is_flag=True, help="Also check a Spark worker, and write a Delta table.")
def command(as_json: bool, with_spark: bool) -> None:
    """Check that this machine has what a join needs.

    Each problem comes with a hint that says what to do. The exit status is 1 if something that a join needs is missing.
    """
    found = chain(machine_checks(), _inside_spark() if with_spark else ())
    if as_json:
        checks = list(found)
        report = {"ok": not _any_missing(checks), "checks": [check.as_dict() for check in checks]}
        click.echo(json.dumps(report, indent=1))
    else:
        checks = list(_printed_table(found) if sys.stdout.isatty() else _printed_lines(found))
        click.echo(_summary(checks))
    if _any_missing(checks):
        raise click.exceptions.Exit(1)


def _inside_spark() -> Iterator[Check]:
    from streamjoin_ds.spark.session import spark_session

    return spark_checks(lambda: spark_session("streamjoin doctor", quick_compiler=True))


def _any_missing(checks: Iterable[Check]) -> bool:
    return any(check.state == "missing" for check in checks)


def _summary(checks: list[Check]) -> str:
    counts = {state: sum(check.state == state for check in checks) for state in ("missing", "warning")}
    if not any(counts.values()):
        return "Everything that a join needs is there."
    return f"{counts['missing']} missing, {counts['warning']} with a warning."


def _printed_lines(checks: Iterable[Check]) -> Iterator[Check]:
    """Print each check as it is made, for a pipe or a log."""
    for check in checks:
        click.echo(f"{check.state:<8}{check.name}: {hinted(check.value.rstrip('.'), check.hint)}")
        yield check


def _printed_table(checks: Iterable[Check]) -> Iterator[Check]:
    """Print one table on a terminal, growing as the checks are made."""
    from rich import box
    from rich.live import Live
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    colours = {"ok": "green", "warning": "yellow", "missing": "bold red"}
    with Live(table, vertical_overflow="visible"):
        for check in checks:
            colour = colours[check.state]
            table.add_row(f"[{colour}]{check.name}[/]", _escaped(check.value), _escaped(check.hint))
            yield check


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
