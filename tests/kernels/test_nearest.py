"""The nearest pairs of probes: every implementation against sorted tuples, however the pairs are cut."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS, TWIN
from tests.kernels.test_matching import PROBES, Case
from tests.support.examples import examples

MODULES = [native, twins]
DISTANCES = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, math.inf, -math.inf, math.nan]) | st.floats()
TIES = st.integers(-2, 2) | st.sampled_from([-(1 << 63), (1 << 63) - 1])


def given_to(nearest, pairs):
    """Give pairs to an object in both steps, and return the numbers of those that were selected."""
    columns = list(zip(*pairs, strict=True)) or [[]] * 7
    positions, distances = np.array(columns[0], np.int32), np.array(columns[1], np.float64)
    selected = nearest.select(positions, distances)
    ties = [np.array(column, np.int64)[selected] for column in columns[2:5]]
    places = [np.array(column, np.int32)[selected] for column in columns[5:7]]
    nearest.keep(positions[selected], distances[selected], ties, *places)
    return selected.tolist()


@pytest.mark.parametrize("module", MODULES)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), DISTANCES, TIES, TIES), max_size=40),
    k=st.integers(1, 5),
    cut=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_the_nearest_of_each_probe_are_kept_in_any_order_and_cut(module, pairs, k, cut, seed) -> None:
    unique = [(*pair, number, number % 3, number) for number, pair in enumerate(pairs)]
    random.Random(seed).shuffle(unique)
    nearest = module.NearestPairs(4, k)
    for begin in range(0, len(unique), cut):
        given_to(nearest, unique[begin : begin + cut])
    wanted = [sorted(pair[1:] for pair in unique if pair[0] == probe and pair[1] == pair[1])[:k] for probe in range(4)]
    counts, runs, rows = nearest.ranked()
    assert counts.tolist() == [len(of_probe) for of_probe in wanted]
    found = list(zip(runs.tolist(), rows.tolist(), strict=True))
    assert found == [pair[4:] for of_probe in wanted for pair in of_probe]
    with pytest.raises(KernelError, match="ranked already"):
        nearest.ranked()
    with pytest.raises(KernelError, match="ranked already"):
        given_to(nearest, [])


@given(
    cuts=st.lists(st.lists(st.tuples(st.integers(0, 2), DISTANCES), max_size=12), max_size=4),
    k=st.integers(1, 4),
)
def test_both_select_the_pairs_that_are_not_beyond_the_kth_so_far(cuts, k) -> None:
    objects = [module.NearestPairs(3, k) for module in MODULES]
    seen: list[tuple[int, float]] = []
    for pairs in cuts:
        seen += pairs
        known = [sorted(d for p, d in seen if p == probe and d == d)[:k] for probe in range(3)]
        most = [of_probe[-1] if len(of_probe) == k else math.inf for of_probe in known]
        wanted = [number for number, (p, d) in enumerate(pairs) if d <= most[p]]
        whole = [(p, d, 0, 0, number, 0, number) for number, (p, d) in enumerate(pairs)]
        assert [given_to(one, whole) for one in objects] == [wanted, wanted]


# Of columns 1 and 2 of a window: |own - other| * other in floats, |own - other| in whole numbers.
FLOAT_STEPS = [
    ("own", 0, 1, False), ("other", 0, 1, False), ("sub", 0, 1, False), ("abs", 2, None, False),
    ("other", 1, None, True), ("mul", 3, 4, False),
]  # fmt: skip
WHOLE_STEPS = [
    ("own", 0, None, False),
    ("other", 0, None, False),
    ("int sub", 0, 1, False),
    ("int abs", 2, None, False),
]


class Taken:
    """The columns that the distances and the ties of a probing's pairs are made of."""

    def __init__(self, case: Case, *, steps=FLOAT_STEPS, far: int = 0) -> None:
        module, columns = case.module, (1, 2) if steps is FLOAT_STEPS else (1,)
        self.case, self.distances, self.own = case, module.PairDistances(steps), [case.left[1] + far]
        self.runs = module.RunColumns([[run[column] for column in columns] for run in case.runs])
        self.ties = [module.RunColumns([[run[0] // 40] for run in case.runs])]
        self.ties += [module.RunColumns([[run[0]] for run in case.runs])]

    def inside(self, k: int):
        """Return the nearest pairs that a probing gives without writing one."""
        nearest, probing = self.case.module.NearestPairs(PROBES, k), self.case.probing()
        nearest.taking(probing, self.distances, self.own, self.runs, self.ties).do()
        assert not nearest.is_exact or probing.is_done
        return nearest

    def by_pairs(self, k: int):
        """Return the nearest of the pairs that a probing writes, and how many these are."""
        nearest, probing, total = self.case.module.NearestPairs(PROBES, k), self.case.probing(), 0
        out = np.empty((3, 256), np.int32)
        while count := probing.fill(*out):
            positions, rows, runs = out[:, :count].copy()
            found, ties = np.empty(count), [np.zeros(count, np.int64) for _ in range(3)]
            assert self.distances.fill(self.own, self.runs, runs, positions, rows, found)
            for column, to in zip(self.ties, ties, strict=False):
                column.gather(runs, rows, [to])
            near = nearest.select(positions, found)
            nearest.keep(positions[near], found[near], [tie[near] for tie in ties], runs[near], rows[near])
            total += count
        return nearest, total


@examples(10)
@given(
    seed=st.integers(0, 10_000),
    k=st.sampled_from([1, 1, 2, 7]),
    slice_probes=st.sampled_from([None, 1, 17, 64]),
    span=st.sampled_from([2, 12, 60]),
    steps=st.sampled_from([FLOAT_STEPS, WHOLE_STEPS]),
)
def test_a_probing_keeps_the_nearest_of_its_pairs_and_writes_none(seed, k, slice_probes, span, steps) -> None:
    answers = []
    for kernel in KERNELS:
        taken = Taken(Case(kernel, seed, span=span, slice_probes=slice_probes), steps=steps)
        nearest, total = taken.by_pairs(k)
        wanted = [column.tolist() for column in nearest.ranked()]
        assert [column.tolist() for column in taken.inside(k).ranked()] == wanted, kernel.name
        answers.append((total, wanted))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] > 100 or span == 60


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_distance_that_cannot_be_held_ends_a_probing(kernel) -> None:
    assert not Taken(Case(kernel, 1), steps=WHOLE_STEPS, far=(1 << 53) + 100).inside(1).is_exact
    assert Taken(Case(kernel, 1), steps=WHOLE_STEPS, far=(1 << 53) - 100).inside(1).is_exact


@pytest.mark.parametrize("kernel", [TWIN, KERNELS[-1]], ids=lambda kernel: kernel.name)
def test_a_probing_with_other_columns_or_a_wrong_number_of_probes_is_refused(kernel) -> None:
    module, taken = kernel.module, Taken(Case(kernel, 2))
    runs = taken.case.runs
    given_columns = taken.distances, taken.own, taken.runs, taken.ties
    other_runs = module.RunColumns([[run[1], run[2]] for run in runs[:2]])
    wrong_ties = [module.RunColumns([[run[0]] for run in runs[:2]])], [module.RunColumns([[run[1]] for run in runs])]
    for count, arguments in (
        (PROBES - 1, given_columns),
        (PROBES, (*given_columns[:2], other_runs, taken.ties)),
        *((PROBES, (*given_columns[:3], ties)) for ties in (*wrong_ties, [None], [taken.ties[0]] * 4)),
    ):
        with pytest.raises(KernelError):
            module.NearestPairs(count, 1).taking(taken.case.probing(), *arguments).do()
    nearest = taken.inside(1)
    nearest.ranked()
    with pytest.raises(KernelError, match="ranked already"):
        nearest.taking(taken.case.probing(), *given_columns)


@pytest.mark.parametrize("module", MODULES)
def test_what_is_outside_is_refused(module) -> None:
    for count, k in ((-1, 1), (1, 0), (1 << 31, 1), (1 << 20, 1 << 12)):
        with pytest.raises(KernelError, match="out of range"):
            module.NearestPairs(count, k)
    nearest = module.NearestPairs(2, 1)
    one, near, tie = np.zeros(1, np.int32), np.zeros(1), np.zeros(1, np.int64)
    for wrong in (-1, 2):
        outside = np.array([wrong], np.int32)
        with pytest.raises(KernelError, match="outside the probes"):
            nearest.select(outside, near)
        with pytest.raises(KernelError, match="outside the probes"):
            nearest.keep(outside, near, [tie] * 3, one, one)
    for arguments in (
        (one, np.zeros(2)), (np.zeros(1, np.int64), near), (one, np.zeros(1, np.float32)), (one, np.zeros((1, 1))),
    ):  # fmt: skip
        with pytest.raises(KernelError):
            nearest.select(*arguments)
    two = np.zeros(2, np.int32)
    for arguments in (
        ([tie] * 2, one, one), ([tie, tie, near], one, one), ([tie, tie, np.zeros(2, np.int64)], one, one),
        ([tie] * 3, two, one), ([tie] * 3, one, two), ([tie] * 3, one, tie),
    ):  # fmt: skip
        with pytest.raises(KernelError):
            nearest.keep(one, near, *arguments)
    assert [array.tolist() for array in nearest.ranked()] == [[0, 0], [], []]
    assert [array.tolist() for array in module.NearestPairs(0, 3).ranked()] == [[], [], []]
