"""A sort layout that later batches of like size use again: it takes longer to choose one than to sort."""

from __future__ import annotations

from typing import NamedTuple

from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.sort_layout import SortLayout

__all__ = ["KeptLayout"]


class KeptLayout(NamedTuple):
    """A layout, the rows of the batch that it was chosen for, and how many batches were sorted in it."""

    layout: SortLayout
    rows: int
    uses: int

    def serves(self, rows: int, most_uses: int) -> bool:
        """Whether a batch of so many rows is to be sorted in it: one of half to twice as many, for so many batches."""
        return self.rows <= 2 * rows <= 4 * self.rows and self.uses < most_uses

    @classmethod
    def after(cls, kept: KeptLayout | None, run: SealedRun, most_uses: int) -> KeptLayout:
        """Return what is kept when a batch is this run: `kept` where it served the batch, else the run's own layout."""
        if kept is not None and kept.serves(run.rows, most_uses):
            return cls(kept.layout, kept.rows, kept.uses + 1)
        return cls(run.sort_layout, run.rows, 1)
