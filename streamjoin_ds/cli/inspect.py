"""``streamjoin inspect``: what a checkpoint holds: cells, windows, blocks, sizes, watermarks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
from rich.filesize import decimal

from streamjoin_ds.checkpoint.inspection import Checkpoint, inspected
from streamjoin_ds.cli.display import backlog_text, moment
from streamjoin_ds.cli.join_options import flag
from streamjoin_ds.request.request import settings_of_spark

__all__ = ["command"]


@click.command("inspect")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--blocks", "with_blocks", is_flag=True, help="List every run and its block.")
@click.option("--blocks-in", metavar="FOLDER", help="Folder of its blocks, if dataframe(blocks=...) was given one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@flag("conf")
def command(checkpoint: str, with_blocks: bool, blocks_in: str | None, as_json: bool, conf: tuple[str, ...]) -> None:
    """Show the cells of a CHECKPOINT as of its last committed batch: windows, blocks, sizes, watermarks."""
    from streamjoin_ds.spark.session import spark_session

    session = spark_session("streamjoin inspect", delta=False, conf=settings_of_spark(conf), quick_compiler=True)
    found = inspected(session, checkpoint, blocks_in)
    if as_json:
        click.echo(json.dumps(found.to_facts()))
        return
    layout = f"; layout {found.layout}" if found.layout else ""
    if found.older_layouts:
        layout += f"; older tuples are still in {', '.join(found.older_layouts)}"
    click.echo(f"join {found.join_id} of {', '.join(found.streams)}{layout}")
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
        click.echo(f"stream {name}: {partitions.count} partitions, {len(partitions.idle)} of them idle, {held}{more}")
    for line in _backlog_lines(found):
        click.echo(line)
    sizes = found.blocks.values()
    missing = sum(size is None for size in sizes)
    total = f"batch {found.batch_id}; {len(found.blocks)} blocks, {decimal(sum(size or 0 for size in sizes))}"
    click.echo(f"{total}; {missing} MISSING: restore them, or a spare copy of the checkpoint" if missing else total)


def _backlog_lines(found: Checkpoint) -> Iterator[str]:
    """Yield what was known and not read when the last batch was planned, by stream and partition."""
    for name, waits in found.backlog.streams.items():
        limit = f"; the batch was limited by {found.backlog.limited_by}" if found.backlog.limited_by else ""
        yield f"stream {name}: {backlog_text(waits)} waited when the batch was planned{limit}"
        for partition, own in waits.partitions.items():
            yield f"  partition {partition}: {backlog_text(own)}"


def _lines(found: Checkpoint, *, with_blocks: bool) -> Iterator[str]:
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
