"""`StreamJoin.start` over DataFrames: any source that Spark can read, with the tables and commits of `start`.

::

    frame l ── mapInArrow(pack_frame) ─┐
                                       ├─ union ─ groupBy(cell) ─► cells ─► BatchCommit, as for sources of our own
    frame r ── mapInArrow(pack_frame) ─┘

Spark plans the batches and logs its own offsets. Rows of DataFrames have the order that `order_by` gives, by which
their lateness is judged in each partition. Without it they have none, and it is judged by the watermark at the batch's
start (ARCHITECTURE.md, "Late").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import Place
from streamjoin_ds.cell.cell_windows import check_execution, measured_costs
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place, note_table
from streamjoin_ds.checkpoint.lock import driving
from streamjoin_ds.errors import ArgumentError, ColumnError, LayoutError
from streamjoin_ds.exchange.frame_packing import pack_frame
from streamjoin_ds.plan import AskedLayout, Load, Plan
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.batch_plan import versions_from
from streamjoin_ds.source.table_versions import tables_folder
from streamjoin_ds.spark.release import arrow_schema, needs_older_arrow
from streamjoin_ds.spark.session import note_join
from streamjoin_ds.spec import BoundJoin, Join, bind
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.stream.commit import committer_for, forget_committer
from streamjoin_ds.stream.dataframe import check_frames, over_frames, packed_frame
from streamjoin_ds.stream.frame_tables import given_before, kept_tables, note_given, table_frames
from streamjoin_ds.stream.query import (
    SparkHost,
    cells_of,
    check_table_blocks,
    first_layout,
    planned,
    query_over,
    retained_batches,
    staffed,
    ways_of,
)
from streamjoin_ds.stream.query_options import QueryOptions
from streamjoin_ds.stream.source_facts import KnownRates, known_rates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["OrderBy", "planned_over_frames", "start_over_frames"]

OrderBy: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]]

_WHOLE = ("tinyint", "smallint", "int", "bigint")


def start_over_frames(
    join: Join,
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    order_by: OrderBy | None,
    to: str,
    checkpoint: str,
    options: QueryOptions,
) -> StreamingQuery:
    """Start the join over DataFrames as a streaming query; see `StreamJoin.start`."""
    folder = checkpoint_place(checkpoint)
    beside = table_frames(join, frames)
    frames = {name: frame for name, frame in frames.items() if name not in beside}
    _check_options(join, options)
    numbered = _order_by(join, order_by)
    check_frames(join, frames, numbered)
    _check_columns(join, frames, numbered)
    static = [name for name, frame in frames.items() if not frame.isStreaming]
    if static:
        msg = f"the frame of {static[0]} is static, and start() needs streaming ones"
        raise ArgumentError(
            msg, name=static[0], hint="read it with spark.readStream, make it a Table, or use dataframe()"
        )
    over = over_frames(join, frames)
    _check_selves(over, numbered)
    plan = _plan(over, spark, {**frames, **beside}, numbered, TableSet(to).root, folder, options)
    lock = driving(folder, take_over=options.take_over)
    try:
        if not lock.is_driven:
            note_table(folder, plan.table_root)
            forget_committer(plan)
        plan = _given(plan, folder, beside, is_driven=lock.is_driven)
        committer_for(plan)  # makes the tables, or refuses them, before anything runs
        exchanged = reduce(
            lambda left, right: left.union(right),
            (
                packed_frame(plan, number, frames[name], pack_frame(plan, number))
                for number, name in enumerate(plan.bound.names)
            ),
        )
        query = query_over(exchanged, plan, options)
    except BaseException:
        lock.give_up()
        raise
    lock.hold_while(query)
    note_join()
    return query


def planned_over_frames(
    join: Join,
    frames: Mapping[str, DataFrame],
    order_by: OrderBy | None,
    options: QueryOptions,
    rates: Mapping[str, float] | None,
) -> tuple[Plan, KnownRates]:
    """Return the plan that a new checkpoint would get, for `explain`, and the rates that it is by.

    Only the frames' columns are looked at, so static frames are as good as streaming ones.
    """
    beside = table_frames(join, frames)
    given = {name: frame for name, frame in frames.items() if name not in beside}
    _check_options(join, options)
    numbered = _order_by(join, order_by)
    check_frames(join, given, numbered)
    _check_columns(join, given, numbered)
    over = over_frames(join, given)
    if order_by is not None:  # without it the same plan is that of dataframe(), which tells equal rows apart
        _check_selves(over, numbered)
    bound = _bound(over, {**given, **beside})
    _asked_layout(bound, options)
    known = known_rates(bound, rates)
    plan = planned(
        bound, Load.of_join(bound, known.per_s), layout=options.layout, cells=options.cells, exchange="packed",
        execution=options.execution, durable=options.durable,
    )  # fmt: skip
    return replace(plan, foreign=True, order_by=numbered, in_order=any(numbered)), known


def _given(plan: Plan, checkpoint: Place, beside: Mapping[str, DataFrame], *, is_driven: bool) -> Plan:
    """Return the plan with the rows that the tables' frames have now, for the batches that are not planned yet.

    While a query of this process drives the checkpoint, its batches go on with what they have.
    """
    if not beside:
        return plan
    given = given_before(checkpoint)
    if not (is_driven and given):
        versions = kept_tables(plan, beside)
        given = note_given(checkpoint, given, versions, plan.retain_batches)
        kept = {version.block for _, text in given for version in versions_from(json.loads(text)).values()}
        store = BlockStore(tables_folder(plan.block_root))
        store.remove([name for name in store.names() if name not in kept])
    return replace(plan, given_tables=given)


def _check_options(join: Join, options: QueryOptions) -> None:
    """Refuse what only sources of our own can do."""
    asked = {
        "max_rows_per_batch": options.max_rows_per_batch,
        "max_delay": options.max_delay,
        "source_options": options.source_options or None,
    }
    for name, value in asked.items():
        if value is not None:
            msg = f"{name} is for sources of this package, and DataFrames bring their own batches"
            hint = "set what the DataFrame's source has, such as maxOffsetsPerTrigger or maxFilesPerTrigger"
            raise ArgumentError(msg, name=name, hint=hint)
    if options.exchange not in ("auto", "packed"):
        msg = "the exchange of DataFrames is packed"
        raise ArgumentError(msg, name="exchange", hint="leave it out, or give packed")
    for stream in join.streams:
        if stream.source is not None:
            msg = f"stream {stream.name} has a source, and a frame is given for it"
            raise ArgumentError(msg, name=stream.name, hint="leave the source out, or the frames")


def _order_by(join: Join, given: OrderBy | None) -> tuple[tuple[str, ...], ...]:
    """Return for each stream the columns that number its rows; none where it has none."""
    if given is None:
        return ((),) * len(join.names)
    by_stream = given if isinstance(given, Mapping) else dict.fromkeys(join.names, given)
    odd = set(by_stream) - set(join.names)
    if odd:
        name = min(odd)
        msg = f"order_by names {name}, which is not a stream of the join"
        raise ArgumentError(msg, name="order_by", hint=names_hint(name, join.names, "its streams are"))
    found = []
    for name in join.names:
        asked = by_stream.get(name, ())
        columns = (asked,) if isinstance(asked, str) else tuple(asked)
        if len(columns) > 2:
            msg = f"order_by has {len(columns)} columns for stream {name}"
            hint = "one that numbers all rows, or two: a partition's number, and the row's in it"
            raise ArgumentError(msg, name="order_by", hint=hint)
        found.append(columns)
    return tuple(found)


def _check_columns(join: Join, frames: Mapping[str, DataFrame], order_by: Sequence[tuple[str, ...]]) -> None:
    """Refuse columns of `order_by` that a frame does not have, or that are not of whole numbers."""
    for name, columns in zip(join.names, order_by, strict=True):
        types = dict(frames[name].dtypes) if columns else {}
        for column in columns:
            if types.get(column) not in _WHOLE:
                known = [one for one, kind in types.items() if kind in _WHOLE]
                msg = f"the frame of {name} has no column '{column}' of whole numbers, by which to order it"
                raise ColumnError(msg, name=column, hint=names_hint(column, known, "such columns are"))


def _check_selves(join: Join, order_by: Sequence[tuple[str, ...]]) -> None:
    """Refuse one DataFrame under two names where its rows have no numbers of their own."""
    sources = [stream.location for stream in join.streams]
    for stream, columns in zip(join.streams, order_by, strict=True):
        if stream.source is not None and sources.count(stream.location) > 1 and not columns:
            msg = f"the frame of {stream.name} is another stream's too, and equal rows of it cannot be told apart"
            hint = "give order_by, the columns that number its rows"
            raise ArgumentError(msg, name="order_by", hint=hint)
    twice = {
        source
        for source in sources
        if source is not None
        and len({columns for columns, other in zip(order_by, sources, strict=True) if other == source}) > 1
    }
    if twice:
        msg = "one frame is given under two names, with two ways to number its rows"
        raise ArgumentError(msg, name="order_by", hint="give the same order_by for both")


def _plan(
    join: Join,
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    order_by: tuple[tuple[str, ...], ...],
    table_root: str,
    checkpoint: Place,
    options: QueryOptions,
) -> Plan:
    from streamjoin_ds.spark.workers import check_workers

    bound = _bound(join, frames)
    identity = CheckpointIdentity.load(checkpoint)
    if identity is not None:
        identity.check(bound, order_by)
    check_execution(bound, options.execution)
    asked = _asked_layout(bound, options)
    # Before anything is written.
    needs_older_arrow(spark)
    check_workers(spark)
    _, state_root = ways_of(spark, checkpoint, table_root, "packed")
    check_table_blocks(join, state_root)
    if identity is None:
        layout = asked.grid or first_layout(bound, cells_of(spark, options, checkpoint, None), "grid")
        identity = CheckpointIdentity.create(checkpoint, bound, layout, layout.cells, order_by)
    _check_kept(identity, asked, options)
    _check_idle(join, identity)
    return Plan(
        bound,
        identity.layout,
        identity.partitions,
        "packed",
        str(checkpoint),
        table_root,
        identity.join_id,
        foreign=True,
        execution=staffed(options.execution, SparkHost(spark).cores(), identity.partitions),
        state_root=state_root,
        retain_batches=retained_batches(spark, durable=options.durable),
        durable=options.durable,
        costs=measured_costs(bound, options.execution, state_root),
        order_by=order_by,
        in_order=identity.in_order,
    )


def _bound(join: Join, frames: Mapping[str, DataFrame]) -> BoundJoin:
    return bind(join, {name: arrow_schema(frame.schema) for name, frame in frames.items()})


def _asked_layout(bound: BoundJoin, options: QueryOptions) -> AskedLayout:
    asked = AskedLayout.parse(options.layout, len(bound.names))
    if asked.kind == "ranges":
        msg = "a join over DataFrames has no layouts of ranges: its layout does not change"
        raise LayoutError(msg, name="layout", hint="use auto, grid or group counts, or sources of this package")
    asked.check(bound)
    return asked


def _check_kept(identity: CheckpointIdentity, asked: AskedLayout, options: QueryOptions) -> None:
    """Refuse another layout, or another number of cells, than the checkpoint has."""
    if asked.grid is not None and asked.grid != identity.layout:
        msg = f"the checkpoint has the layout {identity.layout}, which a join over DataFrames keeps"
        raise LayoutError(msg, name="layout", hint="leave it out, or use a new checkpoint and a new table")
    if options.cells not in (None, identity.partitions):
        msg = f"the checkpoint has {identity.partitions} cells, which a join over DataFrames keeps"
        raise LayoutError(msg, name="cells", hint="leave it out, or use a new checkpoint and a new table")


def _check_idle(join: Join, identity: CheckpointIdentity) -> None:
    """Refuse an idle timeout where the checkpoint's rows are not judged in their order."""
    for stream in join.streams:
        if stream.idle_timeout is not None and not identity.in_order:
            msg = f"stream {stream.name} has idle_timeout, and a former version began this checkpoint without an order"
            raise ArgumentError(msg, name="idle_timeout", hint="leave it out, or use a new checkpoint and a new table")
