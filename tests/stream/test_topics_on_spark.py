"""Topics as streams on real Spark and a real broker: from messages to committed tables, restarted, refused by name."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.kafka.topic import KafkaTopic, KafkaUrl
from streamjoin_ds.testing.arrivals import late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.stream.test_partitions_on_spark import offsets
from tests.support.kafka import KafkaBroker, new_topic, produce
from tests.support.partitioned import arrival

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START_US = 1_704_067_200_000_000
HIDDEN = "hidden-7f3a"  # stands beside the password, which is a common word
BROKEN = b'{"ts": 1704067200, "x"'


def messages(seconds: range, skew: int, dice: random.Random) -> list[bytes | None]:
    """Return messages in JSON: some late in their own partition, one of them broken, one without a value."""
    found: list[bytes | None] = []
    for second in seconds:
        time_us = START_US + (second - skew - 6 * (dice.random() < 0.1)) * 1_000_000
        found.append(json.dumps({"ts": time_us, "x": dice.randrange(20), "other": "é"}).encode())
    return [*found, BROKEN, None]


def held(servers: str, topic: str) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
    """Return what a topic's partitions hold, as records and as their offsets."""
    rows: dict[str, list[Any]] = {}
    places: dict[str, list[int]] = {}
    with KafkaTopic(KafkaUrl.parse(f"kafka://{servers}/{topic}?format=raw")) as read:
        partitions = read.facts().partitions
        ends = read.end_offsets(partitions)
        for number in partitions:
            rows[str(number)], places[str(number)] = [], []
            for batch in read.read(number, 0, ends[number]):
                places[str(number)] += batch.column("offset").to_pylist()
                for value in batch.column("value").to_pylist():
                    row = {"ts": None, "x": None} if value in (BROKEN, None) else json.loads(value)
                    rows[str(number)].append({"ts": row["ts"], "x": row["x"]})
    return rows, places


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = scanned(DeltaTable(str(folder / f"matches{name}"))).to_table().to_pylist()
    return rows


def check(join: StreamJoin, folder: Path, servers: str, topics: dict[str, str]) -> None:
    """Assert that matches, late rows, rejects and the ledger are the oracle's over the order of arrival."""
    found = {name: held(servers, topic) for name, topic in topics.items()}
    records = {name: rows for name, (rows, _) in found.items()}
    places = {name: own for name, (_, own) in found.items()}
    listed, seqs, known = arrival(join, offsets(folder / "checkpoint"), records, places)
    names = join.names
    assert {n: len(listed[n]) for n in names} == {n: sum(map(len, records[n].values())) for n in names}
    matches = Counter((row["l_seq"], row["r_seq"]) for row in table(folder, ""))
    expected = oracle_join(join, listed, **known)
    assert matches == Counter((seqs["l"][row["l_seq"]], seqs["r"][row["r_seq"]]) for row in expected)
    missed = {n: late_rows(join, n, listed, **known) for n in names}
    late = Counter((row["stream"], row["seq"]) for row in table(folder, "_late"))
    assert late == Counter((n, seqs[n][number]) for n in names for number in missed[n])
    rejects = Counter((row["stream"], row["file"], row["line"], row["text"]) for row in table(folder, "_rejects"))
    assert rejects == Counter(
        (n, f"kafka:{topics[n]}/{partition}", places[n][partition][number], text)
        for n in names
        for partition, rows in records[n].items()
        for number, row in enumerate(rows)
        if row["ts"] is None
        for text in [BROKEN.decode() if number + 1 < len(rows) and rows[number + 1]["ts"] is None else ""]
    )
    for name in names:
        own = [row for row in table(folder, "_ledger") if row["stream"] == name]
        assert sum(row["read"] for row in own) == len(listed[name])
        assert all(row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"] for row in own)
    assert len(expected) > 100
    assert all(missed.values())


def test_from_messages_to_tables_and_on_after_a_restart(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewPartitions

    dice = random.Random(2)
    topics = {"l": new_topic(broker.servers, 2), "r": new_topic(broker.servers, 2)}
    admin = AdminClient({"bootstrap.servers": broker.servers})
    (tmp_path / "login").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=reader\nsasl.password=right\n"
        f"ssl.key.password={HIDDEN}\n"
    )
    login = f"&settings={tmp_path / 'login'}"
    streams = [
        Stream("l", f"kafka://{broker.sasl_servers}/{topics['l']}?format=json{login}", delay="2s"),
        Stream("r", f"kafka://{broker.servers}/{topics['r']}?format=json", delay="2s", idle_timeout="1h"),
    ]
    join = StreamJoin(streams, on=band("l.x", "r.x", 1), window="10s", select=["l.x", "r.x", "r.other"])

    def send(seconds: range, partitions: int = 2) -> None:
        for name, topic in topics.items():
            for partition in range(partitions if name == "r" else 2):
                values = messages(seconds, 3 * partition, dice)
                produce(broker.servers, topic, values, partition=partition)

    def run(**options: Any) -> None:
        options = {"max_rows_per_batch": 70, "available_now": True, "layout": "1x2"} | options
        join.start(spark, tmp_path / "matches", tmp_path / "checkpoint", **options).awaitTermination()

    send(range(40))
    run(exchange="packed")
    check(join, tmp_path, broker.servers, topics)
    # An aborted transaction leaves offsets without a message, and a partition is added.
    writer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topics["l"]})
    writer.init_transactions(30)
    writer.begin_transaction()
    for _ in range(5):
        writer.produce(topics["l"], b'{"ts": 1, "x": 1}', partition=1)
    writer.flush(30)
    writer.abort_transaction(30)
    admin.create_partitions([NewPartitions(topics["r"], 3)])[topics["r"]].result(20)
    send(range(40, 80), 3)
    run()
    check(join, tmp_path, broker.servers, topics)
    end = offsets(tmp_path / "checkpoint")[-1]["streams"]
    assert sorted(end["r"]["partitions"]) == ["0", "1", "2"]
    at = end["l"]["partitions"]["1"]["at"]
    assert at["offset"] > at["seq"] == 84

    said = str(join.explain())
    assert "each partition of the topic a partition" in said
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "login"]
    assert not any(HIDDEN.encode() in text or b"sasl" in text for text in kept)
    assert HIDDEN not in said

    admin.delete_topics([topics["r"]])[topics["r"]].result(20)
    for _ in range(100):
        if topics["r"] not in admin.list_topics(timeout=10).topics:
            break
    new_topic(broker.servers, 3, topics["r"])
    with pytest.raises(StreamingQueryException, match=r"KAFKA_TOPIC_CHANGED: the topic .* was deleted and made again"):
        run()


def test_a_broker_that_restarts_ends_nothing(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    dice = random.Random(3)
    topics = {"l": new_topic(broker.servers, 2), "r": new_topic(broker.servers, 1)}

    def send(seconds: range) -> None:
        for name, topic in topics.items():
            for partition in range(2 if name == "l" else 1):
                produce(broker.servers, topic, messages(seconds, 3 * partition, dice), partition=partition)

    def read() -> int:
        return sum(row["read"] for row in table(tmp_path, "_ledger"))

    def wait_for(count: int) -> None:
        until = time.monotonic() + 240
        while read() < count and query.isActive and time.monotonic() < until:
            time.sleep(0.5)
        assert (read(), query.exception()) == (count, None)

    send(range(60))
    streams = [Stream(name, f"kafka://{broker.servers}/{topics[name]}?format=json", delay="2s") for name in ("l", "r")]
    join = StreamJoin(streams, on=band("l.x", "r.x", 1), window="10s", select=["l.x", "r.x"])
    query = join.start(spark, tmp_path / "matches", tmp_path / "checkpoint", trigger="1s", layout="1x1")
    try:
        wait_for(3 * 62)
        broker.restart()
        send(range(60, 90))
        wait_for(3 * (62 + 32))
    finally:
        query.stop()
    check(join, tmp_path, broker.servers, topics)
