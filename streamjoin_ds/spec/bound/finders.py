"""Finders: what conditions on two streams say of where their pairs can be, as intervals, bands and times of an index.

::

    condition                                       finds by
    ───────────────────────────────────────────     ────────────────────────────────────────────────────
    e.x BETWEEN w.lo AND w.hi                       an interval: w.lo <= e.x and e.x <= w.hi
    e.a <= w.d AND w.c <= e.b                       an interval
    abs(e.x - w.x) <= w.eps, ... <= 0.05 * w.x      an interval: w.x - w.eps <= e.x and e.x <= w.x + w.eps
    (e.x-w.x)*(e.x-w.x) + ... <= w.r * w.r, sqrt    an interval for each square
    the same with a number instead of w.r           a band for each square
    distance_m(e.lat, e.lon, w.lat, w.lon) <= 5000  a band of latitudes, an interval of longitudes
    e.x IS NOT DISTINCT FROM w.y                    a band of no width, in which null meets null
    e.x < w.y                                       one side of an interval
    e.ts >= w.ts - INTERVAL 3 SECONDS               the event times, together with the window

A sum of columns, numbers and differences is taken apart into what each stream has of it (`_Parts`). So a comparison of
two streams says that a `Limit` of one is not above a limit of the other. Two such bounds in opposite directions make an
interval. All that is found here is wider than the condition, never narrower: the condition decides, but where the
limits are plain columns (`plain_limits`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from streamjoin_ds.spec.bound.limit import EPSILON, TINY, Limit, Part, are_alike, is_exact, limit_of, plain_limits
from streamjoin_ds.spec.bound.terms import Term
from streamjoin_ds.spec.expression.evaluation import float_values
from streamjoin_ds.spec.expression.node import EXACT_FLOAT, NESTED, Typed
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.functions.globe import LONGITUDE, limits_of, reach_of

__all__ = ["NO_FINDERS", "BandFinder", "Finders", "IntervalFinder", "LimitBound", "TimeFinder", "finders_of"]

_NUMBERS = ("number", "float", "timestamp", "date", "interval", "time")
_MOST_PARTS = 32  # summands of a comparison; one with more only decides
_MOST_BOUNDS = 16  # bounds that are made of one term
_ROOM = 8  # operations that are counted beside those of the condition: the limits' own


class LimitBound(Struct, frozen=True):
    """A limit of one stream is not above a limit of another: ``low <= high``."""

    low_stream: int
    low: Limit
    high_stream: int
    high: Limit


class IntervalFinder(Struct, frozen=True):
    """One bound, or two in opposite directions: for each tuple of either stream an interval of the other's limits.

    Attributes
    ----------
    bounds : tuple of LimitBound
        One or two. The second has the streams of the first in the other order.
    texts : tuple of str
        The conditions that it is of.
    """

    bounds: tuple[LimitBound, ...]
    texts: tuple[str, ...]

    @property
    def columns(self) -> frozenset[Column]:
        """The columns in it."""
        return frozenset().union(*(bound.low.columns | bound.high.columns for bound in self.bounds))


class BandFinder(Struct, frozen=True):
    """``-eps <= left - right <= eps``, for two columns that float64 holds exactly."""

    left_stream: int
    left: Limit
    right_stream: int
    right: Limit
    eps: float
    text: str


class TimeFinder(Struct, frozen=True):
    """``left - right <= most_us``, for the event times of two streams."""

    left_stream: int
    right_stream: int
    most_us: int
    text: str


@dataclass(frozen=True)
class Finders:
    """All that the conditions of a join say of where their pairs can be."""

    intervals: tuple[IntervalFinder, ...] = ()
    bands: tuple[BandFinder, ...] = ()
    times: tuple[TimeFinder, ...] = ()

    @property
    def limits(self) -> Iterator[tuple[int, Limit]]:
        """Each limit with the number of its stream; one may come several times."""
        for band in self.bands:
            yield band.left_stream, band.left
            yield band.right_stream, band.right
        for one in self.intervals:
            for bound in one.bounds:
                yield bound.low_stream, bound.low
                yield bound.high_stream, bound.high

    def besides(self, compared: Collection[frozenset[Column]]) -> Finders:
        """Return the finders without those of two columns between which there is a band or an equality already."""
        intervals = (one for one in self.intervals if one.columns not in compared)
        bands = (one for one in self.bands if one.left.columns | one.right.columns not in compared)
        return Finders(tuple(intervals), tuple(bands), self.times)


NO_FINDERS = Finders()


def finders_of(terms: Sequence[Term], streams: Mapping[str, int], times: Mapping[str, str]) -> Finders:
    """Return what some terms say, each of which must be TRUE.

    Parameters
    ----------
    terms : sequence of Term
    streams : mapping of str to int
        The number of each stream.
    times : mapping of str to str
        The event time column of each stream.
    """
    bounds: list[tuple[LimitBound, str]] = []
    bands: list[BandFinder] = []
    moments: list[TimeFinder] = []
    for term in terms:
        if len(term.streams) != 2:
            continue
        solver = _Solver(streams, times)
        solver.solve(term.condition)
        bounds += [(bound, term.text) for bound in dict.fromkeys(solver.bounds)]
        bands += [replace(band, text=term.text) for band in dict.fromkeys(solver.bands)]
        moments += [replace(moment, text=term.text) for moment in dict.fromkeys(solver.moments)]
    return Finders(tuple(_paired(bounds)), tuple(bands), tuple(moments))


def _paired(bounds: Sequence[tuple[LimitBound, str]]) -> Iterator[IntervalFinder]:
    """Put bounds of opposite directions together, those first that share the most columns."""
    left = list(range(len(bounds)))
    pairs = [
        (-_shared(bounds[i][0], bounds[j][0]), i, j)
        for i in left
        for j in left[i + 1 :]
        if bounds[i][0].low_stream == bounds[j][0].high_stream and bounds[i][0].high_stream == bounds[j][0].low_stream
    ]
    taken: set[int] = set()
    for _, i, j in sorted(pairs):
        if not {i, j} & taken:
            taken |= {i, j}
            texts = tuple(dict.fromkeys((bounds[i][1], bounds[j][1])))
            yield IntervalFinder((bounds[i][0], bounds[j][0]), texts)
    for i in left:
        if i not in taken:
            yield IntervalFinder((bounds[i][0],), (bounds[i][1],))


def _shared(one: LimitBound, other: LimitBound) -> int:
    return len(one.low.columns & other.high.columns) + len(one.high.columns & other.low.columns)


class _Parts(Struct, frozen=True):
    """``sum of factor * node <= 0``: a comparison, taken apart.

    Attributes
    ----------
    single : tuple of (factor, node or limit, stream)
        Summands of one stream each.
    mixed : tuple of (factor, node)
        Summands of both streams.
    constant : float
    operations : int
        How many operations with numbers of both streams there are, each of which may round.
    """

    single: tuple[tuple[float, Typed | Limit, int], ...] = ()
    mixed: tuple[tuple[float, Typed], ...] = ()
    constant: float = 0.0
    operations: int = 0

    def and_also(self, other: _Parts, factor: float = 1.0) -> _Parts:
        """Return the sum of both; the other's summands are multiplied by a factor."""
        return _Parts(
            (*self.single, *((factor * of, node, stream) for of, node, stream in other.single)),
            (*self.mixed, *((factor * of, node) for of, node in other.mixed)),
            self.constant + factor * other.constant,
            self.operations + other.operations + 1,
        )


class _Solver:
    """Finds the bounds that a condition implies."""

    def __init__(self, streams: Mapping[str, int], times: Mapping[str, str]) -> None:
        self._streams, self._times = streams, times
        self.bounds: list[LimitBound] = []
        self.bands: list[BandFinder] = []
        self.moments: list[TimeFinder] = []
        self._is_strict = False  # of the condition that is looked at

    def solve(self, condition: Typed) -> None:
        """Add what a condition implies."""
        if condition.op == "same":
            self._same(condition)
            return
        if condition.op not in ("<", "<=", "=") or any(side.family not in _NUMBERS for side in condition.args):
            return
        left, right = (self._parts(side) for side in condition.args)
        if left is None or right is None:
            return
        self._is_strict = condition.op == "<"
        together = replace(left.and_also(right, -1.0), operations=left.operations + right.operations)
        self._not_above_zero(together)
        if condition.op == "=":
            self._not_above_zero(replace(_Parts().and_also(together, -1.0), operations=together.operations))

    def _same(self, condition: Typed) -> None:
        """Add what IS NOT DISTINCT FROM implies; of times nothing where one has nanoseconds, which float64 cuts off."""
        sides = []
        for node in condition.args:
            is_plain = node.op == "column" and node.family in ("string", "binary", "boolean", NESTED)
            is_number = node.family in ("float", "number") or (node.family in _NUMBERS and not node.scale)
            streams = self._streams_of(node)
            if len(streams) != 1 or not (is_plain or is_number):
                return
            limit = Limit((Part(1.0, node),), 0.0, 0.0, is_upper=True, text=_text(node), meets_nulls=True)
            sides.append((streams.pop(), limit))
        (left_stream, left), (right_stream, right) = sorted(sides, key=lambda side: side[0])
        if left_stream != right_stream:
            self.bands.append(BandFinder(left_stream, left, right_stream, right, 0.0, ""))

    def _streams_of(self, node: Typed) -> set[int]:
        found = {self._streams[node.column.stream]} if node.column is not None else set()
        for argument in node.args:
            found |= self._streams_of(argument)
        return found

    def _parts(self, node: Typed) -> _Parts | None:
        """Return an expression as a sum; None where it is none of numbers that are known."""
        if node.family not in _NUMBERS:
            return None
        streams = self._streams_of(node)
        if not streams:
            number = _constant(node)
            return None if number is None else _Parts(constant=number)
        if len(streams) == 1 and not (node.family == "timestamp" and node.op in ("+", "-")):
            return _Parts(single=((1.0, node, streams.pop()),))
        if node.op in ("+", "-"):
            left, right = (self._parts(argument) for argument in node.args)
            if left is None or right is None:
                return None
            return left.and_also(right, 1.0 if node.op == "+" else -1.0)
        if node.op == "neg":
            inner = self._parts(node.args[0])
            return None if inner is None else _Parts().and_also(inner, -1.0)
        scaled = self._scaled(node)
        return _Parts(mixed=((1.0, node),), operations=1) if scaled is None else scaled

    def _scaled(self, node: Typed) -> _Parts | None:
        """Return a sum that is multiplied or divided by a number; None where it is none."""
        if node.op not in ("*", "/"):
            return None
        inner, number = node.args
        if node.op == "*" and not self._streams_of(inner):
            inner, number = number, inner
        factor = None if self._streams_of(number) else _constant(number)
        parts = self._parts(inner) if factor else None
        if parts is None or not factor:
            return None
        return _Parts().and_also(parts, factor if node.op == "*" else 1.0 / factor)

    def _not_above_zero(self, parts: _Parts) -> None:
        """Add what follows where a sum is not above zero."""
        count = len(parts.single) + len(parts.mixed)
        if count > _MOST_PARTS or len(self.bounds) >= _MOST_BOUNDS or not math.isfinite(parts.constant):
            return
        if not parts.mixed:
            self._compare(parts)
        elif all(factor > 0 and _is_never_negative(node) for factor, node in parts.mixed):
            # Each of them is not above what the others, which are not negative, leave.
            for factor, node in parts.mixed:
                rest = replace(_Parts().and_also(replace(parts, mixed=()), 1.0 / factor), operations=parts.operations)
                self._bounded(node, rest)

    def _bounded(self, node: Typed, rest: _Parts) -> None:
        """Add what follows where ``node + rest <= 0``, for a node that is never negative."""
        if node.op == "abs":
            self._within(node.args[0], rest)
        elif node.op == "*":
            self._within(node.args[0], self._root(rest))
        elif node.op == "distance_m":
            self._near(node, rest)
        else:  # the root of a sum of squares: each of them is not above the square of the bound
            inside = self._parts(node.args[0])
            if inside is None or inside.single or inside.constant < 0:
                return
            if not all(factor > 0 and node.op == "*" and _is_never_negative(node) for factor, node in inside.mixed):
                return
            for factor, square in inside.mixed:
                scaled = _Parts(constant=-TINY).and_also(rest, 1.0 / math.sqrt(factor))
                self._within(square.args[0], replace(scaled, operations=rest.operations + inside.operations + 2))

    def _near(self, node: Typed, rest: _Parts) -> None:
        """Add what follows where a distance on the globe is bounded by a number: a box around each place."""
        lat_1, lon_1, lat_2, lon_2 = node.args[:4]
        streams = [self._streams_of(one) for one in node.args[:4]]
        if rest.single or any(len(of) != 1 for of in streams):
            return
        if streams[0] != streams[1] or streams[2] != streams[3] or streams[0] == streams[2]:
            return
        angle = reach_of(node, -rest.constant)
        self._within(Typed("-", "float", (lat_1, lat_2)), _Parts(constant=-math.degrees(angle)))
        (place,), (other,) = streams[0], streams[2]
        west, east = limits_of(lat_1, lon_1, angle)
        plain = Typed(LONGITUDE, "float", (lon_2,))
        low, point, high = (
            Limit((Part(1.0, one),), 0.0, _ROOM * EPSILON, is_upper, text)
            for one, is_upper, text in (
                (west, False, f"{_text(lon_1)} to the west"),
                (plain, False, _text(lon_2)),
                (east, True, f"{_text(lon_1)} to the east"),
            )
        )
        self.bounds.append(LimitBound(place, low, other, replace(point, is_upper=True)))
        self.bounds.append(LimitBound(other, point, place, high))

    def _within(self, node: Typed, rest: _Parts | None) -> None:
        """Add what follows where ``abs(node) + rest <= 0``."""
        inner = None if rest is None else self._parts(node)
        if inner is None or rest is None:
            return
        if not rest.single and (band := self._band(node, rest)) is not None:
            self.bands.append(band)
            return
        for sign in (1.0, -1.0):
            self._not_above_zero(rest.and_also(inner, sign))

    def _root(self, rest: _Parts) -> _Parts | None:
        """Return ``-sqrt(-rest)`` as a sum; None where it is of both streams."""
        streams = {stream for _, _, stream in rest.single}
        slack = (rest.operations + _ROOM) * EPSILON
        if len(streams) > 1:
            return None
        if not streams:
            return replace(rest, constant=-_root_of(-rest.constant, slack))
        inner = self._limit([(-factor, node) for factor, node, _ in rest.single], -rest.constant, slack, is_upper=True)
        return _Parts(single=((-1.0, inner, streams.pop()),), operations=rest.operations + 1)

    def _band(self, node: Typed, rest: _Parts) -> BandFinder | None:
        """Return the band of two columns whose difference is `node`; None where it is no such difference."""
        if node.op != "-" or any(side.op != "column" or not is_exact(side) for side in node.args):
            return None
        sides = [(self._streams_of(side).pop(), limit_of(side)) for side in node.args]
        (left_stream, left), (right_stream, right) = sorted(sides, key=lambda side: side[0])
        eps = max(-rest.constant, 0.0) * (1.0 + (rest.operations + _ROOM) * EPSILON) + 1e-300
        return BandFinder(left_stream, left, right_stream, right, eps, "")

    def _compare(self, parts: _Parts) -> None:
        """Add the bound or the time that a sum of single summands implies."""
        streams = sorted({stream for _, _, stream in parts.single})
        if len(streams) != 2:
            return
        if (moment := self._moment(parts)) is not None:
            self.moments.append(moment)
            return
        slack = 0.0 if not parts.operations else (parts.operations + len(parts.single) + _ROOM) * EPSILON
        # What one stream brings is the lower limit, and the negative of what the other brings the upper one. Either
        # may be the lower: of two columns the one that is compared as less.
        low_stream, high_stream = streams
        if sum(factor < 0 for factor, _, stream in parts.single if stream == low_stream) > sum(
            factor > 0 for factor, _, stream in parts.single if stream == low_stream
        ):
            low_stream, high_stream = high_stream, low_stream
        low = [(factor, node) for factor, node, stream in parts.single if stream == low_stream]
        high = [(-factor, node) for factor, node, stream in parts.single if stream == high_stream]
        if _are_columns(low, high) and not parts.operations and not parts.constant:
            below, above = (node for _, node in (*low, *high) if isinstance(node, Typed))
            is_first = low_stream < high_stream
            lower, upper = plain_limits(below, above, is_strict=self._is_strict, is_low_first=is_first)
        else:
            lower = self._limit(low, parts.constant, slack, is_upper=False)
            upper = self._limit(high, 0.0, slack, is_upper=True)
        self.bounds.append(LimitBound(low_stream, lower, high_stream, upper))

    def _moment(self, parts: _Parts) -> TimeFinder | None:
        """Return what a difference of two event times and a constant implies; None where it is no such difference."""
        if len(parts.single) != 2:
            return None
        by_factor = {factor: (node, stream) for factor, node, stream in parts.single}
        if set(by_factor) != {1.0, -1.0}:
            return None
        for node, _ in by_factor.values():
            if isinstance(node, Limit) or node.column is None or node.family != "timestamp":
                return None
            if self._times[node.column.stream] != node.column.name:
                return None
        most = -Fraction(parts.constant)
        if abs(most) >= EXACT_FLOAT:
            return None
        # Times are kept in whole microseconds: what nanoseconds lie behind them is less than one.
        return TimeFinder(by_factor[1.0][1], by_factor[-1.0][1], math.ceil(most), "")

    def _limit(
        self, parts: Sequence[tuple[float, Typed | Limit]], constant: float, slack: float, *, is_upper: bool
    ) -> Limit:
        nodes = [node for _, node in parts]
        if not slack and not (len(nodes) == 1 and is_exact(nodes[0])):
            slack = _ROOM * EPSILON
        elif (
            not slack and not constant and isinstance(nodes[0], Typed) and nodes[0].op == "column" and parts[0][0] == 1
        ):
            return limit_of(nodes[0])
        return Limit(tuple(Part(*part) for part in parts), constant, slack, is_upper, _sum_text(parts, constant))


def _are_columns(low: Sequence[tuple[float, Typed | Limit]], high: Sequence[tuple[float, Typed | Limit]]) -> bool:
    """Whether a column alone is compared with a column alone that is rounded alike: neither needs room."""
    sides = (*low, *high)
    return len(sides) == 2 and all(factor == 1 for factor, _ in sides) and are_alike([node for _, node in sides])


def _sum_text(parts: Sequence[tuple[float, Typed | Limit]], constant: float) -> str:
    """Return a sum for people: what is added first, then what is subtracted."""
    text = ""
    for factor, node in sorted(parts, key=lambda part: part[0] < 0):
        sign = ("-" if factor < 0 else "") if not text else " - " if factor < 0 else " + "
        inner = f"sqrt({node.text})" if isinstance(node, Limit) else _text(node)
        text += sign + (inner if abs(factor) == 1 else f"{abs(factor):g} * {inner}")
    if abs(constant) > TINY:
        text += f" {'-' if constant < 0 else '+'} {abs(constant):g}"
    return text


def _text(node: Typed) -> str:
    if node.column is not None:
        return str(node.column)
    if node.op == "literal":
        return str(node.value if not node.scale else Decimal(int(node.value)).scaleb(-node.scale))
    args = [_text(argument) for argument in node.args]
    return f"{node.op}({', '.join(args)})" if len(args) != 2 else f"({args[0]} {node.op} {args[1]})"


def _is_never_negative(node: Typed) -> bool:
    is_square = node.op == "*" and node.args[0] == node.args[1]
    return is_square or node.op in ("abs", "sqrt", "distance_m")


def _constant(node: Typed) -> float | None:
    """Return the number that an expression without columns is; None where it is null, NaN or infinite."""

    def no_column(wanted: Column) -> None:
        raise AssertionError(wanted)

    number = float(float_values(node, 1, no_column)[0])
    return number if math.isfinite(number) else None


def _root_of(number: float, slack: float) -> float:
    """Return a root that is too large rather than too small, also of what a square loses where it underflows."""
    return math.sqrt(max(number, 0.0) * (1.0 + slack)) * (1.0 + 4 * EPSILON) + TINY
