"""``streamjoin vacuum``: removes what failed attempts left in a checkpoint."""

from __future__ import annotations

import contextlib
import time

import click
from rich.filesize import decimal

from streamjoin_ds.checkpoint.inspection import inspected, leftovers
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.checkpoint.lock import held
from streamjoin_ds.cli.join_options import flag
from streamjoin_ds.duration import duration_us
from streamjoin_ds.request.request import settings_of_spark

__all__ = ["command"]


@click.command("vacuum")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "--older-than",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Only files that have not changed for this long. It must be longer than any batch takes.",
)
@click.option("--blocks-in", metavar="FOLDER", help="Folder of its blocks, if dataframe(blocks=...) was given one.")
@click.option("--dry-run", is_flag=True, help="Only list the files; remove nothing.")
@flag("conf")
def command(checkpoint: str, older_than: str, blocks_in: str | None, dry_run: bool, conf: tuple[str, ...]) -> None:
    """Remove what crashes left in a CHECKPOINT: blocks that no state names, exchange files of batches that are done.

    While a join runs, it removes such files itself. The command may run beside the join: files that a batch needs again
    stay, and a join that starts meanwhile waits until the command has ended. The join looks after its tables itself
    (see `sql/maintenance.sql`).
    """
    older_than_s = duration_us(older_than, "older_than") / 1e6
    from streamjoin_ds.spark.session import spark_session

    spark = spark_session("streamjoin vacuum", delta=False, conf=settings_of_spark(conf), quick_compiler=True)
    path = checkpoint_place(checkpoint)
    with held(path) if path.is_dir() else contextlib.nullcontext():
        found = inspected(spark, checkpoint, blocks_in)
        gone = leftovers(found, blocks_in, now_s=time.time(), older_than_s=older_than_s)
        if not dry_run:
            gone = [leftover for leftover in gone if leftover.remove()]
    for leftover in gone if dry_run else ():
        click.echo(str(leftover))
    size_bytes = sum(leftover.file.size_bytes for leftover in gone)
    click.echo(f"{len(gone)} files, {decimal(size_bytes)}{' would go' if dry_run else ' removed'}")
