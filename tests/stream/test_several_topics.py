"""Several topics as one stream: lists, patterns, topics that come, where each begins, and a group that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError, KafkaTopicChangedError, OffsetError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.support.microbatch import MicroBatches
from tests.support.partitioned import Partitioned
from tests.support.topics import FakeTopic, Log, fake_topics

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("kafka_topic", pa.string())])


class Several(Partitioned):
    """Stream `l` is what a URL's place names, stream `r` a topic."""

    def __init__(self, folder: Path, topics: type[FakeTopic], place: str, query: str = "", **facts: Any) -> None:
        self.topics = topics
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {"l": {}, "r": {}}
        left = Stream("l", f"kafka://broker/{place}?format=json{query}", schema=SCHEMA, **facts)
        right = Stream("r", "kafka://broker/other?format=json", schema=SCHEMA)
        join = Join([left, right], [band("l.x", "r.x", 1)], "10s", select=["l.x", "l.kafka_topic", "r.x"])
        bound = bind(join, dict.fromkeys(join.names, SCHEMA))
        super().__init__(join, MicroBatches(bound, folder, Layout.parse("1x2", 2)))

    def send(self, topic: str, partition: int, second: float, x: int = 1) -> None:
        row = {"ts": START_US + int(second * 1_000_000), "x": x}
        self.topics.logs[topic][partition].append(json.dumps(row).encode())
        stream, name = ("r", str(partition)) if topic == "other" else ("l", f"{topic}/{partition}")
        self.rows[stream].setdefault(name, []).append({**row, "kafka_topic": topic})


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> type[FakeTopic]:
    return fake_topics(monkeypatch, **{"sensors-a": 2, "sensors-b": 1, "other": 1, "__offsets": 1})


@pytest.mark.parametrize("place", ["sensors-a,sensors-b", "~sensors-.*", "~sensors-[ab]%3F"])
def test_several_topics_are_one_stream(tmp_path: Path, topics: type[FakeTopic], place: str) -> None:
    run = Several(tmp_path, topics, place, partition_by=None)
    for second in (0, 100, 99):
        run.send("sensors-a", 1, second)
    run.send("sensors-a", 0, 3)
    run.send("sensors-b", 0, 1)
    for second in (0, 100):
        run.send("other", 0, second)
    assert run.step()
    assert [row["seq"] for row in run.micro.companion("late").to_pylist()] == [(1 << 40) + 2]
    assert {row["l_kafka_topic"] for row in run.micro.matches().to_pylist()} == {"sensors-a", "sensors-b"}
    assert [*run.micro.offset["streams"]["l"]["partitions"]] == ["sensors-a/0", "sensors-a/1", "sensors-b/0"]
    run.check(run.rows)


def test_a_topic_that_comes_and_matches_joins_from_its_first_message(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Several(tmp_path, topics, "~sensors-.*", "&start=latest")
    topics.logs["sensors-a"][0].append(b"not read")
    run.send("other", 0, 100)
    assert run.step()
    topics.logs["sensors-c"] = [Log()]
    run.send("sensors-c", 0, 100)
    run.send("sensors-a", 0, 100)
    assert run.step()
    run.restart()
    run.send("sensors-c", 0, 101)
    assert run.step()
    assert {row["l_kafka_topic"] for row in run.micro.matches().to_pylist()} == {"sensors-a", "sensors-c"}
    at = run.micro.offset["streams"]["l"]["partitions"]
    assert (at["sensors-c/0"]["at"]["seq"], at["sensors-a/0"]["at"]["first"]) == (2, 1)


def test_a_topic_that_vanishes_is_missed_by_name(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Several(tmp_path, topics, "~sensors-.*")
    run.send("sensors-b", 0, 1)
    run.send("other", 0, 1)
    assert run.step()
    topics.logs["sensors-b"] = []
    run.restart()
    run.send("sensors-a", 0, 2)
    with pytest.raises(KafkaTopicChangedError, match="sensors-b"):
        run.step()


def test_a_stream_begins_in_each_partition_where_start_says(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Several(tmp_path, topics, "sensors-a,sensors-b", "&start=sensors-a/1:2,sensors-b/0:1")
    for topic, partition in (("sensors-a", 0), ("sensors-a", 1), ("sensors-b", 0)):
        for second in range(3):
            run.send(topic, partition, second)
    run.send("other", 0, 1)
    assert run.step()
    at = run.micro.offset["streams"]["l"]["partitions"]
    assert {name: one["at"]["seq"] for name, one in at.items()} == {
        "sensors-a/0": 3,
        "sensors-a/1": 1,
        "sensors-b/0": 2,
    }


def test_a_group_is_told_what_is_committed(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Several(tmp_path, topics, "sensors-a,sensors-b", "&group=board", partition_by="kafka_topic")
    run.send("sensors-a", 1, 0)
    run.send("other", 0, 1)
    assert run.step()
    assert topics.told == [("board", {("sensors-a", 0): 0, ("sensors-a", 1): 1, ("sensors-b", 0): 0})]


def test_columns_of_several_topics_have_their_name(topics: type[FakeTopic]) -> None:
    topics.logs["sensors-b"][0].append(b'{"ts": 1, "x": 2}')
    found = infer_schema(Stream("e", "kafka://broker/~sensors-.*?format=json"))
    assert found.field("kafka_topic").type == pa.string()
    topics.logs["other"][0].append(b'{"ts": 1, "x": 2}')
    assert "kafka_topic" not in infer_schema(Stream("e", "kafka://broker/other?format=json")).names


def test_partitions_that_the_url_does_not_name_are_no_offset(topics: type[FakeTopic]) -> None:
    for place, name in (("sensors-a", "sensors-a/0"), ("sensors-a,sensors-b", "0"), ("~s.*", "a//0"), ("~s.*", "s/01")):
        feed = open_feed(Stream("l", f"kafka://broker/{place}?format=json", schema=SCHEMA), SCHEMA)
        with pytest.raises(OffsetError, match="partitions"):
            feed.position({"seq": 0, "partitions": {name: {"number": 0, "at": {}}}})


@pytest.mark.parametrize("place", ["a,", "a,a", "a b", "~", "~(", "a,~b"])
def test_what_names_no_topics_is_refused_by_name(place: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        infer_schema(Stream("e", f"kafka://broker/{place}?format=json", schema=SCHEMA))
    assert caught.value.name == "topic"
