"""The driver's end of a batch: it commits what the cells report to the Delta tables.

Spark calls `BatchCommit` as the function of ``foreachBatch``. It always reads the batch to its end first, also when the
tables already have the batch: since Spark 4.1 a batch whose state was not committed cannot be restarted
(ARCHITECTURE.md, "A replay"). Rows that the answers of several cells make together are written here, before the batch
is committed (`merged_rows`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import is_local, loggable, place_of
from streamjoin_ds.cell.answers import whole_answers
from streamjoin_ds.cell.cell import batch_setting
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.checkpoint.batch_end import ledger_columns, logged_plan, partitions_of, set_aside_so_far
from streamjoin_ds.checkpoint.layout_notes import KeyLog, note_epochs_over
from streamjoin_ds.errors import BlockMissingError, LedgerError, TableError
from streamjoin_ds.plan import EpochsOver, Layout, Plan
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.durability import Durability
from streamjoin_ds.sink.maintenance import Maintenance
from streamjoin_ds.sink.tables import LEDGER_SCHEMA, METRICS_SCHEMA, TableSet, balance
from streamjoin_ds.sink.writer import FileReport, TableWriter
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.feed import BacklogFacts
from streamjoin_ds.source.partitioned_position import PartitionClock
from streamjoin_ds.spark.release import is_connect
from streamjoin_ds.stream.progress import tell_read_rows
from streamjoin_ds.stream.query_log import (
    BacklogLog,
    DelayLog,
    InputLog,
    SilenceLog,
    WatermarkHolder,
    device_clocks,
    holder,
    partition_clocks,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BatchCommit",
    "BatchSummary",
    "committer_for",
    "forget_committer",
    "forget_committers",
    "merged_rows",
    "watch",
]

_log = logging.getLogger(__name__)
# By join and table. They are kept between batches: a committer holds the tables' snapshots, its maintenance a thread.
_committers: dict[tuple[str, str], tuple[Committer, Maintenance]] = {}
_keys: dict[tuple[str, str], KeyLog] = {}  # by join and table: the running sample of the streams' keys
_logs: dict[tuple[str, str], _Logs] = {}  # by join and table: what was logged
_BACKLOG = ("backlog_rows", "backlog_bytes", "backlog_us", "limited_by", "backlog")
# What the log tells of each batch, besides its moments.
_OF_LOG = (
    "batch_id", "matches", "read", "stored", "late", "rejected", "filtered", "duplicates", "state_rows", "state_bytes",
    "held_by", "replayed",
)  # fmt: skip
_watchers: list[Callable[[BatchSummary], None]] = []


def merged_rows(plan: Plan, batch_id: int, reports: Mapping[int, CellReport]) -> list[FileReport]:
    """Return the files of a batch's rows that no cell could give alone, and count them as matches of the home cells.

    Parameters
    ----------
    plan : Plan
    batch_id : int
    reports : mapping of int to CellReport
        Those of all cells.

    Raises
    ------
    LedgerError
        The cells have joined the batch in different layouts, or their answers do not fit together.
    BlockMissingError, BlockCorruptError, AggregateOverflowError, TableWriteError
    """
    if not any(report.answers for report in reports.values()):
        return []
    layouts = {report.layout for report in reports.values()}
    if len(layouts) > 1:
        msg = "the cells have joined the batch in different layouts"
        raise LedgerError(msg, name="layout", hint="nothing was committed; this is a defect, please report it")
    layout = Layout.parse(layouts.pop(), len(plan.bound.names))
    found = whole_answers(plan, layout, {cell: report.answers for cell, report in reports.items()})
    schema = plan.bound.result_schema
    with TableWriter(
        TableSet(plan.table_root).matches,
        schema,
        table="matches",
        batch_id=batch_id,
        label=f"{batch_id:010d}-together",
        durable=plan.durable,
    ) as writer:
        for home, rows in found:
            ids = pa.array(np.full(rows.num_rows, batch_id, np.int64))
            writer.write(pa.Table.from_arrays([*rows.columns, ids], schema=schema))
            reports[home].matches += rows.num_rows
        return writer.close()


class _Logs(Struct):
    """What this driver has logged of one query, so that it does not log it again."""

    inputs: InputLog
    silences: SilenceLog = field(default_factory=SilenceLog)
    delays: DelayLog = field(default_factory=DelayLog)
    backlogs: BacklogLog = field(default_factory=BacklogLog)


class BatchSummary(Struct, frozen=True):
    """What one batch did, for displays; the ledger and metrics tables have the same facts."""

    batch_id: int
    matches: int
    candidates: int
    read: dict[str, int]
    stored: dict[str, int]
    late: dict[str, int]
    rejected: dict[str, int]
    filtered: dict[str, int]
    null_keys: dict[str, int]
    watermark_us: int | None
    largest_us: dict[str, int | None]
    state_rows: int
    state_bytes: int
    replayed: bool
    held_by: str | None = None
    idle: tuple[str, ...] = ()
    files_set_aside: dict[str, int] = field(default_factory=dict)
    table: str = ""  # the root of the query's tables
    backlog: BacklogFacts | None = None
    punctuation_us: int | None = None
    duplicates: dict[str, int] = field(default_factory=dict)
    lost_offsets: dict[str, int] = field(default_factory=dict)
    match_bytes: int = 0  # of the files of the matches

    def to_facts(self) -> dict[str, Any]:
        """Return the batch as the log tells it, in plain JSON values; moments as ISO 8601."""
        backlog = None if self.backlog is None else self.backlog.total.rows
        return {
            "table": loggable(self.table),
            **{name: getattr(self, name) for name in _OF_LOG},
            "watermark": _moment(self.watermark_us),
            "punctuation": _moment(self.punctuation_us),
            "backlog_rows": backlog,
        }


def committer_for(plan: Plan) -> tuple[Committer, Maintenance]:
    """Return the committer of a plan's tables in this process, opened at its first use, and the tables' maintenance."""
    key = plan.join_id, plan.table_root
    if key not in _committers:
        tables = TableSet(plan.table_root)
        committer = Committer(
            tables,
            plan.bound.result_schema,
            join_id=plan.join_id,
            fingerprint=plan.bound.fingerprint,
            description=" AND ".join(map(str, plan.bound.join.predicates)),
            durability=Durability(plan.spark_root, durable=plan.durable),
        )
        committer.open()
        _committers[key] = committer, Maintenance(tables, durability=Durability(durable=plan.durable))
    return _committers[key]


def forget_committer(plan: Plan) -> None:
    """Forget a plan's committer, so that the tables are opened anew: what it holds may be from before a restart."""
    _, maintenance = _committers.pop((plan.join_id, plan.table_root), (None, None))
    _keys.pop((plan.join_id, plan.table_root), None)
    if maintenance is not None:
        maintenance.close()


def forget_committers() -> None:
    """Forget the committers of all joins, as the end of this process would."""
    _keys.clear()
    while _committers:
        _, (_, maintenance) = _committers.popitem()
        maintenance.close()


@contextlib.contextmanager
def watch(watcher: Callable[[BatchSummary], None]) -> Iterator[None]:
    """Have `watcher` called after each commit that this process makes, for as long as the context lasts."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class BatchCommit:
    """The function of ``foreachBatch``; it holds only a text, so that it can travel to a Spark Connect server.

    Parameters
    ----------
    plan : Plan
    restarts : int
        How often the query was started again before (`restart`).
    forces : bool, keyword-only
        Whether the cells leave it to the commit to force their files and blocks to the device, with its own.
    """

    def __init__(self, plan: Plan, restarts: int = 0, *, forces: bool = False) -> None:
        self.plan_text = plan.to_json()
        self.restarts, self.forces = restarts, forces

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one batch; `Committer.commit` says what is refused."""
        plan = Plan.from_json(self.plan_text)
        spark = getattr(frame, "sparkSession", None)  # None: the query runs without Spark
        if spark is not None and is_connect(spark):
            _tell_tasks(spark, plan, batch_id)
        rows = frame.collect()
        files_of_cells = [(int(row.cell), FileReport.from_json(row.facts)) for row in rows if row.kind == "file"]
        reports = {int(row.cell): CellReport.from_json(row.facts) for row in rows if row.kind == "cell"}
        cells = max((report.cells for report in reports.values()), default=plan.cells)
        missing = set(range(cells)) - set(reports)
        if missing:
            msg = f"{len(missing)} of the {cells} cells have not reported batch {batch_id}"
            raise LedgerError(msg, name="cells", hint="nothing was committed; this is a defect, please report it")
        files_of_cells += ((min(reports), file) for file in merged_rows(plan, batch_id, reports))
        files = [file for _, file in files_of_cells]
        match_bytes = Counter[int]()
        for cell, file in files_of_cells:
            match_bytes[cell] += file.size_bytes if file.table == "matches" else 0
        blocks = [name for report in reports.values() for name in report.blocks]
        _check_seen(plan, files, blocks)
        batch, before = _planned(plan, batch_id)
        ledger = _ledger(plan, batch_id, reports, batch, before)
        watermark_us = _least([report.watermark_us for report in reports.values()])
        of_cell = next(iter(reports.values()))  # every cell hears of every stream
        idle = tuple(plan.bound.names[stream] for stream in of_cell.idle)
        largest_us = {row["stream"]: row["largest_ts"] for row in ledger}
        read = {row["stream"]: row["read"] for row in ledger}
        query_id = of_cell.query_id
        if not plan.foreign:  # of DataFrames Spark counts the rows itself
            tell_read_rows(frame, query_id, sum(read.values()))
        clocks = _partitions(batch, before) | _told_clocks(of_cell)
        held = holder(plan.bound.join.streams, largest_us, read, idle, clocks)
        punctuation_us = plan.bound.punctuation_us(watermark_us)
        metrics = _metrics(batch_id, reports, held, batch, self.restarts, match_bytes)
        committer, maintenance = committer_for(plan)
        if self.forces:
            committer.durability.files([*_paths(plan, files), *(f"{plan.state_root}/{name}" for name in blocks)])
        outcome = committer.commit(
            batch_id,
            query_id,
            files,
            punctuation_us=punctuation_us,
            watermark_us=watermark_us,
            ledger=pa.Table.from_pylist(ledger, schema=LEDGER_SCHEMA),
            metrics=pa.Table.from_pylist(metrics, schema=METRICS_SCHEMA),
            largest_ts_us=_greatest(list(largest_us.values())),
        )
        _note_epochs_over(plan, reports, batch)
        _tell_groups(plan, batch)
        if plan.attributes:
            _keys.setdefault((plan.join_id, plan.table_root), KeyLog(plan)).took(reports.values())
        maintenance.after_commit()
        summary = _summary(batch_id, ledger, reports, watermark_us, not outcome.committed)
        aside = {row["stream"]: row["files_set_aside"] or 0 for row in ledger}
        held_by = None if held is None else held.stream
        waits = None if batch is None else batch.backlog
        summary = replace(summary, held_by=held_by, idle=idle, files_set_aside=aside)
        size, root = match_bytes.total(), plan.table_root
        summary = replace(summary, table=root, backlog=waits, punctuation_us=punctuation_us, match_bytes=size)
        overtaken = zip(*(report.overtaken for report in reports.values()), strict=True)
        counts = dict(zip(plan.bound.names, map(sum, overtaken), strict=True))
        logs = _logs.get((plan.join_id, plan.table_root)) or _Logs(InputLog(plan.bound, committer.tables))
        _logs[plan.join_id, plan.table_root] = logs
        logs.silences.tell(held, idle, counts, _told(watermark_us))
        logs.inputs.tell(reports.values(), ledger)
        logs.delays.tell(None if batch is None else batch.delay)
        if waits is not None:
            logs.backlogs.tell(waits, sum(read.values()))
        told = (batch_id, sum(read.values()), summary.matches)
        _log.info("batch %d: %d rows, %d matches", *told, extra={"facts": summary.to_facts()})
        _tell_watchers(summary)


def _tell_watchers(summary: BatchSummary) -> None:
    """Tell all watchers of a batch.

    A display whose reader is gone (``streamjoin run ... | head``) ends its thread by `SystemExit`, as rich does. This
    is the thread that answers Java, which would wait for it for ever: so the query ends by an error instead.
    """
    try:
        for watcher in _watchers:
            watcher(summary)
    except SystemExit as error:
        msg = "nobody reads what is written any more"
        raise BrokenPipeError(msg) from error


def _tell_tasks(spark: SparkSession, plan: Plan, batch_id: int) -> None:
    """Tell the tasks of a batch its number and its query, which Spark Connect does not (`TaskFacts.current`)."""
    query_id = json.loads((place_of(plan.spark_root) / "metadata").read_bytes())["id"]
    spark.conf.set(batch_setting(plan.join_id), f"{batch_id} {query_id}")


def _planned(plan: Plan, batch_id: int) -> tuple[BatchPlan | None, BatchPlan | None]:
    """Return the plan of a batch, and where it has partitions or devices that of the one before, if there is one."""
    if plan.foreign:  # of DataFrames the offset log has nothing that can be read here
        return None, None
    spark, streams = place_of(plan.spark_root), plan.bound.join.streams
    batch = logged_plan(spark, batch_id, streams)
    has_clocks = batch is not None and any({"partitions", "devices"} & position.keys() for position in batch.positions)
    return batch, logged_plan(spark, batch_id - 1, streams) if batch_id and has_clocks else None


def _partitions(batch: BatchPlan | None, before: BatchPlan | None) -> dict[str, list[PartitionClock]]:
    """Return the clocks of the partitions or devices of each stream with any, given the plan of the batch before."""
    clocks: dict[str, list[PartitionClock]] = {}
    if batch is None:
        return clocks
    for number, name in enumerate(batch.names):
        position, devices = partitions_of(batch, number), batch.clocks_of_devices(number)
        if devices is not None:
            clocks[name] = device_clocks(None if before is None else before.clocks_of_devices(number), devices)
        elif position is not None:
            clocks[name] = partition_clocks(None if before is None else partitions_of(before, number), position)
    return clocks


def _told_clocks(report: CellReport) -> dict[str, list[PartitionClock]]:
    """Return what a cell tells of the partitions of DataFrames: the slowest that is not idle, and the furthest."""
    return {name: [PartitionClock(*clock) for clock in told] for name, told in report.partitions.items() if told}


def _tell_groups(plan: Plan, batch: BatchPlan | None) -> None:
    """Tell the consumer groups of topics, where there are any, how far a committed batch has read."""
    for number, stream in enumerate(plan.bound.join.streams if batch is not None else ()):
        if stream.is_topic:
            # Imported here: its formats are many, and few joins read a topic.
            from streamjoin_ds.source.kafka.topic_partitions import tell_group

            assert batch is not None
            tell_group(stream, batch.positions[number])


def _note_epochs_over(plan: Plan, reports: Mapping[int, CellReport], batch: BatchPlan | None) -> None:
    """Tell the source which epochs have nothing in any window any more, and which cells have nothing to keep."""
    over = set.intersection(*(set(report.epochs_over) for report in reports.values()))
    kept = 1 + max((cell for cell, report in reports.items() if not report.has_ended), default=0)
    if batch is not None and (over or kept < len(reports)):
        seqs = [position["seq"] for position in batch.positions]
        epoch = max(report.epoch for report in reports.values())
        note_epochs_over(place_of(plan.block_root), seqs, EpochsOver(tuple(sorted(over)), epoch, kept))


def _check_seen(plan: Plan, files: list[FileReport], blocks: list[str]) -> None:
    """Refuse a batch if the driver does not see what the workers wrote: a worker may have another disk at that path."""
    if is_local(TableSet(plan.table_root).root):
        for file, path in zip(files, _paths(plan, files), strict=True):
            if _size(path) != file.size_bytes:
                msg = f"a worker wrote {file.path}, but the driver does not see it in the table's folder"
                hint = "the table must lie on a file system that the driver and all workers share"
                raise TableError(msg, name=file.path, hint=hint)
    for name in blocks:
        if not BlockStore(plan.state_root).size_bytes(name):
            msg = f"a worker wrote block {name}, but the driver does not see it"
            hint = "the checkpoint must lie on a file system that the driver and all workers share"
            raise BlockMissingError(msg, name=name, hint=hint)


def _paths(plan: Plan, files: list[FileReport]) -> list[str]:
    """Return where files that cells wrote lie."""
    tables = TableSet(plan.table_root)
    return [f"{tables.path_of(file.table)}/{file.path}" for file in files]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _ledger(
    plan: Plan,
    batch_id: int,
    reports: Mapping[int, CellReport],
    batch: BatchPlan | None,
    before: BatchPlan | None,
) -> list[dict[str, Any]]:
    """Return one row for each stream, summed over the cells; check its `balance`."""
    rows = []
    for stream, name in enumerate(plan.bound.names):
        counts = [report.ledger[stream] for report in reports.values()]
        row: dict[str, Any] = {key: sum(count[key] for count in counts) for key in counts[0]}
        if wrong := balance(row):
            msg = f"the ledger of batch {batch_id} does not balance for stream {name}: {wrong}"
            raise LedgerError(msg, name=name, hint="nothing was committed; this is a defect, please report it")
        largest = _greatest([report.largest_us[stream] for report in reports.values()])
        row |= {"largest_ts": largest, "files_set_aside": None, "held_back_bytes": None, "decided": None}
        if batch is not None:
            row |= ledger_columns(batch, stream, plan.bound.join.streams[stream], row["read"], before)
        rows.append({"batch_id": batch_id, "stream": name, **row})
    return rows


def _told(watermark_us: int | None) -> str:
    return "none" if watermark_us is None else str(np.datetime64(watermark_us, "us"))


def _moment(microseconds: int | None) -> str | None:
    return None if microseconds is None else f"{_told(microseconds)}Z"


def _metrics(
    batch_id: int,
    reports: Mapping[int, CellReport],
    held: WatermarkHolder | None,
    batch: BatchPlan | None,
    restarts: int,
    match_bytes: Mapping[int, int],
) -> list[dict[str, Any]]:
    names = ("held_by", "held_us", "files_set_aside", "held_back_bytes", "max_delay_us", "delay_us", "waiting_rows")
    of_all: dict[str, Any] = dict.fromkeys((*names, *_BACKLOG))
    of_all["lost_offsets"] = sum(count["lost_offsets"] for report in reports.values() for count in report.ledger)
    of_all["restarts"] = restarts
    if held is not None:
        of_all |= {"held_by": held.stream, "held_us": held.behind_us}
    if batch is not None:
        plain = ((name, getattr(batch, name, None)) for name in METRICS_SCHEMA.names)
        of_all |= {name: value for name, value in plain if isinstance(value, int | str)}
        of_all["files_set_aside"] = sum(set_aside_so_far(batch, number) for number in range(len(batch.names)))
        of_all["held_back_bytes"] = sum(batch.held_back_bytes)
        of_all |= {} if batch.delay is None else batch.delay.to_facts()
        of_all |= _backlog_row(batch.backlog)
    rows = []
    for cell, report in sorted(reports.items()):
        row = {name: getattr(report, name) for name in METRICS_SCHEMA.names if hasattr(report, name)}
        row |= {"stored_rows": sum(count["stored"] for count in report.ledger), "match_bytes": match_bytes[cell]}
        rows.append({"batch_id": batch_id, "cell": cell, **row, **of_all})
    return rows


def _backlog_row(facts: BacklogFacts) -> dict[str, Any]:
    total, streams = facts.total, facts.to_facts().get("streams")
    text = None if streams is None else json.dumps(streams, separators=(",", ":"))
    return dict(zip(_BACKLOG, (total.rows, total.size_bytes, total.ahead_us, facts.limited_by, text), strict=True))


def _summary(
    batch_id: int,
    ledger: list[dict[str, Any]],
    reports: Mapping[int, CellReport],
    watermark_us: int | None,
    replayed: bool,
) -> BatchSummary:
    by_stream = {name: {row["stream"]: row[name] for row in ledger} for name in ledger[0]}
    totals = {
        name: sum(getattr(report, name) for report in reports.values())
        for name in ("matches", "candidates", "state_rows", "state_bytes")
    }
    return BatchSummary(
        batch_id,
        totals["matches"],
        totals["candidates"],
        by_stream["read"],
        by_stream["stored"],
        by_stream["late"],
        by_stream["rejected"],
        by_stream["filtered"],
        by_stream["null_keys"],
        watermark_us,
        by_stream["largest_ts"],
        totals["state_rows"],
        totals["state_bytes"],
        replayed,
        duplicates=by_stream["duplicates"],
        lost_offsets=by_stream["lost_offsets"],
    )


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _greatest(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
