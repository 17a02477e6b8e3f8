"""The kinds of rows that a join has: `how`, the nearest partners, sums over partners, and which tuples wait.

::

    how      rows                                                   decided streams
    ─────    ────────────────────────────────────────────────────   ───────────────
    inner    pairs (of N streams: combinations)                     none
    left     pairs; tuples of the first stream without a partner    first
    right    pairs; tuples of the second stream without a partner   second
    full     pairs; tuples of both streams without a partner        both
    semi     tuples of the first stream with a partner              first
    anti     tuples of the first stream without a partner           first

    with more than two streams each of the others has partners of its own (`check_pairwise`):
    semi     tuples of the first stream with a partner in each      first
    anti     tuples of the first stream with a partner in none      first

    with `nearest` a row is a tuple of the first stream and one of its nearest partners, with `reduce` a tuple of the
    first stream and sums over its partners:
    inner    tuples of the first stream with a partner              first
    left     tuples of the first stream                             first

    with one stream and one table the partners of a tuple are rows of the table. All are known when the tuple comes, so
    its rows come at once and no stream is decided at a horizon: left, semi and anti, both with `nearest`, and both with
    `reduce`.

A tuple of a *decided* stream waits until it can meet no new partner: its *horizon*
(ARCHITECTURE.md, "Rows about missing, nearest or summed partners"). Then its row is decided, once.

With `nearest` only the `k` nearest partners of a tuple make a row, by a distance that the user gives::

    direction    partners                                 the window becomes
    ─────────    ──────────────────────────────────────   ─────────────────────
    both         within the window, before and after      as it is
    backward     those not after the tuple                 0 for the first stream
    forward      those not before the tuple                0 for the second stream
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import (
    Aggregate,
    Call,
    Expression,
    Literal,
    expression_facts,
    expression_from,
    streams_of,
)
from streamjoin_ds.spec.window import TimeWindow, WindowKind

__all__ = [
    "DIRECTIONS",
    "HOWS",
    "MAX_NEAREST",
    "RANK",
    "Nearest",
    "RowKind",
    "asked_aggregates",
    "check_how",
    "check_nearest",
    "has_pairs",
    "row_kind",
]

HOWS = ("inner", "left", "right", "full", "semi", "anti")
DIRECTIONS = ("both", "backward", "forward")
MAX_NEAREST = 100_000  # most partners of a tuple: as many as Spark's NEAREST BY allows
RANK = "rank"  # the column that numbers a tuple's partners, where there can be several
MAX_AGGREGATES = 100  # most aggregates of a join


class RowKind(Struct, frozen=True):
    """What the rows of a join are about.

    Attributes
    ----------
    decided : tuple of int
        The streams whose tuples are decided at their horizon.
    lonely : tuple of int
        Those of them whose tuples make a row without a partner.
    shown : tuple of int
        The streams whose columns and numbers a row has.
    has_pairs : bool
        Whether new tuples are joined as they come, and each of their combinations is a row.
    at_once : bool
        Whether the rows of the first stream's tuples come in the batch that brings the tuples: their partners are rows
        of a table.
    of_each : bool
        Whether there are several other streams, and a tuple of the first stream is asked for partners in each of them
        by itself.
    """

    decided: tuple[int, ...]
    lonely: tuple[int, ...]
    shown: tuple[int, ...]
    has_pairs: bool
    at_once: bool = False
    of_each: bool = False

    @property
    def absent(self) -> tuple[int, ...]:
        """The streams that have no tuple in some rows: their columns may be null there."""
        return tuple(1 - stream for stream in self.lonely if 1 - stream in self.shown)


_KINDS = {
    "left": RowKind((0,), (0,), (0, 1), has_pairs=True),
    "right": RowKind((1,), (1,), (0, 1), has_pairs=True),
    "full": RowKind((0, 1), (0, 1), (0, 1), has_pairs=True),
    "semi": RowKind((0,), (), (0,), has_pairs=False),
    "anti": RowKind((0,), (0,), (0,), has_pairs=False),
}


_OF_NEAREST = {
    "inner": RowKind((0,), (), (0, 1), has_pairs=False),
    "left": RowKind((0,), (0,), (0, 1), has_pairs=False),
}
_OF_PARTNERS = {
    "inner": RowKind((0,), (), (0,), has_pairs=False),
    "left": RowKind((0,), (0,), (0,), has_pairs=False),
}


def row_kind(
    how: str, members: int, *, of_nearest: bool = False, of_partners: bool = False, of_table: bool = False
) -> RowKind:
    """Return what the rows of a join of so many streams and tables are about.

    Parameters
    ----------
    how : str
    members : int
    of_nearest : bool
        A row is a tuple and one of its nearest partners.
    of_partners : bool
        A row sums up a tuple's partners.
    of_table : bool
        The join is of one stream and one table.
    """
    if how == "inner" and not (of_partners or of_nearest):
        return RowKind((), (), tuple(range(members)), has_pairs=True)
    kind = _OF_NEAREST[how] if of_nearest else _OF_PARTNERS[how] if of_partners else _KINDS[how]
    return replace(kind, decided=(), at_once=True) if of_table else replace(kind, of_each=members > 2)


def has_pairs(how: str) -> bool:
    """Whether a row is a tuple of each stream; otherwise it is a tuple of the first stream alone."""
    return how not in ("semi", "anti")


def check_how(how: object, streams: int, window: WindowKind, *, of_partners: bool = False, tables: int = 0) -> str:
    """Return the kind of a join; refuse one that is unknown, or has no meaning for these streams and this window.

    Parameters
    ----------
    how : object
        What was asked for.
    streams : int
        How many streams the join has.
    window : WindowKind
    of_partners : bool
        Whether a row sums up the partners of a tuple (`reduce`).
    tables : int
        How many tables are beside the streams.

    Raises
    ------
    ArgumentError
        There is no kind of this name, or it needs two streams and no table, or one stream and one table; semi and anti
        need two streams or more, or one stream and one table.
    WindowError
        It needs a time window.
    """
    if not isinstance(how, str) or how not in HOWS:
        msg = "how is not the name of a kind of join"
        raise ArgumentError(msg, name="how", hint=f"one of {', '.join(HOWS)}")
    if of_partners and how not in _OF_PARTNERS:
        msg = f"how={how} is not possible with reduce: a row sums up the partners of a tuple of the first stream"
        hint = "inner has the tuples with a partner, left all; put the stream first whose tuples are to have rows"
        raise ArgumentError(msg, name="how", hint=hint)
    if how == "inner" and not of_partners:
        return how
    asked = "reduce" if of_partners else f"how={how}"
    if tables and how in ("right", "full"):
        msg = f"{asked} has rows of a table without a partner, and as long as the stream goes on one may come"
        raise ArgumentError(msg, name="how", hint="left, semi and anti are about the stream's tuples; or use inner")
    _check_members(asked, streams, tables, window)
    return how


def _check_members(asked: str, streams: int, tables: int, window: WindowKind) -> None:
    """Refuse what is about a tuple's partners where they are not those of one other stream, or rows of one table."""
    name = asked.partition("=")[0]
    without = "use inner" if name == "how" else f"leave out {name}"
    of_each = asked in ("how=semi", "how=anti")  # has a meaning for several other streams too
    if tables and (streams, tables) != (1, 1):
        shown = f"{streams} stream{'s' * (streams > 1)} and {tables} table{'s' * (tables > 1)}"
        msg = f"{asked} needs two streams{' or more' * of_each}, or one stream and one table, and the join has {shown}"
        hint = f"{without}, or two joins: the results of the first are a stream for the second"
        raise ArgumentError(msg, name=name, hint=hint)
    if not tables and streams != 2 and not of_each:
        msg = f"{asked} needs two streams, and the join has {streams}"
        raise ArgumentError(msg, name=name, hint=f"join two streams, or {without}")
    if not tables and window.kind != "time":
        msg = f"{asked} needs a time window: for a {window.kind} window no event time says when a tuple is decided"
        raise WindowError(msg, name=name, hint=f"use a time window (15s), or {without}")


@dataclass(frozen=True, init=False, slots=True)
class Nearest:
    """Which of a tuple's partners make a row: the `k` nearest.

    Parameters
    ----------
    k : int
        How many partners of a tuple make a row, at most: 1 to 100 000. With 2 and more a row has a column ``rank``,
        from 1 for the nearest.
    by : str or Expression, optional
        The distance, an expression of columns of both streams: ``"abs(e.x - w.x)"``, or a time or duration. The smaller
        is the nearer, and it may be negative. Of one distance the partner with the smaller event time is nearer, then
        the one with the smaller number. Where it is null or NaN the pair is none. By default the time between the two.
        Integers, decimals, times and durations are compared exactly, up to 32 digits.
    direction : {"both", "backward", "forward"}
        Which partners count, by event time: all within the window, those not after the tuple, or those not before it.
        A tuple's row comes when the watermark has passed the last moment of a partner. So "backward" waits for no
        window.

    Raises
    ------
    ArgumentError, PredicateSyntaxError
        The error names what is wrong and says what would be valid.
    """

    k: int
    by: Expression | None
    direction: str

    def __init__(self, k: int = 1, by: str | Expression | None = None, direction: str = "both") -> None:
        if type(k) is not int or not 1 <= k <= MAX_NEAREST:
            msg = "nearest is not a number of partners"
            raise ArgumentError(msg, name="nearest", hint=f"a whole number from 1 to {MAX_NEAREST}")
        if direction not in DIRECTIONS:
            msg = "the direction of nearest is not known"
            raise ArgumentError(msg, name="nearest_direction", hint=f"one of {', '.join(DIRECTIONS)}")
        if isinstance(by, str):
            # Imported here: a worker is sent facts, and needs no SQL parser.
            from streamjoin_ds.spec.expression.parser import parse_value

            by = parse_value(by)
        asked: object = by
        if asked is not None and not isinstance(asked, (Column, Literal, Call)):
            msg = f"a distance must be a text or an expression, not {type(asked).__name__}"
            raise ArgumentError(msg, name="nearest_by", hint="for example 'abs(e.x - w.x)'")
        object.__setattr__(self, "k", k)
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "direction", direction)

    def distance(self, first: Column, second: Column) -> Expression:
        """Return the distance; by default the time between two columns."""
        return self.by if self.by is not None else Call("abs", (Call("-", (first, second)),))

    def narrowed(self, window: WindowKind) -> WindowKind:
        """Return the window in which partners can be: what the direction leaves of a time window of two streams."""
        if self.direction == "both":
            return window
        first, second = (window.extent(stream) for stream in (0, 1))
        return TimeWindow((0, second) if self.direction == "backward" else (first, 0))

    def to_facts(self) -> dict[str, object]:
        """Return the object as plain JSON values; `from_facts` makes it again."""
        by = None if self.by is None else expression_facts(self.by)
        return {"k": self.k, "by": by, "direction": self.direction}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Nearest:
        """Return the object that `to_facts` described."""
        by = None if facts["by"] is None else expression_from(facts["by"])
        return cls(facts["k"], by, facts["direction"])


def check_nearest(nearest: object, how: str, streams: int, window: WindowKind, tables: int = 0) -> Nearest | None:
    """Return what a join asks of nearest partners; refuse what has no meaning for its streams, tables and window.

    Raises
    ------
    ArgumentError
        It is no `Nearest`, or it needs two streams or one stream and one table, or another `how`.
    WindowError
        It needs a time window.
    """
    if nearest is None:
        return None
    if not isinstance(nearest, Nearest):
        msg = f"nearest must be a Nearest object, not {type(nearest).__name__}"
        raise ArgumentError(msg, name="nearest", hint="for example Nearest(k=1, by='abs(e.x - w.x)')")
    _check_members("nearest", streams, tables, window)
    if tables and (nearest.by is None or nearest.direction != "both"):
        name = "nearest_by" if nearest.by is None else "nearest_direction"
        msg = "the rows of a table have no event time by which they could be near, before or after"
        hint = "give a distance, such as 'e.ts - z.since', and a condition: e.ts >= z.since"
        raise ArgumentError(msg, name=name, hint=hint)
    if how not in ("inner", "left"):
        msg = f"how={how} has no nearest partners"
        hint = "inner leaves out the first stream's tuples without a partner, left gives them a row with nulls"
        raise ArgumentError(msg, name="nearest", hint=hint)
    return nearest


def asked_aggregates(asked: object, names: Sequence[str]) -> tuple[Aggregate, ...]:
    """Return the aggregates that a join is asked for, in the order in which they were given.

    Parameters
    ----------
    asked : mapping of str to str or Aggregate, sequence of Aggregate, or None
        The columns' names and what they hold. None, or none at all: no reduction.
    names : sequence of str
        The join's streams.

    Raises
    ------
    ArgumentError
        It is no such mapping, or names a stream that is not in the join.
    PredicateSyntaxError
        A text is not understood; the hint says what is.
    """
    if asked is None:
        return ()
    given: list[object]
    if isinstance(asked, Mapping):
        # Imported here: a worker is sent facts, and needs no SQL parser.
        from streamjoin_ds.spec.expression.parser import parse_aggregate

        given = [parse_aggregate(*one) if all(isinstance(text, str) for text in one) else one for one in asked.items()]
    else:
        given = list(asked) if isinstance(asked, (list, tuple)) else [asked]
    found = tuple(one for one in given if isinstance(one, Aggregate))
    if len(found) < len(given):
        msg = "reduce is not a mapping of column names to aggregates"
        raise ArgumentError(msg, name="reduce", hint="for example {'n': 'count(*)', 'mean_x': 'avg(w.x)'}")
    if len(found) > MAX_AGGREGATES:
        msg = f"reduce has {len(found)} aggregates"
        raise ArgumentError(msg, name="reduce", hint=f"at most {MAX_AGGREGATES} are possible")
    for one in found:
        for stream in (stream for argument in one.args for stream in streams_of(argument)):
            if stream not in names:
                msg = f"'{one}' names the stream '{stream}', which is not in the join"
                raise ArgumentError(msg, name=stream, hint=f"the streams are {', '.join(names)}")
    return found
