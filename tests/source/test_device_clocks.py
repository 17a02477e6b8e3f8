"""Clocks of devices: a loop in plain Python that forgets nothing gives the same, whatever the cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import OffsetError
from streamjoin_ds.source import device_clocks
from streamjoin_ds.source.device_clocks import Device, DeviceClocks, DeviceRecords
from streamjoin_ds.spec.columns import SEQ
from streamjoin_ds.spec.event_time import NO_TIME
from tests.support.examples import examples

# Records as device and time; between them devices that become idle.
Event = tuple[int, int] | frozenset[int]


def by_loop(events: Sequence[Event], look_ahead: int) -> tuple[list[int], int]:
    """Return the clock that judges each record, and the stream's at the end."""
    records = [event for event in events if not isinstance(event, frozenset)]
    clocks: dict[int, int] = {}
    active: set[int] = set()
    low, judges = NO_TIME, []

    def joining(first: int, last: int) -> list[int]:
        found = {}
        for device, time in records[first:last]:
            found.setdefault(device, time)
        return [max(time, clocks.get(device, NO_TIME)) for device, time in found.items() if device not in active]

    for event in events:
        at = len(judges)
        if isinstance(event, frozenset):
            active -= event
        else:
            device, time = event
            low = max(low, min([*(clocks[one] for one in active), *joining(at, at + look_ahead)], default=NO_TIME))
            judges.append(max(clocks.get(device, NO_TIME), low))
            clocks[device] = max(clocks.get(device, NO_TIME), time)
            active.add(device)
        at = len(judges)
        low = max(low, min([*(clocks[one] for one in active), *joining(at, at + look_ahead)], default=NO_TIME))
    return judges, low


def possible(events: Sequence[Event], look_ahead: int) -> list[Event]:
    """Return the events without silences that no planner finds: of devices whose next record it sees."""
    found: list[Event] = []
    for place, event in enumerate(events):
        if isinstance(event, frozenset):
            later = [each for each in events[place:] if not isinstance(each, frozenset)][:look_ahead]
            event -= {device for device, _ in later}
        found.append(event)
    return found


def records_of(batch: Sequence[tuple[int, int]]) -> tuple[DeviceRecords, np.ndarray]:
    columns = pa.table({"d": pa.array([d for d, _ in batch], pa.int64()), SEQ: pa.array(range(len(batch)))})
    return DeviceRecords.of(columns, ["d"]), np.array([t for _, t in batch], np.int64)


def by_arrays(events: Sequence[Event], look_ahead: int = 0, cuts: Sequence[int] = ()) -> tuple[list[int], DeviceClocks]:
    """Return the same of `DeviceClocks`, cut at some places too; every batch's end is written and read."""
    records = [event for event in events if not isinstance(event, frozenset)]
    clocks, judges = DeviceClocks(), []
    batch: list[tuple[int, int]] = []
    for place, event in enumerate([*events, frozenset()]):
        if isinstance(event, frozenset) or place in cuts:
            end, own = len(judges) + len(batch), records_of(batch)
            coming = clocks.joining(frozenset(own[0].devices), *records_of(records[end : end + look_ahead]))
            found, clocks = clocks.after(*own, coming, look_ahead)
            judges += found.tolist()
            if isinstance(event, frozenset) and place < len(events):
                clocks = clocks.settled((str(device),) for device in event)
            else:
                clocks = clocks.settled(())
            clocks = DeviceClocks.from_facts(clocks.to_facts(), "e")
            batch = []
        if not isinstance(event, frozenset):
            batch.append(event)
    return judges, clocks


FEW = st.integers(0, 6)
TIMES = st.one_of(st.integers(0, 40), st.sampled_from([-62_135_596_800_000_000, 253_402_300_799_999_999]))
EVENTS = st.lists(st.one_of(st.tuples(FEW, TIMES), st.tuples(FEW, TIMES), st.frozensets(FEW, max_size=4)), max_size=60)


@given(EVENTS, st.integers(0, 12), st.sets(st.integers(0, 60)))
@examples(300)
def test_each_record_is_judged_as_in_plain_python_however_the_stream_is_cut(
    events: list[Event], look_ahead: int, cuts: set[int]
) -> None:
    events = possible(events, look_ahead)
    judges, low = by_loop(events, look_ahead)
    found, clocks = by_arrays(events, look_ahead, sorted(cuts))
    assert found == judges
    assert clocks.low_us == low


@given(st.lists(st.tuples(st.integers(0, 40), TIMES), min_size=20, max_size=80), st.integers(0, 30))
@examples(100)
def test_many_devices_may_join_in_one_batch(events: list[tuple[int, int]], look_ahead: int) -> None:
    before = device_clocks._MOST_JOINS
    device_clocks._MOST_JOINS = 3
    try:
        assert by_arrays(events, look_ahead)[0] == by_loop(events, look_ahead)[0]
    finally:
        device_clocks._MOST_JOINS = before


def test_one_device_has_the_clock_of_a_stream_of_one_order() -> None:
    times = [5, 3, 9, 9, 1, 12]
    judges, clocks = by_arrays([(0, time) for time in times])
    assert judges == [NO_TIME, *np.maximum.accumulate(times)[:-1].tolist()]
    assert clocks.low_us == 12


def test_a_device_that_is_idle_and_overtaken_is_forgotten_and_one_that_is_ahead_is_kept() -> None:
    _, clocks = DeviceClocks().after(*records_of([(0, 5), (1, 90), (2, 50)]))
    clocks = clocks.settled([("0",), ("1",)])
    assert (clocks.low_us, clocks.devices, clocks.idle) == (50, (("1",), ("2",)), {("1",)})
    assert clocks.silenced == (("0",), ("1",))
    assert clocks.held_by == ("2",)


def test_a_device_that_joins_soon_holds_the_clock_of_the_stream_already_before() -> None:
    events = [(0, 50), (0, 60), (1, 5), (1, 70), (0, 80)]
    assert by_arrays(events, look_ahead=2)[0] == [50, 50, 50, 50, 60]
    assert by_arrays(events, look_ahead=3)[0] == [5, 50, 5, 5, 60]


def test_devices_are_told_apart_by_all_columns_and_a_null_is_one() -> None:
    values = {"s": ["x", "x", None, "x", None], "d": [1, 2, 1, 1, 1], SEQ: [1 << 40, 0, 1, 2, 3]}
    records = DeviceRecords.of(pa.table(values), ["s", "d"])
    assert [records.devices[code] for code in records.codes] == [
        ("x", "1"), ("x", "2"), (None, "1"), ("x", "1"), (None, "1")
    ]  # fmt: skip
    assert len(DeviceRecords.of(pa.table(values), ["s", "d"], 40).devices) == 4  # the first is of another partition
    floats = DeviceRecords.of(pa.table({"d": [0.0, -0.0, float("nan"), float("nan"), 1.5]}), ["d"])
    assert len(floats.devices) == 3


@pytest.mark.parametrize(
    "facts",
    [
        None,
        {"low": 1},
        {"low": "1", "names": [["a"]], "behind": [0]},
        {"low": 1, "names": [["a"]], "behind": []},
        {"low": 1, "names": [["a"], ["a"]], "behind": [0, 0]},
        {"low": 1, "names": [[1]], "behind": [0]},
        {"low": 1, "names": [["a"]], "behind": [0], "idle": [1]},
        {"low": 1, "names": [["a"]], "behind": [0], "more": 1},
    ],
)
def test_what_no_offset_holds_is_refused(facts: object) -> None:
    with pytest.raises(OffsetError):
        DeviceClocks.from_facts(facts, "e")


def test_a_device_is_of_few_types_of_values() -> None:
    device: Device = ("a", None)
    assert device_clocks.device_text(device) == "a/null"
