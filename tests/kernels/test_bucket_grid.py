"""A window in a bucket grid: every implementation against the plain oracle, and the same pairs in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS, array_matches, matches
from tests.support.examples import examples

INF, NAN = float("inf"), float("nan")
DTYPES = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "i4": np.int32}
QUICK = examples(60)


def grid_of(module, kinds, keys, *, buckets=7, chunks=40, stride=3):
    """Return an empty grid over columns of these kinds, the first of which is its position."""
    columns = [np.zeros(chunks * module.GRID_CHUNK_ROWS, dtype=DTYPES[kind]) for kind in kinds]
    return module.BucketGrid(columns, position=0, buckets=buckets, keys=keys, stride=stride)


def wide(column):
    return column.astype(np.float64 if column.dtype.kind == "f" else np.int64)


def inserted(grid, columns, numbers, lowest=-(2**62), begin=0):
    """Insert rows whose keys are the columns of these `numbers`; return how many are in."""
    return grid.insert(columns, [wide(columns[number]) for number in numbers], begin, lowest)


def contents(grid):
    """Return all rows of a grid, bucket by bucket."""
    rows = grid.row_numbers()
    return list(zip(*(column[rows].tolist() for column in grid.columns), strict=True))


def drained(kernel, left, index, capacity=64):
    probing = kernel.module.RunsProbe(left, [index], implementation=kernel.name, left_count=len(left[0]))
    out = np.empty((3, capacity), dtype=np.int32)
    found = []
    while written := probing.fill(*out):
        found += zip(*(row[:written].tolist() for row in out[:2]), strict=True)
    assert probing.fill(*out) == 0
    return found, probing.candidates


def rows(rng, kinds, count, span, first=0):
    columns = [np.arange(first, first + count)]
    for kind in kinds[1:]:
        values = rng.integers(-span, span, count) if kind[0] == "i" else (rng.random(count) - 0.5) * 2 * span
        columns.append(values.astype(DTYPES[kind]))
    return columns


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i8", "i4", "f4"), ("i8", "f8", "i8", "f4"), ("i8", "f4", "f8")])
@pytest.mark.parametrize("capacity", [64, 4096])
def test_pairs_are_the_oracles(kinds, capacity):
    rng = np.random.default_rng([len(kinds), capacity])
    keys = [(kind[0] == "f", 3.5 if kind[0] == "f" else 3) for kind in kinds[1:3]]
    count, span = 400, 40
    kept, left = rows(rng, kinds, count, span), [wide(column) for column in rows(rng, kinds, 70, span)]
    lo, hi = [-(10**6), *[-4] * (len(kinds) - 1)], [10**6, *[5] * (len(kinds) - 1)]
    answers = []
    for kernel in KERNELS:
        grid = grid_of(kernel.module, kinds, keys)
        assert inserted(grid, kept, range(1, 1 + len(keys))) == count
        index = kernel.module.BucketIndex(grid, grid.columns, lo, hi, keys=range(1, 1 + len(keys)))
        found, candidates = drained(kernel, left, index, capacity)
        numbers = grid.columns[0]
        mine = sorted((probe, int(numbers[row])) for probe, row in found)
        assert mine == array_matches(left, [wide(column) for column in kept], lo, hi), kernel.name
        answers.append((found, candidates))
    assert answers[0][0]
    assert all(answer == answers[0] for answer in answers)


VALUES = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 1e300, -1e300, 5e-324, INF, -INF]
NUMBERS = [-(2**63), -(2**63) + 1, -3, -1, 0, 1, 2, 3, 2**63 - 2, 2**63 - 1]


@QUICK
@given(
    floats=st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(NUMBERS)), min_size=1, max_size=60),
    probes=st.lists(st.tuples(st.sampled_from([*VALUES, NAN]), st.sampled_from(NUMBERS)), min_size=1, max_size=9),
    band=st.sampled_from([(0, 0), (None, None), (-0.5, 0.5), (-1, 2.5), (-INF, 0.5), (-INF, INF)]),
    reach=st.sampled_from([(0, 0), (-1, 1), (-(2**63), 0), (0, 2**64), (2, 3)]),
    width=st.sampled_from([0.5, 3.0, 1e-290, 1e300]),
    int_width=st.sampled_from([1, 5, 2**62, 2**63 - 1]),
    served=st.sampled_from([(1, 2), (-1, 2), (1, -1), (-1, -1)]),
    is_narrow=st.booleans(),
)
def test_extremes(floats, probes, band, reach, width, int_width, served, is_narrow):
    kinds = ("i8", "f4", "i4") if is_narrow else ("i8", "f8", "i8")
    kept = [np.arange(len(floats)), np.array([pair[0] for pair in floats]), np.array([pair[1] for pair in floats])]
    if is_narrow:
        with np.errstate(over="ignore"):
            kept[1], kept[2] = kept[1].astype(np.float32), np.clip(kept[2], -(2**31), 2**31 - 1).astype(np.int32)
    wide_kept = [wide(column) for column in kept]
    left = [np.zeros(len(probes), np.int64), np.array([p[0] for p in probes]), np.array([p[1] for p in probes])]
    lo, hi = [-1000, band[0], reach[0]], [1000, band[1], reach[1]]
    answers = []
    for kernel in KERNELS:
        grid = grid_of(kernel.module, kinds, [(True, width), (False, int_width)])
        inserted(grid, kept, (1, 2))
        index = kernel.module.BucketIndex(grid, grid.columns, lo, hi, keys=served)
        found, _ = drained(kernel, left, index)
        mine = sorted((probe, int(grid.columns[0][row])) for probe, row in found)
        assert mine == matches(left, wide_kept, lo, hi), kernel.name
        answers.append(found)
    assert all(answer == answers[0] for answer in answers)


@QUICK
@given(
    left=st.one_of(st.floats(-1e6, 1e6), st.floats(width=64)),
    band=st.tuples(st.floats(width=64), st.floats(width=64)).filter(lambda ends: ends[0] <= ends[1]),
    near=st.integers(0, 10_000),
)
def test_float32_rows_at_the_ends_of_a_band(left, band, near):
    """The rows are the float32 around both ends, where float64 and float32 round differently."""
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [np.float32(left - end) for end in band]
        values = [end for end in ends if np.isfinite(end)]
        for toward in np.array([-np.inf, np.inf], dtype=np.float32):
            values += (once := [np.nextafter(end, toward) for end in ends])
            values += [np.nextafter(end, toward) for end in once]
        values += [np.float32(near), np.float32(-0.0), np.float32(np.inf), np.float32(np.nan)]
    kept = [np.arange(len(values)), np.array(values, dtype=np.float32)]
    for kernel in KERNELS:
        grid = grid_of(kernel.module, ("i8", "f4"), [(True, 1.0)])
        inserted(grid, kept, (1,))
        index = kernel.module.BucketIndex(grid, grid.columns[1:], [band[0]], [band[1]], keys=(0,))
        found, _ = drained(kernel, [np.array([left])], index)
        mine = sorted((probe, int(grid.columns[0][row])) for probe, row in found)
        assert mine == matches([np.array([left])], [wide(kept[1])], [band[0]], [band[1]]), kernel.name


@QUICK
@given(seed=st.integers(0, 10_000), hot=st.sampled_from([1, 3, 200]), disorder=st.sampled_from([0, 5, 60]))
def test_live_rows_stay_and_dead_ones_go(seed, hot, disorder):
    """Rows come and die for many windows. All implementations have the same rows, and no live row is ever missing."""
    rng = np.random.default_rng(seed)
    grids = [grid_of(kernel.module, ("i8", "i4"), [(False, 1)], buckets=5, chunks=400, stride=1) for kernel in KERNELS]
    live: dict[int, int] = {}
    place = 0
    for _ in range(12):
        count = int(rng.integers(1, 90))
        positions = np.arange(place, place + count) * 10 - rng.integers(0, disorder * 10 + 1, count)
        values = rng.integers(0, hot, count).astype(np.int32)
        place += count
        lowest = (place - 100) * 10
        live.update(zip(positions.tolist(), values.tolist(), strict=True) if not disorder else [])
        for grid in grids:
            assert inserted(grid, [positions, values], (1,), lowest) == count
            grid.sweep(1, lowest)
            assert grid.live_rows(lowest) == sum(row[0] >= lowest for row in contents(grid))
        assert len({(grid.live_rows(lowest, 2), grid.live_rows(lowest, 5)) for grid in grids}) == 1
        found = [contents(grid) for grid in grids]
        assert all(rows == found[0] for rows in found)
        assert all(grid.rows == len(found[0]) for grid in grids)
        if not disorder:
            live = {position: value for position, value in live.items() if position >= lowest}
            assert live.items() <= set(found[0])
    for grid in grids:
        before = grid.rows
        dropped = grid.sweep(grid.buckets, lowest)
        assert grid.rows == before - dropped
        assert disorder or 2 * len(live) >= grid.rows - grid.buckets
        grid.sweep(grid.buckets, 10**9)
        assert grid.rows == 0
    assert len({contents(grid) == contents(grids[0]) for grid in grids}) == 1


@QUICK
@given(seed=st.integers(0, 10_000), most=st.sampled_from([1, 2, 7, 30, 1000]))
def test_rows_of_some_buckets_and_buckets_of_some_rows(seed, most):
    """Rows of some buckets, and a sample of rows, keep the order of all rows; each row is in the bucket of its keys."""
    rng = np.random.default_rng(seed)
    grids = [
        grid_of(kernel.module, ("i8", "i4", "f8"), [(False, 2), (True, 0.5)], buckets=7, chunks=400, stride=3)
        for kernel in KERNELS
    ]
    columns = rows(rng, ("i8", "i4", "f8"), int(rng.integers(1, 300)), 1 + seed % 5)
    begin, end = sorted(rng.integers(0, 8, 2).tolist())
    answers = []
    for grid in grids:
        inserted(grid, columns, (1, 2))
        numbers = grid.bucket_numbers([wide(columns[1]), wide(columns[2])])
        whole = grid.row_numbers().tolist()
        by_bucket = [[row for row in whole if numbers[grid.columns[0][row]] == bucket] for bucket in range(7)]
        assert whole == [row for bucket in by_bucket for row in bucket]
        assert grid.row_numbers(begin, end).tolist() == [row for bucket in by_bucket[begin:end] for row in bucket]
        spread = grid.spread_rows(most).tolist()
        assert len(spread) <= most
        assert len(whole) > most or spread == whole
        places = [whole.index(row) for row in spread]
        assert len(set(np.diff(places).tolist())) <= 1, "evenly spaced"
        crowd = grid.crowd([wide(columns[1]), wide(columns[2])], most)
        assert crowd == sum(min(most, len(by_bucket[bucket])) for bucket in numbers)
        answers.append((numbers.tolist(), [grid.columns[0][row] for row in spread]))
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_full_grid_stops_and_goes_on_enlarged(kernel):
    module = kernel.module
    grid = grid_of(module, ("i8", "i4"), [(False, 1)], buckets=2, chunks=4)
    batch = [np.arange(200), np.zeros(200, dtype=np.int32)]
    stopped = inserted(grid, batch, (1,))
    assert stopped == 3 * module.GRID_CHUNK_ROWS  # the chunk of bucket 0 and the two that no bucket has
    larger = grid.enlarged([np.zeros(20 * module.GRID_CHUNK_ROWS, dtype=column.dtype) for column in grid.columns])
    assert inserted(larger, batch, (1,), begin=stopped) == 200
    assert larger.columns[0][larger.row_numbers()].tolist() == list(range(200))
    assert grid.rows == stopped


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_boundary(kernel):
    module = kernel.module
    grid = grid_of(module, ("i8", "f8"), [(True, 1.0)])
    pair = grid_of(module, ("i8", "f8"), [(True, 1.0), (True, 1.0)])
    good = [np.arange(3), np.arange(3.0)]
    keys = [good[1]]
    for name, call in [
        ("columns", lambda: module.BucketGrid([], position=0, buckets=1, keys=[])),
        ("columns", lambda: module.BucketGrid([np.zeros(17, np.int64)], position=0, buckets=1, keys=[])),
        ("position", lambda: module.BucketGrid([np.zeros(16)], position=0, buckets=1, keys=[])),
        ("buckets", lambda: module.BucketGrid([np.zeros(16, np.int64)], position=0, buckets=2, keys=[])),
        ("width", lambda: module.BucketGrid([np.zeros(16, np.int64)], position=0, buckets=1, keys=[(False, 0)])),
        ("stride", lambda: module.BucketGrid([np.zeros(16, np.int64)], position=0, buckets=1, keys=[], stride=0)),
        ("keys", lambda: module.BucketGrid([np.zeros(16, np.int64)], position=0, buckets=1, keys=[(0, 1)] * 3)),
        ("keys", lambda: grid.insert(good, [good[0]], 0, 0)),
        ("keys", lambda: grid.insert(good, [], 0, 0)),
        ("keys", lambda: grid.insert(good, [good[1][:2]], 0, 0)),
        ("begin", lambda: grid.insert(good, keys, 4, 0)),
        ("columns", lambda: grid.insert(good[:1], keys, 0, 0)),
        ("columns", lambda: grid.insert([good[0], good[1][:2]], keys, 0, 0)),
        ("columns", lambda: grid.insert([good[0], good[0]], keys, 0, 0)),
        ("step", lambda: grid.live_rows(0, 0)),
        ("begin", lambda: grid.row_numbers(-1)),
        ("begin", lambda: grid.row_numbers(3, 2)),
        ("begin", lambda: grid.row_numbers(0, grid.buckets + 1)),
        ("most", lambda: grid.spread_rows(0)),
        ("most", lambda: grid.crowd(keys, 0)),
        ("keys", lambda: grid.crowd([], 1)),
        ("keys", lambda: grid.bucket_numbers([])),
        ("keys", lambda: grid.bucket_numbers([good[0]])),
        ("keys", lambda: pair.bucket_numbers([good[1], good[1][:2]])),
        ("columns", lambda: grid.enlarged(grid.columns[:1])),
        ("right", lambda: module.BucketIndex(grid, good, [0, 0], [0, 0], keys=[1])),
        ("keys", lambda: module.BucketIndex(grid, grid.columns, [0, 0], [0, 0], keys=[2])),
        ("keys", lambda: module.BucketIndex(grid, grid.columns, [0, 0], [0, 0], keys=[0])),
        ("keys", lambda: module.BucketIndex(grid, grid.columns, [0, 0], [0, 0], keys=[])),
        ("keys", lambda: module.BucketIndex(pair, pair.columns, [0, 0], [0, 0], keys=[1, 1])),
        ("grid", lambda: module.BucketIndex(None, [], [], [], keys=[])),
    ]:
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name == name, (kernel.name, name)
    assert grid.rows == 0
