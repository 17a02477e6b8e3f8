"""Nearest joins: of a tuple's partners only the `k` nearest make a row, by a distance that the user gives.

::

    direction    partners                                 the window becomes
    ─────────    ──────────────────────────────────────   ─────────────────────
    both         within the window, before and after      as it is
    backward     those not after the tuple                 0 for the first stream
    forward      those not before the tuple                0 for the second stream

The tuples of the first stream are decided at their horizon, as those of `how` are
(ARCHITECTURE.md, "Rows about missing, nearest or summed partners").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, expression_facts, expression_from
from streamjoin_ds.spec.window import TimeWindow, WindowKind

__all__ = ["DIRECTIONS", "MAX_NEAREST", "RANK", "Nearest", "check_nearest"]

DIRECTIONS = ("both", "backward", "forward")
MAX_NEAREST = 100_000  # most partners of a tuple: as many as Spark's NEAREST BY allows
RANK = "rank"  # the column that numbers a tuple's partners, where there can be several


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
    if tables and (streams, tables) != (1, 1):
        msg = "nearest joins two streams, or one stream and one table, and the join has more"
        raise ArgumentError(msg, name="nearest", hint="two joins: the results of the first are a stream for the second")
    if tables and (nearest.by is None or nearest.direction != "both"):
        name = "nearest_by" if nearest.by is None else "nearest_direction"
        msg = "the rows of a table have no event time by which they could be near, before or after"
        hint = "give a distance, such as 'e.ts - z.since', and a condition: e.ts >= z.since"
        raise ArgumentError(msg, name=name, hint=hint)
    if not tables and streams != 2:
        msg = f"nearest needs two streams, and the join has {streams}"
        raise ArgumentError(msg, name="nearest", hint="join two streams, or leave it out")
    if how not in ("inner", "left"):
        msg = f"how={how} has no nearest partners"
        hint = "inner leaves out the first stream's tuples without a partner, left gives them a row with nulls"
        raise ArgumentError(msg, name="nearest", hint=hint)
    if window.kind != "time":
        msg = f"nearest needs a time window: for a {window.kind} window no event time says when a tuple is decided"
        raise WindowError(msg, name="nearest", hint="use a time window (15s), or leave nearest out")
    return nearest
