"""The planner of batches: it chooses the records of a batch, plans the batch's tasks, and learns of commits.

It runs in Spark's planner process, behind ``format("sensors")``, or in the process of a local query. What a batch holds
follows from its two offsets and the input alone, so a batch that is done again is the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa

from streamjoin_ds.blocks.place import place_of
from streamjoin_ds.checkpoint.layout_notes import epochs_over, key_hint
from streamjoin_ds.exchange.outbox import CellBatch, remove_committed
from streamjoin_ds.plan import USUAL_SIZING, Epochs, EpochsOver
from streamjoin_ds.source.batch_plan import BatchPlan, Pacing, batch_marks, marked_ends, rows_of_prefix, versions_from
from streamjoin_ds.source.delay_bound import LOOK_AHEAD, DelayBound
from streamjoin_ds.source.device_feed import DeviceFeed, DevicePosition
from streamjoin_ds.source.feed import BacklogFacts, Frontier, first_cut, known_backlog
from streamjoin_ds.source.idleness import ClockFacts, Idleness, after_silence, ahead_limit, lets_time_go_on
from streamjoin_ds.source.layout_rule import LayoutFacts, LayoutRule, Progress
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.position import Position, first_needed
from streamjoin_ds.source.table_versions import TableVersions
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.sensor_tasks import ReadTask, SensorsTasks

__all__ = ["BatchPlanner"]


class BatchPlanner:
    """Reads streams as micro-batches: it decides which records a batch holds.

    An offset is a dict of plain JSON values: the text of a `BatchPlan`.

    Parameters
    ----------
    options : SourceOptions
        The reader's options.
    schema : pyarrow.Schema
        Columns of the rows that the tasks give.
    clock : callable, optional
        Returns seconds and never goes back; for the pace, for how long streams have been silent, and for how long
        batches take.
    wall : callable, optional
        Returns seconds since 1970; for how long streams were silent between runs with ``availableNow``.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._tasks = SensorsTasks(options, schema)
        self._options = options
        self._pacing = Pacing(options.pace, clock)
        self._idleness = Idleness(options.streams, clock, wall)
        bound_us = options.max_delay_us
        self._delay_bound = None if bound_us is None else DelayBound(bound_us, options.trigger_us, clock)
        self._latest: dict[str, Any] | None = None
        plan = options.plan
        self._tables = None
        if plan is not None and plan.bound.join.tables:
            given = versions_from(json.loads(plan.given_tables[-1][1])) if plan.given_tables else {}
            kept = plan.bound, plan.block_root, plan.retain_batches, given
            self._tables = TableVersions(*kept, durable=plan.durable, clock=clock)
        self._layout_rule = None if options.plan is None or options.plan.foreign else LayoutRule(options.plan)
        # Whether no exchange block is left of an earlier run, which may have exchanged by reference.
        self._is_swept = False

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first record of every stream."""
        at = tuple(feed.initial().to_facts() for feed in self._tasks.feeds)
        sizing = USUAL_SIZING if self._options.plan is None else self._options.plan.sizing
        return _plain(BatchPlan(tuple(self._tasks.names), at, sizing=sizing))

    @property
    def endless(self) -> bool:
        """Whether some stream is generated without end."""
        return any(feed.endless for feed in self._tasks.feeds)

    def latest(
        self, start: dict[str, Any], limit: int, least: int = 0, *, each: Callable[..., Iterator[Any]] = map
    ) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`; if there is nothing new, exactly `start`.

        A batch has at most `limit` records, of all streams together. Where fewer than `least` are there, it has none.
        Of several streams `each` may look at some side by side, as `Executor.map` does, where none follows another.
        """
        most = look = limit
        bound = self._delay_bound
        if bound is not None:  # it hears first that the batch before has ended
            most = min(most, bound.most_rows())
            look = min(look, LOOK_AHEAD * most)
        again = self._cut(start)
        if again is not None:
            if bound is not None:
                seqs, ends_at = ([at.seq for at in self._positions(self._plan(offset))] for offset in (start, again))
                bound.looked(seqs, [0] * len(seqs), saw_all=False)
                bound.begins(ends_at, 0)
            self._latest = again
            return again
        before = self._plan(start)
        feeds, positions = self._tasks.feeds, self._positions(before)
        self._idleness.begin_look()
        frontiers = self._frontiers(before, look, each)
        times = [time for frontier in frontiers if (time := frontier.first_time()) is not None]
        horizon = self._pacing.horizon_us(min(times, default=None))
        rows = rows_of_prefix(frontiers, most, horizon)
        if sum(rows) < least:
            rows = [0] * len(rows)
        there = [frontier.rows if horizon is None else frontier.rows_until(horizon) for frontier in frontiers]
        if bound is not None:
            saw_all = all(count < look for count in there) and first_cut(frontiers) is None
            bound.looked([at.seq for at in positions], there, saw_all=saw_all)
        clocks = self._idleness.decided(before.clocks, [bool(count) for count in there])
        ends = [feed.advance(at, count) for feed, at, count in zip(feeds, positions, rows, strict=True)]
        ends = [self._clocked(stream, end) for stream, end in enumerate(ends)]
        if not (sum(rows) or lets_time_go_on(before.clocks, clocks) or self._frees(positions, ends, clocks)):
            self._latest = start
            return start
        moved = [
            feed.time_before(at) != feed.time_before(end) for feed, at, end in zip(feeds, positions, ends, strict=True)
        ]
        full = "max_rows_per_batch" if most == limit else "max_delay"
        reaches = [None if key is None else key.reach_us for key in self._options.keys]
        layout = self._laid_out(before, positions, ends, frontiers, rows)
        delay = None if bound is None else bound.begins([at.seq for at in ends], sum(there) - sum(rows))
        backlog = self._backlog(frontiers, there, rows, ends, full if sum(rows) >= most else None)
        ends, waypoints = marked_ends(feeds, reaches, before.waypoints, positions, ends)
        planned = BatchPlan(
            before.names,
            tuple(at.to_facts() for at in ends),
            tuple(after_silence(before.clocks, clocks, moved)),
            tuple(feed.held_back_bytes for feed in feeds),
            layout,
            delay,
            backlog,
            {} if self._tables is None else self._tables.decided(before.tables),
            tuple(map(tuple, waypoints)),
            USUAL_SIZING if self._options.plan is None else self._options.plan.sizing,
        )
        self._latest = _plain(planned)
        return self._latest

    def look_ahead(self, end: dict[str, Any], limit: int) -> None:
        """Look at records behind a batch that was full, so that `latest` finds them looked at; it decides nothing.

        It may run in another thread while that batch is joined and committed, until the planner is asked again.
        """
        planned = self._plan(end)
        if self._delay_bound is None and planned.backlog.limited_by in ("max_rows_per_batch", "bytes"):
            self._frontiers(planned, limit, map)

    def _frontiers(self, before: BatchPlan, look: int, each: Callable[..., Iterator[Any]]) -> list[Frontier]:
        """Return the next records of each stream, at most `look`, after a batch."""
        clocks = zip(self._options.streams, before.clocks, strict=True)
        limits = [ahead_limit(stream.max_ahead_us, clock) for stream, clock in clocks]
        each = map if self._tasks.in_order else each
        positions = self._positions(before)
        return list(each(lambda feed, at, ahead: feed.frontier(at, look, ahead), self._tasks.feeds, positions, limits))

    def report(self) -> dict[str, Any] | None:
        """Return what the query's progress shows: the last offset, and what is not read, for each stream.

        That is the backlog, bytes of an unfinished last line, files set aside, and sub-folders passed over.
        """
        if self._latest is None:
            return None
        feeds = list(zip(self._options.streams, self._tasks.feeds, strict=True))
        held = {stream.name: feed.held_back_bytes for stream, feed in feeds}
        passed = {stream.name: len(feed.passed_over) for stream, feed in feeds}
        aside = {name: facts.get("set_aside", 0) for name, facts in self._latest["streams"].items()}
        told = {"held_back_bytes": held, "files_set_aside": aside, "folders_passed_over": passed}
        return {**self._latest, **told}

    def freeze(self) -> None:
        """Read only what is there now, then stop; a generator without end is refused by name."""
        self._tasks.refuse_endless("the trigger availableNow reads to the end")
        self._idleness.takes_what_is_there = True
        for feed in self._tasks.feeds:
            feed.freeze()

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[ReadTask]:
        """Return one task for each stream and part; they depend on the two offsets and the input alone."""
        before, batch = self._plan(start), self._plan(end)
        feeds, plan = self._tasks.feeds, self._options.plan
        stretches = list(zip(self._positions(before), self._positions(batch), strict=True))
        files = [feed.files_between(*stretch) for feed, stretch in zip(feeds, stretches, strict=True)]
        facts = ((first.to_facts(), last.to_facts()) for first, last in stretches)
        ordered = plan is not None and any(map(plan.bound.stamps, range(len(stretches))))
        whole = tuple((*pair, names) for pair, names in zip(facts, files, strict=True)) if ordered else ()
        limits = [ahead_limit(now.max_ahead_us, then) for then, now in zip(before.clocks, batch.clocks, strict=True)]
        ahead = tuple(None if limit is None else (limit.max_us, limit.is_measured) for limit in limits)
        epochs = self._epochs(batch)
        text = "" if epochs is None else json.dumps(epochs.to_facts())
        task = partial(ReadTask, batch=whole, ahead=ahead if any(ahead) else (), epochs=text)
        planned: list[ReadTask] = []
        silent = []
        rows = [last.seq - first.seq for first, last in stretches]
        tasks = self._options.parts * len(feeds)
        shares = [max(1, round(tasks * count / max(sum(rows), 1))) for count in rows]
        for stream, (feed, (first, last)) in enumerate(zip(feeds, stretches, strict=True)):
            key = self._options.keys[stream]
            parts = feed.split(first, last, shares[stream] if key is None else 1)
            waypoint = None
            clock_us = first.low_us if isinstance(first, DevicePosition) else feed.time_before(first)
            if key is not None and (one := first_needed(before.waypoints[stream], clock_us, key.reach_us)):
                waypoint = one.time_us, dict(one.position)
            for part, (low, high) in enumerate(parts):
                own = files[stream] if len(parts) == 1 else feed.files_between(low, high)
                planned.append(task(stream, part, low.to_facts(), high.to_facts(), files=own, waypoint=waypoint))
            if not parts:
                silent.append(stream)
        if plan is None or start == end:
            return planned
        if not planned:
            planned.append(task(-1, 0, {}, None))  # nothing but time goes on
        total, ends = batch.backlog.total, enumerate(last for _, last in stretches)
        of_cells = CellBatch(
            epochs,
            tuple(stream for stream in silent if batch.clocks[stream].idle),
            {stream: last.low_us for stream, last in ends if isinstance(last, (PartitionedPosition, DevicePosition))},
            batch.tables,
            batch.sizing,
            total.rows,
            total.ahead_us,
        )
        planned[0] = replace(planned[0], of_cells=of_cells.to_json())
        return planned

    def _epochs(self, batch: BatchPlan) -> Epochs | None:
        """Return the epochs that the tasks and cells of a batch go by; None while there is only the plan's layout."""
        plan = self._options.plan
        if plan is None:
            return None
        told = batch.layout.epochs_from(plan.layout)
        # A batch that was planned for fewer cells is heard by new ones too: their clocks go on from here.
        epochs = told.heard_by(max(told.cells, plan.cells))
        return None if epochs == Epochs.first(plan.layout) else epochs

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        return self._tasks.read(task)

    def committed(self, end: dict[str, Any]) -> None:
        """Remove the exchange blocks of records before `end`: nobody will ask for those records again."""
        plan, batch = self._options.plan, self._plan(end)
        if self._tables is not None:
            self._tables.committed(batch.tables)
        positions = self._positions(batch)
        for feed, at in zip(self._tasks.feeds, positions, strict=True):
            if isinstance(feed, PartitionedFeed):
                feed.committed(at)  # type: ignore[arg-type]  # its own position
        if plan is not None and (plan.exchange == "reference" or not self._is_swept):
            # Blocks may be left after `end`: a checkpoint that was taken back does their batches again.
            self._is_swept = not remove_committed(plan, [at.seq for at in positions])

    def _cut(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return the end of a batch that is done again under a new entry of the offset log; None for another batch."""
        cuts = self._options.cuts
        for first, last in pairwise(cuts):
            if first == start:
                return last
        return None

    def _backlog(
        self,
        frontiers: Sequence[Frontier],
        there: Sequence[int],
        rows: Sequence[int],
        ends: Sequence[Position],
        limited_by: str | None,
    ) -> BacklogFacts:
        """Return what is known of records that the batch does not hold, and why it does not."""
        found = {}
        for name, feed, frontier, count, taken, end in zip(
            self._tasks.names, self._tasks.feeds, frontiers, there, rows, ends, strict=True
        ):
            newest_us = None if count <= taken else int(frontier.running_max[count - 1])
            known = known_backlog(count - taken, newest_us, feed.time_before(end))
            if own := feed.backlog(end, known):
                found[name] = own
        if not found:
            return BacklogFacts()
        if limited_by is None and first_cut(frontiers) is not None:
            limited_by = "bytes"
        if limited_by is None and any(frontier.rows > count for frontier, count in zip(frontiers, there, strict=True)):
            limited_by = "pace"
        return BacklogFacts(found, limited_by)

    def _clocked(self, stream: int, end: Position) -> Position:
        """Return the end of a batch with what is decided about the clocks of a stream's partitions or devices."""
        feed = self._tasks.feeds[stream]
        if isinstance(feed, DeviceFeed):
            assert isinstance(end, DevicePosition)
            return feed.clocked(end, self._idleness, stream)
        if not isinstance(feed, PartitionedFeed):
            return end
        assert isinstance(end, PartitionedPosition)
        return feed.clocked(end, partial(self._idleness.decided_of, stream))

    @staticmethod
    def _frees(positions: Sequence[Position], ends: Sequence[Position], clocks: Sequence[ClockFacts]) -> bool:
        """Whether a batch without records is worth planning.

        It is where a partition or a device holds its stream up no more, or a partition comes back.
        """
        for first, last, clock in zip(positions, ends, clocks, strict=True):
            has_clocks = isinstance(last, (PartitionedPosition, DevicePosition))
            if has_clocks and first.low_us != last.low_us and not clock.idle:  # type: ignore[attr-defined]
                return True
            if isinstance(last, PartitionedPosition) and first.brings_back(last):  # type: ignore[attr-defined]
                return True
        return False

    def _laid_out(
        self,
        planned: BatchPlan,
        positions: Sequence[Position],
        ends: Sequence[Position],
        frontiers: Sequence[Frontier],
        rows: Sequence[int],
    ) -> LayoutFacts:
        """Return what is decided about the layout of a batch, after the one that was `planned` before it."""
        if self._layout_rule is None or self._options.plan is None:
            return LayoutFacts()
        before = planned.layout
        begin, end = self._progress(positions), self._progress(ends)
        folder = place_of(self._options.plan.block_root)
        over = epochs_over(folder, begin.seqs) if before.epochs is not None else EpochsOver()
        keys = key_hint(folder, begin.seqs) if self._layout_rule.asks_for_keys(before, begin, over) else None
        facts = self._layout_rule.decided(before, begin, over, keys)
        for piece in pairwise(batch_marks(begin, end, frontiers, rows)):
            facts = self._layout_rule.counted(facts, *piece)
        return facts

    def _progress(self, positions: Sequence[Position]) -> Progress:
        feeds = zip(self._tasks.feeds, positions, strict=True)
        return Progress(tuple(at.seq for at in positions), tuple(feed.time_before(at) for feed, at in feeds))

    def _plan(self, offset: Mapping[str, Any]) -> BatchPlan:
        return BatchPlan.from_offset(offset, self._tasks.names)

    def _positions(self, batch: BatchPlan) -> list[Position]:
        return [feed.position(facts) for feed, facts in zip(self._tasks.feeds, batch.positions, strict=True)]


def _plain(batch: BatchPlan) -> dict[str, Any]:
    """Return the batch's offset as Spark hands it back: read from its text."""
    return json.loads(json.dumps(batch.to_offset()))  # type: ignore[no-any-return]
