"""The kinds of a join by ``how``: which rows it has besides pairs, and which tuples wait for their horizon.

::

    how      rows                                                   decided streams
    ─────    ────────────────────────────────────────────────────   ───────────────
    inner    pairs (of N streams: combinations)                     none
    left     pairs; tuples of the first stream without a partner    first
    right    pairs; tuples of the second stream without a partner   second
    full     pairs; tuples of both streams without a partner        both
    semi     tuples of the first stream with a partner              first
    anti     tuples of the first stream without a partner           first

    with more than two streams each of the others has partners of its own (`pairwise`):
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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.window import WindowKind

__all__ = ["HOWS", "RowKind", "check_how", "has_pairs", "row_kind"]


HOWS = ("inner", "left", "right", "full", "semi", "anti")


@dataclass(frozen=True, slots=True)
class RowKind:
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
    name, asked = ("reduce", "reduce") if of_partners else ("how", f"how={how}")
    without = "leave out reduce" if of_partners else "use inner"
    if tables and how in ("right", "full"):
        msg = f"{asked} has rows of a table without a partner, and as long as the stream goes on one may come"
        raise ArgumentError(msg, name=name, hint="left, semi and anti are about the stream's tuples; or use inner")
    if tables and (streams, tables) != (1, 1):
        shown = f"{streams} stream{'s' * (streams > 1)} and {tables} table{'s' * (tables > 1)}"
        more = "" if name == "reduce" or has_pairs(how) else " or more"
        msg = f"{asked} needs two streams{more}, or one stream and one table, and the join has {shown}"
        hint = f"{without}, or two joins: the results of the first are a stream for the second"
        raise ArgumentError(msg, name=name, hint=hint)
    if tables:
        return how
    if streams != 2 and (of_partners or has_pairs(how)):
        msg = f"{asked} needs two streams, and the join has {streams}"
        raise ArgumentError(msg, name=name, hint=f"join two streams, or {without}")
    if window.kind != "time":
        msg = f"{asked} needs a time window: for a {window.kind} window no event time says when a tuple is decided"
        raise WindowError(msg, name=name, hint=f"use a time window (15s), or {without}")
    return how
