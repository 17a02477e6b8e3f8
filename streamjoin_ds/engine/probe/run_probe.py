"""The probing of one run: which kernel, which conditions, which probes, and which share of it for each thread.

The run is passed over if the probes' keys, taken together, are out of reach of its zone map. A condition that the zone
map settles for all pairs is not tested. Probes whose event times are out of the run's reach are left out, if they are
many. The rest goes to the grid probe, or to the SIMD scan where the run's order helps no condition (CellJoin,
section 5).

*Shares of like cost* say where the work of a probing, or a batch of new tuples, is cut for several threads::

    runs, by what a probe costs there     |  0  |        1        | 2 | 3 |   4   |
    three parts of like cost              |----------->|<---------->|<----------->|
                                                       └── run 1 is cut by its probes, run 3's edge is near enough

CellJoin deals basic windows of one size to threads, the same number to each (Gedik et al., 2007, eq. 2). Runs
differ in size, so here they count by their cost, and a large one is cut. It is cut by its probes, never by its rows,
because its pairs come probe after probe: so the parts, one after the other, give the pairs in the order of one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

import numpy as np
from msgspec import Struct

from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.engine.kernels.objects import Column, Int32, Int64, PartnerSums, Probing, RunsProbe, Task
from streamjoin_ds.engine.storage.conditions import ProbeCondition, past_of, serving
from streamjoin_ds.engine.storage.run import Probed
from streamjoin_ds.engine.storage.run_form import Range
from streamjoin_ds.engine.storage.sort_layout import SortLayout
from streamjoin_ds.engine.tuning import ProbeTuning

__all__ = ["Neighbours", "RunByRunProbe", "RunProbe", "Stretch", "even_edges", "like_shares", "tiles_of"]

# Probes of a scan's tile (`SCAN_TILE_PROBES`). A cut is at a tile, so that a scan in parts finds its pairs in the order
# of a whole scan.
_TILE_PROBES = 32

_LINE_KEYS = 8  # keys in a line of the cache


def tiles_of(count: int) -> int:
    """Return how many tiles `count` probes are; a run's probes can be cut between two of them."""
    return -(-count // _TILE_PROBES)


class Stretch(NamedTuple):
    """A run, and the probes that meet it: of `parts` equal parts of all probes, those from `begin` to `end`.

    Attributes
    ----------
    run_number : int
        The number of the run.
    """

    run_number: int
    begin: int = 0
    end: int = 1
    parts: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether all probes meet the run."""
        return self.end - self.begin == self.parts

    def of(self, count: int) -> slice:
        """Return which of `count` probes, in the order in which they meet the run, are in this stretch."""
        begin, end = (tiles_of(count) * edge // self.parts * _TILE_PROBES for edge in (self.begin, self.end))
        return slice(begin, min(end, count))

    def share_of(self, rows: int) -> int:
        """Return how many of a run's rows count for this stretch: the same share as of the probes."""
        return rows * (self.end - self.begin) // self.parts


def even_edges(count: int, parts: int, step: int = 1) -> list[int]:
    """Return where to cut `count` things into parts of like size, each but the last a multiple of `step`.

    It is CellJoin's eq. 2 (Gedik et al., 2007), with the larger parts spread and not first: the last step may be short.
    """
    steps = -(-count // step)
    parts = max(min(parts, steps), 1)
    return [min(steps * part // parts * step, count) for part in range(parts + 1)]


def like_shares(costs: Sequence[float], parts: int, tiles: int, snap_share: float) -> list[list[Stretch]]:
    """Return parts of like cost that follow each other, as stretches of runs.

    Parameters
    ----------
    costs : sequence of float
        What all probes cost in each run, in any unit.
    parts : int
        How many parts are wanted. There are fewer where a part would have nothing.
    tiles : int
        In how many equal parts the probes of a run may be cut.
    snap_share : float
        A cut moves to the edge of a run if the edge is nearer than this share of a part's cost: one more kernel call,
        for a few probes, would cost more than the better balance gains.
    """
    before = [0.0, *accumulate(costs)]
    share = before[-1] / parts
    edges = [(0, 0)]
    for part in range(1, parts if before[-1] > 0 else 1):
        edge = _edge(before, share * part, tiles, snap_share * share)
        if edge > edges[-1]:
            edges.append(edge)
    end = (len(costs), 0)
    found = [_between(begin, after, tiles) for begin, after in pairwise([*edges, end]) if after > begin]
    return [stretches for stretches in found if stretches]


def _edge(before: Sequence[float], target: float, tiles: int, near: float) -> tuple[int, int]:
    """Return the run, and the tile of its probes, before which `target` of the cost lies."""
    number = min(bisect_right(before, target), len(before) - 1) - 1
    low, high = target - before[number], before[number + 1] - target
    if min(low, high) <= near:
        return (number, 0) if low <= high else (number + 1, 0)
    tile = round(tiles * low / (low + high))
    return (number, tile) if tile < tiles else (number + 1, 0)


def _between(begin: tuple[int, int], end: tuple[int, int], tiles: int) -> list[Stretch]:
    """Return the stretches from one edge to another."""
    stretches = []
    for number in range(begin[0], end[0] + 1):
        low, high = begin[1] if number == begin[0] else 0, end[1] if number == end[0] else tiles
        if high - low == tiles:
            stretches.append(Stretch(number))
        elif high > low:
            stretches.append(Stretch(number, low, high, tiles))
    return stretches


class Neighbours(Struct, frozen=True):
    """Neighbouring runs that all probes meet in one kernel: the number of the first, the kernel, the rows of all."""

    run_number: int
    kernel: RunsProbe
    rows: int


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
        self._intervals = [(column.min().item(), column.max().item()) for column in columns] if count else []
        self._orders: dict[tuple[int, int, int | float], tuple[Int32, list[Column]]] = {}

    def against(self, run: Probed, stretch: Stretch) -> tuple[Probing, int] | None:
        """Return the kernel that finds the matches in a run, and the number to add to the probes that it writes.

        None: nothing can match.
        """
        checks = self._checks(run)
        if not self.count or not run.rows or any(not _may_match(*check) for check in checks):
            return None
        open_conditions = [number for number, check in enumerate(checks) if not _always_matches(*check)]
        first, second = serving(run.sort_layout, self._conditions)
        sorted_keys = run.in_order
        if self.count * run.rows <= self._tuning.scan_pairs or (first < 0 and second < 0) or sorted_keys is None:
            return self._scan(run, open_conditions, stretch.of(self.count))
        past = past_of(second, self._conditions)
        order, columns = self._trimmed(*self._ordered(run, first, second), run)
        if not len(order):
            return None
        part = stretch.of(len(order))
        if part.start >= part.stop:
            return None
        used = [n for n in range(len(self._conditions)) if n in open_conditions or n in (first, second, past)]
        ids, starts = sorted_keys.directory if first >= 0 else (None, None)
        kernel = self._kernels.module.GridProbe(
            [columns[n][part] for n in used],
            [run.key(self._conditions[n].run_key) for n in used],
            [self._conditions[n].ends[0] for n in used],
            [self._conditions[n].ends[1] for n in used],
            first=used.index(first) if first >= 0 else -1,
            second=used.index(second) if second >= 0 else -1,
            width=run.sort_layout.width,
            bucket_ids=ids,
            bucket_starts=starts,
            probe_order=order[part],
            fences=sorted_keys.fences if second >= 0 else None,
            steps=sorted_keys.steps if second >= 0 else None,
            implementation=self._kernels.implementation,
            past=used.index(past) if past >= 0 else -1,
            interval_lo=sorted_keys.interval_lo(second, past, self._conditions),
        )
        return kernel, 0

    def costs(self, runs: Sequence[Probed]) -> list[float]:
        """Return what all probes cost in each run, in nanoseconds; 0 where none can match.

        For every sorted run the share of rows that a probe tests is taken to be that of the largest: a stream's runs
        are alike, and to sample each would cost more than it gains.
        """
        tuning, count = self._tuning, self.count
        reaches = [
            (condition.run_key, smallest - condition.hi, largest - condition.lo)
            for condition, (smallest, largest) in zip(self._conditions, self._intervals, strict=True)
        ]
        served: dict[SortLayout, tuple[int, int]] = {}
        for run in runs:
            if run.sort_layout not in served:
                served[run.sort_layout] = serving(run.sort_layout, self._conditions)
        indexed = [run for run in runs if max(served[run.sort_layout]) >= 0]
        largest_run = max(indexed, key=lambda run: run.rows).in_order if indexed else None
        buckets, share = (0.0, 1.0) if largest_run is None else largest_run.visits(self._conditions)
        costs = []
        for run in runs:
            first, second = served[run.sort_layout]
            zone, rows = run.zone, run.rows
            if not rows or any(zone[key][1] < low or zone[key][0] > high for key, low, high in reaches):
                costs.append(0.0)
            elif (first < 0 and second < 0) or count * rows <= tuning.scan_pairs:
                costs.append(count * rows * tuning.scanned_pair_ns)
            else:
                visit_ns = tuning.probed_run_ns if first < 0 else tuning.probed_bucket_ns * max(buckets, 1.0)
                missed_ns = tuning.missed_line_ns * min(rows / (_LINE_KEYS * count), 1.0)
                costs.append(count * (visit_ns + missed_ns + rows * share * tuning.tested_pair_ns))
        return costs

    def _checks(self, run: Probed) -> list[tuple[Range, Range, Range]]:
        """Return for each condition the values of the probes, the values of the run, and the bounds."""
        zones = [run.zone[condition.run_key] for condition in self._conditions]
        bounds = [(condition.lo, condition.hi) for condition in self._conditions]
        return list(zip(self._intervals, zones, bounds, strict=True))

    def _scan(self, run: Probed, used: Sequence[int], part: slice) -> tuple[Probing, int] | None:
        if part.start >= part.stop:
            return None
        kernel = self._kernels.module.Scan(
            [self._columns[n][part] for n in used],
            [run.key(self._conditions[n].run_key) for n in used],
            [self._conditions[n].ends[0] for n in used],
            [self._conditions[n].ends[1] for n in used],
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
            # A batch that became a run in this very order is in it already.
            is_kept = np.array_equal(order, np.arange(self.count, dtype=np.int32))
            columns = self._columns if is_kept else [module.gather(column, order) for column in self._columns]
            self._orders[place] = (order, list(columns))
        return self._orders[place]

    def _trimmed(self, order: Int32, columns: list[Column], run: Probed) -> tuple[Int32, list[Column]]:
        """Return the probes whose event time is within reach of the run, or all where that would leave out few."""
        mask = None
        for number, condition in enumerate(self._conditions):
            if condition.run_key != 0 or condition.probe_key != 0:
                continue
            oldest, newest = int(run.zone[0][0] + condition.lo), int(run.zone[0][1] + condition.hi)
            smallest, largest = self._intervals[number]
            reach = min(newest, largest) - max(oldest, smallest) + 1
            if reach < self._tuning.trim_share * (largest - smallest + 1):
                times = columns[number]
                inside = (times >= max(oldest, smallest)) & (times <= min(newest, largest))
                mask = inside if mask is None else mask & inside
        if mask is None:
            return order, columns
        return order[mask], [column[mask] for column in columns]


class RunByRunProbe:
    """A probing of some runs, one after the other; each pair has the number of its run.

    Parameters
    ----------
    probes : RunProbe
    runs : sequence of Probed
        The runs to which the run numbers of steps and pairs refer.
    steps : sequence of Stretch or Neighbours
        What is probed, in this order. The run of a stretch has a kernel of its own; neighbours share one.

    Attributes
    ----------
    candidates : int
        Pairs tested so far, in the steps that are finished.
    """

    def __init__(self, probes: RunProbe, runs: Sequence[Probed], steps: Sequence[Stretch | Neighbours]) -> None:
        self._probes, self._steps, self._number = probes, steps, -1
        self._runs = runs
        self._rows = [
            step.rows if isinstance(step, Neighbours) else step.share_of(runs[step.run_number].rows) for step in steps
        ]
        self._kernel: Probing | RunsProbe | None = None
        self._first_probe = 0
        self._out: tuple[Int32, Int32] | None = None
        self.candidates = 0

    @property
    def row_count(self) -> int:
        """The rows of the runs; a run that only a share of the probes meets counts with that share of its rows."""
        return sum(self._rows)

    @property
    def is_one_task(self) -> bool:
        """Whether one task finds all pairs, where there is room for them."""
        return len(self._steps) == 1 and isinstance(self._steps[0], Neighbours)

    @property
    def is_done(self) -> bool:
        """Whether there are no more pairs."""
        return self._kernel is None and self._number + 1 >= len(self._steps)

    def filling(self, out_probe: Int32, out_row: Int32, out_run: Int32) -> Task[int] | None:
        """Return a task that writes the next pairs, if any; tell `took` how many. None: there are no more."""
        while self._kernel is None:
            if self.is_done:
                return None
            self._number += 1
            step = self._steps[self._number]
            if isinstance(step, Neighbours):
                self._kernel, self._first_probe = step.kernel, 0
            elif (found := self._probes.against(self._runs[step.run_number], step)) is not None:
                self._kernel, self._first_probe = found
        self._out = out_probe, out_run
        step = self._steps[self._number]
        if isinstance(step, Neighbours):
            return step.kernel.filling(out_probe, out_row, out_run)
        return cast("Probing", self._kernel).filling(out_probe, out_row)

    def counting(self, out_counts: Int64, sums: PartnerSums | None = None) -> Iterator[Task[None]]:
        """Yield tasks that add to each probe's count how many pairs it has; do each before the next one is asked for.

        It takes the place of `filling`.
        """
        for step in self._steps:
            if isinstance(step, Neighbours):
                kernel: Probing | RunsProbe = step.kernel
                yield kernel.counting(out_counts, sums, step.run_number)
            elif (found := self._probes.against(self._runs[step.run_number], step)) is not None:
                kernel, first = found
                yield kernel.counting(out_counts[first:], sums, step.run_number, first)
            else:
                continue
            self.candidates += kernel.candidates

    def took(self, count: int) -> None:
        """Complete the `count` pairs that the last task wrote; 0: its step is finished."""
        assert self._kernel is not None, "a task comes first"
        assert self._out is not None, "a task comes first"
        out_probe, out_run = self._out
        step = self._steps[self._number]
        if isinstance(step, Neighbours):
            out_run[:count] += np.int32(step.run_number)
        else:
            out_run[:count] = step.run_number
        if self._first_probe:
            out_probe[:count] += np.int32(self._first_probe)
        if not count or (isinstance(step, Neighbours) and step.kernel.is_done):
            self.candidates += self._kernel.candidates
            self._kernel = None

    @property
    def tested_pairs(self) -> int:
        """How many pairs are done: those of finished steps, tested or left out, and the tested ones of this step."""
        before = sum(self._rows[: max(self._number, 0)])
        return self._probes.count * before + (0 if self._kernel is None else self._kernel.candidates)


def _may_match(probe: Range, run: Range, bounds: Range) -> bool:
    # Float subtraction is monotone, with rounding too, so this is exact for floats. NaN (inf - inf) rules nothing out.
    with np.errstate(invalid="ignore"):
        return not (probe[1] - run[0] < bounds[0] or probe[0] - run[1] > bounds[1])


def _always_matches(probe: Range, run: Range, bounds: Range) -> bool:
    return bool(probe[0] - run[1] >= bounds[0] and probe[1] - run[0] <= bounds[1])
