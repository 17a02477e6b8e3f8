"""One entry of a table's log: its name, and its actions."""

from __future__ import annotations

import json
from typing import Any

from pyarrow import fs

from streamjoin_ds.blocks.location import is_local
from streamjoin_ds.blocks.remote import open_remote
from streamjoin_ds.errors import TableError

__all__ = ["entry_name", "filesystem_of", "read_actions"]

_LOCAL = fs.LocalFileSystem()


def filesystem_of(table_path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a table's path, and the table's folder in it."""
    if is_local(table_path):
        return _LOCAL, table_path
    return open_remote(table_path)


def entry_name(version: int) -> str:
    """Return the file name of an entry in the folder ``_delta_log``."""
    return f"{version:020d}.json"


def read_actions(filesystem: fs.FileSystem, table_folder: str, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of a version's entry; None if there is no entry.

    Raises
    ------
    TableError
        The entry cannot be read: it is not lines of JSON.
    """
    path = f"{table_folder}/_delta_log/{entry_name(version)}"
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            with open(path, "rb") as file:
                data = file.read()
        else:
            with filesystem.open_input_stream(path) as stream:
                data = stream.read()
    except FileNotFoundError:
        return None
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        message = f"the log entry of version {version} of {table_folder} cannot be read"
        raise TableError(
            message, name=table_folder, hint="if it was changed by hand, restore it from a copy of the table"
        ) from error
