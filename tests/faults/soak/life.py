"""One life of the soak's driver: ``python -m tests.faults.soak.life ROOT SETTINGS``; a kill may end it at any moment.

It is a `Life` with workers, as under Spark, or where ROOT/local is there a query without Spark (`live_locally`). It
runs batches until ROOT/stop is there, and ends with the batch at hand. With ROOT/drain it ends when there is nothing
new. Each batch is a line of ROOT/batches.jsonl. SETTINGS is JSON, with what may change at each start.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamjoin_ds.cell.cell import TaskFacts
from streamjoin_ds.cell.cell_windows import blocks_folder
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import note_table
from streamjoin_ds.checkpoint.lock import driving
from streamjoin_ds.checkpoint.recovery import cuts_option, recovered
from streamjoin_ds.plan import AskedLayout, Execution, Plan
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.spark.admission import ReadMaxRows
from streamjoin_ds.stream import local_query
from streamjoin_ds.stream.batch_planner import BatchPlanner
from streamjoin_ds.stream.commit import BatchCommit, committer_for
from streamjoin_ds.stream.local_query import LocalQuery
from streamjoin_ds.stream.query import first_layout
from streamjoin_ds.stream.query_options import QueryOptions
from streamjoin_ds.stream.sensors import SensorsDataSource
from streamjoin_ds.stream.source_facts import bound_join, located
from tests.faults.soak.checkpoint import Checkpoint
from tests.faults.soak.power import write_down
from tests.faults.soak.rows import soak_join, soak_kind
from tests.faults.soak.settings import hasten
from tests.faults.soak.worker import work

__all__ = ["QUERY_ID", "Life", "plan_of"]

QUERY_ID = "soak"
RETAIN_BATCHES = 5
_CELLS = 2  # where a kind's layout does not say it
_ATTEMPTS = 4  # attempts of a task, as many as Spark makes
_IDLE_S = 0.01


def plan_of(root: Path, exchange: str, execution: Mapping[str, Any], *, durable: bool) -> Plan:
    """Return the plan of the soak's join over the files below `root`, and give a new checkpoint its identity."""
    join, folder = located(soak_join(str(root / "input"))), root / "checkpoint"
    bound = bound_join(join)
    asked = AskedLayout.parse(soak_kind(root / "input").layouts[0], len(bound.names))
    asked.check(bound)
    layout = asked.grid or first_layout(bound, _CELLS, asked.kind)
    identity = CheckpointIdentity.load(folder) or CheckpointIdentity.create(folder, bound, layout, layout.cells)
    identity.check(bound)
    return Plan(
        bound,
        identity.layout,
        identity.partitions,
        exchange,
        str(folder),
        TableSet(str(root / "matches")).root,
        identity.join_id,
        execution=Execution(**execution),
        state_root=blocks_folder(folder),
        block_bytes=0,
        retain_batches=RETAIN_BATCHES,
        durable=durable,
        layout_schedule=() if asked.grid is None else ((0, identity.layout),),
        layout_kind=asked.kind,
    )


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection


class Life:
    """A driver with two workers.

    Parameters
    ----------
    root : Path
        The folder of all files of the soak.
    exchange, durable, execution, source
        What may change at each start; `source` has the source's options.
    take_over : bool, keyword-only
        Whether the checkpoint is held by a driver that sleeps.
    """

    def __init__(
        self,
        root: Path,
        *,
        exchange: str,
        durable: bool,
        execution: Mapping[str, Any],
        source: Mapping[str, str],
        take_over: bool = False,
    ) -> None:
        self.root, self.durable = root, durable
        folder = root / "checkpoint"
        self.plan = plan_of(root, exchange, execution, durable=durable)
        self.lock = driving(folder.resolve(), take_over=take_over)
        note_table(folder, self.plan.table_root)
        cuts = recovered(folder, TableSet(self.plan.table_root), self.plan.partitions)
        self.checkpoint = Checkpoint(folder, RETAIN_BATCHES)
        self.checkpoint.begin(QUERY_ID)
        self.max_rows = int(source["max_rows_per_batch"])
        self.options = {"plan": self.plan.to_json(), **source, **cuts_option(cuts)}
        sensors = SensorsDataSource(self.options)
        self.reader = sensors.streamReader(sensors.schema())
        self._context = multiprocessing.get_context("spawn")  # delta-rs does not survive a fork
        self._workers = [self._new_worker() for _ in range(2)]
        committer_for(self.plan)

    def run(self) -> None:
        """Run batches until told to end."""
        done, is_committed = self.checkpoint.last()
        _say(self.root, begins=done, read=_read_up_to(self._start_of(done + is_committed if done >= 0 else 0)))
        if done >= 0 and not is_committed:
            self._batch(done, self._start_of(done), self.checkpoint.offset(done))
        # As Spark does, it goes on from what it has done itself: a rival's entries stop it, and are not its start.
        start = self._start_of(done + 1)
        while not (self.root / "stop").exists():
            # Asked before the source is: what is written before the marker is read.
            is_draining = (self.root / "drain").exists()
            end = _plain(self.reader.latestOffset(start, ReadMaxRows(self.max_rows)))
            if end == start:
                if is_draining:
                    break
                time.sleep(_IDLE_S)
                continue
            self.checkpoint.log_offset(done + 1, end)
            if done >= 0:
                self.reader.commit(start)
            self._batch(done + 1, start, end)
            done, start = done + 1, end
        committer_for(self.plan)[1].close()

    def _start_of(self, batch_id: int) -> dict[str, Any]:
        return _plain(self.reader.initialOffset()) if batch_id == 0 else self.checkpoint.offset(batch_id - 1)

    def _batch(self, batch_id: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        began = time.monotonic()
        rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for found in self._done([("read", partition) for partition in self.reader.partitions(start, end)]):
            for row in found:
                rows[self.plan.labels.index(row["cell"])].append(row)
        task = TaskFacts(batch_id, QUERY_ID)
        cells = sorted(rows)
        states = [self.checkpoint.state(batch_id - 1, cell) for cell in cells]
        asked = [("cell", cell, state, task, rows[cell]) for cell, state in zip(cells, states, strict=True)]
        reports = []
        for cell, (files, facts, state) in zip(cells, self._done(asked), strict=True):
            self.checkpoint.keep_state(batch_id, cell, state)
            reports += [SimpleNamespace(kind="file", cell=cell, facts=file) for file in files]
            reports.append(SimpleNamespace(kind="cell", cell=cell, facts=facts))
        joined = time.monotonic()
        BatchCommit(self.plan)(SimpleNamespace(collect=lambda: reports), batch_id)
        committed = time.monotonic()
        self.checkpoint.log_commit(batch_id)
        times = {"batch_s": committed - began, "commit_s": committed - joined}
        _say(self.root, batch=batch_id, read=_read_up_to(end), durable=self.durable, **times)

    def _done(self, tasks: list[tuple[Any, ...]]) -> list[Any]:
        """Return what the tasks gave, in their order; another worker tries a task again whose worker dies."""
        results: list[Any] = [None] * len(tasks)
        left = [(number, 0) for number in range(len(tasks))]
        while left:
            under_way = []
            for place, worker in enumerate(self._workers):
                if not left:
                    break
                number, attempts = left.pop(0)
                with contextlib.suppress(OSError):  # the worker is dead, which shows below when it gives no answer
                    worker.pipe.send(tasks[number])
                under_way.append((place, number, attempts))
            for place, number, attempts in under_way:
                try:
                    done = self._workers[place].pipe.recv()
                except (EOFError, OSError):
                    self._workers[place] = self._new_worker()
                    if attempts + 1 == _ATTEMPTS:
                        raise
                    left.append((number, attempts + 1))
                    continue
                if isinstance(done, Exception):
                    raise done
                results[number] = done
        return results

    def _new_worker(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work, args=(theirs, str(self.root), self.plan.to_json(), self.options), daemon=True
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)


def live_locally(
    root: Path,
    patch: pytest.MonkeyPatch,
    *,
    exchange: str,
    durable: bool,
    execution: Mapping[str, Any],
    source: Mapping[str, str],
    take_over: bool = False,
) -> None:
    """Run a `LocalQuery` until told to end; the settings are those of `Life`."""
    run_batches, run_batch, latest = LocalQuery._run_batches, LocalQuery._run_batch, BatchPlanner.latest
    commit, is_over = BatchCommit.__call__, threading.Event()
    took_s = {}

    def begun(query: LocalQuery, readers: Any) -> None:
        start = query._log.start or query._planner.initial()
        _say(root, begins=query._log.batch - 1, read=_read_up_to(start))
        run_batches(query, readers)

    def done(query: LocalQuery, start: dict[str, Any], end: dict[str, Any], readers: Any) -> None:
        began = time.monotonic()
        run_batch(query, start, end, readers)
        took_s["batch_s"] = time.monotonic() - began
        _say(root, batch=query._log.batch - 1, read=_read_up_to(end), durable=durable, **took_s)

    def committed(committing: BatchCommit, *asked: Any) -> None:
        began = time.monotonic()
        commit(committing, *asked)
        took_s["commit_s"] = time.monotonic() - began

    def looked(planner: BatchPlanner, start: dict[str, Any], limit: int, **named: Any) -> dict[str, Any]:
        has_to_stop, is_draining = (root / "stop").exists(), (root / "drain").exists()
        end = start if has_to_stop else latest(planner, start, limit, **named)
        if end == start and (has_to_stop or is_draining):
            is_over.set()
        return end

    for owner, name, step in (
        (LocalQuery, "_run_batches", begun),
        (LocalQuery, "_run_batch", done),
        (BatchPlanner, "latest", looked),
        (BatchCommit, "__call__", committed),
    ):
        patch.setattr(owner, name, step)
    patch.setattr(local_query, "_RETAINED", RETAIN_BATCHES)
    rows = int(source["max_rows_per_batch"])
    options = QueryOptions(
        max_rows_per_batch=rows,
        layout=soak_kind(root / "input").layouts[0],
        exchange=exchange,
        execution=Execution(**execution),
        source_options=tuple((name, value) for name, value in source.items() if name != "max_rows_per_batch"),
        durable=durable,
        take_over=take_over,
        cells=_CELLS,
    )
    join = soak_join(str(root / "input"))
    query = local_query.start_local(join, str(root / "matches"), str(root / "checkpoint"), options)
    while not (is_over.wait(0.05) or query.awaitTermination(0)):
        pass
    query.stop()
    query.awaitTermination()


def _say(root: Path, **facts: Any) -> None:
    with (root / "batches.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def _read_up_to(offset: dict[str, Any]) -> dict[str, int]:
    """Return how many records of each stream were read at an offset."""
    return {stream: 0 if position is None else position["seq"] for stream, position in offset["streams"].items()}


def _plain(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


def main() -> None:
    root, settings = sys.argv[1:]
    write_down(Path(root))
    with pytest.MonkeyPatch.context() as patch:
        hasten(patch)
        if (Path(root) / "local").exists():
            live_locally(Path(root), patch, **json.loads(settings))
        else:
            Life(Path(root), **json.loads(settings)).run()


if __name__ == "__main__":
    main()
