"""The states of another number of cells: what stays, what is new, and what is refused."""

from __future__ import annotations

import pytest

from streamjoin_ds.cell.cell_change import states_of_cells
from streamjoin_ds.cell.cell_state import CellState, KeptEpoch
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.plan import Epoch, Layout

EPOCH = KeptEpoch(Epoch(3, Layout((1, 2)), (5, 6)), None, (None, None), 4)


def a_state(time_us: int, epochs: list[KeptEpoch] | None) -> bytes:
    windows = b"win!" if epochs != [] else b""
    return CellState("print", [time_us, None], time_us, 7, windows, [(1, "block")], epochs=epochs).encode()


def test_cells_that_stay_keep_what_they_have() -> None:
    states = {cell: a_state(100, [EPOCH]) for cell in range(4)}
    assert states_of_cells(states, 4, 4) == states


def test_a_new_cell_knows_the_time_and_has_nothing() -> None:
    found = states_of_cells({0: a_state(100, [EPOCH]), 1: a_state(100, None)}, 2, 4)
    assert [*found] == [0, 1, 2, 3]
    for cell in (2, 3):
        state = CellState.decode(found[cell])
        assert (state.largest_us, state.watermark_us) == ([100, None], 100)
        assert (state.batches, state.windows, state.epochs, state.retired) == (0, b"", [], [])
        assert state.fingerprint == "print"


def test_a_cell_that_heard_nothing_meanwhile_begins_anew() -> None:
    found = states_of_cells({0: a_state(900, [EPOCH]), 1: a_state(100, [])}, 1, 2)
    assert CellState.decode(found[1]).watermark_us == 900


def test_a_cell_without_windows_may_go() -> None:
    assert [*states_of_cells({0: a_state(1, [EPOCH]), 1: a_state(1, [])}, 2, 1)] == [0]


def test_windows_are_never_dropped() -> None:
    for epochs in ([EPOCH], None):
        with pytest.raises(StateCorruptError, match="cell 1 belongs to no layout"):
            states_of_cells({0: a_state(1, [EPOCH]), 1: a_state(1, epochs)}, 2, 1)


def test_a_missing_state_is_told() -> None:
    with pytest.raises(StateCorruptError, match="cell 1 is missing"):
        states_of_cells({0: a_state(1, None), 2: a_state(1, None)}, 3, 3)
