"""The states of a query whose number of cells changes.

Old cells keep theirs, and new ones get the clocks of the others. Where tuples are decided at their horizon, they are
dealt to the new cells at once (`streamjoin_ds.engine.storage.dealt_anew`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.engine.storage.dealt_anew import dealt_anew
from streamjoin_ds.engine.storage.snapshot import described
from streamjoin_ds.errors import StateCorruptError
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
    bound: BoundJoin, states: Mapping[int, bytes], heard: int, wanted: int, batch: int
) -> dict[int, bytes]:
    """Return a state for each of the `wanted` cells of a join that decides one stream's tuples at their horizon.

    Parameters
    ----------
    bound : BoundJoin
    states, heard, wanted
        As for `states_of_cells`; every cell has windows, of the checkpoint's only epoch.
    batch : int
        The next batch. Blocks that no new cell names are removed some batches after it.

    Raises
    ------
    StateCorruptError, StateVersionError
        A state cannot be read, or is missing; or the cells' states are not of one batch.
    """
    _check_whole(states, heard)
    old = [CellState.decode(states[cell]) for cell in range(heard)]
    clocks = [(state.fingerprint, state.largest_us, state.watermark_us, state.epochs) for state in old]
    if any(found != clocks[0] for found in clocks) or old[0].epochs is not None:
        msg = "the states of the cells are not of one batch"
        raise StateCorruptError(msg, name="state", hint=_HINT)
    blobs = dealt_anew(bound, [state.windows for state in old], wanted)
    named = set().union(*map(_blocks, blobs))
    # What an old cell has left stays with the cell that gets its tuples: only that one could name it again.
    retired: list[set[tuple[int, str]]] = [set() for _ in range(wanted)]
    for cell, state in enumerate(old):
        retired[cell % wanted] |= {*state.retired, *((batch, name) for name in _blocks(state.windows) - named)}
    return {
        cell: replace(old[0], windows=blob, retired=sorted(of_cell)).encode()
        for cell, (blob, of_cell) in enumerate(zip(blobs, retired, strict=True))
    }


def _check_whole(states: Mapping[int, bytes], heard: int) -> None:
    for cell in range(heard):
        if cell not in states:
            msg = f"the state of cell {cell} is missing"
            raise StateCorruptError(msg, name="state", hint=_HINT)


def _blocks(blob: bytes) -> set[str]:
    return {entry["block"] for of_stream in described(blob) for entry in of_stream if "block" in entry}
