"""The files of a table's log: an entry's name and its actions, which files there are, and what a checkpoint says."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pyarrow import fs, parquet

from streamjoin_ds.blocks.object_store import asked, open_remote
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import MALFORMED, TableError

__all__ = [
    "LogFile",
    "checkpoint_actions",
    "checkpointed",
    "entry_name",
    "filesystem_of",
    "list_log",
    "newest_checkpoint",
    "reached",
    "read_actions",
]

_LOCAL = fs.LocalFileSystem()
_DECODER = msgspec.json.Decoder()
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
_NAME = re.compile(r"\.?(\d{20})\.(.+)")
_CHECKPOINT = re.compile(r"checkpoint\.(?:(\d{10})\.(\d{10})\.)?parquet")
_UUID_CHECKPOINT = re.compile(r"checkpoint\.[0-9a-f-]{36}\.(?:parquet|json)")


def filesystem_of(table_path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a table's path, and the table's folder in it."""
    if is_local(table_path):
        return _LOCAL, table_path
    return open_remote(table_path)


def reached(table_path: str) -> contextlib.AbstractContextManager[None]:
    """Raise what a remote file system refuses meanwhile as an error that names the setting (see `asked`)."""
    return contextlib.nullcontext() if is_local(table_path) else asked(table_path, "cannot be read")


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
        actions = _lines(data)
        for action in actions:
            _check(action)
    except MALFORMED as error:
        message = f"the log entry of version {version} of {table_folder} cannot be read"
        raise TableError(
            message, name=table_folder, hint="if it was changed by hand, restore it from a copy of the table"
        ) from error
    return actions


def _lines(data: bytes) -> list[dict[str, Any]]:
    """Return the objects of lines of JSON."""
    try:
        return _DECODER.decode_lines(data)
    except ValueError:  # the standard library's reader takes a little more, which some writer may have written
        return [json.loads(line) for line in data.splitlines() if line.strip()]


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


class LogFile:
    """A file of a table's log: its version, name, size and when it was written."""

    __slots__ = ("info", "kind", "version")

    def __init__(self, info: fs.FileInfo, version: int, kind: str) -> None:
        self.info, self.version, self.kind = info, version, kind

    @property
    def is_entry(self) -> bool:
        """Whether this is the entry of its version."""
        return self.kind == "json" and not self.info.base_name.startswith(".")

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is a checkpoint, or a part of one."""
        return _CHECKPOINT.fullmatch(self.kind) is not None and not self.info.base_name.startswith(".")

    @property
    def is_uuid_checkpoint(self) -> bool:
        """Whether this is a checkpoint of the V2 specification, whose name holds a UUID."""
        return _UUID_CHECKPOINT.fullmatch(self.kind) is not None and not self.info.base_name.startswith(".")


def list_log(filesystem: fs.FileSystem, folder: str) -> list[LogFile]:
    """Return all files of a log that belong to a version, sorted by version; an empty list if there is no table."""
    selector = fs.FileSelector(f"{folder}/_delta_log", allow_not_found=True)
    files = []
    for info in filesystem.get_file_info(selector):
        match = _NAME.fullmatch(info.base_name)
        if match and info.type == fs.FileType.File:
            files.append(LogFile(info, int(match[1]), match[2]))
    return sorted(files, key=lambda file: (file.version, file.info.base_name))


def newest_checkpoint(
    files: Sequence[LogFile], last: int | None = None, *, with_uuid: bool = False
) -> tuple[int, list[LogFile]]:
    """Return the version and the files of the newest complete checkpoint; -1 and no files if there is none.

    Parameters
    ----------
    last : int, optional
        Newer checkpoints do not count.
    with_uuid : bool, keyword-only
        Whether checkpoints whose names hold a UUID count (see `checkpoint_actions`).
    """
    by_version: dict[int, list[LogFile]] = {}
    for file in files:
        if (file.is_checkpoint or (with_uuid and file.is_uuid_checkpoint)) and (last is None or file.version <= last):
            by_version.setdefault(file.version, []).append(file)
    for version in sorted(by_version, reverse=True):
        parts = by_version[version]
        whole = [part for part in parts if part.kind == "checkpoint.parquet" or part.is_uuid_checkpoint]
        if whole:
            return version, whole[:1]
        counts = {match[2] for part in parts if (match := _CHECKPOINT.fullmatch(part.kind))}
        if len(counts) == 1 and len(parts) == int(counts.pop()):
            return version, parts
    return -1, []


def checkpointed(
    filesystem: fs.FileSystem, path: str, kinds: Mapping[str, Sequence[str] | None]
) -> list[dict[str, Any]]:
    """Return the actions in a Parquet file of a checkpoint.

    Parameters
    ----------
    kinds : mapping of str to sequence of str, or None
        The kinds of action that are read, each with the fields that are read; None: all of them.
    """
    actions = []
    with filesystem.open_input_file(path) as stream, parquet.ParquetFile(stream) as file:
        schema = file.schema_arrow
        for kind, fields in kinds.items():
            if kind not in schema.names:
                continue
            there = {field.name for field in schema.field(kind).type}
            columns = [kind] if fields is None else [f"{kind}.{name}" for name in fields if name in there]
            column = file.read(columns=columns).column(kind)
            actions += [{kind: _plain(value)} for value in column.drop_null().to_pylist()]
    return actions


def checkpoint_actions(
    filesystem: fs.FileSystem, folder: str, parts: Sequence[LogFile], kinds: Mapping[str, Sequence[str] | None]
) -> Iterator[dict[str, Any]]:
    """Yield the actions of a checkpoint of any form, those in its sidecars included; `kinds` as for `checkpointed`."""
    for part in parts:
        sidecars = []
        for action in _part_actions(filesystem, part, {**kinds, "sidecar": ("path",)}):
            if "sidecar" in action:
                sidecars.append(action["sidecar"]["path"])
            else:
                yield action
        for name in sidecars:
            path = name if "/" in name else f"{folder}/_delta_log/_sidecars/{name}"
            yield from checkpointed(filesystem, path, kinds)


def _part_actions(
    filesystem: fs.FileSystem, part: LogFile, kinds: Mapping[str, Sequence[str] | None]
) -> list[dict[str, Any]]:
    if not part.kind.endswith(".json"):
        return checkpointed(filesystem, part.info.path, kinds)
    with filesystem.open_input_stream(part.info.path) as stream:
        lines = stream.read().splitlines()
    actions = (json.loads(line) for line in lines if line.strip())
    return [action for action in actions if action.keys() & kinds.keys()]


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value read from Parquet with its maps as dicts: Arrow gives lists of pairs."""
    for name in ("configuration", "partitionValues"):
        if isinstance(value.get(name), list):
            value[name] = dict(value[name])
    return value
