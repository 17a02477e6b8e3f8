"""One driver of the query: what Spark's MicroBatchExecution does in each batch, and its tasks.

::

    recover ─► plan ─► offsets/n ─► source.commit(n - 1), purge ─► read ─► cells ─► sink ─► commits/n ─► plan ...
               new batches only                                    (tasks, attempts)

A batch whose offsets are logged but not its commit is done again with the same offsets. It is not planned again, so the
source hears of the batch before it only with the next one, as in Spark.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from streamjoin_ds.cell import cell as cell_room
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.checkpoint.recovery import cuts_option
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA
from streamjoin_ds.plan import spark_partition
from streamjoin_ds.spark.admission import ReadMaxRows
from streamjoin_ds.stream import commit as commit_room
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.sensors import SensorsStreamReader
from tests.faults.model.checkpoint import StateMissingError
from tests.faults.model.process import Killed, Process
from tests.faults.model.settings import Settings
from tests.faults.model.stored import StoredCheckpoint

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["QUERY_ID", "Driver", "StateMissingError", "TaskFailedError"]

QUERY_ID = "6b0c7a5e-model"
_ATTEMPTS = 4


class TaskFailedError(Exception):
    """A task died as often as Spark tries it."""


class Driver:
    """One life of the query."""

    def __init__(self, world: World, process: Process, batch_rows: int, settings: Settings) -> None:
        self.world, self.process, self.plan = world, process, settings.plan
        self.dice = random.Random(f"driver {process.name} {world.schedule.seed}")
        options = {"plan": self.plan.to_json(), "max_rows_per_batch": str(batch_rows)}
        options |= {"parts": str(1 + world.schedule.seed % 3), "max_block_rows": str(2 + world.schedule.seed % 5)}
        options |= settings.options
        self.options = options
        self._connect(options)
        self.limit = ReadMaxRows(batch_rows)
        self.reports: list[Any] = []
        self.laid_out = ""  # the batch's epochs
        self.log = world.checkpoint
        self.commit = commit_room.BatchCommit(self.plan)

    def _connect(self, options: dict[str, str]) -> None:
        world = self.world
        parsed = SourceOptions.parse(options)
        clocks = (lambda: world.now_s), (lambda: 1e9 + world.now_s)
        self.reader = SensorsStreamReader(parsed, EXCHANGE_SCHEMA, *clocks)
        self.tasks = SensorsStreamReader(parsed, EXCHANGE_SCHEMA)

    def run(self) -> None:
        """Run batches until there is nothing new."""
        self.log = log = self.world.moved(self.plan)
        # What is gone does not come back when more is to be kept.
        log.retain = min(log.retain, self.plan.retain_batches)
        cuts = self.world.recovered()
        if cuts:
            self._connect({**self.options, **cuts_option(cuts)})
        commit_room.committer_for(self.plan)  # as `start` does: tables are made before their files
        if isinstance(log, StoredCheckpoint):
            log.begin()
        initial = json.dumps(self.reader.initialOffset())
        batch = max(log.offsets, default=-1)
        planned = batch >= 0 and batch not in log.commits
        if not planned:
            batch += 1
        if batch and batch - 1 not in log.offsets:
            msg = f"offsets of batch {batch - 1}"
            raise StateMissingError(msg)
        start = log.offsets[batch - 1] if batch else initial
        while True:
            self.process.batch = batch
            end = log.offsets[batch] if planned else self._planned(batch, start)
            if end is None:
                return
            # Where the power went as they were logged, a driver that does the batch again finds them first.
            self.world.planned.setdefault(batch, json.loads(end))
            self.world.versions.setdefault(batch, set()).add(_version(end))
            self._batch(batch, json.loads(start), json.loads(end))
            start, batch, planned = end, batch + 1, False

    def _planned(self, batch: int, start: str) -> str | None:
        """Log the end of a new batch and return it; None if there is nothing new."""
        world, log = self.world, self.log
        world.point("plan")
        while True:
            world.feed()
            fed = world.fed  # of a self-join's partitions more may come while they are looked at
            world.now_s += world.clock.choice((0, 1, 1, 4))
            end = json.dumps(self.reader.latestOffset(json.loads(start), self.limit))
            world.seen_until(batch, json.loads(end))
            if end != start:
                break
            if fed:
                return None
        world.point("offsets")
        log.log_offsets(batch, end)
        world.versions.setdefault(batch, set()).add(_version(end))
        world.planned.setdefault(batch, json.loads(end))  # a driver that logs it again had stopped, and comes too late
        world.point("offsets logged")
        before = log.offsets.get(batch - 1)
        if before is not None:
            world.point("source commit")
            self.reader.commit(json.loads(before))
            world.source_done = json.loads(before)["streams"]
        world.point("purge")
        log.purge(batch, self.plan.retain_batches)
        return end

    def _batch(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        world = self.world
        self.laid_out = json.dumps(end.get("layout", {}).get("epochs"))
        rows = []
        for partition in self._shuffled(self.reader.partitions(start, end)):
            rows += self._task("read", lambda partition=partition: self._read(partition))
        by_label = defaultdict(list)
        for row in self._shuffled(rows):
            by_label[row.cell].append(row)
        self.reports = []
        partitions = self.plan.partitions
        for number in self._shuffled(range(partitions)):
            labels = [label for label in by_label if spark_partition(label, partitions) == number]
            cells = {self.plan.cell_of(label): label for label in labels}
            self.reports += self._task("cell", lambda n=number, c=cells: self._cells(batch, n, c, by_label))
        world.point("sink")
        self.commit(SimpleNamespace(collect=self._collected), batch)
        if self.reports:
            # Spark 4.1 refuses to go on from a batch whose state was not committed because nobody read it
            # (ARCHITECTURE.md, "A replay").
            msg = "STATE_STORE_COMMIT_VALIDATION_FAILED: the batch was not read"
            raise AssertionError(msg)
        world.point("sink done")
        world.point("commits")
        self.log.log_commit(batch)
        world.committed.add(batch)
        world.point("commits logged")

    def _collected(self) -> list[Any]:
        reports, self.reports = self._shuffled(self.reports), []
        return reports

    def _shuffled(self, items: Any) -> list[Any]:
        """Return the items in random order: Spark promises no order of rows, tasks or results."""
        items = list(items)
        self.dice.shuffle(items)
        return items

    # ------------------------------------------------------------------ tasks

    def _task(self, actor: str, body: Callable[[], list[Any]]) -> list[Any]:
        """Return the result of one of the attempts that ended well."""
        world = self.world
        for _ in range(_ATTEMPTS):
            process = world.task_process(actor, self.process, self.dice)
            try:
                result = world.attempt(process, body)
            except Killed:
                if self.process.dead:
                    raise
                continue
            if result is None:
                continue  # this attempt has stopped: another one takes its place
            for choice in world.second_attempts(process):
                again = world.attempt(world.task_process(actor, self.process, self.dice), body)
                result = again if choice % 2 and again is not None else result
            return result
        msg = f"a {actor} task died {_ATTEMPTS} times"
        raise TaskFailedError(msg)

    def _read(self, partition: Any) -> list[Any]:
        world = self.world
        world.point("begin")
        rows = []
        for batch in self.tasks.read(partition):
            assert batch.schema.names == EXCHANGE_SCHEMA.names
            rows += [SimpleNamespace(**row) for row in batch.to_pylist()]
        world.point("end")
        return rows

    def _cells(self, batch: int, partition: int, cells: dict[int, int], by_label: dict[int, list[Any]]) -> list[Any]:
        """Run one task of the stateful operator: each key of a partition that has rows, then the state's version."""
        world = self.world
        world.point("begin")
        state = dict(self.log.states.get((partition, batch), {}))
        history = self.log.kind_of(partition, batch)
        if batch and not state and cells:
            msg = f"version {batch} of partition {partition}"
            raise StateMissingError(msg)
        reports, has_server = [], world.has_server(self.process)
        for cell in self._shuffled(cells):
            rows = self._shuffled(by_label[cells[cell]])
            task = cell_room.TaskFacts(batch, QUERY_ID)
            live = LiveWindows.of(self.plan, world.server_of_a_task()) if has_server else None
            files, report, blob = cell_room.Cell(self.plan, cell, state.get(cell), task, live).run(rows)
            state[cell] = blob
            reports += [SimpleNamespace(kind="file", cell=cell, facts=file.to_json()) for file in files]
            reports.append(SimpleNamespace(kind="cell", cell=cell, facts=report.to_json()))
        world.point("state put")
        plan = self.plan
        # A batch that was taken back may be planned again, by another layout.
        dealt = (
            plan.exchange,
            self.options["parts"],
            self.options["max_block_rows"],
            plan.wanted,
            plan.layout_schedule,
            self.laid_out,
        )
        # The settings of blocks are the offset's, so they are the same for each attempt.
        execution = replace(plan.execution, merge_runs=None)
        kind = (plan.retain_batches, execution, has_server, *dealt, plan.wanted, plan.layout_schedule)
        self.log.keep_state(partition, batch + 1, state, hash((repr(kind), history)))
        world.point("state kept")
        return reports


def _version(offsets: str) -> str | None:
    """Return which version of the table the offsets of a batch name."""
    return json.loads(offsets).get("tables", {}).get("z", {}).get("version")
