"""Scan and GridProbe against plain Python, over every implementation and the twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import COMPILED, KERNELS, TWIN, array_matches, drain, lay_out, matches, neighbours
from tests.support.examples import examples

INT64 = np.iinfo(np.int64)
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 5e-324, -5e-324, 2.2250738585072014e-308]),
    st.sampled_from([1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan]),
    st.integers(-30, 30).map(lambda tenths: tenths / 10),
    st.floats(),
)
INTS = st.one_of(
    st.integers(-20, 20),
    st.sampled_from([INT64.min, INT64.min + 1, INT64.max, INT64.max - 1, 0]),
    st.integers(INT64.min, INT64.max),
)
NUMBERS = FLOATS.filter(lambda value: not math.isnan(value))


@st.composite
def float_conditions(draw):
    """Draw a type, bounds, and values most of which lie on or beside a boundary of each other."""
    lo, hi = draw(st.tuples(NUMBERS, NUMBERS).map(sorted)) if draw(st.booleans()) else (-0.3, 0.3)
    if draw(st.integers(0, 9)) == 0:
        lo, hi = hi, lo
    base = draw(st.lists(FLOATS, min_size=1, max_size=6))
    if draw(st.integers(0, 4)) == 0:
        beside = [near for value in base for near in neighbours(value, 1)]
        return np.float64, None, None, st.sampled_from(sorted({*base, *beside, math.inf, -math.inf}, key=repr))
    pool = set(base)
    for value in base:
        for bound in (lo, hi):
            pool.update(neighbours(value + bound))
            pool.update(neighbours(value - bound, 1))
    return np.float64, lo, hi, st.sampled_from(sorted(pool, key=repr))


@st.composite
def int_conditions(draw):
    lo, hi = draw(st.tuples(INTS, INTS).map(sorted)) if draw(st.booleans()) else (-3, 3)
    if draw(st.integers(0, 9)) == 0:
        lo, hi = hi, lo
    if draw(st.integers(0, 9)) == 0:
        hi += 2**64
    base = draw(st.lists(INTS, min_size=1, max_size=6))
    pool = set(base)
    for value in base:
        for bound in (lo, hi):
            pool.update(value + bound + step for step in (-1, 0, 1))
            pool.update(value - bound + step for step in (-1, 0, 1))
    inside = sorted(value for value in pool if INT64.min <= value <= INT64.max)
    return np.int64, lo, hi, st.sampled_from(inside)


@st.composite
def bands(draw, max_conditions=4):
    conditions = draw(st.lists(st.one_of(float_conditions(), int_conditions()), min_size=1, max_size=max_conditions))
    probe_count, run_count = draw(st.integers(0, 12)), draw(st.integers(0, 40))
    left, right, lo, hi = [], [], [], []
    for dtype, low, high, values in conditions:
        left.append(np.array(draw(st.lists(values, min_size=probe_count, max_size=probe_count)), dtype=dtype))
        right.append(np.array(draw(st.lists(values, min_size=run_count, max_size=run_count)), dtype=dtype))
        lo.append(low)
        hi.append(high)
    return left, right, lo, hi


@st.composite
def gridded(draw):
    left, right, lo, hi = draw(bands())
    first = draw(st.integers(-1, len(left) - 1))
    second = draw(st.integers(-1, len(left) - 1))
    width = 1
    if first >= 0 and left[first].dtype == np.float64:
        span = 0.0 if lo[first] is None else hi[first] - lo[first]
        sensible = span if 0 < span < math.inf else 1.0
        width = draw(
            st.one_of(
                st.just(sensible),
                st.sampled_from([5e-324, 1e-9, 0.1, 1.0, 1e300]),
                st.floats(5e-324, 1.7e308),
            )
        )
    elif first >= 0:
        width = draw(st.one_of(st.just(7), st.integers(1, INT64.max)))
    return left, right, lo, hi, first, second, width


@given(bands())
@examples(150)
def test_scan_is_the_oracle(band):
    expected = matches(*band)
    order = None
    for kernel in KERNELS:
        scan = kernel.scan(*band)
        pairs = drain(scan)
        assert sorted(pairs) == expected
        order = order or (pairs, scan.candidates)
        assert (pairs, scan.candidates) == order


@given(gridded())
@examples(400)
def test_grid_probe_is_the_oracle(case):
    left, right, lo, hi, first, second, width = case
    expected = matches(left, right, lo, hi)
    layout = lay_out(left, right, lo, hi, first=first, second=second, width=width)
    order = None
    for kernel in KERNELS:
        probe = kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options)
        pairs = drain(probe)
        assert layout.original(pairs) == expected
        order = order or (pairs, probe.candidates)
        assert (pairs, probe.candidates) == order


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, 1.0, 1e15, 1e300])
@pytest.mark.parametrize("width_factor", [1e-6, 1.0, 3.7])
def test_no_start_bucket_hides_a_match(scale, width_factor):
    """The right values lie within three float steps of each end of each probe's band, where rounding decides."""
    random = np.random.default_rng(7)
    hi = float(random.random() * scale) or 5e-324
    for lo, high in ((-hi, hi), (0.0, 0.0), (0.25 * hi, hi), (-math.inf, -hi), (hi, math.inf)):
        left = np.concatenate([random.normal(size=40), random.integers(-3, 4, 20) * 0.1, [0.0, -0.0]]) * (scale * 3)
        edges = np.concatenate([left - lo, left - high])
        edges = edges[np.isfinite(edges)]
        right = [edges]
        for direction in (-np.inf, np.inf):
            step = edges
            for _ in range(3):
                step = np.nextafter(step, direction)
                right.append(step)
        run = np.concatenate(right)
        width = max((hi - -hi) * width_factor, 5e-324)
        expected = array_matches([left], [run], [lo], [high])
        for second in (-1, 0):
            layout = lay_out([left], [run], [lo], [high], first=0, second=second, width=width)
            for kernel in (TWIN, COMPILED[-1]) if second < 0 else COMPILED:
                pairs = drain(kernel.grid_probe(layout.left, layout.right, [lo], [high], **layout.options), 4096)
                assert layout.original(pairs) == expected


def columns(kinds: str, count: int, random: np.random.Generator, span: int = 200) -> list[np.ndarray]:
    return [
        random.integers(0, 10 * span, count) / 10 if kind == "f" else random.integers(0, span, count) for kind in kinds
    ]


SHAPES = [(1, 1), (3, 7), (8, 8), (9, 33), (32, 1024), (33, 1025), (70, 2100)]


@pytest.mark.parametrize(("probe_count", "run_count"), SHAPES)
@pytest.mark.parametrize("kinds", ["f", "i", "fi", "if", "ffi", "iif", "iiii", "fffff", "fiffiiif"])
def test_every_shape_and_mix_of_types(probe_count, run_count, kinds):
    random = np.random.default_rng(len(kinds) * 1000 + run_count)
    left, right = columns(kinds, probe_count, random), columns(kinds, run_count, random)
    spread = 5 if len(kinds) < 3 else 60
    lo, hi = [-spread] * len(kinds), [spread] * len(kinds)
    expected = array_matches(left, right, lo, hi)
    twin_scan = drain(TWIN.scan(left, right, lo, hi), 1000)
    assert sorted(twin_scan) == expected
    second = len(kinds) - 1 if len(kinds) > 1 else -1
    layout = lay_out(left, right, lo, hi, first=0, second=second, width=2 * spread)
    twin_grid = TWIN.grid_probe(layout.left, layout.right, lo, hi, **layout.options)
    twin_pairs = drain(twin_grid, 1000)
    assert layout.original(twin_pairs) == expected
    for kernel in COMPILED:
        assert drain(kernel.scan(left, right, lo, hi), 1000) == twin_scan
        grid = kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options)
        assert drain(grid, 1000) == twin_pairs
        assert grid.candidates == twin_grid.candidates


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("capacity", [64, 65, 71, 100, 1_000_000])
def test_fill_resumes_anywhere(kernel, capacity):
    """Most pairs match, so that a buffer runs full inside every kind of loop."""
    random = np.random.default_rng(3)
    left, right = columns("fi", 40, random, 20), columns("fi", 1500, random, 20)
    lo, hi = [-15, -15], [15, 15]
    layout = lay_out(left, right, lo, hi, first=0, second=1, width=10)
    whole = drain(TWIN.grid_probe(layout.left, layout.right, lo, hi, **layout.options), 1 << 20)
    assert len(whole) > 40 * 1500 // 2
    grid = kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options)
    assert drain(grid, capacity) == whole
    assert drain(kernel.scan(left, right, lo, hi), capacity) == drain(TWIN.scan(left, right, lo, hi), 1 << 20)


SPECIALS = {
    "f": [-math.inf, -1e308, -2.0, -0.1, -0.0, 0.0, 5e-324, 0.1, 0.2, 0.3, 1.0, 2.0, 1e308, math.inf, math.nan],
    "i": [INT64.min, INT64.min + 1, -3, -1, 0, 1, 2, 4, INT64.max - 1, INT64.max],
}
BOUNDS = {
    "f": [
        *((-0.1, 0.1), (0.1, 0.1), (0.0, 0.0), (None, None)),
        *((-1.0, 0.2), (-math.inf, math.inf), (0.0, math.inf), (1.0, -1.0)),
    ],
    "i": [(-1, 1), (0, 0), (1, 0), (-(2**64), 2**64), (0, INT64.max), (INT64.min, -1), (INT64.max, 2**64), (0, 0)],
}


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("kinds", ["f", "i", "fi", "if", "ff", "ii"])
def test_special_values_in_every_place_of_a_tile(kinds, share):
    """Special values stand in whole tiles, and in the rows and probes that are left over behind them.

    The sift leaves few steps or most of them. Probes that nothing can match stand between the others.
    """
    random = np.random.default_rng(41)
    probe_count, run_count = 37, 2 * 1024 - 27
    left, right = [], []
    for kind in kinds:
        specials = np.array(SPECIALS[kind])
        left.append(random.choice(specials, probe_count))
        column = np.full(run_count, 77, specials.dtype)
        for places in (random.random(run_count) < share, slice(-5, None)):
            column[places] = random.choice(specials, len(column[places]))
        right.append(column)
    for turn in range(8):
        lo, hi = zip(*[BOUNDS[kind][(turn + c) % 8] for c, kind in enumerate(kinds)], strict=True)
        expected = matches(left, right, lo, hi)
        twin = TWIN.scan(left, right, lo, hi)
        order = drain(twin, 1000)
        assert sorted(order) == expected
        for kernel in COMPILED:
            for capacity in (64, 1000):
                scan = kernel.scan(left, right, lo, hi)
                assert drain(scan, capacity) == order
                assert scan.candidates == twin.candidates


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("kinds", ["ff", "ii", "fi", "if"])
def test_more_buckets_than_pointers(kernel, kinds):
    """Each probe spans 200 buckets. Only 64 are remembered, so the others are searched from their start."""
    random = np.random.default_rng(11)
    left, right = columns(kinds, 30, random), columns(kinds, 2000, random)
    lo, hi = [-100, -3], [100, 3]
    layout = lay_out(left, right, lo, hi, first=0, second=1, width=1)
    pairs = drain(kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options), 512)
    assert layout.original(pairs) == array_matches(left, right, lo, hi)


@pytest.mark.parametrize("kernel", COMPILED, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("kind", ["f", "i"])
def test_skips_gallop(kernel, kind):
    """Few probes skip far in one long bucket, so a skip gallops after its linear steps; it lands at many places."""
    run = np.sort(columns(kind, 20_000, np.random.default_rng(5), 100_000)[0])
    left = np.sort(np.concatenate([run[::977], run[-3:], run[:3]]))
    layout = lay_out([left], [run], [-2], [2], first=-1, second=0, width=1)
    grid = kernel.grid_probe(layout.left, layout.right, [-2], [2], **layout.options)
    pairs = drain(grid, 512)
    assert layout.original(pairs) == array_matches([left], [run], [-2], [2])
    assert grid.candidates == len(pairs)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_probe_that_cannot_match_still_ends_a_group(kernel):
    """A bucket's first probe is NaN in another condition, and must still reset the pointers of the group before it.

    Probe 0 reads bucket 3 up to second = 9; probe 2, of the next group, needs the row at second = 1 again.
    """
    left = [np.array([5.0, 7.0, 7.0]), np.array([9, 0, 1]), np.array([1.0, math.nan, 1.0])]
    right = [np.array([6.0, 6.5]), np.array([9, 1]), np.ones(2)]
    lo, hi = [-1.0, 0, -1.0], [1.0, 0, 1.0]
    layout = lay_out(left, right, lo, hi, first=0, second=1, width=2.0)
    pairs = drain(kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options))
    assert layout.original(pairs) == [(0, 0), (2, 1)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("where", ["left", "right", "both"])
@pytest.mark.parametrize(("first", "second"), [(-1, 0), (0, -1), (0, 0)])
def test_the_special_values_of_an_indexed_attribute(kernel, where, first, second):
    special = np.array([-math.inf, -1e308, -0.0, 0.0, 5e-324, 1.0, 1e308, math.inf, math.nan])
    plain = np.array([-1.0, 0.0, 1.0])
    left = special if where != "right" else plain
    right = special if where != "left" else plain
    bands = [(lo, hi) for lo in (-math.inf, -1.0, 0.0, 1e308) for hi in (-1e308, 0.0, 1.0, math.inf)]
    for lo, hi in [*bands, (None, None)]:
        layout = lay_out([left], [right], [lo], [hi], first=first, second=second, width=1.0)
        pairs = drain(kernel.grid_probe(layout.left, layout.right, [lo], [hi], **layout.options))
        assert layout.original(pairs) == matches([left], [right], [lo], [hi])


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_an_equality_of_floats_compares_values(kernel):
    """An infinity is equal to itself, -0.0 to 0.0, and NaN to nothing; a band of no width has no infinity in it."""
    values = np.array([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan] * 300)
    equal = matches([values[:7]], [values], [None], [None])
    assert len(equal) == 300 * 8
    assert sorted(drain(kernel.scan([values[:7]], [values], [None], [None]), 4096)) == equal
    layout = lay_out([values[:7]], [values], [None], [None], first=-1, second=0, width=1.0)
    assert (
        layout.original(drain(kernel.grid_probe(layout.left, layout.right, [None], [None], **layout.options))) == equal
    )
    assert len(drain(kernel.scan([values[:7]], [values], [0.0], [0.0]), 4096)) == 300 * 6
    for lo, hi, columns_of in (([None], [0.0], np.zeros(3)), ([None], [None], np.zeros(3, np.int64))):
        with pytest.raises(KernelError, match="lo"):
            kernel.scan([columns_of], [columns_of], lo, hi)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_integers_never_overflow(kernel):
    values = np.array([INT64.min, INT64.min + 1, -1, 0, 1, INT64.max - 1, INT64.max])
    wide = 2**64
    for lo, hi in ((-wide, wide), (0, INT64.max), (INT64.min, -1), (INT64.max, wide), (-wide, INT64.min), (1, 0)):
        expected = matches([values], [values], [lo], [hi])
        assert sorted(drain(kernel.scan([values], [values], [lo], [hi]))) == expected
        for width in (1, 3, INT64.max):
            layout = lay_out([values], [values], [lo], [hi], first=0, second=0, width=width)
            pairs = drain(kernel.grid_probe(layout.left, layout.right, [lo], [hi], **layout.options))
            assert layout.original(pairs) == expected


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_no_condition_is_every_pair(kernel):
    every = [(probe, row) for probe in range(5) for row in range(70)]
    assert sorted(drain(kernel.scan([], [], [], [], left_count=5, right_count=70))) == every
    order = np.arange(5, dtype=np.int32)
    options = {"first": -1, "second": -1, "width": 1, "bucket_ids": None, "bucket_starts": None, "probe_order": order}
    assert drain(kernel.grid_probe([], [], [], [], right_count=70, **options)) == every


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_sixteen_conditions(kernel):
    random = np.random.default_rng(16)
    left, right = columns("fi" * 8, 20, random), columns("fi" * 8, 100, random)
    lo, hi = [-150] * 16, [150] * 16
    expected = array_matches(left, right, lo, hi)
    assert expected
    assert sorted(drain(kernel.scan(left, right, lo, hi))) == expected
    layout = lay_out(left, right, lo, hi, first=3, second=4, width=40, module=twins)
    pairs = drain(kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options))
    assert layout.original(pairs) == expected
