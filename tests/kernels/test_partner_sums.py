"""Sums and extremes over partners while they are counted: every implementation against the pairs that it writes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS
from tests.kernels.test_runs import columns, drained, run_of
from tests.support.examples import examples

INT64, INT32 = np.iinfo(np.int64), np.iinfo(np.int32)
KINDS = ["f8", "f4", "i8", "i4"]
WANTED = [(number, name, kind) for number, kind in enumerate(KINDS) for name in ("sum", "min", "max")]


def values_of(rng, rows, odd=True):
    """Return a column of each kind; `odd` has what a sum of floats cannot cut."""
    floats = np.round(rng.normal(20, 5, rows), 2)
    narrow = rng.normal(0, 1e3, rows).astype(np.float32)
    ints = rng.integers(INT64.min, INT64.max, rows)
    for column in (floats, narrow):
        column[rng.random(rows) < 0.1] = -0.0
        if odd:
            for one in (math.nan, math.inf, -math.inf, 1e38, 5e-45):
                column[rng.integers(0, rows, 1)] = one
    ints[:: max(rows // 3, 1)] = INT64.max
    return [floats, narrow, ints, rng.integers(INT32.min, INT32.max, rows).astype(np.int32)]


def key_of(value):
    """Return a number in the order of floats."""
    bits = np.float64(math.nan if math.isnan(value) else value).view(np.int64)
    return int(bits ^ ((bits >> 63) & INT64.max))


def check(sums, found, given, groups, first=0):
    """Compare sums with the pairs (probe, row, run); return how many groups with pairs are left open."""
    partners = [[] for _ in range(groups)]
    for probe, row, run in found:
        partners[probe + first].append((run, row))
    is_open = sums.left_open()
    for number, (column, function, kind) in enumerate(WANTED):
        parts = [part.tolist() for part in sums.parts(number)]
        for group, rows in enumerate(partners):
            values = [given[run][column][row].item() for run, row in rows]
            if not values or is_open[group]:
                continue
            if function != "sum":
                keys = [key_of(value) if kind[0] == "f" else value for value in values]
                assert parts[0][group] == (min(keys) if function == "min" else max(keys))
            elif kind[0] == "i":
                assert (parts[0][group] << 32) + parts[1][group] == sum(values)
            else:
                assert sum(Fraction(part[group]) for part in parts) == sum(map(Fraction, values))
    return sum(bool(one) for one, rows in zip(is_open, partners, strict=True) if rows)


def sums_of(kernel, groups, given):
    return kernel.module.PartnerSums(groups, kernel.module.RunColumns(given), WANTED, kernel.name)


@examples(25)
@given(seed=st.integers(0, 1000), slice_probes=st.sampled_from([None, 1, 32]), odd=st.booleans())
def test_all_runs_are_summed_up(seed, slice_probes, odd):
    rng = np.random.default_rng(seed)
    lo, hi, kinds = [-3, -4, -20], [3, 4, 20], "iif"
    left = columns(rng, kinds, 40, 60)
    rights = [columns(rng, kinds, size, 60) for size in (1, 40, 1500, 300, 900, 33)]
    given = [values_of(rng, len(right[0]), odd) for right in rights]
    orders = [(-1, -1), (-1, 1), (0, 1), (1, 0), (0, -1), (1, 2)]
    for kernel in KERNELS:
        made = [
            run_of(kernel.module, right, lo, hi, first=first, second=second, width=7)[0]
            for right, (first, second) in zip(rights, orders, strict=True)
        ]
        found, _ = drained(kernel, left, made, slice_probes=slice_probes)
        sums = sums_of(kernel, 43, [[np.zeros(1, np.dtype(kind)) for kind in KINDS], *given])
        probing = kernel.module.RunsProbe(left, made, implementation=kernel.name, slice_probes=slice_probes)
        counts = np.zeros(40, np.int64)
        probing.counting(counts, sums, 1, 3).do()
        assert counts.tolist() == np.bincount([probe for probe, *_ in found], minlength=40).tolist()
        left_open = check(sums, found, given, 43, 3)
        assert odd or not left_open, kernel.name


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_settled_buckets_and_sorted_rows_are_summed_up_without_a_test(kernel):
    rng = np.random.default_rng(4)
    left, right = columns(rng, "fi", 30, 50), columns(rng, "fi", 4000, 50)
    given = [values_of(rng, 4000, odd=False)]
    for first, second, lo, hi in ((0, 1, [-20.0, -9], [20.0, 9]), (-1, 1, [-99.0, -9], [99.0, 9])):
        made, _ = run_of(kernel.module, right, lo, hi, first=first, second=second, width=1.5)
        found, _ = drained(kernel, left, [made])
        sums = sums_of(kernel, 30, given)
        kernel.module.RunsProbe(left, [made], implementation=kernel.name).counting(np.zeros(30, np.int64), sums).do()
        assert check(sums, found, given, 30) == 0
        assert len(found) > 3000


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_rows_of_a_bucket_grid_are_summed_up_where_they_lie(kernel):
    rng, module = np.random.default_rng(9), kernel.module
    room = 64 * module.GRID_CHUNK_ROWS
    made = [np.zeros(room), np.zeros(room, np.int64), *(np.zeros(room, np.dtype(kind)) for kind in KINDS)]
    grid = module.BucketGrid(made, position=1, buckets=20, keys=[(True, 2.0)])
    x, ts = rng.random(300) * 40, np.arange(300)
    grid.insert([x, ts, *values_of(rng, 300, odd=False)], [x], 0, 0)
    grid.insert([x, ts + 300, *values_of(rng, 300, odd=False)], [x], 0, 200)  # chunks become rings
    index = module.BucketIndex(grid, made[:2], [-4.0, -99999], [4.0, -100], keys=[0])
    left = [rng.random(50) * 40, np.full(50, 200)]
    found, _ = drained(kernel, left, [index])
    sums = sums_of(kernel, 50, [made[2:]])
    counts = np.zeros(50, np.int64)
    module.RunsProbe(left, [index], implementation=kernel.name, slice_probes=7).counting(counts, sums).do()
    assert counts.tolist() == np.bincount([probe for probe, *_ in found], minlength=50).tolist()
    assert check(sums, found, [made[2:]], 50) == 0
    assert len(found) > 1000


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_scans_and_grid_probes_are_summed_up_as_one_run_of_several(kernel):
    rng = np.random.default_rng(2)
    left, right = columns(rng, "fi", 70, 50), columns(rng, "fi", 2500, 50)
    given = [values_of(rng, 3, odd=False), values_of(rng, 2500, odd=False)]
    lo, hi = [-9.0, -9], [9.0, 9]
    found = []
    out = np.empty((2, 512), np.int32)
    scan = kernel.scan(left, right, lo, hi)
    while written := scan.fill(*out):
        found += [(probe, row, 1) for probe, row in zip(*out[:, :written].tolist(), strict=True)]
    sums = sums_of(kernel, 75, given)
    kernel.scan(left, right, lo, hi).counting(np.zeros(70, np.int64), sums, 1, 5).do()
    assert check(sums, found, given, 75, 5) == 0
    order = np.argsort(right[1], kind="stable").astype(np.int32)
    probes = np.argsort(left[1], kind="stable").astype(np.int32)
    laid = [np.ascontiguousarray(column[order]) for column in right]
    moved = [given[0], [np.ascontiguousarray(column[order]) for column in given[1]]]
    sums = sums_of(kernel, 70, moved)
    kernel.grid_probe(
        [np.ascontiguousarray(column[probes]) for column in left], laid, lo, hi,
        first=-1, second=1, width=1, bucket_ids=None, bucket_starts=None, probe_order=probes,
    ).counting(np.zeros(70, np.int64), sums, 1).do()  # fmt: skip
    place = np.argsort(order)
    assert check(sums, [(probe, int(place[row]), run) for probe, row, run in found], moved, 70) == 0


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_the_cuts_do_not_fit_is_left_open(kernel):
    column = np.array([3.5, 2.0**60, math.nan, -math.inf, 3.5 + 2.0**-50, 2.0**-300, 0.0, 5e-324])
    probes = np.arange(len(column), dtype=np.int64)
    columns = kernel.module.RunColumns([[column]])
    sums = kernel.module.PartnerSums(len(column), columns, [(0, "sum", "f8")], kernel.name)
    counts = np.zeros(len(column), np.int64)
    kernel.scan([probes], [probes], [0], [0]).counting(counts, sums).do()
    assert counts.tolist() == [1] * len(column)
    is_open = sums.left_open().tolist()
    assert is_open[2:4] == [True, True]
    assert is_open[1] or is_open[4]  # 110 bits apart; which of them does not fit depends on the values seen first
    assert [is_open[at] for at in (0, 5, 6, 7)] == [False, True, False, True]


@pytest.mark.parametrize("module", [twins, native], ids=["twin", "native"])
def test_wrong_sums_are_refused(module):
    columns = module.RunColumns([[np.zeros(9)]])
    for wanted in ([(1, "sum", "f8")], [(0, "mean", "f8")], [(0, "sum", "u8")], [(0, "sum", "f4")]):
        with pytest.raises(KernelError, match=r"wanted|another width"):
            module.PartnerSums(3, columns, wanted)
    sums = module.PartnerSums(3, columns, [(0, "sum", "f8")])
    with pytest.raises(KernelError, match="number"):
        sums.parts(1)


def test_sums_that_do_not_fit_a_probing_are_refused():
    keys = np.arange(9)
    columns = native.RunColumns([[np.zeros(9)]])
    for count, run, first, why in (
        (8, 0, 0, "groups"),
        (9, 1, 0, "these runs"),
        (9, 0, 1, "groups"),
        (9, -1, 0, "runs"),
    ):
        sums = native.PartnerSums(count, columns, [(0, "sum", "f8")])
        with pytest.raises(KernelError, match=why):
            native.Scan([keys], [keys], [0], [0]).counting(np.zeros(9, np.int64), sums, run, first)
    few = native.PartnerSums(9, native.RunColumns([[np.zeros(8)]]), [(0, "sum", "f8")])
    with pytest.raises(KernelError, match="rows"):
        native.Scan([keys], [keys], [0], [0]).counting(np.zeros(9, np.int64), few)
