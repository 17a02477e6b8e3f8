"""Duplicates in streams of partitions: told in each partition alone, whatever the batches, workers and restarts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import KafkaDataLostError, OffsetError
from streamjoin_ds.plan.explanation import _join
from streamjoin_ds.source.kafka import topic_feed
from streamjoin_ds.source.partitioned_position import PartitionedPosition
from streamjoin_ds.source.repeats import kept_partitions
from streamjoin_ds.spec import Join, Stream, band, bind
from tests.stream.test_partitions import START_US, Devices
from tests.stream.test_topics import Topics
from tests.support.examples import examples
from tests.support.topics import FakeTopic, fake_topics


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    kept_partitions.clear()


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> type[FakeTopic]:
    return fake_topics(monkeypatch, l=2, r=1)


def counted(run: Any, what: str, stream: str = "l") -> int:
    """Return a sum of the ledger."""
    return sum(row[what] or 0 for row in run.micro.companion("ledger").to_pylist() if row["stream"] == stream)


@pytest.mark.parametrize("by", ["file", "folder"])
def test_copies_are_told_in_each_partition_alone(tmp_path: Path, by: str) -> None:
    run = Devices(tmp_path, by, unique="x", delay="5s")
    run.put("a", (0, 1), (1, 1), (2, 2))
    run.put("b", (0, 1), (1, 3))
    run.put("", (0, 1))
    assert run.step()
    kept_partitions.clear()
    run.put("a", (3, 1), (0, 2), (2, 9))
    run.put("b", (2, 2), (2, 3))
    assert run.step()
    assert counted(run, "duplicates") == 4
    assert counted(run, "late") == 0
    run.check(run.rows)


def test_a_copy_that_comes_late_is_a_duplicate_and_what_came_too_long_ago_is_none(tmp_path: Path) -> None:
    """The span is 20 s and the delay 1 s."""
    run = Devices(tmp_path, unique="x", delay="1s")
    run.put("a", (0, 1), (20, 2), (21, 1), (18, 2))
    run.put("", (0, 1), (30, 1))
    assert run.step()
    assert (counted(run, "duplicates"), counted(run, "late")) == (1, 0)
    run.check(run.rows)


def test_the_clock_is_that_of_the_partition(tmp_path: Path) -> None:
    """A record that is broken in another column tells its partition the time: what is older is not remembered."""
    found = []
    for rows, forgets in ((1, False), (1, True), (1000, False)):
        folder = tmp_path / f"{rows}-{forgets}"
        folder.mkdir()
        run = Devices(folder, unique="x", delay="1s")
        run.micro.max_rows_per_batch = rows
        lines = ((0, 1), (100, 7), (130, "no"), (101, 7), (131, 1), (130, 1))
        text = "".join(f"{START_US + s * 1_000_000},{x}\n" for s, x in lines)
        (folder / "l" / "a.csv").write_text(f"ts,x\n{text}")
        run.put("", (0, 1), (131, 1))
        while run.step():
            if forgets:
                kept_partitions.clear()
        found.append([counted(run, what) for what in ("duplicates", "late", "rejected", "stored")])
    assert found == [[1, 1, 1, 3]] * 3


def test_a_restart_reads_back_where_a_tuple_may_repeat_one_and_no_further_than_twice(
    tmp_path: Path, topics: type[FakeTopic]
) -> None:
    """The span is 4 s and the delay 1 s: of a record a second, some ten at most are read back, of one partition."""
    run = Topics(tmp_path, topics, "2s", unique="x", delay="1s")
    for begin in range(0, 60, 2):
        for second in (begin, begin + 1):
            run.send("l", 0, second, second)
            run.send("l", 1, second, second)
            run.send("r", 0, second, second)
        assert run.step()
    for second in (60, 61, 60, 61):
        kept_partitions.clear()
        topics.reads.clear()
        run.send("l", 0, second, second)  # near in time to those before it
        run.send("l", 1, second + 100, second)  # nothing before it is
        assert run.step()
        began = {partition: min(b for n, p, b, _ in topics.reads if (n, p) == ("l", partition)) for partition in (0, 1)}
        ends = [len(topics.logs["l"][partition].messages) for partition in (0, 1)]
        if second == 60 and ends[0] == 61:
            assert 5 <= ends[0] - began[0] <= 15
            assert began[1] == ends[1] - 1
    assert counted(run, "duplicates") == 4
    position = PartitionedPosition.from_facts(run.micro.offset["streams"]["l"], "l")
    assert all(1 <= len(at.waypoints) <= 2 for at in position.partitions.values())
    run.finish()


@pytest.mark.parametrize("query", ["", "&on_data_loss=skip"])
def test_a_partition_whose_records_are_gone_goes_on_unless_a_tuple_may_repeat_one_of_them(
    tmp_path: Path, topics: type[FakeTopic], query: str
) -> None:
    run = Topics(tmp_path, topics, "2s", query=query, unique="x", delay="1s")
    run.send("r", 0, 0, 1)
    for second in range(4):
        run.send("l", 0, second, second)
    assert run.step()
    topics.logs["l"][0].retain(4)
    run.send("l", 0, 1_000, 1)
    kept_partitions.clear()
    assert run.step()
    run.send("l", 0, 1_000, 1)  # what was kept of this one is enough
    assert run.step()
    assert counted(run, "duplicates") == 1
    topics.logs["l"][0].retain(6)
    run.send("l", 0, 1_001, 1)
    kept_partitions.clear()
    if query:
        assert run.step()
        assert counted(run, "duplicates") == 1
        return
    with pytest.raises(KafkaDataLostError, match="partition 0 of topic l are gone whose keys still count"):
        run.step()


def test_a_plan_says_that_copies_are_told_in_a_partition() -> None:
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    streams = [
        Stream("l", "kafka://b/l?format=json", schema=schema, unique="x"),
        Stream("r", schema=schema, unique="x"),
    ]
    text = "\n".join(_join(bind(Join(streams, [band("l.x", "r.x", 1)], "5s"), dict.fromkeys("lr", schema))))
    assert "unique      l: one tuple of a partition for each x within 10s; the others are duplicates" in text
    assert "unique      r: one tuple for each x within 10s; the others are duplicates" in text


def test_waypoints_that_were_edited_are_refused(tmp_path: Path) -> None:
    run = Devices(tmp_path, unique="x")
    for second in (0, 20, 40):
        run.put("a", (second, 1))
        assert run.step()
    facts = run.micro.offset["streams"]["l"]
    position = PartitionedPosition.from_facts(facts, "l")
    assert position.partitions["a.csv"].waypoints
    assert position.to_facts() == facts
    facts["partitions"]["a.csv"]["waypoints"] = [[1]]
    with pytest.raises(OffsetError, match="waypoints"):
        PartitionedPosition.from_facts(facts, "l")


@pytest.mark.slow
@examples(24)
@given(st.integers(0, 1 << 32))
def test_batches_layouts_workers_and_restarts_change_no_row(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Results, late tuples and counts are the oracle's; a worker that forgets is a new one."""
    dice = random.Random(seed)
    facts: dict[str, Any] = {"unique": dice.choice(("x", "ts,x")), "delay": dice.choice(("0s", "2s"))}
    facts["idle_timeout"] = dice.choice((None, "4s"))
    facts["where"] = dice.choice((None, "x < 2"))
    layout, window = dice.choice(("1x1", "1x2", "2x1")), dice.choice(("1s", "3s", "every 2s for 4s"))
    by = dice.choice(("file", "folder", "topic"))
    is_unfolded = by == "topic" and dice.random() < 0.5
    facts |= {"records": "values"} if is_unfolded else {}
    names = [f"{number}" for number in range(dice.choice((1, 2, 4)))]
    folder = tmp_path_factory.mktemp("repeats")
    kept_partitions.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_feed, "_LEAST_OFFSETS", dice.choice((1, 1000)))
        topics = fake_topics(patch, l=len(names), r=1)
        run: Any = (
            Topics(folder, topics, window, layout, **facts)
            if by == "topic"
            else Devices(folder, by, window, layout, **facts)
        )
        run.micro.max_rows_per_batch = dice.choice((1, 3, 10, 1000))
        sent: dict[str, list[tuple[float, int]]] = {name: [] for name in [*names, ""]}
        silent_until = dict.fromkeys(names, 0)
        for second in range(16):
            run.now_s = second
            for name, rows in sent.items():
                if dice.random() < 0.1:
                    silent_until[name] = second + dice.choice((3, 6))
                if second < silent_until.get(name, 0):
                    continue
                place = "l" if name else "r", int(name or 0)
                count = len(rows)
                for _ in range(dice.choice((0, 1, 2))):
                    again = rows and dice.random() < 0.3
                    row = dice.choice(rows[-6:]) if again else (second - dice.choice((0, 0, 1, 3)), dice.randrange(3))
                    rows.append(row)
                    if by != "topic":
                        run.put(name, row)
                    elif not is_unfolded:
                        run.send(*place, *row)
                if is_unfolded:
                    run.send_many(*place, rows[count:])
            run.step()
            if dice.random() < 0.3:
                kept_partitions.clear()
            if dice.random() < 0.15:
                run.restart()
        run.now_s = 100
        while run.step():
            if dice.random() < 0.3:
                kept_partitions.clear()
        run.check(run.rows, run.places if by == "topic" and not is_unfolded else None)


def test_a_task_that_is_tried_again_gives_the_same_rows(tmp_path: Path, topics: type[FakeTopic]) -> None:
    run = Topics(tmp_path, topics, unique="x")
    for second in range(5):
        run.send("l", 0, second, second % 2)
        run.send("r", 0, second, 1)
    assert run.step()
    start = run.micro.offset
    for second in range(5):
        run.send("l", 0, 5 + second, second % 3)
    run.send("r", 0, 10, 1)
    end = run.micro.reader.latestOffset(start, run.micro.reader.getDefaultReadLimit())
    found = []
    for _ in range(3):
        rows = run.micro.exchanged(start, end)
        found.append(Counter((row.kind, row.stream, row.rows, row.duplicates) for row in rows))
    assert found[0] == found[1] == found[2]
    assert sum(row.duplicates for row in rows if row.stream == 0) == 4
