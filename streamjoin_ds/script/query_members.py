"""The members of a query: which of its inputs are streams, which are tables beside them, and which are over DataFrames.

::

    CREATE STREAM (source)  stream                     CREATE TABLE (source)  table, its versions by `refresh`
    CREATE STREAM (table)   stream over a DataFrame    CREATE TABLE (table)   table over a static DataFrame

A name of Spark's catalog alone is a stream where it can be one. It is a table where it cannot: its rows are static and
the query's streams are not, or have sources. A name of Spark's catalog goes to Spark's methods, never into a text of
SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamjoin_ds.errors import ArgumentError, StreamJoinError, TableError
from streamjoin_ds.script.partners import written_join
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Input, Query, StreamStatement
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.stream.dataframe import WATERMARK_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Catalog", "Members", "Resolved", "table_name", "watermark_of"]


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
        if WATERMARK_KEY in (field.metadata or {}):
            return field.name, f"{int(field.metadata[WATERMARK_KEY])}ms"
    return None


@dataclass(frozen=True)
class Resolved:
    """The members of a query.

    Attributes
    ----------
    streams, tables : tuple of Input
        In the query's order.
    frames : mapping of str to DataFrame
        By the names of those members that are over DataFrames.
    """

    streams: tuple[Input, ...]
    tables: tuple[Input, ...]
    frames: Mapping[str, DataFrame]


class Members:
    """The inputs of a query.

    Parameters
    ----------
    text : SqlText
    query : Query
    made : mapping of str to StreamStatement
        By an input's name what created it; None where nothing in the text did.
    facts : mapping of str to mapping
        By an input's name its options.
    created : sequence of str
        The names of all streams and tables that the text created.
    is_moving : bool
        Whether the streams must be streaming: the query is an INSERT.

    Raises
    ------
    SqlSyntaxError
        The inputs cannot be joined together; the error says where it stands.
    """

    def __init__(
        self,
        text: SqlText,
        query: Query,
        made: Mapping[str, StreamStatement | None],
        facts: Mapping[str, Mapping[str, Any]],
        created: Sequence[str],
        *,
        is_moving: bool,
    ) -> None:
        self._text, self._query, self._made, self._facts = text, query, made, facts
        self._created, self._is_moving = created, is_moving
        self._check()
        # Streams with sources have none over DataFrames beside them.
        self._has_sources = any("source" in facts[one.alias] for one in query.inputs if not self._is_beside(one))

    @property
    def needs_catalog(self) -> bool:
        """Whether a member is a table or view of Spark."""
        return any(self._name(one) is not None for one in self._query.inputs)

    def resolved(self, catalog: Catalog | None) -> Resolved:
        """Return which inputs are streams and which are tables.

        Parameters
        ----------
        catalog : Catalog, optional
            Spark's, where it `needs_catalog`.

        Raises
        ------
        StreamJoinError
            Spark has no such table or view, or it cannot be what the query makes of it; the error says where it stands.
        """
        inputs = self._query.inputs
        beside = {one.alias for one in inputs if self._is_beside(one)}
        unsaid = [one for one in inputs if self._made[one.alias] is None]
        frames: dict[str, DataFrame] = {}
        if self._has_sources:
            beside |= {one.alias for one in unsaid}
        if catalog is not None:
            over = [one for one in inputs if self._name(one) is not None]
            static = {one.alias: self._frame(catalog, one, is_moving=False) for one in over}
            if not self._has_sources:
                moves = {one.alias: self._moves(catalog, one, static[one.alias]) for one in over}
                has_stream = any(moves[one.alias] for one in over if one.alias not in beside)
                beside |= {one.alias for one in unsaid if has_stream and not moves[one.alias]}
            known: dict[str, DataFrame] = {}  # one frame for one name: a self-join
            for one in over:
                if one.alias in beside:
                    frames[one.alias] = self._of_table(one, static[one.alias])
                    continue
                name = self._name(one) or ""
                if name not in known:
                    known[name] = self._frame(catalog, one, is_moving=self._is_moving)
                frames[one.alias] = known[name]
        streams = tuple(one for one in inputs if one.alias not in beside)
        return Resolved(streams, tuple(one for one in inputs if one.alias in beside), frames)

    def _frame(self, catalog: Catalog, one: Input, *, is_moving: bool) -> DataFrame:
        try:
            return catalog.frame(self._name(one) or "", is_moving=is_moving, created=self._created)
        except StreamJoinError as error:
            raise self._text.located(error, one.span) from None

    def _moves(self, catalog: Catalog, one: Input, frame: DataFrame) -> bool:
        """Whether an input is streaming in this query: INSERT reads a table of the catalog as a stream."""
        return frame.isStreaming or (self._is_moving and not catalog.is_view(self._name(one) or ""))

    def _of_table(self, one: Input, frame: DataFrame) -> DataFrame:
        if not frame.isStreaming:
            return frame
        msg = f"{one.alias} is streaming, and a table beside streams is static"
        hint = "make it of spark.read; or have all streams of the query from Spark: CREATE STREAM e WITH (table = ...)"
        raise self._text.located(ArgumentError(msg, name=one.alias, hint=hint), one.span)

    def _is_beside(self, one: Input) -> bool:
        made = self._made[one.alias]
        return made is not None and made.is_table

    def _name(self, one: Input) -> str | None:
        """Return the name of the table or view of Spark that an input is; None if it has a source."""
        if self._made[one.alias] is None:
            return table_name(one.source)
        table: str | None = self._facts[one.alias].get("table")
        return table

    def _check(self) -> None:
        query, text = self._query, self._text
        taken: dict[str, Input] = {}
        for one in query.inputs:
            if (one.how != "inner" or one.ranking is not None) and len(query.inputs) > 2 and not query.is_of_each:
                words, span = written_join(text, one)
                hint = "write JOIN, or two queries: the results of the first are a stream for the second"
                hint += "" if one.how not in ("semi", "anti") else f"; or join all of them by {words}"
                raise text.refused(span, f"{words} needs two streams, and this query has more", hint, one.how)
            if one.alias.casefold() in taken:
                why = f"two streams of this query are named '{one.alias}'"
                raise text.refused(one.span, why, "give each its own name: FROM e JOIN e AS f", one.alias)
            taken[one.alias.casefold()] = one
        if len(query.inputs) == 1:
            hint = "a query joins two streams or more: FROM e JOIN w ON ..."
            if any(token.word in ("EXISTS", "SELECT") for token in query.where):
                hint = "in place of a query in WHERE join its stream: FROM e LEFT SEMI JOIN w ON ..., or LEFT ANTI JOIN"
            raise text.refused(query.inputs[0].span, "this query has one stream", hint)
        streams = [one for one in query.inputs if not self._is_beside(one)]
        for one in streams:
            self._check_options(one)
        over = [one for one in streams if self._made[one.alias] is not None and self._name(one) is not None]
        other = next((one for one in streams if "source" in self._facts[one.alias]), None)
        if over and other is not None:
            why = f"{over[0].alias} is a table or view of Spark, and {other.alias} has a source"
            hint = "all streams of a query come from sources, or all from Spark; CREATE TABLE makes a table beside them"
            raise text.refused(over[0].span, why, hint, over[0].alias)

    def _check_options(self, one: Input) -> None:
        given, made = self._facts[one.alias], self._made[one.alias]
        if made is None:
            return
        if ("source" in given) == ("table" in given):
            why = f"the stream {made.name} has both source and table"
            why = why if "source" in given else f"the stream {made.name} has neither source nor table"
            hint = "WITH (source = 'a/path') reads files, WITH (table = 'name') a table or view of Spark"
            raise self._text.refused(made.span, why, hint, made.name)
        if "order_by" in given and "source" in given:
            hint = "leave it out: the records of a source have an order"
            span = made.options["order_by"].span
            raise self._text.refused(span, "order_by is for tables and views", hint, "order_by")
