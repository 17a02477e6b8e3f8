"""`Stream.unique` in a `JoinEngine`: beside the contract, over any pushes, saved states and lost pushes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.errors import StateCorruptError
from streamjoin_ds.testing.arrivals import duplicate_rows, filtered_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.mutations import changed

SCHEMA = {"ts": "int64", "x": "int64", "device": "string", "counter": "int64"}
TYPES = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("device", pa.string()), ("counter", pa.int64())])


def join_of(dice: random.Random) -> Join:
    streams = [
        Stream(
            "e", schema=SCHEMA, unique="device,counter", delay=dice.choice(("0s", "2us", "5us")),
            where=dice.choice((None, "x < 2")),
        ),
        Stream("w", schema=SCHEMA, delay="1us", unique=dice.choice((None, "counter"))),
    ]  # fmt: skip
    return Join(streams, "abs(e.x - w.x) <= 1", dice.choice(("0us", "3us", "8us")), dice.choice((None, ["e.x", "w.x"])))


def records(dice: random.Random) -> list[dict[str, Any]]:
    moment, rows = 0, []
    for _ in range(40):
        moment += dice.choice((0, 1, 2))
        row = {"ts": moment - dice.randint(0, 4), "x": dice.randrange(4), "device": dice.choice(("a", "b", None))}
        rows.append({**row, "counter": dice.choice((1, 2, 3, None))})
        if dice.random() < 0.4:
            rows.append(dict(rows[-dice.randint(1, min(len(rows), 4))]))
    return rows


def pushed(dice: random.Random, rows: list[dict[str, Any]]) -> Any:
    return rows if dice.random() < 0.5 else pa.Table.from_pylist(rows, schema=TYPES)


@pytest.mark.parametrize("seed", range(12))
def test_pushes_and_saved_states_change_no_row(seed: int) -> None:
    dice = random.Random(seed)
    join = join_of(dice)
    rows = {name: records(dice) for name in "ew"}
    engine, found, at = JoinEngine(join), [], dict.fromkeys("ew", 0)
    while any(at[name] < len(rows[name]) for name in "ew"):
        push = {}
        for name in "ew":
            some = rows[name][at[name] : at[name] + dice.randint(0, 15)]
            at[name] += len(some)
            if some:
                push[name] = pushed(dice, some)
        if dice.random() < 0.3:
            chunks = engine.push_chunks(push)
            if next(chunks, None) is None:
                continue  # it is in, without results
            chunks.close()  # a push that is not read to its end changes nothing
        results = engine.push(push)
        found += zip(results["e_seq"].to_pylist(), results["w_seq"].to_pylist(), strict=True)
        if dice.random() < 0.3:
            state, engine = engine.save(), JoinEngine(join)
            engine.restore(state)
    assert sorted(found) == [(row["e_seq"], row["w_seq"]) for row in oracle_join(join, rows)]
    counters = engine.counters
    for name in "ew":
        assert counters["duplicate_rows"][name] == len(duplicate_rows(join, name, rows[name]))
        assert counters["late_rows"][name] == len(late_rows(join, name, rows[name]))
        assert counters["filtered_rows"][name] == len(filtered_rows(join, name, rows[name]))
    assert counters["duplicate_rows"]["e"]


def test_a_state_without_its_keys_is_refused() -> None:
    streams = [Stream("e", schema=SCHEMA, unique="device"), Stream("w", schema=SCHEMA)]
    engine = JoinEngine(Join(streams, "abs(e.x - w.x) <= 1", "1s"))
    engine.push({"e": {"ts": 1, "x": 1, "device": "a", "counter": 1}})
    state = bytearray(engine.save())
    state[-70] ^= 1
    with pytest.raises(StateCorruptError):
        engine.restore(state)
    engine.push({"e": {"ts": 2, "x": 1, "device": "a", "counter": 2}})
    assert engine.counters["duplicate_rows"] == {"e": 1, "w": 0}


def test_a_state_whose_keys_were_changed_and_sealed_anew_is_refused_or_read() -> None:
    streams = [Stream("e", schema=SCHEMA, unique="device"), Stream("w", schema=SCHEMA)]
    engine = JoinEngine(Join(streams, "abs(e.x - w.x) <= 1", "1s"))
    engine.push({"e": {"ts": 1, "x": 1, "device": "a", "counter": 1}})
    state = engine.save()
    facts, body = state_blob.opened(engine.bound.fingerprint, state)
    parts = state_blob.parts_of(facts, body)
    plain = {name: value for name, value in facts.items() if name != "parts"}
    refused = 0
    for number in range(300):
        dice = random.Random(number)
        spoilt = [bytearray(memoryview(part)) for part in parts]
        spoilt[1][dice.randrange(len(spoilt[1]))] ^= 1 << dice.randrange(8)
        seen = changed(plain["seen"], dice) if number % 2 else plain["seen"]
        blob = state_blob.sealed(engine.bound.fingerprint, plain | {"seen": seen}, [parts[0], bytes(spoilt[1])])
        try:
            engine.restore(blob)
        except StateCorruptError:
            refused += 1
    assert refused > 100


LISTS = pa.array([[1]], pa.list_(pa.int64()))
# By what is wrong: columns of a state's keys in place of a time and a text, and where they are said to be from.
OTHER_KEYS = {
    "a number": ([[1], pa.array([7])], 0),
    "bytes": ([[1], pa.array([b"a"])], 0),
    "a large text": ([[1], pa.array(["a"], pa.large_string())], 0),
    "a list": ([[1], LISTS], 0),
    "a dictionary": ([[1], pa.array(["a"]).dictionary_encode()], 0),
    "a null": ([[1], pa.array([None], pa.string())], 0),
    "a time of another type": ([pa.array([1], pa.timestamp("us")), ["a"]], 0),
    "no key": ([[1]], 0),
    "a key more": ([[1], ["a"], ["b"]], 0),
    "another stream": ([[1], ["a"]], 1),
    "a stream before the first": ([[1], ["a"]], -2),
    "a stream behind the last": ([[1], ["a"]], 2),
    "no whole number": ([[1], ["a"]], 0.0),
}


@pytest.mark.parametrize("wrong", OTHER_KEYS)
def test_a_state_with_keys_of_another_kind_is_refused(wrong: str) -> None:
    columns, stream = OTHER_KEYS[wrong]
    streams = [Stream("e", schema=SCHEMA, unique="device"), Stream("w", schema=SCHEMA)]
    engine = JoinEngine(Join(streams, "abs(e.x - w.x) <= 1", "1s"))
    engine.push({"e": {"ts": 1, "x": 1, "device": "a", "counter": 1}})
    facts, body = state_blob.opened(engine.bound.fingerprint, engine.save())
    windows, keys = state_blob.parts_of(facts, body)

    def state(columns: Any, stream: Any = 0, more: int = 0) -> bytes:
        sink = pa.BufferOutputStream()
        table = pa.table([pa.array(one) for one in columns], [f"c{n}" for n in range(len(columns))])
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        told = [facts["seen"][0] | {"stream": stream}] * (1 + more)
        parts = [windows, *[sink.getvalue()] * (1 + more)]
        return state_blob.sealed(engine.bound.fingerprint, facts | {"seen": told}, parts)

    engine.restore(state([[1], ["a"]]))
    for blob in (
        state(columns, stream),
        state([[1], ["a"]], more=1),
        state_blob.sealed(engine.bound.fingerprint, facts | {"seen": []}, [windows]),
        state_blob.sealed(engine.bound.fingerprint, facts, [windows, keys, keys]),
    ):
        with pytest.raises(StateCorruptError):
            engine.restore(blob)
    engine.push({"e": {"ts": 2, "x": 1, "device": "a", "counter": 2}})
    assert engine.counters["duplicate_rows"] == {"e": 1, "w": 0}, "what was refused changed nothing"


def test_an_engine_without_a_key_has_no_duplicates() -> None:
    engine = JoinEngine(Join([Stream(name, schema=SCHEMA) for name in "ew"], "abs(e.x - w.x) <= 1", "1s"))
    row = {"ts": 1, "x": 1, "device": "a", "counter": 1}
    assert engine.push({"e": [row, row], "w": row}).num_rows == 2
    assert engine.counters["duplicate_rows"] == {"e": 0, "w": 0}
