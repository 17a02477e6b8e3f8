"""Topics as streams: whatever the batches, what is lost, gone, broken or new, over topics in memory."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import (
    ArgumentError,
    KafkaDataLostError,
    KafkaTopicChangedError,
    KafkaUnreachableError,
    OffsetError,
)
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.kafka import topic_feed
from streamjoin_ds.source.kafka.topic_feed import TopicFeed, TopicPlan, stream_url
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition
from streamjoin_ds.source.partitioned_position import first_seq_of
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches
from tests.support.partitioned import Partitioned
from tests.support.topics import FakeTopic, Log, fake_topics

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
BROKEN = b'{"ts": 17040672'


class Topics(Partitioned):
    """Streams `l` and `r` are topics; a test sends what they hold."""

    def __init__(
        self,
        folder: Path,
        topics: type[FakeTopic],
        window: str = "10s",
        layout: str = "1x2",
        exchange: str = "reference",
        query: str = "",
        schema: pa.Schema = SCHEMA,
        options: dict[str, str] | None = None,
        **facts: Any,
    ) -> None:
        self.topics = topics
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {"l": {}, "r": {}}
        self.places: dict[str, dict[str, list[int]]] = {"l": {}, "r": {}}
        streams = [
            Stream(name, f"kafka://broker/{name}?format=json{query}", schema=schema, **facts) for name in ("l", "r")
        ]
        self.is_unfolded = facts.get("records") is not None  # then records are called by their numbers
        join = Join(streams, [band("l.x", "r.x", 1)], window)
        bound, grid = bind(join, dict.fromkeys(join.names, schema)), Layout.parse(layout, 2)
        super().__init__(join, MicroBatches(bound, folder, grid, exchange, options=options or {}))

    def send(self, stream: str, partition: int, second: float, x: int) -> int:
        """Send a record of a second and a key; return its offset."""
        row = {"ts": START_US + int(second * 1_000_000), "x": x}
        return self.sent(stream, partition, json.dumps(row).encode(), row)

    def poison(self, stream: str, partition: int, value: bytes = BROKEN) -> int:
        """Send what cannot be read; return its offset."""
        return self.sent(stream, partition, value, {"ts": None, "x": None})

    def sent(self, stream: str, partition: int, value: bytes, row: dict[str, Any]) -> int:
        """Send a message that holds this record; return its offset."""
        offset = self.topics.logs[stream][partition].append(value)
        self.rows[stream].setdefault(str(partition), []).append(row)
        self.places[stream].setdefault(str(partition), []).append(offset)
        return offset

    def send_many(self, stream: str, partition: int, records: list[tuple[float, int] | None]) -> int:
        """Send a message with records of these seconds and keys; None is a broken one. Return its offset."""
        rows: list[dict[str, Any]] = [
            {"ts": None, "x": None} if one is None else {"ts": START_US + int(one[0] * 1_000_000), "x": one[1]}
            for one in records
        ]
        held = [{"ts": "soon"} if row["ts"] is None else row for row in rows]
        value = json.dumps({"x": 77, "values": held}).encode()
        self.rows[stream].setdefault(str(partition), []).extend(rows)
        return self.topics.logs[stream][partition].append(value)

    def finish(self) -> None:
        """Take in all that is there, and compare with the oracle."""
        while self.step():
            pass
        self.check(self.rows, None if self.is_unfolded else self.places)

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.micro.companion(name).to_pylist()
        return rows


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> type[FakeTopic]:
    return fake_topics(monkeypatch, l=2, r=1)


def test_lateness_is_judged_in_each_partition_and_numbers_tell_the_offset(
    tmp_path: Path, topics: type[FakeTopic]
) -> None:
    topics.logs["l"][1].end = 7  # seven offsets without a message
    run = Topics(tmp_path, topics)
    for second in (0, 100, 99):
        run.send("l", 0, second, 1)
    for second in (1, 2, 1):
        run.send("l", 1, second, 1)
    for second in (0, 100):
        run.send("r", 0, second, 1)
    run.finish()
    late = Counter((row["stream"], row["seq"]) for row in run.table("late"))
    assert late == {("l", 2): 1, ("l", first_seq_of(1) + 9): 1}
    position = run.micro.offset["streams"]["l"]["partitions"]["1"]["at"]
    assert position == {"epoch": 0, "first": 0, "offset": 10, "seq": 3, "time": START_US + 2_000_000, "topic": "id"}


def test_each_message_that_cannot_be_read_is_a_reject_with_partition_offset_and_bytes(
    tmp_path: Path, topics: type[FakeTopic]
) -> None:
    run = Topics(tmp_path, topics, options={"parts": "2"})
    run.micro.max_rows_per_batch = 4
    run.send("l", 0, 1, 1)
    for second in range(10):
        run.send("l", 1, second, 1)
        run.send("r", 0, second, 1)
    where = run.poison("l", 1)
    # Its time can be read, so it counts: what comes next is late.
    value = json.dumps({"ts": START_US + 30_000_000, "x": "no number"}).encode()
    run.rows["l"]["1"].append({"ts": START_US + 30_000_000, "x": None})
    run.places["l"]["1"].append(topics.logs["l"][1].append(value))
    late = run.send("l", 1, 29, 1)
    run.poison("l", 1, b"\xff\xfe")
    while run.step():
        pass
    rejects = [(row["file"], row["line"], row["text"]) for row in run.table("rejects")]
    assert (("kafka:l/1", where, BROKEN.decode()) in rejects, len(rejects)) == (True, 3)
    assert ("kafka:l/1", late + 1, "0xfffe") in rejects
    assert [row["seq"] for row in run.table("late")] == [first_seq_of(1) + late]
    ledger = [row for row in run.table("ledger") if row["stream"] == "l"]
    assert (sum(row["read"] for row in ledger), sum(row["rejected"] for row in ledger)) == (15, 3)


def test_rejects_are_numbered_as_tuples_are(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Topics(tmp_path, topics)
    run.send("l", 1, 1, 1)
    where = run.poison("l", 1)
    feed = open_feed(run.join.streams[0], SCHEMA)
    start = feed.initial()
    (chunk,) = feed.read(start, feed.advance(start, feed.frontier(start, 10).rows))
    assert [reject.seq for reject in chunk.rejects] == [first_seq_of(1) + where]
    assert chunk.tuples.column("_seq").to_pylist() == [first_seq_of(1)]


def test_what_retention_took_stops_the_stream_or_is_counted(tmp_path: Path, topics: type[FakeTopic]) -> None:
    for name, query in (("stop", ""), ("skip", "&on_data_loss=skip")):
        topics.logs.update({name: [type(log)() for log in logs] for name, logs in topics.logs.items()})
        folder = tmp_path / name
        folder.mkdir()
        run = Topics(folder, topics, query=query)
        run.send("r", 0, 1, 1)
        for second in range(5):
            run.send("l", 0, second, 1)
        assert run.step()
        for second in range(5, 12):
            run.send("l", 0, second, 1)
        topics.logs["l"][0].retain(9)
        if name == "stop":
            with pytest.raises(KafkaDataLostError):
                run.step()
            continue
        assert run.step()
        (reject,) = run.table("rejects")
        assert (reject["file"], reject["line"]) == ("kafka:l/0", 5)
        assert reject["reason"] == "offsets 5 to 8 were gone before they were read"
        (row,) = [row for row in run.table("ledger") if (row["stream"], row["batch_id"]) == ("l", 1)]
        assert (row["read"], row["rejected"], row["stored"], row["lost_offsets"]) == (4, 1, 3, 4)
        assert sum(row["lost_offsets"] for row in run.table("ledger")) == 4
        assert {(row["batch_id"], row["lost_offsets"]) for row in run.table("metrics")} == {(0, 0), (1, 4)}


@pytest.mark.parametrize("least_offsets", [1, 3, 1000])
def test_a_stretch_of_lost_offsets_is_one_reject_however_many_looks_it_takes(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch, least_offsets: int
) -> None:
    monkeypatch.setattr(topic_feed, "_LEAST_OFFSETS", least_offsets)
    run = Topics(tmp_path, topics, query="&on_data_loss=skip")
    run.send("r", 0, 1, 1)
    run.send("l", 0, 1, 1)
    run.send("l", 1, 1, 1)
    assert run.step()
    for second in range(1, 41):
        run.send("l", 0, second, 1)
        run.send("l", 1, second, 1)
    topics.logs["l"][0].retain(30)
    topics.logs["l"][1].retain(41)  # nothing is left
    while run.step():
        pass
    found = {(row["file"], row["line"], row["reason"]) for row in run.table("rejects")}
    lost = {"kafka:l/0": (1, 29), "kafka:l/1": (1, 40)}
    assert found == {
        (file, first, f"offsets {first} to {last} were gone before they were read")
        for file, (first, last) in lost.items()
    }
    ledger = run.table("ledger")
    assert sum(row["rejected"] for row in ledger) == len(run.table("rejects")) == 2
    assert sum(row["lost_offsets"] for row in ledger if row["stream"] == "l") == 29 + 40
    assert sum(row["read"] for row in ledger if row["stream"] == "l") == 2 + 11 + 2


@pytest.mark.parametrize("query", ["", "&on_data_loss=skip"])
def test_what_is_gone_after_it_was_planned_is_told(tmp_path: Path, topics: type[FakeTopic], query: str) -> None:
    run = Topics(tmp_path, topics, query=query)
    for second in range(6):
        run.send("l", 0, second, 1)
        run.send("r", 0, second, 1)
    start = run.micro.offset
    end = json.loads(json.dumps(run.micro.reader.latestOffset(start, run.micro.reader.getDefaultReadLimit())))
    topics.logs["l"][0].compact(2, 3)
    if not query:
        with pytest.raises(KafkaDataLostError, match="2 messages of partition 0 of topic l are gone"):
            run.micro.exchanged(start, end)
        return
    counts = [(row.rejected, row.lost_offsets) for row in run.micro.exchanged(start, end) if row.stream == 0]
    assert tuple(map(sum, zip(*counts, strict=True))) == (2, 0)  # compaction leaves gaps
    topics.logs["l"][0].retain(4)
    counts = [(row.rejected, row.lost_offsets) for row in run.micro.exchanged(start, end) if row.stream == 0]
    assert tuple(map(sum, zip(*counts, strict=True))) == (4, 4)


def test_a_topic_that_was_made_again_is_refused_and_one_with_more_partitions_goes_on(
    tmp_path: Path, topics: type[FakeTopic]
) -> None:
    run = Topics(tmp_path, topics)
    run.send("l", 0, 1, 1)
    run.send("r", 0, 1, 1)
    assert run.step()
    topics.logs["l"].append(type(topics.logs["l"][0])())
    run.send("l", 2, 1, 1)
    run.send("l", 2, 5, 1)
    run.restart()
    run.finish()
    topics.ids["l"] = "another"
    run.restart()
    with pytest.raises(KafkaTopicChangedError, match="deleted and made again"):
        run.step()
    topics.ids.clear()
    topics.logs["l"].pop()
    with pytest.raises(KafkaTopicChangedError, match="fewer partitions than before: 2 is gone"):
        run.step()


def test_a_planner_waits_for_brokers_that_have_answered_before(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_feed, "_PAUSE_SECONDS", 0)
    run = Topics(tmp_path, topics)
    run.send("l", 0, 1, 1)
    run.send("r", 0, 1, 1)
    topics.down = 1
    with pytest.raises(KafkaUnreachableError):  # a wrong address is told at once
        run.step()
    assert run.step()
    run.send("l", 0, 2, 1)
    topics.down = 3
    assert run.step()
    assert not topics.down
    monkeypatch.setattr(topic_feed, "PATIENCE_SECONDS", 0)
    topics.down = 1
    with pytest.raises(KafkaUnreachableError):
        run.step()
    run.finish()


def test_a_stream_may_begin_with_what_comes(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Topics(tmp_path, topics, query="&start=latest")
    run.send("l", 0, 1, 1)
    run.send("r", 0, 1, 1)
    run.rows, run.places = {"l": {}, "r": {}}, {"l": {}, "r": {}}
    assert not run.step()  # the beginning is decided here, though there is nothing to log
    topics.logs["l"].append(type(topics.logs["l"][0])())
    first = run.send("l", 0, 3, 1)
    assert run.send("l", 2, 2, 1) == 0  # a partition that came since is read whole
    run.send("r", 0, 2, 1)
    assert run.step()
    run.restart()  # a task, and a new driver, know the beginning by the offset alone
    run.send("l", 1, 4, 1)
    assert not topics.logs["l"][1].first
    run.finish()
    assert run.micro.offset["streams"]["l"]["partitions"]["0"]["at"]["first"] == first == 1


def test_columns_of_the_message_itself(tmp_path: Path, topics: type[FakeTopic]) -> None:
    schema = pa.schema(
        [
            ("kafka_timestamp", pa.timestamp("us", tz="UTC")),
            ("x", pa.int64()),
            ("kafka_key", pa.string()),
            ("kafka_partition", pa.int32()),
            ("kafka_offset", pa.int64()),
            ("kafka_header_trace", pa.string()),
        ]
    )
    run = Topics(tmp_path, topics, schema=schema, time="kafka_timestamp")
    for stream in ("l", "r"):
        facts = {"key": stream.encode(), "headers": {"trace": b"t1"}, "time_us": START_US}
        topics.logs[stream][0].append(b'{"x": 1}', **facts)
    assert run.step()
    (match,) = run.micro.matches().to_pylist()
    found = [match[f"{stream}_kafka_{name}"] for stream in ("l", "r") for name in ("key", "offset", "header_trace")]
    assert found == ["l", 0, "t1", "r", 0, "t1"]
    assert match["l_kafka_partition"] == 0


def test_a_planner_reads_each_message_once(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Topics(tmp_path, topics)
    run.micro.max_rows_per_batch = 5
    for second in range(40):
        run.send("l", 0, second, 1)
        run.send("r", 0, second, 1)
    topics.reads.clear()
    for _ in range(16):
        assert run.step()
    planned = Counter((name, begin) for name, partition, begin, end in topics.reads if end - begin == 40)
    assert planned == {("l", 0): 1, ("r", 0): 1}


def test_batches_are_bounded_in_bytes_and_cut_by_time(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large messages make small batches, in which the other partitions and streams are not ahead."""
    monkeypatch.setattr(topic_feed, "MOST_BYTES", 2_000)
    monkeypatch.setattr(topic_feed, "_LEAST_OFFSETS", 2)
    run = Topics(tmp_path, topics)
    for second in range(30):
        run.send("l", 0, second, 1)
        row = {"ts": START_US + second * 1_000_000, "x": 1}
        text = json.dumps({**row, "rest": "x" * (5_000 if second == 7 else 300)}).encode()
        run.sent("l", 1, text, row)
        run.send("r", 0, second, 1)
    while run.step():
        seqs = [position["seq"] for position in run.offsets[-1]["streams"].values()]
        assert seqs[0] <= 2 * (seqs[1] + 1) + 1
        assert seqs[1] <= seqs[0] / 2 + 2
    assert 15 <= len(run.offsets) <= 17  # two large messages fit into half of the bytes
    run.finish()


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"partition_by": "file"}, "partition_by"),
        ({"format": "csv"}, "format"),
        ({"on_bad_file": "quarantine"}, "on_bad_file"),
    ],
)
def test_what_a_topic_cannot_have_is_refused_by_name(facts: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("l", "kafka://b/t?format=json", **facts)
    assert caught.value.name == name


@pytest.mark.parametrize(
    "change",
    [
        lambda at: {**at, "offset": -1},
        lambda at: {**at, "topic": "a b"},
        lambda at: {**at, "epoch": 1 << 31},
        lambda at: {**at, "seq": at["offset"] + 1},
        lambda at: {**at, "first": at["offset"] + 1},
        lambda at: {name: at[name] for name in at if name != "first"},
        lambda at: {**at, "within": 1},  # of a message that is one record
        lambda _: [],
    ],
)
def test_a_position_that_was_edited_is_refused(topics: type[FakeTopic], change: Callable[[Any], Any]) -> None:
    stream = Stream("l", "kafka://b/l?format=json", schema=SCHEMA)
    feed = TopicFeed(stream, SCHEMA, 0, TopicPlan(topics(stream_url(stream))))  # type: ignore[arg-type]
    position = KafkaPosition(3, 10, 2, START_US, "Zi/x+A", 4)
    assert KafkaPosition.from_facts(json.loads(json.dumps(position.to_facts())), "e") == position
    old = KafkaPosition(3, 10, 2, START_US, "Zi/x+A")
    assert sorted(old.to_facts()) == ["first", "offset", "seq", "time", "topic"]  # as before there were epochs
    assert KafkaPosition.from_facts(old.to_facts(), "e") == old
    assert feed.position(position.to_facts()) == position
    with pytest.raises(OffsetError):
        feed.position(change(position.to_facts()))


def test_a_planned_range_that_was_written_anew_is_refused(topics: type[FakeTopic]) -> None:
    topics.logs = {"l": [Log()]}
    log = topics.logs["l"][0]
    for number in range(8):
        log.append(json.dumps({"ts": number, "x": number}).encode())
    stream = Stream("l", "kafka://b/l?format=json", schema=SCHEMA)
    plan = TopicPlan(topics(stream_url(stream)))  # type: ignore[arg-type]
    plan.ask()
    feed = TopicFeed(stream, SCHEMA, 0, plan)
    start = KafkaPosition(topic="id")
    middle, end = [feed.advance(start, rows) for rows in (4, feed.frontier(start, 100).rows)]
    assert (middle.epoch, end.epoch, end.seq) == (0, 0, 8)
    log.cut(6)
    for number in range(6, 10):
        log.append(json.dumps({"ts": number, "x": -number}).encode())
    assert sum(chunk.count for chunk in feed.read(start, middle)) == 4
    # As many messages lie there as were planned, and they are others.
    with pytest.raises(KafkaTopicChangedError, match="other messages before offset 8"):
        list(feed.read(middle, end))
    assert sum(chunk.count for chunk in feed.read(middle, replace(end, epoch=-1))) == 4  # an old offset goes on


def test_a_partition_of_another_name_is_refused(topics: type[FakeTopic]) -> None:
    feed = open_feed(Stream("l", "kafka://b/l?format=json", schema=SCHEMA), SCHEMA)
    facts = {"seq": 1, "partitions": {"../0": {"number": 0, "at": KafkaPosition(1, 1).to_facts()}}}
    with pytest.raises(OffsetError):
        feed.position(facts)


@pytest.mark.slow
@examples(12)
@given(st.integers(0, 1 << 32))
def test_any_batches_growth_silence_poison_gaps_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Results, late tuples, punctuations and ledger are the oracle's, given the decisions in the offsets."""
    dice = random.Random(seed)
    facts = {"delay": dice.choice(("0s", "2s")), "idle_timeout": dice.choice((None, "3s", "7s"))}
    facts["max_ahead"] = dice.choice((None, "5s"))
    facts["records"] = dice.choice((None, "values"))
    window, layout = dice.choice(("6s", "every 2s for 4s")), dice.choice(("1x1", "1x2", "2x1", "2x2"))
    options = {"parts": str(dice.choice((1, 2, 5)))}
    with pytest.MonkeyPatch.context() as patch:
        topics = fake_topics(patch, l=dice.choice((1, 2, 4)), r=dice.choice((1, 3)))
        patch.setattr(FakeTopic, "batch", dice.choice((1, 3, 100)))
        patch.setattr(topic_feed, "MOST_BYTES", dice.choice((1, 300, 1 << 20)))
        patch.setattr(topic_feed, "_LEAST_OFFSETS", dice.choice((1, 5, 1000)))
        way = dice.choice(("reference", "packed"))
        run = Topics(tmp_path_factory.mktemp("topics"), topics, window, layout, way, options=options, **facts)
        run.micro.max_rows_per_batch = dice.choice((1, 3, 10, 1000))
        silent = {}
        for second in range(20):
            run.now_s = second
            for stream in ("l", "r"):
                for number, log in enumerate(topics.logs[stream]):
                    if dice.random() < 0.1:
                        silent[stream, number] = second + dice.choice((4, 9))
                    if second < silent.get((stream, number), 0):
                        continue
                    sent: list[tuple[float, int] | None] = []
                    for _ in range(dice.choice((0, 1, 2))):
                        time = second - dice.choice((0, 0, 1, 3))
                        time += 1_000 * (facts["max_ahead"] is not None and dice.random() < 0.1)
                        key = dice.randrange(3)
                        sent.append((time, key))
                        if not run.is_unfolded:
                            run.send(stream, number, time, key)
                    if run.is_unfolded and dice.random() < 0.7:
                        run.send_many(stream, number, sent + [None] * (dice.random() < 0.2))
                    if dice.random() < 0.05:
                        run.poison(stream, number)
                    log.end += dice.choice((0, 0, 0, 1, 5))  # markers, aborted messages
            if dice.random() < 0.05:
                topics.logs["l"].append(type(topics.logs["l"][0])())
            run.step()
            if dice.random() < 0.15:
                run.restart()
        run.now_s = 100
        run.finish()
