"""Looking into a checkpoint: the cells' windows as their manifests tell them, and the files that none of them names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamjoin_ds.engine.snapshot import described
from streamjoin_ds.errors import ForeignCheckpointError, OffsetError
from streamjoin_ds.source.exchange import is_committed_block
from streamjoin_ds.source.offset import decode_offset
from streamjoin_ds.stream.identity import Identity, local_path
from streamjoin_ds.stream.state import CellState
from streamjoin_ds.stream.windows import blocks_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CellFacts", "Checkpoint", "RunFacts", "WindowFacts", "inspected", "leftovers"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run of a window; `block` is empty where it lies in the state row itself, `size_bytes` None where it is gone."""

    rows: int
    oldest_us: int
    newest_us: int
    block: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """What a cell keeps of one stream."""

    stream: str
    largest_us: int | None
    runs: tuple[RunFacts, ...]

    @property
    def rows(self) -> int:
        """Tuples, all runs together."""
        return sum(run.rows for run in self.runs)


@dataclass(frozen=True, slots=True)
class CellFacts:
    """A cell, its state row and its windows; `retired` are blocks that only older state rows name."""

    cell: int
    partition: int
    state_bytes: int
    watermark_us: int | None
    windows: tuple[WindowFacts, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a join as of its last committed batch."""

    path: str
    join_id: str
    streams: tuple[str, ...]
    layout: str
    batch_id: int | None
    cells: tuple[CellFacts, ...]

    @property
    def blocks(self) -> dict[str, int | None]:
        """Blocks that windows name, and their sizes; a block that cells share is there once."""
        runs = (run for cell in self.cells for window in cell.windows for run in window.runs)
        return {run.block: run.size_bytes for run in runs if run.block}

    def to_facts(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def inspected(spark: SparkSession, checkpoint: str) -> Checkpoint:
    """What a checkpoint holds; reads Spark's state, changes nothing.

    Raises
    ------
    ForeignCheckpointError
        There is no join's checkpoint in the folder.
    StateCorruptError, StateVersionError
        A state row is damaged, or a newer version wrote it.
    """
    folder, identity = _opened(checkpoint)
    batch_id = _last_commit(folder)
    rows = _state_rows(spark, folder) if batch_id is not None else []
    names = identity.bound.names
    numbers = {label: number for number, label in enumerate(_labels(identity))}
    cells = [_cell(folder, names, blob, numbers[label], partition) for label, partition, blob in rows]
    cells.sort(key=lambda cell: cell.cell)
    return Checkpoint(str(folder), identity.join_id, names, str(identity.layout), batch_id, tuple(cells))


def leftovers(found: Checkpoint, *, now_s: float, older_than_s: float) -> list[Path]:
    """Files of the join in a checkpoint that nothing will read again, sorted: what failed attempts left.

    Blocks that no state row names which Spark can come back to, exchange blocks of committed batches, and files that
    were being written when their task died.

    Parameters
    ----------
    found : Checkpoint
    now_s, older_than_s : float
        Seconds since 1970; only files that have not changed for so long: a younger one may belong to the batch that
        is running.
    """
    folder = Path(found.path)
    kept = set(found.blocks) | {name for cell in found.cells for name in cell.retired}
    seqs = _committed_seqs(folder, found)
    gone = []
    for path in _files(folder):
        aside = path.name.startswith(".")
        if path.parent.name == "blocks":
            unused = aside or path.name not in kept
        else:
            unused = aside or is_committed_block(path.name, seqs)
        if unused and path.stat().st_mtime < now_s - older_than_s:
            gone.append(path)
    return sorted(gone)


def _opened(checkpoint: str) -> tuple[Path, Identity]:
    folder = local_path(checkpoint)
    identity = None if folder is None or not folder.exists() else Identity.load(folder)
    if folder is None or identity is None:
        msg = "there is no checkpoint of a join here"
        raise ForeignCheckpointError(
            msg, name="checkpoint", hint="the folder that `streamjoin run --checkpoint` was given"
        )
    return folder.resolve(), identity


def _labels(identity: Identity) -> tuple[int, ...]:
    from streamjoin_ds.plan import Plan

    return Plan(identity.bound, identity.layout, identity.partitions).labels


def _last_commit(folder: Path) -> int | None:
    commits = folder / "commits"
    numbers = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
    return max(numbers, default=None)


def _state_rows(spark: SparkSession, folder: Path) -> list[tuple[int, int, bytes]]:
    """Label, partition and state row of each cell."""
    _ = spark.streams.active  # starts the coordinator that Spark's state reader reports to
    rows = spark.read.format("statestore").load(str(folder)).collect()
    return [(row["key"][0], row["partition_id"], bytes(row["value"]["groupState"]["blob"])) for row in rows]


def _cell(folder: Path, names: tuple[str, ...], blob: bytes, number: int, partition: int) -> CellFacts:
    state = CellState.decode(blob)
    windows = []
    for name, largest_us, runs in zip(names, state.largest_us, described(state.windows), strict=True):
        facts = tuple(_run(folder, run) for run in runs)
        windows.append(WindowFacts(name, largest_us, facts))
    retired = tuple(name for _, name in state.retired)
    return CellFacts(number, partition, len(blob), state.watermark_us, tuple(windows), retired)


def _run(folder: Path, run: dict[str, Any]) -> RunFacts:
    oldest_us, newest_us = run["zone"][0]
    block = run.get("block", "")
    return RunFacts(run["rows"], oldest_us, newest_us, block, _size(folder, block) if block else run["size_bytes"])


def _size(folder: Path, block: str) -> int | None:
    try:
        return (Path(blocks_folder(folder)) / block).stat().st_size
    except OSError:
        return None


def _files(folder: Path) -> Iterator[Path]:
    for name in ("blocks", "exchange"):
        if (folder / name).is_dir():
            yield from (path for path in (folder / name).iterdir() if path.is_file())


def _committed_seqs(folder: Path, found: Checkpoint) -> list[int]:
    """Up to which record of each stream batches are committed; zeros where none is."""
    if found.batch_id is None:
        return [0] * len(found.streams)
    text = (folder / "offsets" / str(found.batch_id)).read_text(encoding="utf-8")
    try:
        positions = decode_offset(json.loads(text.splitlines()[2]), found.streams)
        return [int(position["seq"]) for position in positions]  # type: ignore[index]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        msg = "the checkpoint's last offset cannot be read"
        raise OffsetError(msg, name="offsets", hint="restore the checkpoint from a spare copy") from error
