"""Streams of a `JoinEngine` whose devices have clocks: beside the contract, over pushes, saved states and silences."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.errors import ArgumentError, ColumnError, StateCorruptError
from streamjoin_ds.source import device_clocks
from streamjoin_ds.testing.arrivals import batch_watermarks, duplicate_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_join

SCHEMA = {"ts": "int64", "x": "int64", "device": "string", "site": "int64"}
TYPES = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("device", pa.string()), ("site", pa.int64())])


def row(device: str | None, ts: int | None, x: int = 1, site: int = 1) -> dict[str, Any]:
    return {"ts": ts, "x": x, "device": device, "site": site}


def engine_of(window: str = "10us", **facts: Any) -> JoinEngine:
    streams = [Stream("e", schema=SCHEMA, **{"partition_by": ["device"], **facts}), Stream("w", schema=SCHEMA)]
    return JoinEngine(Join(streams, "abs(e.x - w.x) <= 1", window))


def join_of(dice: random.Random) -> Join:
    by, unique = dice.choice((["device"], ["device", "site"])), dice.choice((None, "x", "device,x"))
    where, delay = dice.choice((None, "x < 2")), dice.choice(("0us", "3us"))
    first = Stream("e", schema=SCHEMA, partition_by=by, unique=unique, where=where, delay=delay)
    second = Stream("w", schema=SCHEMA, delay="1us", partition_by=dice.choice((None, "device")))
    windows = ("2us", "8us", *["last 4"] * (unique is None))
    return Join([first, second], "abs(e.x - w.x) <= 1", dice.choice(windows))


def records(dice: random.Random) -> list[dict[str, Any]]:
    """Return records of a slow device, of one that stops, of one that comes late, and of nulls."""
    rows: list[dict[str, Any]] = []
    for number in range(50):
        name = dice.choice(("fast", "slow", None, *["gone"] * (number < 25), *["late"] * (number > 30)))
        ts = number - dice.randint(0, 4) - 15 * (name == "slow")
        rows.append(row(name, ts if dice.random() < 0.95 else None, dice.randrange(3), dice.choice((1, 2))))
        if dice.random() < 0.3:
            rows.append(dict(rows[-dice.randint(1, min(len(rows), 4))]))
    return rows


@pytest.mark.parametrize("seed", range(24))
def test_pushes_saved_states_and_silences_are_the_contracts(seed: int) -> None:
    dice = random.Random(seed)
    join, rows = join_of(dice), {name: records(dice) for name in "ew"}
    engine, at = JoinEngine(join), dict.fromkeys("ew", 0)
    found: list[tuple[int, int]] = []
    ends: list[dict[str, int]] = []
    idle: list[list[Any]] = []
    there: dict[str, list[int]] = {"e": [], "w": []}
    watermarks = []
    while any(at[name] < len(rows[name]) for name in "ew"):
        push = {}
        for name in "ew":
            some = rows[name][at[name] : at[name] + dice.randint(0, 12)]
            at[name] += len(some)
            there[name] += [len(ends)] * len(some)
            if some:
                push[name] = some if dice.random() < 0.5 else pa.Table.from_pylist(some, schema=TYPES)
        results = engine.push(push)
        found += zip(results["e_seq"].to_pylist(), results["w_seq"].to_pylist(), strict=True)
        ends.append(dict(at))
        idle.append([])
        if dice.random() < 0.3:
            device = dice.choice((("slow",), ("gone",), (None,), ("never",)))
            device += (1,) * (len(join.streams[0].device_columns) - 1)
            engine.set_idle("e", device)
            idle[-1].append(("e", tuple(None if one is None else str(one) for one in device)))
        watermarks.append(engine.watermark)
        if dice.random() < 0.3:
            state, engine = engine.save(), JoinEngine(join)
            engine.restore(state)
            assert engine.watermark == watermarks[-1]
    known: dict[str, Any] = {"ends": ends, "idle": idle, "there": there}
    assert sorted(found) == sorted((one["e_seq"], one["w_seq"]) for one in oracle_join(join, rows, **known))
    assert watermarks == batch_watermarks(join, rows, ends, idle, there=there)
    for name in "ew":
        assert engine.counters["duplicate_rows"][name] == len(duplicate_rows(join, name, rows[name], **known))
        expected = late_rows(join, name, rows, **known)
        assert engine.counters["late_rows"][name] == len(expected)


def test_a_slow_device_is_not_late_against_a_fast_one_and_holds_the_watermark() -> None:
    engine = engine_of()
    engine.push({"e": [row("slow", 0), row("fast", 100), row("slow", 1), row("fast", 99)], "w": row(None, 90)})
    assert engine.late["e"]["_seq"].to_pylist() == [3]
    assert engine.watermark == 1
    engine.set_idle("e", "slow")
    assert engine.watermark == 90
    engine.push({"e": [row("slow", 99), row("slow", 100)]})
    assert engine.late["e"]["_seq"].to_pylist() == [4]


def test_what_no_device_can_be_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(partition_by=["device", "site"])
    for wrong in ("a", ("a", "b"), (1, 2, 3)):
        with pytest.raises(ArgumentError, match="no values of device, site of stream e"):
            engine.set_idle("e", wrong)
    with pytest.raises(ArgumentError, match="stream w has no columns in partition_by"):
        engine.set_idle("w", "a")
    for by in ("file", "folder"):
        with pytest.raises(ArgumentError, match="so it cannot be partitioned by") as caught:
            engine_of(partition_by=by)
        assert caught.value.name == "partition_by"
    with pytest.raises(ColumnError, match="which partition_by names"):
        engine_of(partition_by="nothing")
    monkeypatch.setattr(device_clocks, "MOST_DEVICES", 3)
    engine = engine_of()
    with pytest.raises(ArgumentError, match=r"more than 3 devices.*set_idle"):
        engine.push({"e": [row(str(number), 1) for number in range(4)]})
    assert engine.counters["read_rows"] == {"e": 0, "w": 0}, "what was refused changed nothing"


def test_a_state_whose_devices_were_changed_is_refused() -> None:
    engine = engine_of()
    engine.push({"e": [row("a", 1), row("b", 5)]})
    facts, body = state_blob.opened(engine.bound.fingerprint, engine.save())
    parts = state_blob.parts_of(facts, body)
    plain = {name: value for name, value in facts.items() if name != "parts"}
    for wrong in ({"7": plain["devices"]["0"]}, {"x": {}}, {"0": {"low": 1}}, [1]):
        blob = state_blob.sealed(engine.bound.fingerprint, plain | {"devices": wrong}, [*map(bytes, parts)])
        with pytest.raises(StateCorruptError):
            engine.restore(blob)
