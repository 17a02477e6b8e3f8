"""Reading from a real broker: what the mock lacks."""

from __future__ import annotations

import signal
import time
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import (
    ArgumentError,
    KafkaAccessError,
    KafkaDataLostError,
    KafkaTopicChangedError,
    KafkaTopicError,
    KafkaUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.kafka.settings import Settings, SettingsSource
from streamjoin_ds.source.kafka.broker import Broker, TopicFacts, check_same
from streamjoin_ds.source.kafka.formats.message_formats import message_text
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.range_read import LostRange, RangeReader
from streamjoin_ds.source.kafka.topic import KafkaTopic, KafkaUrl
from streamjoin_ds.spec.member.stream import Stream
from tests.source.kafka.sources import SOURCES, MakeSource, table_of, topic_of
from tests.support.kafka import KafkaBroker, free_port, mock_cluster, new_topic, produce

pytest.importorskip("confluent_kafka")
from confluent_kafka import KafkaError, KafkaException

SECRET = "pa55word"


@pytest.fixture(
    params=[pytest.param(made, marks=[] if name == "native" else pytest.mark.long) for name, made in SOURCES.items()],
    ids=SOURCES,
)
def source(request: pytest.FixtureRequest) -> MakeSource:
    made: MakeSource = request.param
    return made


class Transactions:
    """A transactional producer of one partition."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 0})
        self.producer.init_transactions(30)

    def begin(self, *values: bytes) -> Transactions:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, partition=0)
        self.producer.flush(30)
        return self

    def commit(self) -> None:
        self.producer.commit_transaction(30)

    def abort(self) -> None:
        self.producer.abort_transaction(30)


def end_within(topic: KafkaTopic, end: int) -> bool:
    """Whether the partition's end comes to this soon: the broker writes markers after a commit has returned."""
    until = time.monotonic() + 20
    while topic.end_offsets([0])[0] != end and time.monotonic() < until:
        time.sleep(0.05)
    return topic.end_offsets([0]) == {0: end}


def test_only_committed_messages_come_and_markers_end_ranges(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers)
    writer = Transactions(broker.servers, name)
    writer.begin(b"a", b"b").commit()  # 0, 1, marker 2
    writer.begin(b"x", b"y").abort()  # 3, 4, marker 5
    writer.begin(b"c").commit()  # 6, marker 7
    writer.begin(b"z").abort()  # 8, marker 9
    with topic_of(broker.servers, name, source) as topic:
        assert end_within(topic, 10)
        for cuts in ([0, 10], [0, 2, 3, 5, 6, 8, 10], list(range(11)), [3, 6], [7, 10]):
            found = {}
            for begin, end in pairwise(cuts):
                table = table_of(topic, 0, begin, end)
                found |= dict(zip(table.column("offset").to_pylist(), table.column("value").to_pylist(), strict=True))
            whole = {0: b"a", 1: b"b", 6: b"c"}
            assert found == {offset: value for offset, value in whole.items() if cuts[0] <= offset < cuts[-1]}
        asked = topic.read(0, 0, 10)
        assert sum(len(batch) for batch in asked) == 3
        assert (asked.messages, asked.empty_offsets, asked.lost) == (3, 7, [])


@pytest.mark.long
def test_the_end_is_the_last_stable_offset(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers)
    open_one = Transactions(broker.servers, name)
    produce(broker.servers, name, [b"a", b"b"])
    open_one.begin(b"c")
    produce(broker.servers, name, [b"d"])
    with topic_of(broker.servers, name, source) as topic:
        assert topic.end_offsets([0]) == {0: 2}
        assert table_of(topic, 0, 0, 2).column("value").to_pylist() == [b"a", b"b"]
        open_one.commit()
        assert end_within(topic, 5)
        assert table_of(topic, 0, 2, 5).column("value").to_pylist() == [b"c", b"d"]


@pytest.mark.long
def test_compaction_leaves_gaps(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(
        broker.servers,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes="1048576",
    )
    for _ in range(3):
        for key in (b"k1", b"k2"):
            produce(broker.servers, name, [b"%d" % number for number in range(100)], key=key)
    with topic_of(broker.servers, name, source) as topic:
        end = topic.end_offsets([0])[0]
        until = time.monotonic() + 60
        while (table := table_of(topic, 0, 0, end)).num_rows == end and time.monotonic() < until:
            produce(broker.servers, name, [b"tick"], key=b"tick")  # only a closed segment is compacted
            time.sleep(0.3)  # by the broker's own clock
        asked = topic.read(0, 0, end)
        rows = sum(len(batch) for batch in asked)
    assert 0 < rows < end
    assert asked.empty_offsets == end - rows
    assert table.column("value").to_pylist()[-1] == b"99"


def delete_before(servers: str, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(20)


@pytest.mark.long
def test_what_is_gone_is_an_error_or_is_counted(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers)
    produce(broker.servers, name, [b"%d" % number for number in range(100)])
    delete_before(broker.servers, name, 40)
    with topic_of(broker.servers, name, source) as topic:
        assert topic.first_offsets([0]) == {0: 40}
        with pytest.raises(KafkaDataLostError, match="offsets 10 to 39"):
            table_of(topic, 0, 10, 90)
        assert table_of(topic, 0, 40, 42).column("value").to_pylist() == [b"40", b"41"]
    with topic_of(broker.servers, name, source, on_data_loss="skip") as topic:
        asked = topic.read(0, 10, 90)
        assert [offset for batch in asked for offset in batch.column("offset").to_pylist()] == list(range(40, 90))
        assert asked.lost == [LostRange(0, 10, 40)]
        assert asked.empty_offsets == 0
        asked = topic.read(0, 5, 20)
        assert list(asked) == []
        assert asked.lost == [LostRange(0, 5, 20)]


@pytest.mark.long
def test_a_topic_made_again_and_one_with_fewer_partitions_are_refused(broker: KafkaBroker, source: MakeSource) -> None:
    from confluent_kafka.admin import AdminClient

    name = new_topic(broker.servers, 2)
    produce(broker.servers, name, [b"old"] * 20)
    with topic_of(broker.servers, name, source) as topic:
        known = topic.facts()
        assert known.partitions == (0, 1)
        assert len(known.topic_id) == 22
        assert topic.facts(known) == known
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_topics([name])[name].result(20)
    with topic_of(broker.servers, name, source) as topic, pytest.raises(KafkaTopicError, match=name):
        topic.facts(known)
    new_topic(broker.servers, 2, name=name)
    produce(broker.servers, name, [b"new"] * 5)
    with topic_of(broker.servers, name, source) as topic:
        with pytest.raises(KafkaTopicChangedError, match="made again"):
            topic.facts(known)
        with pytest.raises(KafkaTopicChangedError, match="ends at offset 5"):
            table_of(topic, 0, 10, 20)
        # Offsets that the new topic has too: only its id tells.
        assert sum(len(batch) for batch in topic.read(0, 0, 5)) == 5
        with pytest.raises(KafkaTopicChangedError, match="made again"):
            list(topic.read(0, 0, 5, known))
        assert sum(len(batch) for batch in topic.read(0, 0, 5, topic.facts())) == 5
        with pytest.raises(KafkaTopicChangedError, match="fewer partitions"):
            check_same(name, TopicFacts(topic.facts().topic_id, (0, 1, 2)), topic.facts())


@pytest.mark.long
def test_more_partitions_are_welcome(broker: KafkaBroker) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = new_topic(broker.servers, 1)
    with topic_of(broker.servers, name) as topic:
        known = topic.facts()
        admin = AdminClient({"bootstrap.servers": broker.servers})
        admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
        until = time.monotonic() + 20
        while len(topic.facts(known).partitions) == 1 and time.monotonic() < until:
            time.sleep(0.1)  # the broker tells its new partitions when it has them
        assert topic.facts(known).partitions == (0, 1, 2)


@pytest.mark.long
def test_the_offset_of_a_time(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers, 2, retention_ms="-1")
    for second in range(5):
        produce(broker.servers, name, [b"x"], timestamp=(1_700_000_000 + second) * 1000)
    appended = new_topic(broker.servers, message_timestamp_type="LogAppendTime", retention_ms="-1")
    produce(broker.servers, appended, [b"x"], timestamp=1000)
    with topic_of(broker.servers, name, source) as topic:
        at = 1_700_000_000_000_000
        assert topic.offsets_of_time([0, 1], at) == {0: 0, 1: 0}
        assert topic.offsets_of_time([0], at + 1_500_000) == {0: 2}
        assert topic.offsets_of_time([0], at + 60_000_000) == {0: 5}
        assert table_of(topic, 0, 0, 5).column("timestamp_us").to_pylist()[4] == at + 4_000_000
    for start, offset in [("earliest", 0), ("latest", 5), ("2023-11-14T22:13:22Z", 2)]:
        url = KafkaUrl(broker.servers, name, "raw", start=start)
        with KafkaTopic(url, source) as topic:
            assert topic.start_offsets([0]) == {0: offset}
    with topic_of(broker.servers, appended, source) as topic:
        row = table_of(topic, 0, 0, 1).to_pylist()[0]
        assert row["timestamp_type"] == "append"
        assert row["timestamp_us"] > at


@pytest.mark.long
def test_each_poison_message_is_a_reject_and_no_other(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers)
    poison = [b'{"ts":1', b',"x":2}', b'{"ts":1}{"ts":2}', b"", None, b"\xff", b'{"x":"no","ts":1}']
    values = [poison[at // 5 % len(poison)] if at % 5 == 3 else b'{"ts":%d,"x":%d}' % (at, at) for at in range(3000)]
    writer = Transactions(broker.servers, name)
    for at in range(0, len(values), 500):
        writer.begin(b'{"ts":0,"x":-1}').abort()
        writer.begin(*values[at : at + 500]).commit()
    schema = pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    records = MessageRecords("json", Stream("e", time="ts", schema=schema), schema, name)
    with topic_of(broker.servers, name, source) as topic:
        assert end_within(topic, 3000 + 6 * 3)
        chunks = [
            records.chunk(batch, 0, first)
            for begin, end, first in [(0, 1000, 0), (1000, 3018, 10_000)]
            for batch in topic.read(0, begin, end)
        ]
    assert sum(chunk.count for chunk in chunks) == len(values)
    found = [x for chunk in chunks for x in chunk.tuples.column("x").to_pylist()]
    assert found == [at for at in range(3000) if at % 5 != 3]
    rejects = [reject for chunk in chunks for reject in chunk.rejects]
    assert [reject.text for reject in rejects] == [message_text(values[at]) for at in range(3, 3000, 5)]
    # Before each 500 messages: an aborted one and its marker; after them: a marker.
    assert [reject.line for reject in rejects] == [at + 2 + at // 500 * 3 for at in range(3, 3000, 5)]


def test_a_broker_that_is_killed_and_comes_back_changes_nothing(broker: KafkaBroker, source: MakeSource) -> None:
    name = new_topic(broker.servers)
    produce(broker.servers, name, [b"%06d" % number for number in range(200_000)])
    with topic_of(broker.servers, name, source) as topic:
        batches = iter(topic.read(0, 0, 200_000))
        found = [next(batches)]
        broker.restart(signal.SIGKILL)
        found += batches
    offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(200_000))


LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=reader\n"


@pytest.mark.long
def test_a_login_that_is_right_reads(broker: KafkaBroker, source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SETTINGS", LOGIN + "sasl.password=right\n")
    name = new_topic(broker.servers)
    produce(broker.servers, name, [b"a"])
    with topic_of(broker.sasl_servers, name, source, SettingsSource(variable="KAFKA_SETTINGS")) as topic:
        assert topic.facts().partitions == (0,)
        assert table_of(topic, 0, 0, 1).column("value").to_pylist() == [b"a"]


TLS = "security.protocol=SASL_SSL\nssl.ca.location={ca}\n"


@pytest.mark.long
@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", "reader"), ("SCRAM-SHA-256", "scram")])
def test_tls_and_a_login_read_and_tell_a_group(
    broker: KafkaBroker, source: MakeSource, monkeypatch: pytest.MonkeyPatch, mechanism: str, user: str
) -> None:
    login = f"sasl.mechanism={mechanism}\nsasl.username={user}\nsasl.password=right\n"
    monkeypatch.setenv("KAFKA_SETTINGS", TLS.format(ca=broker.certificate) + login)
    name = new_topic(broker.servers)
    produce(broker.servers, name, [b"a"])
    with topic_of(broker.tls_servers, name, source, SettingsSource(variable="KAFKA_SETTINGS")) as topic:
        assert topic.facts().partitions == (0,)
        assert table_of(topic, 0, 0, 1).column("value").to_pylist() == [b"a"]
        assert name in topic.broker.topics()
        topic.broker.tell_group("board", {(name, 0): 1})
    assert told_offset(broker.servers, "board", name) == 1


def told_offset(servers: str, group: str, topic: str) -> int:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    admin = AdminClient({"bootstrap.servers": servers})
    (told,) = admin.list_consumer_group_offsets([asked]).values()
    return int(told.result(20).topic_partitions[0].offset)


@pytest.mark.long
@pytest.mark.parametrize(
    ("login", "name"),
    [
        ("sasl.mechanism=PLAIN\nsasl.username=reader\nsasl.password=right\nssl.ca.location=\n", "ssl.ca.location"),
        (f"sasl.mechanism=SCRAM-SHA-256\nsasl.username=scram\nsasl.password={SECRET}\n", "sasl.password"),
    ],
)
def test_what_is_wrong_with_tls_or_its_login_is_named(
    broker: KafkaBroker, tmp_path: Path, login: str, name: str
) -> None:
    file = tmp_path / "kafka.properties"
    ca = "" if "ssl.ca" in login else f"ssl.ca.location={broker.certificate}\n"
    file.write_text("security.protocol=SASL_SSL\n" + ca + login.replace("ssl.ca.location=\n", ""))
    with pytest.raises(KafkaAccessError) as caught:
        Broker(broker.tls_servers, SettingsSource(str(file)).read(), answer_seconds=5).topic("t")
    assert caught.value.name == name
    assert SECRET not in str(caught.value)


def test_a_group_that_cannot_be_told_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = Broker(f"127.0.0.1:{free_port()}", Settings({"socket.connection.setup.timeout.ms": "1000"}))
    for _ in range(2):
        asked.tell_group("board", {("t", 0): 1})
    assert [record.message.count("board") for record in caplog.records if record.levelname == "WARNING"] == [1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "settings", "kind", "name"),
    [
        ("sasl", f"{LOGIN}sasl.password={SECRET}\n", KafkaAccessError, "sasl.password"),
        ("sasl", f"{LOGIN}sasl.password={SECRET}\nsasl.mechanism=SCRAM-SHA-256\n", KafkaAccessError, "sasl.password"),
        ("sasl", "", KafkaUnreachableError, "bootstrap.servers"),
        ("plain", "security.protocol=SSL\n", KafkaUnreachableError, "bootstrap.servers"),
        ("nobody", "", KafkaUnreachableError, "bootstrap.servers"),
        ("nowhere", "", KafkaUnreachableError, "bootstrap.servers"),
        ("plain", "", KafkaTopicError, "no-such-topic"),
        ("plain", f"fetch.wait.max.ms={SECRET}\n", ArgumentError, "fetch.wait.max.ms"),
        ("plain", f"no.such.setting={SECRET}\n", ArgumentError, "no.such.setting"),
        ("plain", f"security.protocol=SSL\nssl.ca.location=/none/{SECRET}\n", ArgumentError, "ssl.ca.location"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_setting(
    broker: KafkaBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    where: str,
    settings: str,
    kind: type[StreamJoinError],
    name: str,
) -> None:
    servers = {
        "sasl": broker.sasl_servers,
        "plain": broker.servers,
        "nobody": f"127.0.0.1:{free_port()}",
        "nowhere": "no-such-host.invalid:9092",
    }[where]
    file = tmp_path / "kafka.properties"
    file.write_text(settings)
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        Broker(servers, SettingsSource(str(file)).read(), answer_seconds=3).topic("no-such-topic")
    assert time.monotonic() - began < 6
    waited = [text for text in caplog.messages if text.startswith("no broker answers for topic no-such-topic yet")]
    assert len(waited) == (kind is KafkaUnreachableError)  # whoever mistyped an address need not wait to learn it
    assert caught.value.name == name
    assert caught.value.hint
    told = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    assert SECRET not in told
    assert "\n" not in str(caught.value)


class _Moving:
    """An admin client whose brokers say at first that a partition has moved."""

    def __init__(self, admin: Any, *names: str) -> None:
        self._admin, self.left = admin, [*names]

    def __getattr__(self, asked: str) -> Any:
        if asked == "poll" or not self.left:
            return getattr(self._admin, asked)
        failed: Future[Any] = Future()
        failed.set_exception(KafkaException(KafkaError(getattr(KafkaError, self.left.pop(0)))))
        return lambda *_, **__: {"t": failed}


def test_brokers_whose_partitions_move_are_asked_again_for_so_long() -> None:
    with mock_cluster("t") as servers:
        waits: list[float] = []
        asked = Broker(servers, Settings({}), answer_seconds=5, wait=waits.append)
        asked._admin = moving = _Moving(asked._admin, "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "_TRANSPORT")
        assert asked.end_offsets("t", [0, 3]) == {0: 0, 3: 0}
        assert (moving.left, len(waits)) == ([], 3)
        moving.left = ["NOT_LEADER_FOR_PARTITION"] * 3
        times = iter([0.0, 1.0, 2.0, 7.0, 8.0])
        asked._clock = lambda: next(times)
        with pytest.raises(KafkaUnreachableError, match="NOT_LEADER_FOR_PARTITION"):
            asked.end_offsets("t", [0])
        moving.left, asked._clock = ["TOPIC_AUTHORIZATION_FAILED"], time.monotonic
        with pytest.raises(KafkaAccessError):  # waiting does not help
            asked.end_offsets("t", [0])
        assert len(waits) == 5


@pytest.mark.long
def test_reading_too_names_what_is_wrong(broker: KafkaBroker, source: MakeSource) -> None:
    right = Settings(dict(line.split("=") for line in f"{LOGIN}sasl.password={SECRET}".splitlines()))
    made = source(broker.sasl_servers, right, "t", 0)
    reader = RangeReader(made, Broker(broker.servers, Settings({})), "t", 0, silence_seconds=5)
    with pytest.raises(KafkaAccessError) as caught:
        list(reader.read(0, 1))
    assert caught.value.name == "sasl.password"
    reader.close()
