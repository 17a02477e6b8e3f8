"""Which of a join's tuples may have partners: those with a value in every compared column (`NullKeyMask`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import NullKeyMask
from streamjoin_ds.engine.columns import filtered
from streamjoin_ds.engine.kernels.objects import BatchColumns
from streamjoin_ds.engine.storage.window import WindowForm
from streamjoin_ds.spec.bound.bound_join import BoundJoin

if TYPE_CHECKING:
    from streamjoin_ds.engine.storage.window_forms import Tuples

__all__ = ["Joinable"]


class AnyMask:
    """Tells which tuples of one stream may have partners in any of several others."""

    def __init__(self, masks: Sequence[NullKeyMask]) -> None:
        self._masks = tuple(masks)

    def mask(self, arrived: BatchColumns) -> npt.NDArray[np.bool_] | None:
        """Return which tuples do; None: all of them."""
        found = np.zeros(arrived.rows, np.bool_)
        for one in self._masks:
            mask = one.mask(arrived)
            if mask is None:
                return None
            found |= mask
        return None if found.all() else found


class Joinable:
    """The test of all members of a join.

    Parameters
    ----------
    bound : BoundJoin
    forms : sequence of WindowForm
        One for each stream, then one for each table.
    """

    def __init__(self, bound: BoundJoin, forms: Sequence[WindowForm]) -> None:
        self._forms = tuple(forms)
        self._masks: list[NullKeyMask | AnyMask] = [NullKeyMask(bound, form.stream) for form in forms]
        if bound.row_kind.of_each and bound.row_kind.lonely:  # a null leaves the partners in the other streams
            self._masks[0] = AnyMask([NullKeyMask(bound, 0, other) for other in range(1, len(bound.names))])

    def partnered(self, member: int, tuples: BatchColumns) -> BatchColumns:
        """Return the tuples that may have partners."""
        mask = self._masks[member].mask(tuples)
        return tuples if mask is None else self._forms[member].tuple_columns(filtered(tuples.batch, mask))

    def alone(self, member: int, tuples: BatchColumns) -> pa.RecordBatch:
        """Return the tuples that can have none, of which there are some."""
        mask = self._masks[member].mask(tuples)
        assert mask is not None, "some tuples can have no partner"
        return filtered(tuples.batch, ~mask)

    def count_alone(self, member: int, tables: Sequence[Tuples]) -> int:
        """Return how many tuples can have no partner."""
        mask = self._masks[member].mask(self._forms[member].checked(tables))
        return 0 if mask is None else int(np.count_nonzero(~mask))
