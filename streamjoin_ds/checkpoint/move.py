"""The move of a stopped query to another number of cells, each on a state partition of its own.

::

    checkpoint/                          checkpoint/generation-1/
      state: version n, P partitions ──►   state: version n, P' partitions     1  written and forced
      offsets: n - 1, n (P)          ──►   offsets: n - 1, n (P')
      commits, metadata              ──►   commits, metadata
      offsets/n + 1: a fence                                                   2  no driver of before plans on
      join.json (P)                  ──► join.json (P', generation 1)          3  from here on the new one counts

Spark fixes a query's number of state partitions with its first batch. So its files are written anew, in a folder of
their own: each cell's state under the label that it has among the new partitions, and the newest entries of its logs.
Numbers of batches go on, and the query keeps its id. No window changes: old cells keep their states, and a cell that is
new gets the clocks of the others and no windows. Where tuples are decided at their horizon, all are dealt at once to
the cells of another layout, which is from then on the checkpoint's first (`streamjoin_ds.engine.storage.state_blob`).

Until ``join.json`` is replaced the query has not moved: nothing uses the new files, and the next move removes them. A
driver that slept all the while writes states and commits into the old folder, where nobody reads them.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from streamjoin_ds.blocks.place import Place
from streamjoin_ds.cell.cell_state import RESTORE_STATE, CellState
from streamjoin_ds.cell.cell_windows import stream_of_block
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.recovery import RECOVERY_FOLDER, put
from streamjoin_ds.checkpoint.spark_files import PARTITIONS_KEY, SparkFiles, file_of, key_of, row_of, source_offset
from streamjoin_ds.engine.storage.state_blob import described, redistribute
from streamjoin_ds.errors import CheckpointInUseError, StateCorruptError
from streamjoin_ds.plan import CellLayout, Epochs, Layout, cell_labels, cell_of_label, spark_partition
from streamjoin_ds.sink.durability import force
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.spec import BoundJoin

__all__ = ["FENCE", "dealt_states", "is_movable", "moved", "states_of_cells"]

_log = logging.getLogger(__name__)

# The entry of the offset log after the last one of a generation that is over: Spark refuses to log another one there.
FENCE = "v1\nthis query goes on in another folder, with another number of cells\n"


def states_of_cells(states: Mapping[int, bytes], heard: int, wanted: int) -> dict[int, bytes]:
    """Return a state for each of the `wanted` cells that hear of the next batch.

    Parameters
    ----------
    states : mapping of int to bytes
        State rows by cell.
    heard : int
        The number of cells that heard of the batch before. The clocks of all other cells stand still, and those cells
        have no windows.
    wanted : int
        The number of cells that hear of the next batch; at least the number of cells that have windows.

    Raises
    ------
    StateCorruptError, StateVersionError
        A state cannot be read, or is missing.
    """
    _check_whole(states, heard)
    for cell in (cell for cell in states if cell >= min(heard, wanted)):
        if CellState.decode(states[cell]).epochs != []:
            msg = f"cell {cell} belongs to no layout, but has windows"
            raise StateCorruptError(msg, name="state", hint="this is a defect, please report it; nothing was changed")
    new = replace(CellState.decode(states[0]), batches=0, windows=b"", retired=[], epochs=[]).encode()
    return {cell: states[cell] if cell < heard else new for cell in range(wanted)}


def dealt_states(
    bound: BoundJoin, states: Mapping[int, bytes], old: Layout, new: Layout, batch: int
) -> dict[int, bytes]:
    """Return a state for each cell of another layout, of a join that decides tuples at their horizon.

    Of each stream old group *g* goes to new group *g* mod the number of new ones. All copies of a group are the same,
    so one cell gives it.

    Parameters
    ----------
    bound : BoundJoin
    states : mapping of int to bytes
        State rows by cell; every cell has windows, of the checkpoint's only epoch.
    old, new : Layout
        The layout of the states, and the one that they get.
    batch : int
        The next batch. Blocks that no new cell names are removed some batches after it.

    Raises
    ------
    StateCorruptError, StateVersionError
        A state cannot be read, or is missing; or the cells' states are not of one batch.
    """
    _check_whole(states, old.cells)
    opened = [CellState.decode(states[cell]) for cell in range(old.cells)]
    clocks = [(state.fingerprint, state.largest_us, state.watermark_us, state.epochs) for state in opened]
    if any(found != clocks[0] for found in clocks) or opened[0].epochs is not None:
        msg = "the states of the cells are not of one batch"
        raise StateCorruptError(msg, name="state", hint=RESTORE_STATE)
    givers = [
        [
            [old.home_cell(stream, group) for group in range(new.group_in_cell(cell, stream), of_old, of_new)]
            for stream, (of_old, of_new) in enumerate(zip(old.counts, new.counts, strict=True))
        ]
        for cell in range(new.cells)
    ]
    blobs = redistribute(bound, [state.windows for state in opened], givers)
    named = set().union(*map(_blocks, blobs))
    retired: list[set[tuple[int, str]]] = [set() for _ in range(new.cells)]
    for cell, state in enumerate(opened):
        for entry in {*state.retired, *((batch, name) for name in _blocks(state.windows))}:
            for heir in () if entry[1] in named else _heirs(entry[1], cell, old, new):
                retired[heir].add(entry)
    return {
        cell: replace(opened[0], windows=blob, retired=sorted(of_cell)).encode()
        for cell, (blob, of_cell) in enumerate(zip(blobs, retired, strict=True))
    }


def _heirs(block: str, cell: int, old: Layout, new: Layout) -> tuple[int, ...]:
    """Return the new cells that keep in mind a block which has left an old cell: those that could name it again."""
    stream = stream_of_block(block)
    if stream is None:
        return (cell % new.cells,)
    return new.cells_of(stream, old.group_in_cell(cell, stream) % new.counts[stream])


def _check_whole(states: Mapping[int, bytes], heard: int) -> None:
    for cell in range(heard):
        if cell not in states:
            msg = f"the state of cell {cell} is missing"
            raise StateCorruptError(msg, name="state", hint=RESTORE_STATE)


def _blocks(blob: bytes) -> set[str]:
    return {entry["block"] for of_stream in described(blob) for entry in of_stream if "block" in entry}


def is_movable(checkpoint: Place, identity: CheckpointIdentity) -> bool:
    """Whether the state of a query can be moved: Spark's own provider keeps it, compressed with LZ4.

    That of three streams or more cannot be moved where one of them has many partitions (see `LayoutRule`), unless
    tuples are decided at their horizon: such a join has one epoch.
    """
    bound, streams = identity.bound, identity.bound.join.streams
    if len(streams) > 2 and not bound.decided and any(stream.partition_kind is not None for stream in streams):
        return False
    if not isinstance(checkpoint, Path):
        return False
    return SparkFiles.of(identity.spark_folder(checkpoint), identity.partitions).is_readable


def moved(
    checkpoint: Path, identity: CheckpointIdentity, cells: int, layout: CellLayout | None = None
) -> CheckpointIdentity:
    """Give a checkpoint another number of cells for new tuples, and as many state partitions. Return its new identity.

    Where tuples are decided at their horizon it has this layout from then on.

    Parameters
    ----------
    checkpoint : Path
        The checkpoint of a query that is not running, and whose files fit together (`recovered`).
    identity : CheckpointIdentity
        The checkpoint's identity.
    cells : int
        The new number of cells, at least 1.
    layout : CellLayout, optional
        Where tuples are decided at their horizon, their layout on so many cells. Of other joins none is asked.

    Raises
    ------
    StateCorruptError, StateVersionError
        A cell's state cannot be read. Nothing was changed.
    CheckpointInUseError
        A driver that was believed dead has planned a batch meanwhile. Nothing was changed.
    """
    spark = SparkFiles.of(Path(str(identity.spark_folder(checkpoint))), identity.partitions)
    first = layout if layout is not None and identity.bound.decided else identity.layout
    new = replace(identity, layout=first, partitions=cells, generation=identity.generation + 1)
    folder = Path(str(new.spark_folder(checkpoint)))
    shutil.rmtree(folder, ignore_errors=True)
    last = max(spark.offsets, default=-1)
    batch = last + 1 if last in spark.commits else max(last, 0)
    if batch:  # batch 0 begins without a state
        _write_state(spark, batch, folder / "state", _dealt(spark, identity, new, batch, last), cells)
    # A batch that is planned and not done has to have the partitions of the one before, with which Spark compares it.
    for number in (number for number in spark.offsets if number >= last - 1):
        _write(folder / "offsets" / str(number), _with_partitions(spark.offsets[number], cells).encode())
    for number in (number for number in spark.commits if number >= last - 1):
        _write(folder / "commits" / str(number), (spark.checkpoint / "commits" / str(number)).read_bytes())
    if spark.query_id is not None:
        _write(folder / "metadata", (spark.checkpoint / "metadata").read_bytes())
    kept = Path(str(spark.checkpoint)) / RECOVERY_FOLDER / "offsets"  # how batches that are done again were cut
    for path in kept.glob("*"):
        _write(folder / RECOVERY_FOLDER / "offsets" / path.name, path.read_bytes())
    folder.mkdir(exist_ok=True)
    for path in (checkpoint, folder, *folder.rglob("*")):
        force(str(path))
    _fence(Path(str(spark.checkpoint)) / "offsets" / str(last + 1))
    put(checkpoint / "join.json", new.to_json())
    if identity.generation:
        shutil.rmtree(
            str(replace(identity, generation=identity.generation - 1).spark_folder(checkpoint) / "state"), True
        )
    _log.info("the checkpoint changes from %d cells to %d, from batch %d on", identity.partitions, cells, batch)
    return new


def _fence(entry: Path) -> None:
    entry.parent.mkdir(exist_ok=True)
    try:
        with entry.open("x") as file:
            file.write(FENCE)
    except FileExistsError:
        msg = "another driver of this checkpoint, which was believed dead, has planned a batch"
        raise CheckpointInUseError(msg, name="checkpoint", hint="stop that driver, and start again") from None
    force(str(entry))
    force(str(entry.parent))
    force(str(entry.parent.parent))


def _dealt(
    spark: SparkFiles, identity: CheckpointIdentity, new: CheckpointIdentity, batch: int, last: int
) -> dict[int, dict[bytes, bytes]]:
    """Return for each new partition the keys and values of its cells, as they are when `batch` begins."""
    cells = new.partitions
    states = {cell_of_label(label, identity.partitions): blob for label, blob in spark.blobs(batch).items()}
    heard = max(_epochs(spark, identity, batch - 1).cells, identity.partitions)
    if identity.bound.decided:
        assert isinstance(identity.layout, Layout), "joins that decide tuples have grids"
        assert isinstance(new.layout, Layout), "joins that decide tuples have grids"
        states = dealt_states(identity.bound, states, identity.layout, new.layout, batch)
    else:
        states = states_of_cells(states, heard, max(_epochs(spark, identity, last).cells, cells))
    labels = cell_labels(len(states), cells)
    dealt: dict[int, dict[bytes, bytes]] = {partition: {} for partition in range(cells)}
    for cell, label in enumerate(labels):
        dealt[spark_partition(label, cells)][key_of(label)] = row_of(states[cell])
    return dealt


def _epochs(spark: SparkFiles, identity: CheckpointIdentity, batch: int) -> Epochs:
    planned = BatchPlan.from_offset(source_offset(spark.offsets[batch]), identity.bound.names)
    return planned.layout.epochs_from(identity.layout)


def _write_state(
    spark: SparkFiles, version: int, folder: Path, dealt: dict[int, dict[bytes, bytes]], cells: int
) -> None:
    """Write a state as Spark keeps it: the operator's metadata, and a snapshot for each partition."""
    operator, new = Path(str(spark.checkpoint)) / "state" / "0", folder / "0"
    # Hadoop's checksums are not written: it reads a file without them.
    for path in (path for path in operator.glob("_metadata/**/*") if path.is_file() and path.suffix != ".crc"):
        _write(new / path.relative_to(operator), _told_partitions(path.read_bytes(), cells))
    for path in (path for path in operator.glob("0/_metadata/**/*") if path.is_file() and path.suffix != ".crc"):
        _write(new / path.relative_to(operator), path.read_bytes())
    for partition, pairs in dealt.items():
        _write(new / str(partition) / f"{version}.snapshot", file_of(pairs))


def _told_partitions(data: bytes, cells: int) -> bytes:
    """Return the operator's metadata with another number of partitions."""
    version, _, text = data.partition(b"\n")
    facts = json.loads(text)
    for store in facts["stateStoreInfo"]:
        store["numPartitions"] = cells
    return version + b"\n" + json.dumps(facts, separators=(",", ":")).encode()


def _with_partitions(entry: str, cells: int) -> str:
    """Return an entry of the offset log with another number of state partitions."""
    version, metadata, *offsets = entry.splitlines()
    facts = json.loads(metadata)
    facts.setdefault("conf", {})[PARTITIONS_KEY] = str(cells)
    return "\n".join((version, json.dumps(facts, separators=(",", ":")), *offsets))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
