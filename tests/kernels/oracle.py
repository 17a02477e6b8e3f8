"""The join once more in plain Python: exact integers, IEEE floats, no index, no vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins


@dataclass(frozen=True)
class Kernel:
    """One implementation: the name to ask for, and the module that has it."""

    name: str
    module: Any

    def scan(self, left, right, lo, hi, **options):
        return self.module.Scan(left, right, lo, hi, implementation=self.name, **options)

    def grid_probe(self, left, right, lo, hi, **options):
        return self.module.GridProbe(left, right, lo, hi, implementation=self.name, **options)


TWIN = Kernel("reference", twins)
COMPILED = [Kernel(name, native) for name in native.implementations()]
KERNELS = [TWIN, *COMPILED]


def pair_matches(left, right, lo, hi) -> bool:
    """Whether one condition holds: exact for int, IEEE subtract-and-compare for float; without bounds, equality."""
    if lo is None:
        return left == right
    difference = left - right
    return lo <= difference <= hi


def matches(left, right, lo, hi) -> list[tuple[int, int]]:
    """Return all matching pairs (probe, run row), sorted."""
    left_values = [column.tolist() for column in left]
    right_values = [column.tolist() for column in right]
    conditions = list(zip(left_values, right_values, lo, hi, strict=True))
    return [
        (probe, row)
        for probe in range(len(left_values[0]))
        for row in range(len(right_values[0]))
        if all(pair_matches(ls[probe], rs[row], low, high) for ls, rs, low, high in conditions)
    ]


def array_matches(left, right, lo, hi) -> list[tuple[int, int]]:
    """Return what `matches` returns, by NumPy broadcasting; integers must be small enough not to overflow."""
    mask = np.ones((len(left[0]), len(right[0])), dtype=bool)
    with np.errstate(all="ignore"):
        for ls, rs, low, high in zip(left, right, lo, hi, strict=True):
            difference = ls[:, None] - rs[None, :]
            is_equality = low is None
            mask &= ls[:, None] == rs if is_equality else (difference >= low) & (difference <= high)
    return [(int(probe), int(row)) for probe, row in zip(*np.nonzero(mask), strict=True)]


def drain(join, capacity: int = 64) -> list[tuple[int, int]]:
    """Read a join to its end through buffers of this capacity; a write outside them is an error."""
    guard = 16
    out_probe = np.full(capacity + 2 * guard, -7, dtype=np.int32)
    out_row = np.full(capacity + 2 * guard, -7, dtype=np.int32)
    inside = slice(guard, guard + capacity)
    pairs: list[tuple[int, int]] = []
    while written := join.fill(out_probe[inside], out_row[inside]):
        assert 0 < written <= capacity
        for out in (out_probe, out_row):
            assert (out[:guard] == -7).all()
            assert (out[guard + capacity :] == -7).all()
        pairs += zip(out_probe[inside][:written].tolist(), out_row[inside][:written].tolist(), strict=True)
    assert join.fill(out_probe[inside], out_row[inside]) == 0
    return pairs


@dataclass(frozen=True)
class Layout:
    """A run and its probes in grid order, and the way back to the run's old order."""

    left: list[np.ndarray]
    right: list[np.ndarray]
    run_order: np.ndarray
    options: dict[str, Any]

    def original(self, pairs):
        """Translate run rows to the numbers they had before they were put in order."""
        return sorted((probe, int(self.run_order[row])) for probe, row in pairs)


def lay_out(left, right, lo, hi, *, first: int, second: int, width, module=twins) -> Layout:
    """Put both sides in grid order, as the engine does."""
    buckets = module.grid_buckets(right[first], width, 0) if first >= 0 else None
    start = module.probe_buckets(left[first], lo[first], hi[first], width) if first >= 0 else None
    nothing = np.zeros(len(right[0]), dtype=np.int64)
    run_order = module.grid_order(buckets, right[second] if second >= 0 else nothing)
    probe_order = module.grid_order(start, left[second] if second >= 0 else np.zeros(len(left[0]), dtype=np.int64))
    ids, starts = (None, None)
    if buckets is not None:
        ids, starts = module.bucket_directory(module.gather(buckets, run_order))
    laid_out = [module.gather(column, run_order) for column in right]
    return Layout(
        [module.gather(column, probe_order) for column in left],
        laid_out,
        run_order,
        {
            "first": first,
            "second": second,
            "width": width,
            "bucket_ids": ids,
            "bucket_starts": starts,
            "steps": module.step_starts(laid_out[second]) if first < 0 <= second else None,
            "probe_order": probe_order,
        },
    )


def neighbours(value: float, steps: int = 2) -> list[float]:
    """Return the value and the floats a few steps to either side of it."""
    around = [value]
    above = below = value
    for _ in range(steps):
        above, below = math.nextafter(above, math.inf), math.nextafter(below, -math.inf)
        around += [above, below]
    return around
