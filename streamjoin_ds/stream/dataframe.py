"""`StreamJoin.dataframe`: the same join over DataFrames of other sources (Kafka, Delta, rate, files), as a DataFrame.

Its state decides the layout, not the session that happens to start the query. `StreamJoin.dataframe` gives a DataFrame
before there is a checkpoint, so it cannot look the layout up there. Spark fixes the number of a query's state
partitions with the first batch. Every task of every later batch gets that number, whatever the session says by then,
and the layout follows it. One key of the state keeps the layout, and refuses another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import absolute_location
from streamjoin_ds.cell.cell import STATE_DDL, TaskFacts
from streamjoin_ds.cell.cell_state import CellState, corrupt_cell_state
from streamjoin_ds.cell.cell_windows import RETAIN_KEY, CellWindows, blocks_prefix, check_execution, measured_costs
from streamjoin_ds.engine.intake.lateness import StreamClock, low_watermark
from streamjoin_ds.errors import (
    ArgumentError,
    FingerprintMismatchError,
    LayoutError,
    SessionError,
    WatermarkMissingError,
    WindowError,
)
from streamjoin_ds.exchange.frame_packing import Packer, foreign_columns, pack_foreign
from streamjoin_ds.exchange.outbox import EXCHANGE_DDL, LAYOUT_KEY, open_block
from streamjoin_ds.plan import AskedLayout, Execution, Layout, Load, Plan, choose_layout, deciding_cells, whole_layout
from streamjoin_ds.spark.release import arrow_schema, has_arrow_groups, needs_older_arrow
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind, duration_text
from streamjoin_ds.spec.columns import SEQ, TS
from streamjoin_ds.spec.event_time import NO_TIME
from streamjoin_ds.spec.key_values import content_hash
from streamjoin_ds.spec.member.files import Files, refused_option
from streamjoin_ds.spec.member.source import given_options
from streamjoin_ds.spec.nested_path import inner_path
from streamjoin_ds.stream.frame_tables import FrameTables, table_frames

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState

__all__ = [
    "FrameLayout",
    "check_frames",
    "check_kept_layout",
    "default_layout",
    "joined",
    "over_frames",
    "packed_frame",
]

_log = logging.getLogger(__name__)

_STATE_PARTITIONS_KEYS = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.shuffle.partitions",  # its name in checkpoints of Spark 4.1 and before
)
_MOST_CELLS = 64  # most cells of a layout that nobody asked for
WATERMARK_KEY = "spark.watermarkDelayMs"  # in a column's metadata: how Spark itself marks an event time


def default_layout(partitions: int, bound: BoundJoin) -> Layout:
    """Return the layout that is used if none is asked for: one cell for each partition, at most 64.

    A DataFrame has no commit that could put the answers of several cells together.
    """
    cells = min(partitions, _MOST_CELLS)
    if bound.decided:
        return whole_layout(bound, deciding_cells(bound, cells))
    return choose_layout(cells, Load.of_windows([1.0] * len(bound.names)))


@dataclass(frozen=True)
class FrameLayout:
    """What a task needs to find the plan of its query; a call returns the plan.

    Parameters
    ----------
    plan_text : str
        The plan as the driver sees it, with the session's partitions.
    has_layout : bool
        Whether the layout was asked for.
    """

    plan_text: str
    has_layout: bool

    def __call__(self) -> Plan:
        """Return the plan for the state's partitions; only in a task of a streaming query.

        Raises
        ------
        ArgumentError
            Spark does not tell how many state partitions the query has.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a plan is laid out in a task"
        given = [value for key in _STATE_PARTITIONS_KEYS if (value := context.getLocalProperty(key))]
        if not given:
            msg = "Spark does not tell how many state partitions the query has"
            raise ArgumentError(
                msg, name=_STATE_PARTITIONS_KEYS[0], hint="use a version of pyspark that the README names as supported"
            )
        return _laid_out(self, int(given[0]), context.getLocalProperty(RETAIN_KEY))


@lru_cache(maxsize=8)  # every task asks
def _laid_out(grid: FrameLayout, partitions: int, retain: str | None) -> Plan:
    plan = Plan.from_json(grid.plan_text)
    layout = plan.layout if grid.has_layout else default_layout(partitions, plan.bound)
    return replace(
        plan, layout=layout, partitions=partitions, retain_batches=int(retain) if retain else plan.retain_batches
    )


def check_kept_layout(plan: Plan, state: GroupState) -> Iterator[Any]:
    """Keep the plan's layout in the state, or compare it with the one that is kept; return no rows.

    Raises
    ------
    LayoutError
        The state was made with another layout, or another number of partitions: cells would not find their windows.
    FingerprintMismatchError
        The state was made by another join.
    """
    wanted = {"layout": plan.layout.to_facts(), "partitions": plan.partitions}
    if not state.exists:
        state.update((1, CellState(plan.bound.fingerprint, [], grid=wanted).encode()))
        return iter(())
    kept = CellState.decode(bytes(state.get[1]))
    if kept.fingerprint != plan.bound.fingerprint:
        raise other_join()
    if kept.grid is None:
        raise corrupt_cell_state()
    if kept.grid["layout"] != wanted["layout"]:
        was = Layout(tuple(kept.grid["layout"]))
        msg = f"this checkpoint has the layout {was}, not {plan.layout}"
        raise LayoutError(msg, name="layout", hint=f"use dataframe(..., layout='{was}'), or a new checkpoint")
    if kept.grid["partitions"] != wanted["partitions"]:
        msg = f"this checkpoint's windows lie on {kept.grid['partitions']} state partitions, and now it has others"
        hint = "repartition the checkpoint back to that number, or use a new one"
        raise LayoutError(msg, name="partitions", hint=hint)
    return iter(())


def other_join() -> FingerprintMismatchError:
    """Return the error for a state that another join wrote."""
    msg = "this checkpoint belongs to another join: streams, predicates, window, selection or self-pairs differ"
    hint = (
        "restore the join's former definition, or start with a new checkpoint; a self-join of one DataFrame also needs "
        "a new one if a version that paired each tuple with itself wrote the old one"
    )
    return FingerprintMismatchError(msg, name="state", hint=hint)


def joined(
    join: Join, frames: Mapping[str, DataFrame], layout: str | None, blocks: str | None, execution: Execution
) -> DataFrame:
    """Return the results of a join as a DataFrame; see `StreamJoin.dataframe`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from streamjoin_ds.spark.workers import check_workers

    for stream in join.streams:
        if stream.rate is not None:
            msg = f"stream {stream.name} has a rate, which dataframe() does not use"
            raise ArgumentError(
                msg, name="rate", hint="leave the rate out and give a layout, or use start() on sources"
            )
        if stream.is_topic:
            msg = f"stream {stream.name} is a topic, but dataframe() is given the rows"
            raise ArgumentError(msg, name=stream.name, hint="leave the source out, or use start(), which reads topics")
    beside = table_frames(join, frames)
    frames = {name: frame for name, frame in frames.items() if name not in beside}
    check_frames(join, frames)
    streaming = {name: frame.isStreaming for name, frame in frames.items()}
    if len(set(streaming.values())) > 1:
        static = ", ".join(name for name, moving in streaming.items() if not moving)
        msg = f"some frames are streaming and some are static ({static})"
        hint = "read all of them with spark.readStream, or all with spark.read; make a static one a Table of the join"
        raise ArgumentError(msg, name=static, hint=hint)
    schemas = {name: arrow_schema(frame.schema) for name, frame in {**frames, **beside}.items()}
    bound = bind(over_frames(join, frames), schemas)
    check_execution(bound, execution)
    session = next(iter(frames.values())).sparkSession
    if any(streaming.values()):
        needs_older_arrow(session)
    check_workers(session)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 2)
    state_root = "" if blocks is None else _checked_root(blocks)
    moving = any(streaming.values())
    asked = AskedLayout.parse(layout, len(bound.names))
    if asked.kind == "ranges":
        msg = "dataframe() has no layouts of ranges: its layout is kept in the state, and does not change"
        raise LayoutError(msg, name="layout", hint="use auto, grid or group counts, or start() on sources")
    asked.check(bound, whole=True)  # a DataFrame has no commit
    grid = asked.grid or default_layout(partitions, bound)
    plan = Plan(
        bound,
        grid,
        partitions,
        "packed",
        foreign=True,
        execution=execution,
        state_root=state_root,
        retain_batches=int(session.conf.get(RETAIN_KEY) or 100),
        costs=measured_costs(bound, execution, state_root) if moving else (),
    )
    tables = FrameTables.collected(bound, beside)
    placed = FrameLayout(plan.to_json(), asked.grid is not None) if moving else _Fixed(plan.to_json())
    packed = reduce(
        lambda left, right: left.union(right),
        (
            packed_frame(plan, number, frames[name], pack_foreign(placed, number, keeps_grid=moving))
            for number, name in enumerate(bound.names)
        ),
    )
    result = from_arrow_schema(_schema(bound))
    if not moving:
        cell = _static_cell(plan, tables)
        groups = packed.groupBy("cell")
        if has_arrow_groups(session.version):
            return groups.applyInArrow(cell, result)
        return groups.applyInPandas(_by_pandas(cell), result)
    delays_us = tuple(_delay_us(stream, frames[stream.name]) for stream in bound.join.streams)
    moved = _ForeignCell(placed, delays_us, tables)
    return packed.groupBy("cell").applyInPandasWithState(moved, result, STATE_DDL, "append", "NoTimeout")


def check_frames(join: Join, frames: Mapping[str, DataFrame], order_by: Sequence[tuple[str, ...]] = ()) -> None:
    """Refuse what no join over DataFrames can have, and frames that are not those of the join's streams.

    A stream may be idle where `order_by` has columns for it. Devices of static frames have clocks of their own without
    more, as no row of these is late.

    Raises
    ------
    ArgumentError, WindowError
    """
    if join.window.kind == "count":
        msg = "a count window needs an order of the tuples, and DataFrames have none"
        raise WindowError(msg, name="window", hint="use a time window (15s) or a periodic one, or start() on sources")
    for number, stream in enumerate(join.streams):
        is_ordered = bool(order_by and order_by[number])
        if stream.device_columns and any(frame.isStreaming for frame in frames.values()):
            msg = f"stream {stream.name} has partition_by={','.join(stream.device_columns)}, and its frame is streaming"
            hint = (
                "leave it out, and give start(frames=...) an order_by of two columns for the stream, a whole number "
                "for each device and the row's number in it, which has the same rule; or use start() on sources"
            )
            raise ArgumentError(msg, name="partition_by", hint=hint)
        clocks = {"idle_timeout": stream.idle_timeout, "max_ahead": stream.max_ahead}
        for option, value in {**clocks, "partition_by": stream.partition_kind}.items():
            if value is not None and not (is_ordered and option == "idle_timeout"):
                msg = (
                    f"stream {stream.name} has {option}, which needs an order of the records, and DataFrames have none"
                )
                orders = ", give start(frames=...) an order_by for it" * (option == "idle_timeout")
                raise ArgumentError(msg, name=option, hint=f"leave it out{orders}, or use start() on sources")
        if stream.unique is not None:
            msg = f"stream {stream.name} has unique, which needs an order of the records, and DataFrames have none"
            hint = "leave it out, and give the frame without duplicates: dropDuplicatesWithinWatermark"
            raise ArgumentError(msg, name="unique", hint=hint)
        options = [name for name in given_options(stream.source) if name not in ("format", "delimiter")]
        for option in [name for name in options if not (name == "partition_by" and stream.device_columns)]:
            raise refused_option(stream.name, option, "is a DataFrame, which has no files")
    if set(frames) != set(join.names):
        odd = ", ".join(sorted(set(frames) ^ set(join.names)))
        msg = f"the frames and the join's streams have different names: {odd}"
        raise ArgumentError(msg, name=odd, hint=f"give one frame for each of {', '.join(join.names)}")


@dataclass(frozen=True)
class _Fixed:
    """Returns the plan of a join over static frames: the driver's, as no state is kept."""

    plan_text: str

    def __call__(self) -> Plan:
        return Plan.from_json(self.plan_text)


def over_frames(join: Join, frames: Mapping[str, DataFrame]) -> Join:
    """Return the join with those streams over one input that are over one DataFrame, and only those.

    Streaming frames that mean the same share the node of their watermark, and so one source. That source gives both the
    same rows in each batch. A source that is read twice has two such nodes, and is two inputs.
    """
    given = [frames[name] for name in join.names]
    firsts = [next(n for n, other in enumerate(given) if _is_same(other, frame)) for frame in given]
    sources = [stream.location for stream in join.streams]
    is_plain = not any(stream.device_columns for stream in join.streams)  # no row of a static frame is late
    if is_plain and firsts == [n if source is None else sources.index(source) for n, source in enumerate(sources)]:
        return join
    streams = [
        replace(stream, source=Files(f"frame {first}") if firsts.count(first) > 1 else None, devices=())
        for stream, first in zip(join.streams, firsts, strict=True)
    ]
    return join.with_streams(streams)


def _is_same(frame: DataFrame, other: DataFrame) -> bool:
    return frame is other or frame.sameSemantics(other)


def _delay_us(stream: Stream, frame: DataFrame) -> int:
    """Return how late a stream's tuples may be, in microseconds: the delay of its frame's watermark.

    Raises
    ------
    WatermarkMissingError
        The frame has no watermark.
    ArgumentError
        The stream has a `delay` of its own, and it is not the frame's.
    """
    if not stream.written_time:
        msg = f"the event time of {stream.name} is computed, but a frame has its watermark on a column"
        hint = "compute it in the frame before withWatermark; or take start(frames=...), which needs no watermark"
        raise WatermarkMissingError(msg, name=stream.name, hint=hint)
    metadata = frame.schema[stream.time].metadata or {}
    if WATERMARK_KEY not in metadata:
        msg = f"the streaming frame of {stream.name} has no watermark on '{stream.time}': no window would ever empty"
        raise WatermarkMissingError(
            msg,
            name=stream.name,
            hint=f"frame.withWatermark('{stream.time}', '{stream.delay_us // 1000} milliseconds')",
        )
    delay_us = int(metadata[WATERMARK_KEY]) * 1000
    if stream.delay_us and stream.delay_us != delay_us:
        of_frame = duration_text(delay_us)
        msg = f"the frame of {stream.name} has a watermark of {of_frame}, and the stream a delay of {stream.delay}"
        hint = "give the same for both; a stream without a delay of its own has its frame's"
        raise ArgumentError(msg, name=stream.name, hint=hint)
    return delay_us


def _checked_root(blocks: str) -> str:
    root = absolute_location(blocks)
    BlockStore(root)  # a malformed URI is refused here, not in the first batch
    return root


def packed_frame(plan: Plan, stream: int, frame: DataFrame, pack: Packer) -> DataFrame:
    """Return exchange rows of a stream's frame, which `pack` makes of its `foreign_columns`."""
    names = foreign_columns(plan, stream)
    # Columns get their places as names: mapInArrow cannot take columns whose names hold a dot.
    chosen = frame.select(*(_column(frame, name).alias(f"c{place}") for place, name in enumerate(names)))
    return chosen.mapInArrow(pack, EXCHANGE_DDL)


def _column(frame: DataFrame, name: str) -> Column:
    """Return a column of a frame, or what its name leads to as a path."""
    from pyspark.sql import functions

    path = None if name in frame.columns else inner_path(name)
    if path is None:
        return frame[_quoted(name)]
    found = frame[_quoted(path[0])]
    for part in path[1]:
        found = functions.get(found, functions.lit(part)) if isinstance(part, int) else found.getField(part)
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _schema(bound: BoundJoin) -> pa.Schema:
    return pa.schema([field for field in bound.result_schema if field.name != "batch_id"])


def _tuples(plan: Plan, rows: Any, batch_id: int) -> dict[int, pa.Table]:
    """Return the tuples of exchange rows by stream, sorted by their content: inside a key Spark defines no order."""
    tables: dict[int, list[pa.Table]] = {}
    for stream, payload in rows:
        table = open_block(plan, "", bytes(payload))
        if table is not None:
            tables.setdefault(stream, []).append(table)
    inputs = plan.bound.same_inputs
    found = {}
    for stream, of_stream in sorted(tables.items()):
        table = pa.concat_tables(of_stream).sort_by([(TS, "ascending"), (SEQ, "ascending")])
        found[stream] = _told_apart(table, batch_id) if inputs.count(inputs[stream]) > 1 else table
    return found


def _told_apart(table: pa.Table, batch_id: int) -> pa.Table:
    """Return a stream's tuples, each with a number that it has in every stream over the same DataFrame.

    Equal rows of a batch are numbered 0, 1, 2, ... among themselves. Which of them gets which number does not matter,
    as long as the numbers differ.
    """
    hashes = table[SEQ].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])) if len(hashes) else np.empty(0, np.int64)
    places = np.arange(len(hashes)) - np.repeat(starts, np.diff(np.append(starts, len(hashes))))
    numbers = content_hash([pa.array(hashes), pa.array(places), pa.array(np.full(len(hashes), batch_id, np.int64))])
    return table.set_column(table.schema.get_field_index(SEQ), table.schema.field(SEQ), pa.array(numbers))


def _static_cell(plan: Plan, beside: FrameTables) -> Callable[[pa.Table], pa.Table]:
    """Return the function of one cell over static frames: all tuples are there, and none is late.

    It is a plain function because `applyInArrow` reads its type hints.
    """
    text = plan.to_json()

    def joined_cell(table: pa.Table) -> pa.Table:
        plan = Plan.from_json(text)
        rows = zip(table["stream"].to_pylist(), table["payload"].to_pylist(), strict=True)
        tuples = _tuples(plan, rows, 0)
        windows = CellWindows(plan, 0, None)
        beside.give(plan, windows.engines)
        with windows.staffed(sum(table.num_rows for table in tuples.values())):
            # Nothing can come any more, so what waits for its horizon is decided.
            chunks = list(windows.engine.push(tuples, plan.bound.end_us if plan.bound.decided else None))
        return pa.concat_tables(chunks) if chunks else _schema(plan.bound).empty_table()

    return joined_cell


def _by_pandas(cell: Callable[[pa.Table], pa.Table]) -> Callable[[Any], Any]:
    """Return a cell's function as Spark 3.5 can call it."""

    def joined_cell(frame):  # type: ignore[no-untyped-def]  # `applyInPandas` reads type hints
        table = pa.Table.from_pandas(frame[["stream", "payload"]], preserve_index=False)
        return cell(table).to_pandas(types_mapper=_masked().get)

    return joined_cell


@lru_cache(maxsize=1)
def _masked() -> dict[pa.DataType, Any]:
    """Return Pandas types by Arrow type: integers stay exact beside nulls, and NaN differs from null.

    Columns of these types can also be concatenated.
    """
    import pandas as pd

    return {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
    }


class _ForeignCell:
    """One cell over streaming frames; lateness is judged by the watermark at the batch's start.

    That watermark is the contract's: the smallest, over the streams, of the largest time in the batches before minus
    the delay. Every cell hears of every part of a batch, so each can keep it in its state. Spark's own watermark is not
    used: it depends on settings of the session.
    """

    def __init__(self, grid: Callable[[], Plan], delays_us: Sequence[int], beside: FrameTables) -> None:
        self.grid, self.delays_us, self.beside = grid, tuple(delays_us), beside

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        plan = self.grid()
        if int(key[0]) == LAYOUT_KEY:
            yield from check_kept_layout(plan, state)
            return
        task = TaskFacts.current()
        blob = bytes(state.get[1]) if state.exists else None
        largest_us: dict[int, int] = {}

        def rows() -> Iterator[tuple[int, bytes]]:
            for frame in frames:
                for row in frame.itertuples(index=False):
                    largest_us[row.stream] = max(int(row.largest_ts), largest_us.get(row.stream, NO_TIME))
                    yield row.stream, row.payload

        tuples = _tuples(plan, rows(), task.batch_id)
        inputs = plan.bound.same_inputs
        if not task.query_id and (plan.state_root or len(set(inputs)) < len(inputs)):
            msg = "a function of foreachBatch under Spark Connect does not tell the join which batch it has"
            hint = "use start(frames=...), or write the DataFrame by a sink of Spark (toTable, format)"
            raise SessionError(msg, name="foreachBatch", hint=hint)
        windows = CellWindows(plan, plan.cell_of(int(key[0])), blob, prefix=blocks_prefix(task.query_id))
        self.beside.give(plan, windows.engines)
        clocks = [StreamClock(*known) for known in zip(self.delays_us, windows.state.largest_us, strict=True)]
        watermark_us = low_watermark(clocks, windows.state.watermark_us)
        in_time = {stream: _in_time(plan, stream, table, watermark_us) for stream, table in tuples.items()}
        with windows.staffed(sum(table.num_rows for table in in_time.values())) as staff:
            for chunk in staff.timed(windows.engine.push(in_time, watermark_us)):
                yield chunk.to_pandas(types_mapper=_masked().get)
        for stream, largest in largest_us.items():
            clocks[stream].advance(largest)
        state.update((1, windows.saved(task.batch_id, [clock.largest for clock in clocks], watermark_us)))


def _in_time(plan: Plan, stream: int, table: pa.Table, watermark_us: int | None) -> pa.Table:
    """Return the tuples that are not late; the number of the others goes to the worker's log."""
    if watermark_us is None:
        return table
    late = pa.compute.less(table[TS], watermark_us)
    count = pa.compute.sum(late).as_py() or 0
    if count:
        _log.warning("%d late tuples of stream %s were dropped", count, plan.bound.names[stream])
    return table.filter(pa.compute.invert(late)) if count else table
