"""The states of a query whose number of cells changes.

Old cells keep theirs, and new ones get the clocks of the others. Where tuples are decided at their horizon, all are
dealt to the cells of the new layout at once (`streamjoin_ds.engine.storage.dealt_anew`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import stream_of_block
from streamjoin_ds.engine.storage.dealt_anew import dealt_anew
from streamjoin_ds.engine.storage.snapshot import described
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.plan import Layout
from streamjoin_ds.spec import BoundJoin

__all__ = ["dealt_states", "states_of_cells"]

_HINT = "restore the checkpoint from a spare copy; the table is unharmed"


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
        raise StateCorruptError(msg, name="state", hint=_HINT)
    givers = [
        [
            [old.home_cell(stream, group) for group in range(new.group_in_cell(cell, stream), of_old, of_new)]
            for stream, (of_old, of_new) in enumerate(zip(old.counts, new.counts, strict=True))
        ]
        for cell in range(new.cells)
    ]
    blobs = dealt_anew(bound, [state.windows for state in opened], givers)
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
            raise StateCorruptError(msg, name="state", hint=_HINT)


def _blocks(blob: bytes) -> set[str]:
    return {entry["block"] for of_stream in described(blob) for entry in of_stream if "block" in entry}
