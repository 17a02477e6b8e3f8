"""Bucket numbers, the grid order, the directory and gather, against plain Python and NumPy."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from tests.support.examples import examples

MODULES = [twins, native]
INT64 = np.iinfo(np.int64)
LIMIT = 2**62
INTS = st.one_of(
    st.integers(-20, 20),
    st.sampled_from([INT64.min, INT64.min + 1, INT64.max, INT64.max - 1]),
    st.integers(INT64.min, INT64.max),
)
FLOATS = st.one_of(st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324]), st.floats())
each_module = pytest.mark.parametrize("module", MODULES, ids=["twin", "native"])


def saturate(value: int) -> int:
    return max(INT64.min, min(value, INT64.max))


@given(st.lists(INTS, max_size=30), st.integers(1, INT64.max), INTS)
@examples(200)
def test_int_buckets_are_exact(values, width, offset):
    expected = [saturate(value + offset) // width for value in values]
    for module in MODULES:
        assert module.grid_buckets(np.array(values, dtype=np.int64), width, offset).tolist() == expected


@given(st.lists(FLOATS, max_size=30), st.floats(5e-324, 1.7e308), st.floats(-1e308, 1e308))
@examples(300)
def test_float_buckets_are_floored_clamped_and_monotone(values, width, offset):
    column = np.array(values, dtype=np.float64)
    numbers = twins.grid_buckets(column, width, offset)
    assert native.grid_buckets(column, width, offset).tolist() == numbers.tolist()
    for value, number in zip(values, numbers.tolist(), strict=True):
        if math.isnan(value):
            assert number == INT64.max
            continue
        quotient = (value + offset) / width
        expected = math.floor(quotient) if math.isfinite(quotient) else quotient
        assert number == max(-LIMIT, min(expected, LIMIT))
    known = np.sort(column[~np.isnan(column)])
    numbers = native.grid_buckets(known, width, offset)
    assert (numbers[1:] >= numbers[:-1]).all()


@given(FLOATS, FLOATS, FLOATS, FLOATS, st.floats(5e-324, 1e308))
@examples(500)
def test_the_start_bucket_of_a_probe_is_not_above_any_match(left, right, lo, hi, width):
    """This is so too for right values on the very edge of the band, and one float step to either side of it."""
    if math.isnan(lo) or math.isnan(hi):
        return
    edge = left - hi
    candidates = {right, edge, math.nextafter(edge, math.inf), math.nextafter(edge, -math.inf)}
    for module in MODULES:
        start = module.probe_buckets(np.array([left]), lo, hi, width)[0]
        for value in candidates:
            if lo <= left - value <= hi:
                assert start <= module.grid_buckets(np.array([value]), width, 0.0)[0]


@given(INTS, INTS, INTS, st.integers(1, INT64.max))
@examples(200)
def test_the_start_bucket_of_an_int_probe_is_exact(left, lo, hi, width):
    for module in MODULES:
        start = module.probe_buckets(np.array([left]), lo, hi, width)[0]
        assert start == saturate(left - hi) // width


def test_the_start_bucket_is_tight():
    """The band is widened by one step and no more: else a probe would visit a bucket too many."""
    left = np.arange(1, 2000) * 0.1  # multiples of half the width: half of all edges lie on a bucket's edge
    start = native.probe_buckets(left, -0.1, 0.1, 0.2)
    exact = np.array([math.floor((Fraction(value) - Fraction(0.1)) / Fraction(0.2)) for value in left.tolist()])
    assert (start >= exact - 1).all()
    assert (start == exact).mean() > 0.4


@st.composite
def keyed_rows(draw):
    count = draw(st.integers(0, 200))
    few = st.integers(-3, 3)
    buckets = draw(st.one_of(st.none(), st.lists(st.one_of(few, INTS), min_size=count, max_size=count)))
    kind = draw(st.sampled_from([np.float64, np.int64]))
    items = draw(st.sampled_from([few.map(float), FLOATS] if kind is np.float64 else [few, INTS]))
    second = np.array(draw(st.lists(items, min_size=count, max_size=count)), dtype=kind)
    return None if buckets is None else np.array(buckets, dtype=np.int64), second


@given(keyed_rows())
@examples(300)
def test_order_is_stable_and_sorts(rows):
    buckets, second = rows
    plain = [0] * len(second) if buckets is None else buckets.tolist()
    values = second.tolist()

    def key(row):
        return plain[row], values[row] != values[row], 0 if values[row] != values[row] else values[row], row

    expected = sorted(range(len(values)), key=key)
    for module in MODULES:
        order = module.grid_order(buckets, second)
        assert order.dtype == np.int32
        assert order.tolist() == expected


@pytest.mark.parametrize("count", [33, 1000, 2048, 2049, 70_000])
@pytest.mark.parametrize("bucket_span", [None, 1, 2, 40, 5000, 2**62])
@pytest.mark.parametrize("kind", ["float", "float32", "int", "wide int", "few", "sorted", "alike"])
def test_order_of_many_rows(count, bucket_span, kind):
    """The sort takes each of its paths.

    They are: one number for both keys, heads that are alike, insertion, narrow and wide digits, one bucket, nearly one
    bucket.
    """
    random = np.random.default_rng(count)
    second = {
        "float": random.normal(size=count),
        "float32": random.normal(size=count).astype(np.float32).astype(np.float64),
        "int": random.integers(-100_000, 100_000, count),
        "wide int": random.integers(INT64.min, INT64.max, count),
        "few": random.integers(0, 3, count),
        "sorted": np.arange(count),
        # differ in their last bits alone: many, or a few
        "alike": 1.0
        + np.where(random.random(count) < 0.9, 0, random.integers(0, 50, count)) * 2.0**-20
        + random.integers(-(2**16), 2**16, count) * 2.0**-52,
    }[kind]
    if kind == "alike":
        second[count // 2] = 1e300
    buckets = None
    if bucket_span is not None:
        buckets = random.integers(-bucket_span, bucket_span, count)
        buckets[random.random(count) < 0.8] = 0 if bucket_span == 40 else buckets[0]
    order = native.grid_order(buckets, second)
    assert (order == twins.grid_order(buckets, second)).all()


@given(st.lists(INTS, max_size=50).map(sorted))
def test_directory_lists_every_bucket_once(values):
    numbers = np.array(values, dtype=np.int64)
    for module in MODULES:
        ids, starts = module.bucket_directory(numbers)
        assert ids.dtype == starts.dtype == np.int64
        assert ids.tolist() == sorted(set(values))
        assert starts.tolist() == [values.index(bucket) for bucket in sorted(set(values))] + [len(values)]


DTYPES = ["bool", "i1", "u2", "f2", "i4", "f4", "i8", "f8", "M8[us]", "m8[ns]", "c16", "S16", "S1", "V8", "U4", ">i4"]


@each_module
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 2047, 5000])
def test_gather_any_fixed_width(module, dtype, count):
    random = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    column = (
        np.frombuffer(random.bytes(300 * size), dtype=dtype) if dtype != "U4" else np.array(["ab", "ä"] * 150, "U4")
    )
    if dtype == "bool":
        column = random.random(300) < 0.5
    order = random.integers(0, len(column), count).astype(np.int32)
    plain = module.gather(column, order)
    assert plain.dtype == column.dtype
    assert plain.tobytes() == column[order].tobytes()
    out = np.empty(count, dtype=column.dtype)
    assert module.gather(column, order, out) is out
    assert out.tobytes() == column[order].tobytes()


@each_module
def test_gather_reads_a_read_only_column(module):
    column = np.arange(10.0)
    column.flags.writeable = False
    assert module.gather(column, np.array([9, 0], dtype=np.int32)).tolist() == [9.0, 0.0]


@st.composite
def sorted_runs(draw):
    """Draw the buckets, or None, and the second keys of runs that are each in order."""
    buckets, second = draw(keyed_rows())
    cuts = sorted(draw(st.lists(st.integers(0, len(second)), max_size=6)))
    run_buckets, run_seconds = [], []
    for begin, end in pairwise([0, *cuts, len(second)]):
        own = None if buckets is None else buckets[begin:end].copy()
        order = twins.grid_order(own, second[begin:end].copy())
        run_buckets.append(None if own is None else own[order])
        run_seconds.append(second[begin:end][order])
    return None if buckets is None else run_buckets, run_seconds


@given(sorted_runs())
@examples(300)
def test_a_merge_is_the_stable_sort_of_the_runs(runs):
    buckets, seconds = runs
    expected = twins.grid_order(None if buckets is None else np.concatenate(buckets), np.concatenate(seconds))
    starts = np.cumsum([0, *map(len, seconds)])[:-1]
    for module in MODULES:
        places, rows = module.merge_order(buckets, seconds)
        assert places.dtype == rows.dtype == np.int32
        assert (starts[places] + rows).tolist() == expected.tolist()


@pytest.mark.parametrize("sizes", [(30_000,), (20_000, 5, 9000), (4097, 4096, 4095, 1), (0, 50_000, 0), (9000,) * 7])
@pytest.mark.parametrize("span", [1, 7, 10_000, 2**60])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("has_buckets", [False, True])
def test_a_merge_of_many_rows_in_pieces(sizes, span, kind, has_buckets):
    random = np.random.default_rng(span % 97)
    seconds = [random.integers(0, span, size).astype(kind) for size in sizes]
    buckets = [np.sort(random.integers(0, 50, size)) for size in sizes] if has_buckets else None
    for run, second in enumerate(seconds):
        seconds[run] = second[twins.grid_order(buckets[run] if buckets else None, second)]
    answers = [module.merge_order(buckets, seconds) for module in MODULES]
    for mine, theirs in zip(*answers, strict=True):
        assert np.array_equal(mine, theirs)


@given(keyed_rows())
@examples(300)
def test_steps_begin_at_their_first_row(rows):
    column = np.sort(rows[1])
    answers = [module.step_starts(column) for module in MODULES]
    assert (answers[0] is None) == (answers[1] is None)
    if answers[0] is not None:
        assert answers[0].dtype == answers[1].dtype == np.int32
        assert answers[0].tolist() == answers[1].tolist()
        assert answers[0][0] == 0
        assert answers[0][-1] == len(column)


@each_module
def test_steps_only_where_they_help(module):
    even = np.arange(10_000)
    for column in (even, even * 2.5, even * 2**40):
        steps = module.step_starts(column)
        assert len(column) // 8 <= len(steps) - 1 <= len(column) // 4
        assert np.diff(steps).max() <= 9
    one_far = np.append(even, 2**62)
    for column in (one_far, one_far.astype(float), np.zeros(100), even[:5], np.append(even * 1.0, math.inf)):
        assert module.step_starts(column) is None
