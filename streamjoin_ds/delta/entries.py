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
from streamjoin_ds.errors import MALFORMED, StreamJoinError, TableError

__all__ = ["entry_name", "filesystem_of", "reached", "read_actions"]

_LOCAL = fs.LocalFileSystem()
_TEXT, _NUMBER = (str,), (int,)
# By action: the types of its facts that this package reads. Of those in the second place each may be absent or null.
_ACTIONS: dict[str, tuple[dict[str, tuple[type, ...]], dict[str, tuple[type, ...]]]] = {
    "txn": ({"appId": _TEXT, "version": _NUMBER}, {}),
    "add": ({"path": _TEXT, "size": _NUMBER}, {"stats": _TEXT, "dataChange": (bool,)}),
    "remove": ({"path": _TEXT}, {"deletionTimestamp": _NUMBER, "dataChange": (bool,)}),
    "metaData": (
        {"schemaString": _TEXT},
        {"id": _TEXT, "configuration": (dict,), "partitionColumns": (list,), "createdTime": _NUMBER},
    ),
    "protocol": ({}, {"readerFeatures": (list,), "writerFeatures": (list,)}),
    "commitInfo": ({}, {"userMetadata": _TEXT}),
}


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
        The entry cannot be read: it is not lines of JSON, or an action is not what Delta's protocol says.
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
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        for action in actions:
            _check(action)
    except MALFORMED as error:
        message = f"the log entry of version {version} of {table_folder} cannot be read"
        raise TableError(
            message, name=table_folder, hint="if it was changed by hand, restore it from a copy of the table"
        ) from error
    return actions


def _check(action: dict[str, Any]) -> None:
    """Raise one of `MALFORMED` where an action is not what Delta's protocol says."""
    for kind, facts in action.items():
        if kind not in _ACTIONS or facts is None:
            continue
        needed, optional = _ACTIONS[kind]
        wrong = [name for name, kinds in needed.items() if not isinstance(facts[name], kinds)]
        wrong += [name for name, kinds in optional.items() if not isinstance(facts.get(name), (*kinds, type(None)))]
        texts = [*(facts.get("configuration") or {}).values(), *(facts.get("partitionColumns") or ())]
        texts += [name for side in ("reader", "writer") for name in facts.get(f"{side}Features") or ()]
        if wrong or any(not isinstance(text, str | None) for text in texts):
            raise TypeError(kind)
        if kind == "metaData":
            _ = [column["name"] for column in json.loads(facts["schemaString"])["fields"]]
