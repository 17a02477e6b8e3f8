"""A topic's messages are read as the lines of a file are: with clocks, computed columns, paths, records within."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds import Stream
from streamjoin_ds.source.records import Chunk
from streamjoin_ds.source.stream_source import first_records, infer_schema
from streamjoin_ds.spec import Join, bind
from tests.support.topics import FakeTopic, fake_topics

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
