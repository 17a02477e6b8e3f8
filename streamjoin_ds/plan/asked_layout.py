"""What a user asks for by the option ``layout``: a kind of layout, or one grid that the join keeps to."""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin_ds.errors import LayoutError
from streamjoin_ds.plan.deciding_layout import check_deciding
from streamjoin_ds.plan.layout import Layout
from streamjoin_ds.plan.plan import CHOICE_CELLS, LAYOUT_KINDS
from streamjoin_ds.plan.reach import band_attributes
from streamjoin_ds.spec import BoundJoin

__all__ = ["AskedLayout"]


@dataclass(frozen=True, slots=True)
class AskedLayout:
    """The value of the option ``layout``.

    Attributes
    ----------
    kind : {"auto", "grid", "ranges"}
        The kind of the layouts that are chosen; "grid" where a grid is given.
    grid : Layout or None
        The grid that the join keeps to; None: layouts are chosen.
    """

    kind: str
    grid: Layout | None = None

    @classmethod
    def parse(cls, text: str | None, streams: int) -> AskedLayout:
        """Return what a text such as ``"ranges"`` or ``"2x3"`` asks for; None and "auto" are the same.

        Raises
        ------
        LayoutError
            The text is neither a kind nor group counts for so many streams.
        """
        kind = "auto" if text is None else text.strip()
        if kind in LAYOUT_KINDS:
            return cls(kind)
        return cls("grid", Layout.parse(kind, streams))

    def may_have_ranges(self, cells: int) -> bool:
        """Whether a join on so many cells may have ranges."""
        return self.kind == "ranges" or (self.kind == "auto" and cells >= CHOICE_CELLS)

    def check(self, bound: BoundJoin, *, whole: bool = False) -> None:
        """Refuse ranges where the join has no attribute for them, and a layout that `how` cannot have.

        Parameters
        ----------
        bound : BoundJoin
        whole : bool
            Whether nobody puts the answers of several cells together (`check_deciding`).

        Raises
        ------
        LayoutError
        """
        if self.kind == "ranges" and bound.decided:
            msg = f"{bound.join.asked} has no layouts of ranges: a tuple's partners may lie in several of them"
            raise LayoutError(msg, name="layout", hint="use auto, grid, or group counts")
        if self.grid is not None:
            check_deciding(bound, self.grid, whole=whole)
        if self.kind == "ranges" and not band_attributes(bound):
            msg = "no column of every stream is tied to the others by bands or equalities of numbers or times"
            hint = "use auto or grid: a grid works with any condition"
            raise LayoutError(msg, name="layout", hint=hint)
