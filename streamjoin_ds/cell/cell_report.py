"""What a cell says of its batch. The driver sums it over the cells, and Spark's progress shows some of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["MEASURED_COUNTS", "REPORT_COLUMNS", "REPORT_DDL", "CellReport"]

# A row is a file that the cell wrote (`FileReport`), or its report. Numbers that Spark sums up itself stand beside a
# report (`CellReport.measured`): to take them from its JSON was a fifth of Java's time of a small batch.
REPORT_COLUMNS = ("kind", "cell", "facts", "measured")
REPORT_DDL = "kind STRING, cell INT, facts STRING, measured ARRAY<BIGINT>"
MEASURED_COUNTS = ("read", "stored", "late", "rejected", "filtered", "duplicates", "lost_offsets")
"""The counts of the ledger with which `CellReport.measured` begins."""


@dataclass(slots=True)
class CellReport:
    """One cell's report of one batch. A field with the name of a column of the metrics is that column.

    Attributes
    ----------
    query_id : str
    watermark_us : int or None
    largest_us : list of int or None
        Each stream's largest event time so far.
    ledger : list of dict
        Each stream's counts, by the names of the ledger's columns.
    matches, candidates, expired_rows, state_rows, undecided_rows : int
        Sums over the engines of the cell's epochs.
    state_bytes : int
        Bytes of the state's row.
    shipped_rows : int
        Tuples that were sent here to be joined, guests among them.
    idle : list of int
        Streams that do not hold the watermark.
    overtaken : list of int
        Each stream's tuples that are late by the watermark, not by their own stream.
    rejects_for, times, late_by : dict
        What a user may want to know of the inputs, by stream (`InputSeen`).
    partitions : dict
        Of the streams over DataFrames the slowest partition that is not idle, and the furthest.
    answers : dict
        Rows that the commit puts together with those of other cells (`PartialAnswers.reported`).
    blocks : list of str
        Blocks that the cell wrote.
    duration_ms, threads : int
    epoch : int
        The number of the batch's epoch.
    epochs_over : list of int
        Older epochs that have nothing in any window of the cell any more.
    layout : str
    cells : int
        How many cells hear of the batch.
    has_ended : bool
        Whether the cell has nothing to keep.
    keys : list of [int, str]
        Samples of keys by stream, each a block in base64.
    table_versions : str or None
        The versions of the tables that the batch joined, as JSON; None where there are none.
    backlog_rows, backlog_us : int or None
        As in `CellBatch`.
    """

    query_id: str
    watermark_us: int | None
    largest_us: list[int | None]
    ledger: list[dict[str, int]]
    matches: int
    candidates: int
    expired_rows: int
    state_rows: int
    undecided_rows: int
    state_bytes: int
    shipped_rows: int
    idle: list[int]
    overtaken: list[int]
    rejects_for: dict[str, Any]
    times: dict[str, Any]
    late_by: dict[str, Any]
    partitions: dict[str, Any]
    answers: dict[str, Any]
    blocks: list[str]
    duration_ms: int
    threads: int
    epoch: int
    epochs_over: list[int]
    layout: str
    cells: int
    has_ended: bool
    keys: list[Any]
    table_versions: str | None
    backlog_rows: int | None
    backlog_us: int | None

    def measured(self) -> list[int | None]:
        """Return what `streamjoin_ds.stream.progress` has Spark observe.

        First `MEASURED_COUNTS` of all streams together, then matches, candidates, rows and bytes of the state,
        watermark, largest event time, and the rows and the time of the backlog.
        """
        counts = [sum(count[name] for count in self.ledger) for name in MEASURED_COUNTS]
        largest_us = max((value for value in self.largest_us if value is not None), default=None)
        sums = [self.matches, self.candidates, self.state_rows, self.state_bytes]
        return [*counts, *sums, self.watermark_us, largest_us, self.backlog_rows, self.backlog_us]

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_json(cls, text: str) -> CellReport:
        """Return what `to_json` wrote."""
        facts: Mapping[str, Any] = json.loads(text)
        return cls(**facts)
