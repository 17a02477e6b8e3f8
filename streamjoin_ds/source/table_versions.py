"""The versions of a join's tables: which one a batch joins, and its block under the checkpoint."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore, NamedBlocks
from streamjoin_ds.blocks.files import files_at
from streamjoin_ds.blocks.location import local_path
from streamjoin_ds.blocks.place import below
from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.source.files.file_format import EXTENSIONS, format_of
from streamjoin_ds.source.table_version import TableVersion
from streamjoin_ds.source.tables.delta_versions import DeltaVersions
from streamjoin_ds.source.tables.file_versions import FileVersions
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import as_declared
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.table_rows import table_rows

__all__ = ["TableVersions", "Versions", "open_table", "table_schema", "tables_folder"]


_log = logging.getLogger(__name__)


class Versions(Protocol):
    """A table whose rows change."""

    def schema(self) -> pa.Schema:
        """Return the columns that it has now."""

    def newest(self, known: str | None) -> str | None:
        """Return the name of the version that it has now, given the one that was last found.

        None: it is being written, so the `known` one goes on. Without a known one it is waited for.
        """

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return all rows of the version that `newest` returned last, in an order that is the version's own."""


def open_table(table: Table, clock: Callable[[], int] = time.time_ns) -> Versions:
    """Return what a table's source holds.

    Parameters
    ----------
    table : Table
    clock : callable
        Returns the time in nanoseconds since 1970, by which a file is finished.

    Raises
    ------
    ArgumentError
        The table has no source.
    FileMissingError, FileFormatError
        There is nothing at that place, or its format is not known.
    """
    if table.source is None:
        msg = f"table {table.name} has no source"
        hint = "give a Delta table or a file, or its rows: frames= of start(), dataframe() or JoinEngine"
        raise ArgumentError(msg, name=table.name, hint=hint)
    local = local_path(table.source)
    path = table.source.rstrip("/") if local is None else os.path.normpath(str(local))
    if table.format in ("auto", "delta") and _is_folder(f"{path}/_delta_log"):
        return DeltaVersions(path, table.name)
    if table.format == "delta":
        msg = f"table {table.name} is no Delta table: {path}"
        raise FileFormatError(msg, name=path, hint="give the folder that holds _delta_log")
    kind = format_of(path, table.format)
    if kind not in ("parquet", "csv", "json") or _is_folder(path):
        known = ", ".join(end for name in ("parquet", "csv", "json") for end in EXTENSIONS[name])
        msg = f"table {table.name} is neither a Delta table nor a file of a known format: {path}"
        raise FileFormatError(msg, name=path, hint=f"set format, or end the file's name with one of {known}")
    return FileVersions(path, kind, table.name, table.finished_after_us, clock)


def table_schema(table: Table, recorded: pa.Schema | None = None) -> pa.Schema:
    """Return the columns of a table: those declared, or those that its source has now. Errors as `open_table`.

    `recorded` has the columns that a checkpoint knows: a restart does not wait for a file that is being written.
    """
    if table.source is None and isinstance(table.schema, pa.Schema):
        return table.schema
    source = open_table(table)
    if isinstance(table.schema, pa.Schema):
        return table.schema
    return recorded if recorded and source.newest("") is None else source.schema()


def tables_folder(checkpoint: object) -> str:
    """Return the folder of the blocks of a checkpoint's tables."""
    return below(checkpoint, "tables")


class TableVersions:
    """The versions of all tables of a join, in Spark's planner process.

    Parameters
    ----------
    bound : BoundJoin
    checkpoint : str
        The checkpoint's folder, under which the blocks are.
    retain_batches : int
        How many batches Spark can go back by.
    given : mapping of str to TableVersion, optional
        By a table's name what its frame held at this start, for tables without a source. Its block is there.
    durable : bool
        Whether a block is on the device before its name is in an offset.
    clock : callable, optional
        Returns seconds and never goes back.
    wall : callable, optional
        See `open_table`.
    """

    def __init__(
        self,
        bound: BoundJoin,
        checkpoint: str,
        retain_batches: int,
        given: Mapping[str, TableVersion] | None = None,
        *,
        durable: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bound, self._clock, self._wall = bound, clock, wall
        self._store = BlockStore(tables_folder(checkpoint), durable=durable)
        self._given = dict(given or {})
        self._sources: dict[str, Versions] = {}
        self._looked_s: dict[str, float] = {}
        self._blocks = NamedBlocks(self._store, retain_batches)

    def decided(self, before: Mapping[str, TableVersion]) -> dict[str, TableVersion]:
        """Return the version of each table that the batch joins that is being planned.

        Parameters
        ----------
        before : mapping of str to TableVersion
            Those of the batch before; empty for the first one.

        Raises
        ------
        FileMissingError, FileFormatError, TableError, SchemaDriftError, ColumnError, BlockWriteError
            A table is gone, or its new version cannot be joined. The error names it.
        """
        found = {}
        for number, table in enumerate(self._bound.join.tables, len(self._bound.names)):
            if table.name in self._given:
                found[table.name] = self._given[table.name]
                continue
            known, now_s = before.get(table.name), self._clock()
            looked_s = self._looked_s.get(table.name)
            is_due = looked_s is None or now_s - looked_s >= table.refresh_us / 1e6
            if known is None or is_due:
                source = self._sources.get(table.name) or open_table(table, self._wall)
                self._sources[table.name] = source
                if known is not None and self._store.size_bytes(known.block) is None:
                    known = None  # its block is lost
                newest = source.newest(None if known is None else known.version)
                if newest is not None:  # else the next batch looks again
                    self._looked_s[table.name] = now_s
                if newest is not None and (known is None or newest != known.version):
                    known = self._written(number, table.name, newest, source)
                assert known is not None  # without a known one `newest` is a version
            found[table.name] = known
        return found

    def _written(self, number: int, name: str, version: str, source: Versions) -> TableVersion:
        read = as_declared(self._bound.read_schemas[number], self._bound.join.members[number].schema)
        rows = table_rows(self._bound, number, source.rows(version, read))
        facts = {"table": name, "version": version}
        ref = self._store.write(f"{name}/{version}", pa.Table.from_batches([rows]), facts)
        _log.info("table %s: version %s of %d rows is joined from the next batch on", name, version, ref.rows)
        return TableVersion(version, ref.name, ref.rows)

    def committed(self, joined: Mapping[str, TableVersion]) -> None:
        """Hear that a batch is committed; remove the blocks that no offset names to which Spark may come back.

        Parameters
        ----------
        joined : mapping of str to TableVersion
            The versions that the batch joined.
        """
        self._blocks.committed({version.block for version in joined.values()})


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(files_at(path).stat(path).st_mode)
    except (ArgumentError, OSError):
        return False
