"""Residuals that the kernels have decided already: comparisons of plain columns, where the limits are the values.

::

    e.x BETWEEN w.lo AND w.hi     kernels test the limits of x, lo and hi: pairs that are found need no second look
                                  ... unless an infinity, a NaN or a whole number beyond 2^53 is among the values

Whether the limits are the values is asked of the ranges of both sides' values, which zone maps tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamjoin_ds.engine.storage.zone import Range
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.limit import plain_comparison
from streamjoin_ds.spec.bound.terms import Term

__all__ = ["Settled", "settled_terms"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A residual that is decided by conditions that only find, where the values are small enough.

    Attributes
    ----------
    term : Term
    keys : tuple of (int, int)
        Stream and key of both sides.
    below : float
        The values must be nearer to zero than this.
    """

    term: Term
    keys: tuple[tuple[int, int], tuple[int, int]]
    below: float

    def is_decided(self, range_of: Callable[[int, int], Range]) -> bool:
        """Return whether it is, given the range of a stream's key."""
        for stream, key in self.keys:
            smallest, largest = range_of(stream, key)
            if not -self.below < smallest <= largest < self.below:
                return False
        return True


def settled_terms(bound: BoundJoin, joined: Sequence[int], stream: int, tested: int) -> list[Settled]:
    """Return the residuals of which kernels may have tested all that they say.

    Parameters
    ----------
    bound : BoundJoin
    joined : sequence of int
        Streams of the partial results.
    stream : int
        The stream that joins them.
    tested : int
        How many of the conditions that only find are tested: the first ones between these streams.
    """
    pairs = [{other, stream} for other in joined]
    between = [one for one in bound.finding if {one.left_stream, one.right_stream} in pairs][:tested]
    known = set()
    for one in between:
        sides = (one.left_stream, one.left_key), (one.right_stream, one.right_key)
        if (one.kind, one.lo, one.hi) == ("limit", -math.inf, 0.0):
            known.add(sides)
        elif (one.kind, one.lo, one.hi) == ("limit", 0.0, math.inf):
            known.add(sides[::-1])
    numbers = {name: number for number, name in enumerate(bound.member_names)}
    found = []
    for term in bound.terms:
        plain = plain_comparison(term.condition, numbers)
        if plain is None:
            continue
        low, high = bound.limit_key(plain.low_stream, plain.low), bound.limit_key(plain.high_stream, plain.high)
        if low is not None and high is not None:
            keys = (plain.low_stream, low), (plain.high_stream, high)
            if keys in known:
                found.append(Settled(term, keys, plain.below))
    return found
