"""A two-stream join's tables in a temporary folder, and batches for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.commit import CommitOutcome, Committer
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import (
    LATE_SCHEMA,
    LEDGER_SCHEMA,
    METRICS_SCHEMA,
    REJECTS_SCHEMA,
    TIMESTAMP,
    TableSet,
)
from streamjoin_ds.sink.writer import FileReport, TableWriter

MATCH_SCHEMA = pa.schema(
    [
        pa.field("r_seq", pa.int64(), nullable=False),
        pa.field("r_x", pa.int32(), nullable=False),
        pa.field("s_seq", pa.int64(), nullable=False),
        pa.field("s_name", pa.string()),
        pa.field("event_time", TIMESTAMP, nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
    ]
)
QUERY_ID = "0b6c2e4e-query-one"
ROWS = 5
STEP_US = 1_000


def match_rows(batch_id: int, rows: int = ROWS) -> pa.Table:
    """Return rows with event times in [batch_id * STEP_US, (batch_id + 1) * STEP_US), newest first."""
    first = batch_id * rows
    columns = {
        "r_seq": [first + i for i in range(rows)],
        "r_x": [i for i in range(rows)],
        "s_seq": [7 * first + i for i in range(rows)],
        "s_name": [None if i % 3 == 0 else f"name {i}" for i in range(rows)],
        "event_time": [batch_id * STEP_US + (rows - i) for i in range(rows)],
        "batch_id": [batch_id] * rows,
    }
    return pa.table(columns, schema=MATCH_SCHEMA)


def late_rows(batch_id: int) -> pa.Table:
    row = {"stream": "r", "seq": batch_id, "ts": 1, "largest_ts": 2, "batch_id": batch_id, "row": '{"x": 1}'}
    return pa.Table.from_pylist([row], schema=LATE_SCHEMA)


def reject_rows(batch_id: int) -> pa.Table:
    row = {"stream": "s", "file": "a.csv", "line": 3, "reason": "not a number", "batch_id": batch_id, "text": "x;y"}
    return pa.Table.from_pylist([row], schema=REJECTS_SCHEMA)


def ledger_rows(batch_id: int, **changes: int) -> pa.Table:
    counts = {
        "read": 13,
        "stored": 8,
        "late": 1,
        "rejected": 1,
        "filtered": 3,
        "null_keys": 2,
        "largest_ts": batch_id * STEP_US,
    }
    rows = [{"batch_id": batch_id, "stream": stream, **counts, **changes} for stream in ("r", "s")]
    return pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA)


def metrics_rows(batch_id: int, cells: int = 2) -> pa.Table:
    names = [field.name for field in METRICS_SCHEMA if pa.types.is_integer(field.type)]
    rows = [{**dict.fromkeys(names, cell + 1), "batch_id": batch_id, "cell": cell} for cell in range(cells)]
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)


@dataclass
class Join:
    """The tables of one join, and what a driver and its workers do to them."""

    root: str
    tables: TableSet = field(init=False)

    def __post_init__(self) -> None:
        self.tables = TableSet(self.root)

    def committer(
        self, *, join_id: str = "join-1", fingerprint: str = "f1", schema: pa.Schema = MATCH_SCHEMA
    ) -> Committer:
        committer = Committer(
            self.tables,
            schema,
            join_id=join_id,
            fingerprint=fingerprint,
            description="r.x within 10 of s.a",
            clock=lambda: 1_700_000_000_000_000,
        )
        committer.open()
        return committer

    def write(self, batch_id: int, rows: pa.Table | None = None, table: str = "matches") -> list[FileReport]:
        rows = match_rows(batch_id) if rows is None else rows
        with TableWriter(
            self.tables.path_of(table), rows.schema, table=table, batch_id=batch_id, label="0", durable=False
        ) as writer:
            writer.write(rows)
            return writer.close()

    def all_reports(self, batch_id: int) -> list[FileReport]:
        return [
            *self.write(batch_id),
            *self.write(batch_id, late_rows(batch_id), "late"),
            *self.write(batch_id, reject_rows(batch_id), "rejects"),
        ]

    def commit(
        self,
        committer: Committer,
        batch_id: int,
        reports: Sequence[FileReport] | None = None,
        *,
        query_id: str = QUERY_ID,
        punctuation_us: int | str | None = "end",
        ledger: pa.Table | None = None,
    ) -> CommitOutcome:
        """Commit a batch; its punctuation is the end of the batch's time unless `punctuation_us` says otherwise."""
        return committer.commit(
            batch_id,
            query_id,
            self.all_reports(batch_id) if reports is None else reports,
            punctuation_us=(batch_id + 1) * STEP_US if punctuation_us == "end" else punctuation_us,
            watermark_us=batch_id * STEP_US,
            ledger=ledger_rows(batch_id) if ledger is None else ledger,
            metrics=metrics_rows(batch_id),
            largest_ts_us=batch_id * STEP_US,
        )

    def batches(self, table: str = "matches") -> dict[int, int]:
        """Return the number of rows of each batch in a table."""
        column = scanned(DeltaTable(self.tables.path_of(table))).to_table(columns=["batch_id"]).column("batch_id")
        return {row["values"]: row["counts"] for row in column.value_counts().to_pylist()}

    def assert_each_once(self, batch_ids: Sequence[int]) -> None:
        """Assert that every table holds each of the batches once, and no other."""
        rows = {"matches": ROWS, "late": 1, "rejects": 1, "ledger": 2, "metrics": 2, "punctuations": 1}
        for table, count in rows.items():
            assert self.batches(table) == dict.fromkeys(batch_ids, count), table


@pytest.fixture
def join(tmp_path: object) -> Join:
    return Join(f"{tmp_path}/matches")


@pytest.fixture
def committer(join: Join) -> Committer:
    return join.committer()


@pytest.fixture
def rows_of() -> Callable[[int], pa.Table]:
    return match_rows
