"""Static DataFrames as tables beside streams: read once, and sent to the workers with the function of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamjoin_ds.blocks import pack, unpack
from streamjoin_ds.blocks.block import checksum
from streamjoin_ds.cell.cell_tables import give_tables
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Plan
from streamjoin_ds.spec import BoundJoin, Join
from streamjoin_ds.spec.table import DEFAULT_REFRESH
from streamjoin_ds.spec.table_rows import table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FrameTables", "table_frames"]

_MOST_BYTES = 256 << 20  # of all tables of a join; more should lie in blocks that workers map, as those of `start` do


def table_frames(join: Join, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the frames of a join's tables.

    Raises
    ------
    ArgumentError
        A table has no frame, has a source or an option of one, or its frame is streaming.
    """
    found = {}
    for table in join.tables:
        if table.source is not None:
            msg = f"table {table.name} has a source, and dataframe() is given the rows"
            raise ArgumentError(msg, name=table.name, hint="leave the source out and give a frame, or use start()")
        for option, is_given in (("refresh", table.refresh != DEFAULT_REFRESH), ("format", table.format != "auto")):
            if is_given:
                msg = f"table {table.name} has {option}, and dataframe() is given the rows, once"
                raise ArgumentError(msg, name=option, hint="leave it out, or use start() with the table's path")
        if table.name not in frames:
            msg = f"there is no frame for table {table.name}"
            raise ArgumentError(msg, name=table.name, hint="give a static frame: spark.read")
        if frames[table.name].isStreaming:
            msg = f"the frame of table {table.name} is streaming"
            raise ArgumentError(msg, name=table.name, hint="read it with spark.read, or make it a Stream of the join")
        found[table.name] = frames[table.name]
    return found


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
            rows = table_rows(bound, bound.member_names.index(name), frame.toArrow())
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
