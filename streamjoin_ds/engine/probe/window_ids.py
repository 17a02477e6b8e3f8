"""Periodic windows on partial results: which windows their tuples have in common.

A stream's tuple is in a stretch of windows, ``first..last``; shifted by the stream's lag all stretches are of the first
stream's ids. What is common to several tuples is the stretch from the largest first to the smallest last, and a result
is found once in each window of it. Stretches meet all together where they meet in pairs, so nothing that is thrown away
before the last stream has joined could have become a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.reference.kernel_module import KernelModule
from streamjoin_ds.engine.reference.kernel_objects import CommonWindows
from streamjoin_ds.engine.storage.selection import Selection, taken
from streamjoin_ds.engine.threads.tasks import ChunkCoroutine, TaskCoroutine
from streamjoin_ds.spec.bound import TS
from streamjoin_ds.spec.periodic_window import PeriodicWindow

__all__ = ["Expansion", "WindowIds"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
PartialResults: TypeAlias = "Mapping[int, Selection]"
Expansion: TypeAlias = "tuple[dict[int, Selection], Int64]"


class WindowIds:
    """The windows of one periodic kind.

    Parameters
    ----------
    window : PeriodicWindow
    module : KernelModule
    gathered_rows : int
        As `ProbeTuning.gathered_rows`.
    """

    def __init__(self, window: PeriodicWindow, module: KernelModule, gathered_rows: int) -> None:
        self._module, self._every_us, self._gathered_rows = module, window.every_us, gathered_rows
        self._windows = list(zip(window.windows_us, window.lags, strict=True))
        self._most = min(-(-window_us // window.every_us) for window_us in window.windows_us)

    def meeting(self, block: dict[int, Selection]) -> TaskCoroutine[dict[int, Selection]]:
        """The partial results that have a window in common, step by step."""
        count = len(next(iter(block.values())))
        positions = np.empty(count, np.int32)
        (kept,) = yield [self._common(block).filling(positions)]
        if kept == count:
            return block
        return (yield from taken(block, positions[:kept], self._gathered_rows))

    def expanded(self, block: PartialResults, most_rows: int) -> ChunkCoroutine[Expansion]:
        """Each result once for each of its windows, in ascending order of them, at most so many rows at a time.

        Yields
        ------
        block, window_ids : dict of int to Selection, ndarray of int64
            And the kernels' tasks in between.
        """
        common = self._common(block)
        room = min(most_rows, len(next(iter(block.values()))) * self._most)
        while not common.is_done:
            positions, window_ids = np.empty(room, np.int32), np.empty(room, np.int64)
            (count,) = yield [common.filling(positions, window_ids)]
            if count:
                grown = yield from taken(block, positions[:count], self._gathered_rows)
                yield grown, window_ids[:count]

    def _common(self, block: PartialResults) -> CommonWindows:
        streams: list[Any] = sorted(block)
        parts = [block[stream].gathered((TS,), 0, len(block[stream])) for stream in streams]
        return self._module.CommonWindows(self._every_us, [self._windows[stream] for stream in streams], parts)
