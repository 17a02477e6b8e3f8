"""One life of the query without Spark: the package's own `LocalQuery`, whose steps are points where faults come.

It is one process, so its tasks die and stop with it. Its checkpoint is that of the drivers before and after it, which
may be Spark's (`SharedCheckpoint`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamjoin_ds.blocks import Cache
from streamjoin_ds.stream import commit as commit_room
from streamjoin_ds.stream.local_query import LocalQuery
from streamjoin_ds.stream.query_options import QueryOptions
from tests.faults.model.checkpoint import Checkpoint
from tests.faults.model.process import CACHE_BYTES, Process
from tests.faults.model.settings import Settings
from tests.faults.model.stored import SharedCheckpoint

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["LocalDriver"]


class LocalDriver:
    """One life of the query; parameters as of `Driver`."""

    def __init__(self, world: World, process: Process, batch_rows: int, settings: Settings) -> None:
        assert isinstance(world.checkpoint, SharedCheckpoint)
        self.world, self.process, self.log = world, process, world.checkpoint
        self.process.cache = Cache(CACHE_BYTES)
        self.plan = replace(settings.plan, spark_root=str(self.log.folder))
        source = {"parts": str(1 + world.schedule.seed % 3), "max_block_rows": str(2 + world.schedule.seed % 5)}
        source |= settings.options
        self.options = QueryOptions(max_rows_per_batch=batch_rows, source_options=tuple(source.items()))

    def run(self) -> None:
        """Run batches until there is nothing new."""
        world, log = self.world, self.log
        log.retain = min(log.retain, self.plan.retain_batches)
        cuts = world.recovered()
        commit_room.committer_for(self.plan)
        log.begin()
        query = LocalQuery(self.plan, self.options, cuts, lambda: world.now_s, lambda: 1e9 + world.now_s)
        self.process.batch = query._log.batch
        _Points(self, query)
        query._run_batches(_InOrder())  # type: ignore[arg-type]  # all that it asks of an executor
        log.reload()


class _InOrder:
    """Reads the streams one after the other: at most one process of a run is at work."""

    @staticmethod
    def map(function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return map(function, *items)


class _Stop:
    """The query's `threading.Event`, which nobody waits for: time goes on with each look for records."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        return self._is_set


class _Points:
    """Comes to a point before and after each step of a query, and tells the run what was planned and done."""

    def __init__(self, driver: LocalDriver, query: LocalQuery) -> None:
        self.world, self.process, self.kept, self.query = driver.world, driver.process, driver.log, query
        self._kind = repr((driver.plan.to_json(), driver.options))
        query._stopped = _Stop()  # type: ignore[assignment]
        steps = {
            query._planner: ("latest", "committed"),
            query._log: ("plan_batch", "keep_states", "end_batch"),
            query: ("_run_batch", "_read", "_joined", "_commit"),
        }
        for owner, names in steps.items():
            for name in names:
                setattr(owner, name, self._at(getattr(self, name.strip("_")), getattr(owner, name)))

    @staticmethod
    def _at(step: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: step(original, *arguments, **named)

    @contextmanager
    def _doing(self, actor: str) -> Iterator[None]:
        self.process.doing = actor
        try:
            yield
        finally:
            self.process.doing = ""

    def latest(self, original: Callable[..., Any], start: dict[str, Any], limit: int, **named: Any) -> dict[str, Any]:
        world = self.world
        world.point("plan")
        world.feed()
        fed = world.fed  # of a self-join's partitions more may come while they are looked at
        world.now_s += world.clock.choice((0, 1, 1, 4))
        end: dict[str, Any] = original(start, limit, **named)
        world.seen_until(self.process.batch, end)
        if end == start and fed:
            self.query._stopped.set()
        return end

    def plan_batch(self, original: Callable[..., Any], end: dict[str, Any], time_ms: int) -> None:
        del time_ms  # what is logged must not depend on this machine's clock
        world, batch = self.world, self.process.batch
        world.point("offsets")
        original(end, int(1000 * world.now_s))
        self.kept.offsets[batch] = json.dumps(end)
        self._told(end)
        world.point("offsets logged")

    def _told(self, end: dict[str, Any]) -> None:
        self.world.versions.setdefault(self.process.batch, set()).add(_version(end))
        self.world.planned.setdefault(self.process.batch, json.loads(json.dumps(end)))

    def committed(self, original: Callable[..., Any], start: dict[str, Any]) -> None:
        self.world.point("source commit")
        original(start)
        self.world.source_done = start["streams"]
        self.world.point("purge")

    def run_batch(self, original: Callable[..., Any], start: dict[str, Any], end: dict[str, Any], readers: Any) -> None:
        self._told(end)  # where the power went as it was logged, a driver that does it again finds it first
        original(start, end, readers)

    def read(self, original: Callable[..., Any], tasks: Any) -> list[Any]:
        with self._doing("read"):
            self.world.point("begin")
            rows: list[Any] = original(tasks)
            self.world.point("end")
        return rows

    def joined(self, original: Callable[..., Any], rows: Any) -> Any:
        with self._doing("cell"):
            self.world.point("begin")
            return original(rows)

    def keep_states(self, original: Callable[..., Any], states: dict[int, bytes]) -> None:
        with self._doing("cell"):
            self.world.point("state put")
            original(states)
            partitions, version = self.kept.plan.partitions if self.kept.plan else 1, self.process.batch + 1
            for partition in range(partitions):
                of_partition = {cell: blob for cell, blob in states.items() if cell % partitions == partition}
                history = self.kept.kind_of(partition, version - 1)
                Checkpoint.keep_state(self.kept, partition, version, of_partition, hash((self._kind, history)))
            self.world.point("state kept")

    def commit(self, original: Callable[..., Any], frame: Any, batch: int) -> None:
        self.world.point("sink")
        original(frame, batch)
        self.world.point("sink done")

    def end_batch(self, original: Callable[..., Any]) -> None:
        self.world.point("commits")
        original()
        self.kept.commits.add(self.process.batch)
        self.world.committed.add(self.process.batch)
        self.process.batch += 1
        self.world.point("commits logged")


def _version(offsets: dict[str, Any]) -> str | None:
    """Return which version of the table the offsets of a batch name."""
    version: str | None = offsets.get("tables", {}).get("z", {}).get("version")
    return version
