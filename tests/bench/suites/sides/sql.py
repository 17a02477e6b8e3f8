"""A workload's condition as SQL for the peers: equal grid cells find pairs, the contract's form of the band decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamjoin_ds.spec import Band, Join

__all__ = ["CellAxis", "axes", "band_condition"]

# A tuple is sent to every cell in which a partner could lie. The band is widened by this factor for that, so that
# rounding loses no cell at its edge.
_WIDER = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class CellAxis:
    """One band as one axis of a grid.

    Attributes
    ----------
    left, right : str
        Columns of the first and of the second stream.
    eps : float
        Half of the band's width; the workloads' bands are symmetric.
    width : float
        Width of a cell.
    """

    left: str
    right: str
    eps: float
    width: float

    def left_cell(self, column: str) -> str:
        """Return SQL for the cell of a value of the left column."""
        return f"floor({column} / {self.width!r})"

    def right_cells(self, column: str) -> tuple[str, str]:
        """Return SQL for the first and the last cell in which a partner of a value of the right column can lie."""
        reach = self.eps * _WIDER
        return f"floor(({column} - {reach!r}) / {self.width!r})", f"floor(({column} + {reach!r}) / {self.width!r})"


def axes(join: Join, cell_widths: int) -> tuple[CellAxis, ...]:
    """Return one axis for each band of a join of two streams; a cell is `cell_widths` times eps wide."""
    found = []
    for band in join.predicates:
        assert isinstance(band, Band), "the workloads have bands only"
        assert band.lo == -band.hi, "and they are symmetric"
        assert band.left.stream == join.names[0], "from the first stream to the second"
        eps = float(band.hi)  # type: ignore[arg-type]
        found.append(CellAxis(band.left.name, band.right.name, eps, eps * cell_widths))
    return tuple(found)


def band_condition(axis: CellAxis, left: Callable[[str], str], right: Callable[[str], str]) -> str:
    """Return SQL for a band in the contract's form: widened to double, subtracted, compared."""
    return f"abs(CAST({left(axis.left)} AS DOUBLE) - CAST({right(axis.right)} AS DOUBLE)) <= {axis.eps!r}"
