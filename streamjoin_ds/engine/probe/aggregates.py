"""Aggregates over the partners of tuples that are decided: what `reduce` asks for.

::

    pairs, some at a time ──► values of arguments ──► accumulators ──────────────► one row for each tuple
    (position, partner)                               counts, exact sums, extremes   (`Aggregation`)
    partners, counted ─────── sums and extremes ────► (accumulators; the kernel `ExactSums`)
                              (the kernel `PartnerSums`)
                                                      values of partners (held_values)

Where other cells have partners of the same tuples, an accumulator gives what it knows (`partial`) instead of a value,
and one in the commit takes what all have given (`add_partial`, `whole_aggregates`).

The contract is in ARCHITECTURE.md, "Sums over partners".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from streamjoin_ds.engine.columns import compared_columns
from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import Column, Int32, Int64, PartnerSums
from streamjoin_ds.engine.probe.accumulators import Accumulator, Average, Count, Extreme, Pairs, Sum, Wanted
from streamjoin_ds.engine.probe.held_values import Collected, Deviation, Picked, Quantile
from streamjoin_ds.engine.probe.pipeline import Inside
from streamjoin_ds.engine.probe.window_probe import ProbeCursor
from streamjoin_ds.engine.storage.run_set import RunSet
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.bound.calculations import BoundAggregate
from streamjoin_ds.spec.columns import Mask

__all__ = ["Aggregation", "aggregates_of_none", "partials_of_none", "whole_aggregates"]

Summed: TypeAlias = Count | Sum | Average | Extreme

_MOST_SUMMED = 1 << 20  # partners whose parts are added without an error; see `PartnerSums`

_MADE: dict[str, Callable[[BoundAggregate, int, KernelModule], Accumulator]] = {
    "count": Count,
    "sum": Sum,
    "avg": Average,
    "stddev": Deviation,
    "quantile": Quantile,
    "collect": Collected,
    "first": Picked,
    "last": Picked,
    "arg_min": Picked,
    "arg_max": Picked,
}


class Aggregation:
    """The reduction that sums up the partners of some tuples; see `Reduction`.

    Every aggregate is a function of the set of pairs: counts and exact sums do not depend on an order, and where one is
    needed it is that of values, event times and numbers.

    Parameters
    ----------
    bound : BoundJoin
    stream : int
        The decided stream.
    selection : Selection
        The decided tuples.

    Attributes
    ----------
    left_open : int
        How many tuples were counted in vain: their pairs are needed (`inside`).
    """

    def __init__(self, bound: BoundJoin, stream: int, selection: Selection) -> None:
        self._bound, self._stream, self._selection = bound, stream, selection
        self._partners: Int64 = np.zeros(len(selection), np.int64)
        self._accumulators = _accumulators(bound, len(selection), selection.run_set.module)
        self.left_open = 0

    @property
    def mask(self) -> Mask:
        """Which tuples have a partner."""
        return self._partners > 0

    def inside(self, probing: ProbeCursor) -> Inside | None:
        """Return what counts the partners, with sums of their columns; None: pairs are needed.

        Which columns kernels add up: plain ones of the partners, of numbers and times, without nulls where they lie.
        """
        wanted: list[tuple[Summed, Wanted | None]] = []
        for one, bound in zip(self._accumulators.values(), self._bound.aggregates, strict=True):
            if isinstance(one, Count) and one.counts_pairs:
                wanted.append((one, None))
                continue
            found = self._wanted(one, bound) if isinstance(one, Summed) else None
            if found is None or not isinstance(one, Summed):
                return None
            wanted.append((one, found))
        run_set = probing.run_set
        names = tuple(dict.fromkeys(found.column for _, found in wanted if found is not None))
        if not names or not run_set.runs:
            return self._counting(probing, wanted, None)
        if not isinstance(run_set, RunSet) or run_set.plain(names) != names:
            return None
        kernels = run_set.runs[0].form.kernels
        asked = [(names.index(one.column), one.function, one.kind) for _, one in wanted if one and one.function]
        columns = run_set.columns(names)
        sums = kernels.module.PartnerSums(len(self._selection), columns, asked, kernels.implementation)
        return self._counting(probing, wanted, sums)

    def _counting(
        self, probing: ProbeCursor, wanted: Sequence[tuple[Summed, Wanted | None]], sums: PartnerSums | None
    ) -> Inside:
        counts = np.zeros(len(self._selection), np.int64)
        return Inside(probing.counting(counts, sums), partial(self._took, sums, wanted, counts))

    def _wanted(self, one: Summed, bound: BoundAggregate) -> Wanted | None:
        stream, column = bound.arguments[0].stream, bound.arguments[0].column
        if stream is None or column is None or stream == self._stream:
            return None
        return one.wanted(self._bound.inside_name(stream, column.name))

    def _took(
        self, sums: PartnerSums | None, wanted: Sequence[tuple[Summed, Wanted | None]], counts: Int64
    ) -> Int32 | None:
        """Take the number of each tuple's partners, and the sums; return the tuples whose pairs are needed."""
        left, positions = None, np.arange(len(counts), dtype=np.int32)
        is_open = None if sums is None else sums.left_open() | (counts > _MOST_SUMMED)
        if is_open is not None and is_open.any():
            left, positions = positions[is_open], positions[~is_open]
            counts, self.left_open = counts[positions], len(left)
        self._partners[positions] += counts
        number = 0
        for one, found in wanted:
            parts: list[Column] = []
            if sums is not None and found is not None and found.function:
                parts = [part if left is None else part[positions] for part in sums.parts(number)]
                number += 1
            one.add_parts(positions, counts, parts)
        return left

    def add(self, positions: Int32, found: Selection) -> None:
        """Take some pairs."""
        if not len(positions):
            return
        pairs = Pairs(self._bound, self._stream, self._selection, positions, found)
        self._partners += pairs.counts
        for accumulator in self._accumulators.values():
            accumulator.add(pairs)

    def columns(self) -> dict[str, pa.Array]:
        """Return the aggregates by name, a value for each tuple.

        Raises
        ------
        AggregateOverflowError
            A sum does not fit its column.
        """
        return {name: accumulator.column() for name, accumulator in self._accumulators.items()}

    def partials(self) -> dict[str, pa.Array]:
        """Return what `whole_aggregates` needs, by name, an element for each tuple."""
        return {name: accumulator.partial() for name, accumulator in self._accumulators.items()}


def aggregates_of_none(bound: BoundJoin, count: int, module: KernelModule) -> dict[str, pa.Array]:
    """Return the aggregates of tuples without a partner."""
    return {name: accumulator.column() for name, accumulator in _accumulators(bound, count, module).items()}


def partials_of_none(bound: BoundJoin, count: int, module: KernelModule) -> dict[str, pa.Array]:
    """Return what `Aggregation.partials` does of tuples without a partner."""
    return {name: accumulator.partial() for name, accumulator in _accumulators(bound, count, module).items()}


def whole_aggregates(
    bound: BoundJoin, count: int, partials: Sequence[tuple[Int32, pa.Table]], module: KernelModule
) -> dict[str, pa.Array]:
    """Return the aggregates of tuples whose partners were summed up in parts, by name, a value for each tuple.

    Parameters
    ----------
    bound : BoundJoin
    count : int
        The number of tuples.
    partials : sequence of (ndarray of int32, pyarrow.Table)
        Each part: the tuples that it is about, none of them twice, as numbers from 0 to `count`; and a row for each,
        with what `Aggregation.partials` returned. No two parts are over the same partner of a tuple.
    module : KernelModule

    Raises
    ------
    AggregateOverflowError
        A sum does not fit its column.
    """
    found = _accumulators(bound, count, module)
    for positions, table in partials:
        for name, accumulator in found.items():
            accumulator.add_partial(positions, table[name].combine_chunks())
    return {name: accumulator.column() for name, accumulator in found.items()}


def _accumulators(bound: BoundJoin, count: int, module: KernelModule) -> dict[str, Accumulator]:
    return {
        one.name: _accumulator(replace(one, arguments=()) if _counts_partners(bound, one) else one, count, module)
        for one in bound.aggregates
    }


def _counts_partners(bound: BoundJoin, one: BoundAggregate) -> bool:
    """Whether an aggregate counts values that no partner lacks, nor a tuple that has one: the number of partners."""
    if one.function != "count" or not one.arguments:
        return one.function == "count"
    stream, column = one.arguments[0].stream, one.arguments[0].column
    if stream is None or column is None or stream >= len(bound.names):
        return False
    return bound.compared_name(stream, column.name) in compared_columns(bound, stream)


def _accumulator(one: BoundAggregate, count: int, module: KernelModule) -> Accumulator:
    if one.function in ("min", "max"):
        kind, types = one.arguments[0].kind, pa.types
        is_ranked = types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind) or types.is_uint64(kind)
        return (Picked if is_ranked else Extreme)(one, count, module)
    return _MADE[one.function](one, count, module)
