"""The inspection of a checkpoint: the cells' windows by their manifests, and the files that no manifest names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamjoin_ds.blocks import BlockStore, FoundFile
from streamjoin_ds.blocks.place import Place, absolute_location, is_local, place_of
from streamjoin_ds.cell.cell_state import CellState, corrupt_cell_state
from streamjoin_ds.cell.cell_windows import blocks_folder, blocks_prefix
from streamjoin_ds.checkpoint.batch_end import logged_plan, next_version, partitions_of, set_aside_so_far
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.checkpoint.spark_files import SparkFiles, numbered
from streamjoin_ds.engine.storage.state_blob import described
from streamjoin_ds.errors import MALFORMED, ArgumentError, ForeignCheckpointError, OffsetError, StreamJoinError
from streamjoin_ds.exchange.outbox import LAYOUT_KEY, exchange_folder, is_committed_block
from streamjoin_ds.plan import cell_of_label, spark_partition
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.device_clocks import device_text
from streamjoin_ds.source.feed import BacklogFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CellFacts",
    "Checkpoint",
    "Leftover",
    "PartitionFacts",
    "RunFacts",
    "WindowFacts",
    "inspected",
    "last_commit",
    "leftovers",
    "opened",
    "sparks_state_rows",
    "state_rows",
]


_LOOKS = 5  # at the state of a query that runs meanwhile


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run of a window. `block` is empty for a run in the state row, `size_bytes` is None where the block is gone."""

    rows: int
    oldest_us: int
    newest_us: int
    block: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """The window that a cell keeps of one stream."""

    stream: str
    largest_us: int | None
    runs: tuple[RunFacts, ...]

    @property
    def rows(self) -> int:
        """Number of tuples in all runs."""
        return sum(run.rows for run in self.runs)


@dataclass(frozen=True, slots=True)
class CellFacts:
    """A cell, its state row and its windows. `retired` are blocks that only older state rows name."""

    cell: int
    partition: int
    state_bytes: int
    watermark_us: int | None
    windows: tuple[WindowFacts, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The partitions of a stream: how many are looked at, those that are idle, and the one that holds the stream up.

    `forgotten` counts those that were read to their ends and are not looked at in each plan (`Forgotten.count`).
    `low_us` is its largest event time. `kind` is "partitions", or "devices" where these have the clocks.
    """

    count: int
    idle: tuple[str, ...]
    held_by: str | None
    low_us: int | None
    forgotten: int = 0
    kind: str = "partitions"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A join's checkpoint as of its last committed batch.

    The checkpoint of a query over `StreamJoin.dataframe` does not have the names. `join_id` is then the query's id,
    streams and cells are numbered, `layout` is empty where an older version wrote the checkpoint, and `prefix` is the
    beginning of the names of its blocks. `files_set_aside` (so far) and `held_back_bytes` (when that batch was planned)
    list only streams that have any. `next_versions` lists the streams over Delta tables: the version to which the next
    row belongs.
    `partitions` lists the streams that have any. `backlog` is what was known and not read when that batch was planned.
    `definition` has the lines that say what the join is. `layout` is the layout of new tuples; `older_layouts` are
    those of tuples that came before it changed.
    """

    path: str
    join_id: str
    streams: tuple[str, ...]
    layout: str
    batch_id: int | None
    cells: tuple[CellFacts, ...]
    prefix: str = ""
    older_layouts: tuple[str, ...] = ()
    files_set_aside: dict[str, int] = field(default_factory=dict)
    held_back_bytes: dict[str, int] = field(default_factory=dict)
    next_versions: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, PartitionFacts] = field(default_factory=dict)
    backlog: BacklogFacts = field(default_factory=BacklogFacts)
    definition: tuple[str, ...] = ()

    @property
    def blocks(self) -> dict[str, int | None]:
        """The blocks that windows name, with their sizes in bytes. A block that cells share is there once."""
        runs = (run for cell in self.cells for window in cell.windows for run in window.runs)
        return {run.block: run.size_bytes for run in runs if run.block}

    def to_facts(self) -> dict[str, Any]:
        """Return these facts as plain JSON values."""
        return asdict(self) | {"backlog": self.backlog.to_facts()}


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that nothing will read again."""

    file: FoundFile
    folder: BlockStore

    def __str__(self) -> str:
        return str(Path(self.folder.root) / self.file.name) if is_local(self.folder.root) else self.file.name

    def remove(self) -> bool:
        """Remove the file. Return False where it is gone already, or a batch has written or found it again meanwhile.

        Raises
        ------
        BlockWriteError
            The file system does not let it be removed.
        """
        return bool(self.folder.discard([self.file]))


def inspected(session: Callable[[], SparkSession], checkpoint: str, blocks: str | None = None) -> Checkpoint:
    """Return what a checkpoint holds. This reads Spark's state and changes nothing.

    Parameters
    ----------
    session : callable
        Returns a Spark session. It is called only where this process cannot read the states (`state_rows`).
    checkpoint : str
        A checkpoint of `StreamJoin.start`, or of a query whose first stateful operator is `StreamJoin.dataframe`.
    blocks : str, optional
        The folder of the blocks, if it is not in the checkpoint: what ``dataframe(blocks=...)`` was given.

    Raises
    ------
    ForeignCheckpointError
        There is no join's checkpoint in the folder.
    ArgumentError
        The blocks lie elsewhere, and `blocks` does not say where.
    BlockMissingError
        The folder of the blocks cannot be listed.
    StateCorruptError, StateVersionError
        A state row is damaged, or a newer version wrote it.
    """
    folder, identity = opened(checkpoint)
    sparks = folder if identity is None else identity.spark_folder(folder)
    batch_id = last_commit(sparks)
    states = state_rows(session, sparks) if batch_id is not None else []
    rows = [row for row in states if row[0] != LAYOUT_KEY]
    sizes = _Sizes(_block_store(folder, identity is not None, blocks))
    if identity is not None:
        names, prefix = identity.bound.names, ""
        join_id, layout = identity.join_id, str(identity.layout)
        numbers = {label: cell_of_label(label, identity.partitions) for label, _, _ in rows}
    else:
        streams = max((len(CellState.decode(blob).largest_us) for _, _, blob in rows), default=0)
        grids = (CellState.decode(blob).grid or {} for label, _, blob in states if label == LAYOUT_KEY)
        names, layout = tuple(map(str, range(streams))), "".join("x".join(map(str, grid["layout"])) for grid in grids)
        join_id = json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"]
        prefix = blocks_prefix(join_id)
        numbers = {label: number for number, label in enumerate(sorted(label for label, _, _ in rows))}
    cells = [_cell(sizes, names, blob, numbers[label], partition) for label, partition, blob in rows]
    cells.sort(key=lambda cell: cell.cell)
    found = Checkpoint(str(folder), join_id, names, layout, batch_id, tuple(cells), prefix)
    if identity is not None:
        found = replace(found, definition=tuple(line.strip() for line in repr(identity.bound.join).splitlines()[1:]))
    if identity is None or batch_id is None or identity.order_by is not None:
        return found
    batch = logged_plan(sparks, batch_id, identity.bound.join.streams)
    if batch is None:
        return found
    epochs, numbered = batch.layout.epochs, list(enumerate(names))
    if epochs is not None:
        found = replace(
            found, layout=str(epochs.current.layout), older_layouts=tuple(str(e.layout) for e in epochs.older)
        )
    aside = {name: count for number, name in numbered if (count := set_aside_so_far(batch, number))}
    held = {name: size for name, size in zip(names, batch.held_back_bytes, strict=True) if size}
    versions = {name: version for number, name in numbered if (version := next_version(batch, number)) is not None}
    positions = {name: at for number, name in numbered if (at := partitions_of(batch, number)) is not None}
    partitions = {
        name: PartitionFacts(len(p.partitions), p.idle, p.held_by, p.low_us, p.forgotten.count)
        for name, p in positions.items()
    }
    for number, name in numbered:
        if (clocks := batch.clocks_of_devices(number)) is not None:
            idle, held_by = tuple(sorted(map(device_text, clocks.idle))), clocks.held_by
            held_us = None if held_by is None else clocks.time_of(held_by)
            holder = None if held_by is None else device_text(held_by)
            partitions[name] = PartitionFacts(len(clocks.devices), idle, holder, held_us, kind="devices")
    found = replace(found, files_set_aside=aside, held_back_bytes=held, backlog=batch.backlog)
    return replace(found, partitions=partitions, next_versions=versions)


def leftovers(found: Checkpoint, blocks: str | None = None, *, now_s: float, older_than_s: float) -> list[Leftover]:
    """Return the join's files that nothing will read again, sorted: what failed attempts left.

    They are exchange blocks of committed batches, files whose task died while it wrote them, and blocks of windows that
    are in no state row which Spark can come back to. In a folder of blocks outside the checkpoint only files of this
    query count.

    Parameters
    ----------
    found : Checkpoint
    blocks : str, optional
        As for `inspected`.
    now_s : float
        Now, in seconds since 1970.
    older_than_s : float
        Only files that have not changed for so many seconds are returned. A younger one may belong to the batch that is
        running.
    """
    folder = place_of(found.path)
    kept = set(found.blocks) | {name for cell in found.cells for name in cell.retired}
    identity = CheckpointIdentity.load(folder) if not found.prefix else None
    sparks = folder if identity is None else identity.spark_folder(folder)
    # A join over DataFrames leaves nothing in the exchange.
    seqs = [] if identity is None or identity.order_by is not None else _committed_seqs(sparks, found)
    store, exchange = _block_store(folder, not found.prefix, blocks), BlockStore(exchange_folder(folder))
    own = found.prefix.rstrip("/")
    gone = [
        Leftover(file, exchange) for file in exchange.files() if _is_unused(file, is_committed_block(file.name, seqs))
    ]
    if store is not None:
        files = (file for file in store.files() if file.name.rpartition("/")[0] == own)
        gone += [Leftover(file, store) for file in files if _is_unused(file, file.name not in kept)]
    return sorted((leftover for leftover in gone if _is_older(leftover.file, now_s - older_than_s)), key=str)


def _is_unused(file: FoundFile, is_done: bool) -> bool:
    return is_done or file.name.rpartition("/")[2].startswith(".")


def _is_older(file: FoundFile, than_s: float) -> bool:
    """Whether a file has not changed since then. False where the file system does not tell when files changed."""
    return file.changed_s is not None and file.changed_s < than_s


def _block_store(folder: Place, is_own: bool, blocks: str | None) -> BlockStore | None:
    """Return the store of a checkpoint's windows; None where it is not known."""
    if blocks is None:
        return BlockStore(blocks_folder(folder)) if is_own else None
    return BlockStore(absolute_location(blocks))


class _Sizes:
    """The sizes of blocks. One listing gives them all, because a request for each block takes too long on S3."""

    def __init__(self, store: BlockStore | None) -> None:
        self._store = store
        self._found: dict[str, int] | None = None

    def of(self, block: str) -> int | None:
        if self._found is None:
            if self._store is None:
                msg = "the windows' blocks are not in the checkpoint, and it does not say where they are"
                hint = "give --blocks-in FOLDER, the folder that dataframe(blocks=...) was given"
                raise ArgumentError(msg, name="blocks", hint=hint)
            self._found = {file.name: file.size_bytes for file in self._store.files()}
        return self._found.get(block)


def opened(checkpoint: str) -> tuple[Place, CheckpointIdentity | None]:
    """Return the checkpoint's folder and identity. The identity is None for a query that is not `StreamJoin.start`'s.

    Such a query may be one over `StreamJoin.dataframe`.
    """
    folder = checkpoint_place(checkpoint)
    if not folder.exists():
        raise _no_join()
    if (folder / "metadata").is_file() and (folder / "state").is_dir() and not CheckpointIdentity.is_in(folder):
        return folder.resolve(), None
    identity = CheckpointIdentity.load(folder)
    if identity is None:
        raise _no_join()
    return folder.resolve(), identity


def _no_join() -> ForeignCheckpointError:
    msg = "the given folder holds no checkpoint of a join"
    hint = "give the folder of `streamjoin run --checkpoint`, or the checkpointLocation of a query over dataframe()"
    return ForeignCheckpointError(msg, name="checkpoint", hint=hint)


def last_commit(folder: Place) -> int | None:
    """Return the number of the last batch that Spark has committed in a checkpoint; None: there is none."""
    commits = folder / "commits"
    numbers = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
    return max(numbers, default=None)


def state_rows(
    session: Callable[[], SparkSession], folder: Place, batch: int | None = None
) -> list[tuple[int, int, bytes]]:
    """Return label, partition and state row of each cell, as `batch` left them; by default the last committed batch.

    Spark's session is asked for only where its files cannot be read here: in an object store, by another provider.
    """
    for _ in range(_LOOKS if isinstance(folder, Path) else 0):
        with contextlib.suppress(FileNotFoundError):  # a running query purges what it needs no more
            partitions = sum(1 for _ in numbered(folder / "state" / "0"))
            files = SparkFiles.of(folder, partitions)
            version = (max(files.commits, default=-1) if batch is None else batch) + 1
            if not (files.is_readable and files.has_state(version)):
                break
            blobs = files.blobs(version).items()
            return [(label, spark_partition(label, partitions), blob) for label, blob in blobs]
    return sparks_state_rows(session(), folder, batch)


def sparks_state_rows(spark: SparkSession, folder: Place, batch: int | None = None) -> list[tuple[int, int, bytes]]:
    """Return the same, read by Spark."""
    _ = spark.streams.active  # starts the coordinator that Spark's state reader reports to
    reader = spark.read.format("statestore")
    rows = (reader if batch is None else reader.option("batchId", str(batch))).load(str(folder)).collect()
    try:
        return [(row["key"][0], row["partition_id"], bytes(row["value"]["groupState"]["blob"])) for row in rows]
    except ValueError:  # a Row lacks one of these fields
        raise _no_join() from None


def _cell(sizes: _Sizes, names: tuple[str, ...], blob: bytes, number: int, partition: int) -> CellFacts:
    state = CellState.decode(blob)
    windows = []
    of_epochs = [described(blob) for blob in state.engine_blobs()]
    try:
        for stream, (name, largest_us) in enumerate(zip(names, state.largest_us, strict=True)):
            facts = tuple(_run(sizes, run) for runs in of_epochs for run in runs[stream])
            windows.append(WindowFacts(name, largest_us, facts))
    except StreamJoinError:
        raise
    except MALFORMED:
        raise corrupt_cell_state() from None
    retired = tuple(name for _, name in state.retired)
    return CellFacts(number, partition, len(blob), state.watermark_us, tuple(windows), retired)


def _run(sizes: _Sizes, run: dict[str, Any]) -> RunFacts:
    oldest_us, newest_us = run["zone"][0]
    block = run.get("block", "")
    return RunFacts(run["rows"], oldest_us, newest_us, block, sizes.of(block) if block else run["size_bytes"])


def _committed_seqs(folder: Place, found: Checkpoint) -> list[int]:
    """Return the number of records of each stream in committed batches; zeros where no batch is committed."""
    if found.batch_id is None:
        return [0] * len(found.streams)
    text = (folder / "offsets" / str(found.batch_id)).read_text(encoding="utf-8")
    try:
        positions = BatchPlan.from_offset(json.loads(text.splitlines()[2]), found.streams).positions
        return [int(position["seq"]) for position in positions]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        msg = "the checkpoint's last offset cannot be read"
        raise OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy") from error
