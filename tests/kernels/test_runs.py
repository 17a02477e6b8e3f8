"""A few probes against many runs, and gathering over runs: every implementation against the plain oracle."""

from __future__ import annotations

import numpy as np
import pytest

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS, TWIN, Kernel, array_matches

INF = float("inf")


def run_of(module, right, lo, hi, *, first, second, width, zone=True, fences=True, steps=True):
    """Return a `RunIndex` over a run that is laid out first, and the order in which the run was put."""
    buckets = module.grid_buckets(right[first], width, 0) if first >= 0 else None
    order = np.arange(len(right[0]), dtype=np.int32)
    if first >= 0 or second >= 0:
        order = module.grid_order(buckets, right[second] if second >= 0 else np.zeros(len(right[0]), np.int64))
    columns = [np.ascontiguousarray(column[order]) for column in right]
    ids, starts = module.bucket_directory(np.sort(buckets)) if first >= 0 else (None, None)
    index = module.RunIndex(
        columns,
        lo,
        hi,
        first=first,
        second=second,
        width=width,
        bucket_ids=ids,
        bucket_starts=starts,
        steps=module.step_starts(columns[second]) if first < 0 <= second and steps else None,
        fences=np.ascontiguousarray(columns[second][:: module.FENCE_ROWS]) if second >= 0 and fences else None,
        zone=[(column.min().item(), column.max().item()) for column in columns] if zone else None,
    )
    return index, order


def drained(kernel: Kernel, left, indexes, capacity=64, **options):
    probing = kernel.module.RunsProbe(left, indexes, implementation=kernel.name, **options)
    out = np.empty((3, capacity), dtype=np.int32)
    found = []
    while written := probing.fill(*out):
        found += zip(*(row[:written].tolist() for row in out), strict=True)
    assert probing.fill(*out) == 0
    return found, probing.candidates


def columns(rng, kinds, count, span):
    return [rng.integers(0, span, count) if kind == "i" else rng.random(count) * span for kind in kinds]


LAYOUTS = [(-1, -1), (-1, 1), (0, 1), (1, 0), (0, -1), (2, 1)]


@pytest.mark.parametrize("kinds", ["iif", "fff", "ifi"])
@pytest.mark.parametrize("probes", [1, 3, 70])
@pytest.mark.parametrize("capacity", [64, 5000])
def test_all_runs_are_probed_in_order(kinds, probes, capacity):
    rng = np.random.default_rng([probes, capacity])
    lo, hi = [-3, -4, -20], [3, 4, 20]
    left = columns(rng, kinds, probes, 100)
    sizes = (1, 40, 3000, 700, 2500, 900)
    rights = [columns(rng, kinds, size, 100) for size in sizes]
    answers = []
    for kernel in KERNELS:
        made = [
            run_of(kernel.module, right, lo, hi, first=first, second=second, width=7 if kinds[first] == "i" else 7.5)
            for right, (first, second) in zip(rights, LAYOUTS, strict=True)
        ]
        found, _ = drained(kernel, left, [index for index, _ in made], capacity)
        assert [number for *_, number in found] == sorted(number for *_, number in found)
        answers.append(found)
        for number, (right, (_, order)) in enumerate(zip(rights, made, strict=True)):
            mine = sorted((probe, int(order[row])) for probe, row, of in found if of == number)
            assert mine == array_matches(left, right, lo, hi), (kernel.name, number)
    assert len(answers[0]) > probes
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("capacity", [64, 4096])
@pytest.mark.parametrize("slice_probes", [1, 7, 60, 61, 1000])
def test_slices_of_the_probes_are_probings_of_their_own(slice_probes, capacity):
    rng = np.random.default_rng(slice_probes)
    lo, hi = [-3, -4, -20], [3, 4, 20]
    left = columns(rng, "ifi", 60, 100)
    rights = [columns(rng, "ifi", size, 100) for size in (3000, 40, 900)]
    for kernel in KERNELS:
        indexes = [
            run_of(kernel.module, right, lo, hi, first=first, second=second, width=7)[0]
            for right, (first, second) in zip(rights, [(0, 2), (-1, -1), (-1, 2)], strict=True)
        ]
        found, tested = drained(kernel, left, indexes, capacity, slice_probes=slice_probes)
        expected, expected_tested = [], 0
        for begin in range(0, 60, slice_probes):
            part = [column[begin : begin + slice_probes].copy() for column in left]
            pairs, candidates = drained(kernel, part, indexes, capacity)
            expected += [(probe + begin, row, number) for probe, row, number in pairs]
            expected_tested += candidates
        assert len(found) > 60
        assert found == expected, kernel.name
        assert tested == expected_tested
        with pytest.raises(KernelError, match="slice_probes"):
            kernel.module.RunsProbe(left, indexes, slice_probes=0)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_single_probe_finds_its_rows_in_their_order_whether_scanned_or_not(kernel, layout):
    rng = np.random.default_rng(8)
    first, second = layout
    for rows in (200, 300, 5000):
        right = columns(rng, "ifi", rows, 30)
        index, _ = run_of(
            kernel.module, right, [-3, -4, -20], [3, 4, 20], first=first, second=second, width=4 if first != 1 else 4.5
        )
        found, _ = drained(kernel, columns(rng, "ifi", 1, 30), [index])
        assert found == sorted(found)
        assert len(found) > 3


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_probing_knows_when_it_is_done(kernel):
    index = kernel.module.RunIndex([np.zeros(150)], [0.0], [0.0], first=-1, second=-1, width=1)
    probing = kernel.module.RunsProbe([np.zeros(1)], [index, index], implementation=kernel.name)
    out, written = np.empty((3, 64), np.int32), []
    while not probing.is_done:
        written.append(probing.fill(*out))
    assert sum(written) == 300
    assert probing.fill(*out) == 0
    assert kernel.module.RunsProbe([np.empty(0)], [index], implementation=kernel.name).is_done
    assert kernel.module.RunsProbe([np.zeros(1)], [], implementation=kernel.name).is_done


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_last_run_may_have_room_behind_its_rows(kernel):
    room = [np.arange(200, dtype=np.int64)]
    index = kernel.module.RunIndex(room, [0], [INF := 300], first=-1, second=-1, width=1)
    left = [np.array([250], dtype=np.int64)]
    for rows in (0, 1, 63, 200):
        found, _ = drained(kernel, left, [index], last_rows=rows)
        assert [row for _, row, _ in found] == list(range(rows))
    assert INF == 300
    with pytest.raises(KernelError, match="last_rows"):
        kernel.module.RunsProbe(left, [index], last_rows=201)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_runs_out_of_reach_are_left_out_exactly(kernel):
    low, high = -(1 << 63), (1 << 63) - 1
    for value, lo, hi, expected in ((low, 0, high, 0), (high, 0, high, 1), (high, high, high + 5, 1), (low, low, 0, 1)):
        right = [np.zeros(5000, dtype=np.int64)]
        index, _ = run_of(kernel.module, right, [lo], [hi], first=-1, second=0, width=1)
        found, candidates = drained(kernel, [np.array([value])], [index], 8192)
        assert len(found) == 5000 * expected
        assert bool(candidates) == bool(expected)
    for value, expected in ((np.nan, 0), (INF, 0), (-INF, 0), (1.0, 5000)):
        index, _ = run_of(kernel.module, [np.ones(5000)], [-1.0], [1.0], first=-1, second=0, width=1.0)
        assert len(drained(kernel, [np.array([value])], [index], 8192)[0]) == expected
    ends = np.repeat([-INF, INF], 2500)
    for value, expected in ((np.nan, 0), (INF, 2500), (-INF, 2500), (1.0, 0)):
        for second in (-1, 0):
            index, _ = run_of(kernel.module, [ends], [None], [None], first=-1, second=second, width=1.0)
            for count in (1, 3):
                assert len(drained(kernel, [np.full(count, value)], [index], 8192)[0]) == expected * count


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_nothing_to_probe(kernel):
    index = kernel.module.RunIndex([np.zeros(3)], [0.0], [0.0], first=-1, second=-1, width=1)
    assert drained(kernel, [np.empty(0)], [index])[0] == []
    assert drained(kernel, [np.zeros(2)], [])[0] == []
    every = kernel.module.RunIndex([], [], [], first=-1, second=-1, width=1, right_count=2)
    assert sorted(drained(kernel, [], [every], left_count=2)[0]) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]


@pytest.mark.parametrize("module", [native, twins])
def test_gathering_over_runs(module):
    rng = np.random.default_rng(3)
    for dtype in (np.int8, np.int16, np.int32, np.float64, np.complex128):
        runs = [[(rng.random(size) * 100).astype(dtype), np.arange(size)] for size in (5, 1, 3000)]
        run_numbers = rng.integers(0, 3, 5000).astype(np.int32)
        rows = (rng.random(5000) * [len(runs[number][0]) for number in run_numbers]).astype(np.int32)
        outs = [np.empty(5000, dtype), None]
        module.RunColumns(runs).gather(run_numbers, rows, outs)
        assert outs[0].tolist() == [runs[number][0][row] for number, row in zip(run_numbers, rows, strict=True)]
        outs = [np.empty(2, dtype), np.empty(2, np.int64)]
        module.RunColumns(runs).gather(2, np.array([2999, 0], np.int32), outs)
        assert outs[1].tolist() == [2999, 0]
    columns = module.RunColumns([[np.zeros(3)], [np.zeros(1)]])
    for run_numbers, row in ((1, 1), (0, 3), (0, -1), (2, 0)):
        for given in (run_numbers, np.array([run_numbers], np.int32)):
            with pytest.raises(KernelError, match="outside"):
                columns.gather(given, np.array([row], np.int32), [np.empty(1)])
    with pytest.raises(KernelError):
        columns.gather(0, np.zeros(1, np.int32), [np.empty(2)])
    with pytest.raises(KernelError):
        module.RunColumns([[np.zeros(3)], [np.zeros(1, np.int64)]])


@pytest.mark.parametrize("module", [native, twins])
@pytest.mark.parametrize("count", [1, 255, 256, 257, 2048, 2304, 2305, 5000])
def test_gathering_from_columns_larger_than_a_cache(module, count):
    """There are blocks of rows from one run, from several, and from one run before those of another."""
    rng = np.random.default_rng(7)
    for dtype in (np.int8, np.float64, np.complex128):
        runs = [[(rng.random(size) * 100).astype(dtype)] for size in (1_100_000, 3000)]
        for run_numbers in (
            np.zeros(count, np.int32),
            np.repeat([0, 1, 0], (2048, 2048, count))[:count].astype(np.int32),
            (np.arange(count) % 3 == 2).astype(np.int32),
        ):
            rows = (rng.random(count) * [len(runs[number][0]) for number in run_numbers]).astype(np.int32)
            out = np.empty(count, dtype)
            module.RunColumns(runs).gather(run_numbers, rows, [out])
            assert (out == [runs[number][0][row] for number, row in zip(run_numbers, rows, strict=True)]).all()
            if not run_numbers.any():
                assert (module.gather(runs[0][0], rows) == out).all()
                module.RunColumns(runs).gather(0, rows, [out])
                assert (out == runs[0][0][rows]).all()
            for wrong in (-1, 1_100_000, -(2**31), 2**31 - 1):
                rows[-1] = wrong
                with pytest.raises(KernelError, match="outside"):
                    module.RunColumns(runs).gather(run_numbers, rows, [out])


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel is not TWIN], ids=lambda kernel: kernel.name)
def test_the_loop_without_unrolling_finds_the_same(kernel):
    rng = np.random.default_rng(5)
    left, right = columns(rng, "if", 100, 50), columns(rng, "if", 2100, 50)
    answers = []
    for unrolled in (True, False):
        scan = kernel.scan(left, right, [-1, -1.0], [1, 1.0], unrolled=unrolled)
        out, found = np.empty((2, 64), np.int32), []
        while written := scan.fill(*out):
            found += out[:, :written].T.tolist()
        answers.append(found)
    assert answers[0] == answers[1]
    assert len(answers[0]) > 100


def test_the_roof_is_above_the_loop_without_simd():
    assert native.scan_roof(False) > 1e7
    assert native.scan_roof(True, "scalar") > 1e6


EDGES = [0.0, -0.0, 1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324]


@pytest.mark.parametrize("first", [-1, 2])
@pytest.mark.parametrize("is_own", [True, False], ids=["of points", "of intervals"])
def test_an_interval_has_its_end_by_another_value_of_the_probe(first, is_own):
    """Rows are sorted by their upper ends; a probe's lower end begins its rows, its upper end ends them."""
    rng = np.random.default_rng([first + 1, is_own])
    lows = np.concatenate([rng.random(60) * 100, EDGES])
    left = [lows, np.concatenate([lows[:60] + rng.random(60) * 5, EDGES[::-1]]), np.floor(lows / 20).clip(-9, 9)]
    answers = []
    for kernel in KERNELS:
        found, tested = [], 0
        for rows in (3000, 700):
            run_rng = np.random.default_rng(rows)
            uppers = np.concatenate([run_rng.random(rows - len(EDGES)) * 100, EDGES])
            lengths = np.zeros(rows) if is_own else run_rng.random(rows) * 3
            right = [uppers, uppers - lengths, np.floor(uppers / 20).clip(-9, 9)]
            order = kernel.module.grid_order(
                kernel.module.grid_buckets(right[2], 1.0, 0.0) if first == 2 else None, uppers
            )
            right = [np.ascontiguousarray(column[order]) for column in right]
            lo, hi = [-INF, 0.0, 0.0], [0.0, INF, 0.0]
            ids, starts = None, None
            if first == 2:
                ids, starts = kernel.module.bucket_directory(kernel.module.grid_buckets(right[2], 1.0, 0.0))
            facts = {"first": first, "second": 0, "past": 1, "width": 1.0, "bucket_ids": ids, "bucket_starts": starts}
            interval_lo = -float(np.nextafter((right[0] - right[1]).max(), INF))
            steps = kernel.module.step_starts(right[0]) if first < 0 else None
            index = kernel.module.RunIndex(right, lo, hi, steps=steps, interval_lo=interval_lo, **facts)
            pairs, candidates = drained(kernel, left, [index])
            assert sorted(pair[:2] for pair in pairs) == array_matches(left, right, lo, hi), kernel.name
            assert candidates < 0.5 * len(lows) * rows
            buckets = kernel.module.probe_buckets(left[2], 0.0, 0.0, 1.0) if first == 2 else None
            sorted_by = kernel.module.grid_order(buckets, left[0])
            probing = kernel.module.GridProbe(
                [np.ascontiguousarray(column[sorted_by]) for column in left], right, lo, hi,
                probe_order=sorted_by, interval_lo=interval_lo, implementation=kernel.name, **facts,
            )  # fmt: skip
            out = np.empty((2, 64), dtype=np.int32)
            again = []
            while written := probing.fill(*out):
                again += zip(out[0, :written].tolist(), out[1, :written].tolist(), strict=True)
            assert sorted(again) == sorted(pair[:2] for pair in pairs)
            found, tested = found + pairs, tested + candidates + probing.candidates
        answers.append((found, tested))
    assert len(answers[0][0]) > 500
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_an_interval_is_of_two_conditions_on_floats(kernel):
    floats, ints = np.zeros(9), np.zeros(9, dtype=np.int64)
    facts = {"first": -1, "second": 0, "width": 1.0}
    for right, past in (([floats, ints], 1), ([ints, floats], 1), ([floats, floats], 0), ([floats, floats], 2)):
        with pytest.raises(KernelError, match="past"):
            kernel.module.RunIndex(right, [0, 0], [0, 0], past=past, **facts)
    with pytest.raises(KernelError, match="interval_lo"):
        kernel.module.RunIndex([floats, floats], [0, 0], [0, 0], past=1, interval_lo=float("nan"), **facts)
