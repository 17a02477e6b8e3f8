"""The layout of cells: into how many groups each stream is dealt, and to which cells a group is copied."""

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

MAX_CELLS = 4096  # cells of a layout, at most


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout ``(L_1, ..., L_N)``: a group count for each stream. The number of cells is their product.

    Cell ``c`` has the coordinates ``(g_1, ..., g_N)``: in it group ``g_i`` of each stream *i* meets the others. Cells
    are numbered so that the last coordinate runs fastest.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2 or any(count < 1 for count in self.counts) or self.cells > MAX_CELLS:
            msg = f"a layout has one group count of at least 1 for each stream and at most {MAX_CELLS} cells"
            raise LayoutError(msg, name="layout", hint="for two streams for example 1x2")

    @classmethod
    def parse(cls, text: str, streams: int) -> Layout:
        """Read a layout such as ``"1x2"``, with one group count for each of `streams` streams.

        Raises
        ------
        LayoutError
            The text does not have this form, or not this many counts, or the layout has too many cells.
        """
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
        """The number of cells, ``S``."""
        return math.prod(self.counts)

    def copies(self, stream: int) -> int:
        """Return the number of cells that store each tuple of the stream: ``S / L_i``."""
        return self.cells // self.counts[stream]

    def group_of(self, stream: int, seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the group of each tuple, int32 of the length of `seq`.

        Tuples are dealt in turn, so a frequent value cannot overload a group.
        """
        groups: npt.NDArray[np.int32] = np.mod(seq, self.counts[stream]).astype(np.int32)
        return groups

    def group_in_cell(self, cell: int, stream: int) -> int:
        """Return the stream's group in this cell: the cell's coordinate for this stream."""
        return cell // math.prod(self.counts[stream + 1 :]) % self.counts[stream]

    def groups_in(self, cell: int) -> tuple[int, ...]:
        """Return the group of each stream in this cell: the cell's coordinates."""
        return tuple(self.group_in_cell(cell, stream) for stream in range(len(self.counts)))

    def cells_of(self, stream: int, group: int) -> tuple[int, ...]:
        """Return the ``S / L_i`` cells to which a group of the stream is copied, ascending."""
        step = math.prod(self.counts[stream + 1 :])
        starts = range(group * step, self.cells, self.counts[stream] * step)
        return tuple(start + cell for start in starts for cell in range(step))

    def home_cell(self, stream: int, group: int) -> int:
        """Return the home of a group, its first cell: it alone counts and reports the group's rows."""
        return group * math.prod(self.counts[stream + 1 :])

    def is_home(self, cell: int, stream: int) -> bool:
        """Whether the cell is the home of the stream's group that it holds."""
        return self.home_cell(stream, self.group_in_cell(cell, stream)) == cell

    def copied_rows(self, rates: Sequence[float]) -> float:
        """Return the rows that all cells together store a second: ``sum rate_i * S / L_i`` (DAB Join, section 4.1)."""
        return sum(rate * self.copies(stream) for stream, rate in enumerate(rates))

    def __str__(self) -> str:
        return "x".join(map(str, self.counts))


def choose_layout(cells: int, rates: Sequence[float], windows: Sequence[float] | None = None) -> Layout:
    """Return the cheapest layout of exactly `cells` cells for these rates.

    It is the ordered factorisation of `cells` with the least ``sum rate_i * S / L_i`` (rows stored a second, DAB Join,
    section 4.1). Ties go to DP-Join's latency model (the least ``sum W_i * rate_i / L_i``: what a probe scans), then to
    fewer groups of the first streams, so that the choice is unique.

    Parameters
    ----------
    cells : int
        Number of cells, about one for each core.
    rates : sequence of float
        Tuples a second of each stream, finite and >= 0. Only their proportions count.
    windows : sequence of float, optional
        Extent of each stream's window, all in one unit, to break ties; taken as equal where not given.

    Raises
    ------
    LayoutError
        `cells` is not between 1 and `MAX_CELLS`, there are fewer than two rates or another number of windows, or a
        value is negative or not finite.
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
    # The sums are exact: rounding would decide ties by accident. Both are sums over the streams, so the best layout of
    # the last streams depends only on how many cells are left for them. So one table for each stream is enough, and not
    # every factorisation is tried.
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
