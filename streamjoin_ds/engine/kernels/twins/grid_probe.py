"""The grid probe: sorted probes meet a run in grid order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.objects import Bound, Column, End, Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, float_bound, refuse
from streamjoin_ds.engine.kernels.twins.grid import bucket_range, step_starts
from streamjoin_ds.engine.kernels.twins.scan import CheckedBand, PairJoin

__all__ = ["GridProbe"]


class GridProbe(PairJoin):
    """Join sorted probes with a run in grid order: a merge join in each neighbouring bucket.

    Parameters
    ----------
    left, right, lo, hi, implementation, left_count, right_count
        As in `Scan`. ``right`` is in the order of (``grid_buckets(right[first], width, 0)``, ``right[second]``);
        ``left`` is permuted by ``probe_order``.
    first : int
        The condition the buckets are made of; -1: the whole run is one bucket.
    second : int
        The condition a bucket is sorted by; -1: a bucket is scanned whole.
    width : float or int
        Bucket width, of the kind of ``right[first]``; ignored without ``first``.
    bucket_ids, bucket_starts : ndarray or None
        `bucket_directory` of the run; None only without ``first``.
    probe_order : ndarray, shape (n_probe,), int32
        ``grid_order(probe_buckets(...), left[second])`` of the unpermuted probes; ``probe_order[i]`` is the id that
        is written for probe i.
    fences : ndarray or None
        ``right[second][::FENCE_ROWS]``: what a compiled kernel searches in cache before it touches the run.
    steps : ndarray or None
        ``step_starts(right[second])``, for a run that is one bucket. A compiled kernel looks a probe's first row up in
        these, and need not search.
    past : int
        The condition whose left ends a probe's rows of a bucket, where a probe has two values: they are read up to the
        first where ``left[past] - right[second] < interval_lo``. It may compare another column of the run. -1: the
        condition ``second`` ends them itself.
    interval_lo : float
        Ignored without ``past``.

    Notes
    -----
    Order of the pairs: by probe (as permuted), bucket, row.
    """

    def __init__(
        self,
        left: Sequence[Column],
        right: Sequence[Column],
        lo: Sequence[End],
        hi: Sequence[End],
        *,
        first: int,
        second: int,
        width: Bound,
        bucket_ids: Int64 | None,
        bucket_starts: Int64 | None,
        probe_order: Int32,
        fences: Column | None = None,
        steps: Int32 | None = None,
        implementation: str | None = None,
        left_count: int | None = None,
        right_count: int | None = None,
        past: int = -1,
        interval_lo: float = 0.0,
    ) -> None:
        check_array(probe_order, "probe_order", np.dtype(np.int32))
        if left_count is None and not left:
            left_count = len(probe_order)
        if right_count is None and not right and bucket_starts is not None and len(bucket_starts):
            right_count = int(bucket_starts[-1])
        band = CheckedBand(left, right, lo, hi, implementation, left_count, right_count)
        for name, choice in (("first", first), ("second", second), ("past", past)):
            if not -1 <= choice < len(band.left):
                refuse(f"{name} is not the number of a condition", name)
        check_interval(past, second, band.left)
        if len(probe_order) != band.probe_count:
            refuse("probe_order and left differ in length", "probe_order")
        self._band = band
        self._second, self._past, self._interval_lo = second, past, float_bound(interval_lo, "interval_lo")
        self._probe_order = probe_order
        if first >= 0:
            if bucket_ids is None or bucket_starts is None:
                refuse("a bucket attribute needs bucket_ids and bucket_starts", "bucket_ids")
            check_array(bucket_ids, "bucket_ids", np.dtype(np.int64))
            check_array(bucket_starts, "bucket_starts", np.dtype(np.int64))
            if len(bucket_starts) != len(bucket_ids) + 1 or int(bucket_starts[-1]) != band.run_count:
                refuse("bucket_starts does not fit bucket_ids and the run", "bucket_starts")
            self._ids, self._starts = bucket_ids, bucket_starts
            self._bucket_from, self._bucket_to = bucket_range(band.left[first], band.lo[first], band.hi[first], width)
        else:
            self._ids = np.zeros(1, dtype=np.int64)
            self._starts = np.array([0, band.run_count], dtype=np.int64)
            self._bucket_from = self._bucket_to = np.zeros(band.probe_count, dtype=np.int64)
        if steps is not None and first < 0 and second >= 0:
            check_steps(steps, band.right[second])
        check_probe_order(self._bucket_from, band.left[second] if second >= 0 else None)
        super().__init__(self._chunks())

    @property
    def candidates(self) -> int:
        """Pairs tested so far: the rows of each visited bucket that are within the probe's band of ``second``."""
        return self._candidates

    def _chunks(self) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        band = self._band
        from_slot = np.searchsorted(self._ids, self._bucket_from, side="left")
        to_slot = np.searchsorted(self._ids, self._bucket_to, side="right")
        for probe in range(band.probe_count):
            if not band.can_match(probe):
                continue
            for slot in range(int(from_slot[probe]), int(to_slot[probe])):
                begin, end = int(self._starts[slot]), int(self._starts[slot + 1])
                if self._second >= 0:
                    begin, end = band.sorted_range(self._second, probe, begin, end, self._past, self._interval_lo)
                self._candidates += end - begin
                yield int(self._probe_order[probe]), begin + np.flatnonzero(band.matches(probe, slice(begin, end)))


def check_interval(past: int, second: int, columns: Sequence[Column]) -> None:
    if past < 0:
        return
    if second < 0 or past == second or any(columns[number].dtype.kind != "f" for number in (past, second)):
        refuse("past must be another condition on floats than second", "past")


def check_steps(steps: Int32, column: Column) -> None:
    check_array(steps, "steps", np.dtype(np.int32))
    expected = step_starts(column)
    if expected is None or len(steps) != len(expected):
        refuse("steps does not fit the run", "steps", hint="step_starts(right[second])")


def check_probe_order(bucket_from: Int64, second: Column | None) -> None:
    ascending = bucket_from[1:] > bucket_from[:-1]
    same = bucket_from[1:] == bucket_from[:-1]
    if second is not None:
        same &= ~(second[1:] < second[:-1])
        if second.dtype.kind == "f":
            same &= ~(np.isnan(second[:-1]) & ~np.isnan(second[1:]))
    if not np.all(ascending | same):
        refuse(
            "the probes are not sorted by start bucket and second attribute",
            "left",
            hint="permute left by grid_order(probe_buckets(...), left[second])",
        )
