"""Intake of a topic of Kafka: what is not kept comes again, and what is wrong is named."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import (
    ArgumentError,
    IntakeError,
    KafkaAccessError,
    KafkaDataLostError,
    KafkaTopicChangedError,
    KafkaTopicError,
    KafkaUnreachableError,
    SpoolError,
)
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Stream
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.intake import Intake
from streamjoin_ds.spool.kafka_client import KafkaClient, _secret_settings
from streamjoin_ds.spool.writer import SpoolLimits
from tests.source.feeds import expected, read_all, rows
from tests.spool.spools import held, payload
from tests.spool.test_intake import Process
from tests.support.kafka import KafkaBroker, mock_cluster, new_topic, produce

pytest.importorskip("confluent_kafka")
from confluent_kafka import KafkaError, KafkaException, TopicPartition


def taken(servers: str, topic: str, folder: Path, enough: int, query: str = "", ticks: int = 300) -> Intake:
    """Take in until so many messages were taken, or so many times nothing came."""
    address = Address.parse(f"kafka://{servers}/{topic}{query}")
    intake = Intake(address, folder, Secrets(), SpoolLimits(segment_bytes=4096), say=lambda _: None)
    left = [ticks]
    before = intake._tick

    def tick(writer: object) -> bool:
        left[0] -= 1
        if intake.counts.messages >= enough or left[0] < 0:
            intake.stop()
        return before(writer)  # type: ignore[arg-type]

    intake._tick = tick  # type: ignore[method-assign]
    intake.run()
    return intake


def test_messages_are_kept_and_a_later_start_goes_on_after_them(tmp_path: Path) -> None:
    items = rows(60)
    with mock_cluster("in") as servers:
        for number, row in enumerate(items[:40]):
            produce(servers, "in", [payload(row)], partition=number % 4)
        first = taken(servers, "in", tmp_path / "spool", 40)
        assert (first.counts.messages, first.counts.connects) == (40, 1)
        for number, row in enumerate(items[40:]):
            produce(servers, "in", [payload(row)], partition=number % 4)
        assert taken(servers, "in", tmp_path / "spool", 20).counts.messages == 20
        places = [topic.decode() for _, topic, _ in held(tmp_path / "spool")]
        assert sorted(places) == sorted(f"in/{part}/{offset}" for part in range(4) for offset in range(15))
        other = Address.parse(f"kafka://{servers}/other")
        with pytest.raises(SpoolError, match="takes in another topic"):
            Intake(other, tmp_path / "spool", Secrets(), SpoolLimits()).run()
    found = read_all(tmp_path / "spool", 7)
    assert sorted(row[2:] for row in found) == sorted(row[2:] for row in expected(items))
    assert infer_schema(Stream("e", str(tmp_path / "spool"))).names == ["ts", "name", "x", "n"]


def test_offsets_are_committed_once_messages_are_on_the_device(tmp_path: Path) -> None:
    """A spool that breaks commits nothing of what it did not keep: it comes again."""
    with mock_cluster("in") as servers:
        produce(servers, "in", [b'{"n": %d}' % number for number in range(50)])
        address = Address.parse(f"kafka://{servers}/in")
        kept: list[bytes] = []

        def keep(messages: object) -> None:
            raise InterruptedError

        client = KafkaClient(address, Secrets(), "g", keep, lambda: True)
        with pytest.raises(InterruptedError):
            client.run()

        def keep_well(messages: list[tuple[bytes, bytes]]) -> None:
            kept.extend(value for _, value in messages)

        KafkaClient(address, Secrets(), "g", keep_well, lambda: len(kept) < 50).run()  # type: ignore[arg-type]
    assert kept == [b'{"n": %d}' % number for number in range(50)]


@pytest.mark.parametrize(("epoch", "is_refused"), [(0, False), (7, True)])
def test_a_log_that_was_cut_and_has_grown_again_is_refused(
    epoch: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader must have the epoch of the last message that was taken, before the one that comes next."""
    kept: list[bytes] = []
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"%d" % number for number in range(20)])
        address = Address.parse(f"kafka://{servers}/in?on_data_loss=skip")

        def keep(messages: list[tuple[bytes, bytes]]) -> None:
            kept.extend(value for _, value in messages)

        left = iter(range(100))
        tick = lambda: len(kept) < 10 and next(left) < 99  # noqa: E731
        client = KafkaClient(address, Secrets(), "g", keep, tick)  # type: ignore[arg-type]
        places = [TopicPartition("in", 0, 10, leader_epoch=epoch)]
        monkeypatch.setattr(client, "_places", lambda numbers: places if 0 in numbers else [])
        if is_refused:
            with pytest.raises(KafkaTopicChangedError, match="partition 0 of topic in holds other messages before"):
                client.run()
            assert not kept
            return
        client.run()
        assert kept == [b"%d" % number for number in range(10, 20)]
        (place,) = client._at(client._kept)
        assert (place.offset, place.leader_epoch) == (20, 0)
        again = KafkaClient(address, Secrets(), "g", keep, lambda: False)  # type: ignore[arg-type]
        again._begin([0])
        assert again._next == {0: 20}


def test_messages_of_an_earlier_epoch_are_of_another_log() -> None:
    kept: list[object] = []
    client = KafkaClient(Address.parse("kafka://b:1/in"), Secrets(), "g", kept.append, lambda: True)
    client._commit = lambda *_, **__: None  # type: ignore[method-assign]
    client._take([_Of(4, 3), _Of(5, 5)])
    with pytest.raises(KafkaTopicChangedError, match="before offset 6"):
        client._take([_Of(6, 4)])
    assert len(kept) == 1


@dataclass
class _Of:
    """A message at an offset, under a leader of an epoch."""

    at: int
    epoch: int

    def error(self) -> None: ...
    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return b"{}"

    def leader_epoch(self) -> int:
        return self.epoch


def test_a_broker_that_is_away_and_back_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    turns = 0
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"{}"])

        def tick() -> bool:
            nonlocal turns
            turns += 1
            if turns in (3, 4):  # librdkafka tells it so
                client._errors.names.add("_ALL_BROKERS_DOWN")
            return turns < 30 and not any("is back" in line for line in caplog.messages)

        client = KafkaClient(Address.parse(f"kafka://{servers}/in"), Secrets(), "g", lambda _: None, tick)
        client.run()
    assert [line.partition(", after")[0] for line in caplog.messages] == [
        "topic in: no broker answers; the intake waits for it", "topic in: the broker is back",
    ]  # fmt: skip


def test_a_tombstone_is_kept_without_a_payload(tmp_path: Path) -> None:
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"{}", None, b"{}"], key=b"k")
        taken(servers, "in", tmp_path, 3)
    assert [data for _, _, data in held(tmp_path)] == [b"{}", b"", b"{}"]


def test_a_message_that_is_too_large_is_counted_and_does_not_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("intake", "writer"):
        monkeypatch.setattr(f"streamjoin_ds.spool.{module}.MAX_PAYLOAD_BYTES", 100)
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"1", bytes(101), bytes(100), bytes(5000)])
        intake = taken(servers, "in", tmp_path, 2)
        assert (intake.counts.messages, intake.counts.oversized) == (2, 2)
        produce(servers, "in", [b"2"])
        assert taken(servers, "in", tmp_path, 1).counts.oversized == 0
    assert [data for _, _, data in held(tmp_path)] == [b"1", bytes(100), b"2"]
    assert [line.partition(" is left out")[0] for line in caplog.messages if "left out" in line] == [
        "a message of 101 bytes of 'in/0/1'", "a message of 5000 bytes of 'in/0/3'",
    ]  # fmt: skip


def test_latest_begins_after_what_is_there_and_stays_there(tmp_path: Path) -> None:
    with mock_cluster("in") as servers:
        produce(servers, "in", [b'{"n": 1}'] * 5)
        assert taken(servers, "in", tmp_path, 9, "?start=latest", ticks=5).counts.messages == 0
        produce(servers, "in", [b'{"n": 2}'] * 3)  # while nobody is there
        assert taken(servers, "in", tmp_path, 3, "?start=latest").counts.messages == 3
    assert {data for _, _, data in held(tmp_path)} == {b'{"n": 2}'}


@pytest.mark.parametrize(
    ("address", "error", "name"),
    [
        ("kafka://127.0.0.1:1/t", IntakeError, "address"),
        ("kafka://{servers}/in?settings=/none", ArgumentError, "settings"),
        ("kafka://{servers}/in?settings_env=NOT_THERE", ArgumentError, "settings_env"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, error: type[Exception], name: str
) -> None:
    monkeypatch.setattr("streamjoin_ds.spool.kafka_client._ANSWER_S", 2.0)
    with mock_cluster("in") as servers, pytest.raises(error) as caught:
        Intake(Address.parse(address.format(servers=servers)), tmp_path, Secrets(), SpoolLimits()).run()
    assert caught.value.name == name  # type: ignore[attr-defined]


class _Starting:
    """A consumer whose brokers are starting: what they are asked fails some times before it is answered."""

    def __init__(self, consumer: Any, *names: str) -> None:
        self._consumer, self._names = consumer, names
        self.left: dict[str, list[str]] = {}

    def __getattr__(self, asked: str) -> Any:
        answer = getattr(self._consumer, asked)
        if asked not in {"committed", "get_watermark_offsets", "commit"}:
            return answer

        def answered(*args: object, **options: object) -> object:
            left = self.left.setdefault(asked, [*self._names])
            if left and not options.get("asynchronous"):
                raise KafkaException(KafkaError(getattr(KafkaError, left.pop(0))))
            return answer(*args, **options)

        return answered


def started(servers: str, kept: list[object], enough: int, *names: str, query: str = "") -> _Starting:
    """Run a client until it has kept enough, of brokers that say these names first; return the consumer it had."""
    address = Address.parse(f"kafka://{servers}/in{query}")
    ticks = iter(range(30))
    client = KafkaClient(
        address, Secrets(), "g", kept.extend, lambda: len(kept) < enough and next(ticks, None) is not None
    )
    client._consumer = consumer = _Starting(client._consumer, *names)
    client.run()
    return consumer


@pytest.mark.parametrize("query", ["", "?start=latest"])
def test_brokers_that_are_starting_are_asked_again(query: str) -> None:
    kept: list[object] = []
    names = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "_WAIT_COORD", "_TRANSPORT")
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"{}"] * 5)
        consumer = started(servers, kept, 5, *names, query=query)
    asked = {"committed", "get_watermark_offsets", *(["commit"] if query else [])}
    assert {name for name, left in consumer.left.items() if not left} >= asked
    assert len(kept) == (0 if query else 5)


def test_brokers_that_do_not_come_up_are_waited_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamjoin_ds.spool.kafka_client._ANSWER_S", 1.0)
    monkeypatch.setattr("streamjoin_ds.spool.kafka_client._PAUSE_S", 0.05)
    with mock_cluster("in") as servers, pytest.raises(KafkaUnreachableError, match="NOT_COORDINATOR"):
        started(servers, [], 1, *["NOT_COORDINATOR"] * 100)


def test_a_partition_whose_offset_was_not_told_does_not_begin_at_its_first_message() -> None:
    """The brokers answer, and say of one partition that it has to be asked again."""
    kept: list[object] = []
    with mock_cluster("in") as servers:
        produce(servers, "in", [b"{}"] * 3)
        started(servers, kept, 3)
        address = Address.parse(f"kafka://{servers}/in")
        ticks = iter(range(5))
        client = KafkaClient(address, Secrets(), "g", kept.extend, lambda: next(ticks, None) is not None)
        told = client._consumer.committed
        wrong = TopicPartition("in", 0)
        places = iter([[_Place(wrong, KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))]])
        consumer = _Starting(client._consumer)
        consumer.committed = lambda *args, **options: next(places, None) or told(*args, **options)  # type: ignore[attr-defined]
        client._consumer = consumer
        client.run()
    assert len(kept) == 3


@dataclass
class _Place:
    """What a broker says of a partition, with an error (which librdkafka's own cannot be given)."""

    place: TopicPartition
    error: KafkaError

    @property
    def partition(self) -> int:
        return int(self.place.partition)

    @property
    def offset(self) -> int:
        return -1001


def test_partitions_that_are_new_are_asked_for_again_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_cluster("in") as servers:
        address = Address.parse(f"kafka://{servers}/in")
        client = KafkaClient(address, Secrets(), "g", lambda _: None, lambda: True)
        client._begin([0, 1])
        whole = client._consumer
        monkeypatch.setattr("streamjoin_ds.spool.kafka_client._ANSWER_S", 0.5)
        client._consumer = _Starting(whole, *["NOT_COORDINATOR"] * 100)
        client._look_for_new()
        assert sorted(client._next) == [0, 1]
        monkeypatch.undo()
        client._consumer = whole
        client._look_for_new()
        assert sorted(client._next) == [0, 1, 2, 3]
        whole.close()


@pytest.mark.parametrize("servers", ["127.0.0.1:1", ""])
def test_a_stop_while_brokers_are_asked_is_no_error(servers: str) -> None:
    """No broker is there at all, or it is starting."""
    with mock_cluster("in") as up:
        ticks = iter(range(2))
        address = Address.parse(f"kafka://{servers or up}/in")
        client = KafkaClient(address, Secrets(), "g", lambda _: None, lambda: next(ticks, None) is not None)
        client._consumer = _Starting(client._consumer, *["NOT_COORDINATOR"] * 100)
        client.run()
        assert client.connects == 0


class _Told:
    """A message of librdkafka's that tells an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def error(self) -> _Told:
        return self

    def name(self) -> str:
        return self._name

    def partition(self) -> int:
        return 3


def test_messages_that_are_gone_are_named_or_passed(caplog: pytest.LogCaptureFixture) -> None:
    with mock_cluster("in") as servers:
        for query, passes in (("", False), ("?on_data_loss=skip", True)):
            address = Address.parse(f"kafka://{servers}/in{query}")
            client = KafkaClient(address, Secrets(), "g", lambda _: None, lambda: True)
            client._begin(client._partitions(10.0))
            if passes:
                client._told(_Told("_AUTO_OFFSET_RESET"))
                assert "partition 3 are gone" in caplog.text
                assert client.lost_offsets == 0  # nothing was there
            else:
                with pytest.raises(KafkaDataLostError) as caught:
                    client._told(_Told("_AUTO_OFFSET_RESET"))
                assert caught.value.name == "in/3"
            client._told(_Told("_PARTITION_EOF"))
            client._consumer.close()


def test_a_login_is_taken_from_the_secrets_where_the_settings_say_none() -> None:
    secrets = Secrets(user="me", password="sEcReT", ca_file="/ca")
    found = _secret_settings(secrets, {"security.protocol": "sasl_plaintext"})  # type: ignore[arg-type]
    assert found == {
        "sasl.username": "me", "sasl.password": "sEcReT", "ssl.ca.location": "/ca", "sasl.mechanism": "PLAIN",
    }  # fmt: skip
    assert _secret_settings(Secrets(ca_file="/ca"), {})["security.protocol"] == "ssl"  # type: ignore[arg-type]
    with pytest.raises(ArgumentError) as caught:
        _secret_settings(Secrets(token="sEcReT"), {})  # type: ignore[arg-type]
    assert caught.value.name == "token"
    assert "sEcReT" not in str(caught.value)


def test_a_real_broker_keeps_what_it_said_and_what_is_wrong_is_named(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted topic, messages that are gone, new partitions, a login, no topic, a broker that restarts."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = new_topic(broker.servers, 2, cleanup_policy="compact")
    for part in range(2):
        produce(broker.servers, topic, [b'{"n": %d}' % number for number in range(20)], partition=part, key=b"k")
    assert taken(broker.servers, topic, tmp_path / "spool", 40).counts.messages == 40
    broker.restart()
    produce(broker.servers, topic, [b'{"n": 20}'], partition=0, key=b"k")
    assert taken(broker.servers, topic, tmp_path / "spool", 1).counts.messages == 1
    assert len({place for _, place, _ in held(tmp_path / "spool")}) == 41

    lost = new_topic(broker.servers)
    produce(broker.servers, lost, [b"{}"] * 10)
    assert taken(broker.servers, lost, tmp_path / "lost", 10).counts.messages == 10
    produce(broker.servers, lost, [b"{}"] * 10)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for removed in admin.delete_records([TopicPartition(lost, 0, 15)]).values():
        removed.result(20)
    with pytest.raises(KafkaDataLostError, match="partition 0, are gone"):
        taken(broker.servers, lost, tmp_path / "lost", 1)
    intake = taken(broker.servers, lost, tmp_path / "lost", 5, "?on_data_loss=skip")
    assert (intake.counts.messages, intake.counts.lost_offsets) == (5, 5)
    assert json.loads((tmp_path / "lost" / "_status.json").read_text())["lost_offsets"] == 5

    monkeypatch.setattr("streamjoin_ds.spool.kafka_client._LOOK_S", 0.2)
    admin.create_partitions([NewPartitions(lost, 2)])[lost].result(20)
    produce(broker.servers, lost, [b"{}"] * 3, partition=1)
    assert taken(broker.servers, lost, tmp_path / "lost", 3).counts.messages == 3

    with pytest.raises(KafkaTopicError):
        taken(broker.servers, "not-there", tmp_path / "none", 1)
    (tmp_path / "settings").write_text("security.protocol=SASL_PLAINTEXT\n")
    query = f"?settings={tmp_path / 'settings'}"
    for password, counted in (("right", 8), ("wrong", 0)):
        secrets = Secrets(user="reader", password=password)
        address = Address.parse(f"kafka://{broker.sasl_servers}/{lost}{query}")
        kept: list[object] = []
        client = KafkaClient(address, secrets, f"g-{password}", kept.extend, lambda kept=kept: len(kept) < 8)
        if counted:
            client.run()
            assert len(kept) == counted
        else:
            with pytest.raises(KafkaAccessError) as caught:
                client.run()
            assert "wrong" not in str(caught.value)


MESSAGES, KILLS = 40_000, 3


@pytest.mark.long
@pytest.mark.slow
def test_an_intake_of_a_topic_that_is_killed_three_times_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with mock_cluster("in") as servers:
        for part in range(4):
            values = [json.dumps({"number": 4 * k + part}).encode() for k in range(MESSAGES // 4)]
            produce(servers, "in", values, partition=part)
        address = f"kafka://{servers}/in"
        options = ("--every", "20ms", "--segment-size", "256KiB")
        settings = tmp_path / "settings"
        settings.write_text("fetch.message.max.bytes=20000\nqueued.min.messages=1000\n")  # so that it takes a while
        intake = Process(folder, f"{address}?settings={settings}", *options)
        for kill in range(1, KILLS + 1):
            intake.wait_for(lambda status, least=kill * MESSAGES // 5: int(str(status.get("next_number", 0))) >= least)
            intake.process.send_signal(signal.SIGKILL)
            intake.process.communicate()
            intake = Process(folder, f"{address}?settings={settings}", *options)
        last = [-1]

        def is_still(status: dict[str, object]) -> bool:  # some come twice, so their number tells no end
            threading.Event().wait(0.5)
            last.append(int(str(status.get("next_number", 0))))
            return last[-1] == last[-2] >= MESSAGES

        intake.wait_for(is_still)
        intake.end()
    found = held(folder)
    assert [number for number, _, _ in found] == [*range(len(found))]
    counted = Counter(json.loads(data)["number"] for _, _, data in found)
    lost, twice = MESSAGES - len(counted), len(found) - len(counted)
    print(f"{MESSAGES} messages, {KILLS} kills: {lost} lost, {twice} twice")
    assert lost == 0
    assert len({topic for _, topic, _ in found}) == MESSAGES  # a double is told by its place
    assert twice <= KILLS * 10_000  # the messages of one group
