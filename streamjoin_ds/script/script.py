"""The run of a text of statements: a query for each INSERT, a DataFrame for each SELECT, a plan for EXPLAIN."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.plan import DEFAULT_EXECUTION, EXECUTION_OPTIONS, AskedLayout, Plan
from streamjoin_ds.plan.explanation import explain
from streamjoin_ds.request.request import EXPLAINED, settings_of_spark
from streamjoin_ds.script.query_builder import Asked, AskedJoin
from streamjoin_ds.script.query_members import Catalog, table_name
from streamjoin_ds.script.reader import statements
from streamjoin_ds.script.sql_options import check_created, checked_setting, spark_text
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import Explained, Option, StreamStatement
from streamjoin_ds.spark.release import arrow_schema
from streamjoin_ds.spec import bind
from streamjoin_ds.stream.dataframe import check_frames, default_layout, over_frames
from streamjoin_ds.stream.frame_tables import table_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamjoin_ds.stream.local_query import LocalQuery

__all__ = ["Script", "Step", "sql"]


@dataclass(frozen=True)
class Step:
    """A statement of a text that gives something: a query, a DataFrame or a plan.

    Parameters
    ----------
    asked : Asked
        The query.
    is_explained : bool
        Whether its plan is asked for, and not its results.
    """

    asked: Asked
    is_explained: bool

    def plan(self, catalog: Catalog | None) -> str:
        """Return the plan in words, as ``streamjoin explain`` prints it."""
        joined = self.asked.joined(catalog)
        options = {key: value for key, value in joined.request.run.items() if key in EXPLAINED}
        try:
            if joined.is_over_frames and self.asked.statement.table is None:
                return _plan_over_frames(joined, options)
            return joined.request.join.explain(**({"exchange": "auto"} | options | _over(joined)))
        except StreamJoinError as error:
            raise self.asked.named(error) from None

    def checked(self, catalog: Catalog | None) -> AskedJoin:
        """Return the join of an INSERT or SELECT, once all that it needs is there.

        Raises
        ------
        SqlSyntaxError
            It has no checkpoint, or its table is one of Spark's catalog.
        """
        statement, facts = self.asked.statement, self.asked.facts
        if statement.table is None:
            joined = self.asked.joined(catalog)
            if not joined.is_over_frames:
                hint = "write INSERT INTO table SELECT ...; SELECT alone is over tables and views of Spark"
                why = "this query is over sources, and does not say where its results go"
                raise self.asked.refused(why, hint)
            return joined
        if "checkpoint" not in facts:
            hint = f"write INSERT INTO {statement.table} WITH (checkpoint = 'a/path'), from which a restart goes on"
            why = "this query has no checkpoint"
            raise self.asked.refused(why, hint, "checkpoint")
        is_name = not statement.is_path and "to" not in facts
        if catalog is not None and is_name and catalog.has(table_name([statement.table])):
            hint = f"write delta.`a/path` or 'a/path': a name alone is a folder, here ./{statement.table}"
            why = f"Spark's catalog has a table {statement.table}, which results do not go to"
            raise self.asked.refused(why, hint, statement.table)
        return self.asked.joined(catalog)

    def start(self, spark: SparkSession | None, joined: AskedJoin) -> StreamingQuery | LocalQuery:
        """Start the query of an INSERT; without a session in this process."""
        request = joined.request
        assert request.to is not None, "it was checked"
        assert request.checkpoint is not None, "it was checked"
        try:
            if spark is None:
                return request.join.run_local(request.to, request.checkpoint, **request.run)
            return request.join.start(spark, request.to, request.checkpoint, **request.run, **_over(joined))
        except StreamJoinError as error:
            raise self.asked.named(error) from None

    def frame(self, joined: AskedJoin) -> DataFrame:
        """Return the results of a SELECT alone: the columns of its list, in their order."""
        options = dict(joined.request.run)
        known = ("layout", "execution")
        for name in options:
            if name not in known:
                option = self.asked.statement.options.get(name)
                msg = f"{name} is an option of INSERT, and SELECT alone gives a DataFrame"
                hint = f"leave it out, or give one of layout, {', '.join(EXECUTION_OPTIONS)}"
                error = ArgumentError(msg, name=name, hint=hint)
                raise error if option is None else self.asked.named(error)
        try:
            results = joined.request.join.dataframe(joined.frames, **options)
        except StreamJoinError as error:
            raise self.asked.named(error) from None
        return results.select(*(results[f"`{name.replace('`', '``')}`"] for name in joined.columns))


class Script:
    """A text of statements, read and checked as far as it can be without Spark.

    Parameters
    ----------
    text : str
        The statements, in Spark's SQL, with semicolons between them.
    flags : mapping, optional
        Keys of the TOML file that win over the text's options.

    Attributes
    ----------
    steps : tuple of Step
        What the text asks for, in its order.
    session : dict
        Arguments for `spark_session`: ``master`` and ``conf``; or ``local``, and there is none.

    Raises
    ------
    SqlSyntaxError
        A statement is not understood; the error says where, and what is valid there. Other errors of this package say
        where in the text they arose, too.
    """

    def __init__(self, text: str, flags: Mapping[str, Any] | None = None) -> None:
        flags = flags or {}
        self.text = SqlText(text)
        made: dict[str, StreamStatement] = {}
        settings: dict[str, Option] = {}
        steps = []
        for statement in statements(self.text):
            if isinstance(statement, Option):
                checked_setting(self.text, statement)
                settings[statement.name] = statement
            elif isinstance(statement, StreamStatement):
                if statement.name.casefold() in made:
                    why = f"the {'table' if statement.is_table else 'stream'} {statement.name} is there twice"
                    hint = "give each its own name; upper and lower case do not make a difference"
                    raise self.text.refused(statement.span, why, hint, statement.name)
                made[statement.name.casefold()] = statement
            else:
                is_explained = isinstance(statement, Explained)
                asked = statement.statement if isinstance(statement, Explained) else statement
                steps.append(Step(Asked(self.text, asked, dict(made), flags), is_explained))
        used = {name for step in steps for name in step.asked.created}
        for name, unused in made.items():
            if name not in used:
                check_created(self.text, unused)
        self.steps = tuple(steps)
        self.settings = settings
        conf = {name: spark_text(option.value) for name, option in settings.items() if "." in name}
        given = {
            "master": flags.get("master", settings["master"].value if "master" in settings else None),
            "conf": conf | settings_of_spark(flags.get("conf", ())),
            "local": flags.get("local", settings["local"].value if "local" in settings else False),
        }
        self.session = {name: value for name, value in given.items() if value}

    @property
    def needs_catalog(self) -> bool:
        """Whether a stream of a query is a table or view of Spark."""
        return any(step.asked.needs_catalog for step in self.steps)

    def checked(self, steps: Sequence[Step], catalog: Catalog | None) -> list[AskedJoin]:
        """Return the joins of some steps, once each has a table and a checkpoint that no other has.

        Raises
        ------
        SqlSyntaxError
            Two queries have one table or one checkpoint.
        """
        found: list[AskedJoin] = []
        taken: dict[tuple[str, str], Step] = {}
        for step in steps:
            joined = step.checked(catalog)
            places = {"checkpoint": joined.request.checkpoint, "table": joined.request.to}
            for what, place in places.items() if step.asked.statement.table is not None else ():
                key = (what, os.path.abspath(str(place)))
                if key in taken:
                    option = "to" if what == "table" else what
                    why = f"two queries of this text have one {what}"
                    hint = f"give each its own: INSERT INTO table WITH ({option} = ...)"
                    raise step.asked.refused(why, hint, what)
                taken[key] = step
            found.append(joined)
        return found

    def catalog(self, spark: SparkSession | None) -> Catalog | None:
        """Return the catalog of a session; None where there is none.

        Raises
        ------
        ArgumentError
            A stream is a table or view of it, and the text runs without Spark.
        """
        if spark is None and self.needs_catalog:
            msg = "a stream of this text is a table or view of Spark, and with local there is none"
            raise ArgumentError(msg, name="local", hint="leave local out, or give the stream a source of its own")
        return None if spark is None else Catalog(spark)

    @staticmethod
    def start(
        spark: SparkSession | None, steps: Sequence[Step], joins: Sequence[AskedJoin]
    ) -> list[StreamingQuery | LocalQuery]:
        """Start the queries of some steps, whose joins `checked` gave: all, or none where one cannot be started."""
        started: list[StreamingQuery | LocalQuery] = []
        try:
            for step, joined in zip(steps, joins, strict=True):
                started.append(step.start(spark, joined))
        except BaseException:
            for query in started:
                query.stop()
            raise
        return started


def sql(spark: SparkSession, text: str) -> list[StreamingQuery | DataFrame | str]:
    """Run statements of SQL: each INSERT becomes a streaming query, each SELECT a DataFrame.

    ::

        CREATE STREAM e WITH (source = 'eastbound/', time = 'ts', delay = '30s');
        CREATE STREAM w WITH (source = 'westbound/', time = 'ts', delay = '30s');
        INSERT INTO near WITH (checkpoint = 'near.ckpt')
        SELECT e.ts, e.icao24 AS eastbound, w.icao24 AS westbound
        FROM e JOIN w
          ON abs(e.latitude - w.latitude) <= 0.1
         AND e.ts BETWEEN w.ts - INTERVAL 15 SECONDS AND w.ts + INTERVAL 15 SECONDS;

    Parameters
    ----------
    spark : SparkSession
        The session that runs the queries; its tables and views are streams by their names.
    text : str
        Statements in Spark's SQL, with semicolons between them (docs/sql.md).

    Returns
    -------
    list of StreamingQuery, DataFrame or str
        One for each INSERT (its running query), SELECT (its results) and EXPLAIN (the plan), in the text's order.
        Nothing is started before all statements are checked, and if one query cannot be started, those before it are
        stopped.

    Raises
    ------
    SqlSyntaxError
        A statement is not understood; the error says where, and what is valid there.
    StreamJoinError
        Errors of `Stream`, `StreamJoin`, `StreamJoin.start` and `StreamJoin.dataframe`, which say where in the text
        stands what they name.
    """
    script = Script(text)
    for name in (*script.session.get("conf", {}), *(each for each in script.session if each != "conf")):
        option = script.settings[name]
        hint = f"set it on the session: spark.conf.set('{name}', ...)" if "." in name else "start Spark with it"
        hint = "write it in a text for `streamjoin sql`" if name == "local" else hint
        raise script.text.refused(option.span, f"{name} is of a session, and this one is there already", hint, name)
    catalog = Catalog(spark)
    steps = [step for step in script.steps if not step.is_explained]
    joins = dict(zip(steps, script.checked(steps, catalog), strict=True))
    outcomes: dict[Step, StreamingQuery | DataFrame | str] = {
        step: step.plan(catalog) for step in script.steps if step.is_explained
    }
    inserts = [step for step in steps if step.asked.statement.table is not None]
    outcomes |= {step: step.frame(joins[step]) for step in steps if step not in inserts}
    queries = cast("list[StreamingQuery]", Script.start(spark, inserts, [joins[step] for step in inserts]))
    outcomes |= dict(zip(inserts, queries, strict=True))
    return [outcomes[step] for step in script.steps]


def _over(joined: AskedJoin) -> dict[str, Any]:
    """Return what `StreamJoin.start` and `explain` are told about frames."""
    over: dict[str, Any] = {"frames": joined.frames} if joined.frames else {}
    return over | ({"order_by": joined.order_by or None} if joined.is_over_frames else {})


def _plan_over_frames(joined: AskedJoin, options: Mapping[str, Any]) -> str:
    """Return the plan of a SELECT alone, which gives a DataFrame."""
    join = joined.request.join
    beside = table_frames(join, joined.frames)
    frames = {name: frame for name, frame in joined.frames.items() if name not in beside}
    check_frames(join, frames)
    schemas = {name: arrow_schema(frame.schema) for name, frame in joined.frames.items()}
    bound = bind(over_frames(join, frames), schemas)
    asked = AskedLayout.parse(options.get("layout", "auto"), len(bound.names))
    asked.check(bound)
    layout = asked.grid or default_layout(options.get("cells", 2), bound)
    execution = options.get("execution", DEFAULT_EXECUTION)
    durable = options.get("durable", True)
    return explain(Plan(bound, layout, layout.cells, "packed", foreign=True, execution=execution, durable=durable))
