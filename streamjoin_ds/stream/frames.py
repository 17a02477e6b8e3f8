"""The row path: the same join over DataFrames that other sources made (Kafka, Delta, rate, files)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.engine.join import WindowJoin
from streamjoin_ds.errors import ArgumentError, WatermarkMissingError, WindowError
from streamjoin_ds.plan import Execution, Layout, Plan, choose_layout
from streamjoin_ds.source.exchange import EXCHANGE_DDL, open_block, pack_foreign
from streamjoin_ds.spec import BoundJoin, Join, bind
from streamjoin_ds.spec.bound import TS
from streamjoin_ds.stream.cell import STATE_DDL, TaskFacts
from streamjoin_ds.stream.windows import (
    RETAIN_KEY,
    CellWindows,
    absolute_root,
    blocks_prefix,
    check_execution,
    task_cores,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructType

__all__ = ["joined"]

_log = logging.getLogger(__name__)

_WATERMARK_KEY = "spark.watermarkDelayMs"  # in a column's metadata: how Spark itself marks an event time


def joined(
    join: Join, frames: Mapping[str, DataFrame], layout: str | None, blocks: str | None, execution: Execution
) -> DataFrame:
    """See `StreamJoin.dataframe`."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    from streamjoin_ds.stream.worker_check import check_workers

    if join.window.kind == "count":
        msg = "a count window is over the order of tuples, and DataFrames have none"
        raise WindowError(msg, name="window", hint="a time window (15s) or a periodic one, or start() on sources")
    if set(frames) != set(join.names):
        odd = ", ".join(sorted(set(frames) ^ set(join.names)))
        msg = f"the frames are not those of the join's streams: {odd}"
        raise ArgumentError(msg, name=odd, hint=f"one frame for each of {', '.join(join.names)}")
    streaming = {name: frame.isStreaming for name, frame in frames.items()}
    if len(set(streaming.values())) > 1:
        static = ", ".join(name for name, moving in streaming.items() if not moving)
        msg = f"some frames are streaming and some are static ({static})"
        raise ArgumentError(msg, name=static, hint="give all as readStream, or all as read")
    bound = bind(join, {name: to_arrow_schema(frame.schema, timezone="UTC") for name, frame in frames.items()})
    check_execution(bound, execution)
    session = next(iter(frames.values())).sparkSession
    check_workers(session)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 2)
    if layout is not None:
        grid = Layout.parse(layout, len(bound.names))
    else:
        grid = choose_layout(min(partitions, 64), [1.0] * len(bound.names))
    plan = Plan(
        bound,
        grid,
        partitions,
        "packed",
        foreign=True,
        execution=execution,
        state_root="" if blocks is None else _checked_root(blocks),
        retain_batches=int(session.conf.get(RETAIN_KEY) or 100),
    )
    packed = reduce(
        lambda left, right: left.union(right),
        (_packed(plan, number, frames[name]) for number, name in enumerate(bound.names)),
    )
    result = from_arrow_schema(_schema(bound))
    if not any(streaming.values()):
        return packed.groupBy("cell").applyInArrow(_static_cell(plan), result)
    for stream in join.streams:
        field = frames[stream.name].schema[stream.time]
        if _WATERMARK_KEY not in (field.metadata or {}):
            msg = (
                f"the streaming frame of {stream.name} has no watermark on '{stream.time}': no window would ever empty"
            )
            raise WatermarkMissingError(
                msg, name=stream.name, hint=f"frame.withWatermark('{stream.time}', '10 seconds')"
            )
    return packed.groupBy("cell").applyInPandasWithState(_ForeignCell(plan), result, STATE_DDL, "append", "NoTimeout")


def _checked_root(blocks: str) -> str:
    root = absolute_root(blocks)
    BlockStore(root)  # a URI that is none is refused here, not by the first batch
    return root


def _packed(plan: Plan, stream: int, frame: DataFrame) -> DataFrame:
    names = plan.bound.read_schemas[stream].names
    # By place: mapInArrow cannot take columns whose names hold a dot.
    chosen = frame.select(*(frame[_quoted(name)].alias(f"c{place}") for place, name in enumerate(names)))
    return chosen.mapInArrow(pack_foreign(plan, stream), _packed_schema())


def _packed_schema() -> StructType:
    """Rows of the exchange and ``moment``, marked as an event time.

    Spark shows a state function the watermark only where a column below it is marked so, refuses a second
    ``withWatermark`` in one query, and forgets the first one's mark in ``mapInArrow``. The mark is all there is of it
    here: the watermark itself is the smallest of those the frames define.
    """
    from pyspark.sql.types import StructField, StructType, TimestampType

    exchange: Any = StructType.fromDDL(EXCHANGE_DDL)
    return StructType([*exchange.fields, StructField("moment", TimestampType(), metadata={_WATERMARK_KEY: 0})])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _schema(bound: BoundJoin) -> pa.Schema:
    return pa.schema([field for field in bound.result_schema if field.name != "batch_id"])


def _tuples(plan: Plan, rows: Any) -> dict[int, list[pa.Table]]:
    """The tuples of exchange rows by stream, in an order of their own content: Spark defines none inside a key."""
    tables: dict[int, list[pa.Table]] = {}
    for stream, payload in rows:
        table = open_block(plan, "", bytes(payload))
        if table is not None:
            tables.setdefault(stream, []).append(table)
    return {
        s: [pa.concat_tables(found).sort_by([(TS, "ascending"), ("_seq", "ascending")])]
        for s, found in sorted(tables.items())
    }


def _static_cell(plan: Plan) -> Callable[[pa.Table], pa.Table]:
    """One cell over static frames: everything is there, nothing is late. A function: `applyInArrow` reads its hints."""
    text = plan.to_json()

    def joined_cell(table: pa.Table) -> pa.Table:
        plan = Plan.from_json(text)
        rows = zip(table["stream"].to_pylist(), table["payload"].to_pylist(), strict=True)
        with task_cores(plan.execution) as cores:
            engine = WindowJoin(plan.bound, **plan.execution.engine_options(), cores=cores)
            chunks = list(engine.push(_tuples(plan, rows), None))
        return pa.concat_tables(chunks) if chunks else _schema(plan.bound).empty_table()

    return joined_cell


@lru_cache(maxsize=1)
def _masked() -> dict[pa.DataType, Any]:
    """Pandas types that keep integers exact beside nulls and NaN apart from null, and that can be concatenated."""
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
    """One cell over streaming frames, with Spark's watermark at the batch's start as the judge of lateness."""

    def __init__(self, plan: Plan) -> None:
        self.plan_text = plan.to_json()

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        plan = Plan.from_json(self.plan_text)
        bound = plan.bound
        blob = bytes(state.get[1]) if state.exists else None
        watermark_us = max(state.getCurrentWatermarkMs(), 0) * 1000 or None
        rows = ((row.stream, row.payload) for frame in frames for row in frame.itertuples(index=False))
        tuples = _tuples(plan, rows)
        if watermark_us is not None:
            for stream, tables in tuples.items():
                late = pa.compute.less(tables[0][TS], watermark_us)
                count = pa.compute.sum(late).as_py() or 0
                if count:
                    _log.warning("%d late tuples of stream %s were dropped", count, bound.names[stream])
                    tables[0] = tables[0].filter(pa.compute.invert(late))
        task = TaskFacts.current()
        with task_cores(plan.execution) as cores:
            prefix = blocks_prefix(task.query_id)
            windows = CellWindows(plan, plan.labels.index(int(key[0])), blob, cores, prefix=prefix)
            for chunk in windows.engine.push(tuples, watermark_us):
                yield chunk.to_pandas(types_mapper=_masked().get)
        state.update((1, windows.saved(task.batch_id, [None] * len(bound.names), watermark_us)))
