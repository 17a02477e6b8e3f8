"""Reading from librdkafka's mock cluster, which speaks Kafka's protocol; by each source of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from streamjoin_ds.errors import KafkaDataLostError, KafkaTopicChangedError
from streamjoin_ds.source.kafka.broker import Broker, TopicFacts
from streamjoin_ds.source.kafka.range_read import LostRange
from streamjoin_ds.source.kafka.topic import KafkaTopic
from streamjoin_ds.source.kafka.topic_feed import TopicFeed, TopicPlan, stream_url
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.event_time import AheadLimit
from tests.source.kafka.sources import SOURCES, MakeSource, table_of, topic_of
from tests.support.kafka import mock_cluster, produce

pytest.importorskip("confluent_kafka")

# The event time is the message's own, so any value is a record.
COLUMNS = pa.schema([("kafka_timestamp", pa.timestamp("us", tz="UTC")), ("x", pa.binary())])


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with mock_cluster("plain", "mixed", "empty", "large", "lost", "clocks1800000000", "clocks3600000000") as servers:
        produce(servers, "plain", [b"%d" % number for number in range(20_000)])
        yield servers


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def source(request: pytest.FixtureRequest) -> MakeSource:
    made: MakeSource = request.param
    return made


def test_offsets_are_told_by_partition(servers: str) -> None:
    with topic_of(servers, "plain") as topic:
        assert topic.first_offsets([0, 1]) == {0: 0, 1: 0}
        assert topic.end_offsets([1, 0]) == {0: 20_000, 1: 0}


@pytest.mark.parametrize("cuts", [[0, 20_000], [0, 1, 2, 9_999, 10_000, 20_000], [5, 15, 12_345]])
def test_any_cut_gives_each_message_once(servers: str, source: MakeSource, cuts: list[int]) -> None:
    with topic_of(servers, "plain", source) as topic:
        parts = [table_of(topic, 0, begin, end) for begin, end in pairwise(cuts)]
    offsets = pa.concat_tables(parts).column("offset").to_pylist()
    assert offsets == list(range(cuts[0], cuts[-1]))
    assert pa.concat_tables(parts).column("value").to_pylist() == [b"%d" % offset for offset in offsets]


def test_a_reader_may_go_back_and_ahead(servers: str, source: MakeSource) -> None:
    with topic_of(servers, "plain", source) as topic:
        for begin, end in [(100, 200), (50, 120), (19_990, 20_000), (0, 3)]:
            assert table_of(topic, 0, begin, end).column("offset").to_pylist() == list(range(begin, end))


def test_null_is_not_empty(servers: str, source: MakeSource) -> None:
    begin = topic_of(servers, "mixed").end_offsets([2])[2]
    sent = [(b"k", b"v"), (None, b""), (b"", None), (None, None), (b"\0\xff", b"\n\0{")]
    for at, (key, value) in enumerate(sent):
        produce(servers, "mixed", [value], key=key, partition=2, timestamp=1_700_000_000_123 + at)
    with topic_of(servers, "mixed", source) as topic:
        table = table_of(topic, 2, begin, begin + len(sent))
    assert table.column("key").to_pylist() == [key for key, _ in sent]
    assert table.column("value").to_pylist() == [value for _, value in sent]
    assert table.column("timestamp_us").to_pylist() == [1_700_000_000_123_000 + at * 1000 for at in range(len(sent))]
    assert set(table.column("timestamp_type").to_pylist()) == {"create"}


def test_headers_come_as_asked(servers: str, source: MakeSource) -> None:
    begin = topic_of(servers, "mixed").end_offsets([3])[3]
    for headers in ([("a", b"1"), ("b", b"2"), ("a", b"3")], [("b", b"")], None, [("a", None)]):
        produce(servers, "mixed", [b"x"], partition=3, **({} if headers is None else {"headers": headers}))
    with topic_of(servers, "mixed", source, headers=["a", "b"]) as topic:
        table = table_of(topic, 3, begin, begin + 4)
    assert table.column("header_a").to_pylist() == [b"3", None, None, None]
    assert table.column("header_b").to_pylist() == [b"2", b"", None, None]


def test_large_and_small_messages_stand_side_by_side(servers: str, source: MakeSource) -> None:
    sent = [bytes([number]) * size for number, size in enumerate((1, 900_000, 0, 3, 700_000, 700_000, 2))]
    begin = topic_of(servers, "large").end_offsets([0])[0]
    produce(servers, "large", list(sent))
    with topic_of(servers, "large", source) as topic:
        assert table_of(topic, 0, begin, begin + len(sent)).column("value").to_pylist() == sent


def test_what_retention_took_is_an_error_or_is_counted(
    servers: str, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = topic_of(servers, "lost").end_offsets([0])[0]
    for number in range(9):  # the mock cluster keeps 5 MiB of a partition
        produce(servers, "lost", [b"%d" % number * 900_000])
    begin, end = before + 1, before + 9
    with topic_of(servers, "lost", source) as topic:
        first = topic.first_offsets([0])[0]
        assert begin + 1 < first < end
        with pytest.raises(KafkaDataLostError, match=f"offsets {begin} to {first - 1}"):
            table_of(topic, 0, begin, end)
    with topic_of(servers, "lost", source, on_data_loss="skip") as topic:
        asked = topic.read(0, begin, end)
        assert [offset for batch in asked for offset in batch.column("offset").to_pylist()] == list(range(first, end))
        assert asked.lost == [LostRange(0, begin, first)]
    facts = TopicFacts("", (0,))
    monkeypatch.setattr(Broker, "topic", lambda broker, name: facts)  # the mock cluster knows no ids
    url = f"kafka://{servers}/lost?format=raw&on_data_loss=skip"
    stream = Stream("l", url, time="kafka_timestamp", schema=COLUMNS)
    feed = TopicFeed(stream, COLUMNS, 0, TopicPlan(KafkaTopic(stream_url(stream), source), facts, {0: end}))
    start = KafkaPosition(0, begin)
    position = feed.advance(start, feed.frontier(start, 100).rows)
    chunks = list(feed.read(start, position))
    assert (position.seq, position.offset) == (1 + end - first, end)
    assert sum(chunk.lost_offsets for chunk in chunks) == first - begin
    assert [reject.line for chunk in chunks for reject in chunk.rejects] == [begin]


def test_leader_epochs_are_told_and_compared(servers: str, source: MakeSource) -> None:
    with topic_of(servers, "plain", source) as topic:
        asked = topic.read(0, 10, 20, epoch=0)
        assert sum(map(len, asked)) == 10
        assert asked.epoch == 0
        # The leader has no such epoch before that offset: it has another log than the one that was read.
        with pytest.raises(KafkaTopicChangedError, match="holds other messages before offset 100"):
            list(topic.read(0, 100, 120, epoch=7))


def test_an_empty_partition_gives_an_empty_range(servers: str, source: MakeSource) -> None:
    with topic_of(servers, "empty", source) as topic:
        assert table_of(topic, 0, 0, 0).num_rows == 0


@pytest.mark.parametrize("step_us", [1_800_000_000, 3_600_000_000])
def test_local_times_go_by_the_order_of_their_partition_wherever_a_batch_is_cut(
    servers: str, source: MakeSource, monkeypatch: pytest.MonkeyPatch, step_us: int
) -> None:
    """The clock of Berlin shows 02:00 to 03:00 twice; a record that is broken in another column has its time too."""
    right = [1_729_983_600_000_000 + place // 2 * step_us for place in range(12)]  # two devices
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    at_utc = [epoch + timedelta(microseconds=ts) for ts in right]
    clock = [f"{at.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%d %H:%M:%S}" for at in at_utc]
    assert len(set(clock)) < len(set(right))
    facts = TopicFacts("", (0,))
    monkeypatch.setattr(Broker, "topic", lambda broker, name: facts)
    rows = [{"at": at, "x": "no number" if place == 5 else 1.0} for place, at in enumerate(["-", *clock])]
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    stream = Stream(
        "l", f"kafka://{servers}/clocks{step_us}?format=json", time="at", schema=schema, timezone="Europe/Berlin"
    )
    topic = KafkaTopic(stream_url(stream), source)
    begin = topic.end_offsets([0])[0]
    produce(servers, f"clocks{step_us}", [json.dumps(row).encode() for row in rows])
    for limit, cut in product((None, AheadLimit(3_600_000_000)), range(2, 12)):
        found: list[int] = []
        plan = TopicPlan(topic, facts, {0: begin + len(rows)})
        feed, at = TopicFeed(stream, schema, 0, plan), KafkaPosition(0, begin, begin)
        for count in (cut, 100):
            there = feed.frontier(at, count, limit)
            end = feed.advance(at, there.rows)
            chunks = list(TopicFeed(stream, schema, 0, plan).read(at, end, limit))
            found += [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
            assert end.time == max(ts for ts in right if ts <= end.time) == there.running_max[there.rows - 1]
            at = end
        assert found == [ts for place, ts in enumerate(right) if place != 4]
