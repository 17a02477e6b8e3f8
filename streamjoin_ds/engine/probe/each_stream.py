"""The decision about tuples of the first stream whose partners are asked for in each of several others by itself.

::

    decided tuples ──► window of w ──► those still open ──► window of z ──► rows of "semi", or of "anti"
                       has a partner?                       has a partner?

A tuple of "semi" needs a partner in each, so the first stream without one decides it. A tuple of "anti" may have none,
so the first stream with one decides it. Only tuples that are still open meet the next window.

Where other cells have partners of the same tuples, none is decided before all windows were met: the cell tells in which
streams a tuple of "semi" has partners (`MET`), and whoever puts the cells' rows together wants all of them.

A null keeps a tuple from having partners only in the streams that its column is compared with. Tuples with such gaps
are probed as they lie, without being sorted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import NullKeyMask
from streamjoin_ds.engine.probe.join_order import JoinOrder
from streamjoin_ds.engine.probe.partner_marks import HasPartner
from streamjoin_ds.engine.probe.pipeline import JoinPipeline
from streamjoin_ds.engine.probe.probe_batch import ProbeBatch
from streamjoin_ds.engine.storage.sealed_run import SealedRun
from streamjoin_ds.engine.storage.selection import Selection
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.engine.threads.tasks import TaskCoroutine
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["MET", "EachStream"]

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]

MET = "met"
"""The last column of a row that is not whole: bit *n* - 1 says that the tuple has a partner in stream *n*."""


class EachStream:
    """The decision, for a "semi" or "anti" join of three streams and more.

    Parameters
    ----------
    bound : BoundJoin
    form : WindowForm
        Of the first stream.
    joining : JoinPipeline
    order : JoinOrder
        The order in which the others are asked.
    """

    def __init__(self, bound: BoundJoin, form: WindowForm, joining: JoinPipeline, order: JoinOrder) -> None:
        self._form, self._joining, self._order = form, joining, order
        self.wants_partner = not bound.row_kind.lonely
        # Tuples of a semi join that have a gap never come here.
        self._met = {} if self.wants_partner else {n: NullKeyMask(bound, 0, n) for n in range(1, len(bound.names))}

    def have_gaps(self, tuples: pa.RecordBatch) -> bool:
        """Return whether some of the tuples cannot have partners in each of the others."""
        columns = self._form.tuple_columns(tuples)
        return any(mask.mask(columns) is not None for mask in self._met.values())

    def arrived(self, run: SealedRun, windows: Sequence[Window]) -> ProbeBatch:
        """Return the tuples of a run, to meet the windows of the others in order."""
        selection = Selection.whole(run)
        return ProbeBatch(0, selection, self._order.chosen(0, windows, selection), tuple(windows))

    def mask(self, arrived: ProbeBatch) -> TaskCoroutine[Mask]:
        """Return which of the tuples make a row, step by step."""
        selection = arrived.selection
        count = len(selection)
        tuples = selection.run_set.runs[0].tuples.slice(selection.begin, count)
        columns = self._form.tuple_columns(tuples.select(self._form.tuple_schema.names))
        is_open: Mask = np.ones(count, np.bool_)
        for other in arrived.order:
            met = self._met[other].mask(columns) if other in self._met else None
            tried = np.flatnonzero(is_open if met is None else is_open & met).astype(np.int32)
            chosen = selection if len(tried) == count else selection.take(tried)
            reduction = HasPartner(len(tried))
            if len(tried):
                part = ProbeBatch(0, chosen, (other,), arrived.windows)
                yield from self._joining.reducing(part, reduction, reduction.counted)
            if self.wants_partner:
                is_open[tried] = reduction.mask
            else:
                is_open[tried[reduction.mask]] = False
        return is_open

    def met(self, arrived: ProbeBatch) -> TaskCoroutine[Int64]:
        """Return in which streams each of the tuples of a semi join has partners, as `MET`, step by step."""
        found: Int64 = np.zeros(len(arrived.selection), np.int64)
        for other in arrived.order:
            reduction = HasPartner(len(found))
            part = ProbeBatch(0, arrived.selection, (other,), arrived.windows)
            yield from self._joining.reducing(part, reduction, reduction.counted)
            found |= reduction.mask.astype(np.int64) << (other - 1)
        return found
