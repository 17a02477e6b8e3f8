"""The backlog: what a source knew and left for later, in offset, metrics and log, and as people are shown it."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from streamjoin_ds.cli.display import Display, backlog_text
from streamjoin_ds.errors import OffsetError
from streamjoin_ds.plan import Layout
from streamjoin_ds.source.batch_plan import BatchPlan
from streamjoin_ds.source.feed import LIMITS, Backlog, BacklogFacts
from streamjoin_ds.source.kafka import topic_feed
from streamjoin_ds.spec import Join, Stream, band, bind
from streamjoin_ds.stream.commit import BatchSummary
from streamjoin_ds.stream.query_log import TOLD_BATCHES, BacklogLog
from tests.stream.test_topics import Topics
from tests.support.microbatch import MicroBatches
from tests.support.topics import FakeTopic, fake_topics

BACKLOG = ("backlog_rows", "backlog_bytes", "backlog_us", "limited_by", "backlog")


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> type[FakeTopic]:
    return fake_topics(monkeypatch, l=2, r=1)


def metrics(run: MicroBatches) -> list[tuple[Any, ...]]:
    """Return the columns of the backlog, batch by batch; every cell has the same."""
    rows = run.companion("metrics").sort_by("batch_id").to_pylist()
    assert len({(row["batch_id"], *(row[name] for name in BACKLOG)) for row in rows}) == rows[-1]["batch_id"] + 1
    return [tuple(row[name] for name in BACKLOG) for row in rows if row["cell"] == 0]


def test_a_topics_backlog_goes_up_to_the_end_though_the_planner_has_not_looked_so_far(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_feed, "_LEAST_OFFSETS", 4)
    run = Topics(tmp_path, topics, delay="2s")
    run.micro.max_rows_per_batch = 30
    for second in range(100):
        run.send("l", 0, second, 1)
        run.send("r", 0, second, 2)
    topics.logs["l"][0].end += 5  # a marker, and a transaction that was aborted
    run.send("l", 1, 40, 1)
    assert run.step()
    end = run.micro.offset["backlog"]
    assert run.micro.offset["version"] == 11  # 8, but that its blocks are of another size than usual
    assert end["limited_by"] == "max_rows_per_batch"
    read = run.micro.offset["streams"]["l"]["partitions"]["0"]["at"]["seq"]
    of_l = end["streams"]["l"]
    assert of_l["partitions"] == {"0": {"rows": 105 - read, "us": (100 - read) * 1_000_000}, "1": {"rows": 1}}
    assert of_l["rows"] == 106 - read
    run.finish()
    rows = metrics(run.micro)
    assert rows[0][:4] == (of_l["rows"] + end["streams"]["r"]["rows"], None, of_l["us"], "max_rows_per_batch")
    assert json.loads(rows[0][4]) == end["streams"]
    assert rows[-1] == (0, None, None, None, None), "what holds no message is no backlog once it was looked at"


def test_a_broken_clock_makes_no_backlog_of_thousands_of_years(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_feed, "_LEAST_OFFSETS", 4)
    run = Topics(tmp_path, topics, max_ahead="1h")
    run.micro.max_rows_per_batch = 30
    for second in range(100):
        run.send("l", 0, second, 1)
        run.send("r", 0, second, 2)
        if second == 90:
            run.send("l", 0, 251_000_000_000, 1)
    assert run.step()
    assert run.micro.offset["backlog"]["streams"]["l"]["us"] < 100_000_000
    run.finish()


def test_the_newest_messages_are_asked_now_and_then(
    tmp_path: Path, topics: type[FakeTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    newest = FakeTopic.newest
    monkeypatch.setattr(FakeTopic, "newest", lambda self, *at: asked.append(at[0]) or newest(self, *at))
    monkeypatch.setattr(topic_feed, "_LEAST_OFFSETS", 4)
    run = Topics(tmp_path, topics)
    run.micro.max_rows_per_batch = 4
    for second in range(100):
        run.send("l", 0, second, 1)
        run.send("r", 0, second, 2)
    for _ in range(10):
        assert run.step()
    assert len(asked) == 2  # once for each partition with messages that were not looked at


def test_a_folders_backlog_is_told_in_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "l"
    folder.mkdir()
    for number in range(4):
        lines = "".join(f'{{"ts": {100 * number + second}, "x": 1}}\n' for second in range(10, 20))
        (folder / f"{number}.json").write_text(lines)
    size = (folder / "3.json").stat().st_size
    (tmp_path / "r.json").write_text('{"ts": 10, "x": 1}\n{"ts": 1')
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    sources = {"l": str(folder), "r": str(tmp_path / "r.json")}
    streams = [Stream(name, path, time_unit="s", schema=schema) for name, path in sources.items()]
    join = Join(streams, [band("l.x", "r.x", 1)], "10s")
    bound = bind(join, dict.fromkeys(join.names, schema))
    run = MicroBatches(bound, tmp_path / "out", Layout.parse("1x1", 2), "reference", options={})
    run.max_rows_per_batch = 11
    while run.step():
        pass
    rows = metrics(run)
    # The first batch holds the first file, and the line of the other stream; nobody looks further than 11 records.
    assert [row[0] for row in rows] == [1, 0, 0, 0]
    assert [row[1] for row in rows] == [3 * size, size + 9 * size // 10, 8 * size // 10, None]
    assert {row[3] for row in rows[:-1]} == {"max_rows_per_batch"}
    assert rows[-1] == (0, None, None, None, None)


def test_a_replay_of_an_older_offset_has_no_backlog() -> None:
    offset = {"version": 1, "streams": {"l": {"seq": 7}}}
    planned = BatchPlan.from_offset(offset, ["l"])
    assert planned.backlog == BacklogFacts()
    assert planned.to_offset() == offset


def test_there_and_back() -> None:
    own = Backlog(5, None, 7, {"0": Backlog(3), "1": Backlog(2, None, 7)})
    facts = BacklogFacts({"l": own, "r": Backlog(0, 12)}, LIMITS[0])
    planned = BatchPlan(("l", "r"), ({"seq": 1},) * 2, backlog=facts)
    assert BatchPlan.from_offset(json.loads(json.dumps(planned.to_offset())), ["l", "r"]) == planned
    assert facts.total == Backlog(5, 12, 7)


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {"more": 1},
        {"streams": []},
        {"streams": {"z": {"rows": 1}}},
        {"streams": {"l": {}}},
        {"streams": {"l": {"rows": -1}}},
        {"streams": {"l": {"rows": True}}},
        {"streams": {"l": {"rows": 1, "partitions": {"0": 1}}}},
        {"limited_by": "weather"},
    ],
)
def test_hostile_facts_are_refused_by_name(facts: object) -> None:
    with pytest.raises(OffsetError):
        BatchPlan.from_offset({"version": 8, "streams": {"l": {"seq": 1}}, "backlog": facts}, ["l"])


def told(caplog: pytest.LogCaptureFixture, *rows: int) -> list[str]:
    log = BacklogLog()
    with caplog.at_level(logging.WARNING, "streamjoin_ds.stream.query_log"):
        for count in rows:
            streams = {"l": Backlog(count, None, 3_200_000)} if count else {}
            log.tell(BacklogFacts(streams, "max_rows_per_batch"), 100)
    return [record.getMessage() for record in caplog.records]


def test_a_join_that_falls_behind_is_told_once_and_once_that_it_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    grows = range(200, 200 + 30 * TOLD_BATCHES, 10)
    lines = told(caplog, *grows, *[0] * TOLD_BATCHES * 2)
    assert len(lines) == 2
    assert lines[0].startswith(f"the join falls behind its input: each of the last {TOLD_BATCHES} batches")
    assert "3s 200ms of event time" in lines[0]
    assert "of stream l" in lines[0]
    assert lines[0].endswith("limited by max_rows_per_batch")
    assert lines[1] == "the join has caught up with its input"


def test_a_backlog_that_is_worked_off_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not told(caplog, *range(100_000, 0, -100))
    assert not told(caplog, *[50, 0] * 100)


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        (Backlog(12_300, None, 3_200_000), "12,300 records, 3s 200ms"),
        (Backlog(0, 2_500), "2.5 kB"),
        (Backlog(7, 2_500, 0), "7 records, 2.5 kB, 0s"),
        (Backlog(), "0 records"),
    ],
)
def test_a_backlog_as_a_text(waits: Backlog, text: str) -> None:
    assert backlog_text(waits) == text


def test_the_terminal_shows_it_with_what_limits_the_batches() -> None:
    waits = BacklogFacts({"l": Backlog(12_300, None, 3_200_000)}, "max_rows_per_batch")
    none: dict[str, int] = {"l": 0}
    batch = BatchSummary(0, 0, 0, none, none, none, none, none, none, 0, {"l": 0}, 0, 0, False, backlog=waits)
    for is_terminal in (False, True):
        said = io.StringIO()
        with Display(Console(file=said, force_terminal=is_terminal, width=120), clock=lambda: 0.0) as display:
            display.batch(batch)
        assert "12,300 records, 3s 200ms" in said.getvalue()
        assert ("of l; batches are limited by max_rows_per_batch" in said.getvalue()) == is_terminal
        assert ("0/s; 12,300 records, 3s 200ms wait" in said.getvalue()) == is_terminal
    assert display.totals.facts(1.0)["backlog"] == waits.to_facts()
