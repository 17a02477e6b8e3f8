"""A cell's state as bytes: one form, every damage named, newer versions refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.cell.cell_state import CELL_STATE_VERSION, CellState, KeptEpoch
from streamjoin_ds.errors import StateCorruptError, StateVersionError
from streamjoin_ds.plan import CellLayout, Difference, Epoch, Layout, RangeLayout, Reach
from streamjoin_ds.spec import Key

STATE = CellState(
    "0123456789abcdef0123456789abcdef",
    [1_700_000_000_000_000, None],
    1_699_999_990_000_000,
    7,
    b"windows",
    [(3, "00-0000-a.arrow")],
)
VERSION_AT = 7
KEYS = (Key("x", "int"), Key("x", "int"))
RANGES = RangeLayout(3, Reach(2, (Difference(0, 1, -1, 1),), True, KEYS), 0, (5,), (Layout((1, 1)), Layout((1, 2))))

moments = st.none() | st.integers(-(2**63), 2**63 - 1)


@given(st.text(max_size=40), st.lists(moments, max_size=8), moments, st.integers(0, 2**40), st.binary(max_size=200))
def test_states_come_back(
    fingerprint: str, largest: list[int | None], watermark: int | None, batches: int, windows: bytes
) -> None:
    state = CellState(fingerprint, largest, watermark, batches, windows)
    blob = state.encode()
    assert CellState.decode(blob) == state
    assert CellState.decode(bytearray(blob)) == state  # type: ignore[arg-type]
    assert CellState.decode(blob).encode() == blob


def test_the_form_does_not_change() -> None:
    # Every later version must read the state that a query in the field has written.
    blob = STATE.encode()
    assert blob[:8] == b"SJCELL\x00\x01"
    facts = (
        b'{"batches":7,"fingerprint":"0123456789abcdef0123456789abcdef",'
        b'"largest_us":[1700000000000000,null],"retired":[[3,"00-0000-a.arrow"]],"watermark_us":1699999990000000}'
    )
    assert blob[24:28] == len(facts).to_bytes(4, "little")
    assert blob[28:] == facts + b"windows"
    assert blob[8:24].hex() == "62aef54c66d94e1e6a2a2add96ea0b2f"


def test_the_same_state_is_the_same_bytes() -> None:
    numpy = CellState(
        STATE.fingerprint,
        [np.int64(1_700_000_000_000_000), None],
        np.int64(1_699_999_990_000_000),
        7,
        b"windows",
        STATE.retired,
    )
    assert numpy.encode() == STATE.encode()


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_named(bit: int) -> None:
    blob = bytearray(STATE.encode())
    for place in range(len(blob)):
        blob[place] ^= 1 << bit
        newer = place == VERSION_AT and blob[place] > CELL_STATE_VERSION
        with pytest.raises(StateVersionError if newer else StateCorruptError) as caught:
            CellState.decode(bytes(blob))
        assert caught.value.name == "state"
        assert caught.value.hint
        blob[place] ^= 1 << bit
    assert CellState.decode(bytes(blob)) == STATE


def test_every_cut_is_named() -> None:
    blob = STATE.encode()
    for length in range(len(blob)):
        with pytest.raises(StateCorruptError):
            CellState.decode(blob[:length])
    with pytest.raises(StateCorruptError):
        CellState.decode(blob + b"\0")


@pytest.mark.parametrize("blob", [b"", b"x", b"PK\x03\x04" * 20, b"\x00" * 100, json.dumps({"a": 1}).encode() * 10])
def test_what_is_no_state(blob: bytes) -> None:
    with pytest.raises(StateCorruptError, match="not one that this package wrote"):
        CellState.decode(blob)


@pytest.mark.parametrize("version", [9, 12, 255])
def test_a_newer_version(version: int) -> None:
    blob = bytearray(STATE.encode())
    blob[VERSION_AT] = version
    with pytest.raises(StateVersionError, match=f"newer version .{version};"):
        CellState.decode(bytes(blob))


@pytest.mark.parametrize(("layout", "version"), [(Layout((1, 2)), 2), (RANGES, 4)])
def test_a_state_has_the_lowest_version_that_holds_its_layouts(layout: CellLayout, version: int) -> None:
    kept = KeptEpoch(Epoch(3, layout, (5, 6)), None, (None, None), 7)
    blob = replace(STATE, epochs=[kept]).encode()
    assert blob[VERSION_AT] == version
    assert CellState.decode(blob).epochs == [kept]


def test_a_state_with_clocks_of_partitions() -> None:
    state = replace(STATE, partitions=[{"numbers": [1], "largest_us": [5]}, None])
    blob = state.encode()
    assert blob[VERSION_AT] == 8
    assert CellState.decode(blob) == state


def test_windows_are_not_shown() -> None:
    assert "windows=" not in repr(STATE)
