"""What becomes of the partners of tuples that are decided at their horizon."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamjoin_ds.engine.storage.selection import Selection

__all__ = ["Reduction"]


class Reduction(Protocol):
    """What becomes of the partners of tuples that are decided at their horizon."""

    def add(self, positions: npt.NDArray[np.int32], found: Selection, /) -> None:
        """Take some pairs: positions of decided tuples, in no order, and a partner of each. Copy what is to stay."""
