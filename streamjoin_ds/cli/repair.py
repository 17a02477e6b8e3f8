"""``streamjoin repair``: mends a checkpoint and its tables where a program can, and says what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.checkpoint.lock import driving
from streamjoin_ds.checkpoint.repair import repaired
from streamjoin_ds.errors import CheckpointInUseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command"]


@click.command("repair")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--to", metavar="PATH", help="The table of matches.  [default: that of the last start]")
@click.option("--dry-run", is_flag=True, help="Only say what would be done; change nothing.")
@click.pass_context
def command(ctx: click.Context, checkpoint: str, to: str | None, dry_run: bool) -> None:
    """Mend a CHECKPOINT and its tables after a power cut, a restored copy or a damaged block.

    No row is invented: the next start of the join does batches again, with the records that they had. If something
    cannot be mended, the command names it, says up to which time the results are complete, and exits with status 1.
    See RUNBOOK.md.
    """
    from streamjoin_ds.spark.session import spark_session

    def session() -> SparkSession:
        return spark_session("streamjoin repair", delta=False, quick_compiler=True)

    folder = local_path(checkpoint)
    if folder is None or not folder.is_dir():
        findings = repaired(session, checkpoint, to, dry_run=dry_run)
    else:
        lock = driving(folder.resolve(), briefly=True)
        try:
            if lock.is_driven:
                msg = "a query of this process uses the checkpoint"
                raise CheckpointInUseError(msg, name="checkpoint", hint="stop that query first")
            findings = repaired(session, checkpoint, to, dry_run=dry_run)
        finally:
            lock.give_up()
    for finding in findings:
        done = "would be mended" if dry_run else "mended"
        click.echo(f"{done if finding.is_mended else 'CANNOT BE MENDED'}: {finding.text}")
    if not findings:
        click.echo("nothing is wrong")
    if not all(finding.is_mended for finding in findings):
        ctx.exit(1)
