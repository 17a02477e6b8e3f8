"""Distances of pairs in steps: every implementation against plain Python, and what the boundary refuses."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError

MODULES = [native, twins]
KINDS = ["f8", "f4", "i8", "i4", "i2", "i1"]
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 3.0, math.inf, -math.inf, math.nan])
WHOLES = st.sampled_from([0, 1, -1, 3, -128, 127])
LARGE = [(1 << 63) - 1, -(1 << 63), 1 << 53, (1 << 53) + 1, 1 << 31, -(1 << 62)]
FLOAT_OPS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
WHOLE_OPS = {f"int {op}": work for op, work in FLOAT_OPS.items()}


@st.composite
def programs(draw):
    """Return steps, the kinds of the columns of probes and runs."""
    steps, gives, kinds = [], [], {"own": [], "other": []}
    for side in ("own", "other", *draw(st.lists(st.sampled_from(["own", "other", "float", "int"]), max_size=3))):
        if side in kinds:
            kind, wide = draw(st.sampled_from(KINDS)), draw(st.booleans())
            steps.append((side, len(kinds[side]), 1 if wide else None, kind[0] == "f"))
            kinds[side].append(kind)
            gives.append(kind[0] == "f" or wide)
        else:
            steps.append((side, draw(FLOATS if side == "float" else st.sampled_from([*LARGE, 2, 0])), None, False))
            gives.append(side == "float")
    for _ in range(draw(st.integers(0, 6))):
        left = draw(st.integers(0, len(steps) - 1))
        same = [number for number, is_float in enumerate(gives) if is_float == gives[left]]
        right = draw(st.sampled_from(same))
        alone = ["abs", "neg", "sqrt"] if gives[left] else ["int abs", "int neg", "widen"]
        op = draw(st.sampled_from([*alone, *(["add", "sub", "mul", "div"] if gives[left] else WHOLE_OPS)]))
        steps.append((op, left, None if op in alone else right, False))
        gives.append(gives[left] or op == "widen")
    return steps, kinds


def expected(steps, own, other):
    """Return the distance of one pair; None where int64 or float64 cannot hold one exactly."""
    found = []
    for op, left, right, is_float in steps:
        if op in ("own", "other"):
            value = (own if op == "own" else other)[left]
            found.append(float(value) if is_float or right else int(value))
        elif op in ("float", "int"):
            found.append(left)
        elif op == "widen":
            found.append(float(found[left]))
        elif op == "div":
            found.append(math.nan if found[right] == 0 else divided(found[left], found[right]))
        elif op == "sqrt":
            found.append(math.sqrt(found[left]) if not found[left] < 0 else math.nan)
        elif op in ("abs", "int abs"):
            found.append(abs(found[left]))
        elif op in ("neg", "int neg"):
            found.append(-found[left])
        else:
            found.append((FLOAT_OPS | WHOLE_OPS)[op](found[left], found[right]))
        if isinstance(found[-1], int) and not -(1 << 63) <= found[-1] < 1 << 63:
            return None
    if isinstance(found[-1], int) and abs(found[-1]) > 1 << 53:
        return None
    return float(found[-1])


def divided(left, right):
    with np.errstate(all="ignore"):
        return float(np.float64(left) / np.float64(right))


@pytest.mark.parametrize("module", MODULES)
@given(program=programs(), seed=st.integers(0, 1 << 30), pairs=st.sampled_from([0, 1, 7, 256, 300]))
def test_distances_are_those_of_plain_python(module, program, seed, pairs) -> None:
    steps, kinds = program
    dice = np.random.default_rng(seed)

    def column(kind, rows):
        if kind[0] == "f":
            values = [0.0, -0.0, 1.5, -2.25, 3.0, math.inf, -math.inf, math.nan]
        else:
            values = [0, 1, -1, 3, -128, 127, *(LARGE if kind == "i8" and seed % 3 == 0 else [])]
        return np.array(values, kind)[dice.integers(0, len(values), rows)]

    own = [column(kind, 5) for kind in kinds["own"]]
    runs = [[column(kind, rows) for kind in kinds["other"]] for rows in (4, 9)]
    run_numbers = dice.integers(0, 2, pairs).astype(np.int32)
    if seed % 2:
        run_numbers.sort()
    rows = dice.integers(0, 4, pairs).astype(np.int32)
    positions = dice.integers(0, 5, pairs).astype(np.int32)
    out = np.full(pairs, 7.0)
    made = module.PairDistances(steps)
    done = made.fill(own, module.RunColumns(runs), run_numbers, positions, rows, out)
    wanted = [
        expected(steps, [one[p] for one in own], [one[row] for one in runs[run]])
        for p, run, row in zip(positions, run_numbers, rows, strict=True)
    ]
    assert done == (None not in wanted)
    if done:
        assert [repr(value) for value in (out + 0.0).tolist()] == [repr(value + 0.0) for value in wanted]


@pytest.mark.parametrize("module", MODULES)
def test_what_is_outside_or_of_another_type_is_refused(module) -> None:
    own, other = ("own", 0, None, True), ("other", 0, None, True)
    for steps in (
        [], [own] * 25, [("power", 0, 1, False)], [("abs", 0, None, False)], [own, ("int abs", 0, None, False)],
        [own, ("add", 0, None, False)], [own, ("add", 0, 1, False)], [("own", 24, None, True)],
        [("own", -1, None, True)],
        [("int", 1 << 63, None, False)], [("float", 1.0, None, False), ("widen", 0, None, False)],
    ):  # fmt: skip
        with pytest.raises(KernelError):
            module.PairDistances(steps)
    distances = module.PairDistances([own, other, ("sub", 0, 1, False)])
    runs, one, zero, out = module.RunColumns([[np.zeros(3)]]), np.zeros(2), np.zeros(1, np.int32), np.zeros(1)
    assert distances.fill([one], runs, 0, zero, zero, out)
    wrong = [
        ([], runs, 0, zero, zero, out), ([one, one], runs, 0, zero, zero, out),
        ([one.astype(np.int64)], runs, 0, zero, zero, out), ([one.astype(np.float16)], runs, 0, zero, zero, out),
        ([one], module.RunColumns([[np.zeros(3, np.int16)]]), 0, zero, zero, out),
        ([one], module.RunColumns([[np.zeros(3), np.zeros(3)]]), 0, zero, zero, out),
        ([one], runs, 1, zero, zero, out), ([one], runs, 0, zero + 2, zero, out), ([one], runs, 0, zero - 1, zero, out),
        ([one], runs, 0, zero, zero + 3, out), ([one], runs, 0, zero, zero - 1, out),
        ([one], runs, 0, zero, np.zeros(2, np.int32), out), ([one], runs, 0, zero, zero, np.zeros(2)),
        ([one], runs, 0, np.zeros(2, np.int32), zero, out), ([one], runs, zero + 1, zero, zero, out),
        ([one], runs, 0, zero, zero, np.zeros(1, np.float32)),
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(KernelError):
            distances.fill(*arguments)
