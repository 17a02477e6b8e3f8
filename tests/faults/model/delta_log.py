"""Delta tables by the protocol alone: a log of entries put if absent, snapshots, transaction ids, and their conflicts.

`LogTable` stands in for ``deltalake.DeltaTable`` where the sink uses it (`streamjoin_ds.sink.target`, ``commit``), a
hundred times faster. The entries it writes are Delta's: delta-rs opens such a table and goes on with it
(`tests/faults/test_delta_log.py`). What is left out: checkpoints of the log, and writers of other tools.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tests.faults.model import disk

__all__ = ["LogTable", "PointedTable"]


class LogTable:
    """A snapshot of a table, as ``deltalake.DeltaTable`` holds one: it stays as it is until it is updated."""

    def __init__(self, path: str) -> None:
        self._log = f"{path}/_delta_log"
        self._name = disk.table_name(path)
        self._version = -1
        self._transactions: dict[str, int] = {}
        self._metadata: dict[str, Any] = {}
        self.update_incremental()
        if self._version < 0:
            msg = "no table"
            raise TableNotFoundError(msg)

    @staticmethod
    def is_deltatable(path: str) -> bool:
        return os.path.exists(_entry(f"{path}/_delta_log", 0))

    @classmethod
    def create(
        cls,
        path: str,
        schema: pa.Schema,
        *,
        description: str,
        configuration: dict[str, str],
        raise_if_key_not_exists: bool,
    ) -> LogTable:
        del raise_if_key_not_exists
        log = f"{path}/_delta_log"
        os.makedirs(log, exist_ok=True)
        metadata = {
            "id": str(uuid.uuid4()),
            "description": description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _schema_text(schema),
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": 0,
        }
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
        if not _put(log, 0, actions):
            msg = "the table exists"
            raise DeltaError(msg)
        return cls(path)

    def update_incremental(self) -> None:
        while (text := _read(self._log, self._version + 1)) is not None:
            self._version += 1
            for action in _actions(text):
                if "txn" in action:
                    self._transactions[action["txn"]["appId"]] = action["txn"]["version"]
                if "metaData" in action:
                    self._metadata = action["metaData"]

    def version(self) -> int:
        return self._version

    def metadata(self) -> SimpleNamespace:
        facts = self._metadata
        return SimpleNamespace(
            configuration=facts["configuration"], partition_columns=facts["partitionColumns"], id=facts["id"]
        )

    def protocol(self) -> SimpleNamespace:
        return SimpleNamespace(reader_features=None, writer_features=None)

    def schema(self) -> Schema:
        return _schema(self._metadata["schemaString"])

    def transaction_version(self, app_id: str) -> int | None:
        return self._transactions.get(app_id)

    def create_checkpoint(self) -> None:
        """The log is short."""

    def cleanup_metadata(self) -> None:
        """The log is short."""

    def create_write_transaction(
        self,
        actions: list[Any],
        mode: str,
        schema: Schema,
        *,
        commit_properties: Any,
        post_commithook_properties: Any,
    ) -> None:
        """Append: at the first free version, unless an entry since this snapshot has one of its transaction ids."""
        del schema, post_commithook_properties
        assert mode == "append"
        disk.at(f"{self._name} log", writes=True)
        transactions = commit_properties.app_transactions
        lines: list[dict[str, Any]] = [
            {"commitInfo": {"operation": "WRITE", **commit_properties.custom_metadata}},
            *({"add": _add(action)} for action in actions),
            *({"txn": {"appId": one.app_id, "version": one.version}} for one in transactions),
        ]
        ours = {one.app_id for one in transactions}
        version = self._version + 1
        while not _put(self._log, version, lines):
            text = _read(self._log, version)
            assert text is not None
            for action in _actions(text):
                if action.get("txn", {}).get("appId") in ours or "metaData" in action or "protocol" in action:
                    msg = "a concurrent transaction"
                    raise CommitFailedError(msg)
            version += 1
        disk.at(f"{self._name} logged")


class PointedTable(DeltaTable):
    """delta-rs itself, with the same two points at which a process can stop or die."""

    def create_write_transaction(self, *arguments: Any, **options: Any) -> None:
        name = disk.table_name(self.table_uri)
        disk.at(f"{name} log", writes=True)
        super().create_write_transaction(*arguments, **options)
        disk.at(f"{name} logged")


def _add(action: Any) -> dict[str, Any]:
    return {
        "path": action.path,
        "partitionValues": {},
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": True,
        "stats": action.stats,
    }


_numbers = itertools.count()
_text = json.JSONEncoder(separators=(",", ":")).encode


def _entry(log: str, version: int) -> str:
    return f"{log}/{version:020d}.json"


@lru_cache(maxsize=256)
def _schema_text(schema: pa.Schema) -> str:
    text: str = Schema.from_arrow(schema).to_json()
    return text


@lru_cache(maxsize=256)
def _schema(text: str) -> Schema:
    return Schema.from_json(text)


@lru_cache(maxsize=1024)
def _actions(text: str) -> tuple[dict[str, Any], ...]:
    """What an entry says; every driver reads the log from its beginning, and nobody changes an action."""
    return tuple(json.loads(line) for line in text.splitlines())


def _read(log: str, version: int) -> str | None:
    try:
        descriptor = os.open(_entry(log, version), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size).decode()
    finally:
        os.close(descriptor)


def _put(log: str, version: int, actions: list[dict[str, Any]]) -> bool:
    """The entry, whole and only if there is none; False if there is."""
    aside = f"{log}/.{next(_numbers)}"
    with open(aside, "wb", buffering=0) as file:
        file.write("\n".join(map(_text, actions)).encode())
    try:
        os.link(aside, _entry(log, version))
    except FileExistsError:
        return False
    finally:
        disk.unlink(aside)
    return True
