"""A cell's windows between two batches, and what their engines get for a batch: costs, threads, tables.

::

    state row ──► CellState ──► WindowJoin ──► one batch ──► WindowJoin ──► CellState ──► state row
                     │              ▲                            │             │
                     └── blocks ────┘                            └── blocks ───┴── retired; removed when Spark can no
                                                                                   longer load a state that names them

The state row is a manifest, large runs are blocks, and blocks retire late.

*Epochs.* The windows of each epoch have an engine of their own (`EpochWindows`). Tuples of newer epochs come to it as
guests. In a join of two streams guests probe and are not kept. In a join of one stream and tables they do nothing. In a
join of more streams guests are kept, because a combination of one older tuple and several newer ones is found here too.
Results without a tuple of this epoch are then left out: a newer epoch finds them.

*Threads.* A batch gets as many as its work needs, on cores that are leased for the batch::

    batch ──► wanted threads ──► free cores ──► threads, cores ──► engines ──► what it cost ──► the next batch's wanted

`Execution.threads` is the most. A batch that needs one thread leases nothing, so that its cores are left to cells that
need more.

*Tables.* A version of a table is a block. It is mapped and sorted once, and all cells of a worker join it.

*Costs.* The driver measures what the engine's operations cost, and the plan carries it to the cells.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from streamjoin_ds.blocks import BlockStore
from streamjoin_ds.blocks.place import below
from streamjoin_ds.cell.cell_state import CellState, KeptEpoch, checksum_of, corrupt_cell_state
from streamjoin_ds.cell.epoch_windows import EpochWindows, LiveWindows
from streamjoin_ds.engine.core_lease import ThreadDemand, leased_threads, usable_core_count
from streamjoin_ds.engine.cost_model import OperationCosts
from streamjoin_ds.engine.kernels.loading import kernel_names
from streamjoin_ds.engine.sizing import fitted_costs
from streamjoin_ds.engine.storage.bucket_grid.policy import BUCKET_ROWS
from streamjoin_ds.engine.storage.journal import Journal
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.window_set import TableWindows
from streamjoin_ds.engine.tuning import DEFAULT, ThreadTuning, Tuning
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.exchange.outbox import exchange_store
from streamjoin_ds.plan import Epoch, Epochs, Execution, Plan, copied_streams
from streamjoin_ds.source.batch_plan import TableVersion, versions_from
from streamjoin_ds.source.table_versions import tables_folder
from streamjoin_ds.spec import BoundJoin

__all__ = [
    "RETAIN_KEY",
    "CellWindows",
    "Staff",
    "blocks_folder",
    "blocks_prefix",
    "check_execution",
    "costs_of",
    "demand_of",
    "give_tables",
    "given_versions",
    "measured_costs",
    "opened_state",
    "stream_of_block",
    "table_blocks",
]

_log = logging.getLogger(__name__)
_Chunk = TypeVar("_Chunk")
# Joins whose costs a process remembers; a worker seldom serves more than one.
_REMEMBERED_JOINS = 16
_demands: OrderedDict[tuple[str, str, ThreadTuning], ThreadDemand] = OrderedDict()
_MOST_JOINS = 4  # joins whose tables a worker keeps sorted
# A hint, which spares sorting the same rows in every batch: what is kept says of which blocks it is.
_kept: OrderedDict[tuple[str, Execution], TableWindows] = OrderedDict()
RETAIN_KEY = "spark.sql.streaming.minBatchesToRetain"
_LARGE_INLINE_BYTES = 16 << 20  # bytes of a state row without blocks from which on a warning is logged


def measured_costs(bound: BoundJoin, execution: Execution, state_root: str) -> tuple[tuple[str, float], ...]:
    """Return what operations cost on this machine, for a plan; empty where no choice of its cells depends on them.

    Windows in blocks (`state_root`) keep the usual sizes of runs: what a block costs is not measured. A kernel that
    only the workers have cannot be measured here.
    """
    if state_root or execution.kernel not in kernel_names():
        return ()
    costs = fitted_costs(bound, execution.kernel)
    return () if costs is None else tuple(sorted(costs.to_facts().items()))


def costs_of(plan: Plan) -> OperationCosts | None:
    """Return the costs that a plan carries; None: it carries none."""
    return OperationCosts.from_facts(dict(plan.costs)) if plan.costs else None


def demand_of(plan: Plan, tuning: ThreadTuning) -> ThreadDemand:
    """Return what this process knows of a join's cost. A new worker knows nothing yet."""
    key = plan.join_id, plan.bound.fingerprint, tuning
    demand = _demands.pop(key, None) or ThreadDemand(tuning)
    _demands[key] = demand
    while len(_demands) > _REMEMBERED_JOINS:
        _demands.popitem(last=False)
    return demand


class Staff:
    """The threads that a cell has for one batch, and the time they take.

    Parameters
    ----------
    threads : int
    clock : callable
        Returns the processor time of this process, all threads together, in nanoseconds.

    Attributes
    ----------
    cpu_ns : int
        Processor time of the join so far.
    """

    def __init__(self, threads: int, clock: Callable[[], int] = time.process_time_ns) -> None:
        self.threads, self._clock = threads, clock
        self.cpu_ns = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the processor time while the context is open."""
        began_ns = self._clock()
        try:
            yield
        finally:
            self.cpu_ns += self._clock() - began_ns

    def timed(self, chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
        """Yield what `chunks` yields. What the reader does between two chunks is not counted."""
        while True:
            with self.counting():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk


def give_tables(
    plan: Plan, engines: Sequence[WindowJoin], blocks: Mapping[str, str], read: Callable[[str], pa.Table]
) -> None:
    """Have engines join versions of their tables.

    Parameters
    ----------
    plan : Plan
    engines : sequence of WindowJoin
    blocks : mapping of str to str
        By a table's name the name of its version's block, which carries the checksum.
    read : callable
        Returns a block by its name; `table_blocks` reads those of a checkpoint.
    """
    if not plan.bound.join.tables or not engines:
        return
    key = plan.bound.fingerprint, plan.execution
    tables = _kept.pop(key, None) or engines[0].tables
    new = {name: block for name, block in blocks.items() if tables.versions.get(name) != block}
    if new:  # engines of other queries, in other threads, may be joining those of before
        tables = tables.copied()
        for name, block in new.items():
            tables.use(name, [read(block)], block)
    _kept[key] = tables
    while len(_kept) > _MOST_JOINS:
        _kept.popitem(last=False)
    for engine in engines:
        engine.tables = tables


def given_versions(plan: Plan, batch_id: int) -> dict[str, TableVersion]:
    """Return the versions that a batch over DataFrames joins: those of the last start before it was planned."""
    told = [versions for first, versions in plan.given_tables if first <= batch_id]
    return versions_from(json.loads(told[-1])) if told else {}


def table_blocks(plan: Plan) -> Callable[[str], pa.Table]:
    """Return what reads the blocks of a checkpoint's tables.

    It raises BlockMissingError or BlockCorruptError where a version's block is gone or damaged.
    """
    return BlockStore(tables_folder(plan.block_root)).read


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
    live : LiveWindows, optional
        Where the windows stay between two batches, if they are saved in blocks.

    Attributes
    ----------
    state : CellState
        The cell's state as it was before this batch.
    named_blocks : frozenset of str
        Blocks that the state row names.
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

    def __init__(
        self,
        plan: Plan,
        cell: int,
        state: bytes | CellState | None,
        *,
        prefix: str = "",
        live: LiveWindows | None = None,
    ) -> None:
        bound = plan.bound
        self._plan, self._cell, self._prefix = plan, cell, prefix
        self._lives = live if plan.state_root else None
        self._key = plan.join_id, plan.state_root, plan.execution, cell
        first = Epochs.first(plan.layout).current
        store = self._store_of(first)
        if store is not None:
            store.begin(plan.cells)
        self._live: list[EpochWindows] = []
        self._journaled: set[str] = set()  # blocks of a journal, whose tuples are saved in runs from now on
        kept_state = state if isinstance(state, CellState) else opened_state(bound, state)
        if kept_state is None:
            self.state = CellState.first(bound)
            if cell < plan.layout.cells:
                self._live = [self._empty(first)]
        else:
            self.state = kept_state
            found = None if self._lives is None else self._lives.take(self._key, kept_state.checksum)
            whole = KeptEpoch(first, None, (None,) * len(bound.names), len(self.state.windows))
            kept = [whole] if self.state.epochs is None else self.state.epochs
            self._live = list(self._kept(kept, self.state.engine_blobs())) if found is None else found
            for windows in found or ():
                windows.store = self._store_of(windows.epoch)  # the batch says anew how large a block is
        self.named_blocks = self.blocks | self._journaled
        for windows in self._live:
            if windows.store is not None:
                windows.store.forget_but(self.named_blocks)
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
        return frozenset[str]().union(*(windows.blocks for windows in self._live))

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
        wanted = demand.wanted(self._cell, rows, execution.threads or 1)
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

    def _engine(self, epoch: Epoch) -> WindowJoin:
        """Return an engine without tuples. One that lives on keeps its windows in memory as `JoinEngine` does."""
        plan = self._plan
        options: dict[str, Any] = {"bucket_rows": BUCKET_ROWS, "costs": "measured"}
        if self._lives is None:
            options = {"block_bytes": plan.block_bytes if plan.state_root else None, "costs": costs_of(plan)}
        execution, copied = replace(plan.execution, threads=1), copied_streams(plan.bound, epoch.layout)
        return WindowJoin(plan.bound, execution=execution, tuning=self.tuning, copied=copied, **options)

    def _empty(self, epoch: Epoch) -> EpochWindows:
        engine = self._engine(epoch)
        journal = None if self._lives is None else Journal([()] * len(engine.forms))
        return EpochWindows(self._plan.bound, epoch, engine, self._store_of(epoch), journal=journal)

    def _kept(self, epochs: Sequence[KeptEpoch], blobs: Sequence[bytes]) -> Iterator[EpochWindows]:
        for kept, blob in zip(epochs, blobs, strict=True):
            store, engine, journal = self._store_of(kept.epoch), self._engine(kept.epoch), None
            origins = engine.restore(blob, store)
            if self._lives is None:
                entries = (entry for of_stream in origins for entry, _, _ in of_stream if "span" in entry)
                self._journaled.update(entry["block"] for entry in entries if "block" in entry)
            else:
                journal = Journal.restored(engine.forms, origins)
                engine.settle()
            yield EpochWindows(self._plan.bound, kept.epoch, engine, store, kept.end_seqs, kept.last_positions, journal)

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
        exchange = exchange_store(self._plan)
        saved = [windows.save(watermark_us, seqs, exchange) for windows in self._live]
        kept = [
            KeptEpoch(windows.epoch, windows.end_seqs, windows.last_positions, len(blob))
            for windows, blob in zip(self._live, saved, strict=True)
        ]
        blocks = self.blocks
        self.new_blocks = sorted(blocks - self.named_blocks)
        left = sorted(self.named_blocks - blocks)
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
        if self._lives is not None:
            self._lives.keep(self._key, checksum_of(blob), self._live)
        if not self._plan.state_root and len(blob) > _LARGE_INLINE_BYTES:
            _log.warning(
                "a cell's windows are %.0f MB and pass through Spark's state store in every batch (about 15 ms a MB): "
                "give a folder that all workers see, dataframe(..., blocks=FOLDER) or start(..., exchange='reference')",
                len(blob) / 1e6,
            )
        return blob
