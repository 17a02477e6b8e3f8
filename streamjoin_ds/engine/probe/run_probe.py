"""How one run is probed: which kernel, which conditions, which probes.

The run is passed over if the probes' keys, taken together, are out of reach of its zone map. A condition that the zone
map settles for all pairs is not tested. Probes whose event times are out of the run's reach are left out, if they are
many. The rest goes to the grid probe, or to the SIMD scan where the run's order helps no condition (CellJoin,
section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamjoin_ds.engine.arrays.kernels import Kernels
from streamjoin_ds.engine.reference.arguments import Column, Int32
from streamjoin_ds.engine.reference.kernel_objects import Probing, Task
from streamjoin_ds.engine.storage.conditions import ProbeCondition, serving
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.zone import Range
from streamjoin_ds.engine.tuning import ProbeTuning

__all__ = ["RunByRunProbe", "RunProbe"]

# Probes of a scan's tile (`SCAN_TILE_PROBES`). Parts begin at a tile, so that a scan in parts finds its pairs in the
# order of a whole scan.
_TILE_PROBES = 32


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One run and the part of the probes that it is to meet: number `part` of `parts`."""

    place: int
    run: Probed
    part: int = 0
    parts: int = 1

    def of(self, count: int) -> slice:
        """Return which of `count` probes are in this part."""
        tiles = -(-count // _TILE_PROBES)
        begin, end = (tiles * part // self.parts * _TILE_PROBES for part in (self.part, self.part + 1))
        return slice(begin, min(end, count))


class RunProbe:
    """Probes that are ready to meet runs, one run after the other.

    Parameters
    ----------
    kernels : Kernels
    conditions : sequence of ProbeCondition
    columns : list of ndarray, shape (n_probe,), float64 or int64
        The probes' keys, one array for each condition.
    count : int
    tuning : ProbeTuning
    """

    def __init__(
        self,
        kernels: Kernels,
        conditions: Sequence[ProbeCondition],
        columns: Sequence[Column],
        count: int,
        tuning: ProbeTuning,
    ) -> None:
        self._kernels, self._tuning = kernels, tuning
        self._conditions = conditions
        self._columns = columns
        self.count = count
        self._ranges = [(column.min().item(), column.max().item()) for column in columns] if count else []
        self._orders: dict[tuple[int, int, int | float], tuple[Int32, list[Column]]] = {}

    def against(self, stretch: _Stretch) -> tuple[Probing, int] | None:
        """Return the kernel that finds the matches in a run, and the number to add to the probes that it writes.

        None: nothing can match.
        """
        run = stretch.run
        zones = [run.zone[condition.run_key] for condition in self._conditions]
        bounds = [(condition.lo, condition.hi) for condition in self._conditions]
        checks = list(zip(self._ranges, zones, bounds, strict=True))
        if not self.count or not run.rows or any(not _may_match(*check) for check in checks):
            return None
        open_conditions = [number for number, check in enumerate(checks) if not _always_matches(*check)]
        first, second = serving(run.sort_layout, self._conditions)
        sorted_keys = run.in_order
        if self.count * run.rows <= self._tuning.scan_pairs or (first < 0 and second < 0) or sorted_keys is None:
            return self._scan(run, open_conditions, stretch.of(self.count))
        order, columns = self._trimmed(*self._ordered(run, first, second), run)
        if not len(order):
            return None
        part = stretch.of(len(order))
        if part.start >= part.stop:
            return None
        used = [n for n in range(len(self._conditions)) if n in open_conditions or n in (first, second)]
        ids, starts = sorted_keys.directory if first >= 0 else (None, None)
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

    def in_parts(self, runs: Sequence[Probed], threads: int) -> list[RunByRunProbe]:
        """Return the probing of all runs, in parts whose pairs follow each other; several for each of `threads`.

        There are fewer parts where more would be too small to be worth a thread.
        """
        if threads == 1:
            return [RunByRunProbe(self, [_Stretch(place, run) for place, run in enumerate(runs)])]
        part_rows = max(sum(run.rows for run in runs) // (threads * self._tuning.parts_per_thread), 1)
        parts: list[list[_Stretch]] = [[]]
        for stretch in self._stretches(runs, part_rows):
            if sum(other.run.rows // other.parts for other in parts[-1]) >= part_rows:
                parts.append([])
            parts[-1].append(stretch)
        return [RunByRunProbe(self, part) for part in parts]

    def _stretches(self, runs: Sequence[Probed], part_rows: int) -> Iterator[_Stretch]:
        most = max(self.count // self._tuning.least_part_probes, 1)
        for place, run in enumerate(runs):
            parts = min(max(run.rows // part_rows, 1), most)
            yield from (_Stretch(place, run, part, parts) for part in range(parts))

    def _scan(self, run: Probed, used: Sequence[int], part: slice) -> tuple[Probing, int] | None:
        if part.start >= part.stop:
            return None
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
        """Return the probes in the order in which they walk through the run; kept for other runs of that layout."""
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
        """Return the probes whose event time is within reach of the run, or all where that would leave out few."""
        mask = None
        for number, condition in enumerate(self._conditions):
            if condition.run_key != 0 or condition.probe_key != 0:
                continue
            oldest, newest = int(run.zone[0][0] + condition.lo), int(run.zone[0][1] + condition.hi)
            smallest, largest = self._ranges[number]
            reach = min(newest, largest) - max(oldest, smallest) + 1
            if reach < self._tuning.trim_share * (largest - smallest + 1):
                times = columns[number]
                inside = (times >= max(oldest, smallest)) & (times <= min(newest, largest))
                mask = inside if mask is None else mask & inside
        if mask is None:
            return order, columns
        return order[mask], [column[mask] for column in columns]


class RunByRunProbe:
    """A probing of some runs, one after the other, by a kernel for each; each pair has the number of its run.

    Parameters
    ----------
    probes : RunProbe
    stretches : sequence of _Stretch

    Attributes
    ----------
    candidates : int
        Pairs tested so far, in the runs that are finished.
    """

    def __init__(self, probes: RunProbe, stretches: Sequence[_Stretch]) -> None:
        self._probes, self._stretches, self._number = probes, stretches, -1
        self._kernel: Probing | None = None
        self._first_probe = 0
        self._out: tuple[Int32, Int32] | None = None
        self.candidates = 0

    @property
    def row_count(self) -> int:
        """The rows of the runs; a run that only a part of the probes meets counts with as large a part of its rows."""
        return sum(stretch.run.rows // stretch.parts for stretch in self._stretches)

    @property
    def is_done(self) -> bool:
        """Whether there are no more pairs."""
        return self._kernel is None and self._number + 1 >= len(self._stretches)

    def filling(self, out_probe: Int32, out_run: Int32, out_place: Int32) -> Task[int] | None:
        """Return a task that writes the next pairs, if any; tell `took` how many. None: there are no more."""
        while self._kernel is None:
            if self.is_done:
                return None
            self._number += 1
            found = self._probes.against(self._stretches[self._number])
            if found is not None:
                self._kernel, self._first_probe = found
        self._out = out_probe, out_place
        return self._kernel.filling(out_probe, out_run)

    def took(self, count: int) -> None:
        """Complete the `count` pairs that the last task wrote; 0: its run is finished."""
        assert self._kernel is not None, "a task comes first"
        assert self._out is not None, "a task comes first"
        if not count:
            self.candidates += self._kernel.candidates
            self._kernel = None
            return
        out_probe, out_place = self._out
        out_place[:count] = self._stretches[self._number].place
        if self._first_probe:
            out_probe[:count] += np.int32(self._first_probe)

    @property
    def tested_pairs(self) -> int:
        """How many pairs are done: those of finished runs, tested or left out, and the tested ones of this run."""
        before = sum(stretch.run.rows // stretch.parts for stretch in self._stretches[: max(self._number, 0)])
        return self._probes.count * before + (0 if self._kernel is None else self._kernel.candidates)


def _may_match(probe: Range, run: Range, bounds: Range) -> bool:
    # Float subtraction is monotone, with rounding too, so this is exact for floats. NaN (inf - inf) rules nothing out.
    with np.errstate(invalid="ignore"):
        return not (probe[1] - run[0] < bounds[0] or probe[0] - run[1] > bounds[1])


def _always_matches(probe: Range, run: Range, bounds: Range) -> bool:
    return bool(probe[0] - run[1] >= bounds[0] and probe[1] - run[0] <= bounds[1])
