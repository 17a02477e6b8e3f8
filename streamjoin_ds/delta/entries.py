"""One entry of a table's log: its name, and its actions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from streamjoin_ds.blocks.location import is_local
from streamjoin_ds.blocks.remote import failed, open_remote
from streamjoin_ds.errors import StreamJoinError, TableError

__all__ = ["entry_name", "filesystem_of", "reached", "read_actions"]

_LOCAL = fs.LocalFileSystem()


def filesystem_of(table_path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a table's path, and the table's folder in it."""
    if is_local(table_path):
        return _LOCAL, table_path
    return open_remote(table_path)


@contextlib.contextmanager
def reached(table_path: str) -> Iterator[None]:
    """Raise what a remote file system refuses meanwhile as an error that names the setting (see `remote.failed`)."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if is_local(table_path) or isinstance(error, StreamJoinError):
            raise
        raise failed(error, table_path, "cannot be read") from None


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
