"""A join of whole frames, in this process: rows in any order, and a result of the library that the first frame is of.

::

    frames (pandas, polars, Arrow, DuckDB, dicts) ──► tables ──► JoinEngine, one push, then its end ──► one frame

No row is late: each stream's delay is as long as it can be, so the watermark passes nothing.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamjoin_ds.duration import MAX_DURATION_US, duration_text
from streamjoin_ds.engine.intake.received_rows import as_table
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Execution
from streamjoin_ds.spec import Join, Stream
from streamjoin_ds.spec.columns import names_hint

__all__ = ["frame_tables", "frames_by_name", "joined_frames", "like"]

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0  # a join that takes longer shows how much is done


def joined_frames(
    join: Join, frames: Mapping[str, Any], execution: Execution | None = None, progress: bool | None = None
) -> pa.Table:
    """Return all rows of a join over frames: what `StreamJoin.match` returns, as an Arrow table.

    Parameters
    ----------
    join : Join
    frames : mapping of stream or table name to rows
        One for each of them (`frames_by_name`).
    execution : Execution, optional
    progress : bool, optional
        Whether to show how much is done; by default where somebody looks: on a terminal, in a notebook.
    """
    asked = join if join.window.kind == "count" else join.with_streams([_timeless(one) for one in join.streams])
    tables = _tables(join, frames)
    engine = JoinEngine(asked, {name: table.schema for name, table in tables.items()}, execution=execution)
    for table in asked.tables:
        engine.use_table(table.name, tables.pop(table.name))
    rows = []
    with _shown(engine, progress) as look:
        for chunk in engine.push_chunks(tables):
            rows.append(chunk)
            look()
    for name, rejected in engine.rejected.items():
        count = f"{rejected.num_rows:,} of the {tables[name].num_rows:,} rows of {name}"
        _log.warning("%s are no tuples, and are not joined: they have no event time, or a value out of range", count)
    return pa.concat_tables([engine.result_schema.empty_table(), *rows, engine.finish()])


def _timeless(stream: Stream) -> Stream:
    """Return a stream of which no row is late, or ahead of its time."""
    return replace(stream, delay=duration_text(MAX_DURATION_US), idle_timeout=None, max_ahead=None, rate=None)


def _tables(join: Join, frames: Mapping[str, Any]) -> dict[str, pa.Table]:
    times = {stream.name: stream.time for stream in join.streams}
    return {name: _table(frame, name, times.get(name)) for name, frame in frames.items()}


def _table(frame: Any, name: str, time: str | None) -> pa.Table:
    if type(frame).__module__.partition(".")[0] == "polars" and hasattr(frame, "collect"):
        frame = frame.collect()  # a lazy one
    rows = as_table(frame, f"{'table' if time is None else 'stream'} {name}", time)
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])


def frame_tables(join: Join, frames: Sequence[Any]) -> dict[str, pa.Table]:
    """Return frames as Arrow tables, by the names of the streams that they are of; errors as of `frames_by_name`."""
    return _tables(join, frames_by_name(join, frames))


def frames_by_name(join: Join, frames: Sequence[Any]) -> dict[str, Any]:
    """Return frames by the names of the streams and tables that they are of: they are given in order, or as a mapping.

    Raises
    ------
    ArgumentError
        There are more or fewer than streams and tables, or a name is of none of them.
    """
    names = join.member_names
    if len(frames) == 1 and isinstance(frames[0], Mapping) and set(map(type, frames[0])) == {str} and len(names) > 1:
        found = dict(frames[0])
        for name in found:
            if name not in names:
                msg = f"the join has no stream '{name}'"
                raise ArgumentError(msg, name=name, hint=names_hint(name, names, "the streams are"))
    else:
        found = dict(zip(names, frames, strict=False))
    if len(found) != len(names) or len(frames) > len(names):
        count = len(frames) if len(frames) != 1 else len(found)
        msg = f"the join is of {', '.join(names)}, and {count} frames were given"
        raise ArgumentError(msg, name="frames", hint="give a frame for each, in this order, or as {name: frame}")
    return found


def like(table: pa.Table, frame: Any) -> Any:
    """Return a table as a frame of the library that another frame is of: pandas, polars, else Arrow."""
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    return table


@contextmanager
def _shown(engine: JoinEngine, wanted: bool | None) -> Iterator[Any]:
    """Give a function that shows how much of a push is done, once it has taken a while."""
    if wanted is False or (wanted is None and not (sys.stderr.isatty() or "ipykernel" in sys.modules)):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.fields[matches]:,} rows")
    columns = (TextColumn("join"), BarColumn(), TaskProgressColumn(), words, TimeRemainingColumn())
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=console.is_terminal)
    task, began_s = bar.add_task("join", total=1.0, matches=0), time.monotonic()

    def look() -> None:
        if wanted or time.monotonic() - began_s > _PAUSE_S:
            bar.start()
            bar.update(task, completed=engine.progress.fraction, matches=engine.progress.matches)

    try:
        yield look
    finally:
        bar.stop()
