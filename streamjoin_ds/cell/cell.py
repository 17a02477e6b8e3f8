"""A cell of one batch: it takes the batch's exchange rows and writes files of matches.

The cell judges lateness against the parts before, passes the tuples to the engine, and writes the matches to Parquet
where they are found. It returns the files, a report, and its next state.

Late tuples and rejects become rows of their tables here (`AsideRows`). What a user may want to know at once about the
inputs is noted (`InputSeen`) and reported; the driver puts it into words.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import operator
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamjoin_ds.cell.answers import PartialAnswers
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import (
    CellWindows,
    give_tables,
    given_versions,
    opened_state,
    table_blocks,
)
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.cell.partition_clocks import clocks_in_order
from streamjoin_ds.engine.intake.lateness import StreamClock, low_watermark
from streamjoin_ds.engine.storage.journal import Arrived
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.exchange.outbox import LARGEST_TS, CellBatch, open_block
from streamjoin_ds.plan import Epochs, Plan
from streamjoin_ds.sink.tables import LATE_SCHEMA, REJECTS_SCHEMA, TableSet
from streamjoin_ds.sink.writer import FileReport, TableWriter
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.input_warnings import LateSeen, TimesSeen

if TYPE_CHECKING:
    pass

__all__ = ["STATE_DDL", "AsideRows", "Cell", "InputSeen", "TaskFacts", "batch_setting"]

_log = logging.getLogger(__name__)
STATE_DDL = "version INT, blob BINARY"
# While a cell joins a batch, it logs a warning each time it has found this many more matches.
_TELL_MATCHES = 1 << 26
# What the source has counted, by the names of an exchange row's columns.
_COUNTS = ("read", "late", "rejected", "filtered", "duplicates", "lost_offsets")
# Rows that are not joined: their stream, the part they came in, and a block of them.
_Aside = tuple[int, int, pa.Table]


def batch_setting(join_id: str) -> str:
    """Return the setting of a session that tells a join's tasks the batch's number and the query's id."""
    return f"spark.streamjoin_ds.batch.{join_id}"


class TaskFacts(Struct, frozen=True):
    """The batch and the query that a task works for.

    Attributes
    ----------
    batch_id : int
    query_id : str
    time_ms : int
        When Spark planned the batch, in milliseconds since 1970. It stands in Spark's offset log, so a batch that is
        done again has the time that it had before.
    """

    batch_id: int
    query_id: str
    time_ms: int = 0

    @classmethod
    def current(cls, time_ms: int = 0, join_id: str = "") -> TaskFacts:
        """Return what Spark tells the running task; `time_ms` is what its state tells.

        Under Spark Connect the function of ``foreachBatch`` is another client of the server, whose tasks are not told
        of the query. There the commit of a join tells them, by a setting of the session (`batch_setting`).
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a cell function runs in a task"
        batch_id, query_id = (
            context.getLocalProperty(key) for key in ("streaming.sql.batchId", "sql.streaming.queryId")
        )
        if query_id is None and (told := context.getLocalProperty(batch_setting(join_id))):
            batch_id, query_id = told.split()
        return cls(int(batch_id or 0), query_id or "", time_ms)


class AsideRows:
    """The maker of one batch's rows.

    Parameters
    ----------
    bound : BoundJoin
    batch_id : int
    """

    def __init__(self, bound: BoundJoin, batch_id: int) -> None:
        self._bound, self._batch_id = bound, batch_id

    def late(self, stream: int, table: pa.Table) -> pa.Table:
        """Return late tuples as rows of the late table. The tuple is JSON there, because streams differ in columns."""
        moments = pa.timestamp("us", tz="UTC")
        inside = (TS, SEQ, LARGEST_TS, *self._bound.stamps(stream))
        columns = [name for name in table.column_names if name not in inside]
        texts = [_json_text(row) for row in table.select(columns).to_pylist()]
        return self._fixed(
            LATE_SCHEMA,
            stream,
            table.num_rows,
            {
                "seq": table[SEQ],
                "ts": table[TS].cast(moments),
                "largest_ts": table[LARGEST_TS].cast(moments),
                "row": pa.array(texts, pa.string()),
            },
        )

    def rejected(self, stream: int, table: pa.Table) -> pa.Table:
        """Return rejects as rows of the rejects table."""
        return self._fixed(REJECTS_SCHEMA, stream, table.num_rows, {name: table[name] for name in table.column_names})

    def _fixed(self, schema: pa.Schema, stream: int, rows: int, columns: dict[str, Any]) -> pa.Table:
        columns |= {
            "stream": pa.array([self._bound.names[stream]] * rows, pa.string()),
            "batch_id": pa.array(np.full(rows, self._batch_id, np.int64)),
        }
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _json_text(row: dict[str, Any]) -> str:
    """Return a tuple as JSON. Values that are NaN or infinite, for which JSON has no number, become texts."""
    return json.dumps(_finite(row), default=str, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Return a value with texts in place of the numbers that JSON lacks, in lists and structs too."""
    if isinstance(value, dict):
        return {name: _finite(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class InputSeen:
    """The facts of one batch: see `streamjoin_ds.spec.input_warnings`.

    Parameters
    ----------
    names : sequence of str
        The streams.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._times: dict[str, Any] = {}
        self._late: dict[str, LateSeen] = {}
        self._rejects: dict[str, tuple[str | None, str]] = {}

    def begin(
        self,
        clocks: Sequence[StreamClock],
        tuples: Sequence[Sequence[pa.Table]],
        late: Iterable[tuple[int, int, pa.Table | None]],
    ) -> None:
        """Note the event times of the streams whose clocks knew no tuple before this batch."""
        aside = list(late)
        for stream, (name, clock) in enumerate(zip(self._names, clocks, strict=True)):
            if clock.largest is None:
                tables = [*tuples[stream], *(table for other, _, table in aside if other == stream and table)]
                seen = TimesSeen.together(TimesSeen.of(_numbers(table, TS), _numbers(table, SEQ)) for table in tables)
                self._times |= {} if seen is None else {name: seen.to_facts()}

    def late(self, tables: Iterable[tuple[int, pa.Table]]) -> None:
        """Note how late late tuples are, by stream, which have `LARGEST_TS`."""
        for stream, table in tables:
            seen = self._late.setdefault(self._names[stream], LateSeen())
            seen.add(_numbers(table, LARGEST_TS) - _numbers(table, TS))

    def rejects(self, tables: Iterable[pa.Table]) -> None:
        """Note the column and the reason of a reject of each stream, of rows of the rejects table."""
        firsts = [row for table in tables for row in table.slice(0, 1).to_pylist()]
        self._rejects = {row["stream"]: (row["column"], row["reason"]) for row in firsts}

    def facts(self) -> dict[str, Any]:
        """Return what was noted as plain JSON values."""
        late = {name: seen.to_facts() for name, seen in self._late.items()}
        return {"rejects_for": self._rejects, "times": self._times, "late_by": late}


def _numbers(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = table[column].to_numpy()
    return numbers


@dataclass
class _Part:
    """One read task's tuples of one stream that are for this cell."""

    largest_us: int | None = None
    end_seq: int = 0
    own: list[Arrived] = field(default_factory=list)
    first_seqs: list[int] = field(default_factory=list)
    guests: list[tuple[int, int, Arrived]] = field(default_factory=list)  # with their epoch and first number

    def in_order(self) -> Iterable[Arrived]:
        return (self.own[i] for i in np.argsort(self.first_seqs, kind="stable"))

    def guests_in_order(self) -> Iterable[tuple[int, Arrived]]:
        return ((epoch, arrived) for epoch, _, arrived in sorted(self.guests, key=operator.itemgetter(0, 1)))


class Cell:
    """The join of one cell over one batch. It makes reports and the next state from exchange rows and a state."""

    def __init__(
        self, plan: Plan, cell: int, state: bytes | None, task: TaskFacts, live: LiveWindows | None = None
    ) -> None:
        if state is None and task.batch_id:
            msg = f"the state of cell {cell} is missing in batch {task.batch_id}"
            raise StateCorruptError(msg, name="state", hint="restore the checkpoint from a spare copy")
        self.plan, self.number, self.task, self._lives = plan, cell, task, live
        self.bound = plan.bound
        self.streams = len(self.bound.names)
        self._kept = opened_state(self.bound, state)
        self.state = self._kept or CellState.first(self.bound)
        # Over DataFrames no row tells it: there the versions are those of the query's start.
        self.batch = CellBatch(tables=given_versions(plan, task.batch_id) if plan.foreign else {})
        self.clocks = [
            # Rows of DataFrames have no order either, or one that `orders` judges by.
            StreamClock(stream.delay_us, by_partition=stream.is_judged_at_source or plan.foreign)
            for stream in self.bound.join.streams
        ]
        for clock, largest in zip(self.clocks, self.state.largest_us, strict=True):
            clock.largest, clock.floor = largest, self.state.watermark_us
        self.orders = clocks_in_order(plan, self.state.partitions)
        # For each stream the stored tuples that this cell counts, where it is also given some that other cells count.
        self.counted_apart: list[list[pa.Table]] = [[] for _ in range(self.streams)]
        self.overtaken = [0] * self.streams  # tuples that are late by the watermark, not by their own stream
        self.tables = TableSet(plan.table_root)
        self.largest_before: dict[tuple[int, int], int] = {}
        self.label = f"{task.batch_id:010d}-{cell:04d}"  # in the names of the files this cell writes
        self.ledger = [dict.fromkeys((*_COUNTS, "stored", "null_keys"), 0) for _ in range(self.streams)]
        self.reports: list[FileReport] = []
        self.seen = InputSeen(self.bound.names)
        self.keys: list[tuple[int, str]] = []  # samples of keys, on their way to the driver
        self.shipped_rows = 0  # tuples that were sent here to be joined, guests among them

    @property
    def epochs(self) -> Epochs:
        """The batch's epochs."""
        return self.batch.epochs or Epochs.first(self.plan.layout)

    def run(self, rows: Iterable[Any]) -> tuple[list[FileReport], CellReport, bytes]:
        """Join the batch's exchange rows. Return the files written, the cell's report, and its next state."""
        began_ns = time.monotonic_ns()
        parts, asides = self._sorted_out(rows)
        self.seen.begin(
            self.clocks, [[one.tuples for part in by.values() for one in part.own] for by in parts], asides["late"]
        )
        self.windows = CellWindows(self.plan.sized(self.batch.sizing), self.number, self._kept, live=self._lives)
        self.windows.enter(self.epochs.current, [clock.largest for clock in self.clocks])
        accepted, guests, late = self._judged(parts)
        next_seqs = [max((part.end_seq for part in of_stream.values()), default=0) or None for of_stream in parts]
        self._set_aside(late, asides)
        for stream, order in self.orders.items():
            order.advance(self.clocks[stream], self.task.time_ms)
        engines = self.windows.engines
        blocks = {name: version.block for name, version in self.batch.tables.items()}
        give_tables(self.plan, engines, blocks, table_blocks(self.plan))
        before = {engine: dict(engine.counters) for engine in engines}
        # The watermark is the batch's punctuation too, for every kind of window: a result of a later batch has a tuple
        # of that batch, which is not late and so not older than this watermark.
        watermark = low_watermark(self.clocks, self.state.watermark_us)
        matches = 0
        answers = PartialAnswers(self.plan, self.epochs.current.layout, self.number, self.label)
        schema = self.bound.result_schema
        matches_writer = TableWriter(
            self.tables.matches,
            schema,
            table="matches",
            batch_id=self.task.batch_id,
            label=self.label,
            durable=self.plan.durable,
            behind=self.plan.durable or self.plan.commit_forces,
        )
        with self.windows.staffed(_rows_of(accepted, *guests.values())) as staff, matches_writer as writer:
            for engine, chunk in staff.timed(self._joined(accepted, guests, watermark, next_seqs)):
                if (matches + chunk.num_rows) // _TELL_MATCHES > matches // _TELL_MATCHES:
                    share = engine.progress.fraction
                    _log.warning(
                        "cell %s has found %d matches in %.0f %% of its batch", self.label, matches, 100 * share
                    )
                chunk = answers.taken_from(chunk)
                matches += chunk.num_rows
                ids = pa.array(np.full(chunk.num_rows, self.task.batch_id, np.int64))
                writer.write(pa.Table.from_arrays([*chunk.columns, ids], schema=schema))
            self.reports += writer.close()
        self._count_nulls(before)
        told = answers.reported()
        largest_us = [clock.largest for clock in self.clocks]
        blob = self.windows.saved(
            self.task.batch_id, largest_us, watermark, next_seqs, answers.blocks, self._clocks_kept(watermark)
        )
        counted = [(engine.counters, of_old) for engine, of_old in before.items()]
        versions = {name: version.version for name, version in self.batch.tables.items()}
        report = CellReport(
            query_id=self.task.query_id,
            watermark_us=watermark,
            largest_us=largest_us,
            ledger=self.ledger,
            matches=matches,
            candidates=sum(now["candidates"] - of_old["candidates"] for now, of_old in counted),
            expired_rows=sum(now["expired_rows"] - of_old["expired_rows"] for now, of_old in counted),
            state_rows=sum(now["state_rows"] for now, _ in counted),
            undecided_rows=sum(now["undecided_rows"] for now, _ in counted),
            state_bytes=len(blob),
            shipped_rows=self.shipped_rows,
            idle=[stream for stream, clock in enumerate(self.clocks) if clock.idle],
            overtaken=self.overtaken,
            **self.seen.facts(),
            partitions={self.bound.names[stream]: order.told() for stream, order in self.orders.items()},
            answers=told,
            blocks=[*self.windows.new_blocks, *answers.blocks],
            duration_ms=(time.monotonic_ns() - began_ns) // 1_000_000,
            threads=staff.threads,
            epoch=self.epochs.current.number,
            epochs_over=[one.number for one in self.epochs.older if one.number not in self.windows.epochs],
            layout=str(self.epochs.current.layout),
            cells=self.epochs.cells,
            has_ended=self.windows.has_ended,
            keys=sorted(self.keys),
            table_versions=json.dumps(versions, separators=(",", ":")) if versions else None,
            backlog_rows=self.batch.backlog_rows,
            backlog_us=self.batch.backlog_us,
        )
        return self.reports, report, blob

    def _joined(
        self,
        accepted: dict[int, list[Arrived]],
        guests: dict[int, dict[int, list[Arrived]]],
        watermark: int | None,
        next_seqs: list[int | None],
    ) -> Iterator[tuple[WindowJoin, pa.Table]]:
        """Yield the results of the batch, each with the engine of its epoch: older epochs first."""
        for older in self.windows.older:
            of_epoch = guests.get(older.epoch.number, {})
            for chunk in older.push_guests(of_epoch, watermark, next_seqs):
                yield older.engine, chunk
        current = self.windows.current
        if current is not None:
            for chunk in current.push(accepted, watermark, next_seqs):
                yield current.engine, chunk

    def _sorted_out(self, rows: Iterable[Any]) -> tuple[list[dict[int, _Part]], dict[str, list[_Aside]]]:
        """Return the tuples by stream and part, and the rows that the source set aside, by kind."""
        parts: list[dict[int, _Part]] = [defaultdict(_Part) for _ in range(self.streams)]
        asides: dict[str, list[_Aside]] = {"late": [], "rejects": []}
        for row in rows:
            if row.kind == "batch":
                self.batch = CellBatch.from_json(bytes(row.payload), self.streams)
                for stream in self.batch.idle:
                    self.clocks[stream].idle = True
                for stream, low_us in self.batch.lows_us.items():
                    self.clocks[stream].low = low_us
                continue
            if row.kind == "keys":
                self.keys.append((row.stream, base64.b64encode(bytes(row.payload)).decode()))
                continue
            table = open_block(self.plan, row.block, bytes(row.payload))
            if row.kind == "steps":
                self.orders[row.stream].hear(table)
                continue
            ledger = self.ledger[row.stream]
            for name in _COUNTS:
                ledger[name] += int(getattr(row, name))
            if row.kind not in ("tuples", "guests"):
                asides[row.kind].append((row.stream, row.part, table))
                continue
            self.shipped_rows += 0 if table is None else table.num_rows
            part = parts[row.stream][row.part]
            if row.kind == "guests":
                part.guests.append((int(row.epoch), row.first_seq, Arrived(table, row.block)))
                continue
            if row.largest_ts != NO_TIME:
                part.largest_us = max(row.largest_ts, NO_TIME if part.largest_us is None else part.largest_us)
            part.end_seq = max(part.end_seq, int(row.end_seq))
            if table is not None:
                part.own.append(Arrived(table, row.block))
                part.first_seqs.append(row.first_seq)
        return parts, asides

    def _judged(
        self, parts: list[dict[int, _Part]]
    ) -> tuple[dict[int, list[Arrived]], dict[int, dict[int, list[Arrived]]], list[_Aside]]:
        """Split off the tuples that are late against the parts before theirs, and move the clocks.

        Return the tuples of the batch's epoch by stream, and the guests by epoch and stream, and the late tuples.
        """
        accepted: dict[int, list[Arrived]] = {}
        guests: dict[int, dict[int, list[Arrived]]] = defaultdict(lambda: defaultdict(list))
        late: list[_Aside] = []
        layout = self.epochs.current.layout
        for stream, by_number in enumerate(parts):
            clock, order = self.clocks[stream], self.orders.get(stream)
            for number, part in sorted(by_number.items()):
                # A partition's own order has judged at the source. The parts before say nothing about it.
                largest = None if clock.by_partition else clock.largest
                self.largest_before[stream, number] = NO_TIME if largest is None else largest
                for arrived in part.in_order():
                    table = arrived.tuples
                    received = layout.received(self.bound, self.number, stream, table)
                    by_watermark = clock.late_in_part(table[TS].to_numpy())
                    by_order = (
                        np.zeros(len(by_watermark), np.bool_) if order is None else order.late(table, clock.delay_us)
                    )
                    mask = by_watermark | by_order
                    is_gone = mask & received.is_counted
                    if is_gone.any():
                        gone = table.filter(pa.array(is_gone))
                        judge = clock.judges(gone[TS].to_numpy())
                        if order is not None:
                            judge = np.where(by_order[is_gone], order.before(gone), judge)
                            self.overtaken[stream] += int(np.count_nonzero(is_gone & ~by_order))
                        elif not self.plan.foreign:
                            self.overtaken[stream] += clock.overtaken(gone[TS].to_numpy())
                        late.append((stream, number, gone.append_column(LARGEST_TS, pa.array(judge))))
                        self.ledger[stream]["late"] += gone.num_rows
                    is_stored = ~mask & received.is_counted
                    self.ledger[stream]["stored"] += int(np.count_nonzero(is_stored))
                    if not isinstance(received.is_counted, bool):
                        self.counted_apart[stream].append(table.filter(pa.array(is_stored)))
                    is_kept = ~mask if received.is_kept is None else ~mask & received.is_kept
                    accepted.setdefault(stream, []).append(arrived.kept(is_kept))
                for epoch, arrived in part.guests_in_order():
                    guests[epoch][stream].append(arrived.kept(~clock.late_in_part(arrived.tuples[TS].to_numpy())))
                clock.advance(part.largest_us)
            if self.plan.foreign:
                clock.low = clock.largest
        return accepted, guests, late

    def _set_aside(self, late: list[_Aside], asides: dict[str, list[_Aside]]) -> None:
        # The largest time before a tuple is the larger of that in its part, which the source knew, and that in the
        # parts before it, or in its partition before it.
        found = []
        for stream, part, table in asides["late"]:
            order, i = self.orders.get(stream), table.schema.get_field_index(LARGEST_TS)
            known = self.largest_before[stream, part] if order is None else pa.array(order.before(table))
            found.append((stream, table.set_column(i, LARGEST_TS, pc.max_element_wise(table[i], known))))
        rows = AsideRows(self.bound, self.task.batch_id)
        found += [(stream, table) for stream, _, table in late]
        self.seen.late(found)
        late_tables = [rows.late(*aside) for aside in found]
        reject_tables = [rows.rejected(stream, table) for stream, _, table in asides["rejects"]]
        self.seen.rejects(reject_tables)
        for kind, path, schema, tables in (
            ("late", self.tables.late, LATE_SCHEMA, late_tables),
            ("rejects", self.tables.rejects, REJECTS_SCHEMA, reject_tables),
        ):
            if tables:
                with TableWriter(
                    path,
                    schema,
                    table=kind,
                    batch_id=self.task.batch_id,
                    label=self.label,
                    durable=self.plan.durable,
                ) as writer:
                    for table in tables:
                        writer.write(table)
                    self.reports += writer.close()

    def _clocks_kept(self, watermark_us: int | None) -> list[dict[str, Any] | None] | None:
        """Return `CellState.partitions` after the batch."""
        kept: list[dict[str, Any] | None] = [None] * self.streams
        for stream, order in self.orders.items():
            order.forget(watermark_us, self.clocks[stream].delay_us)
            kept[stream] = order.to_facts()
        return kept if self.orders else None

    def _count_nulls(self, before: dict[WindowJoin, dict[str, Any]]) -> None:
        """Count the tuples with a null in a compared column among those that this cell counts as stored."""
        current = self.windows.current
        if current is None:
            return
        for stream, name in enumerate(self.bound.names):
            if self.counted_apart[stream]:  # the engine has others besides
                self.ledger[stream]["null_keys"] = current.engine.null_keys(stream, self.counted_apart[stream])
            elif self.ledger[stream]["stored"]:
                counts = [counters["null_keys"][name] for counters in (current.engine.counters, before[current.engine])]
                self.ledger[stream]["null_keys"] = counts[0] - counts[1]


def _rows_of(*batches: Mapping[int, Sequence[Arrived]]) -> int:
    return sum(one.tuples.num_rows for batch in batches for of_stream in batch.values() for one in of_stream)
