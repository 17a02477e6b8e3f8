"""A topic's messages are read as the lines of a file are: with clocks, computed columns, paths, records within."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin_ds import Stream
from streamjoin_ds.errors import ArgumentError, FileFormatError
from streamjoin_ds.source.files import inner_records
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.source.stream_source import first_records, infer_schema, open_feed
from streamjoin_ds.spec import Join, bind
from streamjoin_ds.spool.writer import SpoolWriter
from tests.source.kafka.formats.messages import messages_of
from tests.support.topics import FakeTopic, Log, fake_topics

BERLIN = [
    {"at": f"27.10.2024 {hour:02}:{minute:02}:00", "x": place}
    for place, (hour, minute) in enumerate((hour, minute) for hour in (1, 2, 2, 3) for minute in (0, 30))
]
CHANGES: list[Any] = [
    {
        "payload": {
            "before": None,
            "after": {"id": n % 3, "temp": n + 0.5},
            "op": "cud"[n % 3],
            "ts_ms": 1709629207120 + n,
        }
    }
    for n in range(9)
]
CHANGES[4]["payload"]["after"] = None
BROKEN = [*CHANGES, {"payload": {"after": {"temp": "hot"}, "ts_ms": 1709629207200}}]
PLUG: list[Any] = [{"params": {"ts": 1709629207 + n / 4, "switch:0": {"id": 0, "apower": n * 1.5}}} for n in range(5)]
VALUES: list[Any] = [
    {
        "timestamp": 1,
        "site": "a",
        "values": [{"id": f"t{k}", "v": 10 * n + k, "t": 1709629207100 + 10 * n + k} for k in range(n)],
    }
    for n in range(5)
]
VALUES[3]["values"][1]["v"] = "on"
VALUES.insert(2, {"site": "b"})
VALUE_TYPES = pa.schema([("t", pa.int64()), ("v", pa.float64())])
TABLE = [
    {"fields": ["time_stamp", "pm"], "data": [[1709629207 + n, n + 0.5], [1709629327 + n, None]]} for n in range(3)
]
PACKS = [
    [{"bn": "urn:dev:7:", "bt": 1709629207 + n, "n": "temp", "u": "Cel", "v": 19.5}, {"n": "hum", "t": 1, "v": 40}]
    for n in range(3)
]
FEATURES = [
    {
        "type": "FeatureCollection",
        "features": [{"properties": {"time": 1709629207120 + n}, "geometry": {"coordinates": [1, n]}}],
    }
    for n in range(3)
]
ZONED = [{"at": "2024-03-05 09:00:07", "tz": zone, "x": 1} for zone in ("CET", "UTC", "nowhere", "America/New_York")]
CASES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "a form and a zone": (BERLIN, {"time": "at", "time_format": "%d.%m.%Y %H:%M:%S", "timezone": "Europe/Berlin"}, "x"),
    "a column of zones": (ZONED, {"time": "at", "timezone": "tz"}, "x"),
    "a zone inside of others": (
        [{"at": {"d": one["at"], "tz": one["tz"]}, "x": 1} for one in ZONED],
        {"time": "at.d", "timezone": "at.tz"},
        "x",
    ),
    "numbers from a start": (
        [{"n": n, "x": n} for n in (0, 1, 2.5, -1)],
        {"time": "n", "time_unit": "s", "time_start": "2024-03-05T09:00:00Z"},
        "x",
    ),
    "days of Excel": (
        [{"at": 45356.375081 + n, "x": n} for n in range(3)],
        {"time": "at", "time_format": "excel"},
        "x",
    ),
    "several forms": (
        [{"at": at, "x": 1} for at in ("05.03.2024 09:00", "2024-03-05T09:01:00Z", "soon")],
        {"time": "at", "time_format": ["%d.%m.%Y %H:%M", "iso"]},
        "x",
    ),
    "two columns as the time": (
        [{"d": "05/03/2024", "t": f"09:00:{n:02}", "x": n} for n in range(9)] + [{"d": "no", "t": "x", "x": 1}],
        {"time": "d || ' ' || t", "time_format": "%d/%m/%Y %H:%M:%S"},
        "x",
    ),
    "numbers as the time": (
        [{"week": 2304, "second": 205225 + n, "x": n} for n in range(4)],
        {"time": "(315964800 + week * 604800 + second)", "time_unit": "s"},
        "x",
    ),
    "computed columns": (
        [{"ts": 1 + n, "kn": n, "line": f"a/{n}/c"} for n in range(5)] + [{"ts": 7, "kn": 1, "line": "a/b"}],
        {"columns": {"ms": "kn * 0.514444", "part": "CAST(split_part(line, '/', 2) AS INT)"}},
        "ms, e.part",
    ),
    "paths": (CHANGES, {"time": "payload.ts_ms", "time_unit": "ms"}, "payload.after.temp, e.payload.op"),
    "a condition on a path": (
        CHANGES,
        {"time": "payload.ts_ms", "time_unit": "ms", "where": "payload.op IN ('c', 'u')"},
        "payload.after.temp",
    ),
    "computed of paths": (
        CHANGES,
        {"time": "payload.ts_ms", "time_unit": "ms", "columns": {"temp": "payload.after.temp * 2"}},
        "temp",
    ),
    "paths with odd names": (PLUG, {"time": "params.ts", "time_unit": "s"}, "params.`switch:0`.apower"),
    "types declared under paths": (
        BROKEN,
        {
            "time": "payload.ts_ms",
            "time_unit": "ms",
            "schema": {"payload.ts_ms": "int64", "payload.after.temp": "float", "payload.after.id": "int16"},
        },
        "payload.after.temp, e.payload.after.id",
    ),
    "an array in each message": (VALUES, {"records": "values", "time": "t", "time_unit": "ms"}, "v, e.id, e.site"),
    "devices within messages": (
        VALUES,
        {"records": "values", "time": "t", "time_unit": "ms", "partition_by": ["id"]},
        "v",
    ),
    "rows under names": (TABLE, {"records": "fields/data", "time": "time_stamp", "time_unit": "s"}, "pm"),
    "packs": (PACKS, {"records": "senml", "time": "t", "time_unit": "s"}, "v, e.n"),
    "arrays": ([PLUG[:2], PLUG[2:]], {"records": "$", "time": "params.ts", "time_unit": "s"}, "params.`switch:0`.id"),
    "features": (
        FEATURES,
        {"records": "features", "time": "properties.time", "time_unit": "ms"},
        "geometry.coordinates[1]",
    ),
    "devices": (
        CHANGES,
        {"time": "payload.ts_ms", "time_unit": "ms", "partition_by": ["payload.after.id"]},
        "payload.op",
    ),
}


def read(stream: Stream, select: str) -> list[Chunk]:
    """Return the first records of a stream, as a join reads them that selects some columns."""
    other = Stream("o", schema={"ts": "timestamp[us]", "y": "double"})
    join = Join([stream, other], "o.y > 0", "10s", f"e.{select}")
    bound = bind(join, {one.name: infer_schema(one) for one in join.streams})
    return first_records(bound.join.streams[0], bound.read_schemas[0], 1000)


def told(chunks: list[Chunk]) -> tuple[list[Any], list[Any]]:
    """Return the tuples and the rejects of chunks; a topic says beside the reason which record of its message it is."""
    rejects = [reject for chunk in chunks for reject in chunk.rejects]
    reasons = [one.reason.partition(" (record ")[0].replace("not a JSON object", "not JSON") for one in rejects]
    return (
        [row for chunk in chunks for row in chunk.tuples.to_pylist()],
        [(one.seq, one.column, reason) for one, reason in zip(rejects, reasons, strict=True)],
    )


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> type[FakeTopic]:
    return fake_topics(monkeypatch, e=1)


@pytest.mark.parametrize("case", CASES)
def test_a_topic_is_read_as_a_file(tmp_path: Path, topic: type[FakeTopic], case: str) -> None:
    messages, options, select = CASES[case]
    path = tmp_path / "e.json"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    for message in messages:
        topic.logs["e"][0].append(json.dumps(message).encode())
    right = told(read(Stream("e", str(path), **options), select))
    assert right[0]
    assert told(read(Stream("e", "kafka://broker/e?format=json", **options), select)) == right


@pytest.mark.parametrize(
    ("form", "lines", "reason"),
    [
        (
            "influx",
            ["m,a=b x=1.5,n=2i 1709629207120000000", "# no", "m x=", "", "m x=3 1709629208120000000"],
            "InfluxDB",
        ),
        ("prometheus", ["# HELP up", 'up{job="a"} 1 1709629207120', "up", "up 2 1709629208120"], "Prometheus"),
    ],
)
def test_messages_hold_lines_of_metrics(
    tmp_path: Path, topic: type[FakeTopic], form: str, lines: list[str], reason: str
) -> None:
    path, value = tmp_path / "e.txt", {"influx": "x", "prometheus": "value"}[form]
    path.write_text("\n".join(lines) + "\n")
    for first in range(0, len(lines), 2):
        topic.logs["e"][0].append("\n".join(lines[first : first + 2]).encode())
    clock = {"time": "time", "time_unit": {"influx": "ns", "prometheus": "ms"}[form]}
    right = told(read(Stream("e", str(path), format=form, **clock), value))
    assert (len(right[0]), len(right[1])) == (2, 1)
    assert reason in right[1][0][2]
    chunks = read(Stream("e", f"kafka://broker/e?format={form}", **clock), value)
    assert told(chunks) == right
    assert [reject.line for chunk in chunks for reject in chunk.rejects] == [1]
    topic.logs["e"][0].append(None)
    (*_, last) = [
        reject
        for chunk in read(Stream("e", f"kafka://broker/e?format={form}", **clock), value)
        for reject in chunk.rejects
    ]
    assert last.reason == "a message without a value (record 1 of its message)"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("case", ["an array in each message", "packs", "influx"])
def test_any_cut_of_a_topic_gives_the_same_records(
    tmp_path: Path, topic: type[FakeTopic], monkeypatch: pytest.MonkeyPatch, case: str, size: int
) -> None:
    """A batch ends within a message, and the next one begins there: the same numbers, rejects and largest times."""
    monkeypatch.setattr(FakeTopic, "batch", size)
    lines = ["m x=1i 3000\nm x=2i 1000\nm x=oh", "# no", "m x=3i 2000\n"]
    messages, options, _ = CASES.get(case, (lines, {}, ""))
    form = "influx" if case == "influx" else "json"
    sent = [one.encode() if isinstance(one, str) else json.dumps(one).encode() for one in messages]
    for value in (*sent[:2], None, b"", b'[{"v": 1', *sent[2:], b"[]"):
        topic.logs["e"][0].append(value)
    stream = Stream("e", f"kafka://broker/e?format={form}", **options)
    columns = infer_schema(stream)
    stream = replace(stream, schema=columns)
    feed = open_feed(stream, columns)
    end = feed.advance(feed.initial(), feed.frontier(feed.initial(), 1000).rows)
    whole = list(feed.read(feed.initial(), end))
    found: list[Chunk] = []
    at, ends = feed.initial(), []
    while rows := min(feed.frontier(at, size).rows, size):
        after = feed.position(json.loads(json.dumps(feed.advance(at, rows).to_facts())))
        found += open_feed(stream, columns).read(at, after)  # as a task of another process
        at = after
        ends.append(at)
    assert told(found) == told(whole)
    assert len({str(row) for row in told(found)[0]}) == len(told(whole)[0]) > 1
    before = [[int(one) for chunk in chunks for one in chunk.before] for chunks in (found, whole)]  # type: ignore[union-attr]
    assert before[0] == before[1]
    assert at == end
    assert size > 1 or any("within" in str(one.to_facts()) for one in ends)
    assert "within" not in str(end.to_facts())


def test_a_small_message_does_not_become_a_huge_one(topic: type[FakeTopic], monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands beside an array is in each of its records, and so are the base values of a pack."""
    monkeypatch.setattr(inner_records, "_MOST_BYTES", 10_000)
    array = {"beside": "x" * 900, "values": [{"t": n, "v": n} for n in range(20)]}
    pack = [{"bn": "x" * 5000, "bt": 1709629207, "v": 1}, {"n": "a", "v": 2}]
    reasons = ["its records have more than 10000 bytes", "no name or number where one is due"]
    for message, records, why in ((array, "values", reasons[0]), (pack, "senml", reasons[1])):
        topic.logs["e"] = [Log()]
        for one in (message, VALUES[1] if records == "values" else PACKS[0]):
            topic.logs["e"][0].append(json.dumps(one).encode())
        stream = Stream("e", "kafka://broker/e?format=json", records=records, time="t", schema=VALUE_TYPES)
        chunks = read(stream, "v")
        assert len(told(chunks)[0]) == (1 if records == "values" else 2)
        rejects = [reject for chunk in chunks for reject in chunk.rejects]
        assert rejects[0].text.startswith(why)


def test_a_broken_record_is_a_reject_with_the_offset_and_its_place_in_the_message(topic: type[FakeTopic]) -> None:
    for message in VALUES:
        topic.logs["e"][0].append(json.dumps(message).encode())
    stream = Stream("e", "kafka://broker/e?format=json", records="values", time="t", time_unit="ms", schema=VALUE_TYPES)
    rejects = [reject for chunk in read(stream, "v") for reject in chunk.rejects]
    assert [(one.file, one.line, one.column, one.reason, one.seq) for one in rejects] == [
        ("kafka:e/0", 2, "", "not a JSON object (record 1 of its message)", 1),
        ("kafka:e/0", 4, "v", "the value is not of type double (record 2 of its message)", 5),
    ]
    assert rejects[0].text == 'values is not there: {"site": "b"}'


def test_records_of_messages_that_are_no_json_are_refused_by_name(topic: type[FakeTopic]) -> None:
    topic.logs["e"][0].append(b"m x=1 5")
    for query, records, hint in (("csv", "values", "format=json"), ("json", "influx", "format=influx")):
        stream = Stream("e", f"kafka://broker/e?format={query}", records=records)
        with pytest.raises(ArgumentError, match=hint) as refused:
            infer_schema(stream)
        assert refused.value.name == "records"


@pytest.mark.parametrize(("message", "way"), [(b"m x=1 5", "influx"), (b'[{"bn":"a","v":1}]', "records=senml")])
def test_messages_that_are_no_objects_are_refused_with_the_way_to_read_them(
    tmp_path: Path, topic: type[FakeTopic], message: bytes, way: str
) -> None:
    topic.logs["e"][0].append(message)
    with SpoolWriter(tmp_path) as writer:
        writer.append([(b"t", message)])
    for source in ("kafka://broker/e?format=json", str(tmp_path)):
        with pytest.raises(FileFormatError, match=way):
            infer_schema(Stream("e", source))


def test_records_of_messages_with_the_frame_of_a_registry(topic: type[FakeTopic]) -> None:
    values = [b"\0\0\0\0\x07" + json.dumps(message).encode() for message in VALUES[:2]]
    stream = Stream("e", "kafka://b/e?format=json&registry=http://r", records="values", time="t", schema=VALUE_TYPES)
    records = MessageRecords("json", stream, VALUE_TYPES, "e", SchemaRegistry("http://r", {}), (5,))
    assert records.unfolding is not None
    lines = [*records.unfolding.unfolded(messages_of([*values, b"{}", None]))]
    chunk = records.chunk(lines[0], 0, 0)
    assert [row["v"] for row in chunk.tuples.to_pylist()] == [10]
    assert [reject.text for reject in chunk.rejects] == ["no schema's id before the value: {}", ""]


def test_paths_that_are_declared_are_among_all_columns(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text("".join(json.dumps(message) + "\n" for message in CHANGES))
    schema = {"payload.ts_ms": "int64", "payload.after.temp": "double"}
    stream = Stream("e", str(tmp_path / "e.json"), time="payload.ts_ms", time_unit="ms", schema=schema)
    other = Stream("o", schema={"ts": "timestamp[us]", "y": "double"})
    join = Join([stream, other], "o.y > 0", "10s")
    bound = bind(join, {one.name: infer_schema(one) for one in join.streams})
    assert bound.result_schema.names[:2] == ["e_payload_ts_ms", "e_payload_after_temp"]


@pytest.mark.parametrize("key", ["PM2.5", "payload.after.temp"])
def test_a_declared_name_with_points_is_a_key_or_a_path_whichever_comes(topic: type[FakeTopic], key: str) -> None:
    """Where a join begins before there is a message, nothing tells: then each message does."""
    schema = {"ts": "int64", key: "double"}
    streams = [
        Stream("e", "kafka://broker/e?format=json", schema=schema),
        Stream("o", schema={"ts": "timestamp[us]", "y": "double"}),
    ]
    join = Join(streams, "o.y > 0", "10s", f"e.`{key}`")
    bound = bind(join, {one.name: infer_schema(one) for one in join.streams})
    outer, inner = key.split(".")[0], key.split(".")[1:]
    held: Any = 2.5
    for part in reversed(inner):
        held = {part: held}
    for message in ({"ts": 1, key: 1.5}, {"ts": 2, outer: held}, {"ts": 3}):
        topic.logs["e"][0].append(json.dumps(message).encode())
    tuples, rejects = told(first_records(bound.join.streams[0], bound.read_schemas[0], 10))
    assert ([row[key] for row in tuples], rejects) == ([1.5, 2.5, None], [])
