"""The order in which streams join (MJoin), by estimated selectivity.

New tuples of one stream meet the windows of the others one after the other. How many partial results this makes on the
way depends on the order. The number after each step is estimated as

::

    new tuples x rows of the windows that joined x for each condition among them: the share of pairs that it leaves

The order with the smallest sum of partial results is taken, by dynamic programming over sets of streams. A stream that
no condition and no residual compares with those that joined before it has to wait for the streams that one does: there
is no cross product while there is another way. The shares of conditions are estimated from sorted samples of the runs'
keys, so that hot values have their weight. The shares of residuals are rules of thumb. All shares are taken as
independent. A pair that a residual has to decide costs as much as a partial result.

Everything is a function of the runs, so the order is a function of the pushes alone. A few new tuples are taken to be
like those in their window, and sizes are rounded. So only one in many small pushes needs a new estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from itertools import count as counting
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from streamjoin_ds.engine.storage.bucket_grid.grid import SAMPLED_KEYS
from streamjoin_ds.engine.storage.run import Run, Sampled
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.tail import Tail, TailBuffer
from streamjoin_ds.engine.storage.window import Window
from streamjoin_ds.engine.tuning import DEFAULT, OrderTuning
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.bound.bound_join import BoundJoin, Condition
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.columns import Float64

if TYPE_CHECKING:
    from streamjoin_ds.spec.expression.node import Typed

__all__ = ["Estimate", "JoinOrder"]


class Estimate(Struct, frozen=True):
    """An order of joining and what it is expected to cost.

    Attributes
    ----------
    order : tuple of int
        The streams that join the new tuples, in this order.
    partials : tuple of float
        Partial results for each new tuple, after each of these streams; after the last they are results.
    """

    order: tuple[int, ...]
    partials: tuple[float, ...]


class JoinOrder:
    """The choice of the order of joining, for new tuples of each stream.

    Parameters
    ----------
    bound : BoundJoin
    forced : "auto" or sequence of str
        "auto", or the names of all streams: the others then join the new tuples of any stream in this order.
    tuning : OrderTuning

    Raises
    ------
    ArgumentError
        `forced` does not name each of the join's streams once.
    """

    def __init__(
        self, bound: BoundJoin, forced: str | Sequence[str] = "auto", tuning: OrderTuning = DEFAULT.order
    ) -> None:
        self._bound, self._tuning = bound, tuning
        self._forced: tuple[int, ...] | None = None
        if forced != "auto":
            names = [] if isinstance(forced, str) else list(forced)
            if sorted(names) != sorted(bound.member_names):
                what = "streams and tables" if bound.join.tables else "streams"
                msg = f"the order does not name each of the join's {what} once"
                raise ArgumentError(
                    msg, name="order", hint=f"auto, or all of {', '.join(bound.member_names)}, each once"
                )
            self._forced = tuple(bound.member_names.index(name) for name in names)
        self._sides: dict[int, tuple[tuple[Sequence[Run], object, TailBuffer, int], _Side]] = {}
        self._shares: dict[int, tuple[_Side, _Side, float]] = {}
        self._known: dict[int, tuple[tuple[list[int], list[int]], Estimate]] = {}
        # The streams that a condition or a residual compares. Streams that only the window's rules link are left out.
        conditions = bound.conditions[bound.window_conditions :]
        self._links = {frozenset((condition.left_stream, condition.right_stream)) for condition in conditions}
        self._links |= {frozenset(term.streams) for term in bound.terms}
        # An equality of strings is counted once, by the condition on their hashes.
        terms = [term for term in bound.terms if not _is_hashed(term, conditions)]
        self._term_shares = [(frozenset(term.streams), _term_share(term.condition, tuning)) for term in terms]

    @property
    def is_of_each(self) -> bool:
        """Whether the others are asked for partners of the first stream's tuples one by one (`RowKind.of_each`)."""
        return self._bound.row_kind.of_each

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the streams and tables in order of their numbers."""
        return tuple(self._bound.member_names)

    def chosen(self, stream: int, windows: Sequence[Window], fresh: Selection) -> tuple[int, ...]:
        """Return the order of `estimate` alone; nothing is estimated where there is nothing to choose."""
        if self._forced is not None:
            return tuple(number for number in self._forced if number != stream)
        if len(self._bound.member_names) == 2:
            return (1 - stream,)
        return self.estimate(stream, windows, fresh).order

    def estimate(self, stream: int, windows: Sequence[Window], fresh: Selection | None = None) -> Estimate:
        """Return the order in which the others join tuples of `stream`.

        Parameters
        ----------
        stream : int
        windows : sequence of Window
            One for each stream, then one for each table.
        fresh : Selection, optional
            New tuples of `stream`. If they are few, or not given, they are taken to be like those in its window. Then
            the estimate of an earlier push is used again, unless the windows have changed too much.
        """
        others = [number for number in range(len(self._bound.member_names)) if number != stream]
        sides = [self._side(number, window) for number, window in enumerate(windows)]
        rows = [_rounded(window.rows) for window in windows]
        rows[stream] = 1
        least_fresh = max(self._tuning.least_fresh_rows, self._tuning.fresh_share * windows[stream].rows)
        if fresh is not None and len(fresh) >= min(self._tuning.many_fresh_rows, least_fresh):
            sides[stream] = _Side([fresh])
            return self._estimated(stream, others, sides, rows, is_own=True)
        known, asked = self._known.get(stream), ([side.number for side in sides], rows)
        if known is None or known[0] != asked:
            known = self._known[stream] = asked, self._estimated(stream, others, sides, rows, is_own=False)
        return known[1]

    def _estimated(
        self, stream: int, others: Sequence[int], sides: Sequence[_Side], rows: Sequence[int], *, is_own: bool
    ) -> Estimate:
        shares: dict[frozenset[int], float] = {}
        for number, condition in enumerate(self._bound.conditions):
            pair = frozenset((condition.left_stream, condition.right_stream))
            left, right = sides[condition.left_stream], sides[condition.right_stream]
            # A share that the new tuples take part in is needed once. The other shares are kept for later pushes.
            mine = is_own and stream in pair
            share = _share(condition, left, right) if mine else self._share(number, left, right)
            shares[pair] = shares.get(pair, 1.0) * max(share, self._tuning.least_share)
        start = frozenset((stream,))
        sizes = {start: 1.0}
        for count in range(1, len(others) + 1):
            for chosen in combinations(others, count):
                joined = start | frozenset(chosen)
                rest = joined - {chosen[-1]}
                size = sizes[rest] * rows[chosen[-1]]
                for other in sorted(rest):
                    size *= shares.get(frozenset((other, chosen[-1])), 1.0)
                sizes[joined] = size * self._decided(rest, chosen[-1])
        order = tuple(number for number in self._forced or () if number != stream)
        order = order or self._cheapest(start, others, sizes)
        joined, partials = start, []
        for number in order:
            joined |= {number}
            partials.append(sizes[joined])
        return Estimate(order, tuple(partials))

    def _decided(self, rest: frozenset[int], last: int) -> float:
        """Return the share of the pairs that is left by the residuals that can be decided once `last` has joined."""
        share = 1.0
        for streams, left in self._term_shares:
            if last in streams and streams <= rest | {last}:
                share *= left
        return share

    def _is_linked(self, rest: frozenset[int], last: int) -> bool:
        """Whether a condition or a residual compares a stream with those that joined before it."""
        return any(last in link and link <= rest | {last} for link in self._links)

    def _cheapest(
        self, start: frozenset[int], others: Sequence[int], sizes: Mapping[frozenset[int], float]
    ) -> tuple[int, ...]:
        """Return the order that costs least: the sum of partial results and of pairs that residuals decide.

        Of equal orders it is the first by the streams' numbers.
        """
        best: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {start: (0.0, ())}
        for _ in others:
            grown: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
            for rest, (cost, order) in best.items():
                left = [number for number in others if number not in rest]
                for last in [number for number in left if self._is_linked(rest, number)] or left:
                    joined = rest | {last}
                    decided = self._decided(rest, last)
                    found = sizes[joined] / decided if decided < 1.0 else 0.0
                    way = (cost + sizes[joined] + found, (*order, last))
                    if joined not in grown or way < grown[joined]:
                        grown[joined] = way
            best = grown
        ((_, order),) = best.values()
        return order

    def _side(self, stream: int, window: Window) -> _Side:
        """Return the sample of a window; it is kept for as long as the window's largest runs are the same."""
        tail = window.tail
        rows = _rounded(tail.rows)
        first = window.before_tail[0].sampled if window.before_tail else None
        known = self._sides.get(stream)
        if known is not None:
            sealed, sampled, buffer, counted = known[0]
            if sealed is window.before_tail and sampled is first and buffer is tail.buffer and counted == rows:
                return known[1]
        parts = [run.sampled for run in window.before_tail]
        if rows:  # the tail's first rows, which never change
            parts.append(Tail(tail.buffer, rows, tail.zone))
        largest = _largest(parts, self._tuning)
        side = known[1] if known is not None and known[1].is_of(largest) else _Side(largest)
        self._sides[stream] = (window.before_tail, first, tail.buffer, rows), side
        return side

    def _share(self, number: int, left: _Side, right: _Side) -> float:
        known = self._shares.get(number)
        if known is None or known[0] is not left or known[1] is not right:
            known = self._shares[number] = (left, right, _share(self._bound.conditions[number], left, right))
        return known[2]


def _rounded(rows: int) -> int:
    """Return a number rounded down to its three highest bits: mostly the same after growth by less than an eighth."""
    shift = max(0, rows.bit_length() - 3)
    return rows >> shift << shift


def _largest(runs: Sequence[Sampled], tuning: OrderTuning) -> list[Sampled]:
    """Return the largest runs, as many as have most of the rows, so that a few new rows do not change the answer."""
    total, sampled = sum(run.rows for run in runs), 0
    largest: list[Sampled] = []
    for run in sorted(runs, key=lambda run: -run.rows)[: tuning.sampled_runs]:
        if sampled >= tuning.sampled_share * total:
            break
        largest.append(run)
        sampled += run.rows
    return largest


class _Side:
    """Samples of one stream's tuples: sorted values of a key, made when they are first asked for."""

    _numbers = counting()

    def __init__(self, parts: Sequence[Sampled | Selection]) -> None:
        # `JoinOrder._known` keeps this number instead of the object, which would keep a silent stream's rows in memory.
        self.number = next(self._numbers)
        self._parts = parts
        self.rows = sum(map(_rows, parts))
        self._samples: dict[int, Float64] = {}

    def is_of(self, runs: Sequence[Sampled]) -> bool:
        """Whether exactly these runs were sampled."""
        return len(runs) == len(self._parts) and all(one is other for one, other in zip(runs, self._parts, strict=True))

    def sample(self, key: int) -> Float64:
        """Return sorted, finite values of a key: evenly spaced rows of each part, in proportion to the part's rows."""
        if key not in self._samples:
            sampled = []
            for part in self._parts:
                values = part.key(key)
                count = max(1, min(len(values), round(SAMPLED_KEYS * _rows(part) / self.rows)))
                places = (np.arange(count) * len(values) + len(values) // 2) // count
                sampled.append(values[places].astype(np.float64))
            together = np.concatenate(sampled) if sampled else np.empty(0)
            self._samples[key] = np.sort(together[np.isfinite(together)])
        return self._samples[key]


def _rows(part: Sampled | Selection) -> int:
    return len(part) if isinstance(part, Selection) else part.rows


def _share(condition: Condition, left_side: _Side, right_side: _Side) -> float:
    """Estimate the share of the pairs of two streams for which a condition holds."""
    left, right = left_side.sample(condition.left_key), right_side.sample(condition.right_key)
    if not len(left) or not len(right):
        return 1.0
    lo, hi = float(condition.lo), float(condition.hi)
    reach = 0.0 if condition.kind == "float" else 0.5  # an integer stands for half a unit on either side of it
    counted = np.searchsorted(right, left - lo, "right") - np.searchsorted(right, left - hi, "left")
    if condition.lo == condition.hi:
        # For an equality the sample shows the hot values. All other values are taken to occur once in the window.
        return float(np.where(counted > 1, counted / len(right), 1 / max(right_side.rows, 1)).mean())
    places = np.arange(1, len(right) + 1) / len(right)
    with np.errstate(invalid="ignore"):
        high = np.interp(left - lo + reach, right, places, left=0.0, right=1.0)
        low = np.interp(left - hi - reach, right, places, left=0.0, right=1.0)
    # Where the band covers several sampled values, their number decides. Elsewhere the sample's density decides: a band
    # may be narrower than the distance between sampled values.
    return float(np.nanmean(np.where(counted > 1, counted / len(right), np.maximum(high - low, 0.0))))


def _is_hashed(term: Term, conditions: Sequence[Condition]) -> bool:
    """Whether a residual only says that two strings are equal, which the condition on their hashes already counts."""
    if term.condition.op != "=" or any(side.op != "column" for side in term.condition.args):
        return False
    pairs = [(c.left_stream, c.right_stream) for c in conditions if c.kind == "hash"]
    return term.streams in pairs


def _term_share(condition: Typed, tuning: OrderTuning) -> float:
    """Return the share of the pairs that a residual is taken to leave."""
    parts = [_term_share(part, tuning) for part in condition.args] if condition.op in ("and", "or", "not") else []
    if condition.op == "and":
        return float(np.prod(parts))
    if condition.op in ("or", "not"):
        gone = float(np.prod([1.0 - part for part in parts]))
        return max(1.0 - gone if condition.op == "or" else gone, tuning.least_share)
    if condition.op in ("<", "<=", ">", ">="):
        return tuning.compared_share
    shares = {
        "=": tuning.equal_share,
        "<>": tuning.unequal_share,
        "between": tuning.between_share,
        "in": tuning.in_share,
        "is_null": tuning.null_share,
    }
    return shares.get(condition.op, tuning.other_share)
