"""The nested loop over tiles, and what every join's twin has: the conditions, the writing of pairs, and their counting.

Pairs are written some at a time. They are counted in the same way: each probe's pairs are written and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.contract import MAX_CONDITIONS
from streamjoin_ds.engine.kernels.objects import Bound, Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import (
    MIN_CAPACITY,
    check_array,
    common_length,
    ends,
    float_bound,
    index,
    own,
    refuse,
)
from streamjoin_ds.engine.kernels.twins.partner_sums import PartnerSums
from streamjoin_ds.engine.kernels.twins.threads import Task
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["SCAN_TILE_PROBES", "SCAN_TILE_ROWS", "CheckedBand", "Output", "PairJoin", "Scan", "counting_pairs"]

SCAN_TILE_PROBES = 32
SCAN_TILE_ROWS = 1024
_PAIRS = 4096  # that are written at a time


def counting_pairs(
    fill: Callable[[Int32, Int32, Int32], int],
    out_counts: Int64,
    sums: objects.PartnerSums | None,
    run_number: int,
    first: int,
) -> Task[None]:
    """Return a task that adds to each probe's count how many pairs `fill` writes, and gives these to the sums."""
    check_array(out_counts, "out_counts", np.dtype(np.int64), writeable=True)
    mine = None if sums is None else own(sums, PartnerSums, "sums")

    def count() -> None:
        probes, rows, runs = np.empty((3, _PAIRS), np.int32)
        while written := fill(probes, rows, runs):
            out_counts[:] += np.bincount(probes[:written], minlength=len(out_counts))
            if mine is not None:
                mine.add(probes[:written] + np.int32(first), runs[:written] + np.int32(run_number), rows[:written])

    return Task(count)


class PairJoin:
    """What both joins have: pairs of a probe and a row, written some at a time, or counted."""

    def __init__(self, chunks: Iterator[tuple[int, npt.NDArray[np.intp]]]) -> None:
        self._candidates = 0
        self._output = Output(chunks)

    @property
    def candidates(self) -> int:
        """Pairs tested so far."""
        return self._candidates

    @property
    def implementation(self) -> str:
        """Name of the implementation in use."""
        return "reference"

    def fill(self, out_probe: Int32, out_row: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        return self._output.fill(out_probe, out_row)

    def filling(self, out_probe: Int32, out_row: Int32) -> Task[int]:
        """`fill` as a task for a pool."""
        return Task(partial(self.fill, out_probe, out_row))

    def counting(
        self, out_counts: Int64, sums: objects.PartnerSums | None = None, run_number: int = 0, first: int = 0
    ) -> Task[None]:
        """Return a task that adds to each probe's count how many pairs it has; see `RunsProbe.counting`."""

        def fill(out_probe: Int32, out_row: Int32, out_run: Int32) -> int:
            out_run[:] = 0
            return self.fill(out_probe, out_row)

        return counting_pairs(fill, out_counts, sums, run_number, first)


class Scan(PairJoin):
    """Nested-loop join of the probes with the run: every pair is tested (CellJoin, section 5).

    Parameters
    ----------
    left, right : list of ndarray, float64 or int64
        ``left[c]`` has shape (n_probe,), ``right[c]`` shape (n_run,).
    lo, hi : list of float or int or None
        One band for each of 0 to 16 conditions. NaN bounds are refused, ``lo > hi`` matches nothing. None for both: an
        equality of floats. An infinity is equal to itself, though ``inf - inf`` is in no band; NaN is equal to nothing.
    implementation : str, optional
        None or "reference".
    unrolled : bool
        For the compiled kernels: False makes them test one register of rows at a time.
    left_count, right_count : int, optional
        n_probe and n_run; needed only where there is no condition to take them from.

    Notes
    -----
    Order of the pairs: by tile of 32 probes, tile of 1024 run rows, probe, row.
    """

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        implementation: str | None = None,
        *,
        unrolled: bool = True,
        left_count: int | None = None,
        right_count: int | None = None,
    ) -> None:
        self._band = CheckedBand(left, right, lo, hi, implementation, left_count, right_count)
        super().__init__(self._chunks())

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        band = self._band
        for probe_tile in range(0, band.probe_count, SCAN_TILE_PROBES):
            probe_stop = min(probe_tile + SCAN_TILE_PROBES, band.probe_count)
            for run_tile in range(0, band.run_count, SCAN_TILE_ROWS):
                rows = np.arange(run_tile, min(run_tile + SCAN_TILE_ROWS, band.run_count))
                for probe in range(probe_tile, probe_stop):
                    if band.can_match(probe):
                        self._candidates += len(rows)
                        yield probe, rows[band.matches(probe, slice(run_tile, run_tile + SCAN_TILE_ROWS))]


class CheckedBand:
    """The conditions of a join, checked."""

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        implementation: str | None,
        left_count: int | None,
        right_count: int | None,
    ) -> None:
        if implementation not in (None, "reference"):
            refuse("unknown implementation", "implementation", hint="reference")
        if not len(left) == len(right) == len(lo) == len(hi):
            refuse("left, right, lo and hi differ in length", "left")
        if len(left) > MAX_CONDITIONS:
            refuse("more than 16 conditions", "left")
        self.left, self.right = list(left), list(right)
        self.probe_count = common_length(self.left, "left", left_count)
        self.run_count = common_length(self.right, "right", right_count)
        self.lo: list[Bound] = []
        self.hi: list[Bound] = []
        self.is_equality = [low is None for low in lo]
        for left_column, right_column, lo_value, hi_value in zip(left, right, lo, hi, strict=True):
            if left_column.dtype.kind != right_column.dtype.kind:
                refuse("left and right differ in type", "right")
            convert = float_bound if left_column.dtype.kind == "f" else index
            low, high = ends(lo_value, hi_value)
            self.lo.append(convert(low, "lo"))
            self.hi.append(convert(high, "hi"))

    def can_match(self, probe: int) -> bool:
        """Whether any right values could match this probe."""
        for column, lo, hi in zip(self.left, self.lo, self.hi, strict=True):
            value = column[probe].item()
            if column.dtype.kind == "f":
                if np.isnan(value):
                    return False
            elif lo > hi or value - hi > INT64_MAX or value - lo < INT64_MIN:
                return False
        return True

    def matches(self, probe: int, rows: slice) -> npt.NDArray[np.bool_]:
        """Test one probe against some rows; return a mask of those that match."""
        mask = np.ones(min(rows.stop, self.run_count) - rows.start, dtype=np.bool_)
        for condition in range(len(self.left)):
            over, under = self._outside(condition, probe, rows)
            mask &= ~(over | under)
            if self.is_equality[condition]:
                mask &= self.left[condition][probe] == self.right[condition][rows]
            elif self.left[condition].dtype.kind == "f":
                with np.errstate(all="ignore"):
                    mask &= ~np.isnan(self.left[condition][probe] - self.right[condition][rows])
        return mask

    def sorted_range(
        self, condition: int, probe: int, begin: int, end: int, past: int = -1, interval_lo: float = 0.0
    ) -> tuple[int, int]:
        """Narrow ``begin:end``, sorted by the condition's column, to the rows that are not outside the probe's band.

        With `past` the left of that condition says where they end (`GridProbe`).
        """
        over, under = self._outside(condition, probe, slice(begin, end))
        if past >= 0:
            with np.errstate(all="ignore"):
                under = self.left[past][probe] - self.right[condition][begin:end] < interval_lo
        kept = np.flatnonzero(~over)
        first = int(kept[0]) if len(kept) else end - begin
        below = np.flatnonzero(under[first:])
        return begin + first, begin + first + int(below[0]) if len(below) else end

    def _outside(self, condition: int, probe: int, rows: slice) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        left, right = self.left[condition], self.right[condition][rows]
        lo, hi = self.lo[condition], self.hi[condition]
        if self.is_equality[condition]:
            return right < left[probe], right > left[probe]
        if left.dtype.kind == "f":
            with np.errstate(all="ignore"):
                difference = left[probe] - right
            return difference > hi, difference < lo
        value = left[probe].item()
        smallest, largest = max(value - hi, INT64_MIN), min(value - lo, INT64_MAX)
        return right < np.int64(min(smallest, INT64_MAX)), right > np.int64(max(largest, INT64_MIN))


class Output:
    """A stream of matches, cut to fit buffers of any size."""

    def __init__(self, chunks: Iterator[tuple[int, npt.NDArray[np.intp]]]) -> None:
        self._chunks = chunks
        self._probe = 0
        self._rows: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def fill(self, out_probe: Int32, out_row: Int32) -> int:
        """Write the next pairs; 0 means there are no more."""
        check_array(out_probe, "out_probe", np.dtype(np.int32), writeable=True)
        check_array(out_row, "out_row", np.dtype(np.int32), writeable=True)
        capacity = len(out_probe)
        if len(out_row) != capacity or capacity < MIN_CAPACITY:
            refuse("out_probe and out_row must be of one length, 64 at least", "out_probe")
        written = 0
        while written < capacity:
            if not len(self._rows):
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                self._probe, self._rows = chunk
            count = min(len(self._rows), capacity - written)
            out_probe[written : written + count] = self._probe
            out_row[written : written + count] = self._rows[:count]
            self._rows = self._rows[count:]
            written += count
        return written
