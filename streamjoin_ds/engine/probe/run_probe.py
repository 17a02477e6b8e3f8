"""Probing one run with a block of partial results: which kernel, which conditions, which probes.

A probe may take part only if its keys lie within reach of the run's zone map; a condition that the zone maps already
settle for all pairs is left out; what remains goes to the grid probe, or to the SIMD scan where the run's order helps
no condition (CellJoin, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import pairwise

import numpy as np

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.probe.parallel_probe import PairKernel, ParallelProbe, slice_edges
from streamjoin_ds.engine.reference.arguments import Column, Int32
from streamjoin_ds.engine.storage.conditions import ProbeCondition, serving
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.zone import Range

__all__ = ["RunProbe"]

_SCAN_PAIRS = 4096
_TRIM_SHARE = 0.7


class RunProbe:
    """A block of probes, ready to meet runs.

    Parameters
    ----------
    kernels : Kernels
    conditions : sequence of ProbeCondition
    columns : list of ndarray, shape (n_probe,), float64 or int64
        The probe's key of each condition.
    count : int
    executor : concurrent.futures.Executor, optional
        Where there is one, `threads` kernels work side by side on slices of the probes.
    """

    def __init__(
        self,
        kernels: Kernels,
        conditions: Sequence[ProbeCondition],
        columns: Sequence[Column],
        count: int,
        executor: Executor | None = None,
        threads: int = 1,
    ) -> None:
        self._kernels = kernels
        self._executor = executor
        self._threads = threads if executor is not None else 1
        self._conditions = conditions
        self._columns = columns
        self.count = count
        self._ranges = [(column.min().item(), column.max().item()) for column in columns] if count else []
        self._orders: dict[tuple[int, int, int | float], tuple[Int32, list[Column]]] = {}

    def against(self, run: Probed) -> PairKernel | None:
        """The kernel that finds this run's matches, or None where the zone map says there are none."""
        zones = [run.zone[condition.run_key] for condition in self._conditions]
        bounds = [(condition.lo, condition.hi) for condition in self._conditions]
        checks = list(zip(self._ranges, zones, bounds, strict=True))
        if not self.count or not run.rows or any(not _may_match(*check) for check in checks):
            return None
        open_conditions = [number for number, check in enumerate(checks) if not _always_matches(*check)]
        first, second = serving(run.sort_layout, self._conditions)
        sorted_keys = run.in_order
        if self.count * run.rows <= _SCAN_PAIRS or (first < 0 and second < 0) or sorted_keys is None:
            return self._sliced(self.count, lambda part: self._scan(run, open_conditions, part))
        order, columns = self._trimmed(*self._ordered(run, first, second), run)
        if not len(order):
            return None
        used = [n for n in range(len(self._conditions)) if n in open_conditions or n in (first, second)]
        ids, starts = sorted_keys.directory if first >= 0 else (None, None)

        def walk(part: slice) -> tuple[PairKernel, int]:
            kernel = self._kernels.module.GridProbe(
                [columns[n][part] for n in used],
                [run.key(self._conditions[n].run_key) for n in used],
                [self._conditions[n].lo for n in used],
                [self._conditions[n].hi for n in used],
                first=used.index(first) if first >= 0 else -1,
                second=used.index(second) if second >= 0 else -1,
                width=run.sort_layout.width,
                bucket_ids=ids,
                bucket_starts=starts,
                probe_order=order[part],
                fences=sorted_keys.fences if second >= 0 else None,
                steps=sorted_keys.steps if second >= 0 else None,
                implementation=self._kernels.implementation,
            )
            return kernel, 0

        return self._sliced(len(order), walk)

    def over(self, runs: Sequence[Probed]) -> RunByRunProbe:
        """The kernels of all runs, one after the other, as `RunsProbe` is."""
        return RunByRunProbe(self, runs)

    def _sliced(self, count: int, kernel: Callable[[slice], tuple[PairKernel, int]]) -> PairKernel:
        """One kernel over all probes, or several side by side."""
        edges = slice_edges(count, self._threads)
        parts = [kernel(slice(begin, end)) for begin, end in pairwise(edges)]
        if len(parts) == 1 or self._executor is None:
            return parts[0][0]
        return ParallelProbe(parts, self._executor, self._threads)

    def _scan(self, run: Probed, used: Sequence[int], part: slice) -> tuple[PairKernel, int]:
        kernel = self._kernels.module.Scan(
            [self._columns[n][part] for n in used],
            [run.key(self._conditions[n].run_key) for n in used],
            [self._conditions[n].lo for n in used],
            [self._conditions[n].hi for n in used],
            self._kernels.implementation,
            left_count=part.stop - part.start,
            right_count=run.rows,
        )
        return kernel, part.start

    def _ordered(self, run: Probed, first: int, second: int) -> tuple[Int32, list[Column]]:
        """The probes in the order in which they walk through the run; kept for the next run of the same layout."""
        place = (first, second, run.sort_layout.width if first >= 0 else 0)
        if place not in self._orders:
            module = self._kernels.module
            buckets = None
            if first >= 0:
                condition = self._conditions[first]
                buckets = module.probe_buckets(self._columns[first], condition.lo, condition.hi, run.sort_layout.width)
            within = self._columns[second] if second >= 0 else np.zeros(self.count, dtype=np.int64)
            order = module.grid_order(buckets, within)
            self._orders[place] = (order, [module.gather(column, order) for column in self._columns])
        return self._orders[place]

    def _trimmed(self, order: Int32, columns: list[Column], run: Probed) -> tuple[Int32, list[Column]]:
        """The probes whose event time is within reach of the run's, where that leaves out many."""
        mask = None
        for number, condition in enumerate(self._conditions):
            if condition.run_key != 0 or condition.probe_key != 0:
                continue
            oldest, newest = int(run.zone[0][0] + condition.lo), int(run.zone[0][1] + condition.hi)
            smallest, largest = self._ranges[number]
            reach = min(newest, largest) - max(oldest, smallest) + 1
            if reach < _TRIM_SHARE * (largest - smallest + 1):
                times = columns[number]
                inside = (times >= max(oldest, smallest)) & (times <= min(newest, largest))
                mask = inside if mask is None else mask & inside
        if mask is None:
            return order, columns
        return order[mask], [column[mask] for column in columns]


class RunByRunProbe:
    """The kernels of several runs, seen as one; each pair carries the number of its run."""

    def __init__(self, probes: RunProbe, runs: Sequence[Probed]) -> None:
        self._probes, self._runs, self._place = probes, runs, -1
        self._kernel: PairKernel | None = None
        self.candidates = 0

    def fill(self, out_probe: Int32, out_run: Int32, out_place: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        while True:
            if self._kernel is not None:
                count = self._kernel.fill(out_probe, out_run)
                if count:
                    out_place[:count] = self._place
                    return count
                self.candidates += self._kernel.candidates
                self._kernel = None
            if self._place + 1 >= len(self._runs):
                return 0
            self._place += 1
            self._kernel = self._probes.against(self._runs[self._place])

    @property
    def tested_pairs(self) -> int:
        """Pairs that are done with: those of the runs before, left out by an index or not, and tested ones."""
        before = sum(run.rows for run in self._runs[: max(self._place, 0)])
        return self._probes.count * before + (0 if self._kernel is None else self._kernel.candidates)


def _may_match(probe: Range, run: Range, bounds: Range) -> bool:
    # Float subtraction is monotone, rounding included: exact for floats too; NaN (inf - inf) decides nothing.
    with np.errstate(invalid="ignore"):
        return not (probe[1] - run[0] < bounds[0] or probe[0] - run[1] > bounds[1])


def _always_matches(probe: Range, run: Range, bounds: Range) -> bool:
    return bool(probe[0] - run[1] >= bounds[0] and probe[1] - run[0] <= bounds[1])
