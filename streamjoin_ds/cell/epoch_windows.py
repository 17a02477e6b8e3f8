"""One epoch's windows in a cell, and the windows that stay in a process from batch to batch.

::

    tuples ──► EpochWindows: engine ──► results             journal: what the engine's windows are made of (`Journal`)
                    │
                    └── LiveWindows: kept with the checksum of the state row, for the batch that begins at that row
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.engine.storage.journal import Arrived, Journal
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Epoch, Plan
from streamjoin_ds.spec import BoundJoin

__all__ = ["EpochWindows", "LiveWindows"]


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
    journal : Journal, optional
        The journal of windows that stay in this process. None: the engine's runs are saved.
    """

    def __init__(
        self,
        bound: BoundJoin,
        epoch: Epoch,
        engine: WindowJoin,
        store: RunStore | None,
        end_seqs: tuple[int, ...] | None = None,
        last_positions: tuple[int | None, ...] = (),
        journal: Journal | None = None,
    ) -> None:
        self.epoch, self.engine, self.store, self.journal = epoch, engine, store, journal
        self._bound = bound
        self._arrived: Mapping[int, Sequence[Arrived]] = {}
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

    @property
    def blocks(self) -> frozenset[str]:
        """The names of the blocks of the windows, and of what waits."""
        return self.engine.blocks if self.journal is None else self.journal.blocks | self.engine.waiting_blocks

    def push(
        self,
        arrived: Mapping[int, Sequence[Arrived]],
        watermark_us: int | None,
        next_seqs: Sequence[int | None],
    ) -> Iterator[pa.Table]:
        """Join new tuples, and keep them; parameters and results as for `WindowJoin.push`."""
        self._arrived = arrived
        yield from self.engine.push(_tuples(arrived), watermark_us, next_seqs)

    def push_guests(
        self,
        guests: Mapping[int, Sequence[Arrived]],
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
            yield from self.engine.probe(_tuples(guests) if len(self._bound.names) == 2 else {})
            yield from self.push({}, watermark_us, next_seqs)
            return
        assert self.end_seqs is not None
        for chunk in self.push(guests, watermark_us, next_seqs):
            is_own = np.zeros(chunk.num_rows, np.bool_)
            for name, end in zip(self._bound.names, self.end_seqs, strict=True):
                is_own |= chunk[f"{name}_seq"].to_numpy() < end
            if is_own.all():
                yield chunk
            elif is_own.any():
                yield chunk.filter(pa.array(is_own))

    def save(self, watermark_us: int | None, next_seqs: Sequence[int | None], exchange: BlockStore) -> bytes:
        """Return the windows as bytes, after a batch whose blocks are in `exchange`; see `WindowJoin.save`."""
        if self.journal is None or self.store is None:
            return self.engine.save(self.store)
        forms, kept = self.engine.forms, self.engine.kept_streams
        lowest = [self._bound.lowest_kept(n, watermark_us, next_seqs[n]) for n in range(len(forms))]
        arrived = {stream: found for stream, found in self._arrived.items() if stream in kept}
        self.journal = self.journal.after(arrived, lowest, forms, self.store, exchange)
        self._arrived = {}
        return self.engine.save(self.store, self.journal)

    def is_over(self, watermark_us: int | None, next_seqs: Sequence[int | None]) -> bool:
        """Whether the last of the epoch's own tuples has left the windows of all cells."""
        window = self._bound.join.window
        for stream, last in enumerate(self.last_positions):
            lowest = window.lowest_kept(stream, watermark_us, next_seqs[stream])
            if last is not None and (lowest is None or last >= lowest):
                return False
        return True


def _tuples(arrived: Mapping[int, Sequence[Arrived]]) -> dict[int, list[pa.Table]]:
    return {stream: [one.tuples for one in of_stream] for stream, of_stream in arrived.items()}


class LiveWindows:
    """The windows of cells that stay in this process from batch to batch.

    They are a hint. What is true stands in the state row and its blocks: windows are used again only at the very row
    that they were saved as, by one taker at a time. So a retry, a second driver or a restored checkpoint finds none,
    and makes them anew.
    """

    @classmethod
    def of(cls, plan: Plan, live: LiveWindows | None = None) -> LiveWindows | None:
        """Return where the windows of a plan's cells live on: `live`, or else a new object; None: they do not.

        All cells of a query and all attempts must do alike, wherever they run: cells share blocks, and a block that one
        of them removes must be named by none. So the plan alone decides it.
        """
        if not plan.execution.window_server or not plan.state_root or not is_local(plan.state_root):
            return None
        return live or cls()

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[str, list[EpochWindows], float]] = OrderedDict()

    @property
    def count(self) -> int:
        """How many cells have windows here that nobody uses at the moment."""
        return len(self._kept)

    def take(self, key: Hashable, row: str) -> list[EpochWindows] | None:
        """Return the windows that were saved as a state row with this checksum, which is then the caller's alone."""
        found = self._kept.pop(key, None)
        return None if found is None or found[0] != row else found[1]

    def keep(self, key: Hashable, row: str, windows: list[EpochWindows]) -> None:
        """Keep the windows of a cell."""
        self._kept[key] = row, windows, time.monotonic()

    def forget(self, before_s: float) -> None:
        """Let go of windows that were kept before a moment of the monotonic clock."""
        for key, (_, _, kept_s) in list(self._kept.items()):
            if kept_s < before_s:
                self._kept.pop(key, None)

    def forget_oldest(self) -> None:
        """Let go of the windows that were kept longest ago, if there are any."""
        with contextlib.suppress(KeyError):
            self._kept.popitem(last=False)
