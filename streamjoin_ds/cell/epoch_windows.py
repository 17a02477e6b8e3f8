"""The windows of one epoch in one cell: they have an engine of their own.

Tuples of newer epochs come here as guests. In a join of two streams guests probe and are not kept; in a join of one
stream and tables they do nothing. In a join of more
streams guests are kept, because a combination of one older tuple and several newer ones is found here too. Results
without a tuple of this epoch are then left out: a newer epoch finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Epoch
from streamjoin_ds.spec import BoundJoin

__all__ = ["EpochWindows"]


class EpochWindows:
    """One epoch's windows, for one batch.

    Parameters
    ----------
    bound : BoundJoin
    epoch : Epoch
    engine : WindowJoin
    store : RunStore or None
        The store of the engine's blocks; None where windows stay inline.
    end_seqs : tuple of int, optional
        For each stream the number of the first record after the epoch. None: the epoch takes new tuples.
    last_positions : tuple of int or None, optional
        For each stream the largest position (event time, or number of a count window) that one of the epoch's own
        tuples may have. It is known only once the epoch takes no more tuples of its own (`close`).
    """

    def __init__(
        self,
        bound: BoundJoin,
        epoch: Epoch,
        engine: WindowJoin,
        store: RunStore | None,
        end_seqs: tuple[int, ...] | None = None,
        last_positions: tuple[int | None, ...] = (),
    ) -> None:
        self.epoch, self.engine, self.store = epoch, engine, store
        self._bound = bound
        self.end_seqs = end_seqs
        self.last_positions = last_positions or (None,) * len(bound.names)

    def close(self, next_epoch: Epoch, largest_us: Sequence[int | None]) -> None:
        """Take no more tuples of the epoch's own; do nothing where the epoch was closed before.

        All tuples of each stream decide when the epoch is over, those in other cells included: cells share blocks, so
        an epoch must be over in all of them at once.

        Parameters
        ----------
        next_epoch : Epoch
            The epoch that takes the tuples from now on.
        largest_us : sequence of int or None
            For each stream the largest event time so far.
        """
        if self.end_seqs is not None:
            return
        self.end_seqs = next_epoch.first_seqs
        if self._bound.join.window.kind == "count":
            firsts = zip(self.epoch.first_seqs, next_epoch.first_seqs, strict=True)
            self.last_positions = tuple(after - 1 if after > first else None for first, after in firsts)
        else:
            self.last_positions = tuple(largest_us)

    def push_guests(
        self,
        guests: Mapping[int, Sequence[pa.Table]],
        watermark_us: int | None,
        next_seqs: Sequence[int | None],
    ) -> Iterator[pa.Table]:
        """Join tuples of newer epochs with the epoch's own tuples. The epoch must be closed.

        Yields
        ------
        pyarrow.Table
            As `WindowJoin.push`; each result has a tuple of this epoch.
        """
        if len(self._bound.names) <= 2:
            # A result of one stream's tuple is found in the tuple's own epoch.
            yield from self.engine.probe(guests if len(self._bound.names) == 2 else {})
            yield from self.engine.push({}, watermark_us, next_seqs)
            return
        assert self.end_seqs is not None
        for chunk in self.engine.push(guests, watermark_us, next_seqs):
            is_own = np.zeros(chunk.num_rows, np.bool_)
            for name, end in zip(self._bound.names, self.end_seqs, strict=True):
                is_own |= chunk[f"{name}_seq"].to_numpy() < end
            if is_own.all():
                yield chunk
            elif is_own.any():
                yield chunk.filter(pa.array(is_own))

    def is_over(self, watermark_us: int | None, next_seqs: Sequence[int | None]) -> bool:
        """Whether the last of the epoch's own tuples has left the windows of all cells."""
        window = self._bound.join.window
        for stream, last in enumerate(self.last_positions):
            lowest = window.lowest_kept(stream, watermark_us, next_seqs[stream])
            if last is not None and (lowest is None or last >= lowest):
                return False
        return True
