"""Whether places are within a distance, without the distance: most pairs are clearly nearer, or clearly farther.

On a unit sphere ``sin(north / 2)^2 + cos(lat) cos(lat) sin(east / 2)^2`` is the square of half a chord. Polynomials
give it, off by less than a known error. No way on the ellipsoid is shorter than its smallest radius of curvature times
the angle between the places on a sphere, and none is longer than the largest one times it. Pairs that this leaves open
have their distance calculated. So the answer is that of the distance. Only sums and products are used, which are the
same on every CPU.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.functions.function import Rows
from streamjoin_ds.spec.functions.globe import LARGEST, MODELS, Float64, Mask, distances, places_of
from streamjoin_ds.spec.node import Typed

__all__ = ["within"]

_PART_ROWS = 8192  # pairs at a time: what is calculated of them stays in the second cache
_HALF_DEGREE = math.pi / 360
_MOST_M = 1e6
_SMALL = 0.1  # radians of half an angle up to which the polynomial of a small sine is good
_SINE = [(-1) ** n / math.factorial(2 * n + 1) for n in range(5)]
_SHORT, _LONG = 3, 5  # terms: good to 2e-10 of it up to `_SMALL`, and to 4e-6 up to a quarter turn
_RELATIVE, _ERROR = 1e-9, 1e-5  # of the square of a short sine, and of that of a long one


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
    places, known = places_of(distance, rows)
    found = np.empty(rows.count, np.bool_)
    for begin in range(0, rows.count, _PART_ROWS):
        part = [place[begin : begin + _PART_ROWS] for place in places]
        near, is_open = _screened(distance, part, most)
        if is_open.any():
            where = np.flatnonzero(is_open)
            exact = distances(distance, [place[where] for place in part])
            near[where] = exact < most if node.op == "<" else exact <= most
        found[begin : begin + _PART_ROWS] = near
    truth = pa.array(found)
    return truth if known is None else pc.if_else(pa.array(known), truth, pa.scalar(None, pa.bool_()))


def _screened(node: Typed, places: list[Float64], most: float) -> tuple[Mask, Mask]:
    """Return which places are clearly near, and for which it is open."""
    lat_1, lon_1, lat_2, lon_2 = places
    if not 0.0 < most < _MOST_M:
        return np.zeros(len(lat_1), np.bool_), np.ones(len(lat_1), np.bool_)
    model = str(node.args[4].value).lower() if len(node.args) == 5 else "sphere"
    north = (lat_1 - lat_2) * _HALF_DEGREE
    turns = lon_1 - lon_2
    if turns.min() < -180.0 or turns.max() > 180.0:
        turns -= 360.0 * np.rint(turns / 360.0)
    east = turns * _HALF_DEGREE
    middle = (lat_1 + lat_2) * _HALF_DEGREE
    is_small = max(north.max(), -north.min(), east.max(), -east.min()) < _SMALL
    if not is_small:
        is_large = (np.abs(north) >= _SMALL) | (np.abs(east) >= _SMALL)
        north[is_large] = east[is_large] = 0.0
    north, east, middle = _square(north, _SHORT), _square(east, _SHORT), _square(middle, _LONG)
    # cos(a) cos(b) is half of cos(a - b) + cos(a + b), and cos(2 h) is 1 - 2 sin(h)^2.
    middle += north
    np.subtract(1.0, middle, out=middle)
    middle *= east
    middle += north
    low, high = (math.sin(most / (2 * radius[model])) ** 2 for radius in (LARGEST, MODELS))
    error = float(east.max()) * _ERROR + high * _RELATIVE
    near = middle < low - error
    is_open = (middle <= high * (1 + 2 * _RELATIVE) + error) & ~near
    if not is_small:
        near &= ~is_large
        is_open |= is_large
    return near, is_open


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
