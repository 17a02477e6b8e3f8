"""The nearest partners of tuples that are decided at their horizon: kept while pairs come, then made into rows.

::

    pairs of a chunk ──► distance ──► select ──► ts, seq ──► keep ──► ... ──► ranked ──► rows
                         of each      by it      of few               the k nearest of each tuple

Pairs are never all there at once: a chunk of them is, and the nearest of each tuple so far. `NearestPairs` is the
kernel; its twin says what it does. Where other cells have partners of the same tuples, rows tell how near the partner
is (`NEARNESS`): whoever puts the cells' rows together keeps the nearest of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.probe.distance_steps import DistanceSteps
from streamjoin_ds.engine.probe.pipeline import JoinPipeline
from streamjoin_ds.engine.probe.probe_batch import ProbeBatch
from streamjoin_ds.engine.probe.results import PartialResults
from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.engine.threads.tasks import TaskCoroutine
from streamjoin_ds.engine.tuning.windows import NearestTuning
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["NEARNESS", "NearestPartners", "NearestRows", "with_nearness"]

Int32 = npt.NDArray[np.int32]

# What partners of one tuple are compared by, before their numbers: the distance in two parts (`Distance.values`) and
# the time in microseconds. They are the last columns of a row that is not whole; null where it has no partner.
NEARNESS = {"near": pa.float64(), "near_rest": pa.int64(), "near_us": pa.int64()}


class NearestPartners:
    """The reduction that keeps the nearest partners of some tuples.

    Parameters
    ----------
    bound : BoundJoin
        With a distance.
    arrived : ProbeBatch
        The tuples.
    steps : DistanceSteps
        What the kernel calculates of the distance.
    """

    def __init__(self, bound: BoundJoin, arrived: ProbeBatch, steps: DistanceSteps) -> None:
        assert bound.distance is not None, "the join has a distance"
        assert bound.join.nearest is not None, "the join has nearest partners"
        self._bound, self._distance = bound, bound.distance
        self._stream, self._selection = arrived.stream, arrived.selection
        module = arrived.selection.run_set.module
        self._pairs = module.NearestPairs(len(arrived.selection), bound.join.nearest.k)
        self._steps, self._own = steps, steps.own_columns(arrived.selection)
        self._found: Selection | None = None  # the partners that were found last

    def add(self, positions: Int32, found: Selection) -> None:
        """Take some pairs; see `Reduction`."""
        if not len(positions):
            return
        self._found = found
        distances, rest = self._distances(positions, found)
        selected = self._pairs.select(positions, distances)
        if not len(selected):
            return
        near = found.take(selected)
        rests = np.zeros(len(selected), np.int64) if rest is None else rest[selected]
        ties = [rests, near.times_us(), sequence_numbers(near)]
        assert near.rows is not None, "partners are rows of runs"
        places = np.full(len(selected), near.places, np.int32) if isinstance(near.places, int) else near.places
        self._pairs.keep(positions[selected], distances[selected], ties, places, near.rows)

    def nearness(self, positions: Int32, partners: Selection) -> list[pa.Array]:
        """Return the columns `NEARNESS` of some pairs."""
        distances, rest = self._distances(positions, partners)
        rests = np.zeros(len(positions), np.int64) if rest is None else rest
        return [pa.array(distances), pa.array(rests), pa.array(partners.times_us())]

    def _distances(
        self, positions: Int32, found: Selection
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64] | None]:
        distances = None if self._own is None else self._steps.values(self._own, positions, found)
        if distances is not None:
            return distances, None
        return self._distance.values(len(positions), self._columns(positions, found))

    def _columns(self, positions: Int32, found: Selection) -> Callable[[Column], pa.Array]:
        mine, names = self._selection.take(positions), self._bound.member_names
        gathered: dict[Column, pa.Array] = {}  # a distance often names a column twice: (e.x - w.x) * (e.x - w.x)

        def column(wanted: Column) -> pa.Array:
            if wanted not in gathered:
                stream = names.index(wanted.stream)
                selection = mine if stream == self._stream else found
                gathered[wanted] = selection.column(self._bound.compared_name(stream, wanted.name))
            return gathered[wanted]

        return column

    def ranked(self) -> tuple[Int32, Selection | None]:
        """Return how many partners each tuple has, and these, each tuple's nearest first; None: there is none."""
        counts, places, rows = self._pairs.ranked()
        return counts, None if self._found is None else Selection(self._found.run_set, rows, places)


class NearestRows:
    """The rows of tuples with their nearest partners.

    Parameters
    ----------
    bound : BoundJoin
        With a distance.
    joining : JoinPipeline
    tuning : NearestTuning
    """

    def __init__(self, bound: BoundJoin, joining: JoinPipeline, tuning: NearestTuning) -> None:
        assert bound.join.nearest is not None, "the join has nearest partners"
        self._bound, self._joining = bound, joining
        self._steps: DistanceSteps | None = None
        self._tuples = max(tuning.most_kept // bound.join.nearest.k, 1)

    def reduction(self, arrived: ProbeBatch) -> NearestPartners:
        """Return what keeps the nearest partners of some tuples."""
        if self._steps is None:
            self._steps = DistanceSteps(self._bound, arrived.selection.run_set.module)
        return NearestPartners(self._bound, arrived, self._steps)

    def slices(self, arrived: ProbeBatch) -> Iterator[ProbeBatch]:
        """Yield some tuples in parts, of which all nearest partners are kept at a time."""
        edges = [*range(0, len(arrived.selection), self._tuples), len(arrived.selection)]
        for begin, end in pairwise(edges):
            yield arrived.part(begin, end)

    def cut(
        self, arrived: ProbeBatch, counts: Int32, partners: Selection, nearest: NearestPartners | None = None
    ) -> Iterator[TaskCoroutine[pa.Table]]:
        """Yield what makes the rows, a chunk at a time: each tuple with each of its partners, in order.

        With `nearest`, which found the partners, rows have the columns `NEARNESS`.
        """
        positions = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        ranks = np.arange(1, len(positions) + 1, dtype=np.int64)
        ranks -= np.repeat(np.cumsum(counts, dtype=np.int64) - counts, counts)
        for begin, end in self._joining.cuts(len(positions)):
            block: PartialResults = {
                arrived.stream: arrived.selection.take(positions[begin:end]),
                1 - arrived.stream: partners.part(begin, end),
            }
            rows = self._joining.rows(block, ranks[begin:end] if self._bound.has_ranks else None)
            yield rows if nearest is None else _telling(rows, nearest, positions[begin:end], block[1 - arrived.stream])


def with_nearness(rows: pa.Table, columns: Sequence[pa.Array] | None = None) -> pa.Table:
    """Return rows with the columns `NEARNESS`; None: they have no partner."""
    columns = [pa.nulls(rows.num_rows, kind) for kind in NEARNESS.values()] if columns is None else columns
    for name, column in zip(NEARNESS, columns, strict=True):
        rows = rows.append_column(name, column)
    return rows


def _telling(
    rows: TaskCoroutine[pa.Table], nearest: NearestPartners, positions: Int32, partners: Selection
) -> TaskCoroutine[pa.Table]:
    return with_nearness((yield from rows), nearest.nearness(positions, partners))
