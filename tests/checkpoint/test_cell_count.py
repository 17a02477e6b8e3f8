"""The states of another number of cells: what stays, what is new, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from streamjoin_ds import Stream
from streamjoin_ds.cell.cell_state import CellState, KeptEpoch
from streamjoin_ds.checkpoint.move import dealt_states, states_of_cells
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.plan import Epoch, Layout
from streamjoin_ds.spec import Join, bind

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


def test_states_of_two_batches_are_not_dealt() -> None:
    streams = [
        Stream(name, schema=pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])) for name in "ew"
    ]
    bound = bind(Join(streams, "abs(e.x - w.x) <= 2", "9s", how="left"), {s.name: s.schema for s in streams})
    windows = WindowJoin(bound)
    state = CellState(bound.fingerprint, [5, 5], 5, 3, windows.save())
    states = {0: state.encode(), 1: replace(state, watermark_us=4).encode()}
    with pytest.raises(StateCorruptError, match="not of one batch"):
        dealt_states(bound, states, Layout((2, 1)), Layout((3, 1)), 4)
    with pytest.raises(StateCorruptError, match="cell 1 is missing"):
        dealt_states(bound, {0: states[0]}, Layout((2, 1)), Layout((3, 1)), 4)
    list(windows.push({}, 7))  # it has decided up to another time
    states[1] = replace(state, windows=windows.save()).encode()
    with pytest.raises(StateCorruptError):
        dealt_states(bound, states, Layout((2, 1)), Layout((1, 1)), 4)
    found = dealt_states(bound, {0: states[0], 1: states[0]}, Layout((2, 1)), Layout((3, 1)), 4)
    assert [CellState.decode(found[cell]).watermark_us for cell in range(3)] == [5, 5, 5]
