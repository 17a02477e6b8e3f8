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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.threads.core_lease import leased_cores
from streamjoin_ds.engine.tuning import DEFAULT, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.plan import Execution, Plan
from streamjoin_ds.spec import BoundJoin

__all__ = [
    "RETAIN_KEY",
    "CellWindows",
    "blocks_folder",
    "blocks_prefix",
    "check_execution",
    "task_cores",
]

_log = logging.getLogger(__name__)

RETAIN_KEY = "spark.sql.streaming.minBatchesToRetain"
_LARGE_INLINE_BYTES = 16 << 20  # bytes of a state row without blocks from which on a warning is logged


def blocks_folder(checkpoint: str | Path) -> str:
    """Return the folder of the blocks of a checkpoint's windows."""
    return str(Path(checkpoint) / "blocks")


def blocks_prefix(query_id: str) -> str:
    """Return the beginning of the names of a DataFrame query's blocks: queries may share a folder, but no blocks."""
    return f"{query_id[:8]}/" if query_id else ""


def check_execution(bound: BoundJoin, execution: Execution) -> None:
    """Refuse, before anything runs, what the engine of every cell would refuse.

    The kernel is not checked: the driver's machine does not tell what a worker's machine can run.

    Raises
    ------
    ArgumentError, ColumnError
    """
    WindowJoin(bound, **{**execution.engine_options(), "kernel": "auto"})


@contextlib.contextmanager
def task_cores(execution: Execution) -> Iterator[tuple[int, ...]]:
    """Lease cores for the kernel threads of one cell's batch, while the context is open; yield none to pin nothing.

    Other cells and other queries reuse the workers, and idle workers live on, so no worker keeps a core between
    batches. A single kernel thread is the worker's own thread, which reads and writes files too. Pinned, it gained
    nothing on small triggers and lost up to a third on large batches, so the system places it.
    """
    if execution.threads == 1 or not execution.pin:
        yield ()
        return
    with leased_cores(execution.threads) as cores:
        yield cores


class CellWindows:
    """The engine of one cell with its windows, for one batch.

    Parameters
    ----------
    plan : Plan
    cell : int
        Number of the cell.
    blob : bytes or None
        The cell's state row; None in its first batch.
    cores : sequence of int
        Cores for the engine's kernel threads (`task_cores`); empty to leave them unpinned.
    prefix : str
        The beginning of the names of new blocks (`blocks_prefix`).

    Attributes
    ----------
    state : CellState
        The cell's state as it was before this batch.
    engine : WindowJoin
    new_blocks : list of str
        Blocks that the state row of `saved` names and the one before did not.
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

    def __init__(
        self, plan: Plan, cell: int, blob: bytes | None, cores: Sequence[int] = (), *, prefix: str = ""
    ) -> None:
        bound = plan.bound
        self._plan = plan
        self._store = _store(plan, cell, prefix, self.tuning)
        block_bytes = plan.block_bytes if self._store is not None else None
        options = {**plan.execution.engine_options(), "cores": cores, "block_bytes": block_bytes}
        if self._store is not None:
            self._store.begin(plan.layout.cells)
        if blob is None:
            self.state = CellState(bound.fingerprint, [None] * len(bound.names))
            self.engine = WindowJoin(bound, tuning=self.tuning, **options)
        else:
            self.state = CellState.decode(blob)
            if self.state.fingerprint != bound.fingerprint:
                msg = "a cell's state belongs to another join"
                raise FingerprintMismatchError(msg, name="state", hint="use the checkpoint this join was started with")
            self.engine = WindowJoin.restored(bound, self.state.windows, self._store, tuning=self.tuning, **options)
        self._blocks_before = self.engine.blocks
        if self._store is not None:
            self._store.forget_but(self._blocks_before)
        self.new_blocks: list[str] = []

    def saved(self, batch_id: int, largest_us: list[int | None], watermark_us: int | None) -> bytes:
        """Return the state row after the batch. Write the blocks that are new, and remove those that are due.

        A block that leaves the manifest with batch *b* is named by older manifests. Spark may come back to these until
        ``retain_batches`` more batches have begun. So the state row keeps the block's name until then, and the first
        attempt that finds the block due removes it. A second attempt finds it gone, which is no error. If the manifest
        names a block again (expiry may thin out a merged run until it is what it was before), the block has not left:
        its time begins anew when it leaves.
        """
        windows = self.engine.save(self._store)
        self.new_blocks = sorted(self.engine.blocks - self._blocks_before)
        left = sorted(self._blocks_before - self.engine.blocks)
        waiting = (entry for entry in self.state.retired if entry[1] not in self.engine.blocks)
        retired = [*waiting, *((batch_id, name) for name in left)]
        due = {name for since, name in retired if since < batch_id - self._plan.retain_batches}
        if due and self._store is not None:
            self._store.blocks.remove(due)
        state = CellState(
            self.state.fingerprint,
            largest_us,
            watermark_us,
            self.state.batches + 1,
            windows,
            [entry for entry in retired if entry[1] not in due],
        )
        blob = state.encode()
        if self._store is None and len(blob) > _LARGE_INLINE_BYTES:
            _log.warning(
                "a cell's windows are %.0f MB and pass through Spark's state store in every batch (about 15 ms a MB): "
                "give a folder that all workers see, dataframe(..., blocks=FOLDER) or start(..., exchange='reference')",
                len(blob) / 1e6,
            )
        return blob


def _store(plan: Plan, cell: int, prefix: str, tuning: Tuning) -> RunStore | None:
    if not plan.state_root:
        return None
    stems = [f"{prefix}{stream:02d}-{group:04d}" for stream, group in enumerate(plan.layout.groups_in(cell))]
    owner = (plan.bound.fingerprint, plan.execution.kernel)
    blocks = BlockStore(plan.state_root, durable=plan.durable)
    return RunStore(blocks, stems, owner, plan.block_bytes, tuning=tuning.cache)
