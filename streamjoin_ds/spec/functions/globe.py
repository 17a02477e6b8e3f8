"""The distance of two places on the globe, in metres: on a sphere by haversines, or on the WGS-84 ellipsoid.

::

    distance_m(lat, lon, lat, lon)            haversine on a sphere of the mean radius 6 371 008.8 m
    distance_m(lat, lon, lat, lon, 'wgs84')   geodesic on the ellipsoid, to a millimetre (Vincenty, 1975)

Latitudes are degrees from -90 to 90, longitudes degrees from -360 to 360, in which 190 is -170. Elsewhere, and for null
and NaN, the distance is null. Sines are those of Arrow, which has them of the C library: NumPy's differ with the CPU.

Vincenty's iteration does not end where two places are nearly opposite each other. There the azimuth is searched by
bisection, as its longitude grows with it (Karney, 2013, section 4).

Whether places are *within* a distance is mostly decided without the distance. Sums and products alone, which are the
same on every CPU, say of most pairs that they are near or far. Pairs that this leaves open have their distance
calculated. So the answer is that of the distance.

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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.columns import Float64, Mask
from streamjoin_ds.spec.expression.node import Typed, refuse
from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, checked, constant

__all__ = [
    "AXIS_M",
    "EAST",
    "FINDING",
    "FLATTENING",
    "GLOBE",
    "LONGITUDE",
    "MODELS",
    "WEST",
    "NearBounds",
    "answers",
    "decided",
    "distances",
    "limits_of",
    "model_of",
    "near_bounds",
    "places_of",
    "reach_of",
    "within",
]


_RADIUS_M = 6_371_008.8
AXIS_M, FLATTENING = 6_378_137.0, 1 / 298.257_223_563
_POLAR_M = AXIS_M * (1 - FLATTENING)
# For each model the smallest radius of curvature: no way is shorter than it times the angle between two places.
MODELS = {"sphere": _RADIUS_M, "wgs84": AXIS_M * (1 - FLATTENING) ** 2}
_DEGREE = math.pi / 180
_MOST_LONGITUDE = 360.0
_STEPS, _ENOUGH = 20, 1e-12
_HALVINGS = 60
# Functions by which an index finds: no text names them.
LONGITUDE, WEST, EAST = "longitude", "longitude to the west", "longitude to the east"
Side: TypeAlias = "tuple[Float64, ...]"
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


def _distance(expression: Call, args: tuple[Typed, ...]) -> Typed:
    checked(expression, args[:4], "number", "float")
    _model(expression, args)
    return Typed(expression.op, "float", args)


def _model(expression: Call, args: tuple[Typed, ...]) -> str:
    name = "sphere" if len(args) == 4 else str(constant(expression, args[4], "string", "a model of the earth")).lower()
    if name not in MODELS:
        refuse(expression, "names a model of the earth that is not known", f"models are {', '.join(MODELS)}")
    return name


def _distances(node: Typed, rows: Rows) -> pa.Array:
    places, known = places_of(node, rows)
    found = distances(node, places)
    return pa.array(found, mask=None if known is None else ~known)


def places_of(node: Typed, rows: Rows) -> tuple[list[Float64], Mask | None]:
    """Return latitudes and longitudes, 0 where one of a pair is not valid, and which pairs are; None: all."""
    places = [_numbers(rows.floats(argument)) for argument in node.args[:4]]
    known: Mask | None = None
    for place, most in zip(places, (90.0, _MOST_LONGITUDE, 90.0, _MOST_LONGITUDE), strict=True):
        if len(place) and not (place.min() >= -most and place.max() <= most):  # NaN is neither
            known = (np.abs(place) <= most) & (True if known is None else known)
    return (places if known is None else [np.where(known, place, 0.0) for place in places]), known


def distances(node: Typed, places: list[Float64]) -> Float64:
    """Return the distances of valid places."""
    return _geodesic(*places) if model_of(node) == "wgs84" else _haversine(*places)


def model_of(node: Typed) -> str:
    """Return the name of the model of the earth that a distance is on."""
    return str(node.args[4].value).lower() if len(node.args) == 5 else "sphere"


def _numbers(values: pa.Array) -> Float64:
    """Return values as they are, NaN for null."""
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _of(function: Any, *values: Float64) -> Float64:
    return np.asarray(function(*(pa.array(one) for one in values)).to_numpy(zero_copy_only=False))


def _haversine(lat_1: Float64, lon_1: Float64, lat_2: Float64, lon_2: Float64) -> Float64:
    north = _of(pc.sin, (lat_1 - lat_2) * (_DEGREE / 2))
    east = _of(pc.sin, (lon_1 - lon_2) * (_DEGREE / 2))
    square = north * north + _of(pc.cos, lat_1 * _DEGREE) * _of(pc.cos, lat_2 * _DEGREE) * (east * east)
    return 2 * _RADIUS_M * _of(pc.asin, np.sqrt(np.minimum(square, 1.0)))


def _geodesic(lat_1: Float64, lon_1: Float64, lat_2: Float64, lon_2: Float64) -> Float64:
    around = np.abs(lon_1 - lon_2) % 360.0
    longitude = np.minimum(around, 360.0 - around) * _DEGREE
    sides = [_reduced(lat_1), _reduced(lat_2)]
    found, is_done = _iterated(longitude, *sides)
    if not is_done.all():
        left = ~is_done
        found[left] = _bisected(longitude[left], *(tuple(part[left] for part in side) for side in sides))
    return found


def _reduced(latitude: Float64) -> tuple[Float64, Float64]:
    """Return sine and cosine of the reduced latitude."""
    radians = latitude * _DEGREE
    sine, cosine = (1 - FLATTENING) * _of(pc.sin, radians), _of(pc.cos, radians)
    length = np.sqrt(sine * sine + cosine * cosine)
    return sine / length, cosine / length


def _iterated(longitude: Float64, one: Side, other: Side) -> tuple[Float64, Mask]:
    """Return distances, and which of them the iteration has reached."""
    (sine_1, cosine_1), (sine_2, cosine_2) = one, other
    around = longitude.copy()
    is_done = np.zeros(len(longitude), np.bool_)
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(_STEPS):
            sine, cosine = _of(pc.sin, around), _of(pc.cos, around)
            sigma_sine = np.sqrt((cosine_2 * sine) ** 2 + (cosine_1 * sine_2 - sine_1 * cosine_2 * cosine) ** 2)
            sigma_cosine = sine_1 * sine_2 + cosine_1 * cosine_2 * cosine
            sigma = _of(pc.atan2, sigma_sine, sigma_cosine)
            azimuth = np.where(sigma_sine == 0.0, 0.0, cosine_1 * cosine_2 * sine / sigma_sine)
            square = 1.0 - azimuth * azimuth
            middle = np.where(square < 1e-15, 0.0, sigma_cosine - 2 * sine_1 * sine_2 / square)
            again = longitude + _excess(azimuth, square, sigma, sigma_sine, sigma_cosine, middle)
            is_done = (np.abs(again - around) < _ENOUGH) & (again <= math.pi)
            around = again
            if is_done.all():
                break
        return _length(square, sigma, sigma_sine, sigma_cosine, middle), is_done


def _excess(
    azimuth: Float64, square: Float64, sigma: Float64, sine: Float64, cosine: Float64, middle: Float64
) -> Float64:
    """Return by how much the longitude on the auxiliary sphere is larger than that on the ellipsoid."""
    factor = FLATTENING / 16 * square * (4 + FLATTENING * (4 - 3 * square))
    inner = middle + factor * cosine * (2 * middle * middle - 1)
    return (1 - factor) * FLATTENING * azimuth * (sigma + factor * sine * inner)


def _length(square: Float64, sigma: Float64, sine: Float64, cosine: Float64, middle: Float64) -> Float64:
    u = square * (AXIS_M**2 - _POLAR_M**2) / _POLAR_M**2
    a = 1 + u / 16384 * (4096 + u * (-768 + u * (320 - 175 * u)))
    b = u / 1024 * (256 + u * (-128 + u * (74 - 47 * u)))
    last = b / 6 * middle * (4 * sine * sine - 3) * (4 * middle * middle - 3)
    change = b * sine * (middle + b / 4 * (cosine * (2 * middle * middle - 1) - last))
    return np.asarray(_POLAR_M * a * (sigma - change))


def _bisected(longitude: Float64, one: Side, other: Side) -> Float64:
    """Return distances of places that are nearly opposite each other."""
    # The first place is to be the one farther from the equator, in the south.
    is_turned = np.abs(one[0]) < np.abs(other[0])
    sine_1, sine_2 = np.where(is_turned, other[0], one[0]), np.where(is_turned, one[0], other[0])
    cosine_1, cosine_2 = np.where(is_turned, other[1], one[1]), np.where(is_turned, one[1], other[1])
    sign = np.where(sine_1 > 0, -1.0, 1.0)
    sine_1, sine_2 = -np.abs(sine_1), sine_2 * sign  # on the equator -0.0, from where it goes to the north
    low, high = np.zeros(len(longitude)), np.full(len(longitude), math.pi)
    for _ in range(_HALVINGS):
        azimuth = (low + high) / 2
        reached, length = _from(azimuth, sine_1, cosine_1, sine_2, cosine_2)
        is_short = reached < longitude
        low, high = np.where(is_short, azimuth, low), np.where(is_short, high, azimuth)
    return length


def _from(
    azimuth: Float64, sine_1: Float64, cosine_1: Float64, sine_2: Float64, cosine_2: Float64
) -> tuple[Float64, Float64]:
    """Return the longitude and the length of the geodesic that leaves the first place at an azimuth."""
    sine, cosine = _of(pc.sin, azimuth), _of(pc.cos, azimuth)
    equator = sine * cosine_1  # the sine of the azimuth at the equator
    square = 1.0 - equator * equator
    leaves = cosine * cosine_1
    arrives = np.sqrt(np.maximum(leaves * leaves + (cosine_2 * cosine_2 - cosine_1 * cosine_1), 0.0))
    sigma_1, sigma_2 = _of(pc.atan2, sine_1, leaves), _of(pc.atan2, sine_2, arrives)
    omega_1, omega_2 = _of(pc.atan2, equator * sine_1, leaves), _of(pc.atan2, equator * sine_2, arrives)
    sigma = sigma_2 - sigma_1
    sigma_sine, sigma_cosine, middle = _of(pc.sin, sigma), _of(pc.cos, sigma), _of(pc.cos, sigma_1 + sigma_2)
    omega = (omega_2 - omega_1) % (2 * math.pi)
    excess = _excess(equator, square, sigma, sigma_sine, sigma_cosine, middle)
    return omega - excess, _length(square, sigma, sigma_sine, sigma_cosine, middle)


def reach_of(node: Typed, metres: float) -> float:
    """Return the angle in radians, rounded up, within which all is that is within so many metres of a place."""
    model = model_of(node)
    # Opposite places are so far from each other that a rounding error is a large part of the angle that lacks.
    return max(metres, 0.0) / MODELS[model] * (1 + 1e-9) + (1e-12 if metres < 5e6 else 1e-6)


def limits_of(latitude: Typed, longitude: Typed, angle: float) -> tuple[Typed, Typed]:
    """Return how far west and east a place may lie that is within an angle (radians) of another; NaN: anywhere."""
    west, east = (Typed(name, "float", (latitude, longitude), value=angle) for name in (WEST, EAST))
    return west, east


def _plain_longitudes(node: Typed, rows: Rows) -> pa.Array:
    return pa.array(_turned(_numbers(rows.floats(node.args[-1]))))


def _turned(longitude: Float64) -> Float64:
    """Return longitudes from -180 to below 180; NaN where they are out of range."""
    with np.errstate(invalid="ignore"):
        found = longitude - 360.0 * np.floor((longitude + 180.0) / 360.0)
        return np.where(np.abs(longitude) <= _MOST_LONGITUDE, found, np.nan)


def _reaching(node: Typed, rows: Rows) -> pa.Array:
    latitude, longitude = (_numbers(rows.floats(argument)) for argument in node.args)
    angle = float(node.value)
    turned = _turned(longitude)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A circle of this angle that does not hold a pole touches the meridians at asin(sin(angle) / cos(latitude)).
        has_pole = ~(np.abs(latitude) * _DEGREE + angle < math.pi / 2 - 1e-9)
        ratio = np.minimum(math.sin(min(angle, math.pi / 2)) / np.cos(latitude * _DEGREE), 1.0)
        width = np.arcsin(ratio) / _DEGREE * (1 + 1e-9) + 1e-9
        is_anywhere = has_pole | (np.abs(turned) + width >= 180.0)
        found = turned - width if node.op == WEST else turned + width
    return pa.array(np.where(is_anywhere, np.nan, found))


def _internal(expression: Call, args: tuple[Typed, ...]) -> Typed:
    raise AssertionError(expression, args)


GLOBE = (
    Function("distance_m", "distance_m(lat, lon, lat, lon [, 'wgs84'])", _distance, _distances, 4, 5, is_partial=True),
)
FINDING = (
    Function(LONGITUDE, "", _internal, _plain_longitudes),
    Function(WEST, "", _internal, _reaching, 2, 2),
    Function(EAST, "", _internal, _reaching, 2, 2),
)


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
