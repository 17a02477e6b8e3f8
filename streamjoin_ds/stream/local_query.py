"""A query without Spark: planner, read tasks, cells and commit in one process of one machine.

::

    BatchPlanner.latest ─► BatchLog.plan_batch ─► tasks ─► exchange rows ─► Cell.run ─► states ─► BatchCommit ─► done

Every part is the one that Spark's workers run, and so are the tables and the checkpoint. A batch passes the same steps
in the same order (ARCHITECTURE.md, "Crash points"): a checkpoint goes on here, or under Spark, from any of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from streamjoin_ds.blocks.cache import reuse_freed_memory
from streamjoin_ds.blocks.folder import LocalFolder
from streamjoin_ds.blocks.place import Place, is_local
from streamjoin_ds.cell.cell import Cell, TaskFacts
from streamjoin_ds.cell.cell_windows import blocks_folder
from streamjoin_ds.cell.epoch_windows import LiveWindows
from streamjoin_ds.checkpoint.batch_log import BatchLog
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.checkpoint.lock import driving
from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA, exchange_rows
from streamjoin_ds.machine import FreedMemory
from streamjoin_ds.plan import Plan
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.spec import Join, duration_us
from streamjoin_ds.spec.join_parts import facts_html
from streamjoin_ds.stream.batch_planner import BatchPlanner
from streamjoin_ds.stream.commit import BatchCommit, committer_for
from streamjoin_ds.stream.query import plan_for, reader_options, recovered_plan
from streamjoin_ds.stream.query_options import QueryOptions, SourceOptions
from streamjoin_ds.stream.sensor_tasks import ReadTask
from streamjoin_ds.stream.source_facts import located

__all__ = ["LocalQuery", "start_local"]

_log = logging.getLogger(__name__)
_RETAINED = 100  # batches whose offsets and states are kept, as Spark does
# Pauses between two looks for new records, while there are none.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05


@dataclass(frozen=True)
class LocalHost:
    """The `Host` of a query that is this process: it has one cell, whose threads share the work."""

    def check(self) -> None:
        """Do nothing: this package runs here."""

    def cells(self, options: QueryOptions, checkpoint: Place, kept: int | None) -> int:
        """Return the number of cells: as asked, else the checkpoint's, else one."""
        return options.cells or kept or 1

    def cores(self) -> int:
        """Return how many cores the cells of this machine share."""
        return usable_core_count()

    def ways(self, checkpoint: Place, table_root: str, exchange: str) -> tuple[str, str]:
        """Return the way of the exchange, and the folder of the windows' blocks."""
        if not is_local(str(checkpoint)):
            msg = "a query without Spark keeps its checkpoint on a disk of this machine"
            raise ArgumentError(msg, name="checkpoint", hint="give a folder; the tables may lie in an object store")
        return ("reference" if exchange == "auto" else exchange), blocks_folder(checkpoint)

    def retained_batches(self, *, durable: bool) -> int:
        """Return of how many batches offsets and states are kept."""
        return _RETAINED


def start_local(join: Join, to: str, checkpoint: str, options: QueryOptions) -> LocalQuery:
    """Start a join in this process; see `StreamJoin.run_local`."""
    folder = checkpoint_place(checkpoint)
    plan = plan_for(located(join), LocalHost(), TableSet(to).root, folder, options)
    lock = driving(folder, take_over=options.take_over)
    try:
        if lock.is_driven:
            msg = "a query of this process runs with this checkpoint"
            raise ArgumentError(msg, name="checkpoint", hint="stop it first, or give a checkpoint of its own")
        plan, cuts = recovered_plan(plan)
        committer_for(plan)  # makes the tables, or refuses them, before anything runs
        query = LocalQuery(plan, options, cuts)
        query.start()
    except BaseException:
        lock.give_up()
        raise
    lock.hold_while(query)
    return query


class _Reported(NamedTuple):
    """A row of a cell's report, with the columns of `REPORT_DDL` that the commit needs."""

    kind: str
    cell: int
    facts: str


class LocalQuery:
    """A join that runs in this process, in a thread of its own. It is used as a `StreamingQuery` of Spark.

    Parameters
    ----------
    plan : Plan
        The plan, whose checkpoint's files fit together.
    options : QueryOptions
    cuts : sequence of dict
        How the next batches are cut (`recovered`).
    clock, wall : callable, optional
        As for `BatchPlanner`.
    """

    def __init__(
        self,
        plan: Plan,
        options: QueryOptions,
        cuts: Sequence[Any],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._plan, self._options = plan, options
        source = SourceOptions.parse(reader_options(plan, options, cuts))
        self._planner = BatchPlanner(source, EXCHANGE_SCHEMA, clock, wall)
        self._most_rows = source.max_rows_per_batch
        # Here the commit sees all that cells write. Forced in one group that takes less than half of the time.
        self._commit = BatchCommit(plan, options.restarts, forces=True)
        self._of_cells = replace(plan, durable=False, commit_forces=plan.durable)
        if plan.state_root:  # the commit forces what is in the folder, not the folder's own name
            LocalFolder(Path(plan.state_root), durable=plan.durable).make()
        self._log = BatchLog(plan)
        self._live = LiveWindows.of(plan)
        self.id = self._log.query_id
        self.name = f"streamjoin-{plan.join_id[:8]}"
        self.lastProgress: dict[str, Any] | None = None
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin with the batches, in the query's thread."""
        self._thread.start()

    @property
    def told(self) -> list[tuple[str, str]]:
        """How far the query is, for people: a word, and what it stands for."""
        is_new, failed = self._thread.ident is None, self._error is not None
        state = "not started" if is_new else "runs" if self.isActive else "ended by an error" if failed else "ended"
        found = [("state", state), ("batches", f"{self._log.batch:,} done"), ("matches", self._plan.table_root)]
        return found + ([("error", str(self._error))] if failed else [])

    def __repr__(self) -> str:
        title = f"Query of {', '.join(self._plan.bound.member_names)} in this process"
        return "\n".join([title, *(f"  {word:<8} {text}" for word, text in self.told)])

    def _repr_html_(self) -> str:
        return facts_html(f"Query of {', '.join(self._plan.bound.member_names)} in this process", self.told)

    @property
    def isActive(self) -> bool:
        """Whether the query runs."""
        return self._thread.is_alive()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended; raise the error by which it did.

        Returns
        -------
        bool or None
            With a timeout in seconds: whether it has ended.
        """
        self._thread.join(timeout)
        if not self._thread.is_alive() and self._error is not None:
            raise self._error
        return None if timeout is None else not self._thread.is_alive()

    def exception(self) -> BaseException | None:
        """Return the error by which the query ended; None where there is none."""
        return self._error

    def stop(self) -> None:
        """End the query after the batch that runs; return when it has ended."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        reuse_freed_memory()
        try:
            with ThreadPoolExecutor(usable_core_count(), "streamjoin-read") as readers:
                self._run_batches(readers)
        except BaseException as error:
            self._error = error

    def _run_batches(self, readers: ThreadPoolExecutor) -> None:
        log, planner = self._log, self._planner
        if self._options.available_now:
            planner.freeze()
        trigger_s = 0.0 if self._options.trigger is None else duration_us(self._options.trigger, "trigger") / 1e6
        pause_s, freed = _FIRST_PAUSE_S, FreedMemory()
        while not self._stopped.is_set():
            began_s = time.monotonic()
            start = log.start or planner.initial()
            if log.planned is None:
                end = planner.latest(start, self._most_rows, each=readers.map)
                if end == start:
                    if self._options.available_now:
                        return
                    freed.give_back()
                    self._stopped.wait(max(pause_s, trigger_s))
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                    continue
                log.plan_batch(end, time.time_ns() // 1_000_000)
            pause_s = _FIRST_PAUSE_S
            assert log.planned is not None, "it was planned"
            if log.batch:
                planner.committed(start)
            self._run_batch(start, log.planned, readers)
            self._stopped.wait(max(0.0, trigger_s - (time.monotonic() - began_s)))

    def _run_batch(self, start: dict[str, Any], end: dict[str, Any], readers: ThreadPoolExecutor) -> None:
        log, batch = self._log, self._log.batch
        rows = self._exchanged(self._planner.tasks(start, end), readers)
        ahead = readers.map(self._planner.look_ahead, [end], [self._most_rows])
        states, reported = self._joined(rows)
        log.keep_states(states)
        self._commit(_Collected(reported), batch)  # type: ignore[arg-type]  # all that it asks of a DataFrame
        log.end_batch()
        list(ahead)  # an error of it is one of the next batch
        facts = self._planner.report() or end
        self.lastProgress = {"id": self.id, "name": self.name, "batchId": batch, "sources": [{"latestOffset": facts}]}

    def _exchanged(self, tasks: Sequence[ReadTask], readers: ThreadPoolExecutor) -> dict[int, list[Any]]:
        """Return the exchange rows of a batch by the labels of their cells. Streams are read side by side."""
        of_stream: dict[int, list[ReadTask]] = defaultdict(list)
        for task in tasks:
            of_stream[task.stream].append(task)
        found: dict[int, list[Any]] = defaultdict(list)
        for rows in readers.map(self._read, of_stream.values()):
            for row in rows:
                found[row.cell].append(row)
        return found

    def _read(self, tasks: Sequence[ReadTask]) -> list[Any]:
        return [row for task in tasks for batch in self._planner.read(task) for row in exchange_rows(batch)]

    def _joined(self, rows: Mapping[int, Sequence[Any]]) -> tuple[dict[int, bytes], list[_Reported]]:
        """Run the cells; return their next states, and what they report."""
        states, reported = dict(self._log.states), []
        task = TaskFacts(self._log.batch, self.id)
        for label, of_cell in rows.items():
            number = self._plan.cell_of(label)
            files, report, states[number] = Cell(self._of_cells, number, states.get(number), task, self._live).run(
                of_cell
            )
            reported += [_Reported("file", number, file.to_json()) for file in files]
            reported.append(_Reported("cell", number, report.to_json()))
        return states, reported


class _Collected:
    """The reports of a batch, as `BatchCommit` collects them."""

    def __init__(self, rows: list[_Reported]) -> None:
        self._rows = rows

    def collect(self) -> list[_Reported]:
        """Return the rows."""
        return self._rows
