"""The grid: how many groups each stream is dealt into, and which cells a group is copied to."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import LayoutError

__all__ = ["MAX_CELLS", "Layout", "group_of"]

MAX_CELLS = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """``(L_1, ..., L_N)``: group counts, one a stream; the cells are their product, numbered row by row.

    Cell ``c`` has the coordinates ``(g_1, ..., g_N)``, the last one running fastest: the cell in which group ``g_i``
    of every stream *i* meets.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2 or any(count < 1 for count in self.counts) or self.cells > MAX_CELLS:
            msg = f"a layout has one group count of at least 1 for each stream and at most {MAX_CELLS} cells"
            raise LayoutError(msg, name="layout", hint="for two streams for example 1x2")

    @classmethod
    def parse(cls, text: str, streams: int) -> Layout:
        """Read ``"1x2"`` for that many streams."""
        if not re.fullmatch(r"\d{1,4}(x\d{1,4})+", text.strip()):
            msg = "a layout is written as group counts with an x between them"
            raise LayoutError(msg, name="layout", hint=f"one number a stream, for example {'x'.join(['2'] * streams)}")
        counts = tuple(int(part) for part in text.strip().split("x"))
        if len(counts) != streams:
            msg = f"the layout has {len(counts)} group counts, the join {streams} streams"
            raise LayoutError(msg, name="layout", hint=f"one number a stream, for example {'x'.join(['2'] * streams)}")
        return cls(counts)

    @property
    def cells(self) -> int:
        """``S``: the number of cells."""
        return math.prod(self.counts)

    def copies(self, stream: int) -> int:
        """How many cells each tuple of the stream is stored in: ``S / L_i``."""
        return self.cells // self.counts[stream]

    def group_in_cell(self, cell: int, stream: int) -> int:
        """Which of the stream's groups meets in this cell: the cell's coordinate."""
        return cell // math.prod(self.counts[stream + 1 :]) % self.counts[stream]

    def groups_in(self, cell: int) -> tuple[int, ...]:
        """The group of every stream that meets in this cell: its coordinates."""
        return tuple(self.group_in_cell(cell, stream) for stream in range(len(self.counts)))

    def cells_of(self, stream: int, group: int) -> tuple[int, ...]:
        """The cells a group of the stream is copied to, ascending; ``S / L_i`` of them."""
        step = math.prod(self.counts[stream + 1 :])
        starts = range(group * step, self.cells, self.counts[stream] * step)
        return tuple(start + cell for start in starts for cell in range(step))

    def home_cell(self, stream: int, group: int) -> int:
        """The one cell that counts and reports a group's rows: its first."""
        return group * math.prod(self.counts[stream + 1 :])

    def is_home(self, cell: int, stream: int) -> bool:
        """Whether the cell counts and reports the rows of the stream's group that it holds."""
        return self.home_cell(stream, self.group_in_cell(cell, stream)) == cell

    def __str__(self) -> str:
        return "x".join(map(str, self.counts))


def group_of(seq: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    """Group of each tuple among `count`, int32 of the length of `seq`: dealt in turn, so no value can be hot."""
    groups: npt.NDArray[np.int32] = np.mod(seq, count).astype(np.int32)
    return groups
