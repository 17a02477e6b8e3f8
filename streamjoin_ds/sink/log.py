"""Single commits of a matches table: the files each added and the punctuation it carried.

Read from the Delta log's JSON entries, because no library call gives one commit's added files. The tables have the
plain protocol (``guard`` sees to that), in which an entry is lines of ``commitInfo``, ``add``, ``remove``, ``txn``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.tables import filesystem_of

__all__ = ["LogCommit", "read_commit"]


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One version of a matches table.

    Parameters
    ----------
    version : int
        The version.
    batch_id : int or None
        The join's batch, None for a commit of anyone else (compaction, a changed property).
    punctuation_us : int or None
        The punctuation of the batch, microseconds UTC.
    paths : tuple of str
        Files with rows that this version added; rewritten files (compaction) are not among them.
    """

    version: int
    batch_id: int | None
    punctuation_us: int | None
    paths: tuple[str, ...]


def read_commit(table_path: str, version: int) -> LogCommit:
    """Read one log entry.

    Raises
    ------
    TableError
        The entry is not there (cleaned away after the table's log retention, or not written yet) or cannot be read.
    """
    filesystem, folder = filesystem_of(table_path)
    try:
        with filesystem.open_input_stream(f"{folder}/_delta_log/{version:020d}.json") as stream:
            actions = [json.loads(line) for line in stream.read().splitlines() if line.strip()]
    except FileNotFoundError as error:
        message = f"the table {table_path} has no log entry of version {version}"
        raise TableError(
            message, name=table_path, hint="entries are kept for delta.logRetentionDuration: begin at a later version"
        ) from error
    except ValueError as error:
        message = f"the log entry of version {version} of {table_path} cannot be read"
        raise TableError(message, name=table_path, hint="was it changed by hand?") from error
    adds = [action["add"] for action in actions if action.get("add")]
    facts = _facts(actions)
    return LogCommit(
        version,
        facts.get("batch_id"),
        facts.get("punctuation"),
        tuple(unquote(add["path"]) for add in adds if add.get("dataChange", True)),
    )


def _facts(actions: list[dict[str, Any]]) -> dict[str, Any]:
    for action in actions:
        text = (action.get("commitInfo") or {}).get("userMetadata")
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("streamjoin"), dict):
            return dict(value["streamjoin"])
    return {}
