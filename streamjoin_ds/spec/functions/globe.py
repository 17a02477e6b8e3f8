"""The distance of two places on the globe, in metres: on a sphere by haversines, or on the WGS-84 ellipsoid.

::

    distance_m(lat, lon, lat, lon)            haversine on a sphere of the mean radius 6 371 008.8 m
    distance_m(lat, lon, lat, lon, 'wgs84')   geodesic on the ellipsoid, to a millimetre (Vincenty, 1975)

Latitudes are degrees from -90 to 90, longitudes degrees from -360 to 360, in which 190 is -170. Elsewhere, and for null
and NaN, the distance is null. Sines are those of Arrow, which has them of the C library: NumPy's differ with the CPU.

Vincenty's iteration does not end where two places are nearly opposite each other. There the azimuth is searched by
bisection, as its longitude grows with it (Karney, 2013, section 4).
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.spec.expression.tree import Call
from streamjoin_ds.spec.functions.function import Function, Rows, checked, constant
from streamjoin_ds.spec.node import Typed, refuse

__all__ = [
    "AXIS_M",
    "EAST",
    "FINDING",
    "FLATTENING",
    "GLOBE",
    "LONGITUDE",
    "MODELS",
    "WEST",
    "distances",
    "limits_of",
    "model_of",
    "places_of",
    "reach_of",
]

Float64: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

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


Side: TypeAlias = "tuple[Float64, ...]"


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


GLOBE = (Function("distance_m", "distance_m(lat, lon, lat, lon [, 'wgs84'])", _distance, _distances, 4, 5),)
FINDING = (
    Function(LONGITUDE, "", _internal, _plain_longitudes),
    Function(WEST, "", _internal, _reaching, 2, 2),
    Function(EAST, "", _internal, _reaching, 2, 2),
)
