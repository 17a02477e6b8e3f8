"""A small model of Spark's micro-batch protocol in one process: the real source, cells and commit, without Spark.

::

    latestOffset ─► partitions ─► read ─► exchange rows ─► Cell.run (a state a cell) ─► Committer.commit ─► commit

What Spark does between these calls (plan, shuffle, state store, logs) is a dictionary here. So a whole join over real
data takes seconds, and every batching, layout and way of the exchange can be tried.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.checkpoint.move import dealt_states, states_of_cells
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA
from streamjoin_ds.plan import DEFAULT_EXECUTION, CellLayout, Execution, Layout, Plan
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.spark.admission import ReadMaxRows
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.stream.commit import BatchCommit, committer_for
from streamjoin_ds.stream.sensors import SensorsDataSource

QUERY_ID = "microbatch"


@dataclass
class MicroBatches:
    """One query over one checkpoint folder."""

    bound: BoundJoin
    folder: Path
    layout: CellLayout
    exchange: str = "reference"
    max_rows_per_batch: int = 1_000_000
    execution: Execution = DEFAULT_EXECUTION
    options: dict[str, str] = field(default_factory=dict)
    blocks: bool = True
    block_bytes: int = 0
    retain_batches: int = 100
    layout_schedule: tuple[tuple[int, CellLayout], ...] = ()
    wanted: CellLayout | None = None
    layout_kind: str = "grid"
    live: LiveWindows | None = None
    states: dict[int, bytes] = field(default_factory=dict)
    batch_id: int = 0

    def __post_init__(self) -> None:
        self._connect()
        self.offset = json.loads(json.dumps(self.reader.initialOffset()))

    def _connect(self) -> None:
        self.plan = Plan(
            self.bound,
            self.layout,
            (self.wanted or self.layout).cells,
            self.exchange,
            str(self.folder),
            TableSet(str(self.folder / "matches")).root,
            f"join-{self.folder.name}",
            execution=self.execution,
            state_root=str(self.folder / "blocks") if self.blocks else "",
            block_bytes=self.block_bytes,
            retain_batches=self.retain_batches,
            layout_schedule=self.layout_schedule,
            wanted=self.wanted,
            layout_kind=self.layout_kind,
        )
        committer_for(self.plan)
        options = {"plan": self.plan.to_json(), "max_rows_per_batch": str(self.max_rows_per_batch), **self.options}
        self.source = SensorsDataSource(options)
        self.reader = self.source.limited_reader(self.source.schema())

    def restart(self, wanted: CellLayout) -> None:
        """Go on with this layout, which may have another number of cells."""
        before = self.plan.cells
        if self.bound.decided:
            assert isinstance(wanted, Layout)
            assert isinstance(self.layout, Layout)
            old, self.layout = self.layout, wanted
            self._connect()
            if self.states:
                self.states = dealt_states(self.bound, self.states, old, wanted, self.batch_id)
            return
        self.wanted = wanted
        self._connect()
        told = BatchPlan.from_offset(self.offset, self.bound.names).layout.epochs_from(self.layout)
        if self.states:
            self.states = states_of_cells(self.states, max(told.cells, before), max(told.cells, wanted.cells))

    def run(self) -> pa.Table:
        """Take in all there is; return the matches."""
        self.reader.prepareForTriggerAvailableNow()
        while self.step():
            pass
        committer_for(self.plan)[1].close()  # its thread would go on after the tables' folder is gone
        return self.matches()

    def step(self) -> bool:
        """Run one batch; return whether there was anything new."""
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, ReadMaxRows(self.max_rows_per_batch))))
        if end == self.offset:
            return False
        if self.batch_id:
            self.reader.commit(self.offset)
        log = self.folder / "offsets" / str(self.batch_id)  # the commit reads the offsets there
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"v1\n{{}}\n{json.dumps(end)}")
        reports = self.cells(self.exchanged(self.offset, end))
        BatchCommit(self.plan)(SimpleNamespace(collect=lambda: reports), self.batch_id)
        self.offset = end
        self.batch_id += 1
        return True

    def exchanged(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Return the exchange rows of a batch, as Spark would hand them to the cells."""
        rows = []
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                assert batch.schema.names == EXCHANGE_SCHEMA.names
                rows += [SimpleNamespace(**row) for row in batch.to_pylist()]
        return rows

    def cells(self, rows: list[Any]) -> list[Any]:
        """Run the cells over a batch's rows and keep their new states; return their reports."""
        by_label = defaultdict(list)
        for row in rows:
            by_label[row.cell].append(row)
        reports = []
        for label, cell_rows in by_label.items():
            number = self.plan.cell_of(label)
            files, report, state = Cell(
                self.plan, number, self.states.get(number), TaskFacts(self.batch_id, QUERY_ID), self.live
            ).run(cell_rows)
            self.states[number] = state
            reports += [SimpleNamespace(kind="file", cell=number, facts=file.to_json()) for file in files]
            reports.append(SimpleNamespace(kind="cell", cell=number, facts=report.to_json()))
        return reports

    def matches(self) -> pa.Table:
        return scanned(DeltaTable(self.plan.table_root)).to_table()

    def companion(self, name: str) -> pa.Table:
        return scanned(DeltaTable(TableSet(self.plan.table_root).path_of(name))).to_table()
