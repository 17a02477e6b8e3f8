"""What a driver logs: what inputs show, delays that are too long; each thing once, and in whatever source."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.spec import Join
from streamjoin_ds.stream.query_log import TOLD_BATCHES, DelayLog, InputLog, first_inputs
from streamjoin_ds.stream.source_facts import bound_join
from tests.source.feeds import segment
from tests.support.microbatch import MicroBatches
from tests.support.topics import fake_topics

BEGIN = datetime(2024, 3, 5, 9, 0, 7, tzinfo=timezone.utc)
Row = dict[str, Any]


def readings(time_of: Callable[[datetime], object], rows: int = 40) -> list[Row]:
    return [{"ts": time_of(BEGIN + timedelta(seconds=second)), "x": float(second)} for second in range(rows)]


def iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def written(folder: Path, form: str, rows: list[Row]) -> str:
    """Write rows in a form, and return where they are."""
    path = folder / {"spool": "0.spool"}.get(form, f"in.{form}")
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row, default=str) for row in rows]
    if form == "csv":
        path.write_text(
            "".join(
                ",".join(map(str, row.values())) + "\n" for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]
            )
        )
    elif form == "jsonl":
        path.write_text("\n".join(lines) + "\n")
    elif form == "spool":
        path.write_bytes(segment([line.encode() for line in lines]))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "delta":
        write_deltalake(str(path), pa.Table.from_pylist(rows))
    return str(path)


def joined(e: str, w: str, **options: Any) -> Join:
    streams = [Stream("e", e, **options), Stream("w", w)]
    return Join(streams, [band("e.x", "w.x", 0.5)], "1s", select="e.x, w.x")


def logged(join: Join, folder: Path, caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    caplog.clear()
    folder.mkdir(exist_ok=True)
    with caplog.at_level(logging.WARNING):
        MicroBatches(bound_join(join), folder, Layout.parse("1x2", 2), **options).run()
    return [record.message for record in caplog.records if record.name == "streamjoin_ds.stream.query_log"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "spool", "parquet", "delta"])
def test_seconds_that_were_read_as_microseconds_are_told_in_the_log_and_by_explain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    seconds = written(tmp_path / "e", form, readings(lambda at: int(at.timestamp())))
    good = written(tmp_path / "w", "csv", readings(iso))
    assert len(logged(joined(seconds, good), tmp_path / "b", caplog, max_rows_per_batch=25)) == 2
    told = logged(joined(seconds, good), tmp_path / "c", caplog)
    assert told == first_inputs(bound_join(joined(seconds, good)))[0]
    far, apart = told
    assert "stream e: its first event times, of column 'ts', lie before 1990" in far
    assert "1709629207 is 1970-01-01T00:28:29.629207Z" in far
    assert far.endswith("With time_unit='s' the first is 2024-03-05T09:00:07Z")
    assert apart.startswith("e: 1970-01-01T00:28:29.629207Z .. 1970-01-01T00:28:29.629246Z, w: 2024-03-05T09:00:07Z ..")
    assert apart.endswith("is time_unit of e seconds?")
    # What it says, followed: nothing is odd, and every reading has its partner.
    followed = joined(seconds, good, time_unit="s")
    assert logged(followed, tmp_path / "d", caplog) == []
    assert MicroBatches(bound_join(followed), tmp_path / "d", Layout.parse("1x2", 2)).matches().num_rows == 40
    assert "warning" not in StreamJoin(followed.streams, followed.predicates, "1s").explain()
    assert far in StreamJoin(joined(seconds, good).streams, followed.predicates, "1s").explain()


def test_a_topic_s_times_are_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = fake_topics(monkeypatch, e=1)
    for row in readings(lambda at: int(at.timestamp())):
        topics.logs["e"][0].append(json.dumps(row).encode())
    url = "kafka://broker:9092/e?format=json&start=earliest"
    join = joined(url, written(tmp_path / "w", "csv", readings(iso)), schema={"ts": "int64", "x": "float64"})
    far, apart = logged(join, tmp_path / "c", caplog)
    assert "With time_unit='s' the first is 2024-03-05T09:00:07Z" in far
    assert apart.endswith("is time_unit of e seconds?")


@pytest.mark.parametrize("form", ["csv", "jsonl", "spool", "parquet", "delta"])
def test_a_file_that_is_newest_first_is_told_with_the_delay_that_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    newest = written(tmp_path / "e", form, readings(iso)[::-1] if form != "delta" else readings(lambda at: at)[::-1])
    good = written(tmp_path / "w", "csv", readings(iso))
    (told,) = logged(joined(newest, good), tmp_path / "c", caplog)
    assert told.startswith("stream e: 39 of the 40 records of a batch are late")
    assert "up to 2024-03-05T09:00:46Z" in told
    assert "delay='39s'" in told
    assert ("file_order" in told) is (form != "delta")
    assert told.endswith(f"All are in {TableSet(str(tmp_path / 'c' / 'matches')).late}")
    (explained,) = first_inputs(bound_join(joined(newest, good)))[0]
    assert explained.startswith("stream e: 39 of its first 40 records are late")
    kept = joined(newest, good, delay="39s")
    assert logged(kept, tmp_path / "d", caplog) == []
    assert MicroBatches(bound_join(kept), tmp_path / "d", Layout.parse("1x2", 2)).matches().num_rows == 40


@pytest.mark.parametrize("layout", ["1x2", "2x2", "1x1"])
@pytest.mark.parametrize("parts", ["1", "3"])
def test_how_late_records_are_does_not_depend_on_cells_and_tasks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, layout: str, parts: str
) -> None:
    rows = readings(iso, 4000)
    rows[1000], rows[3000] = rows[1000] | {"ts": rows[970]["ts"]}, rows[3000] | {"ts": rows[2000]["ts"]}
    late = written(tmp_path / "e", "csv", [*rows, *(row for row in rows[-50:])])
    join = joined(late, written(tmp_path / "w", "csv", readings(iso)))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        (tmp_path / "c").mkdir()
        MicroBatches(bound_join(join), tmp_path / "c", Layout.parse(layout, 2), options={"parts": parts}).run()
    (told,) = [text for text in caplog.messages if " are late" in text]
    # Four may stay late: the one by 999 s and those by 49, 48 and 47. How late the next is, 46 s, is known to a fifth.
    assert told.startswith("stream e: 51 of the 4050 records")
    assert "delay='47s'" in told


def test_days_beside_times_of_day_are_told_with_the_other_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {"Date GMT": f"{at['ts']:%Y-%m-%d}", "Time GMT": f"{at['ts']:%H:%M:%S}", "note": "-", "x": at["x"]}
        for at in readings(lambda at: at)
    ]
    good = written(tmp_path / "w", "csv", readings(iso))
    for form in ("csv", "jsonl"):
        join = joined(written(tmp_path / form, form, rows), good, time="Date GMT")
        told = logged(join, tmp_path / f"c-{form}", caplog)
        assert [text for text in told if "'Time GMT'" in text and "at midnight" in text] == told[:1]
        assert told == first_inputs(bound_join(join))[0]
    daily = written(tmp_path / "d", "csv", [{"ts": f"2024-03-{day:02}", "x": day} for day in range(1, 20)])
    assert first_inputs(bound_join(joined(daily, daily)))[0] == []


def test_a_reject_of_the_first_records_is_told_by_explain(tmp_path: Path) -> None:
    rows = readings(iso)
    rows[3]["ts"] = "yesterday"
    good = written(tmp_path / "w", "csv", readings(iso))
    (told,) = first_inputs(bound_join(joined(written(tmp_path / "e", "csv", rows), good)))[0]
    assert told.startswith("stream e: 1 of its first 40 records is a reject: column ts: ")


def test_each_kind_of_rejects_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = written(tmp_path / "w", "csv", readings(iso))
    log = InputLog(bound_join(joined(good, good)), TableSet("m"))

    def tell(reasons: dict[str, tuple[str, str]]) -> None:
        report: Any = SimpleNamespace(rejects_for=reasons, late_by={}, overtaken=[0, 0], times={})
        counts = {"e": (3, 10), "w": (1, 4)}
        log.tell(
            [report],
            [
                {"stream": name, "rejected": rejected, "read": read, "largest_ts": None}
                for name, (rejected, read) in counts.items()
            ],
        )

    with caplog.at_level(logging.WARNING):
        for reasons in ({"e": ("x", "no int64")}, {"e": ("x", "no int64"), "w": ("", "not JSON")}):
            tell(reasons)
        for number in range(100):
            tell({"e": ("x", f"kind {number}")})
    where = TableSet("m").rejects
    assert caplog.messages[:2] == [
        f"stream e: 3 of the 10 records of a batch are rejects, one for this: column x: no int64. All are in {where}",
        f"stream w: 1 of the 4 records of a batch is a reject: not JSON. All are in {where}",
    ]
    assert len(caplog.messages) == 21


def test_a_number_that_became_a_fraction_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for file, values in enumerate([[20] * 10, [21] + [20.5] * 9]):
        lines = [json.dumps({"ts": 1_700_000_000_000 + k, "x": value}) for k, value in enumerate(values)]
        (tmp_path / "in" / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    whole = {"ts": "int64", "x": "int64"}
    streams = [Stream(name, str(tmp_path / "in"), time_unit="ms", schema=whole) for name in "ew"]
    join = StreamJoin(streams, on=[band("e.x", "w.x", 1)], window="1s")
    with caplog.at_level(logging.WARNING):
        query = join.run_local(tmp_path / "m", tmp_path / "c", available_now=True, max_rows_per_batch=100)
        query.awaitTermination()
    told = [text for text in caplog.messages if "are rejects" in text]
    assert len(told) == 2
    assert "stream e: 9 of the 20 records of a batch are rejects, one for this: column x: " in told[0]
    assert told[0].endswith(f"All are in {tmp_path / 'm_rejects'}")


KEPT, MISSED = DelayFacts(500_000, 400_000, 0), DelayFacts(500_000, 812_345, 77)


def told(caplog: pytest.LogCaptureFixture, *facts: DelayFacts | None) -> list[str]:
    log = DelayLog()
    with caplog.at_level(logging.WARNING, "streamjoin_ds.stream.query_log"):
        for each in facts:
            log.tell(each)
    return [record.getMessage() for record in caplog.records]


def test_a_bound_that_is_missed_for_a_while_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = told(caplog, *[KEPT] * 3, *[MISSED] * (10 * TOLD_BATCHES))
    assert line.startswith("max_delay 500ms is not kept: ")
    assert "up to 812ms" in line
    assert "77 records still wait" in line


def test_a_bound_that_is_kept_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, *[MISSED] * TOLD_BATCHES, *[KEPT] * (3 * TOLD_BATCHES), *[MISSED] * TOLD_BATCHES)
    assert [line.split(" ", 2)[2][:6] for line in lines] == ["is not", "is kep", "is not"]


def test_single_slow_batches_and_joins_without_a_bound_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not told(caplog, *([MISSED] * (TOLD_BATCHES - 1) + [KEPT]) * 5, *[None] * 100)
    assert not told(caplog, *[DelayFacts(1, None, 9)] * 100)
