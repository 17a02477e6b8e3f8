"""Static DataFrames as tables beside streams: read at each start, and sent to the workers.

::

    start()      rows ─► a block, tables/<table>/frame-<checksum> ─► its name, in the plan ─► offset, or `tables.json`
    dataframe()  rows ─► the function of a cell

Where Spark plans the batches its offsets know nothing of static frames. There a file of the checkpoint says which
version of a table's frame a batch joins. The batches that were planned before a start keep the version that they had,
also when they are done again; those after it join the new one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore, pack, unpack
from streamjoin_ds.blocks.block import checksum
from streamjoin_ds.blocks.place import Place
from streamjoin_ds.cell.cell_windows import give_tables
from streamjoin_ds.checkpoint.recovery import put
from streamjoin_ds.checkpoint.spark_files import numbered
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import MALFORMED, ArgumentError, OffsetError, SessionError, StateCorruptError
from streamjoin_ds.plan import Plan
from streamjoin_ds.source.batch_plan import TableVersion, versions_from, versions_told
from streamjoin_ds.source.table_versions import tables_folder
from streamjoin_ds.spark.release import arrow_schema, has_arrow_groups
from streamjoin_ds.spec import BoundJoin, Join
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.member.table import DEFAULT_FINISHED_AFTER, DEFAULT_REFRESH, Table
from streamjoin_ds.spec.table_rows import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Beside",
    "FrameTables",
    "given_before",
    "kept_tables",
    "note_given",
    "of_frames",
    "sole_entry",
    "table_frames",
]

_log = logging.getLogger(__name__)

_NAME = "tables.json"
Given = tuple[tuple[int, str], ...]
_MOST_BYTES = 256 << 20  # of all tables of a join; more should lie in blocks that workers map, as those of `start` do


def given_before(checkpoint: Place) -> Given:
    """Return what earlier starts gave: the first batch that joins it, and the versions as JSON; ascending.

    Raises
    ------
    StateCorruptError
        The file cannot be read, or is gone though batches were planned.
    """
    path = checkpoint / _NAME
    try:
        entries = [(first, versions_from(versions)) for first, versions in json.loads(path.read_bytes())]
        firsts = [first for first, _ in entries]
        if any(type(first) is not int or first < 0 for first in firsts) or firsts != sorted({*firsts}):
            msg = "these are no batches in their order"
            raise ValueError(msg)
    except FileNotFoundError:
        if not any(numbered(checkpoint / "offsets")):
            return ()
        msg = f"the checkpoint's {_NAME} is gone, which says what batches joined"
        raise StateCorruptError(msg, name=_NAME, hint="restore the checkpoint from a spare copy") from None
    except (OSError, OffsetError, *MALFORMED) as error:
        msg = f"the checkpoint's {_NAME} cannot be read"
        raise StateCorruptError(msg, name=_NAME, hint="restore the checkpoint from a spare copy") from error
    return tuple((first, _text(versions)) for first, versions in entries)


def note_given(checkpoint: Place, before: Given, versions: Mapping[str, TableVersion], retain_batches: int) -> Given:
    """Write that batches which are not planned yet join these versions; forget those that no batch can join again.

    Parameters
    ----------
    checkpoint : Place
    before : tuple of (int, str)
        As `given_before` returned it.
    versions : mapping of str to TableVersion
    retain_batches : int
        How many batches Spark can go back by.

    Returns
    -------
    tuple of (int, str)
        What the file has now.
    """
    planned = max((number for number, _ in numbered(checkpoint / "offsets")), default=-1)
    entries = [entry for entry in before if entry[0] <= planned]
    if not entries or entries[-1][1] != _text(versions):
        entries.append((planned + 1, _text(versions)))
    oldest = planned - retain_batches
    firsts = [first for first, _ in entries[1:]]
    entries = [entry for entry, until in zip(entries, [*firsts, oldest + 1], strict=True) if until > oldest]
    put(checkpoint / _NAME, json.dumps([[first, json.loads(text)] for first, text in entries]))
    return tuple(entries)


def sole_entry(versions: Mapping[str, TableVersion]) -> Given:
    """Return what a start gave where offsets say which batches join it; empty where it gave nothing."""
    return ((0, _text(versions)),) if versions else ()


def _text(versions: Mapping[str, TableVersion]) -> str:
    return json.dumps(versions_told(versions), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Beside:
    """A join whose streams have sources, and frames of its tables.

    Attributes
    ----------
    join : Join
        The tables over frames have the columns of these.
    frames : mapping of str to DataFrame
    """

    join: Join
    frames: Mapping[str, DataFrame]


def of_frames(join: Join, frames: Mapping[str, DataFrame]) -> Beside:
    """Return a join whose streams have sources, with frames of those tables that have none.

    Raises
    ------
    ArgumentError
        A frame is of no table, or streaming; a table with a frame has a source, or an option of one.
    """
    names = [table.name for table in join.tables]
    for name in frames:
        if name not in names:
            msg = f"there is a frame of {name}, which is no table of the join"
            hint = "give a frame for each stream, or for none; " + names_hint(name, names, "its tables are")
            raise ArgumentError(msg, name=name, hint=hint)
    given = [table for table in join.tables if table.name in frames]
    for table in given:
        _check_frame(table, frames[table.name])
    tables = [
        replace(table, schema=arrow_schema(frames[table.name].schema))
        if table in given and table.schema is None
        else table
        for table in join.tables
    ]
    return Beside(join.with_streams(join.streams, tables), dict(frames)) if given else Beside(join, {})


def kept_tables(plan: Plan, frames: Mapping[str, DataFrame]) -> dict[str, TableVersion]:
    """Write the rows that frames have now as blocks of the checkpoint. Return their versions.

    Raises
    ------
    SchemaDriftError, ColumnError
        A value does not fit, or a time is out of range; a column is missing.
    BlockWriteError
    """
    store, found = BlockStore(tables_folder(plan.block_root), durable=plan.durable), {}
    for name, frame in frames.items():
        rows = table_rows(plan.bound, plan.bound.member_names.index(name), _rows_of(name, frame))
        ref = store.write(f"{name}/frame", pa.Table.from_batches([rows]), {"table": name})
        digest = ref.name.rpartition("-")[2].partition(".")[0]
        found[name] = TableVersion(digest, ref.name, ref.rows)
        _log.info("table %s: %d rows of its frame are joined from the next batch on", name, ref.rows)
    return found


def table_frames(join: Join, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the frames of a join's tables, whose streams have frames too.

    Raises
    ------
    ArgumentError
        A table has no frame, has a source or an option of one, or its frame is streaming.
    """
    found = {}
    for table in join.tables:
        if table.name not in frames:
            if table.source is not None:
                msg = f"table {table.name} has a source, and the streams have frames"
                hint = "leave the source out and give a frame of it: spark.read; or give the streams sources"
                raise ArgumentError(msg, name=table.name, hint=hint)
            msg = f"there is no frame for table {table.name}"
            raise ArgumentError(msg, name=table.name, hint="give a static frame: spark.read")
        found[table.name] = frames[table.name]
        _check_frame(table, frames[table.name])
    return found


def _rows_of(name: str, frame: DataFrame) -> pa.Table:
    """Return a frame's rows.

    Raises
    ------
    SessionError
        Spark is 3.5, which does not give them as they are.
    """
    version = frame.sparkSession.version
    if not has_arrow_groups(version):
        msg = f"Spark {version} does not give the rows of table {name} as they are: it has no DataFrame.toArrow"
        raise SessionError(msg, name=name, hint="use Spark 4.0 or newer, or make the table a stream of static frames")
    return frame.toArrow()


def _check_frame(table: Table, frame: DataFrame) -> None:
    if table.source is not None:
        msg = f"table {table.name} has a source, and a frame is given for it"
        raise ArgumentError(msg, name=table.name, hint="leave one of the two out")
    usual = {"refresh": DEFAULT_REFRESH, "format": "auto", "finished_after": DEFAULT_FINISHED_AFTER}
    for option, default in usual.items():
        if getattr(table, option) != default:
            msg = f"table {table.name} has {option}, and its frame is read once, at a start"
            hint = "leave it out, or give the table a path, beside streams that have sources"
            raise ArgumentError(msg, name=option, hint=hint)
    if frame.isStreaming:
        msg = f"the frame of table {table.name} is streaming"
        raise ArgumentError(msg, name=table.name, hint="read it with spark.read, or make it a Stream of the join")


@dataclass(frozen=True)
class FrameTables:
    """The rows of a join's tables.

    Attributes
    ----------
    blocks : mapping of str to bytes
        By a table's name the bytes of a block.
    names : mapping of str to str
        By a table's name the checksum of its block.
    """

    blocks: Mapping[str, bytes]
    names: Mapping[str, str]

    @classmethod
    def collected(cls, bound: BoundJoin, frames: Mapping[str, DataFrame]) -> FrameTables:
        """Return the rows that frames have now.

        Raises
        ------
        SchemaDriftError
            A value does not fit, or a time is out of range.
        ArgumentError
            The rows are too many to travel with a function.
        """
        blocks, size = {}, 0
        for name, frame in frames.items():
            rows = table_rows(bound, bound.member_names.index(name), _rows_of(name, frame))
            blocks[name] = bytes(pack(pa.Table.from_batches([rows])))
            size += len(blocks[name])
            if size > _MOST_BYTES:
                msg = f"the frame of table {name} has more rows than travel with a function: {size >> 20} MiB"
                hint = f"{_MOST_BYTES >> 20} MiB at most; write it as a Delta table, and use start() with its path"
                raise ArgumentError(msg, name=name, hint=hint)
        return cls(blocks, {name: checksum(block) for name, block in blocks.items()})

    def give(self, plan: Plan, engines: Sequence[WindowJoin]) -> None:
        """Have the engines of a cell join these rows."""
        by_name = {self.names[name]: block for name, block in self.blocks.items()}
        give_tables(plan, engines, self.names, lambda name: unpack(by_name[name]))
