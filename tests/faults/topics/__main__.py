"""``python -m tests.faults.topics --rows 2000000 --kills 100 --seed 1``: see `tests.faults.topics`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from tests.faults.topics.run import Campaign


@click.command()
@click.option("--rows", default=2_000_000, show_default=True, help="Messages of both topics together.")
@click.option("--kills", default=100, show_default=True, help="Of drivers and workers, at least.")
@click.option("--seed", default=1, show_default=True)
@click.option("--keep", is_flag=True, help="Keep the files also where all is exact.")
def main(rows: int, kills: int, seed: int, keep: bool) -> None:
    """Kill and compare; a difference ends it with status 1, and its files stay."""
    root = Path(tempfile.mkdtemp(prefix="streamjoin-topics-"))
    click.echo(f"files: {root}")
    verdict = Campaign(root, rows, kills, seed, click.echo).run()
    click.echo(
        f"seed {seed}: {verdict.kills.total()} kills in {verdict.lives} lives and {verdict.batches} batches, "
        f"{verdict.seconds:.0f} s, {os.cpu_count()} cores; {verdict.starved} lives starved at their start"
    )
    for counts in (verdict.kills, verdict.done, verdict.outcome.counts):
        click.echo("  " + ", ".join(f"{what}: {count:,}" for what, count in sorted(counts.items())))
    click.echo("\n".join(verdict.violations) or "exact")
    if keep or verdict.violations:
        click.echo(f"kept: {root}")
    else:
        shutil.rmtree(root)
    sys.exit(bool(verdict.violations))


if __name__ == "__main__":
    main()
