"""Pairs of places that are near each other: every implementation beside the twin and the distance itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as drawing
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from streamjoin_ds.spec.expression.node import Typed
from streamjoin_ds.spec.functions.globe import answers, distances, near_bounds
from tests.support.examples import examples

KERNELS = [(native, name) for name in native.implementations()] + [(twins, "reference")]
PLACE = Typed("column", "float")
METRES = [1e-7, 1e-3, 1.0, 100.0, 5000.0, 40_000.0, 250_000.0, 999_999.0]
LATITUDES = [0.0, -0.0, 90.0, -90.0, 89.97, -89.9999, 81.5, 47.0, math.nan, 90.1, math.inf, 5e-324]
LONGITUDES = [0.0, 180.0, -180.0, 179.99999, -179.98, 360.0, -360.0, 540.0, math.nan, -math.inf, 190.0]
SHIFTS = [0.0, 1e-9, 1e-5, 0.01, 0.0449, 0.045, 1.0, 9.0, 180.0, 359.999, -360.0]


def distance_on(model: str) -> Typed:
    return Typed("distance_m", "float", (PLACE,) * 4 + (Typed("literal", "string", value=model),))


def answered(module, implementation, bounds, places, cuts):
    """Return the answers for pairs whose places lie in runs of `cuts` rows, in another order."""
    count = len(places[0])
    order = np.random.default_rng(1).permutation(count).astype(np.int32)
    sides = []
    for lat, lon in (places[:2], places[2:]):
        columns = [np.empty(count), np.empty(count)]
        for column, values in zip(columns, (lat, lon), strict=True):
            column[order] = values
        runs = [[column[begin : begin + cuts].copy() for column in columns] for begin in range(0, count, cuts)]
        sides += [module.RunColumns(runs), (order // cuts).astype(np.int32), (order % cuts).astype(np.int32)]
    out = np.full(count, 9, np.uint8)
    module.NearPlaces(bounds, implementation).decide(*sides, out)
    return out


def check(model, metres, places):
    """Compare the answers of all implementations with each other, and with the distances."""
    bounds = near_bounds(distance_on(model), metres)
    given_by = [answered(*kernel, bounds, places, 100) for kernel in KERNELS]
    for given in given_by:
        assert given.tolist() == given_by[0].tolist()
    lat_1, lon_1, lat_2, lon_2 = places
    valid = (np.abs(lat_1) <= 90) & (np.abs(lat_2) <= 90) & (np.abs(lon_1) <= 360) & (np.abs(lon_2) <= 360)
    far = np.where(valid, distances(distance_on(model), [np.where(valid, place, 0.0) for place in places]), np.inf)
    assert (far[given_by[0] == 1] < metres).all()
    assert (far[given_by[0] == 0] > metres).all()
    assert set(given_by[0].tolist()) <= {0, 1, 2}
    return given_by[0]


@examples(120)
@drawing(
    st.sampled_from(["sphere", "wgs84"]),
    st.sampled_from(METRES),
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from(LATITUDES), st.floats(-90, 90)),
            st.one_of(st.sampled_from(LONGITUDES), st.floats(-360, 360)),
            st.sampled_from(SHIFTS),
            st.sampled_from(SHIFTS),
            st.sampled_from([1.0, -1.0]),
        ),
        min_size=1,
        max_size=40,
    ),
)
def test_what_is_answered_is_what_the_distance_says(model, metres, drawn):
    lat, lon, north, east, sign = map(np.array, zip(*drawn, strict=True))
    check(model, metres, [lat, lon, lat + sign * north, lon + east])
    check(model, metres, [lat, lon, -lat, lon + 180.0])  # opposite places
    scale = metres / 111_195.0  # degrees of latitude: about the distance itself, and a little more or less
    with np.errstate(over="ignore", invalid="ignore"):
        across = scale / np.maximum(np.cos(np.radians(lat)), 1e-3)
    for share in (1 - 1e-5, 1 - 1e-9, 1.0, 1 + 1e-9, 1 + 1e-5, 1.0033):
        check(model, metres, [lat, lon, lat + sign * scale * share, lon + 0.0])
        check(model, metres, [lat, lon, lat + 0.0, lon + sign * across * share])


@pytest.mark.parametrize("model", ["sphere", "wgs84"])
def test_no_answer_is_wrong_close_to_the_bound(model):
    """Of each pair the distance itself is the bound, and a little more or less than it."""
    chooser = np.random.default_rng(3)
    count = 500
    lat, lon = np.degrees(np.arcsin(chooser.uniform(-1, 1, count))), chooser.uniform(-180, 180, count)
    angle, reach = chooser.uniform(0, 2 * math.pi, count), np.degrees(10 ** chooser.uniform(-1, 5.5, count) / 6.37e6)
    other = np.clip(lat + reach * np.sin(angle), -90, 90), lon + reach * np.cos(angle) / np.cos(np.radians(lat))
    pairs = np.array([lat, lon, *other])
    exact = distances(distance_on(model), list(pairs))
    open_ones = 0
    for number, metres in enumerate(exact.tolist()):
        pair = list(pairs[:, number : number + 1])
        for share, wrong in ((1 - 1e-12, 1), (1 - 3e-6, 1), (1 + 1e-12, 0), (1 + 3e-6, 0)):
            (given,) = answers(near_bounds(distance_on(model), metres * share), pair)
            assert given != wrong
            open_ones += given == 2
    assert open_ones > count  # it is close indeed


@pytest.mark.parametrize("model", ["sphere", "wgs84"])
@pytest.mark.parametrize("metres", [5.0, 5000.0, 300_000.0])
def test_few_pairs_are_left_open(model, metres):
    """That is what makes it cheap: on the ellipsoid too, whose radii differ by a hundredth."""
    chooser = np.random.default_rng(2)
    count = 20_000
    lat, lon = chooser.uniform(-75, 75, count), chooser.uniform(-180, 180, count)
    angle, reach = chooser.uniform(0, 2 * math.pi, count), np.degrees(metres / 6.37e6) * chooser.uniform(0, 2, count)
    east = reach * np.cos(angle) / np.cos(np.radians(lat))
    given_to = check(model, metres, [lat, lon, lat + reach * np.sin(angle), lon + east])
    near, is_open = np.count_nonzero(given_to == 1), np.count_nonzero(given_to == 2)
    assert 0.3 * count < near < 0.7 * count
    assert is_open < {5.0: 0.002, 5000.0: 0.001, 300_000.0: 0.02}[metres] * count


@pytest.mark.parametrize(("module", "implementation"), KERNELS)
def test_what_is_no_pair_of_places_is_refused(module, implementation):
    bounds = near_bounds(distance_on("sphere"), 5000.0)
    kernel = module.NearPlaces(bounds, implementation)
    places, rows, out = module.RunColumns([[np.zeros(3), np.zeros(3)]]), np.zeros(2, np.int32), np.empty(2, np.uint8)
    kernel.decide(places, 0, rows, places, None, rows, out)
    assert out.tolist() == [1, 1]
    kernel.decide(places, 0, rows[:0], places, 0, rows[:0], out[:0])
    narrow, one = module.RunColumns([[np.zeros(3, np.float32)] * 2]), module.RunColumns([[np.zeros(3)]])
    whole = module.RunColumns([[np.zeros(3, np.int64)] * 2])
    for wrong in (
        (narrow, 0, rows, places, 0, rows, out),
        (places, 0, rows, whole, 0, rows, out),
        (one, 0, rows, places, 0, rows, out),
        (object(), 0, rows, places, 0, rows, out),
        (places, 0, rows[:1], places, 0, rows, out),
        (places, 0, rows, places, 0, rows, out[:1]),
        (places, 0, rows, places, 0, rows, np.empty(2, np.int8)),
        (places, 1, rows, places, 0, rows, out),
        (places, 0, rows + 3, places, 0, rows, out),
        (places, 0, rows, places, 0, rows - 1, out),
        (places, 0, rows.astype(np.int64), places, 0, rows, out),
    ):
        with pytest.raises(KernelError):
            kernel.decide(*wrong)
    with pytest.raises(KernelError):
        module.NearPlaces(bounds[:4], implementation)
    with pytest.raises(KernelError):
        module.NearPlaces((*bounds[:4], math.nan), implementation)
    with pytest.raises(KernelError):
        module.NearPlaces(bounds, "none")
