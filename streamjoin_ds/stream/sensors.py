"""``format("sensors")``: the Python data source."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from streamjoin_ds.exchange.outbox import EXCHANGE_SCHEMA
from streamjoin_ds.stream.sensor_options import SourceOptions
from streamjoin_ds.stream.sensor_readers import SensorsBatchReader, SensorsStreamReader
from streamjoin_ds.stream.sensor_rows import plain_schema

__all__ = ["SensorsDataSource", "spark_struct"]


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
        Options of the reader; see `streamjoin_ds.stream.sensor_options.READER_OPTIONS`.

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
        return SensorsBatchReader(self._parsed(), to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> SensorsStreamReader:
        """Return the reader for ``spark.readStream``."""
        return SensorsStreamReader(self._parsed(), to_arrow_schema(schema, timezone="UTC"))

    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    def _row_schema(self) -> pa.Schema:
        options = self._parsed()
        return plain_schema(options) if options.plan is None else EXCHANGE_SCHEMA
