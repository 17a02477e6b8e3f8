"""Tables and views of Spark's catalog as DataFrames; their names go to Spark's methods, never into a text of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamjoin_ds.errors import ArgumentError, TableError
from streamjoin_ds.spec.columns import names_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Catalog", "table_name", "watermark_of"]

_WATERMARK_KEY = "spark.watermarkDelayMs"  # in a column's metadata: how Spark itself marks an event time


class Catalog:
    """What Spark's catalog has.

    Parameters
    ----------
    spark : SparkSession
        The session whose catalog it is.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def has(self, name: str) -> bool:
        """Whether there is a table or a view of this name."""
        from pyspark.errors import PySparkException

        try:
            return bool(self._spark.catalog.tableExists(name))
        except PySparkException:  # no name of a table, or a catalog that is not there
            return False

    def is_view(self, name: str) -> bool:
        """Whether a table or view is a view."""
        return self._spark.catalog.getTable(name).tableType in ("VIEW", "TEMPORARY")

    def frame(self, name: str, *, is_moving: bool, created: Sequence[str] = ()) -> DataFrame:
        """Return a table or view as a DataFrame.

        Parameters
        ----------
        name : str
            As Spark reads it: ``db.readings``.
        is_moving : bool
            Whether it must be streaming. A table is then read as a stream.
        created : sequence of str
            The names of streams and tables that the text created, for the error's hint.

        Raises
        ------
        TableError
            There is no such table or view.
        ArgumentError
            It must be streaming, and is a view over static data.
        """
        if not self.has(name):
            known = [*created, *(table.name for table in self._spark.catalog.listTables())]
            msg = f"there is no stream, table or view named '{name}'"
            hint = "CREATE STREAM makes a stream; " + names_hint(name, known, "there are")
            raise TableError(msg, name=name, hint=hint)
        frame = self._spark.table(name)
        if frame.isStreaming or not is_moving:
            return frame
        if self.is_view(name):
            msg = f"the view {name} is over static data, and INSERT needs streams"
            hint = "make it of spark.readStream; or leave INSERT INTO out: SELECT alone gives a DataFrame"
            raise ArgumentError(msg, name=name, hint=hint)
        return self._spark.readStream.table(name)


def table_name(parts: Sequence[str]) -> str:
    """Return the name of a table as Spark reads it, each part in back-ticks."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def watermark_of(frame: DataFrame) -> tuple[str, str] | None:
    """Return the column on which a streaming DataFrame has a watermark, and its delay; None if it has none."""
    for field in frame.schema.fields if frame.isStreaming else ():
        if _WATERMARK_KEY in (field.metadata or {}):
            return field.name, f"{int(field.metadata[_WATERMARK_KEY])}ms"
    return None
