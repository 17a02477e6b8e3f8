"""A query in this process, without Spark: the product's own source, exchange, cells and commit, one after the other.

::

    latestOffset ─► partitions ─► read ─► exchange rows ─► Cell.run, cell by cell ─► BatchCommit ─► tables

What Spark does between these steps (planning, shuffle, state store) is a dictionary here and is not timed.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.plan import Layout, Plan, choose_layout
from streamjoin_ds.plan.layout_choice import Load
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Generator, Join, Stream, bind
from streamjoin_ds.stream.commit import BatchCommit, committer_for, forget_committer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchFacts", "InProcessQuery", "generated_join"]

_QUERY_ID = "figures"


def generated_join(rates: tuple[str, str], rows: tuple[int, int], window_s: float, eps: int, seed: int) -> Join:
    """Return the papers' two-band join over two generated streams.

    Parameters
    ----------
    rates : (str, str)
        The generator's parameter ``rates`` of each stream.
    rows : (int, int)
        Tuples of each stream.
    window_s : float
    eps, seed : int
    """
    streams = [
        Stream(side, Generator("band2d", {"side": side, "rates": rate, "rows": count, "seed": seed}))
        for side, rate, count in zip("rs", rates, rows, strict=True)
    ]
    on = f"abs(r.x - s.a) <= {eps} AND abs(r.y - s.b) <= {eps}"
    return Join(streams, on, f"{round(window_s * 1e6)}us")


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What one batch was, and what it cost.

    Attributes
    ----------
    read, shipped, matches : int
        Records read, tuples sent to cells (copies and guests of older layouts among them), and results.
    layouts : tuple of str
        The layouts that had tuples in the windows, the newest last.
    source_s : float
        CPU time of planning the batch, reading it and dealing it out.
    cells_s : list of float
        CPU time of each cell.
    """

    read: int
    shipped: int
    matches: int
    layouts: tuple[str, ...]
    source_s: float
    cells_s: list[float]

    @property
    def seconds(self) -> float:
        """The batch's time if each cell had a core: the slowest cell's, and an even share of the source's."""
        return self.source_s / max(len(self.cells_s), 1) + max(self.cells_s, default=0.0)


class InProcessQuery:
    """One query over one folder.

    Parameters
    ----------
    join : Join
    folder : Path
    cells : int
    batch_rows : int
        Records of a batch, at most.
    schedule : sequence of (int, Layout), optional
        The layouts with the number of records from which on each is wanted. Empty: the rates decide.
    """

    def __init__(
        self,
        join: Join,
        folder: Path,
        cells: int,
        batch_rows: int,
        schedule: tuple[tuple[int, Layout], ...] = (),
    ) -> None:
        from streamjoin_ds.spark.admission import ReadMaxRows
        from streamjoin_ds.stream.sensors import SensorsDataSource

        bound = bind(join, {stream.name: infer_schema(stream) for stream in join.streams})
        first = schedule[0][1] if schedule else choose_layout(cells, Load.of_windows([1.0] * len(bound.names)))
        self._folder = folder
        self.plan = Plan(
            bound,
            first,
            cells,
            block_root=str(folder),
            table_root=TableSet(str(folder / "matches")).root,
            join_id=f"join-{folder.name}",
            state_root=str(folder / "blocks"),
            durable=False,
            layout_schedule=schedule,
        )
        committer_for(self.plan)
        source = SensorsDataSource({"plan": self.plan.to_json(), "max_rows_per_batch": str(batch_rows)})
        self._reader = source.streamReader(source.schema())
        self._limit = ReadMaxRows(batch_rows)
        self._offset = _plain(self._reader.initialOffset())
        self._states: dict[int, bytes] = {}
        self._batch_id = 0

    def close(self) -> None:
        """End the thread that looks after the tables."""
        forget_committer(self.plan)

    def batch(self) -> BatchFacts | None:
        """Do the next batch; return what it was, or None if there is nothing new."""
        began = time.process_time()
        end = _plain(self._reader.latestOffset(self._offset, self._limit))
        if end == self._offset:
            return None
        if self._batch_id:
            self._reader.commit(self._offset)
        batches = [batch for part in self._reader.partitions(self._offset, end) for batch in self._reader.read(part)]
        source_s = time.process_time() - began
        log = self._folder / "offsets" / str(self._batch_id)  # the commit reads the offsets there
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"v1\n{{}}\n{json.dumps(end)}")
        by_label = defaultdict(list)
        for batch in batches:
            for row in batch.to_pylist():
                by_label[row["cell"]].append(SimpleNamespace(**row))
        cells_s, reports, matches = [], [], 0
        for label, rows in sorted(by_label.items()):
            number = self.plan.cell_of(label)
            began = time.process_time()
            cell = Cell(self.plan, number, self._states.get(number), TaskFacts(self._batch_id, _QUERY_ID))
            files, report, self._states[number] = cell.run(rows)
            cells_s.append(time.process_time() - began)
            matches += report.matches
            reports += [SimpleNamespace(kind="file", cell=number, facts=file.to_json()) for file in files]
            reports.append(SimpleNamespace(kind="cell", cell=number, facts=report.to_json()))
        BatchCommit(self.plan)(cast("DataFrame", SimpleNamespace(collect=lambda: reports)), self._batch_id)
        shipped = sum(row.rows for rows in by_label.values() for row in rows if row.kind in ("tuples", "guests"))
        names = self.plan.bound.names
        live = BatchPlan.from_offset(end, names).layout.epochs_from(self.plan.layout).live
        read = sum(end["streams"][name]["seq"] - self._offset["streams"][name]["seq"] for name in names)
        self._offset = end
        self._batch_id += 1
        return BatchFacts(read, shipped, matches, tuple(str(epoch.layout) for epoch in live), source_s, cells_s)


def _plain(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
