"""A cell's windows between two batches: the state row is a manifest, large runs are blocks, and blocks retire late.

::

    state row ──► CellState ──► WindowJoin ──► one batch ──► WindowJoin ──► CellState ──► state row
                     │              ▲                            │             │
                     └── blocks ────┘                            └── blocks ───┴── retired; removed when Spark can no
                                                                                   longer load a state that names them
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import below
from streamjoin_ds.cell.cell_costs import costs_of
from streamjoin_ds.cell.cell_state import CellState, KeptEpoch, corrupt_cell_state
from streamjoin_ds.cell.cell_threads import Staff, demand_of
from streamjoin_ds.cell.epoch_windows import EpochWindows
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.threads.core_lease import leased_threads
from streamjoin_ds.engine.threads.cores import usable_core_count
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.plan import Epoch, Epochs, Execution, Plan, copied_streams
from streamjoin_ds.spec import BoundJoin

__all__ = [
    "RETAIN_KEY",
    "CellWindows",
    "blocks_folder",
    "blocks_prefix",
    "check_execution",
    "opened_state",
    "stream_of_block",
]

_log = logging.getLogger(__name__)

RETAIN_KEY = "spark.sql.streaming.minBatchesToRetain"
_LARGE_INLINE_BYTES = 16 << 20  # bytes of a state row without blocks from which on a warning is logged


def blocks_folder(checkpoint: object) -> str:
    """Return the folder of the blocks of a checkpoint's windows."""
    return below(checkpoint, "blocks")


def blocks_prefix(query_id: str) -> str:
    """Return the beginning of the names of a DataFrame query's blocks: queries may share a folder, but no blocks."""
    return f"{query_id[:8]}/" if query_id else ""


def stream_of_block(name: str) -> int | None:
    """Return the stream whose tuples a block of windows has; None for a block of another kind."""
    found = re.match(r"(?:.*/)?(\d{2})-", name)
    return None if found is None else int(found[1])


def check_execution(bound: BoundJoin, execution: Execution) -> None:
    """Refuse, before anything runs, what the engine of every cell would refuse.

    The kernel is not checked: the driver's machine does not tell what a worker's machine can run.

    Raises
    ------
    ArgumentError, ColumnError
    """
    WindowJoin(bound, execution=replace(execution, kernel="auto"))


def opened_state(bound: BoundJoin, blob: bytes | None) -> CellState | None:
    """Return the state in a cell's state row; None where there is no row yet.

    Raises
    ------
    FingerprintMismatchError, StateCorruptError, StateVersionError
    """
    if blob is None:
        return None
    state = CellState.decode(blob)
    if state.fingerprint != bound.fingerprint:
        msg = "a cell's state belongs to another join"
        raise FingerprintMismatchError(msg, name="state", hint="use the checkpoint this join was started with")
    if len(state.largest_us) != len(bound.names):
        raise corrupt_cell_state()
    return state


class CellWindows:
    """The engine of one cell with its windows, for one batch.

    Parameters
    ----------
    plan : Plan
    cell : int
        Number of the cell.
    state : bytes, CellState or None
        The cell's state row, or what `opened_state` gave of it; None in its first batch.
    prefix : str
        The beginning of the names of new blocks (`blocks_prefix`).

    Attributes
    ----------
    state : CellState
        The cell's state as it was before this batch.
    new_blocks : list of str
        Blocks that the state row of `saved` names and the one before did not.
    has_ended : bool
        Whether the state row of `saved` has no windows, and no block to remove later.
    tuning : Tuning
        The tuning of the engines of all cells. A test sets a small one.

    Raises
    ------
    FingerprintMismatchError, StateCorruptError, StateVersionError, BlockMissingError, BlockCorruptError,
    MapLimitError
        The state belongs to another join or is damaged, a block of it is missing or damaged, or too many files are
        mapped. Nothing was written.
    """

    tuning: ClassVar[Tuning] = DEFAULT

    def __init__(self, plan: Plan, cell: int, state: bytes | CellState | None, *, prefix: str = "") -> None:
        bound = plan.bound
        self._plan, self._cell, self._prefix = plan, cell, prefix
        block_bytes = plan.block_bytes if plan.state_root else None
        self._options: dict[str, Any] = {"execution": replace(plan.execution, threads=1), "block_bytes": block_bytes}
        first = Epochs.first(plan.layout).current
        store = self._store_of(first)
        if store is not None:
            store.begin(plan.cells)
        self._live: list[EpochWindows] = []
        kept_state = state if isinstance(state, CellState) else opened_state(bound, state)
        if kept_state is None:
            self.state = CellState.first(bound)
            if cell < plan.layout.cells:
                self._live = [self._empty(first)]
        else:
            self.state = kept_state
            whole = KeptEpoch(first, None, (None,) * len(bound.names), len(self.state.windows))
            kept = [whole] if self.state.epochs is None else self.state.epochs
            self._live = list(self._kept(kept, self.state.engine_blobs()))
        self._blocks_before = self.blocks
        for windows in self._live:
            if windows.store is not None:
                windows.store.forget_but(self._blocks_before)
        self.new_blocks: list[str] = []
        self.has_ended = False

    @property
    def engine(self) -> WindowJoin:
        """The engine of the epoch that takes new tuples, whose layout must have this cell."""
        assert self.current is not None, "the newest layout has this cell"
        return self.current.engine

    @property
    def engines(self) -> list[WindowJoin]:
        """The engines of all epochs, the oldest first."""
        return [windows.engine for windows in self._live]

    @property
    def current(self) -> EpochWindows | None:
        """The epoch that takes new tuples; None where its layout does not have this cell."""
        newest = self._live[-1] if self._live else None
        return newest if newest is not None and newest.end_seqs is None else None

    @property
    def older(self) -> list[EpochWindows]:
        """The epochs that new tuples come to as guests, the oldest first."""
        return [windows for windows in self._live if windows.end_seqs is not None]

    @property
    def blocks(self) -> frozenset[str]:
        """The names of the blocks of all epochs."""
        return frozenset[str]().union(*(windows.engine.blocks for windows in self._live))

    @property
    def epochs(self) -> list[int]:
        """The numbers of the epochs that have windows here."""
        return [windows.epoch.number for windows in self._live]

    @contextlib.contextmanager
    def staffed(self, rows: int) -> Iterator[Staff]:
        """Give the engines the threads that a batch of so many new tuples asks for, while the context is open.

        Other cells and other queries reuse the workers, and idle workers live on, so no worker keeps a core between
        batches. A single kernel thread is the worker's own thread, which reads and writes files too. Pinned, it gained
        nothing on small triggers and lost up to a third on large batches, so the system places it.
        """
        execution, demand = self._plan.execution, demand_of(self._plan, self.tuning.threads)
        wanted = demand.wanted(self._cell, rows, execution.threads)
        fair = usable_core_count() // self._plan.cells if wanted > 1 else 1
        with leased_threads(wanted, fair, pin=execution.pin) as (threads, cores):
            staff = Staff(threads)
            for engine in self.engines:
                engine.use_threads(threads, cores)
            yield staff
            with staff.counting():  # a pool may still be at work on the windows
                for engine in self.engines:
                    engine.use_threads(1)
        demand.did(rows, staff.cpu_ns)

    def enter(self, epoch: Epoch, largest_us: Sequence[int | None]) -> None:
        """Make new tuples go to this epoch, which may be the one that they went to before.

        Parameters
        ----------
        epoch : Epoch
            The current epoch of the batch.
        largest_us : sequence of int or None
            For each stream the largest event time before the new tuples.
        """
        newest = -1
        for windows in self._live:
            newest = windows.epoch.number
            if epoch.number > newest:
                windows.close(epoch, largest_us)
        if epoch.number > newest and self._cell < epoch.layout.cells:
            self._live.append(self._empty(epoch))

    def _empty(self, epoch: Epoch) -> EpochWindows:
        bound, copied = self._plan.bound, copied_streams(self._plan.bound, epoch.layout)
        costs = costs_of(self._plan)
        engine = WindowJoin(bound, tuning=self.tuning, costs=costs, copied=copied, **self._options)
        return EpochWindows(bound, epoch, engine, self._store_of(epoch))

    def _kept(self, epochs: Sequence[KeptEpoch], blobs: Sequence[bytes]) -> Iterator[EpochWindows]:
        bound = self._plan.bound
        for kept, blob in zip(epochs, blobs, strict=True):
            store, copied = self._store_of(kept.epoch), copied_streams(bound, kept.epoch.layout)
            costs = costs_of(self._plan)
            engine = WindowJoin.restored(
                bound, blob, store, tuning=self.tuning, costs=costs, copied=copied, **self._options
            )
            yield EpochWindows(bound, kept.epoch, engine, store, kept.end_seqs, kept.last_positions)

    def _store_of(self, epoch: Epoch) -> RunStore | None:
        if not self._plan.state_root:
            return None
        plan, of_epoch = self._plan, f"e{epoch.number}" if epoch.number else ""
        groups = (epoch.layout.window_group(self._cell, stream) for stream in range(len(plan.bound.names)))
        stems = [f"{self._prefix}{stream:02d}-{group:04d}{of_epoch}" for stream, group in enumerate(groups)]
        owner = (plan.bound.fingerprint, plan.execution.kernel)
        blocks = BlockStore(plan.state_root, durable=plan.durable)
        return RunStore(blocks, stems, owner, plan.block_bytes, tuning=self.tuning.cache)

    def saved(
        self,
        batch_id: int,
        largest_us: list[int | None],
        watermark_us: int | None,
        next_seqs: Sequence[int | None] = (),
        answers: Sequence[str] = (),
        partitions: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> bytes:
        """Return the state row after the batch. Write the blocks that are new, and remove those that are due.

        `answers` are blocks for the batch's commit: the next batch removes them, since it begins after the commit.
        `partitions` is `CellState.partitions`.

        A block that leaves the manifest with batch *b* is named by older manifests. Spark may come back to these until
        ``retain_batches`` more batches have begun. So the state row keeps the block's name until then, and the first
        attempt that finds the block due removes it. A second attempt finds it gone, which is no error. If the manifest
        names a block again (expiry may thin out a merged run until it is what it was before), the block has not left:
        its time begins anew when it leaves.
        """
        seqs = next_seqs or [None] * len(largest_us)
        self._live = [w for w in self._live if w.end_seqs is None or not w.is_over(watermark_us, seqs)]
        saved = [windows.engine.save(windows.store) for windows in self._live]
        kept = [
            KeptEpoch(windows.epoch, windows.end_seqs, windows.last_positions, len(blob))
            for windows, blob in zip(self._live, saved, strict=True)
        ]
        blocks = self.blocks
        self.new_blocks = sorted(blocks - self._blocks_before)
        left = sorted(self._blocks_before - blocks)
        waiting = (entry for entry in self.state.retired if entry[1] not in blocks)
        retired = [*waiting, *((batch_id, name) for name in left)]
        retired += ((batch_id - self._plan.retain_batches, name) for name in answers)
        due = {name for since, name in retired if since < batch_id - self._plan.retain_batches}
        if due and self._plan.state_root:
            BlockStore(self._plan.state_root, durable=self._plan.durable).remove(due)
        # While the checkpoint's first epoch takes new tuples it is the only one.
        is_first = self.current is not None and self.current.epoch.number == 0
        state = CellState(
            self.state.fingerprint,
            largest_us,
            watermark_us,
            self.state.batches + 1,
            b"".join(saved),
            [entry for entry in retired if entry[1] not in due],
            epochs=None if is_first else kept,
            partitions=None if partitions is None else list(partitions),
        )
        self.has_ended = not kept and not state.retired
        blob = state.encode()
        if not self._plan.state_root and len(blob) > _LARGE_INLINE_BYTES:
            _log.warning(
                "a cell's windows are %.0f MB and pass through Spark's state store in every batch (about 15 ms a MB): "
                "give a folder that all workers see, dataframe(..., blocks=FOLDER) or start(..., exchange='reference')",
                len(blob) / 1e6,
            )
        return blob
