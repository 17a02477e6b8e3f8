"""The grid: how many groups each stream is dealt into, and which cells a group is copied to."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from streamjoin_ds.errors import LayoutError

__all__ = ["MAX_CELLS", "Layout", "choose_layout"]

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

    def group_of(self, stream: int, seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Group of each tuple, int32 of the length of `seq`: tuples are dealt in turn, so no value can be hot."""
        groups: npt.NDArray[np.int32] = np.mod(seq, self.counts[stream]).astype(np.int32)
        return groups

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

    def copied_rows(self, rates: Sequence[float]) -> float:
        """Rows stored a second, all cells together: ``sum rate_i * S / L_i`` (DAB Join, section 4.1)."""
        return sum(rate * self.copies(stream) for stream, rate in enumerate(rates))

    def __str__(self) -> str:
        return "x".join(map(str, self.counts))


def choose_layout(cells: int, rates: Sequence[float], windows: Sequence[float] | None = None) -> Layout:
    """The cheapest layout of exactly `cells` cells for these rates.

    Of all ordered factorisations of `cells` the one with the least ``sum rate_i * S / L_i`` (rows stored a second, DAB
    Join, section 4.1). Ties go to DP-Join's latency model (the least ``sum W_i * rate_i / L_i``: what a probe scans),
    then to fewer groups of the first streams, so that the choice is one.

    Parameters
    ----------
    cells : int
        About one a core.
    rates : sequence of float
        Tuples a second, one a stream, finite and >= 0; only their proportions count.
    windows : sequence of float, optional
        Extent of each stream's window, in any one unit, to break ties; taken as equal where not given.

    Raises
    ------
    LayoutError
    """
    if not 1 <= cells <= MAX_CELLS:
        msg = f"the number of cells must be between 1 and {MAX_CELLS}"
        raise LayoutError(msg, name="cells", hint="about one a core")
    windows = [1.0] * len(rates) if windows is None else windows
    if len(rates) < 2 or len(windows) != len(rates):
        msg = "a layout needs a rate, and a window if any, of each of at least two streams"
        raise LayoutError(msg, name="rates", hint="tuples a second, one number a stream")
    for value in (*rates, *windows):
        if not math.isfinite(value) or value < 0:
            msg = "a rate or a window is negative or not finite"
            raise LayoutError(msg, name="rates", hint="tuples a second, one number a stream")
    # Exact sums: rounding would decide ties by accident. Both are sums over the streams, so the best way to share out
    # what the first streams leave is the same whatever they took: one table a stream, not every factorisation.
    stored = [Fraction(rate) for rate in rates]
    scanned = [Fraction(rate) * Fraction(window) for rate, window in zip(rates, windows, strict=True)]
    divisors = [divisor for divisor in range(1, cells + 1) if cells % divisor == 0]
    best: dict[int, tuple[Fraction, Fraction, tuple[int, ...]]]
    best = {left: (stored[-1] / left, scanned[-1] / left, (left,)) for left in divisors}
    for stream in range(len(rates) - 2, -1, -1):
        best = {
            left: min(
                (stored[stream] / count + rest[0], scanned[stream] / count + rest[1], (count, *rest[2]))
                for count in divisors
                if left % count == 0
                for rest in (best[left // count],)
            )
            for left in divisors
        }
    return Layout(best[cells][2])
