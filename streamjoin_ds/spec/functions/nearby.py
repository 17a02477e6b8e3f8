"""Whether places are within a distance, without the distance: most pairs are clearly nearer, or clearly farther.

Sums and products alone, which are the same on every CPU, say of most pairs that they are near or far. Pairs that this
leaves open have their distance calculated. So the answer is that of the distance.

**On the sphere** ``sin(north / 2)^2 + cos(lat) cos(lat) sin(east / 2)^2`` is the square of half a chord of a unit
sphere. Polynomials give it, off by less than a known error.

**On the ellipsoid** a step north is as long as the meridian is curved there, ``M(lat)``, and a step east is
``N(lat) cos(lat)`` for each radian. Let M and N be those at the middle of both latitudes. On a sphere of radius M whose
longitudes are stretched by N / M, each step is as long as on the ellipsoid, but for a factor between ``exp(-v)`` and
``exp(v)``, where v is 0.0102 times how far the step is from the middle latitude in radians: the logarithm of M changes
no faster than that, and that of N slower. A way of length D leads no further from the middle latitude than
``D / M(0)``, M(0) being the smallest M. So with v for that latitude

- a pair whose stretched distance is below ``D exp(-v)`` is near: the great circle of the sphere is a way on the
  ellipsoid;
- a pair that is near has a stretched distance of at most ``D exp(v)``: its geodesic is a way on the sphere. Around a
  pole that would not be so, as stretched meridians meet there at a wrong angle: places that could reach one stay open.

The distances that decide the open pairs are off too, by less than a millimetre on the ellipsoid, and a micrometre on
the sphere. That much is added to and taken from D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.functions.function import Rows
from streamjoin_ds.spec.functions.globe import AXIS_M, FLATTENING, MODELS, Float64, distances, model_of, places_of
from streamjoin_ds.spec.node import Typed

__all__ = ["NearBounds", "answers", "decided", "near_bounds", "within"]

_PART_ROWS = 8192  # pairs at a time: what is calculated of them stays in the second cache
_HALF_DEGREE = math.pi / 360
_MOST_M = 1e6
_SMALL = 0.1  # radians of half an angle up to which the polynomial of a small sine is good; more is farther north
_SINE = [(-1) ** n / math.factorial(2 * n + 1) for n in range(7)]
_SHORT, _LONG = 3, 7  # terms: good to 2e-10 of it up to `_SMALL`, and to 7e-10 up to a quarter turn
_RELATIVE, _ERROR = 2e-9, 4e-9  # of the chord's square, and of the product of two cosines
_OFF_M = {"sphere": 1e-6, "wgs84": 2e-3}
_CHANGE = 0.0102  # of the logarithm of the ellipsoid's curvature, for a radian of latitude, at most
_WHOLE = 1.5 * 2**52  # added and subtracted, it rounds to a whole number


class NearBounds(NamedTuple):
    """The numbers by which pairs of places are decided.

    Attributes
    ----------
    eccentricity : float
        Of the ellipsoid, squared; 0 of a sphere.
    inverse : float
        ``1 / (1 - eccentricity)``.
    low, high : float
        Squares of half a chord of the unit sphere: near below, far above; on the ellipsoid times ``M(0)^2 / M^2``.
    most_latitude : float
        Degrees from which on places stay open.
    """

    eccentricity: float
    inverse: float
    low: float
    high: float
    most_latitude: float


def near_bounds(distance: Typed, most: float) -> NearBounds | None:
    """Return the numbers for a distance up to `most` metres; None where no pair is decided by them."""
    if not 0.0 < most < _MOST_M:
        return None
    model = model_of(distance)
    nearer, farther = max(most - _OFF_M[model], 0.0), most + _OFF_M[model]
    if model == "sphere":
        low, high = (math.sin(reach / (2 * MODELS[model])) ** 2 for reach in (nearer, farther))
        return NearBounds(0.0, 1.0, low * (1 - _RELATIVE), high * (1 + _RELATIVE), 90.0)
    eccentricity = FLATTENING * (2 - FLATTENING)
    smallest = AXIS_M * (1 - eccentricity)
    reach = 1.5 * farther / smallest
    low, high = (nearer / (2 * smallest)) ** 2, (farther / (2 * smallest)) ** 2
    low *= (1 - high / 3) * math.exp(-2 * _CHANGE * reach) * (1 - _RELATIVE)  # sin(x)^2 is above x^2 - x^4 / 3
    high *= math.exp(2 * _CHANGE * reach) * (1 + _RELATIVE)
    return NearBounds(eccentricity, 1 / (1 - eccentricity), low, high, 90.0 - math.degrees(reach))


def within(node: Typed, rows: Rows) -> pa.Array:
    """Return the values of ``distance_m(...) <= number``, or ``<``; null where the distance is.

    Parameters
    ----------
    node : Typed
        The comparison; its second operand is a literal.
    rows : Rows
    """
    distance, bound = node.args
    most = float(rows.floats(bound)[0].as_py()) if rows.count else 0.0
    bounds = near_bounds(distance, most)
    places, known = places_of(distance, rows)
    found = np.empty(rows.count, np.bool_)
    for begin in range(0, rows.count, _PART_ROWS):
        part = [place[begin : begin + _PART_ROWS] for place in places]
        given = np.full(len(part[0]), 2, np.uint8) if bounds is None else answers(bounds, part)
        found[begin : begin + _PART_ROWS] = decided(node, most, given, partial(_chosen, part))
    truth = pa.array(found)
    return truth if known is None else pc.if_else(pa.array(known), truth, pa.scalar(None, pa.bool_()))


def _chosen(places: list[Float64], pairs: npt.NDArray[np.intp]) -> list[Float64]:
    return [place[pairs] for place in places]


def decided(
    node: Typed, most: float, given: npt.NDArray[np.uint8], open_places: Callable[[npt.NDArray[np.intp]], list[Float64]]
) -> npt.NDArray[np.bool_]:
    """Return which pairs are near: as `answers` gave them, and those that it left open by their distance.

    Parameters
    ----------
    node : Typed
        A distance that is compared with `most`, by "<" or "<=".
    most : float
        Metres.
    given : ndarray, shape (n,), uint8
    open_places : callable
        Returns latitudes and longitudes of these pairs, as for `answers`.
    """
    near: npt.NDArray[np.bool_] = np.asarray(given == 1)
    open_ones = np.flatnonzero(given == 2)
    if len(open_ones):
        exact = distances(node.args[0], open_places(open_ones))
        near[open_ones] = exact < most if node.op == "<" else exact <= most
    return near


def answers(bounds: NearBounds, places: list[Float64]) -> npt.NDArray[np.uint8]:
    """Return for each pair 0 where it is far, or has no places, 1 where it is near, and 2 where it is open.

    Parameters
    ----------
    bounds : NearBounds
    places : list of 4 ndarray, float64
        Latitude and longitude of the first place of each pair, then of the second, in degrees.

    Notes
    -----
    The twin of `cython_kernels/globe`: its operations, in its order.
    """
    lat_1, lon_1, lat_2, lon_2 = places
    with np.errstate(over="ignore", invalid="ignore"):
        north = (lat_1 - lat_2) * _HALF_DEGREE
        turns = lon_1 - lon_2
        turns -= 360.0 * ((turns * (1.0 / 360) + _WHOLE) - _WHOLE)
        north_square, middle_square = _square(north, _SHORT), _square((lat_1 + lat_2) * _HALF_DEGREE, _LONG)
        curved = 1.0 - bounds.eccentricity * middle_square
        east = turns * _HALF_DEGREE * (curved * bounds.inverse)
        east_square = _square(east, _SHORT)
        # cos(a) cos(b) is half of cos(a - b) + cos(a + b), and cos(2 h) is 1 - 2 sin(h)^2.
        chord = east_square * (1.0 - (middle_square + north_square)) + north_square
        scale, error = curved * curved * curved, east_square * _ERROR
        is_below, is_above = chord < bounds.low * scale - error, chord > bounds.high * scale + error
    high_1, high_2 = np.abs(lat_1), np.abs(lat_2)
    is_odd = (np.abs(east) >= _SMALL) | (high_1 > bounds.most_latitude) | (high_2 > bounds.most_latitude)
    may_be = (np.abs(north) < _SMALL) & (high_1 <= 90.0) & (high_2 <= 90.0)
    may_be &= (np.abs(lon_1) <= 360.0) & (np.abs(lon_2) <= 360.0)
    near, is_open = is_below & ~is_odd & may_be, (~(is_below | is_above) | is_odd) & may_be
    return np.asarray(near | is_open << np.uint8(1), np.uint8)


def _square(angle: Float64, terms: int) -> Float64:
    """Return the square of a sine by so many terms of its series."""
    square = angle * angle
    total = square * _SINE[terms - 1]
    for factor in _SINE[terms - 2 : 0 : -1]:
        total += factor
        total *= square
    total += 1.0
    total *= total
    total *= square
    return np.asarray(total)
