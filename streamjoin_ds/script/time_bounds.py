"""Bounds on the streams' event times, and the window that they are.

A bound is a difference constraint: ``left.ts - right.ts <= W``. Bounds of several pairs of streams bound other pairs
too (``a - c <= (a - b) + (b - c)``), and the smallest sums are found as shortest ways are (Cormen, Leiserson, Rivest
and Stein, chapter on difference constraints). The window gives each stream the largest of the bounds on those that
come after it; a pair that is bounded more tightly than its streams' windows has a band besides::

    e.ts - w.ts <= 15 s     w.ts - e.ts <= 5 s         window e=5s, w=15s
    5 s <= e.ts - w.ts <= 15 s                         window e=0s, w=15s, and the band [5 s, 15 s]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct

from streamjoin_ds.duration import MICROSECOND
from streamjoin_ds.script.sql_text import Span
from streamjoin_ds.spec import Band, TimeWindow
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal

__all__ = ["Contradiction", "TimeBound", "Unbounded", "time_bounds", "window_of", "window_of_each"]

_TURNED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "="}


class TimeBound(Struct, frozen=True):
    """``later - earlier <= us``: event times of two streams, in microseconds.

    Parameters
    ----------
    later, earlier : str
        The streams.
    us : int
        May be negative.
    span : Span
        Where in the text it stands.
    """

    later: str
    earlier: str
    us: int
    span: Span


class Unbounded(Struct, frozen=True):
    """Nothing bounds how much later than a tuple of `earlier` one of `later` may be."""

    later: str
    earlier: str


class Contradiction(Struct, frozen=True):
    """No tuples satisfy all bounds; `span` is the one that was written last."""

    span: Span


def time_bounds(
    condition: Expression, times: Mapping[str, str], span: Span, *, is_fine: bool = False
) -> list[TimeBound] | None:
    """Return the bounds that a condition puts on the event times of two streams; None if it is no such condition.

    Parameters
    ----------
    condition : Expression
        ``abs(e.ts - w.ts) <= c``, ``e.ts BETWEEN w.ts - c AND w.ts + d``, and comparisons of event times and durations,
        sums and differences of them.
    times : mapping of stream name to column
        The streams' event times.
    span : Span
        Where the condition stands.
    is_fine : bool
        Whether event times have parts of a microsecond. Then ``<`` leaves out no whole microsecond.
    """
    if not isinstance(condition, Call):
        return None
    if condition.op == "between":
        value, low, high = condition.args
        both = [_compared(value, ">=", low, times, span, is_fine), _compared(value, "<=", high, times, span, is_fine)]
        return None if None in both else [bound for found in both for bound in found or ()]
    if condition.op not in _TURNED:
        return None
    left, right = condition.args
    op = condition.op
    if isinstance(right, Call) and right.op == "abs":
        left, op, right = right, _TURNED[op], left
    if isinstance(left, Call) and left.op == "abs":
        if op not in ("<=", "<"):
            return None
        negative = Call("neg", (right,))
        both = [
            _compared(left.args[0], op, right, times, span, is_fine),
            _compared(left.args[0], _TURNED[op], negative, times, span, is_fine),
        ]
        return None if None in both else [bound for found in both for bound in found or ()]
    return _compared(left, op, right, times, span, is_fine)


def window_of(
    streams: Sequence[str], times: Mapping[str, str], bounds: Sequence[TimeBound]
) -> tuple[TimeWindow, list[Band]] | Unbounded | Contradiction:
    """Return the window of some bounds, and the bands of the pairs that are bounded more tightly than by the window.

    Parameters
    ----------
    streams : sequence of str
        The join's streams.
    times : mapping of stream name to column
        Their event times.
    bounds : sequence of TimeBound
        In the order of the text.
    """
    least = {(stream, stream): 0 for stream in streams}
    for bound in bounds:
        pair = (bound.later, bound.earlier)
        least[pair] = min(bound.us, least.get(pair, bound.us))
    for middle in streams:
        for later in streams:
            for earlier in streams:
                if (later, middle) in least and (middle, earlier) in least:
                    way = least[later, middle] + least[middle, earlier]
                    least[later, earlier] = min(way, least.get((later, earlier), way))
    if any(least[stream, stream] < 0 for stream in streams):
        return Contradiction(bounds[-1].span)
    for later in streams:
        for earlier in streams:
            if (later, earlier) not in least:
                return Unbounded(later, earlier)
    windows = {
        earlier: max((max(0, least[later, earlier]) for later in streams if later != earlier), default=0)
        for earlier in streams
    }
    bands = []
    written = {frozenset((bound.later, bound.earlier)) for bound in bounds}
    for place, left in enumerate(streams):
        for right in streams[place + 1 :]:
            hi, lo = least[left, right], -least[right, left]
            if {left, right} in written and (hi < windows[right] or -lo < windows[left]):
                ends = (timedelta(microseconds=lo), timedelta(microseconds=hi))
                bands.append(Band(Column(left, times[left]), Column(right, times[right]), *ends))
    return TimeWindow(tuple(windows[stream] for stream in streams)), bands


def window_of_each(
    streams: Sequence[str], times: Mapping[str, str], bounds: Sequence[TimeBound]
) -> tuple[TimeWindow, list[Band]] | Unbounded | Contradiction:
    """Do `window_of` where the first stream has partners in each of the others by itself.

    Each of them is bounded by what is said of it and the first stream alone. The first stream's window is the largest
    that one of them asks for, and where another asks for less, that is a band.
    """
    first, others = streams[0], streams[1:]
    extents_us, bands = [], []
    for other in others:
        found = window_of((first, other), times, [one for one in bounds if {one.later, one.earlier} == {first, other}])
        if not isinstance(found, tuple):
            return found
        extents_us.append([found[0].extent(place) for place in (0, 1)])
        bands.append(found[1])
    largest_us = max(own_us for own_us, _ in extents_us)
    for other, (own_us, other_us), band in zip(others, extents_us, bands, strict=True):
        if not band and own_us < largest_us:
            ends = (timedelta(microseconds=-own_us), timedelta(microseconds=other_us))
            band.append(Band(Column(first, times[first]), Column(other, times[other]), *ends))
    window = TimeWindow((largest_us, *(other_us for _, other_us in extents_us)))
    return window, [band for of_other in bands for band in of_other]


def _compared(
    left: Expression, op: str, right: Expression, times: Mapping[str, str], span: Span, is_fine: bool
) -> list[TimeBound] | None:
    one, other = _linear(left, times), _linear(right, times)
    if one is None or other is None:
        return None
    counts = dict(one[0])
    for stream, count in other[0].items():
        counts[stream] = counts.get(stream, 0) - count
    counts = {stream: count for stream, count in counts.items() if count}
    if sorted(counts.values()) != [-1, 1]:
        return None
    later, earlier = sorted(counts, key=counts.__getitem__, reverse=True)
    us = other[1] - one[1]  # later - earlier `op` us
    strict = 0 if is_fine else 1
    found = []
    if op in ("<=", "<", "="):
        found.append(TimeBound(later, earlier, us - strict * (op == "<"), span))
    if op in (">=", ">", "="):
        found.append(TimeBound(earlier, later, -us - strict * (op == ">"), span))
    return found


def _linear(node: Expression, times: Mapping[str, str]) -> tuple[dict[str, int], int] | None:
    """Return a sum of event times and durations as the counts of the times and the microseconds; None for others."""
    if isinstance(node, Column):
        return ({node.stream: 1}, 0) if times.get(node.stream) == node.name else None
    if isinstance(node, Literal):
        return ({}, node.value // MICROSECOND) if isinstance(node.value, timedelta) else None
    if node.op not in ("+", "-", "neg"):
        return None
    parts = [_linear(argument, times) for argument in node.args]
    signs = (-1,) if node.op == "neg" else (1, -1 if node.op == "-" else 1)
    counts: dict[str, int] = {}
    total = 0
    for part, sign in zip(parts, signs, strict=True):
        if part is None:
            return None
        for stream, count in part[0].items():
            counts[stream] = counts.get(stream, 0) + sign * count
        total += sign * part[1]
    return counts, total
