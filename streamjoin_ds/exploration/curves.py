"""How many matches each tolerance and each window would give, from the distances of the pairs of the widest.

A `Dimension` is a part of the join that can be widened: a band, a limit such as ``distance_m(...) <= 1000``, the
window. One pass of the engine finds the pairs with that part at its widest and all others as they are; the distance of
a pair says which of the narrower ones have it too.

*What is drawn.* The n tuples of the first stream are drawn at random, without replacement, from the N of a stretch of
time, and meet all tuples of the second. So the partners of each are counted exactly. Drawing from *both* streams would
keep a hundredth of the pairs for a tenth of each: that is unbiased too, but it tears the partners of a tuple apart, and
its error is much larger. Taking the beginning of both would lose the pairs across its end. The mean number of partners
is the mean of the n counts; its standard error is ``sqrt((1 - n/N) s² / n)``, and zero where all are drawn. A first
draw, which is not used again, says how large n may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin_ds.duration import MICROSECOND, duration_text
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.exploration.sampled_streams import ROW, SampledStream, Stretch, with_rows
from streamjoin_ds.spec import Band, Join
from streamjoin_ds.spec.columns import Float64, Int64
from streamjoin_ds.spec.expression.predicate import Column
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, Predicate, bound_of, columns_of, streams_of
from streamjoin_ds.spec.join_parts import Calculated
from streamjoin_ds.spec.window import TimeWindow

__all__ = ["FACTORS", "Curve", "Dimension", "Drawn", "counted", "curve_of", "dimensions_of", "drawn"]

FACTORS = tuple(
    Fraction(text)
    for text in ["0", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "3", "4", "5", "7", "10"]
)
"""What a tolerance is multiplied with."""

_DISTANCE = "exploration_distance"
_MOST_PAIRS = 2_000_000  # of a pass
_MOST_TUPLES = 20_000  # that are drawn
_PILOT = 200  # tuples of the first draw


@dataclass(frozen=True)
class Dimension:
    """A part of a join that can be widened.

    Attributes
    ----------
    name : str
        The band or limit, as it is written; "window".
    distance : Expression
        The number of a pair that decides.
    lows, highs : tuple of number
        The bounds of the distance at each factor; no low one where there is none.
    is_strict : bool
        Whether a distance that is the bound is outside.
    widest : Join
        The join with this part at its widest.
    shown : tuple of str
        The bound at each factor, as it is written.
    factors : tuple of Fraction
    """

    name: str
    distance: Expression
    lows: tuple[Any, ...]
    highs: tuple[Any, ...]
    is_strict: bool
    widest: Join
    shown: tuple[str, ...]
    factors: tuple[Fraction, ...] = FACTORS

    @property
    def asked(self) -> int:
        """The place of the bound that the join has."""
        return self.factors.index(Fraction(1))

    def narrowest(self, distances: Float64) -> Int64:
        """Return the place of the smallest bounds that have each distance; one past the last where none has it."""
        side = "right" if self.is_strict else "left"
        found = np.searchsorted(np.array([float(one) for one in self.highs]), distances, side)  # type: ignore[call-overload]
        if self.lows:
            lows = np.searchsorted(np.array([-float(one) for one in self.lows]), -distances, side)  # type: ignore[call-overload]
            found = np.maximum(found, lows)
        return np.where(np.isnan(distances), len(self.factors), found).astype(np.int64)


@dataclass(frozen=True)
class Drawn:
    """The tuples of the first stream that were drawn, and all of the second.

    Attributes
    ----------
    samples : tuple of SampledStream
    tuples, of : int
        How many were drawn, and of how many.
    """

    samples: tuple[SampledStream, SampledStream]
    tuples: int
    of: int


@dataclass(frozen=True)
class Curve:
    """What each bound would give.

    Attributes
    ----------
    name : str
        What is widened.
    bounds : tuple of str
        As they are written.
    at : tuple of float
        The same as numbers: a tolerance, or seconds of a window.
    partners : tuple of float
        The mean number of partners of a tuple of the first stream.
    errors : tuple of float
        The standard error of each; 0 where all tuples were counted.
    matched : tuple of float
        The share of tuples of the first stream that have a partner.
    asked : int
        The place of the bound that the join has.
    """

    name: str
    bounds: tuple[str, ...]
    at: tuple[float, ...]
    partners: tuple[float, ...]
    errors: tuple[float, ...]
    matched: tuple[float, ...]
    asked: int


def dimensions_of(join: Join, longest_us: int) -> list[Dimension]:
    """Return what can be widened in a join of two streams with a time window: its bands, its limits, its window.

    Parameters
    ----------
    join : Join
        One that makes pairs alone.
    longest_us : int
        How long a window may become, both sides together.
    """
    found = [one for place in range(len(join.predicates)) if (one := _of_predicate(join, place)) is not None]
    window = join.window
    assert isinstance(window, TimeWindow)
    if sum(window.windows_us):
        factors = tuple(one for one in FACTORS if one <= 1 or sum(window.windows_us) * one <= longest_us)
        (first_us, second_us), names = window.windows_us, join.names
        highs, lows = (tuple(int(us * one) for one in factors) for us in (first_us, second_us))
        widest = _like(join, window=TimeWindow((highs[-1], lows[-1])))
        times = [Column(name, stream.time) for name, stream in zip(names, join.streams, strict=True)]
        since = Call("-", (times[1], times[0]))
        shown = tuple(
            TimeWindow((high, low)).describe(names) if high != low else duration_text(high)
            for high, low in zip(highs, lows, strict=True)
        )
        found.append(Dimension("window", since, tuple(-low for low in lows), highs, False, widest, shown, factors))
    return found


def _like(join: Join, predicates: Sequence[Predicate] | None = None, window: TimeWindow | None = None) -> Join:
    return Join(join.streams, predicates or join.predicates, window or join.window, include_self_pairs=True)


def _of_predicate(join: Join, place: int) -> Dimension | None:
    one = join.predicates[place]
    if isinstance(one, Band):
        return None if one.has_no_width else _of_band(join, place, one)
    if not isinstance(one, Call) or one.op not in ("<", "<=") or len(streams_of(one)) < 2:
        return None
    distance, limit = one.args
    bound = bound_of(limit)
    if bound is None or isinstance(bound, timedelta) or not bound or _band_of(join, one) is not None:
        return None
    highs = tuple(_times(bound, factor) for factor in FACTORS)
    wide = Call(one.op, (distance, Literal(highs[-1])))
    shown = tuple(map(_number, highs))
    predicates = [wide if other is one else other for other in join.predicates]
    return Dimension(str(distance), distance, (), highs, one.op == "<", _like(join, predicates), shown)


def _band_of(join: Join, strict: Call) -> int | None:
    """Return the place of the band that a strict comparison stands beside, ``abs(l.a - r.b) < c``; None: of none."""
    for place, band in enumerate(join.predicates):
        if isinstance(band, Band) and {band.left, band.right} == set(columns_of(strict)) and strict.op == "<":
            absolute = strict.args[0]
            if isinstance(absolute, Call) and absolute.op == "abs" and bound_of(strict.args[1]) == band.hi:
                return place
    return None


def _of_band(join: Join, place: int, band: Band) -> Dimension:
    beside = [one for one in join.predicates if isinstance(one, Call) and _band_of(join, one) == place]
    low, high = (_us(end) for end in (band.lo, band.hi))
    # A band that has no zero in it is widened about its middle.
    middle = 0 if low <= 0 <= high else (low + high) / (2 if isinstance(low + high, float) else Decimal(2))
    lows, highs = (tuple(middle + _times(end - middle, factor) for factor in FACTORS) for end in (low, high))
    ends = [
        timedelta(0) + end * MICROSECOND if isinstance(band.hi, timedelta) else end for end in (lows[-1], highs[-1])
    ]
    predicates: list[Predicate] = [one for one in join.predicates if one not in beside]
    predicates[predicates.index(band)] = replace(band, lo=ends[0], hi=ends[1])
    predicates += [Call("<", (one.args[0], Literal(ends[1]))) for one in beside]
    is_span, is_even = isinstance(band.hi, timedelta), band.lo == -band.hi
    words = [
        duration_text(int(end)) if is_span and end >= 0 else f"-{duration_text(int(-end))}" if is_span else _number(end)
        for end in (*lows, *highs)
    ]
    pairs = zip(words[: len(FACTORS)], words[len(FACTORS) :], strict=True)
    shown = tuple(high if is_even else f"{low} .. {high}" for low, high in pairs)
    name = f"abs({band.left} - {band.right})" if is_even else f"{band.left} - {band.right}"
    return Dimension(
        name, Call("-", (band.left, band.right)), lows, highs, bool(beside), _like(join, predicates), shown
    )


def _us(end: Any) -> Any:
    return end // MICROSECOND if isinstance(end, timedelta) else end


def _times(bound: Any, factor: Fraction) -> Any:
    """Return a bound times a factor, exactly where it is no float."""
    if isinstance(bound, float):
        return bound * float(factor)
    found = Decimal(bound) * factor.numerator / factor.denominator
    return int(found) if found == found.to_integral_value() and abs(found) < 1 << 62 else found


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def drawn(samples: Sequence[SampledStream], stretch: Stretch, dimensions: Sequence[Dimension], seed: int = 0) -> Drawn:
    """Return tuples of the first stream, drawn at random, so many that no dimension has too many pairs.

    Parameters
    ----------
    samples : sequence of SampledStream
        Two.
    stretch : Stretch
    dimensions : sequence of Dimension
    seed : int
        Which tuples are drawn.
    """
    first, second = samples
    inside = np.flatnonzero((first.times_us >= stretch.first_us) & (first.times_us <= stretch.last_us))
    pilot = np.random.default_rng(seed + 1).permutation(inside)[:_PILOT]
    most = 1.0
    for dimension in dimensions if len(inside) > _PILOT else ():
        pairs = sum(len(rows) for rows, _ in _pairs(dimension, (with_rows(first, pilot), second)))
        most = max(most, pairs / len(pilot))
    wanted = min(len(inside), _MOST_TUPLES, max(int(_MOST_PAIRS / most), _PILOT))
    taken = np.random.default_rng(seed).permutation(inside)[:wanted]
    return Drawn((with_rows(first, taken), second), wanted, len(inside))


def _pairs(dimension: Dimension, samples: Sequence[SampledStream]) -> Iterator[tuple[Int64, Float64]]:
    """Yield the pairs of the widest join: the row of the first stream, and the distance."""
    first, second = samples
    streams = [one.stream for one in samples]
    made = Calculated(_DISTANCE, dimension.distance)
    wide = dimension.widest
    join = Join(streams, wide.predicates, wide.window, [f"{first.name}.{ROW}", made], include_self_pairs=True)
    engine = JoinEngine(join, {one.name: one.rows.schema for one in samples})
    for chunk in engine.push_chunks({first.name: first.rows, second.name: second.rows}):
        distances = chunk.column(_DISTANCE).cast(pa.float64(), safe=False)
        yield chunk.column(0).to_numpy(), distances.to_numpy(zero_copy_only=False)


def counted(dimension: Dimension, found: Drawn) -> Int64:
    """Return how many partners each drawn tuple has at each bound: an array of tuples by bounds."""
    rows = found.samples[0].rows.column(ROW).to_numpy()
    counts = np.zeros((len(rows), len(dimension.factors) + 1), np.int64)
    for of, distances in _pairs(dimension, found.samples):
        cell = np.searchsorted(rows, of) * counts.shape[1] + dimension.narrowest(distances)
        counts += np.bincount(cell, minlength=counts.size).reshape(counts.shape)
    return np.cumsum(counts[:, :-1], axis=1)


def curve_of(dimension: Dimension, counts: Int64, of: int) -> Curve:
    """Return the curve of counts (`counted`), of tuples that were drawn from so many."""
    tuples = max(len(counts), 1)
    spread = counts.var(axis=0, ddof=1) if len(counts) > 1 else np.zeros(counts.shape[1])
    errors = np.sqrt(np.maximum(1 - tuples / max(of, 1), 0) * spread / tuples)
    means = counts.sum(axis=0) / tuples
    matched = (counts > 0).sum(axis=0) / tuples
    unit = 1e6 if dimension.name == "window" else 1.0
    ends = zip(dimension.lows or dimension.highs, dimension.highs, strict=True)
    at = tuple(max(abs(float(low)), abs(float(high))) / unit for low, high in ends)
    shown = (tuple(map(float, each)) for each in (means, errors, matched))
    partners, wrong, share = shown
    return Curve(dimension.name, dimension.shown, at, partners, wrong, share, dimension.asked)
