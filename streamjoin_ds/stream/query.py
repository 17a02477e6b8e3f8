"""Starts a join as one streaming query: checks its identity, opens the tables, connects source, cells and commit."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamjoin_ds.blocks.place import Place, is_local, local_path, place_of
from streamjoin_ds.cell.cell import STATE_DDL
from streamjoin_ds.cell.cell_function import CellFunction
from streamjoin_ds.cell.cell_report import REPORT_DDL
from streamjoin_ds.cell.cell_windows import RETAIN_KEY, blocks_folder, check_execution, measured_costs
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place, note_table
from streamjoin_ds.checkpoint.lock import driving
from streamjoin_ds.checkpoint.move import is_movable, moved
from streamjoin_ds.checkpoint.recovery import cuts_option, recovered
from streamjoin_ds.errors import ArgumentError, LayoutError, TableError
from streamjoin_ds.exchange.outbox import exchange_folder
from streamjoin_ds.plan import (
    DEFAULT_EXECUTION,
    MAX_CELLS,
    AskedLayout,
    CellLayout,
    Execution,
    Layout,
    Load,
    Plan,
    attributes_of,
    best_ranges,
    choose_layout,
    deciding_layouts,
    is_of_ranges,
    keeps_whole,
    whole_layout,
)
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.delay_bound import max_delay_us
from streamjoin_ds.source.stream_source import sampled_keys
from streamjoin_ds.spark.release import has_admission, is_connect, needs_older_arrow, needs_python_sources
from streamjoin_ds.spark.session import configured, note_join
from streamjoin_ds.spec import BoundJoin, Join, bind, duration_us
from streamjoin_ds.stream.commit import BatchCommit, committer_for, forget_committer
from streamjoin_ds.stream.frame_tables import kept_tables, of_frames, sole_entry
from streamjoin_ds.stream.progress import observed
from streamjoin_ds.stream.query_options import QueryOptions
from streamjoin_ds.stream.source_facts import bound_join, first_seen, known_rates, located

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "LEAST_RETAINED",
    "Host",
    "SparkHost",
    "cells_of",
    "check",
    "check_table_blocks",
    "first_layout",
    "plan_for",
    "planned",
    "query_over",
    "reader_options",
    "recovered_plan",
    "retained_batches",
    "staffed",
    "start",
    "tells_cores",
    "ways_of",
]

_log = logging.getLogger(__name__)

# Batches: an attempt that stopped and goes on late writes the newest state anew, and nobody forces it. If a power cut
# tears it, the batch is done again from the state and the offsets of the one before.
LEAST_RETAINED = 2
# Of a query whose rows are few, since they name blocks. Spark makes code for them anew in each batch, and would need
# thousands of rows to win that back. A plan over DataFrames has the user's own rows too, so it keeps Spark's settings.
_CODE_KEY = "spark.sql.codegen.factoryMode"
_DEFAULT_CELLS = 1  # cells of a plan that is only shown, where neither a layout nor a number is given


def planned(
    bound: BoundJoin,
    load: Load,
    *,
    layout: str = "auto",
    cells: int | None = None,
    exchange: str = "reference",
    execution: Execution = DEFAULT_EXECUTION,
    durable: bool = True,
) -> Plan:
    """Return the plan that a new checkpoint would get, for `explain`."""
    check_execution(bound, execution)
    asked = AskedLayout.parse(layout, len(bound.names))
    asked.check(bound)
    chosen = asked.grid or first_layout(bound, cells or _DEFAULT_CELLS, asked.kind, load)
    schedule = ((0, chosen),) if asked.grid is not None or bound.decided else ()
    way = "reference" if exchange == "auto" else exchange
    return Plan(
        bound, chosen, chosen.cells, way, execution=execution, durable=durable,
        layout_kind="grid" if bound.decided else asked.kind,
        layout_schedule=schedule,
    )  # fmt: skip


class Host(Protocol):
    """Where a query is to run, as far as its plan depends on it."""

    def check(self) -> None:
        """Refuse what cannot run this package; nothing was written yet."""

    def cells(self, options: QueryOptions, checkpoint: Place, kept: int | None) -> int:
        """Return the number of cells: as asked, else what suits the host. `kept` is that of the checkpoint, if any."""

    def cores(self) -> int:
        """Return how many cores the cells share; 0 where they are not all on one machine."""

    def ways(self, checkpoint: Place, table_root: str, exchange: str) -> tuple[str, str]:
        """Return the way of the exchange, and the folder of the windows' blocks; "" where there is none."""

    def retained_batches(self, *, durable: bool) -> int:
        """Return of how many batches offsets and states are kept."""


@dataclass(frozen=True)
class SparkHost:
    """A session of Spark, as a `Host`."""

    spark: SparkSession

    def check(self) -> None:
        """See `streamjoin_ds.spark.workers.check_workers`."""
        from streamjoin_ds.spark.workers import check_workers

        needs_python_sources(self.spark)
        needs_older_arrow(self.spark)
        check_workers(self.spark)

    def cells(self, options: QueryOptions, checkpoint: Place, kept: int | None) -> int:
        """See `cells_of`."""
        return cells_of(self.spark, options, checkpoint, kept)

    def cores(self) -> int:
        """See `Host.cores`."""
        return cores(self.spark) if is_of_one_machine(self.spark) else 0

    def ways(self, checkpoint: Place, table_root: str, exchange: str) -> tuple[str, str]:
        """See `ways_of`."""
        return ways_of(self.spark, checkpoint, table_root, exchange)

    def retained_batches(self, *, durable: bool) -> int:
        """See `retained_batches`."""
        return retained_batches(self.spark, durable=durable)


def start(
    join: Join,
    spark: SparkSession,
    to: str,
    checkpoint: str,
    options: QueryOptions,
    frames: Mapping[str, DataFrame] | None = None,
) -> StreamingQuery:
    """Start the join as a streaming query; see `StreamJoin.start`. `frames` are of its tables."""
    folder = checkpoint_place(checkpoint)
    beside = of_frames(join, frames or {})
    plan = plan_for(located(beside.join), SparkHost(spark), TableSet(to).root, folder, options)
    lock = driving(folder, take_over=options.take_over)
    try:
        plan, cuts = (_as_driven(plan), []) if lock.is_driven else recovered_plan(plan)
        plan = replace(plan, given_tables=sole_entry(kept_tables(plan, beside.frames)))
        query = _started(spark, plan, options, cuts)
    except BaseException:
        lock.give_up()
        raise
    lock.hold_while(query)
    note_join()
    return query


def recovered_plan(plan: Plan) -> tuple[Plan, list[Any]]:
    """Mend what a power cut left, and give the state the plan's cells.

    Return the plan, and the offsets at which the source is to cut the next batches.
    """
    checkpoint = place_of(plan.block_root)
    note_table(checkpoint, plan.table_root)
    identity = _identity(plan)
    cuts = recovered(identity.spark_folder(checkpoint), TableSet(plan.table_root), identity.partitions)
    if not _keeps(plan, identity):
        identity = moved(Path(plan.block_root), identity, plan.partitions, plan.layout)
    forget_committer(plan)
    return replace(plan, spark_root=str(identity.spark_folder(checkpoint))), cuts


def _identity(plan: Plan) -> CheckpointIdentity:
    identity = CheckpointIdentity.load(place_of(plan.block_root))
    assert identity is not None, "the plan is of this checkpoint"
    return identity


def _as_driven(plan: Plan) -> Plan:
    """Return the plan for a checkpoint that a query of this process still runs on; refuse another number of cells."""
    identity = _identity(plan)
    if _keeps(plan, identity):
        return replace(plan, spark_root=str(identity.spark_folder(place_of(plan.block_root))))
    name, has, asked = "cells", f"{identity.partitions} cells", str(plan.partitions)
    if identity.partitions == plan.partitions:
        name, has, asked = "layout", f"the layout {identity.layout}", str(plan.layout)
    msg = f"the running query has {has}, and this start asks for {asked}"
    raise LayoutError(msg, name=name, hint="stop the running query first: query.stop()")


def _keeps(plan: Plan, identity: CheckpointIdentity) -> bool:
    """Whether a plan leaves the state as it is: its cells, and where tuples are decided their one layout."""
    return identity.partitions == plan.partitions and (not plan.bound.decided or identity.layout == plan.layout)


def _started(spark: SparkSession, plan: Plan, options: QueryOptions, cuts: list[Any]) -> StreamingQuery:
    committer_for(plan)  # makes the tables, or refuses them, before anything runs
    return query_over(references(spark, plan, options, cuts), plan, options)


def query_over(exchanged: DataFrame, plan: Plan, options: QueryOptions) -> StreamingQuery:
    """Start the query that joins exchange rows and commits what comes of them."""
    reports = exchanged.groupBy("cell").applyInPandasWithState(
        CellFunction(plan), REPORT_DDL, STATE_DDL, "append", "NoTimeout"
    )
    cells = (
        observed(reports)
        .writeStream.queryName(f"streamjoin-{plan.join_id[:8]}")
        .option("checkpointLocation", plan.spark_root)
        .foreachBatch(BatchCommit(plan, options.restarts))
    )
    ends_itself = options.available_now and not plan.foreign and not has_admission(exchanged.sparkSession.version)
    if options.available_now and not ends_itself:
        cells = cells.trigger(availableNow=True)
    elif options.trigger is not None:
        cells = cells.trigger(processingTime=f"{duration_us(options.trigger, 'trigger') // 1000} milliseconds")
    session = exchanged.sparkSession
    settings = {
        "spark.sql.shuffle.partitions": str(plan.partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        RETAIN_KEY: str(plan.retain_batches),
    }
    if not plan.foreign:
        settings[_CODE_KEY] = session.conf.get(_CODE_KEY, None) or "NO_CODEGEN"
    with configured(session, settings):  # a query keeps them from its start
        query = cells.start()
    if ends_itself:
        from streamjoin_ds.spark.admission import end_when_read  # needs Spark, and a plan is explained without it

        end_when_read(query)
    return query


def plan_for(join: Join, host: Host, table_root: str, checkpoint: Place, options: QueryOptions) -> Plan:
    """Return the plan of a query on a host; make the checkpoint's identity where there is none.

    Raises
    ------
    FingerprintMismatchError, ForeignCheckpointError, LayoutError, TableError, ArgumentError, ColumnError
        As `StreamJoin.start`; nothing was written.
    """
    identity, asked, bound = _asked(join, checkpoint, options)
    given = asked.grid
    # Before anything is written.
    host.check()
    exchange, state_root = host.ways(checkpoint, table_root, options.exchange)
    check_table_blocks(join, state_root)
    if identity is None:
        layout: CellLayout = given or first_layout(bound, host.cells(options, checkpoint, None), asked.kind)
        identity = CheckpointIdentity.create(checkpoint, bound, layout, layout.cells)
        layout, cells, wanted = identity.layout, identity.partitions, None
    else:
        cells = given.cells if given is not None else host.cells(options, checkpoint, identity.partitions)
        relaid = bound.decided and given not in (None, identity.layout)
        if (relaid or cells != identity.partitions) and not is_movable(checkpoint, identity):
            cells = _kept_cells(identity, cells, is_asked=given is not None or options.cells is not None)
        layout = identity.layout
        if bound.decided and (given or cells != identity.partitions):
            layout = given or first_layout(bound, cells, asked.kind)
        is_kind = asked.may_have_ranges(cells) if is_of_ranges(layout) else asked.kind != "ranges"
        keeps = is_kind and cells == layout.cells
        wanted = given or (None if keeps else first_layout(bound, cells, asked.kind))
    kept = layout if bound.decided else given
    return Plan(
        bound,  # not the recorded join: the same join may find its input in another place now
        layout,
        cells,
        exchange,
        str(checkpoint),
        table_root,
        identity.join_id,
        execution=staffed(options.execution, host.cores(), cells),
        state_root=state_root,
        retain_batches=host.retained_batches(durable=options.durable),
        durable=options.durable,
        layout_schedule=() if kept is None else ((0, kept),),
        wanted=wanted,
        layout_kind="grid" if bound.decided else asked.kind,
        costs=measured_costs(bound, options.execution, state_root),
    )


def check(join: Join, checkpoint: str, options: QueryOptions) -> None:
    """Refuse what can be refused before there is a session: columns, types, sources, options, another checkpoint.

    Raises
    ------
    StreamJoinError
        As `StreamJoin.start`; nothing was written.
    """
    _asked(located(join), checkpoint_place(checkpoint), options)


def _asked(
    join: Join, checkpoint: Place, options: QueryOptions
) -> tuple[CheckpointIdentity | None, AskedLayout, BoundJoin]:
    """Return a checkpoint's identity, the layout that is asked for, and the join bound to its sources; all checked."""
    identity = CheckpointIdentity.load(checkpoint)
    asked = AskedLayout.parse(options.layout, len(join.streams))
    given = asked.grid
    if given is not None and options.cells not in (None, given.cells):
        msg = f"the layout {given} has {given.cells} cells, but cells is another number"
        raise ArgumentError(msg, name="cells", hint="leave one of the two out")
    # The types are those first seen. A file whose types would now be inferred otherwise is found when it is read.
    bound = bound_join(join) if identity is None else bind(join, first_seen(join, identity))
    if identity is not None:
        identity.check(bound)
    check_execution(bound, options.execution)
    asked.check(bound)
    return identity, asked, bound


def retained_batches(spark: SparkSession, *, durable: bool) -> int:
    """Return how many batches Spark has to retain for a query: as the session says, and enough for a power cut."""
    asked, least = int(spark.conf.get(RETAIN_KEY) or 100), LEAST_RETAINED if durable else 1
    if asked < least:
        _log.warning(
            "%s is %d; the query retains %d, which a restart after a power cut may need", RETAIN_KEY, asked, least
        )
    return max(asked, least)


def check_table_blocks(join: Join, state_root: str) -> None:
    """Refuse tables where a worker does not see the checkpoint's folder.

    Raises
    ------
    ArgumentError
    """
    if join.tables and not state_root:
        msg = f"a worker does not see the checkpoint's folder, where the versions of table {join.tables[0].name} lie"
        raise ArgumentError(msg, name=join.tables[0].name, hint="give a checkpoint that all workers see")


def cells_of(spark: SparkSession, options: QueryOptions, checkpoint: Place, kept: int | None) -> int:
    """Return the number of cells: as asked, else by the cores that there are.

    On one machine all windows live in one process. There it is one cell, whose threads have the cores: so no tuple is
    kept or probed twice. `kept` is the checkpoint's number, which stays where nobody says how many cores there are.
    """
    if options.cells is not None:
        return options.cells
    if kept is not None and not tells_cores(spark):
        return kept
    execution = options.execution
    if is_of_one_machine(spark) and execution.window_server and is_local(str(checkpoint)):
        return 1
    return min(MAX_CELLS, max(1, cores(spark) // (execution.threads or 1)))


def staffed(execution: Execution, cores: int, cells: int) -> Execution:
    """Return the options of cells of one machine that share so many cores; as they are where they say the threads."""
    if execution.threads is not None or not cores:
        return execution
    return replace(execution, threads=max(1, cores // cells))


def _kept_cells(identity: CheckpointIdentity, wanted: int, *, is_asked: bool) -> int:
    kept = identity.partitions
    if is_asked:
        to = wanted if wanted != kept else "another layout"
        msg = f"the checkpoint has {kept} cells, and its state cannot be moved to {to}"
        hint = f"keep {kept} cells; only state of HDFSBackedStateStoreProvider, compressed with lz4, can be moved"
        raise LayoutError(msg, name="cells" if wanted != kept else "layout", hint=hint)
    _log.warning("the checkpoint keeps its %d cells: its state cannot be moved to %d", kept, wanted)
    return kept


def ways_of(spark: SparkSession, checkpoint: Place, table_root: str, exchange: str) -> tuple[str, str]:
    """Return the way of the exchange, and the folder of the windows' blocks; "" if a worker does not see that folder.

    Raises
    ------
    TableError
        A worker does not see the table's folder: what it writes there would be lost.
    ArgumentError
        The exchange by reference is asked for, but a worker does not see its folder.
    """
    blocks = blocks_folder(checkpoint)
    is_here = is_local(blocks)
    if not is_here and exchange == "auto":
        exchange = "packed"  # a request for each block takes longer than its bytes
    if is_of_one_machine(spark):  # the workers run here, as this user: they see all
        return ("reference" if exchange == "auto" else exchange), blocks
    from streamjoin_ds.spark.workers import seen_by_workers  # needs Spark, and a plan is explained without it

    table = local_path(table_root)
    own: list[str | Path] = [blocks, exchange_folder(checkpoint)] if is_here else []
    seen = seen_by_workers(spark, [*own, *([] if table is None else [table])], cores(spark))
    sees_blocks, sees_exchange, *sees_table = seen if is_here else [True, True, *seen]
    if not all(sees_table):
        msg = "a worker does not see the folder of the table, or may not write there"
        raise TableError(msg, name="to", hint="give a folder on a file system that the driver and all workers share")
    if exchange == "reference" and not sees_exchange:
        msg = "a worker does not see the exchange's folder under the checkpoint"
        raise ArgumentError(msg, name="exchange", hint="use auto or packed, or a checkpoint that all workers see")
    way = exchange if exchange != "auto" else "reference" if sees_exchange else "packed"
    _log.info("exchange %s, windows %s", way, "in blocks" if sees_blocks else "inline in Spark's state")
    return way, blocks if sees_blocks else ""


def first_layout(bound: BoundJoin, cells: int, kind: str, load: Load | None = None) -> CellLayout:
    """Return the layout that a join begins with: by the load, and ranges by the keys that the inputs begin with.

    A join that may choose begins with a grid: a sample of a whole window tells whether ranges are better. Where tuples
    are decided at their horizon, `deciding_layouts` says what is best.
    """
    if keeps_whole(bound):
        return whole_layout(bound, cells)
    attributes = attributes_of(bound) if kind == "ranges" and cells > 1 else []
    keys = sampled_keys(bound, attributes, cells) if attributes else None
    choice = None if keys is None else best_ranges(keys, attributes, cells)
    if choice is not None:
        _log.info("layout %s, chosen for the keys that the inputs begin with", choice.layout)
        return choice.layout
    if load is not None:
        return _grid(bound, cells, load)
    rates = known_rates(bound)
    for error in rates.unanswered.values():  # the join could not begin either: say so before Spark runs
        raise error
    layout = _grid(bound, cells, Load.of_join(bound, rates.per_s))
    told = zip(bound.names, rates.per_s, rates.origins, strict=True)
    _log.info("layout %s, chosen for %s", layout, ", ".join(f"{name} {rate:g}/s ({how})" for name, rate, how in told))
    return layout


def _grid(bound: BoundJoin, cells: int, load: Load) -> Layout:
    return deciding_layouts(bound, cells, load, 1)[0].layout if bound.decided else choose_layout(cells, load)


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at once.

    Spark Connect does not tell: there it is the number of shuffle partitions, at most 16.
    """
    if tells_cores(spark):
        return int(spark.sparkContext.defaultParallelism)
    return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 2), 16)


def is_of_one_machine(spark: SparkSession) -> bool:
    """Whether a session's workers are processes of this machine and this user.

    Those of a Connect server are not, even where its master is local.
    """
    return (
        not is_connect(spark)
        and re.fullmatch(r"local(\[.*\])?", spark.conf.get("spark.master", None) or "") is not None
    )


def tells_cores(spark: SparkSession) -> bool:
    """Whether a session says how many tasks run at once: a classic one does, one of Spark Connect does not."""
    try:
        return int(spark.sparkContext.defaultParallelism) > 0
    except Exception:  # Connect raises an error of its own for what only a classic session has
        return False


def references(spark: SparkSession, plan: Plan, options: QueryOptions, cuts: Sequence[Any] = ()) -> DataFrame:
    """Return the source of a plan as a DataFrame: one row for each block and cell.

    `cuts` are the offsets that `recovered` gave.
    """
    from streamjoin_ds.stream.sensors import SensorsDataSource

    spark.dataSource.register(SensorsDataSource)
    return spark.readStream.format("sensors").options(**reader_options(plan, options, cuts)).load()


def reader_options(plan: Plan, options: QueryOptions, cuts: Sequence[Any]) -> dict[str, str]:
    """Return the options of the source of a plan; `cuts` are the offsets that `recovered` gave."""
    found = {"plan": plan.to_json(), **dict(options.source_options), **cuts_option(cuts)}
    if options.max_rows_per_batch is not None:
        found["max_rows_per_batch"] = str(options.max_rows_per_batch)
    if options.max_delay is not None:
        found["max_delay"] = f"{max_delay_us(options.max_delay)}us"
    if options.trigger is not None:
        found["trigger"] = f"{duration_us(options.trigger, 'trigger')}us"
    if options.available_now:
        found["available_now"] = "true"
    return found
