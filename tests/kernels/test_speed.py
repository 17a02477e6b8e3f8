"""Opt-in measurement (`pytest -m bench tests/kernels -s`): matches, pairs and sorted rows a second on one core."""

from __future__ import annotations

import time

import numpy as np
import pytest

from streamjoin_ds._kernels import native
from tests.kernels.oracle import COMPILED, lay_out

pytestmark = pytest.mark.bench

RUN_ROWS = 4_600_000
PROBES = 50_000
MATCHES_PER_PROBE = 100
BAND = 10
MICROSECONDS = 900_000_000


@pytest.fixture(scope="module", params=["ff", "ii", "fi"])
def case(request):
    """Columns and bounds of two bands that each probe matches about 100 times, and of a window of 15 minutes."""
    random = np.random.default_rng(1)
    domain = 2 * BAND * (RUN_ROWS / MATCHES_PER_PROBE) ** 0.5

    def column(kind, count):
        return random.random(count) * domain if kind == "f" else random.integers(0, int(domain), count)

    right = [column(kind, RUN_ROWS) for kind in request.param] + [random.integers(0, MICROSECONDS, RUN_ROWS)]
    left = [column(kind, PROBES) for kind in request.param] + [random.integers(MICROSECONDS, MICROSECONDS + 1, PROBES)]
    return request.param, left, right, [-BAND, -BAND, 0], [BAND, BAND, MICROSECONDS]


def drain_count(join) -> int:
    out_probe, out_row = np.empty(1 << 16, np.int32), np.empty(1 << 16, np.int32)
    total = 0
    while written := join.fill(out_probe, out_row):
        total += written
    return total


def best_seconds(call, rounds: int = 3) -> tuple[float, int]:
    best, answer = float("inf"), 0
    for _ in range(rounds):
        start = time.perf_counter()
        answer = call()
        best = min(best, time.perf_counter() - start)
    return best, answer


def test_grid_probe(case):
    kinds, left, right, lo, hi = case
    layout = lay_out(left, right, lo, hi, first=0, second=1, width=2 * BAND + 1, module=native)
    counts = set()
    for kernel in COMPILED:

        def probe(kernel=kernel):
            return drain_count(kernel.grid_probe(layout.left, layout.right, lo, hi, **layout.options))

        seconds, count = best_seconds(probe)
        counts.add(count)
        print(f"\ngrid probe {kinds} {kernel.name}: {count / seconds / 1e6:.0f} M matches/s, {seconds * 1e3:.1f} ms")
    assert len(counts) == 1


def test_scan(case):
    kinds, left, right, lo, hi = case
    left, right = [column[:2000].copy() for column in left], [column[:100_000].copy() for column in right]
    counts = set()
    for kernel in COMPILED:
        seconds, count = best_seconds(lambda kernel=kernel: drain_count(kernel.scan(left, right, lo, hi)))
        counts.add(count)
        print(f"\nscan {kinds} {kernel.name}: {2000 * 100_000 / seconds / 1e9:.1f} G pairs/s")
    assert len(counts) == 1


def test_order_and_gather(case):
    kinds, _, right, _, _ = case
    buckets = native.grid_buckets(right[0], 2 * BAND + 1, 0)
    seconds, _ = best_seconds(lambda: len(native.grid_order(buckets, right[1])))
    order = native.grid_order(buckets, right[1])
    gathering, _ = best_seconds(lambda: len(native.gather(right[1], order)))
    print(
        f"\ngrid order {kinds}: {RUN_ROWS / seconds / 1e6:.0f} M rows/s; gather: {RUN_ROWS / gathering / 1e6:.0f} M/s"
    )
    assert (np.diff(buckets[order]) >= 0).all()
