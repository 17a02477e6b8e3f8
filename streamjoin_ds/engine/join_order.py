"""The order in which streams join (MJoin), by estimated selectivity.

New tuples of one stream meet the windows of the others one after the other, and how many partial results that makes on
the way depends on the order. The number after each step is estimated as

::

    new tuples x rows of the windows that joined x share of pairs that hold, of each condition among them

and the order with the smallest sum of partial results is taken, by dynamic programming over sets of streams. The
shares come of sorted samples of the runs' keys, so a hot value weighs what it is worth; conditions are taken as
independent. Everything is a function of the runs, so the order is one of the pushes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.grid_sample import SAMPLED_KEYS, GridSample
from streamjoin_ds.engine.picks import Picks
from streamjoin_ds.engine.run import Run
from streamjoin_ds.engine.window import Window
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.bound import BoundJoin, Condition

__all__ = ["Estimate", "JoinOrder"]

_SAMPLED_RUNS = 8
_SAMPLED_SHARE = 0.75
_LEAST_SHARE = 1e-15
_MIN_FRESH = 64

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """An order and what it is expected to cost.

    Attributes
    ----------
    order : tuple of int
        Streams after the first, in the order in which they join.
    partials : tuple of float
        Partial results after each of them, for each new tuple; the last are results.
    """

    order: tuple[int, ...]
    partials: tuple[float, ...]


class JoinOrder:
    """Chooses the order for new tuples of each stream.

    Parameters
    ----------
    bound : BoundJoin
    forced : "auto" or sequence of str
        Names of all streams: whatever stream new tuples are of, the others join in this order.

    Raises
    ------
    ArgumentError
        `forced` is not the join's streams, each once.
    """

    def __init__(self, bound: BoundJoin, forced: str | Sequence[str] = "auto") -> None:
        self._bound = bound
        self._forced: tuple[int, ...] | None = None
        if forced != "auto":
            names = [] if isinstance(forced, str) else list(forced)
            if sorted(names) != sorted(bound.names):
                msg = "the order is not of the join's streams"
                raise ArgumentError(msg, name="order", hint=f"auto, or all of {', '.join(bound.names)}, each once")
            self._forced = tuple(bound.names.index(name) for name in names)
        self._sides: dict[int, _Side] = {}
        self._shares: dict[int, tuple[_Side, _Side, float]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the streams, by number."""
        return tuple(self._bound.names)

    def chosen(self, stream: int, windows: Sequence[Window], fresh: Picks) -> tuple[int, ...]:
        """The order alone, of `estimate`; where there is nothing to choose nothing is estimated."""
        if self._forced is not None:
            return tuple(number for number in self._forced if number != stream)
        if len(self._bound.names) == 2:
            return (1 - stream,)
        return self.estimate(stream, windows, fresh).order

    def estimate(self, stream: int, windows: Sequence[Window], fresh: Picks | None = None) -> Estimate:
        """The order in which the others join tuples of `stream`.

        Parameters
        ----------
        stream : int
        windows : sequence of Window
            One a stream.
        fresh : Picks, optional
            New tuples of `stream`; where they are few or none they are taken to be like those in its window, of which
            everything is known from the push before.
        """
        others = [number for number in range(len(self._bound.names)) if number != stream]
        rows = {number: windows[number].rows for number in others}
        sides = {number: self._side(number, windows[number].runs) for number in (stream, *others)}
        own = fresh is not None and len(fresh) >= _MIN_FRESH
        if fresh is not None and own:
            sides[stream] = _Side([fresh])
        shares: dict[frozenset[int], float] = {}
        for number, condition in enumerate(self._bound.conditions):
            pair = frozenset((condition.left_stream, condition.right_stream))
            left, right = sides[condition.left_stream], sides[condition.right_stream]
            # What the new tuples have a part in is asked once; what the others say among them, push after push.
            mine = own and stream in (condition.left_stream, condition.right_stream)
            share = _share(condition, left, right) if mine else self._share(number, left, right)
            shares[pair] = shares.get(pair, 1.0) * max(share, _LEAST_SHARE)
        sizes = {frozenset((stream,)): 1.0}
        for count in range(1, len(others) + 1):
            for chosen in combinations(others, count):
                joined = frozenset((stream, *chosen))
                rest = joined - {chosen[-1]}
                size = sizes[rest] * rows[chosen[-1]]
                for other in sorted(rest):
                    size *= shares.get(frozenset((other, chosen[-1])), 1.0)
                sizes[joined] = size
        forced = tuple(number for number in self._forced or () if number != stream)
        order = forced or _cheapest(stream, others, sizes)
        joined, partials = frozenset((stream,)), []
        for number in order:
            joined |= {number}
            partials.append(sizes[joined])
        return Estimate(order, tuple(partials))

    def _side(self, stream: int, runs: Sequence[Run]) -> _Side:
        """The sample of a window; kept for as long as its largest runs are the same."""
        side = self._sides.get(stream)
        largest = _largest(runs)
        if side is None or not side.is_of(largest):
            side = self._sides[stream] = _Side(largest)
        return side

    def _share(self, number: int, left: _Side, right: _Side) -> float:
        known = self._shares.get(number)
        if known is None or known[0] is not left or known[1] is not right:
            known = self._shares[number] = (left, right, _share(self._bound.conditions[number], left, right))
        return known[2]


def _largest(runs: Sequence[Run]) -> list[Run | GridSample]:
    """What is sampled of the largest runs, until they have most of the rows: pushes of few tuples leave it as it is."""
    total, sampled = sum(run.rows for run in runs), 0
    largest: list[Run | GridSample] = []
    for run in sorted(runs, key=lambda run: -run.rows)[:_SAMPLED_RUNS]:
        if sampled >= _SAMPLED_SHARE * total:
            break
        largest.append(run.sampled)
        sampled += run.rows
    return largest


class _Side:
    """What is sampled of one stream's tuples: sorted keys, made when they are asked for."""

    def __init__(self, parts: Sequence[Run | GridSample | Picks]) -> None:
        self._parts = parts
        self.rows = sum(map(_rows, parts))
        self._samples: dict[int, Values] = {}

    def is_of(self, runs: Sequence[Run | GridSample]) -> bool:
        """Whether it is these that were sampled."""
        return len(runs) == len(self._parts) and all(one is other for one, other in zip(runs, self._parts, strict=True))

    def sample(self, key: int) -> Values:
        """Sorted values of a key, finite: of each part evenly spaced ones, as many as it has rows in proportion."""
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


def _rows(part: Run | GridSample | Picks) -> int:
    return len(part) if isinstance(part, Picks) else part.rows


def _share(condition: Condition, left_side: _Side, right_side: _Side) -> float:
    """Estimated share of the pairs of two streams that hold a condition."""
    left, right = left_side.sample(condition.left_key), right_side.sample(condition.right_key)
    if not len(left) or not len(right):
        return 1.0
    lo, hi = float(condition.lo), float(condition.hi)
    reach = 0.0 if condition.kind == "float" else 0.5  # an integer is as wide as its distance to the next
    counted = np.searchsorted(right, left - lo, "right") - np.searchsorted(right, left - hi, "left")
    if condition.lo == condition.hi:
        # Of an equality the sample tells the hot values; others are taken to occur once.
        return float(np.where(counted > 1, counted / len(right), 1 / max(right_side.rows, 1)).mean())
    places = np.arange(1, len(right) + 1) / len(right)
    with np.errstate(invalid="ignore"):
        high = np.interp(left - lo + reach, right, places, left=0.0, right=1.0)
        low = np.interp(left - hi - reach, right, places, left=0.0, right=1.0)
    # Between the sample's values its density decides, on them their number: a band may be finer than the sample.
    return float(np.nanmean(np.where(counted > 1, counted / len(right), np.maximum(high - low, 0.0))))


def _cheapest(stream: int, others: Sequence[int], sizes: Mapping[frozenset[int], float]) -> tuple[int, ...]:
    """The order with the fewest partial results in all; of equal ones the first by the streams' numbers."""
    start = frozenset((stream,))
    best: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {start: (0.0, ())}
    for count in range(1, len(others) + 1):
        for chosen in combinations(others, count):
            joined = frozenset((stream, *chosen))
            ways = [(best[joined - {last}], last) for last in chosen]
            cost, order = min((cost, (*order, last)) for (cost, order), last in ways)
            best[joined] = (cost + sizes[joined], order)
    return best[frozenset((stream, *others))][1]
