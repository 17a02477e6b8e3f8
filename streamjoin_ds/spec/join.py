"""The join that a user asks for, before the types of its columns are known, and what its parts must be together.

A join has two to eight members, its streams and its tables; one stream is enough beside a table. A window is between
two streams.

With `how` "semi" or "anti" the first stream may have partners in each of several others by itself::

    Join([e, w, z], how="semi")      e ── conditions, window ── w      a tuple of e with a partner in w, and one in z
                                     e ── conditions, window ── z

There is no combination of all streams. So a condition is between the first stream and one other, or it is on one stream
alone: any other has no meaning, and is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamjoin_ds.duration import duration_text, duration_us
from streamjoin_ds.errors import ArgumentError, PredicateError, WindowError
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.terms import constant_truth
from streamjoin_ds.spec.columns import names_hint, schema_from_text
from streamjoin_ds.spec.expression.predicate import Band, Column
from streamjoin_ds.spec.expression.tree import (
    Aggregate,
    Call,
    Literal,
    Predicate,
    columns_of,
    conjuncts,
    normalised,
    streams_of,
)
from streamjoin_ds.spec.join_parts import JoinParts, Selected, predicate_from, selected, selected_from
from streamjoin_ds.spec.member.source import numbering_of
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.member.unique_key import check_unique_window
from streamjoin_ds.spec.row_kind import Nearest, asked_aggregates, check_how, check_nearest
from streamjoin_ds.spec.window import WindowKind, WindowLike, parse_window, window_from_facts

__all__ = [
    "MAX_STREAMS",
    "Join",
    "bound_from_facts",
    "check_members",
    "check_pairwise",
    "check_window",
]

MAX_STREAMS = 8  # most streams of a join
_NO_WINDOW = "0s"
_HAS_WITHIN = re.compile(r"\sWITHIN\s", re.IGNORECASE).search


def check_members(streams: Sequence[Stream], tables: Sequence[object], most: int) -> None:
    """Refuse too few or too many members, what is no table, and two members of one name.

    Raises
    ------
    ArgumentError
        The error names what is wrong and says what would be valid.
    """
    for table in tables:
        if not isinstance(table, Table):
            msg = f"the tables of a join must be Table objects, not {type(table).__name__}"
            raise ArgumentError(msg, name="tables", hint="for example Table('zones', 'zones/', refresh='1m')")
    members: list[Stream | Table] = [*streams, *(table for table in tables if isinstance(table, Table))]
    if not streams and tables:
        msg = "a join needs a stream: its tables alone bring no results"
        raise ArgumentError(msg, name="streams", hint="one stream is enough where there is a table")
    if not 2 <= len(members) <= most:
        what = "streams and tables" if tables else "streams"
        msg = f"a join must have 2 to {most} {what}, not {len(members)}"
        hint = "for a self-join, list the input twice under two names; beside a table one stream is enough"
        raise ArgumentError(msg, name="streams", hint=hint)
    folded = [member.name.lower() for member in members]
    for member in members:
        if folded.count(member.name.lower()) > 1:
            what = "a stream and a table" if tables else "two streams"
            msg = f"{what} are named '{member.name}'"
            hint = "give each stream and table its own name; upper and lower case do not make a difference"
            raise ArgumentError(msg, name=member.name, hint=hint)


def check_window(streams: Sequence[Stream], window: WindowKind) -> None:
    """Refuse a window of a single stream: a window says which tuples of two streams may meet.

    Raises
    ------
    WindowError
        There is one stream, and a window that is not the default, 0s.
    """
    if len(streams) == 1 and (window.kind != "time" or window.extent(0)):
        msg = f"a window is between two streams, and {streams[0].name} is the only one"
        raise WindowError(msg, name="window", hint="leave it out: rows of a table have no event time")


def check_pairwise(join: JoinParts) -> None:
    """Refuse a condition that has no meaning where each other stream has partners of its own.

    A condition on the first stream alone leaves out its tuples with `semi`, as with two streams. With `anti` it takes
    a tuple's partners there, and of several streams it would not say whose: it is refused.

    Raises
    ------
    PredicateError
    """
    if not join.row_kind.of_each:
        return
    (first, *others), asked = join.names, f"{join.asked} of several streams"
    never = Call("is_null", (Column(first, join.streams[0].time),))  # FALSE, of whosever partners
    for part, streams in _pairwise_parts(join):
        text = str(part)
        if len(streams) > 2 or (len(streams) == 2 and first not in streams):
            named = f"{', '.join(streams[:-1])} and {streams[-1]}"
            msg = f"'{text}' is between {named}, and with {asked} a condition is between {first} and one other"
            hint = (
                f"each of {', '.join(others)} has its own partners; join two of them first: their results are a stream"
            )
            raise PredicateError(msg, name=text, hint=hint)
        if streams == (first,) and join.row_kind.lonely and part != never:
            msg = f"'{text}' is on {first} alone, and with {asked} it does not say whose partners it takes"
            raise PredicateError(
                msg, name=text, hint=f"put it into the where of {first}: it then leaves out its tuples"
            )


def _pairwise_parts(join: JoinParts) -> Iterator[tuple[Predicate, tuple[str, ...]]]:
    """Yield the conditions that must all hold, and the streams that each is about."""
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            yield predicate, (predicate.left.stream, predicate.right.stream)
            continue
        for part in conjuncts(normalised(predicate)):
            yield part, tuple(sorted(streams_of(part), key=join.names.index))


@dataclass(frozen=True, init=False, repr=False)
class Join(JoinParts):
    """A join of streams, and of tables beside them: one result is one tuple of each stream and one row of each table.

    Parameters
    ----------
    streams : sequence of Stream
        Two to eight streams, in the order of the result's columns; with tables one is enough.
    on : str, sequence of str, or sequence of Predicate
        The predicates, which must all hold: ``"abs(e.x - w.x) <= 0.1 AND (e.id <> w.id OR e.id IS NULL)"``, or
        ``[band("e.x", "w.x", 0.1), "e.y > w.y"]``. Bands and equalities find pairs, other conditions decide on them
        (`Expression`). A condition on one stream decides before the stream's tuples are kept. Without a band the join
        is a cross product inside the window.
    window : str, timedelta, mapping, TimeWindow, CountWindow or PeriodicWindow
        ``"15s"`` for every stream, or ``{"e": "6h", "w": "0s"}``: how long a tuple of that stream waits for others.
        Two streams need it. The last condition may say it: ``"abs(e.x - w.x) <= 0.1 WITHIN 15 SECONDS"``.
        ``"last 1000"``: the last 1000 tuples of each stream. ``"every 10s for 60s"``: once in each common window.
    select : sequence of str, optional
        The columns of a result: ``"e.icao24"``, which is named ``e_icao24``, ``"e.icao24 AS aircraft"``, ``"w.*"``, or
        an expression with a name, ``"abs(e.x - w.x) AS gap"``. Durations are whole microseconds. Columns come first, in
        the order of the streams, then expressions. By default all columns.
    include_self_pairs : bool
        Whether a self-join also pairs a tuple with itself.
    how : {"inner", "left", "right", "full", "semi", "anti"}
        Which rows the join has. "inner": all combinations. "left", "right", "full": also the tuples of the first, the
        second, or either stream that have no partner, with nulls in the other's columns. "semi" and "anti": the tuples
        of the first stream that have a partner, or none; a row has the first stream's columns alone. Rows other than
        combinations come once, when the watermark has passed the tuple's time plus its stream's window; until then a
        partner may come. All but "inner" need two streams and a time window, or one stream and one table. A condition
        on one stream in `on` keeps a tuple from having partners, as in SQL's ``ON``; a stream's `where` leaves it out.
        "semi" and "anti" may have more than two streams. Each stream but the first has partners of its own: the tuples
        that the conditions between it and the first, and the window, pair with a tuple. "semi" has the tuples with a
        partner in each of these streams, "anti" those with a partner in none (`check_pairwise`).
    nearest : Nearest, optional
        Of the partners of a tuple of the first stream only the nearest make rows, which come as those of `how` do:
        ``Nearest(k=1, by="abs(e.x - w.x)", direction="backward")``. With `how` "inner" a tuple without a partner makes
        no row, with "left" one with nulls. It needs two streams and a time window. Or one stream and one table, `by`
        and both directions; rows of a table that are equally far have the order of their places.
    reduce : mapping of str to str, optional
        Aggregates over a tuple's partners, in place of the pairs: ``{"n": "count(*)", "mean_t": "avg(w.temperature)"}``
        (`Aggregate`). A row is then a tuple of the first stream and these columns. It comes once,
        at the tuple's horizon, and is a function of the set of its partners. With how="inner" the tuples that have a
        partner have rows, with "left" all: their count is 0, their collection empty, all else null. The second
        stream's columns are in aggregates only. Two streams and a time window are needed.

    tables : sequence of Table
        Tables beside the streams, eight members in all. Their rows have no event time and no window: each tuple meets
        the version of its batch. With one stream and one table `how` may be "left", "semi" and "anti", and there may be
        `nearest` or `reduce`: a tuple's partners are rows of the table, known when it comes, so its rows come at once.
        Otherwise `how` must be "inner", without `nearest` and `reduce`.

    Raises
    ------
    ArgumentError, PredicateError, WindowError, ColumnError
        The error names what is wrong and says what would be valid.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        on: str | Iterable[str] | Iterable[Predicate] = (),
        window: WindowLike | None = None,
        select: str | Iterable[Selected] | None = None,
        *,
        include_self_pairs: bool = False,
        how: str = "inner",
        nearest: Nearest | None = None,
        tables: Sequence[Table] = (),
        reduce: Mapping[str, str] | Sequence[Aggregate] | None = None,
    ) -> None:
        streams, tables = tuple(streams), tuple(tables)
        for stream in streams:
            _check_stream(stream)
        check_members(streams, tables, MAX_STREAMS)
        names = [stream.name for stream in streams]
        every = [*names, *(table.name for table in tables)]
        if not include_self_pairs:
            _check_selves(streams)
        conditions, within = _without_window(on)
        predicates = _without_constants(_predicates(conditions, every), streams[0])
        for predicate in predicates:
            for name in _streams(predicate):
                if name not in every:
                    msg = f"'{predicate}' names the stream '{name}', which is not in the join"
                    raise ArgumentError(msg, name=name, hint=names_hint(name, every, "the streams are"))
        set_field = object.__setattr__
        set_field(self, "streams", streams)
        set_field(self, "tables", tables)
        set_field(self, "predicates", predicates)
        window = parse_window(_one_window(window, within, len(streams)), names)
        aggregates = asked_aggregates(reduce, every)
        if aggregates and nearest is not None:
            msg = "reduce is not possible with nearest: it sums up all partners of a tuple"
            raise ArgumentError(msg, name="reduce", hint="leave out one of the two; arg_min(x, by) is of the nearest")
        how = check_how(how, len(streams), window, of_partners=bool(aggregates), tables=len(tables))
        nearest = check_nearest(nearest, how, len(streams), window, len(tables))
        set_field(self, "nearest", nearest)
        set_field(self, "window", window if nearest is None else nearest.narrowed(window))
        _check_partitions(streams, self.window)
        check_window(streams, self.window)
        for stream in streams:
            check_unique_window(stream, self.window)
        set_field(self, "how", how)
        set_field(self, "reduce", aggregates)
        check_pairwise(self)
        shown = [every[n] for n in self.row_kind.shown]
        set_field(self, "select", selected(select, every, shown, self.asked))
        set_field(self, "include_self_pairs", bool(include_self_pairs))
        declared = {member.name: member.schema for member in self.members if member.schema is not None}
        if len(declared) == len(every):
            bind(self, declared)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Join:
        """Return the join that `to_facts` described."""
        return cls(
            [Stream.from_facts(stream) for stream in facts["streams"]],
            [predicate_from(predicate) for predicate in facts["predicates"]],
            window_from_facts(facts["window"]),
            [selected_from(one) for one in facts["select"]],
            include_self_pairs=facts["include_self_pairs"],
            how=facts.get("how", "inner"),
            nearest=Nearest.from_facts(facts["nearest"]) if "nearest" in facts else None,
            tables=[Table.from_facts(table) for table in facts.get("tables", ())],
            reduce=[Aggregate.from_facts(aggregate) for aggregate in facts.get("reduce", ())],
        )

    def with_streams(self, streams: Sequence[Stream], tables: Sequence[Table] | None = None) -> Join:
        """Return this join over other streams and tables, which have the same names in the same order."""
        parts = self.predicates, self.window, self.select
        tables = self.tables if tables is None else tables
        kind = {"how": self.how, "nearest": self.nearest, "tables": tables, "reduce": self.reduce}
        return Join(streams, *parts, include_self_pairs=self.include_self_pairs, **kind)  # type: ignore[arg-type]


def bound_from_facts(facts: Mapping[str, Any]) -> BoundJoin:
    """Return the bound join that `BoundJoin.to_facts` described."""
    join = Join.from_facts(facts["join"])
    schemas = [schema_from_text(text) for text in facts["schemas"]]
    return bind(join, dict(zip(join.member_names, schemas, strict=True)))


def _check_selves(streams: Sequence[Stream]) -> None:
    """Refuse an input that is read twice and may give a tuple two different numbers.

    A tuple is known as itself by its number, and a file that is set aside in one of the two readings shifts numbers.
    """
    sources = [stream.location for stream in streams]
    for stream in streams:
        if stream.quarantines and sources.count(stream.location) > 1:
            msg = f"the input of {stream.name} is read twice, and quarantine might set a file aside in one reading only"
            hint = "set on_bad_file=stop, or include_self_pairs with a condition that leaves out self-pairs"
            raise ArgumentError(msg, name="on_bad_file", hint=hint)
        alike = [numbering_of(one.source) for one in streams if stream.source and one.location == stream.location]
        for option in alike[0] if alike else ():
            if len({one[option] for one in alike}) > 1:
                msg = f"the input of {stream.name} is read twice, with another {option}: a tuple may get two numbers"
                hint = f"give both streams the same {option}, or include_self_pairs"
                raise ArgumentError(msg, name=option, hint=hint)


def _check_partitions(streams: Sequence[Stream], window: WindowKind) -> None:
    """Refuse what a join over a stream of several partitions cannot have."""
    for stream in streams:
        if stream.partition_kind is None:
            continue
        if window.kind == "count":
            msg = f"a count window needs one order of each stream's tuples, and stream {stream.name} has partitions"
            raise WindowError(msg, name="window", hint="use a time window (15s) or a periodic one")


def _check_stream(stream: object) -> None:
    if not isinstance(stream, Stream):
        msg = f"a join needs Stream objects, not {type(stream).__name__}"
        raise ArgumentError(msg, name="streams", hint="for example Stream('e', 'eastbound.csv.gz', time='ts')")


def _streams(predicate: Predicate) -> tuple[str, ...]:
    return (predicate.left.stream, predicate.right.stream) if isinstance(predicate, Band) else streams_of(predicate)


def _without_window(on: object) -> tuple[object, str | None]:
    """Return conditions without the window that one of them ends with (``... WITHIN 15 MINUTES``), and that window.

    Raises
    ------
    ArgumentError
        What stands after WITHIN is no duration.
    WindowError
        Two of them end with a window.
    """
    texts = [on] if isinstance(on, str) else on
    if not isinstance(texts, (list, tuple)) or not any(isinstance(one, str) and _HAS_WITHIN(one) for one in texts):
        return on, None
    from streamjoin_ds.spec.expression.slip import with_window

    parted = [with_window(one) if isinstance(one, str) else (one, None) for one in texts]
    windows = [window for _, window in parted if window is not None]
    if len(windows) > 1:
        msg = "two conditions end with WITHIN, and a join has one window"
        raise WindowError(msg, name="window", hint="write it once, after the last condition")
    return [one for one, _ in parted], next(iter(windows), None)


def _one_window(window: WindowLike | None, within: str | None, streams: int) -> WindowLike:
    """Return the window that is given, or that conditions end with; a join of two streams has one of them."""
    if within is None:
        if window is None and streams > 1:
            msg, hint = "no window was given", "give 15s, 'last 1000', 'every 10s for 60s', or e=6h,w=0s"
            raise WindowError(msg, name="window", hint=f"{hint}; or end the conditions with WITHIN 15 SECONDS")
        return _NO_WINDOW if window is None else window
    length = duration_us(within, "WITHIN")
    if window is not None and (not isinstance(window, (str, timedelta)) or duration_us(window, "window") != length):
        msg = f"the conditions end with WITHIN {within}, and another window is given too"
        raise WindowError(msg, name="window", hint="leave one of the two out")
    return duration_text(length)


def _predicates(on: object, streams: Sequence[str]) -> tuple[Predicate, ...]:
    items = [on] if isinstance(on, (str, Band, Column, Literal, Call)) or not isinstance(on, Iterable) else [*on]
    items = [on] if isinstance(on, Mapping) else items
    predicates: list[Predicate] = []
    for item in items:
        if isinstance(item, str):
            # Imported here: a worker is sent facts, and needs no SQL parser.
            from streamjoin_ds.spec.expression.parser import parse_predicates

            predicates.extend(parse_predicates(item, streams))
        elif isinstance(item, (Band, Column, Literal, Call)):
            predicates.append(item)
        else:
            msg = f"a predicate must be a text, band(), equal() or not_equal(), not {type(item).__name__}"
            raise ArgumentError(msg, name="on", hint="for example 'abs(e.x - w.x) <= 10'")
    return tuple(predicates)


def _without_constants(predicates: Sequence[Predicate], first: Stream) -> tuple[Predicate, ...]:
    """Return predicates that all name a column: TRUE is left out, and no tuple of the first stream passes FALSE."""
    found: list[Predicate] = []
    for predicate in predicates:
        parts = [predicate] if isinstance(predicate, Band) else conjuncts(normalised(predicate))
        constants = [part for part in parts if not isinstance(part, Band) and not columns_of(part)]
        if not constants:
            found.append(predicate)
            continue
        found += [part for part in parts if part not in constants]
        if not all(constant_truth(part) for part in constants):
            found.append(Call("is_null", (Column(first.name, first.time),)))  # an event time is never null
    return tuple(found)
