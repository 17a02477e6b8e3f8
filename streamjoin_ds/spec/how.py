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

A tuple of a *decided* stream waits until it can meet no new partner: its *horizon*
(ARCHITECTURE.md, "Rows about missing, nearest or summed partners"). Then its row is decided, once.
"""

from __future__ import annotations

from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.window import WindowKind

__all__ = ["HOWS", "absent_streams", "check_how", "decided_streams", "has_lonely_rows", "has_pairs"]

HOWS = ("inner", "left", "right", "full", "semi", "anti")

_DECIDED: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "semi": (0,),
    "anti": (0,),
}


def decided_streams(how: str) -> tuple[int, ...]:
    """Return the numbers of the streams whose tuples are decided at their horizon."""
    return _DECIDED[how]


def has_pairs(how: str) -> bool:
    """Whether a row is a tuple of each stream; otherwise it is a tuple of the first stream alone."""
    return how not in ("semi", "anti")


def has_lonely_rows(how: str) -> bool:
    """Whether a decided tuple without a partner makes a row."""
    return how not in ("inner", "semi")


def absent_streams(how: str) -> tuple[int, ...]:
    """Return the numbers of the streams that have no tuple in some rows: their columns may be null there."""
    return tuple(1 - stream for stream in _DECIDED[how]) if has_pairs(how) else ()


def check_how(how: object, streams: int, window: WindowKind) -> str:
    """Return the kind of a join; refuse one that is unknown, or has no meaning for these streams and this window.

    Raises
    ------
    ArgumentError
        There is no kind of this name, or it needs two streams.
    WindowError
        It needs a time window.
    """
    if not isinstance(how, str) or how not in HOWS:
        msg = "how is not the name of a kind of join"
        raise ArgumentError(msg, name="how", hint=f"one of {', '.join(HOWS)}")
    if how == "inner":
        return how
    if streams != 2:
        msg = f"how={how} needs two streams, and the join has {streams}"
        raise ArgumentError(msg, name="how", hint="join two streams, or use inner")
    if window.kind != "time":
        msg = f"how={how} needs a time window: for a {window.kind} window no event time says when a tuple is decided"
        raise WindowError(msg, name="how", hint="use a time window (15s), or inner")
    return how
