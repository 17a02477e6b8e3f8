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
