"""The states of a query whose number of cells changes: old cells keep theirs, new ones get the clocks of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.errors import StateCorruptError

__all__ = ["states_of_cells"]


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
    hint = "restore the checkpoint from a spare copy; the table is unharmed"
    for cell in range(heard):
        if cell not in states:
            msg = f"the state of cell {cell} is missing"
            raise StateCorruptError(msg, name="state", hint=hint)
    for cell in (cell for cell in states if cell >= min(heard, wanted)):
        if CellState.decode(states[cell]).epochs != []:
            msg = f"cell {cell} belongs to no layout, but has windows"
            raise StateCorruptError(msg, name="state", hint="this is a defect, please report it; nothing was changed")
    new = replace(CellState.decode(states[0]), batches=0, windows=b"", retired=[], epochs=[]).encode()
    return {cell: states[cell] if cell < heard else new for cell in range(wanted)}
