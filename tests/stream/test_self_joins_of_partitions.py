"""Two streams over one topic, or one folder of partitions: a record has one number in both, and never meets itself."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.kafka import topic_feed
from streamjoin_ds.source.kafka.topic_feed import stream_url
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.support.examples import examples
from tests.support.microbatch import MicroBatches
from tests.support.partitioned import Partitioned
from tests.support.topics import FakeTopic, Log, fake_topics

START_US = 1_704_067_200_000_000
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])


class Twice(Partitioned):
    """Streams `a` and `b` are one topic, or one folder of files; a test writes what it holds."""

    def __init__(
        self, folder: Path, topics: type[FakeTopic] | None = None, layout: str = "1x1", query: str = "", **facts: Any
    ) -> None:
        self.topics, self.folder = topics, folder / "input"
        self.folder.mkdir()
        source = self.folder if topics is None else f"kafka://broker/t?format=json{query}"
        by = {"partition_by": "file"} if topics is None else {}
        delays = facts.pop("delays", ("0s", "0s"))
        streams = [
            Stream(name, source, schema=SCHEMA, delay=delay, **by, **facts)
            for name, delay in zip("ab", delays, strict=True)
        ]
        join = Join(streams, [band("a.x", "b.x", 1)], "5s")
        bound = bind(join, dict.fromkeys(join.names, SCHEMA))
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.places: dict[str, list[int]] = {}
        super().__init__(join, MicroBatches(bound, folder, Layout.parse(layout, 2), "packed"))

    def put(self, partition: int, second: float, x: int) -> None:
        """Write a record."""
        row = {"ts": START_US + int(second * 1_000_000), "x": x}
        name = f"{partition}.csv" if self.topics is None else f"{partition}"
        if self.topics is None:
            path = self.folder / name
            with path.open("a") as file:
                file.write(("" if path.stat().st_size else "ts,x\n") + f"{row['ts']},{x}\n")
            place = len(self.rows.get(name, ()))
        else:
            place = self.topics.logs["t"][partition].append(json.dumps(row).encode())
        self.rows.setdefault(name, []).append(row)
        self.places.setdefault(name, []).append(place)

    def finish(self) -> None:
        """Take in all that is there, and compare with the oracle."""
        while self.step():
            pass
        for offset in self.offsets:
            numbers = [
                {name: at["number"] for name, at in offset["streams"][stream]["partitions"].items()} for stream in "ab"
            ]
            assert numbers[0] == numbers[1]
        self.check(dict.fromkeys("ab", self.rows), dict.fromkeys("ab", self.places))


def test_a_record_meets_the_others_and_never_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for topics in (None, fake_topics(monkeypatch, t=2)):
        folder = tmp_path / ("folder" if topics is None else "topic")
        folder.mkdir()
        run = Twice(folder, topics)
        for second in range(4):
            run.put(0, second, 1)
            run.put(1, second, 1)
        run.finish()
        assert run.micro.matches().num_rows == 8 * 7


def test_a_partition_that_comes_between_the_two_looks_has_one_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two come, one of them between two looks. As names are sorted, the later one would be the first in one look."""
    run = Twice(tmp_path)
    run.put(5, 0, 1)
    assert run.step()
    run.put(7, 1, 1)
    frontier = type(run.micro.reader.planner._tasks.feeds[0]).frontier
    looked: list[object] = []

    def comes(feed: Any, *asked: Any) -> Any:
        looked.append(feed)
        if len(looked) == 2:
            run.put(6, 1, 1)
        return frontier(feed, *asked)

    monkeypatch.setattr(type(run.micro.reader.planner._tasks.feeds[0]), "frontier", comes)
    assert run.step()
    run.finish()


def test_the_two_begin_at_the_same_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = fake_topics(monkeypatch, t=1)
    run = Twice(tmp_path, topics, query="&start=latest")
    run.put(0, 0, 1)
    run.rows, run.places = {}, {}
    ends, asked = FakeTopic.end_offsets, []

    def growing(topic: FakeTopic, partitions: Any) -> Any:
        asked.append(partitions)
        found = ends(topic, partitions)
        run.put(0, len(asked), 1)
        return found

    monkeypatch.setattr(FakeTopic, "end_offsets", growing)
    while not run.step():  # the end was asked before the beginning, and there is a message between them
        pass
    monkeypatch.setattr(FakeTopic, "end_offsets", ends)
    at = [run.micro.offset["streams"][name]["partitions"]["0"]["at"] for name in "ab"]
    assert at[0]["first"] == at[1]["first"]
    first = at[0]["first"]
    kept = [(row, place) for row, place in zip(run.rows["0"], run.places["0"], strict=True) if place >= first]
    run.rows["0"], run.places["0"] = [row for row, _ in kept], [place for _, place in kept]
    run.finish()


@pytest.mark.slow
@examples(15)
@given(st.integers(0, 1 << 32))
def test_any_batches_growth_new_partitions_and_restarts(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    dice = random.Random(seed)
    delays = dice.choice(("0s", "2s")), dice.choice(("0s", "2s"))
    facts = {"idle_timeout": dice.choice((None, "3s")), "delays": delays}
    with pytest.MonkeyPatch.context() as patch:
        topics = fake_topics(patch, t=2) if dice.random() < 0.5 else None
        patch.setattr(topic_feed, "_LEAST_OFFSETS", dice.choice((1, 1000)))
        folder = tmp_path_factory.mktemp("twice")
        run = Twice(folder, topics, dice.choice(("1x1", "1x2", "2x1")), **facts)
        run.micro.max_rows_per_batch = dice.choice((1, 3, 10, 1000))
        there = [8, 4]
        for second in range(12):
            run.now_s = second
            if topics is not None:
                there = list(range(len(topics.logs["t"])))
            for partition in there:
                for _ in range(dice.choice((0, 0, 1, 2))):
                    run.put(partition, second - dice.choice((0, 0, 1, 3)), dice.randrange(3))
            if dice.random() < 0.2 and len(there) < 5:
                if topics is None:
                    there.append(dice.choice([n for n in range(10) if n not in there]))
                else:
                    topics.logs["t"].append(Log())
            run.step()
            if dice.random() < 0.2:
                run.restart()
        run.now_s = 100
        run.finish()


def test_a_wrong_url_is_told_by_what_is_wrong_with_it() -> None:
    streams = [Stream(name, "kafka://broker/t?format=jsom", schema=SCHEMA) for name in "ab"]
    with pytest.raises(ArgumentError, match="format"):
        stream_url(Join(streams, "abs(a.x - b.x) <= 1", "5s").streams[0])


@pytest.mark.parametrize(
    ("option", "one", "other"),
    [
        ("partition_by", None, "file"),
        ("partition_by", "folder", "file"),
        ("sub_folders", "skip", "read"),
        ("file_order", "name", "modified"),
    ],
)
def test_an_input_is_read_in_one_way(option: str, one: Any, other: Any) -> None:
    streams = [Stream(name, "data/", **{option: value}) for name, value in (("a", one), ("b", other))]
    with pytest.raises(ArgumentError, match="is read twice, with another") as caught:
        Join(streams, "abs(a.x - b.x) <= 1", "1s")
    assert caught.value.name == option
    Join(streams, "abs(a.x - b.x) <= 1", "1s", include_self_pairs=True)
