"""The options that say how event times are written, over every source: files, spools, tables, topics, pushes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.errors import ArgumentError, ColumnError, OffsetError
from streamjoin_ds.source.delta.change_log import VersionPosition
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.topic_scan import KafkaPosition
from streamjoin_ds.source.position import FilePosition
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import bind
from streamjoin_ds.spec.event_time import AheadLimit
from streamjoin_ds.spec.inside import to_inside
from tests.source.feeds import segment
from tests.source.kafka.formats.messages import messages_of

AT_US = 1_709_629_207_000_000  # 2024-03-05T09:00:07Z
DAY_FIRST = ["05/03/2024 09:00:07", "31/03/2024 09:00:07", "32/03/2024 09:00:07"]
FORM = "%d/%m/%Y %H:%M:%S"
SOURCES = ("csv", "jsonl", "spool", "parquet", "delta", "csv.gz")


def written(folder: Path, form: str, times: list[Any]) -> str:
    """Write times, and numbers beside them, as a source."""
    path = folder / {"spool": "0.spool"}.get(form, f"e.{form}")
    rows = [{"at": at, "x": float(x)} for x, at in enumerate(times)]
    lines = [json.dumps(row).encode() for row in rows]
    if form in ("parquet", "delta"):
        table = pa.Table.from_pylist(rows)
        (pq.write_table if form == "parquet" else lambda table, path: write_deltalake(str(path), table))(table, path)
    elif form == "spool":
        path.write_bytes(segment(lines))
    elif form == "csv.gz":
        pa.output_stream(path, compression="gzip").write(b"at,x\n" + csv_of(rows))
    else:
        path.write_bytes(b"at,x\n" + csv_of(rows) if form == "csv" else b"".join(line + b"\n" for line in lines))
    return str(path)


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(f"{row['at']},{row['x']}\n".encode() for row in rows)


def read(stream: Stream) -> tuple[list[int], list[tuple[str, str]]]:
    """Return the event times that a feed gives, and what it rejects; the planner sees the times that the task sees."""
    schemas = {"e": infer_schema(stream), "w": pa.schema([("ts", pa.int64()), ("x", pa.float64())])}
    bound = bind(Join([stream, Stream("w", schema=schemas["w"])], "e.x <= w.x", "1s"), schemas)
    feed = open_feed(bound.join.streams[0], bound.read_schemas[0])
    end = feed.advance(feed.initial(), feed.frontier(feed.initial(), 100).rows)
    chunks = list(feed.read(feed.initial(), end))
    times = [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
    if stream.partition_kind is None:
        known = [ts for ts in feed.running_max(feed.initial(), end).tolist() if ts > 0]
        assert set(known) >= set(np.maximum.accumulate(times).tolist())
    return times, [(one.column, one.reason) for chunk in chunks for one in chunk.rejects]


@pytest.mark.parametrize("form", SOURCES)
def test_texts_of_a_form_are_read_and_others_are_rejects_that_say_it(tmp_path: Path, form: str) -> None:
    stream = Stream("e", written(tmp_path, form, DAY_FIRST), time="at", time_format=FORM)
    times, rejects = read(stream)
    assert times == [AT_US, AT_US + 26 * 86_400_000_000]
    assert [column for column, _ in rejects] == ["at"]
    assert FORM in rejects[0][1]


@pytest.mark.parametrize("form", SOURCES)
@pytest.mark.parametrize(
    ("name", "values", "right"),
    [
        ("excel", [45356.37508101852], AT_US),
        ("labview", [3_792_474_007], AT_US),
        ("%Y%m%d%H%M", [202403050900], AT_US - 7_000_000),
        ("doy", [20240650900], AT_US - 7_000_000),
        ("iso|%d.%m.%Y", ["2024-03-05T09:00:07Z"], AT_US),
    ],
)
def test_numbers_of_a_form_are_read_as_they_are_written(
    tmp_path: Path, form: str, name: str, values: list[Any], right: int
) -> None:
    assert read(Stream("e", written(tmp_path, form, values), time="at", time_format=name)) == ([right], [])


@pytest.mark.parametrize("form", SOURCES[:3])
def test_a_column_of_other_texts_is_refused_with_a_value_and_a_way(tmp_path: Path, form: str) -> None:
    with pytest.raises(ColumnError) as caught:
        infer_schema(Stream("e", written(tmp_path, form, DAY_FIRST[:2]), time="at"))
    assert "'05/03/2024 09:00:07' is not ISO 8601" in str(caught.value)
    assert caught.value.hint == f"time_format='{FORM}'"


def test_topics_read_times_of_a_form() -> None:
    schema = pa.schema([("at", pa.string()), ("x", pa.float64())])
    stream = Stream("e", "kafka://b:1/t?format=json", time="at", schema=schema, time_format=FORM)
    inside = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    for form, payloads in {
        "json": [json.dumps({"at": at, "x": 1.0}).encode() for at in DAY_FIRST],
        "csv": [f"{at},1.0".encode() for at in DAY_FIRST],
    }.items():
        found = MessageRecords(form, stream, inside, "t").chunk(messages_of(payloads), 0, 0)
        assert found.tuples.column("_ts").to_pylist() == [AT_US, AT_US + 26 * 86_400_000_000]
        assert [(one.column, one.seq) for one in found.rejects] == [("at", 2)]


def test_pushes_read_times_of_a_form() -> None:
    schema = {"at": "string", "x": "double"}
    streams = [Stream("e", time="at", schema=schema, time_format=f"{FORM}|excel"), Stream("w", schema={"ts": "int64"})]
    rows = [{"at": DAY_FIRST[0], "x": 1.0}, {"at": 45356.37508101852, "x": 2.0}, {"at": DAY_FIRST[2], "x": 3.0}]
    other = [{"ts": AT_US}]
    for form in (rows, pa.table({"at": [DAY_FIRST[0], "45356.37508101852", "x"], "x": [1.0, 2.0, 3.0]})):
        assert JoinEngine(Join(streams, [], "0s")).push({"e": form, "w": other}).num_rows == 2


def test_an_option_without_a_meaning_is_refused() -> None:
    with pytest.raises(ArgumentError, match="time_format"):
        Stream("e", "gen:sensor", time_format="excel")
    for wrong in ("", [], [1], 3, "|"):
        with pytest.raises(ArgumentError, match="time_format") as caught:
            Stream("e", "a.csv", time_format=wrong)
        assert caught.value.name == "time_format"


def test_facts_and_fingerprints_have_the_forms_and_older_ones_stay() -> None:
    plain, formed = Stream("e", "a.csv"), Stream("e", "a.csv", time_format=["%d/%m/%Y", "iso"])
    assert "time_format" not in plain.to_facts()
    assert Stream.from_facts(formed.to_facts()) == formed
    assert formed == Stream("e", "a.csv", time_format="%d/%m/%Y | iso")
    schemas = {"e": pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64())])}
    prints = {
        bind(Join([one, Stream("w", "b.csv")], "e.x <= w.x", "1s"), schemas | {"w": schemas["e"]}).fingerprint
        for one in (plain, formed)
    }
    assert len(prints) == 2


BERLIN = "Europe/Berlin"
# Half an hour each: the clock shows 02:00 and 02:30 twice, and skips neither. The right answers are UTC.
AUTUMN = [f"2024-10-27 {hour:02}:{minute:02}:00" for hour in (1, 2, 2, 3) for minute in (0, 30)]
AUTUMN_US = [1_729_983_600_000_000 + place * 1_800_000_000 for place in range(len(AUTUMN))]  # 2024-10-26T23:00Z
# An hour each, of two devices.
HOURLY = [f"2024-10-27 {hour:02}:30:00" for hour in (0, 1, 2, 2, 3, 4) for _ in range(2)]
HOURLY_US = [1_729_981_800_000_000 + place // 2 * 3_600_000_000 for place in range(len(HOURLY))]  # 2024-10-26T22:30Z
SPRING = ["2024-03-31 01:30:00", "2024-03-31 02:30:00", "2024-03-31 03:30:00", "2024-03-31T03:30:00+02:00"]
SPRING_US = [1_711_845_000_000_000, 1_711_848_600_000_000]  # 00:30Z and 01:30Z


@pytest.mark.each_value
@pytest.mark.parametrize("form", SOURCES)
@pytest.mark.parametrize(("clock", "right"), [(AUTUMN, AUTUMN_US), (HOURLY, HOURLY_US)], ids=["half-hourly", "hourly"])
def test_local_times_are_utc_by_their_zone_and_order_wherever_a_batch_is_cut(
    tmp_path: Path, form: str, clock: list[str], right: list[int]
) -> None:
    stream = Stream("e", written(tmp_path, form, clock), time="at", timezone=BERLIN, time_format="iso")
    assert read(stream) == (right, [])
    for cut in range(1, len(clock)):
        assert cut_at(stream, cut) == right
        assert cut_at(stream, cut, rows=1, max_ahead_us=3_600_000_000) == right


@pytest.mark.parametrize("form", SOURCES)
def test_a_position_of_before_there_were_rhythms_goes_on_by_nearness(tmp_path: Path, form: str) -> None:
    stream = Stream("e", written(tmp_path, form, AUTUMN), time="at", timezone=BERLIN, time_format="iso")
    for cut in range(1, len(AUTUMN)):
        assert cut_at(stream, cut, is_of_old=True) == AUTUMN_US


@pytest.mark.parametrize("kind", [FilePosition, VersionPosition, KafkaPosition])
@pytest.mark.parametrize("rhythm", [[1], [0, -1, 0, 0, 0], "01234", [0, 0, 0, 0, 1.5]])
def test_a_position_whose_rhythm_is_none_is_malformed(kind: Any, rhythm: Any) -> None:
    facts = kind().to_facts()
    assert "rhythm" not in facts
    assert kind.from_facts({**facts, "rhythm": [-5, 1, 2, 3, 4]}).rhythm == (-5, 1, 2, 3, 4)
    with pytest.raises(OffsetError, match="rhythm"):
        kind.from_facts({**facts, "rhythm": rhythm})


def cut_at(
    stream: Stream, cut: int, rows: int = 100, max_ahead_us: int | None = None, *, is_of_old: bool = False
) -> list[int]:
    """Return the event times that tasks read where the planner cuts a stream after some rows; the planner agrees.

    With `is_of_old` the positions are those of a version that kept no rhythm.
    """
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    feed, times, limit = open_feed(stream, schema), [], None if max_ahead_us is None else AheadLimit(max_ahead_us)
    at = feed.initial()
    for most in (cut, rows, 100):
        there = feed.frontier(at, most, limit)
        end = feed.advance(at, there.rows)
        planned = there.running_max[: there.rows].tolist()
        fresh = open_feed(stream, schema)  # a task's
        written = [json.loads(json.dumps(one.to_facts())) for one in (at, end)]
        assert is_of_old or all("rhythm" in facts for facts in written if facts["seq"])
        gone = ("rhythm",) if is_of_old else ()
        start, end = (fresh.position({k: v for k, v in facts.items() if k not in gone}) for facts in written)
        names = feed.files_between(start, end)
        found = [ts for chunk in fresh.read(start, end, limit, names) for ts in chunk.tuples.column("_ts").to_pylist()]
        assert np.maximum.accumulate([*times, *found]).tolist()[len(times) :] == planned
        assert fresh.running_max(start, end, limit, names).tolist() == planned
        times += found
        at = end
    return times


@pytest.mark.parametrize("form", SOURCES)
def test_after_a_silence_the_first_time_that_moves_the_clock_is_measured_against_nothing(
    tmp_path: Path, form: str
) -> None:
    """Wherever a batch is cut, and whatever comes before that time."""
    clock = [100, 40, 100, "-", 5_000, 5_010, 9_000, 4_990]
    texts = [
        at if isinstance(at, str) else f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}" for at in clock
    ]
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    stream = Stream("e", written(tmp_path, form, texts), time="at", time_format="iso")
    for cut in range(1, len(clock)):
        feed, found, limit = open_feed(stream, schema), [], AheadLimit(60_000_000)
        at = feed.initial()
        for most in (1, cut, 1, 100):
            there = feed.frontier(at, most, limit)
            end = feed.advance(at, there.rows)
            chunks = list(open_feed(stream, schema).read(at, end, limit))
            found += [ts // 1_000_000 for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
            assert feed.running_max(at, end, limit).tolist() == there.running_max[: there.rows].tolist()
            limit = limit.after(feed.time_before(at), feed.time_before(end))
            limit = AheadLimit(limit.max_us, is_measured=False) if most == 1 and len(found) == 1 else limit
            at = end
        assert found == [100, 40, 100, 5_000, 5_010, 4_990]


@pytest.mark.parametrize("form", SOURCES)
def test_a_time_that_the_clock_skips_is_a_reject_and_one_with_an_offset_is_what_it_says(
    tmp_path: Path, form: str
) -> None:
    stream = Stream("e", written(tmp_path, form, SPRING), time="at", timezone=BERLIN, time_format="iso")
    times, rejects = read(stream)
    assert times == [*SPRING_US, SPRING_US[1]]
    assert rejects == [("at", f"a local time that the clock of {BERLIN} skips, and so no event time")]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_timestamps_and_dates_without_a_zone_are_local(tmp_path: Path, form: str) -> None:
    new_york = 1_709_629_207_000_000 + 5 * 3_600_000_000
    for name, kind, values, right in (
        ("us", pa.timestamp("us"), [AT_US], [new_york]),
        ("ns", pa.timestamp("ns"), [AT_US * 1000], [new_york]),
        ("utc", pa.timestamp("us", tz="UTC"), [AT_US], [AT_US]),
        ("day", pa.date32(), [19_787], [1_709_614_800_000_000]),
        ("number", pa.int64(), [AT_US], [AT_US]),
    ):
        if form == "delta" and name == "ns":
            continue
        path = tmp_path / name
        table = pa.table({"at": pa.array(values, kind), "x": [1.0]})
        if form == "delta":
            write_deltalake(str(path), table)
        else:
            pq.write_table(table, f"{path}.parquet")
        source = str(path) if form == "delta" else f"{path}.parquet"
        assert read(Stream("e", source, time="at", timezone="America/New_York")) == (right, []), name


@pytest.mark.parametrize("form", ["csv", "jsonl", "spool", "parquet", "delta"])
def test_a_column_says_the_zone_of_each_row(tmp_path: Path, form: str) -> None:
    zones = ["EST", "CET", "Europe/Berlin", "+01:00", "CST", "", "UTC", "CEST"]
    rows = [{"at": "2024-07-05 09:00:07", "tz": zone, "x": 1.0} for zone in zones]
    path = tmp_path / {"spool": "0.spool"}.get(form, f"e.{form}")
    lines = [json.dumps(row).encode() for row in rows]
    if form == "csv":
        path.write_text("at,tz,x\n" + "".join(f"{row['at']},{row['tz']},1.0\n" for row in rows))
    elif form in ("parquet", "delta"):
        table = pa.Table.from_pylist(rows)
        (pq.write_table if form == "parquet" else lambda table, path: write_deltalake(str(path), table))(table, path)
    else:
        path.write_bytes(segment(lines) if form == "spool" else b"".join(line + b"\n" for line in lines))
    times, rejects = read(Stream("e", str(path), time="at", timezone="tz", time_format="iso"))
    nine = 1_720_170_007_000_000  # 2024-07-05T09:00:07Z
    assert [(ts - nine) // 3_600_000_000 for ts in times] == [5, -1, -2, -1, 0, -2]
    assert [reason.partition(":")[0] for _, reason in rejects] == [
        "a local time with 'CST' in column 'tz', which is no zone, or has several meanings",
        "a local time with no zone in column 'tz'",
    ]


def test_a_text_may_name_its_zone(tmp_path: Path) -> None:
    texts = [
        "05 Mar 2024 10:00:07 CET",
        "05 Mar 2024 04:00:07 EST",
        "05 Mar 2024 09:00:07 XYZ",
        "05 Mar 2024 09:00:07 Z",
    ]
    stream = Stream("e", written(tmp_path, "csv", texts), time="at", time_format="%d %b %Y %H:%M:%S %Z")
    times, rejects = read(stream)
    assert (times, len(rejects)) == ([AT_US] * 3, 1)


def test_partitions_have_orders_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_bytes(b"at,x\n" + csv_of([{"at": at, "x": 1.0} for at in AUTUMN]))
    stream = Stream("e", str(tmp_path), time="at", timezone=BERLIN, partition_by="file")
    assert sorted(read(stream)[0]) == sorted([*AUTUMN_US, *AUTUMN_US])


@pytest.mark.parametrize("kind", ["texts", "dicts", "datetimes", "table", "naive", "fine"])
@pytest.mark.parametrize(("clock", "right"), [(AUTUMN, AUTUMN_US), (HOURLY, HOURLY_US)], ids=["half-hourly", "hourly"])
def test_pushes_go_by_the_zone_and_the_order_of_all_pushes(kind: str, clock: list[str], right: list[int]) -> None:
    naive = [datetime.fromisoformat(text) for text in clock]
    own = {"texts": "string", "dicts": "string", "fine": "timestamp[ns]"}.get(kind, "timestamp[us]")
    form = "iso" if own == "string" else None
    streams = [
        Stream("e", time="at", schema={"at": own}, timezone=BERLIN, time_format=form, delay="1d"),
        Stream("w", time="at", schema={"at": "timestamp[us, tz=UTC]"}),
    ]
    join = Join(streams, [], "0s", select="e.at")
    for cut in range(1, len(clock)) if kind == "texts" else (5,):
        engine, found = JoinEngine(join), []
        for part in (slice(0, cut), slice(cut, None)):
            rows: Any = pa.table({"at": pa.array(clock[part])})
            if kind == "dicts":
                rows = [{"at": at} for at in clock[part]]
            elif kind == "datetimes":
                rows = [{"at": at} for at in naive[part]]
            elif kind in ("table", "naive", "fine"):
                rows = pa.table({"at": pa.array(naive[part], pa.timestamp("ns" if kind == "fine" else "us"))})
            found.append(engine.push({"e": rows}))
            saved, engine = engine.save(), JoinEngine(join)
            engine.restore(saved)
        there = sorted(set(right))
        found.append(engine.push({"w": pa.table({"at": pa.array(there, pa.timestamp("us", tz="UTC"))})}))
        assert pa.concat_tables(found).column("e_at").cast(pa.int64()).to_pylist() == right


def test_a_timezone_that_is_neither_a_zone_nor_a_column_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", AUTUMN)
    for wrong, hint in {"Europe/Berln": "Europe/Berlin", "berlin": "Europe/Berlin", "PST": "-08:00"}.items():
        with pytest.raises(ArgumentError) as caught:
            read(Stream("e", path, time="at", timezone=wrong))
        assert caught.value.name == "timezone"
        assert hint in caught.value.hint
        assert "at, x" in caught.value.hint
    with pytest.raises(ColumnError, match="holds no texts"):
        read(Stream("e", path, time="at", timezone="x"))
    with pytest.raises(ArgumentError, match="timezone"):
        Stream("e", "gen:sensor", timezone=BERLIN)


def test_a_declared_zone_of_the_time_is_said_by_timezone(tmp_path: Path) -> None:
    schema = {"at": f"timestamp[us, tz={BERLIN}]", "x": "double"}
    stream = Stream("e", written(tmp_path, "csv", AUTUMN), time="at", timezone=BERLIN, schema=schema)
    assert read(stream) == (AUTUMN_US, [])
    assert Stream.from_facts(stream.to_facts()) == stream


def test_a_computed_time_is_a_text_where_a_zone_says_its_clock(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("day,clock,x\n27/10/2024,01:30:00,1.0\n27/10/2024,03:30:00,1.0\n")
    about = {"time": "t", "timezone": BERLIN, "time_format": FORM}
    assert read(Stream("e", str(path), columns={"t": "day || ' ' || clock"}, **about))[0] == [
        AUTUMN_US[1],
        AUTUMN_US[7],
    ]
    stamp = {"t": "CAST('2024-10-27 01:30:00' AS TIMESTAMP)"}
    with pytest.raises(ArgumentError, match="computed as a timestamp"):
        read(Stream("e", str(path), columns=stamp, **about))


def test_rows_of_a_frame_are_local_too_and_the_earlier_of_two_meanings() -> None:
    stream = Stream("e", time="at", schema={"at": "string"}, timezone=BERLIN, time_format="iso")
    found = to_inside(lambda wanted: pa.array(AUTUMN), pa.schema([("at", pa.timestamp("us", tz="UTC"))]), stream)
    assert found.ts.tolist() == [*AUTUMN_US[:4], *AUTUMN_US[2:4], *AUTUMN_US[6:]]
