"""The grid: how many groups each stream is dealt into, and which cells a group is copied to."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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

    def group_of(self, stream: int, seq: np.ndarray) -> np.ndarray:
        """Group of each tuple, int32 of the length of `seq`: tuples are dealt in turn, so no value can be hot."""
        return np.mod(seq, self.counts[stream]).astype(np.int32)

    def group_in_cell(self, cell: int, stream: int) -> int:
        """Which of the stream's groups meets in this cell: the cell's coordinate."""
        return cell // math.prod(self.counts[stream + 1 :]) % self.counts[stream]

    def cells_of(self, stream: int, group: int) -> tuple[int, ...]:
        """The cells a group of the stream is copied to, ascending; ``S / L_i`` of them."""
        return tuple(cell for cell in range(self.cells) if self.group_in_cell(cell, stream) == group)

    def home_cell(self, stream: int, group: int) -> int:
        """The one cell that counts and reports a group's rows: its first."""
        return group * math.prod(self.counts[stream + 1 :])

    def is_home(self, cell: int, stream: int) -> bool:
        """Whether the cell counts and reports the rows of the stream's group that it holds."""
        return self.home_cell(stream, self.group_in_cell(cell, stream)) == cell

    def copied_rows(self, rates: Sequence[float]) -> float:
        """Rows stored a second, all cells together: ``sum rate_i * S / L_i`` (DAB Join, section 5)."""
        return sum(rate * self.copies(stream) for stream, rate in enumerate(rates))

    def __str__(self) -> str:
        return "x".join(map(str, self.counts))


def choose_layout(cells: int, rates: Sequence[float]) -> Layout:
    """The cheapest layout of exactly `cells` cells for these rates.

    Enumerates the ordered factorisations of `cells` and takes the least ``sum rate_i * S / L_i``; ties go to DP-Join's
    latency model (the smallest sum of group sizes ``rate_i / L_i``: shorter scans), then to fewer groups of the first
    streams, so that the choice is one.

    Parameters
    ----------
    cells : int
        About one a core.
    rates : sequence of float
        Tuples a second, one a stream; only their proportions count.
    """
    if cells < 1 or cells > MAX_CELLS:
        msg = f"the number of cells must be between 1 and {MAX_CELLS}"
        raise LayoutError(msg, name="cells", hint="about one a core")

    def cost(layout: Layout) -> tuple[float, float, tuple[int, ...]]:
        scanned = sum(rate / count for rate, count in zip(rates, layout.counts, strict=True))
        return layout.copied_rows(rates), scanned, layout.counts

    return min((Layout(counts) for counts in _factorisations(cells, len(rates))), key=cost)


def _factorisations(product: int, factors: int) -> Iterator[tuple[int, ...]]:
    if factors == 1:
        yield (product,)
        return
    for divisor in range(1, product + 1):
        if product % divisor == 0:
            for rest in _factorisations(product // divisor, factors - 1):
                yield (divisor, *rest)
