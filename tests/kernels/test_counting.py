"""Counts of pairs in place of the pairs: every implementation against what it writes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS, TWIN, drain, lay_out, neighbours
from tests.kernels.test_runs import columns, drained, run_of
from tests.support.examples import examples

INT64 = np.iinfo(np.int64)
INTS = st.one_of(
    st.integers(-30, 30), st.sampled_from([INT64.min, INT64.min + 3, INT64.max - 3, INT64.max]), st.integers(-900, 900)
)
# Many lie on the edges of buckets of 0.1 and 7.5, and one float step to either side.
EDGES = [edge for width in (0.1, 7.5) for n in range(-6, 7) for edge in neighbours(n * width, 1)]
FLOATS = st.one_of(st.sampled_from(EDGES), st.floats(-40, 40), st.sampled_from([-0.0, math.inf, -math.inf, 1e300]))
FLOAT_BOUNDS = [0.0, 0.1, -0.1, 0.2, 7.5, -7.5, 15.0, -15.0, math.inf, -math.inf]
BOUNDS = {"i": st.integers(-40, 40), "f": st.sampled_from(FLOAT_BOUNDS)}
TYPES = {"i": np.int64, "f": np.float64}


@st.composite
def layouts(draw):
    kinds = draw(st.sampled_from(["f", "i", "ff", "ii", "if", "fi", "iff", "fii"]))
    items = {"f": FLOATS, "i": INTS}
    left, right = (
        [np.array(draw(st.lists(items[kind], min_size=count, max_size=count)), TYPES[kind]) for kind in kinds]
        for count in (draw(st.integers(1, 12)), draw(st.integers(1, 80)))
    )
    bounds = [sorted((draw(BOUNDS[kind]), draw(BOUNDS[kind]))) for kind in kinds]
    equal = [kind == "f" and draw(st.integers(0, 4)) == 0 for kind in kinds]
    lo, hi = zip(*((None, None) if e else pair for pair, e in zip(bounds, equal, strict=True)), strict=True)
    second = draw(st.integers(-1, len(kinds) - 1))
    first = draw(st.sampled_from([n for n in range(-1, len(kinds)) if n != second or n < 0]))
    width = draw(st.sampled_from([0.1, 7.5, 1e-300] if first >= 0 and kinds[first] == "f" else [1, 7, 50]))
    return left, right, list(lo), list(hi), first, second, width


@given(layouts())
@examples(300)
def test_a_grid_probe_counts_what_it_writes(given):
    left, right, lo, hi, first, second, width = given
    answers = []
    for kernel in KERNELS:
        laid = lay_out(left, right, lo, hi, first=first, second=second, width=width, module=kernel.module)
        known = laid.left, laid.right, lo, hi
        writer, counter = (kernel.grid_probe(*known, **laid.options) for _ in range(2))
        counts = np.zeros(len(left[0]), np.int64)
        assert counter.counting(counts).do() is None
        pairs = drain(writer)
        probes = np.array([probe for probe, _ in pairs], np.int64)
        assert counts.tolist() == np.bincount(probes, minlength=len(counts)).tolist()
        assert counter.candidates == writer.candidates
        answers.append(counts.tolist())
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("rows", [0, 1, 70, 2500])
def test_a_scan_counts_what_it_writes(kernel, rows):
    rng = np.random.default_rng(rows)
    for kinds in ("", "i", "f", "fif"):
        left, right = columns(rng, kinds, 70, 40), columns(rng, kinds, rows, 40)
        bounds = [-3] * len(kinds), [4] * len(kinds)
        writer, counter = (kernel.scan(left, right, *bounds, left_count=70, right_count=rows) for _ in range(2))
        counts = np.full(75, 5, np.int64)
        counter.counting(counts).do()
        pairs = np.array([probe for probe, _ in drain(writer, 256)], np.int64)
        assert (counts - 5).tolist() == np.bincount(pairs, minlength=75).tolist()
        assert counter.candidates == writer.candidates


@pytest.mark.parametrize("slice_probes", [None, 1, 32])
def test_all_runs_are_counted(slice_probes):
    rng = np.random.default_rng(5)
    lo, hi, kinds = [-3, -4, -20], [3, 4, 20], "iif"
    left = columns(rng, kinds, 70, 100)
    rights = [columns(rng, kinds, size, 100) for size in (1, 40, 3000, 700, 2500, 900)]
    for kernel in KERNELS:
        orders = [(-1, -1), (-1, 1), (0, 1), (1, 0), (0, -1), (1, 2)]
        made = [
            run_of(kernel.module, right, lo, hi, first=first, second=second, width=7)[0]
            for right, (first, second) in zip(rights, orders, strict=True)
        ]
        found, candidates = drained(kernel, left, made, slice_probes=slice_probes)
        probing = kernel.module.RunsProbe(left, made, implementation=kernel.name, slice_probes=slice_probes)
        counts = np.zeros(70, np.int64)
        probing.counting(counts).do()
        assert counts.tolist() == np.bincount([probe for probe, *_ in found], minlength=70).tolist()
        assert (probing.candidates, probing.is_done) == (candidates, True)


@pytest.mark.parametrize("module", [twins, native], ids=["twin", "native"])
def test_a_wrong_output_is_refused(module):
    column = np.arange(9)
    scan = module.Scan([column], [column], [0], [0])
    for wrong in (np.zeros(9, np.int32), np.zeros(18, np.int64)[::2]):
        with pytest.raises(KernelError, match="out_counts"):
            scan.counting(wrong)
    with pytest.raises(KernelError, match="out_counts"):
        module.RunsProbe([column], []).counting(np.zeros(8, np.int64))
    scan.counting(np.zeros(9, np.int64)).do()


def test_a_kernel_counts_once_and_only_what_was_not_written():
    column = np.arange(9)
    scan = native.Scan([column], [column], [0], [0])
    scan.counting(np.zeros(9, np.int64)).do()
    with pytest.raises(KernelError, match="already"):
        scan.counting(np.zeros(9, np.int64))
    probe = native.GridProbe(
        [column], [column], [0], [0],
        first=-1, second=0, width=1, bucket_ids=None, bucket_starts=None, probe_order=np.arange(9, dtype=np.int32) + 1,
    )  # fmt: skip
    with pytest.raises(KernelError, match="probe_order"):
        probe.counting(np.zeros(9, np.int64))
    assert TWIN.module is twins
