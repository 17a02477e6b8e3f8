"""What several kinds of run have in common.

::

    ArrowRun       columns are Arrow arrays, row by row      SealedRun, Tail
    UnsortedRun    in no order that a probe can use          Tail, BucketRun
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.columns import gathered
from streamjoin_ds.engine.storage.conditions import ProbeCondition
from streamjoin_ds.engine.storage.sort_layout import ARRIVAL_ORDER
from streamjoin_ds.engine.storage.zoned import Zoned

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ArrowRun", "UnsortedRun"]


class ArrowRun(Zoned):
    """A run whose row i is row i of each of its columns; its keys are float64 or int64."""

    is_grid = False

    @property
    def tuples(self) -> pa.RecordBatch:
        """The tuples as a batch of ``run_schema``."""
        raise NotImplementedError

    def column(self, name: str) -> pa.Array:
        """Return a column of ``run_schema``."""
        raise NotImplementedError

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the tuples' columns."""
        return int(self.tuples.nbytes)

    @property
    def sampled(self) -> Self:
        """The sample from which the join order is estimated: the run itself, since it never changes."""
        return self

    def narrow_key(self, number: int) -> None:
        """Return None: no key is kept in 4 bytes."""
        del number

    def taken(self, name: str, rows: npt.NDArray[np.int32]) -> pa.Array:
        """Return a column of some rows; any type, nulls kept."""
        return gathered(self.column(name), rows, self.form.kernels)

    def located(self, rows: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return, for each row, the number of its part in `Run.byte_parts`, always 0, and its row there."""
        return np.zeros(len(rows), np.int32), rows


class UnsortedRun(Zoned):
    """A run in no order that a probe can use; it is no block, is not merged, and is never seen in another order."""

    sort_layout = ARRIVAL_ORDER
    in_order = None
    is_sealed = False
    level = 0

    def seen_by(self, conditions: tuple[ProbeCondition, ...]) -> Sequence[Self]:
        """Return the run itself, whatever the conditions."""
        del conditions
        return [self]
