"""The conditions of a join whose first stream has partners in each of several others by itself.

::

    Join([e, w, z], how="semi")      e ── conditions, window ── w      a tuple of e with a partner in w, and one in z
                                     e ── conditions, window ── z

There is no combination of all streams. So a condition is between the first stream and one other, or it is on one stream
alone: any other has no meaning, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamjoin_ds.errors import PredicateError
from streamjoin_ds.spec.expression.predicate import Band, Column
from streamjoin_ds.spec.expression.tree import Call, Predicate, conjuncts, normalised, streams_of
from streamjoin_ds.spec.join_parts import JoinParts

__all__ = ["check_pairwise"]


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
    for part, streams in _parts(join):
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


def _parts(join: JoinParts) -> Iterator[tuple[Predicate, tuple[str, ...]]]:
    """Yield the conditions that must all hold, and the streams that each is about."""
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            yield predicate, (predicate.left.stream, predicate.right.stream)
            continue
        for part in conjuncts(normalised(predicate)):
            yield part, tuple(sorted(streams_of(part), key=join.names.index))
