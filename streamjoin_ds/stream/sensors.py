"""``format("sensors")``: Spark's Python data source over feeds, and its readers.

As a stream it asks a `BatchPlanner`; as a table its reader gives all that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streamjoin_ds.blocks import freeze_imports
from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA
from streamjoin_ds.source.generator import GeneratorFeed
from streamjoin_ds.source.partitioned_feed import PartitionedFeed
from streamjoin_ds.spark.admission import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SelfLimitedReader,
    SupportsTriggerAvailableNow,
)
from streamjoin_ds.spark.release import arrow_schema, has_admission
from streamjoin_ds.stream.batch_planner import BatchPlanner
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.sensor_tasks import ReadTask, SensorsTasks, plain_schema

__all__ = ["SensorsBatchReader", "SensorsDataSource", "SensorsStreamReader", "spark_struct"]

_ALL = 1 << 40  # more records than any input has


class SensorsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A `BatchPlanner` as Spark asks for one, in its planner process.

    Parameters
    ----------
    options, schema, clock, wall
        Those of `BatchPlanner`.
    threads : int
        How many streams it looks at side by side.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        threads: int = 1,
    ) -> None:
        self.planner = BatchPlanner(options, schema, clock, wall)
        self._most_rows, self._threads = options.max_rows_per_batch, threads

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first record of every stream."""
        return self.planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch: `max_rows_per_batch` records of all streams together."""
        return ReadMaxRows(self._most_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`; if there is nothing new, exactly `start`."""
        most = self._most_rows
        if isinstance(limit, ReadMaxRows):
            most = max(1, limit.max_rows)
        elif isinstance(limit, ReadAllAvailable) and not self.planner.endless:
            most = _ALL
        least = limit.min_rows if isinstance(limit, ReadMinRows) else 0
        if self._threads < 2:
            return self.planner.latest(start, most, least)
        with ThreadPoolExecutor(self._threads) as pool:  # one that is kept could not be sent to Spark's workers
            return self.planner.latest(start, most, least, each=pool.map)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """See `BatchPlanner.report`."""
        return self.planner.report()

    def prepareForTriggerAvailableNow(self) -> None:
        """See `BatchPlanner.freeze`."""
        self.planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one task for each stream and part; they depend on the two offsets and the input alone."""
        return [InputPartition(task) for task in self.planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        freeze_imports()
        return self.planner.read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """See `BatchPlanner.committed`: Spark will not ask for the records before `end` again."""
        self.planner.committed(end)

    def stop(self) -> None:
        """Do nothing: what is open between batches is closed when the process ends."""


class SensorsBatchReader(DataSourceReader):
    """Reads a stream as a table: all that is there, including a last line without a newline.

    Parameters
    ----------
    options : SourceOptions
        The reader's options, without a plan.
    schema : pyarrow.Schema
        Columns of the rows given to Spark.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._tasks = SensorsTasks(options, schema)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for a stream of files, and `parts` tasks for a generated one."""
        self._tasks.refuse_endless("a batch reads to the end")
        planned = []
        for number, (stream, feed) in enumerate(zip(self._options.streams, self._tasks.feeds, strict=True)):
            start = feed.initial()
            # What is set aside of a bad file must be decided before the task reads it.
            if isinstance(feed, (GeneratorFeed, PartitionedFeed)) or stream.quarantines:
                feed.freeze()
                end = feed.advance(start, feed.frontier(start, 1 << 62).rows)
                files = feed.files_between(start, end)
                for part, (low, high) in enumerate(feed.split(start, end, self._options.parts)):
                    facts = (low.to_facts(), high.to_facts())
                    planned.append(ReadTask(number, part, *facts, files=files))
            else:
                planned.append(ReadTask(number, 0, start.to_facts(), None))
        return [InputPartition(task) for task in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        freeze_imports()
        return self._tasks.read(partition.value)


def spark_struct(schema: pa.Schema) -> StructType:
    """Return Spark's type of rows with these columns; a field may be null if its column may."""
    struct = from_arrow_schema(schema)
    for field, column in zip(struct.fields, schema, strict=True):
        field.nullable = column.nullable
    return struct


class SensorsDataSource(DataSource):
    """Spark's data source of recorded or generated sensors, as a table or a stream.

    ``spark.read.format("sensors")`` and ``spark.readStream.format("sensors")`` give ordinary rows: ``_seq`` (the
    record's number in its stream, from 0) and the stream's columns, the event time as a timestamp. In a join,
    `StreamJoin` sets the option `plan`, and the rows are those of the exchange.

    Options
    -------
    path, or generator
        A file, a folder or ``/folder/*.csv.gz``, here or in an object store (``s3://bucket/folder``), a Delta table, or
        a topic (``kafka://broker:9092/topic?format=json``); a generator such as
        ``gen:band2d?side=r&rate=5117&rows=1000000``.
    time, time_unit, format, delimiter, columns, delay
        Options of the stream; see `streamjoin_ds.spec.Stream`. `columns` is its `schema` as JSON,
        ``{"ts": "timestamp[us, tz=UTC]"}``. `delay` is not used outside a join.
    on_bad_file, partition_by, sub_folders, file_order, finished_after
        Options of a folder; see `streamjoin_ds.spec.Stream`.
    on_change, startingVersion, startingTimestamp
        Options of a Delta table; see `streamjoin_ds.spec.Stream`.
    broken_rows
        ``fail`` (default), or ``keep``: a broken record is a row of nulls with the reason in ``_rejected``.
    max_rows_per_batch, max_delay, pace, parts, missing_files, max_block_rows
        Options of the reader; see `streamjoin_ds.stream.query_options.READER_OPTIONS`.

    Examples
    --------
    >>> spark.dataSource.register(SensorsDataSource)                            # doctest: +SKIP
    >>> spark.read.format("sensors").load("flights.csv.gz").count()             # doctest: +SKIP
    >>> spark.readStream.format("sensors").option("generator", "gen:sensor?rate=100").load()    # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name: sensors."""
        return "sensors"

    def schema(self) -> StructType:
        """Return the columns of the rows, with Spark's types."""
        return spark_struct(self._row_schema())

    def reader(self, schema: StructType) -> SensorsBatchReader:
        """Return the reader for ``spark.read``."""
        return SensorsBatchReader(self._parsed(), arrow_schema(schema))

    def limited_reader(self, schema: StructType) -> SensorsStreamReader:
        """Return the reader for ``spark.readStream`` as Spark 4.2 asks one, on each release."""
        options = self._parsed()
        threads = min(len(options.streams), usable_core_count())
        return SensorsStreamReader(options, arrow_schema(schema), threads=threads)

    def streamReader(self, schema: StructType) -> SensorsStreamReader:
        """Return the reader for ``spark.readStream``; for Spark 4.0 and 4.1 a `SelfLimitedReader` over it."""
        reader = self.limited_reader(schema)
        if has_admission():
            return reader
        options = self._parsed()
        # Of plain rows a run with availableNow is one batch there, which must not leave anything out.
        limit = ReadAllAvailable() if options.plan is None and options.takes_all else None
        old = SelfLimitedReader(reader, available_now=options.available_now, limit=limit)
        return old  # type: ignore[return-value]  # it is asked otherwise

    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    def _row_schema(self) -> pa.Schema:
        options = self._parsed()
        return plain_schema(options) if options.plan is None else EXCHANGE_SCHEMA
