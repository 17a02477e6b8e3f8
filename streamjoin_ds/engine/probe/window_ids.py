"""The periodic windows that the tuples of a partial result have in common.

A tuple is in a stretch of windows, ``first..last``. Shifted by its stream's lag, every stretch is one of the first
stream's ids. Several tuples share the stretch from the largest first to the smallest last, and a result is found once
in each of these windows. Stretches that meet in pairs meet all together. So a partial result that shares no window, and
is thrown away before the last stream has joined, could not have become a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.kernels.contract import KernelModule
from streamjoin_ds.engine.kernels.objects import CommonWindows, Task
from streamjoin_ds.engine.storage.selection import Selection, taken
from streamjoin_ds.engine.threads.tasks import TaskCoroutine
from streamjoin_ds.spec.columns import TS
from streamjoin_ds.spec.window import PeriodicWindow

__all__ = ["Expansion", "WindowIds"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
PartialResults: TypeAlias = "Mapping[int, Selection]"


class Expansion:
    """Results, each once for every window that its tuples share; tasks find them.

    Attributes
    ----------
    positions, window_ids : ndarray of int32, of int64
        What the last task wrote: positions of results, and the ids of their windows.
    """

    def __init__(self, common: CommonWindows, room: int) -> None:
        self._common, self._room = common, room
        self.positions, self.window_ids = np.empty(0, np.int32), np.empty(0, np.int64)

    def filling(self) -> Task[int] | None:
        """Return a task that writes the next results; None: there are no more."""
        if self._common.is_done:
            return None
        self.positions, self.window_ids = np.empty(self._room, np.int32), np.empty(self._room, np.int64)
        return self._common.filling(self.positions, self.window_ids)


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
        """Return the partial results whose tuples share a window, step by step."""
        count = len(next(iter(block.values())))
        positions = np.empty(count, np.int32)
        (kept,) = yield [self._common(block).filling(positions)]
        if kept == count:
            return block
        return (yield from taken(block, positions[:kept], self._gathered_rows))

    def expanding(self, block: PartialResults, most_rows: int) -> Expansion:
        """Return each result once for every window that its tuples share, ids ascending, `most_rows` rows at a time."""
        room = min(most_rows, len(next(iter(block.values()))) * self._most)
        return Expansion(self._common(block), room)

    def _common(self, block: PartialResults) -> CommonWindows:
        streams: list[Any] = sorted(stream for stream in block if stream < len(self._windows))  # no tables
        parts = [block[stream].gathered((TS,), 0, len(block[stream])) for stream in streams]
        return self._module.CommonWindows(self._every_us, [self._windows[stream] for stream in streams], parts)
