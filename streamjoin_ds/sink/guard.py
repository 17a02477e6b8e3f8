"""Whether a table is this join's, whether this path may write it, whether a batch is in it already.

Every question is put to one snapshot. The commit that follows is put at the version after that snapshot, and nowhere
else: if anyone committed in between, that version is taken, and all is asked again. A driver that asks one snapshot and
writes after another may write a batch twice when it is paused in between
(ARCHITECTURE.md, "Facts of other software that this rests on").
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from deltalake import Schema

from streamjoin_ds.delta.table_state import JOIN_ID_KEY, punctuation_app
from streamjoin_ds.errors import (
    ArgumentError,
    FingerprintMismatchError,
    ForeignCheckpointError,
    TableError,
)
from streamjoin_ds.sink.snapshot import LogSnapshot

__all__ = ["FINGERPRINT_KEY", "TableIdentity", "batch_is_there", "check_table", "schema_text"]

FINGERPRINT_KEY = "streamjoin.fingerprint"
_PLAIN_HINT = "use a new path, or write the results of dataframe() with delta-spark"
_CHECKPOINT_HINT = "use the checkpoint that the table was written with, or a new table and a new checkpoint"
# Table features that change neither what a data file must look like nor what a reader must know.
_HARMLESS_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "timestampNtz"})
_REFUSED_PROPERTIES = {
    "delta.setTransactionRetentionDuration": "it makes the table forget which batches it holds",
    "delta.columnMapping.mode": "its data files have other column names",
}
_REFUSED_FIELD_KEYS = ("delta.generationExpression", "delta.invariants", "delta.identity", "CURRENT_DEFAULT")
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """What a table remembers of the join that writes it.

    Parameters
    ----------
    join_id : str
        Names the join: letters, digits, ``.``, ``_`` and ``-``.
    fingerprint : str
        Digest of what the join computes; the same characters.

    Raises
    ------
    ArgumentError
        One of them is not of that form.
    """

    join_id: str
    fingerprint: str

    def __post_init__(self) -> None:
        for name in ("join_id", "fingerprint"):
            check_token(name, getattr(self, name))

    @property
    def join_app(self) -> str:
        """Application id of the join, whatever its checkpoint."""
        return f"streamjoin/{self.join_id}"

    @property
    def punctuation_app(self) -> str:
        """Application id whose version is the last punctuation, in microseconds."""
        return punctuation_app(self.join_id)

    def query_app(self, query_id: str) -> str:
        """Return the application id of the join with one checkpoint: ``query_id`` is born and lost with that."""
        check_token("query_id", query_id)
        return f"streamjoin/{self.join_id}/{query_id}"

    def properties(self) -> dict[str, str]:
        """Return the table properties that carry the identity."""
        return {JOIN_ID_KEY: self.join_id, FINGERPRINT_KEY: self.fingerprint}


def check_token(name: str, value: str) -> None:
    """Refuse an id that cannot be one part of a transaction's application id."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        message = f"the {name} has a form that is not valid"
        raise ArgumentError(message, name=name, hint="1 to 128 letters, digits, '.', '_' or '-'")


def check_table(table: LogSnapshot, path: str, schema: pa.Schema, identity: TableIdentity) -> None:
    """Refuse a table that is not this join's, or that cannot be written by adding Parquet files.

    Raises
    ------
    FingerprintMismatchError
        The table holds the results of a join with another window, band, streams or selection.
    ForeignCheckpointError
        The table belongs to another join.
    TableError
        The table was not made by a join, has features that need another writer, or has other columns.
    """
    properties = table.configuration
    if JOIN_ID_KEY not in properties:
        message = f"the table {path} exists, but was not made by a join of this package"
        raise TableError(message, name=path, hint=_PLAIN_HINT)
    if properties.get(FINGERPRINT_KEY) != identity.fingerprint:
        message = f"the table {path} holds results of a join with another window, band, streams or selection"
        raise FingerprintMismatchError(
            message, name=path, hint="restore the join's former definition, or use a new table and a new checkpoint"
        )
    if properties[JOIN_ID_KEY] != identity.join_id:
        message = f"the table {path} belongs to another join, or its checkpoint was deleted or swapped"
        raise ForeignCheckpointError(message, name=path, hint=_CHECKPOINT_HINT)
    _check_features(table, path, properties)
    _check_columns(table, path, schema)


def _check_features(table: LogSnapshot, path: str, properties: dict[str, str]) -> None:
    found = [(name, f"the table feature {name}") for name in sorted(table.features - _HARMLESS_FEATURES)]
    for key, value in sorted(properties.items()):
        if (key in _REFUSED_PROPERTIES and value != "none") or key.startswith("delta.constraints."):
            found.append((key, f"the table property {key} ({_REFUSED_PROPERTIES.get(key, 'it is not checked here')})"))
    for column in _fields_of(table.schema_text):
        keys = [key for key in _REFUSED_FIELD_KEYS if key in column["metadata"]]
        found += [(column["name"], f"the property {key} of column {column['name']}") for key in keys]
    found += [(name, f"the partition column {name}") for name in table.partition_columns]
    if found:
        name, what = found[0]
        message = f"the table {path} has {what}, which this writer does not support"
        raise TableError(message, name=name, hint=f"remove it from the table, or {_PLAIN_HINT}")


@lru_cache(maxsize=64)  # asked before every commit
def _fields_of(text: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(text)["fields"]
    return fields


@lru_cache(maxsize=64)
def schema_text(schema: pa.Schema) -> str:
    """Return the columns as Delta's JSON."""
    text: str = Schema.from_arrow(schema).to_json()
    return text


@lru_cache(maxsize=64)
def _fields_wanted(schema: pa.Schema) -> list[dict[str, Any]]:
    return _fields_of(schema_text(schema))


def _check_columns(table: LogSnapshot, path: str, schema: pa.Schema) -> None:
    here = {field["name"]: field for field in _fields_of(table.schema_text)}
    wanted = {field["name"]: field for field in _fields_wanted(schema)}
    found = [(name, "is missing") for name in wanted if name not in here]
    found += [(name, "is not one of them") for name in here if name not in wanted]
    if not found:
        found = [(name, "has another place") for name, other in zip(wanted, here, strict=True) if name != other]
    if not found:
        for name, field in wanted.items():
            if here[name]["type"] != field["type"]:
                found.append((name, f"is {here[name]['type']}, not {field['type']}"))
            elif field["nullable"] and not here[name]["nullable"]:
                found.append((name, "is required in the table, but may be null in the join's rows"))
    if found:
        name, what = found[0]
        message = f"the table {path} has other columns than the join's rows: {name} {what}"
        raise TableError(message, name=name, hint="undo the change of the table's columns, or use a new table")


def batch_is_there(
    table: LogSnapshot, path: str, identity: TableIdentity, *, batch_id: int, query_id: str, every_batch: bool
) -> bool:
    """Whether this snapshot holds the batch, by its transaction ids.

    Parameters
    ----------
    every_batch : bool, keyword-only
        Whether each batch commits to this table. A gap then means that results were lost.

    Raises
    ------
    ForeignCheckpointError
        The table holds batches of another checkpoint, or lacks batches that this checkpoint has already done.
    """
    join_version = table.transactions.get(identity.join_app)
    query_version = table.transactions.get(identity.query_app(query_id))
    if join_version is not None and query_version is None:
        message = f"the table {path} holds batches of this join from another checkpoint"
        raise ForeignCheckpointError(message, name=path, hint=_CHECKPOINT_HINT)
    last = -1 if query_version is None else query_version
    if every_batch and batch_id > last + 1:
        message = f"the checkpoint is at batch {batch_id}, but the table {path} lacks the batches from {last + 1} on"
        raise ForeignCheckpointError(
            message, name=path, hint="the table was deleted or restored: use a new checkpoint and a new table"
        )
    return last >= batch_id
