"""The periodic windows that the tuples of a result have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from streamjoin_ds.engine.kernels import objects
from streamjoin_ds.engine.kernels.objects import Int32, Int64
from streamjoin_ds.engine.kernels.twins.arguments import check_array, index, own, refuse
from streamjoin_ds.engine.kernels.twins.run_columns import RunColumns
from streamjoin_ds.engine.kernels.twins.threads import Task
from streamjoin_ds.spec.columns import INT64_MAX, INT64_MIN

__all__ = ["CommonWindows"]

# Microseconds, of T, of W, and of T times a lag: up to this no window's id leaves int64, unless T is 1.
_MAX_PERIOD = 1 << 60


class CommonWindows:
    """The windows that all tuples of a result are in, result after result, their ids ascending.

    Window ``i`` of a stream holds the event times from ``i * every - window + 1`` to ``i * every``, both included. Its
    id is ``i - lag``: that of the first stream's window that it meets.

    Parameters
    ----------
    every : int
        ``T`` in microseconds, 1 to 2^60.
    windows : sequence of (window, lag)
        For each stream: ``W`` in microseconds, 1 to 2^60, and how many windows it lags behind the first stream.
    parts : sequence of Part
        For each stream: its column of event times in microseconds, int64, and where in it each result's tuple is.

    Notes
    -----
    Windows whose ids do not fit into int64 are left out. There are some near the ends of time, if `every` is 1.
    """

    def __init__(self, every: int, windows: Sequence[tuple[int, int]], parts: Sequence[objects.Part]) -> None:
        if not windows or len(windows) != len(parts):
            refuse("there must be a window for each part", "windows")
        self._every = index(every, "every")
        if not 0 < self._every <= _MAX_PERIOD:
            refuse("every is out of range", "every", hint="1 to 2^60")
        self._windows = [(index(window, "windows"), index(lag, "windows")) for window, lag in windows]
        if any(not 0 < window <= _MAX_PERIOD or abs(lag) * every > _MAX_PERIOD for window, lag in self._windows):
            refuse("a window or its lag is out of range", "windows")
        self._parts = [(own(columns, RunColumns, "parts"), run_numbers, rows) for columns, run_numbers, rows in parts]
        if any(columns.item_bytes != [8] for columns, _, _ in self._parts):
            refuse("a part must have one column of 8 bytes", "parts")
        self._count = len(self._parts[0][2])
        if any(len(rows) != self._count for _, _, rows in self._parts):
            refuse("the parts differ in their number of rows", "parts")
        self._next = 0
        self._stretches = self._in_common()
        self._left: tuple[int, int, int] | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be written."""
        return self._left is None and self._next == self._count

    def filling(self, out_results: Int32, out_ids: Int64 | None = None) -> Task[int]:
        """Return a task that writes results and the ids of their windows, and returns how many.

        Without `out_ids` it writes each result once. Only at the end it writes fewer than there is room for.
        """
        check_array(out_results, "out_results", np.dtype(np.int32), writeable=True)
        if out_ids is not None:
            check_array(out_ids, "out_ids", np.dtype(np.int64), writeable=True)
            if len(out_ids) != len(out_results):
                refuse("the outputs differ in length", "out_ids")
        return Task(partial(self._fill, out_results, out_ids))

    def _fill(self, out_results: Int32, out_ids: Int64 | None) -> int:
        written = 0
        while written < len(out_results):
            if self._left is None:
                self._left = next(self._stretches, None)
                if self._left is None:
                    break
            result, first, last = self._left
            count = min(last - first + 1, len(out_results) - written) if out_ids is not None else 1
            out_results[written : written + count] = result
            if out_ids is not None:
                out_ids[written : written + count] = [*range(first, first + count)]
            written += count
            self._left = None if out_ids is None or first + count > last else (result, first + count, last)
        return written

    def _in_common(self) -> Iterator[tuple[int, int, int]]:
        """Yield each result whose tuples share windows, with the first and the last of these, as Python's integers."""
        columns = []
        for run_columns, run_numbers, rows in self._parts:
            columns.append(times := np.empty(len(rows), np.int64))
            run_columns.gather(run_numbers, rows, [times])
        for result, times_us in enumerate(zip(*(times.tolist() for times in columns), strict=True)):
            self._next = result + 1
            first, last = INT64_MIN, INT64_MAX
            for time_us, (window, lag) in zip(times_us, self._windows, strict=True):
                first = max(first, -(-time_us // self._every) - lag)
                last = min(last, (time_us + window - 1) // self._every - lag)
            if first <= last:
                yield result, first, last
