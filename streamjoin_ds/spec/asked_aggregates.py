"""What `reduce` of a join may be, and the aggregates that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.aggregate import Aggregate
from streamjoin_ds.spec.expression.tree import streams_of

__all__ = ["asked_aggregates"]

MAX_AGGREGATES = 100  # most aggregates of a join


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
    if not isinstance(asked, Mapping):
        found = tuple(asked) if isinstance(asked, (list, tuple)) else (None,)
        if not all(isinstance(one, Aggregate) for one in found):
            msg = "reduce is not a mapping of column names to aggregates"
            raise ArgumentError(msg, name="reduce", hint="for example {'n': 'count(*)', 'mean_x': 'avg(w.x)'}")
    else:
        found = tuple(_aggregate(name, each) for name, each in asked.items())
    if len(found) > MAX_AGGREGATES:
        msg = f"reduce has {len(found)} aggregates"
        raise ArgumentError(msg, name="reduce", hint=f"at most {MAX_AGGREGATES} are possible")
    for one in found:
        for stream in (stream for argument in one.args for stream in streams_of(argument)):
            if stream not in names:
                msg = f"'{one}' names the stream '{stream}', which is not in the join"
                raise ArgumentError(msg, name=stream, hint=f"the streams are {', '.join(names)}")
    return found


def _aggregate(name: object, written: object) -> Aggregate:
    if not isinstance(name, str) or not isinstance(written, str):
        msg = "reduce is not a mapping of column names to aggregates"
        raise ArgumentError(msg, name="reduce", hint="for example {'n': 'count(*)', 'mean_x': 'avg(w.x)'}")
    # Imported here: a worker is sent facts, and needs no SQL parser.
    from streamjoin_ds.spec.parse_aggregate import parse_aggregate

    return parse_aggregate(name, written)
