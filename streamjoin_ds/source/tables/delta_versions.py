"""The versions of a Delta table as a table beside streams."""

from __future__ import annotations

import pyarrow as pa

from streamjoin_ds.delta.table_state import TableState
from streamjoin_ds.errors import FileFormatError
from streamjoin_ds.source.delta.data_file import DataFile, FileRows

__all__ = ["DeltaVersions"]


class DeltaVersions:
    """A Delta table: a version is one of its log.

    Parameters
    ----------
    path : str
        The table's folder.
    name : str
        The name of the table in the join, for errors.
    """

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name

    def schema(self) -> pa.Schema:
        """Return the columns of the newest version."""
        return TableState(self._path).columns().schema

    def newest(self, known: str | None) -> str:
        """Return the name of the newest version.

        Raises
        ------
        TableError
            There is no table, or it needs another reader.
        """
        del known
        return str(TableState(self._path).version)

    def rows(self, version: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a version: its files in the order of their paths, each in its own order.

        Parameters
        ----------
        version : str
            As `newest` returned it.
        schema : pyarrow.Schema
            The columns that are read, one of `BoundJoin.read_schemas`.

        Raises
        ------
        FileMissingError, FileFormatError, SchemaDriftError
            A file is gone, cannot be read, or has a column of another type.
        """
        state = TableState(self._path, int(version), with_files=True)
        columns, parts = state.columns(), []
        for number, (_, action) in enumerate(sorted(state.files.items())):
            file = DataFile.of_action(int(version), number, action, columns).only(schema.names)
            found = FileRows(self._path, file, schema, "", self._name)
            for _, raw in found.chunks(0, found.count):
                if raw.broken:
                    _, column, reason, _ = raw.broken[0]
                    msg = f"column '{column}' of table {self._name} holds {reason}"
                    raise FileFormatError(msg, name=found.path, hint="mend the table: it has no rejects")
                parts.append(raw.table)
        return pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()
