"""The builder of a join from a query of a text, with how to run it.

::

    CREATE STREAM, CREATE TABLE ─┐
    tables and views of Spark ───┼─► streams ─► names, event times ─► ON, WHERE ─► predicates, window ─► Request
    options of SET and WITH ─────┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa
from msgspec import structs

from streamjoin_ds.errors import ColumnError, SqlSyntaxError, StreamJoinError
from streamjoin_ds.request.request import Request, described_streams, described_tables, requested, without_tables
from streamjoin_ds.script.conditions import Conditions, Names, Term
from streamjoin_ds.script.partners import nearest_of, ranked_input, read_pairs, reduction_of, written_join
from streamjoin_ds.script.query_columns import Schemas, SelectList
from streamjoin_ds.script.query_members import Catalog, Members, watermark_of
from streamjoin_ds.script.sql_options import TABLE_KEYS, check_stream, facts_of, stream_facts
from streamjoin_ds.script.sql_text import Span, SqlText, Token
from streamjoin_ds.script.statements import Input, Statement, StreamStatement
from streamjoin_ds.script.time_bounds import Contradiction, TimeBound, Unbounded, window_of, window_of_each
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.source.table_versions import table_schema
from streamjoin_ds.spec import Predicate, Stream, Table
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.expression.tree import Call, normalised, predicates_of, streams_of
from streamjoin_ds.spec.member.computed_columns import all_columns
from streamjoin_ds.spec.window import WindowLike
from streamjoin_ds.stream.join import StreamJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Asked", "AskedJoin"]


Result = TypeVar("Result")


@dataclass(frozen=True)
class AskedJoin:
    """A join, how to run it, and the DataFrames that it is over, if it is over any.

    Parameters
    ----------
    request : Request
        The join, its table and checkpoint, and the options of `StreamJoin.start`.
    frames : mapping of stream or table name to DataFrame
        Of all streams or of none: they have sources then.
    order_by : mapping of stream name to list of str
        The columns that number the rows of frames.
    columns : tuple of str
        The result's columns, in the order of the SELECT list.
    """

    request: Request
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    order_by: Mapping[str, list[str]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def is_over_frames(self) -> bool:
        """Whether the streams are over DataFrames, and not only tables beside them."""
        return any(name in self.frames for name in self.request.join.names)


class Asked:
    """One query of a text.

    Parameters
    ----------
    text : SqlText
        The text.
    statement : Statement
        The query in it.
    streams : mapping of str to StreamStatement
        The streams that were created before it, by their names in lower case.
    flags : mapping
        Options of the command line; they win over the text's.
    """

    def __init__(
        self,
        text: SqlText,
        statement: Statement,
        streams: Mapping[str, StreamStatement],
        flags: Mapping[str, Any],
    ) -> None:
        self.statement = statement
        self._text = text
        inputs = [_named_as_created(one, streams) for one in statement.query.inputs]
        self._query = structs.replace(statement.query, inputs=tuple(inputs))
        self._flags = flags
        self._facts = facts_of(text, statement.options, is_with=statement.own_options)
        self._made = {
            one.alias: streams.get(one.source[0].casefold()) if len(one.source) == 1 else None
            for one in self._query.inputs
        }
        self._stream_facts = {
            alias: {} if made is None else stream_facts(text, made) for alias, made in self._made.items()
        }
        self._terms: list[Term] = []  # of the join that was made last
        self._begins_with_table = False
        created = [made.name for made in streams.values()]
        parts = text, self._query, self._made, self._stream_facts, created
        self._members = Members(*parts, is_moving=statement.table is not None)

    @property
    def created(self) -> set[str]:
        """The streams and tables of the text that the query names, in lower case."""
        return {made.name.casefold() for made in self._made.values() if made is not None}

    @property
    def needs_catalog(self) -> bool:
        """Whether a stream or table of the query is a table or view of Spark."""
        return self._members.needs_catalog

    @property
    def facts(self) -> dict[str, Any]:
        """The options as keys of the TOML file; flags win."""
        return self._facts | dict(self._flags)

    def joined(self, catalog: Catalog | None = None) -> AskedJoin:
        """Return the join that is asked for.

        Parameters
        ----------
        catalog : Catalog, optional
            Spark's, where a stream `needs_catalog`.

        Raises
        ------
        StreamJoinError
            It cannot be done; the error says where in the text it is asked for.
        """
        found = self._members.resolved(catalog if self.needs_catalog else None)
        frames = dict(found.frames)
        self._begins_with_table = self._query.inputs[0] in found.tables
        if self._begins_with_table and not self._has_pairs and self._how not in ("left", "right", "full"):
            words, span = written_join(self._text, self._query.inputs[1])
            name = self._query.inputs[0].alias
            why = f"with {words}, rows are about those of {name}, which is a table"
            raise self._text.refused(span, why, f"write FROM {self._query.inputs[1].alias} {words} {name}", self._how)
        streams, tables = self._streams(found.streams, frames), self._tables(found.tables)
        members: list[Stream | Table] = [*streams, *tables]
        shown = {name: made.shown for name, made in self._made.items() if made is not None and made.shown is not None}
        schemas = Schemas(members, frames, self._inferred, shown)
        names = Names([member.name for member in members], schemas.names, schemas.declared)
        predicates, window = self._conditions(streams, names, schemas)
        nearest = nearest_of(self._text, self._query, Conditions(self._text, names, {}), names.streams)
        if not self._has_pairs:
            streams = self._filtered(streams, names)
        select_list = SelectList(self._text, self._query, names, schemas)
        first_time = streams[0].time if streams else ""
        reduce = reduction_of(self._text, self._query, names, self._how, select_list.column, first_time)
        selected, columns, calculated = select_list.selected(is_of_one=self._how in ("semi", "anti"))
        self._terms += calculated
        sources = [stream.location for stream in streams if stream.source is not None]
        # SQL leaves no pair out: a tuple meets itself unless a condition says otherwise.
        of_streams = [frames[stream.name] for stream in streams if stream.name in frames]
        has_self = len(sources) > len({*map(str, sources)}) or _has_same(of_streams)
        join = self._located(
            lambda: StreamJoin(
                streams,
                predicates,
                window,
                selected,
                include_self_pairs=has_self,
                how=self._how,
                nearest=nearest,
                tables=tables,
                reduce=reduce,
            )
        )
        facts = self.facts
        if "to" not in facts and self.statement.table is not None:
            facts["to"] = self.statement.table
        order_by = {
            alias: [column.strip() for column in given["order_by"].split(",")]
            for alias, given in self._stream_facts.items()
            if "order_by" in given
        }
        return AskedJoin(self._located(lambda: requested(join, facts)), frames, order_by, columns)

    def refused(self, why: str, hint: str, name: str = "") -> SqlSyntaxError:
        """Return the error that refuses the query where it begins: at its table, or at SELECT."""
        return self._text.refused(self.statement.span, why, hint, name)

    def named(self, error: StreamJoinError) -> StreamJoinError:
        """Return an error that says where in the query stands what it names; the error itself if it stands nowhere."""
        span = self._named(error)
        return error if span is None else self._text.located(error, span)

    def _located(self, make: Callable[[], Result], span: Span | None = None) -> Result:
        try:
            return make()
        except StreamJoinError as error:
            raise self._text.located(error, span or self._named(error) or self.statement.span) from None

    def _named(self, error: StreamJoinError) -> Span | None:
        """Return where the option or the column stands that an error names."""
        for term in self._terms:  # errors show a condition as it was written, or in its one form (`normalised`)
            if any(str(form) in error.message for form in (term.expression, normalised(term.expression))):
                return term.span
        aggregate = next((item for item in self._query.aggregates if item.name == error.name), None)
        if aggregate is not None:
            return aggregate.span
        if error.name == "reduce":
            return self._query.group_span
        if error.name == "how":
            return next((one.how_span for one in self._query.inputs if one.how != "inner"), None)
        if error.name.startswith("nearest"):
            ranked = ranked_input(self._query)
            return None if ranked is None or ranked.ranking is None else ranked.ranking.span
        begins = error.message.split()[:2]
        for option in (error.name.partition(" of ")[0], *begins):
            if option in self.statement.options:
                return self.statement.options[option].span
        return _mentioned(self._query.tokens, error.name)

    # Streams

    def _streams(self, inputs: Sequence[Input], frames: dict[str, DataFrame]) -> list[Stream]:
        """Return the streams; a frame's watermark tells its event time and delay, where nothing else does."""
        tables: dict[str, dict[str, Any]] = {}
        for one in inputs:
            given = {key: value for key, value in self._stream_facts[one.alias].items() if key not in TABLE_KEYS}
            marked = watermark_of(frames[one.alias]) if one.alias in frames else None
            if marked is not None:
                given = {"time": marked[0], "delay": marked[1]} | given
            tables[one.alias] = given
            check_stream(self._text, one.alias, given, self._made[one.alias], one.span)
        beside = dict.fromkeys(one.alias for one in self._query.inputs if one.alias not in tables)
        asked = [without_tables(given, beside) for given in (self._facts, self._flags)]
        streams = self._located(lambda: described_streams(tables, *asked))
        for stream, one in zip(streams, inputs, strict=True):
            frame = frames.get(stream.name)
            if frame is None:
                continue
            if stream.written_time and stream.written_time not in frame.columns:
                why = f"which column of {stream.name} is its event time is not known"
                name = one.source[-1]
                hint = f"write CREATE STREAM {name} WITH (table = '{name}', time = ...) before, or CREATE TABLE if it "
                hint += "is no stream but a table beside streams; "
                hint += names_hint(stream.time, frame.columns, "its columns are")
                raise self._text.located(ColumnError(why, name=stream.time, hint=hint), one.span)
            if frame.isStreaming and self.statement.table is None and watermark_of(frame) is None:
                delay = f"{stream.delay_us // 1000} milliseconds"
                frames[stream.name] = frame.withWatermark(stream.time, delay)
        return streams

    def _tables(self, inputs: Sequence[Input]) -> list[Table]:
        """Return the tables that are joined beside the streams."""
        facts = {one.alias: self._stream_facts[one.alias] for one in inputs}
        given = {name: {key: of[key] for key in of if key not in TABLE_KEYS} for name, of in facts.items()}
        return self._located(lambda: described_tables(given, self._facts, self._flags))

    def _inferred(self, member: Stream | Table) -> pa.Schema:
        """Return the columns of a source, as they are found in it."""
        made = self._made[member.name]
        one = next(one for one in self._query.inputs if one.alias == member.name)
        span = one.span if made is None else made.options["source"].span
        if isinstance(member, Table):
            return self._located(lambda: table_schema(member), span)
        return self._located(lambda: all_columns(member, infer_schema(member)), span)

    # ON, WHERE and SELECT

    def _conditions(
        self, streams: Sequence[Stream], names: Names, schemas: Schemas
    ) -> tuple[list[Predicate], WindowLike]:
        times = {stream.name: stream.time for stream in streams}
        bounds, terms, bounding = self._read(Conditions(self._text, names, times), times)
        self._terms = [*terms, *bounding]
        window: WindowLike | None = self.facts.get("window")
        if bounds and window is None and schemas.has_fine_times():
            bounds, terms, bounding = self._read(Conditions(self._text, names, times, is_fine=True), times)
            terms = [*terms, *bounding]
        predicates = [predicate for term in terms for predicate in self._predicates(term, schemas)]
        if window is not None:
            return [*predicates, *(p for term in bounding for p in self._predicates(term, schemas))], window
        window_asked = window_of_each if self._query.is_of_each else window_of
        found = self._located(lambda: window_asked(list(times), times, bounds), bounds[-1].span if bounds else None)
        if isinstance(found, Contradiction):
            why = "no tuples can satisfy this bound on event times beside those before it"
            raise self._text.refused(found.span, why, "the lower end of a bound is not above its upper end")
        if isinstance(found, Unbounded):
            self._unbounded(found, times, bounds)
        return [*predicates, *found[1]], found[0]

    def _read(self, reader: Conditions, times: Mapping[str, str]) -> tuple[list[TimeBound], list[Term], list[Term]]:
        """Return the bounds on event times, the other conditions, and the bounds as conditions."""
        if self._query.is_of_each:
            return read_pairs(self._text, self._query, reader, times)
        written = [one.on for one in self._query.inputs if one.on]
        written += [one.ranking.tokens for one in self._query.inputs if one.ranking and one.ranking.is_match]
        written += [self._query.where] if self._query.where and self._has_pairs else []
        bounds: list[TimeBound] = []
        terms: list[Term] = []
        bounding: list[Term] = []
        for tokens in written:
            more = reader.read(tokens)
            bounds, terms, bounding = bounds + more[0], terms + more[1], bounding + more[2]
        return bounds, terms, bounding

    def _filtered(self, streams: Sequence[Stream], names: Names) -> list[Stream]:
        """Return the streams with what WHERE leaves out of them: with the rows of tuples without partners it filters.

        A condition of ON only says who is a partner. One of WHERE on the other stream would leave those rows out.
        """
        shown = {"inner": [0], "left": [0], "semi": [0], "anti": [0], "right": [1], "full": []}[self._how]
        found = list(streams)
        _, terms, _ = Conditions(self._text, names, {}).read(self._query.where) if self._query.where else ([], [], [])
        for term in terms:
            of = streams_of(term.expression)
            place = names.streams.index(of[0]) if len(of) == 1 else -1
            if place not in shown:
                words, _ = written_join(self._text, self._query.inputs[1])
                about = "no stream" if not shown else f"a stream other than {names.streams[shown[0]]}"
                why = f"with {words}, WHERE cannot be about {about}" if shown else f"WHERE is not possible with {words}"
                hint = "write the condition after ON; tuples without a partner are those of LEFT ANTI JOIN"
                raise self._text.refused(term.span, why, hint)
            stream = found[place]
            both = [part for part in (stream.where, term.expression) if part is not None]
            where = term.expression if len(both) == 1 else Call("and", tuple(both))  # type: ignore[arg-type]
            found[place] = self._located(lambda stream=stream, where=where: replace(stream, where=where), term.span)  # type: ignore[misc]
        return found

    @property
    def _how(self) -> str:
        how = next((one.how for one in self._query.inputs if one.how != "inner"), "inner")
        # Streams stand before tables in a join: FROM table RIGHT JOIN stream is a left join of the stream.
        return {"left": "right", "right": "left"}.get(how, how) if self._begins_with_table else how

    @property
    def _has_pairs(self) -> bool:
        """Whether a row is all partners of a tuple, so that WHERE is one with ON."""
        return self._how == "inner" and ranked_input(self._query) is None

    def _predicates(self, term: Term, schemas: Schemas) -> tuple[Predicate, ...]:
        return self._located(lambda: predicates_of(term.expression, schemas.rounds), term.span)

    def _unbounded(self, found: Unbounded, times: Mapping[str, str], bounds: Sequence[TimeBound]) -> NoReturn:
        later, earlier = (f"{name}.{times[name]}" for name in (found.later, found.earlier))
        is_half = any({bound.later, bound.earlier} == {found.later, found.earlier} for bound in bounds)
        joined = next(one for one in self._query.inputs[::-1] if one.alias in (found.later, found.earlier))
        if is_half:
            why = f"nothing bounds how much later than {earlier} a {later} may be, so nothing could ever be forgotten"
            hint = f"write AND {later} <= {earlier} + INTERVAL 15 SECONDS"
        else:
            why = f"nothing bounds how far apart {later} and {earlier} may be, so nothing could ever be forgotten"
            hint = (
                f"write AND {later} BETWEEN {earlier} - INTERVAL 15 SECONDS AND {earlier} + INTERVAL 15 SECONDS; "
                "or a window of another kind, INSERT INTO table WITH (window = 'last 1000')"
            )
        raise self._text.refused(joined.span, why, hint, "window")


def _named_as_created(one: Input, streams: Mapping[str, StreamStatement]) -> Input:
    """Return a stream of a query; without another name there it is named as its CREATE STREAM wrote it."""
    made = streams.get(one.source[0].casefold()) if one.source == (one.alias,) else None
    return one if made is None else structs.replace(one, alias=made.name)


def _has_same(given: Sequence[DataFrame]) -> bool:
    return any(one is other for place, one in enumerate(given) for other in given[place + 1 :])


def _mentioned(tokens: Sequence[Token], name: str) -> Span | None:
    """Return where a column ``stream.column``, or else a name, stands in a query; None if nowhere."""
    stream, _, column = name.replace("`", "").partition(".")
    for place, token in enumerate(tokens):
        parts = tokens[place : place + 3]
        if column and len(parts) == 3 and parts[1].word == "." and (token.value, parts[2].value) == (stream, column):
            return token.span.to(parts[2].span)
    found = next((token for token in tokens if name and token.is_name and token.value == name), None)
    return None if found is None else found.span
