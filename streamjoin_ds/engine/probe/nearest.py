"""The nearest partners of tuples that are decided at their horizon: kept while pairs come, then made into rows.

::

    pairs of a chunk ──► distance ──► select ──► ts, seq ──► keep ──► ... ──► ranked ──► rows
                         of each      by it      of few               the k nearest of each tuple

Pairs are never all there at once: a chunk of them is, and the nearest of each tuple so far. `NearestPairs` is the
kernel; its twin says what it does. A distance is calculated in steps of a kernel where that can be done
(`DistanceSteps`, `PairDistances`): it reads the columns of pairs where they lie. Then no pair leaves the kernels, if
one of them probes the whole window (`RunsProbe`): a list of pairs goes all this way while it is in cache.

Where other cells have partners of the same tuples, rows hold how near the partner is (`NEARNESS`): whoever puts the
cells' rows together keeps the nearest of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Int32, NearestPairs, PairDistances, RunsProbe, Step, Task
from streamjoin_ds.engine.probe.pipeline import Inside, JoinPipeline
from streamjoin_ds.engine.probe.probe_batch import ProbeBatch
from streamjoin_ds.engine.probe.results import PartialResults
from streamjoin_ds.engine.probe.run_probe import RunByRunProbe
from streamjoin_ds.engine.probe.window_probe import ProbeCursor
from streamjoin_ds.engine.scheduler import TaskCoroutine
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.selection import Selection, sequence_numbers
from streamjoin_ds.engine.tuning import NearestTuning
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN, SEQ
from streamjoin_ds.spec.expression.node import EXACT, EXACT_FLOAT, Typed
from streamjoin_ds.spec.expression.predicate import Column

__all__ = ["NEARNESS", "DistanceSteps", "NearestPartners", "NearestRows", "with_nearness"]

_OPS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "abs": "abs", "neg": "neg", "sqrt": "sqrt"}
_WHOLE_OPS = {"+": "int add", "-": "int sub", "*": "int mul", "abs": "int abs", "neg": "int neg"}

# What partners of one tuple are compared by, before their numbers: the distance in two parts (`Distance.values`) and
# the time in microseconds. They are the last columns of a row that is not whole; null where it has no partner.
NEARNESS = {"near": pa.float64(), "near_rest": pa.int64(), "near_us": pa.int64()}


class _NotInSteps(Exception):
    """An expression has a part that no step does."""


class DistanceSteps:
    """The distance of a join, as far as the kernel can calculate it: with numbers and times, + - * /, abs and sqrt.

    Parameters
    ----------
    bound : BoundJoin
        With a distance.
    module : KernelModule
    """

    def __init__(self, bound: BoundJoin, module: KernelModule) -> None:
        assert bound.distance is not None, "the join has a distance"
        made = _Steps(bound)
        self._kernel: PairDistances | None = None
        try:
            made.number(bound.distance.value)
        except _NotInSteps:
            return
        # Without a column of the partners there is nothing to be read beside the probes.
        if made.columns["other"] and len(made.steps) <= module.MAX_STEPS:
            self._kernel = module.PairDistances(made.steps)
            self._own, self._other = tuple(made.columns["own"]), tuple(made.columns["other"])

    def own_columns(self, tuples: Selection) -> list[npt.NDArray[np.generic]] | None:
        """Return the decided tuples' columns as the kernel reads them; None where it cannot, and Arrow has to."""
        if self._kernel is None:
            return None
        found = []
        for name in self._own:
            values = tuples.column(name)
            if values.null_count:
                return None
            is_time = pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type)
            found.append((values.view(pa.int64()) if is_time else values).to_numpy())
        return found

    def taking(
        self, pairs: NearestPairs, own: list[npt.NDArray[np.generic]], kernel: RunsProbe, run_set: RunSet
    ) -> Task[None] | None:
        """Return a task that gives all pairs of a probing to `pairs`; None where kernels cannot."""
        assert self._kernel is not None, "there are own columns"
        needed = (*self._other, SEQ)
        if not run_set.runs or run_set.plain(needed) != needed or run_set.narrow_key(0) is not None:
            return None
        ties = run_set.keys(0), run_set.columns((SEQ,))  # the times, then the numbers
        return pairs.taking(kernel, self._kernel, own, run_set.columns(self._other), ties)

    def values(
        self, own: list[npt.NDArray[np.generic]], positions: Int32, found: Selection
    ) -> npt.NDArray[np.float64] | None:
        """Return the distances of pairs; None where the kernel cannot hold one exactly, and Arrow has to."""
        assert self._kernel is not None, "there are own columns"
        assert found.rows is not None, "partners are rows of runs"
        if found.run_set.plain(self._other) != self._other:
            return None
        out = np.empty(len(positions))
        runs = found.run_set.columns(self._other)
        return out if self._kernel.fill(own, runs, found.places, positions, found.rows, out) else None


@dataclass
class _Steps:
    """The steps of an expression; what is there twice is done once.

    An exact value that float64 holds by its type is calculated as such. Of two of them also the rounded sum, difference
    or product is right: one rounding of the exact one. All other exact values are int64.
    """

    bound: BoundJoin
    steps: list[Step] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: {"own": [], "other": []})
    known: dict[object, int] = field(default_factory=dict)

    def number(self, node: Typed) -> int:
        """Return the number of the step that gives a distance."""
        if node.family == "float" or _fits_float(node):
            return self._float(node)
        return self._whole(node)

    def _float(self, node: Typed) -> int:
        """Return the step that gives a node's values as float64: an exact one in units of its last digit."""
        if ("float", node) not in self.known:
            self.known["float", node] = self._made_float(node)
        return self.known["float", node]

    def _whole(self, node: Typed) -> int:
        """Return the step that gives an exact node's values as int64, in units of its last digit."""
        if ("int", node) not in self.known:
            self.known["int", node] = self._made_whole(node)
        return self.known["int", node]

    def _made_float(self, node: Typed) -> int:
        if node.op == "column":
            return self._column(node, is_wide=True)
        if node.op == "literal":
            return self._added("float", float(node.value if node.family == "float" else int(node.value)))
        if node.family != "float":
            if _has_one_scale(node) and node.op in _WHOLE_OPS and all(map(_fits_float, node.args)):
                return self._added(_OPS[node.op], *map(self._float, node.args))
            return self._added("widen", self._whole(node))
        if node.op not in _OPS:
            raise _NotInSteps
        return self._added(_OPS[node.op], *map(self._as_float, node.args))

    def _as_float(self, node: Typed) -> int:
        """Return the step that gives an operand of a float: its value, not its last digits."""
        if node.op == "literal" and node.scale:
            return self._added("float", float(Decimal(int(node.value)).scaleb(-node.scale)))
        if node.family not in ("float", "number") or node.scale:
            raise _NotInSteps
        return self._float(node)

    def _made_whole(self, node: Typed) -> int:
        if node.op == "column":
            return self._column(node, is_wide=False)
        if node.op == "literal":
            if not INT64_MIN <= int(node.value) <= INT64_MAX:
                raise _NotInSteps
            return self._added("int", int(node.value))
        if node.op not in _WHOLE_OPS or node.family not in EXACT or not _has_one_scale(node):
            raise _NotInSteps
        return self._added(_WHOLE_OPS[node.op], *map(self._whole, node.args))

    def _column(self, node: Typed, *, is_wide: bool) -> int:
        column = node.column
        assert column is not None, "it is a column"
        stream = self.bound.member_names.index(column.stream)
        name = self.bound.compared_name(stream, column.name)
        kind = self.bound.tuple_schema(stream).field(name).type
        is_float = kind in (pa.float64(), pa.float32())
        is_time = node.family in ("timestamp", "interval") and kind.bit_width == 64
        if not (is_float or is_time or pa.types.is_signed_integer(kind)):
            raise _NotInSteps
        side = "own" if stream == 0 else "other"  # rows are about the first stream's tuples
        if name not in self.columns[side]:
            self.columns[side].append(name)
        return self._added(side, self.columns[side].index(name), int(is_wide) or None, is_float=is_float)

    def _added(self, op: str, left: float, right: int | None = None, *, is_float: bool = False) -> int:
        self.steps.append((op, left, right, is_float))
        return len(self.steps) - 1


def _fits_float(node: Typed) -> bool:
    """Whether float64 holds every value of an exact node, in units of its last digit."""
    return node.family in EXACT and node.magnitude <= EXACT_FLOAT


def _has_one_scale(node: Typed) -> bool:
    """Whether an operation works on last digits alone: a product, or operands of one scale and no dates."""
    if any(argument.family == "date" for argument in node.args):
        return False
    return node.op == "*" or all(argument.scale == node.scale for argument in node.args)


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
        self._k = bound.join.nearest.k
        self._pairs = self._none()
        self._steps, self._own = steps, steps.own_columns(arrived.selection)
        self._found: Selection | None = None  # the partners that were found last

    def _none(self) -> NearestPairs:
        return self._selection.run_set.module.NearestPairs(len(self._selection), self._k)

    def inside(self, probing: ProbeCursor) -> Inside | None:
        """Return what keeps the nearest partners within the kernels; see `JoinPipeline.reducing`."""
        kernel, run_set = probing.kernel, probing.run_set
        if self._own is None or isinstance(kernel, RunByRunProbe) or not isinstance(run_set, RunSet):
            return None
        task = self._steps.taking(self._pairs, self._own, kernel, run_set)
        if task is None:
            return None
        self._found = Selection(run_set)
        return Inside([task], self._left)

    def _left(self) -> Int32 | None:
        """Return all tuples where the kernel could not hold a distance exactly."""
        if self._pairs.is_exact:
            return None
        self._pairs = self._none()
        return np.arange(len(self._selection), dtype=np.int32)

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
