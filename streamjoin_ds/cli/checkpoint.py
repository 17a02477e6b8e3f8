"""What a person asks of a checkpoint: `inspect` shows what it holds, `repair` mends it, `vacuum` tidies it up.

`repair` mends the tables too, where a program can, and says what is lost.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from streamjoin_ds.blocks.place import local_path
from streamjoin_ds.checkpoint.lock import driving, held
from streamjoin_ds.cli.join_options import flag
from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import CheckpointInUseError
from streamjoin_ds.request.request import settings_of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamjoin_ds.checkpoint.inspection import Checkpoint

__all__ = ["inspect", "repair", "vacuum"]


@click.command("inspect")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--blocks", "with_blocks", is_flag=True, help="List every run and its block.")
@click.option("--blocks-in", metavar="FOLDER", help="Folder of its blocks, if dataframe(blocks=...) was given one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@flag("conf")
def inspect(checkpoint: str, with_blocks: bool, blocks_in: str | None, as_json: bool, conf: tuple[str, ...]) -> None:
    """Show the cells of a CHECKPOINT as of its last committed batch: windows, blocks, sizes, watermarks."""
    from streamjoin_ds.checkpoint.inspection import inspected
    from streamjoin_ds.cli.display import moment

    session = _session("inspect", conf)
    found = inspected(session, checkpoint, blocks_in)
    if as_json:
        click.echo(json.dumps(found.to_facts()))
        return
    layout = f"; layout {found.layout}" if found.layout else ""
    if found.older_layouts:
        layout += f"; older tuples are still in {', '.join(found.older_layouts)}"
    click.echo(f"join {found.join_id} of {', '.join(found.streams)}{layout}")
    for line in found.definition:
        click.echo(f"  {line}")
    if found.batch_id is None:
        click.echo("no batch is committed yet")
        return
    for line in _lines(found, with_blocks=with_blocks):
        click.echo(line)
    for name, count in found.files_set_aside.items():
        click.echo(
            f"stream {name}: {count} bad files, or rests of files, are set aside; the table of rejects names them"
        )
    for name, size in found.held_back_bytes.items():
        click.echo(f"stream {name}: {size:,} bytes of an unfinished last line were not read")
    for name, version in found.next_versions.items():
        click.echo(f"stream {name}: its table was read up to version {version}, which is not done")
    for name, partitions in found.partitions.items():
        held = (
            f"held by {partitions.held_by} at {moment(partitions.low_us) or '-'}" if partitions.held_by else "all idle"
        )
        more = f", {partitions.forgotten} were read to their ends and forgotten" if partitions.forgotten else ""
        click.echo(
            f"stream {name}: {partitions.count} {partitions.kind}, {len(partitions.idle)} of them idle, {held}{more}"
        )
    for line in _backlog_lines(found):
        click.echo(line)
    sizes = found.blocks.values()
    missing = sum(size is None for size in sizes)
    total = f"batch {found.batch_id}; {len(found.blocks)} blocks, {decimal(sum(size or 0 for size in sizes))}"
    click.echo(f"{total}; {missing} MISSING: restore them, or a spare copy of the checkpoint" if missing else total)


def _backlog_lines(found: Checkpoint) -> Iterator[str]:
    """Yield what was known and not read when the last batch was planned, by stream and partition."""
    from streamjoin_ds.cli.display import backlog_text

    for name, waits in found.backlog.streams.items():
        limit = f"; the batch was limited by {found.backlog.limited_by}" if found.backlog.limited_by else ""
        yield f"stream {name}: {backlog_text(waits)} waited when the batch was planned{limit}"
        for partition, own in waits.partitions.items():
            yield f"  partition {partition}: {backlog_text(own)}"


def _lines(found: Checkpoint, *, with_blocks: bool) -> Iterator[str]:
    from streamjoin_ds.cli.display import moment

    width = max(map(len, found.streams), default=0)
    for cell in found.cells:
        retired = f", {len(cell.retired)} blocks retired" if cell.retired else ""
        yield f"cell {cell.cell}  partition {cell.partition}  watermark {moment(cell.watermark_us) or '-'}"
        yield f"  state row {decimal(cell.state_bytes)}{retired}"
        for window in cell.windows:
            inline = sum(run.size_bytes or 0 for run in window.runs if not run.block)
            blocks = sum(run.size_bytes or 0 for run in window.runs if run.block)
            text = f"{window.rows:,} rows in {len(window.runs)} run{'s' * (len(window.runs) != 1)}"
            yield f"  window of {window.stream:<{width}}  {text}; {decimal(blocks)} in blocks, {decimal(inline)} inline"
            for run in window.runs if with_blocks else ():
                size = "MISSING" if run.size_bytes is None else decimal(run.size_bytes)
                times = f"{moment(run.oldest_us)} to {moment(run.newest_us)}"
                yield f"    {run.rows:>12,} rows  {size:>9}  {times}  {run.block or '(inline)'}"


@click.command("repair")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--to", metavar="PATH", help="The table of matches.  [default: that of the last start]")
@click.option("--dry-run", is_flag=True, help="Only say what would be done; change nothing.")
@click.pass_context
def repair(ctx: click.Context, checkpoint: str, to: str | None, dry_run: bool) -> None:
    """Mend a CHECKPOINT and its tables after a power cut, a restored copy or a damaged block.

    No row is invented: the next start of the join does batches again, with the records that they had. If something
    cannot be mended, the command names it, says up to which time the results are complete, and exits with status 1.
    See RUNBOOK.md.
    """
    from streamjoin_ds.checkpoint.repair import repaired

    session = _session("repair")
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
def vacuum(checkpoint: str, older_than: str, blocks_in: str | None, dry_run: bool, conf: tuple[str, ...]) -> None:
    """Remove what crashes left in a CHECKPOINT: blocks that no state names, exchange files of batches that are done.

    While a join runs, it removes such files itself. The command may run beside the join: files that a batch needs again
    stay, and a join that starts meanwhile waits until the command has ended. The join looks after its tables itself
    (see `sql/maintenance.sql`).
    """
    older_than_s = duration_us(older_than, "older_than") / 1e6
    from streamjoin_ds.checkpoint.inspection import inspected, leftovers, opened

    session = _session("vacuum", conf)
    path, _ = opened(checkpoint)  # the folder of anything else is left as it is, without a lock
    with held(path) if path.is_dir() else contextlib.nullcontext():
        found = inspected(session, checkpoint, blocks_in)
        gone = leftovers(found, blocks_in, now_s=time.time(), older_than_s=older_than_s)
        if not dry_run:
            gone = [leftover for leftover in gone if leftover.remove()]
    for leftover in gone if dry_run else ():
        click.echo(str(leftover))
    size_bytes = sum(leftover.file.size_bytes for leftover in gone)
    click.echo(f"{len(gone)} files, {decimal(size_bytes)}{' would go' if dry_run else ' removed'}")


def _session(command: str, conf: tuple[str, ...] = ()) -> Callable[[], SparkSession]:
    """Return what starts the Spark session of a command, if it needs one."""
    from streamjoin_ds.spark.session import spark_session

    settings = settings_of_spark(conf)
    return partial(spark_session, f"streamjoin {command}", delta=False, conf=settings, quick_compiler=True)
