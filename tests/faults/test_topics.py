"""A short form of ``python -m tests.faults.topics``, and its oracle against the contract in plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamjoin_ds.testing.arrivals import batch_watermarks, late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.faults.topics.comparison import Outcome
from tests.faults.topics.expected import NONE, PartitionRows, expected_of, matches_of
from tests.faults.topics.load import DELAY_US, NAMES, WINDOW_US, Load, poisoned, topics_join
from tests.faults.topics.run import Campaign
from tests.support.kafka import kafka_jars
from tests.support.partitioned import arrival


def offset(read: dict[str, dict[str, int]], idle: set[object]) -> dict[str, Any]:
    """Return the end of a batch: how many records of each partition are read, and what is idle."""
    streams = {
        name: {
            "seq": sum(of.values()),
            "partitions": {
                partition: {
                    "at": {"seq": seq},
                    "number": int(partition),
                    "clock": {"idle": True} if (name, partition) in idle else {},
                }
                for partition, seq in of.items()
            },
        }
        for name, of in read.items()
    }
    return {"streams": streams, "clocks": {name: {"idle": True} for name in NAMES if name in idle}}


@pytest.mark.parametrize("seed", range(40))
def test_its_oracle_is_the_contract(seed: int) -> None:
    dice = random.Random(seed)
    rows: dict[str, dict[str, list[dict[str, int | None]]]] = {}
    for name in NAMES:
        rows[name] = {}
        for partition in range(dice.randint(1, 3)):
            now, own = 0, []
            for _ in range(dice.randint(0, 20)):
                now += dice.randrange(2_000_000)
                time_us = None if dice.random() < 0.1 else now - dice.choice([0, 0, 0, 1, 5]) * 1_000_000
                own.append({"ts": time_us, "x": dice.randrange(4)})
            rows[name][str(partition)] = own
    offsets, read = [], {name: dict.fromkeys(of, 0) for name, of in rows.items()}
    for _ in range(dice.randint(1, 5)):
        for name, of in read.items():
            for partition in of:
                of[partition] = dice.randint(of[partition], len(rows[name][partition]))
        places: list[object] = [*NAMES, *((name, partition) for name in NAMES for partition in rows[name])]
        idle = {place for place in places if dice.random() < 0.3}
        offsets.append(offset({name: dict(of) for name, of in read.items()}, idle))
    offsets.append(offset({name: {p: len(own) for p, own in of.items()} for name, of in rows.items()}, set()))
    join = topics_join("127.0.0.1:1", NAMES)
    listed, seqs, known = arrival(join, offsets, rows)
    told = {
        name: {
            partition: PartitionRows(
                np.arange(len(own)),
                np.array([NONE if row["ts"] is None else row["ts"] for row in own], np.int64),
                np.array([row["x"] for row in own], np.int64),
                np.array([row["ts"] is not None for row in own], bool),
            )
            for partition, own in of.items()
        }
        for name, of in rows.items()
    }
    found, watermarks = expected_of(offsets, told, DELAY_US)
    assert watermarks == batch_watermarks(join, listed, known["ends"], known["idle"], known["partitions"])
    for name in NAMES:
        late = late_rows(join, name, listed, **known)
        assert sorted(found[name].seqs[found[name].is_late]) == sorted(seqs[name][number] for number in late)
        assert found[name].ledger(len(offsets))[:, 0].sum() == len(listed[name])
    pairs = {(seqs["l"][row["l_seq"]], seqs["r"][row["r_seq"]]) for row in oracle_join(join, listed, **known)}
    assert matches_of(found["l"], found["r"], WINDOW_US, 1).tolist() == [list(pair) for pair in sorted(pairs)]


def kind_of(value: bytes | None) -> str:
    """Return what a message is, as an ordinary parser sees it."""
    try:
        row = json.loads(value or b"")
    except ValueError:
        return "broken"
    return "tuple" if isinstance(row, dict) and isinstance(row["x"], int) else "no tuple"


def test_a_load_is_a_function_of_its_seed_and_has_all_that_is_asked() -> None:
    load = Load(1, (3, 3))
    assert load.values(0, 1, 7) == load.values(0, 1, 7)
    assert load.values(0, 1, 7) != Load(2, (3, 3)).values(0, 1, 7)
    assert {load.is_silent(1, 0, number) for number in range(100)} == {False, True}
    values = [value for number in range(100) for value in load.values(0, 0, number)]
    assert {kind_of(value) for value in values} == {"tuple", "no tuple", "broken"}
    times = [json.loads(value)["ts"] for value in load.values(0, 0, 1) if value is not None and value[-1:] == b"}"]
    assert min(json.loads(value)["ts"] for value in load.values(0, 0, 1, True) if value) > max(times) + 10**11


@pytest.mark.parametrize("kind", range(7))
def test_a_poisoned_message_is_no_tuple(kind: int) -> None:
    value = poisoned(b'{"ts":1,"n":2,"x":3}', kind)
    assert kind_of(value) != "tuple"


def test_a_difference_is_told() -> None:
    outcome = Outcome()
    outcome.same("matches", np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    assert not outcome.violations
    outcome.same("matches", np.array([[1, 2], [1, 2]]), np.array([[1, 2], [3, 4]]))
    assert outcome.violations == ["matches: 2 for 2; 0 too many: []; 1 lack: [(3, 4)]"]


@pytest.mark.spark
@pytest.mark.campaign
def test_a_few_kills_change_nothing(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    kafka_jars()
    verdict = Campaign(tmp_path, 24_000, 2, 1).run()
    assert not verdict.violations, "\n".join(verdict.violations)
    assert verdict.kills.total() >= 2
    assert verdict.done["broker SIGKILL"] + verdict.done["broker SIGTERM"] > 0
    assert verdict.outcome.counts["matches"] > 1_000
