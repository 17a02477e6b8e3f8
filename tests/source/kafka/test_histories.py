"""Random histories of a partition on a real broker: what is committed comes once, whatever the cuts."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from tests.source.kafka.sources import SOURCES, table_of, topic_of
from tests.support.kafka import KafkaBroker, new_topic

pytest.importorskip("confluent_kafka")

HISTORIES = 12


class Writer:
    """Writes plain messages, and transactions that are committed or aborted; knows the offsets of what stays."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.plain = Producer({"bootstrap.servers": servers, "linger.ms": 1, "compression.type": "lz4"})
        self.transactional = Producer({"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 1})
        self.transactional.init_transactions(30)
        self.stays: dict[int, bytes] = {}

    def write(self, dice: random.Random) -> None:
        kind = dice.choice(["plain", "commit", "commit", "abort"])
        producer = self.plain if kind == "plain" else self.transactional
        told: dict[int, bytes] = {}
        if producer is self.transactional:
            producer.begin_transaction()
        for _ in range(dice.choice([1, 2, 7, 300])):
            value = dice.randbytes(dice.choice([0, 1, 20, 2000]))
            producer.produce(
                self.topic,
                value,
                partition=0,
                on_delivery=lambda _, message: told.update({message.offset(): message.value() or b""}),
            )
        producer.flush(30)
        if kind == "commit":
            producer.commit_transaction(30)
        elif kind == "abort":
            producer.abort_transaction(30)
        if kind != "abort":
            self.stays |= told


@pytest.mark.long
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_random_history_is_read_once_by_any_cuts(broker: KafkaBroker, seed: int) -> None:
    dice = random.Random(seed)
    name = new_topic(broker.servers)
    writer = Writer(broker.servers, name)
    for _ in range(dice.randint(1, 12)):
        writer.write(dice)
    with topic_of(broker.servers, name) as topic:
        end, before = -1, -2
        until = time.monotonic() + 20
        while (end != before or end <= max(writer.stays, default=-1)) and time.monotonic() < until:
            time.sleep(0.2)  # the broker writes markers after a commit has returned
            end, before = topic.end_offsets([0])[0], end
    for source in SOURCES.values():
        with topic_of(broker.servers, name, source) as topic:
            cuts = sorted({0, end, *(dice.randint(0, end) for _ in range(dice.choice([0, 1, 5, 20])))})
            found: dict[int, bytes] = {}
            ranges = list(pairwise(cuts))
            if dice.random() < 0.3:
                dice.shuffle(ranges)
            for begin, stop in ranges:
                table = table_of(topic, 0, begin, stop)
                offsets = table.column("offset").to_pylist()
                assert offsets == sorted(offsets)
                assert not found.keys() & set(offsets)
                found |= dict(zip(offsets, table.column("value").to_pylist(), strict=True))
        assert found == writer.stays
