"""Records inside of envelopes, by options alone: the rows of DuckDB over the same records, cleaned by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.cli.main import group
from streamjoin_ds.stream.local_query import start_local
from streamjoin_ds.stream.query_options import QueryOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 3, 5, 9, tzinfo=timezone.utc)
COUNT = 24


def _seconds(n: int) -> float:
    return START.timestamp() + n + 0.12


@dataclass(frozen=True)
class Envelope:
    """A form in which records lie: its text, the options that read it, and its value and name as columns."""

    text: str
    options: dict[str, Any]
    value: str
    name: str = "'a'"


def _lines(records: list[Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in records)


EVERY = range(COUNT)
FEATURES = [
    {
        "type": "Feature",
        "properties": {"time": int(_seconds(n) * 1000), "place": f"d{n % 3}"},
        "geometry": {"type": "Point", "coordinates": [1.5, float(n), 10]},
    }
    for n in EVERY
]
VALUES = [{"id": f"d{n % 3}", "v": float(n), "q": True, "t": int(_seconds(n) * 1000)} for n in EVERY]
CHANGES = [
    {
        "before": None,
        "after": {"id": f"d{n % 3}", "temp": float(n)},
        "op": "cu"[n % 2],
        "ts_ms": int(_seconds(n) * 1000),
    }
    for n in EVERY
]
PACKS = [[{"bn": f"d{n % 3}", "bt": _seconds(n), "n": "", "u": "Cel", "v": float(n)}] for n in EVERY]
MILLIS = {"time_unit": "ms"}
ENVELOPES = {
    "tasmota": Envelope(
        _lines(
            [
                {
                    "Time": datetime.fromtimestamp(_seconds(n), timezone.utc).isoformat(),
                    "BME280": {"Temperature": float(n), "Id": f"d{n % 3}"},
                    "TempUnit": "C",
                }
                for n in EVERY
            ]
        ),
        {"time": "Time"},
        "w.BME280.Temperature",
        "w.BME280.Id",
    ),
    "shelly": Envelope(
        _lines(
            [
                {"src": f"d{n % 3}", "params": {"ts": _seconds(n), "switch:0": {"id": 0, "apower": float(n)}}}
                for n in EVERY
            ]
        ),
        {"time": "params.ts", "time_unit": "s"},
        "w.params.`switch:0`.apower",
        "w.src",
    ),
    "debezium": Envelope(
        _lines([{"payload": one} for one in CHANGES]),
        {"time": "payload.ts_ms", **MILLIS},
        "w.payload.after.temp",
        "w.payload.after.id",
    ),
    "debezium with its schema": Envelope(
        _lines([{"schema": {"type": "struct", "fields": [{"field": "a"}]}, "payload": one} for one in CHANGES]),
        {"time": "payload.ts_ms", **MILLIS, "where": "payload.op IN ('c', 'u')"},
        "w.payload.after.temp",
        "w.payload.after.id",
    ),
    "kepserver": Envelope(
        _lines([{"timestamp": 1, "values": VALUES[at : at + 4]} for at in range(0, COUNT, 4)]),
        {"records": "values", "time": "t", **MILLIS},
        "w.v",
        "w.id",
    ),
    "senml": Envelope(_lines(PACKS), {"records": "senml", "time": "t", "time_unit": "s"}, "w.v", "w.n"),
    "the things network": Envelope(
        _lines(
            [
                {
                    "end_device_ids": {"device_id": f"d{n % 3}"},
                    "received_at": datetime.fromtimestamp(_seconds(n), timezone.utc).strftime(
                        "%Y-%m-%dT%H:%M:%S.%f789Z"
                    ),
                    "uplink_message": {
                        "decoded_payload": {"t": 1},
                        "rx_metadata": [{"rssi": float(n)}, {"rssi": -101}],
                    },
                }
                for n in EVERY
            ]
        ),
        {"time": "received_at"},
        "w.uplink_message.rx_metadata[0].rssi",
        "w.end_device_ids.device_id",
    ),
    "an array": Envelope(json.dumps(VALUES, indent=1), {"records": "$", "time": "t", **MILLIS}, "w.v", "w.id"),
    "pretty objects": Envelope(
        "\n".join(json.dumps(one, indent=2) for one in VALUES), {"records": "$", "time": "t", **MILLIS}, "w.v", "w.id"
    ),
    "rows under names": Envelope(
        json.dumps({"fields": ["t", "pm2.5", "id"], "data": [[one["t"], one["v"], one["id"]] for one in VALUES]}),
        {"records": "fields/data", "time": "t", **MILLIS},
        "w.`pm2.5`",
        "w.id",
    ),
    "geojson": Envelope(
        json.dumps({"type": "FeatureCollection", "metadata": {"count": COUNT}, "features": FEATURES}),
        {"records": "features", "time": "properties.time", **MILLIS},
        "w.geometry.coordinates[1]",
        "w.properties.place",
    ),
}


def expected() -> list[tuple[Any, ...]]:
    """Return what DuckDB finds over the records as a table."""
    rows = [(START + timedelta(seconds=n + 0.12), float(n), f"d{n % 3}") for n in EVERY]
    beside = [(START + timedelta(seconds=n), float(n)) for n in EVERY]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE w (ts TIMESTAMPTZ, v DOUBLE, id VARCHAR)")
        database.execute("CREATE TABLE r (ts TIMESTAMPTZ, x DOUBLE)")
        database.executemany("INSERT INTO w VALUES (?, ?, ?)", rows)
        database.executemany("INSERT INTO r VALUES (?, ?)", beside)
        return database.execute(
            "SELECT w.v, w.id, r.x FROM w JOIN r ON abs(w.v - r.x) <= 1 AND abs(epoch_us(w.ts) - epoch_us(r.ts)) <= 1e6"
            " ORDER BY ALL"
        ).fetchall()


def _inputs(folder: Path, envelope: Envelope) -> tuple[Path, Path]:
    (folder / "w.json").write_text(envelope.text)
    beside = "".join(f"{(START + timedelta(seconds=n)).isoformat()},{float(n)}\n" for n in EVERY)
    (folder / "r.csv").write_text("ts,x\n" + beside)
    return folder / "w.json", folder / "r.csv"


def found(folder: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(folder / "out")).to_pyarrow_table().select(["v", "id", "r_x"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("name", ENVELOPES)
def test_in_python(tmp_path: Path, name: str) -> None:
    envelope = ENVELOPES[name]
    w, r = _inputs(tmp_path, envelope)
    streams = [Stream("w", w, **envelope.options), Stream("r", r)]
    select = [f"{envelope.value} AS v", f"{envelope.name} AS id", "r.x"]
    join = StreamJoin(streams, f"abs({envelope.value} - r.x) <= 1", "1s", select=select)
    query = start_local(join, str(tmp_path / "out"), str(tmp_path / "checkpoint"), QueryOptions(available_now=True))
    assert query.awaitTermination(60)
    assert found(tmp_path) == expected()


def _run(*words: str) -> None:
    done = CliRunner().invoke(group, [*words], prog_name="streamjoin")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", ["shelly", "kepserver"])
def test_on_the_command_line(tmp_path: Path, name: str) -> None:
    envelope = ENVELOPES[name]
    w, r = _inputs(tmp_path, envelope)
    told = "&".join(f"{option}={value}" for option, value in envelope.options.items())
    _run(
        "run", "--local", "--available-now", "--stream", f"w={w}?{told}", "--stream", f"r={r}",
        "--on", f"|{envelope.value} - r.x| <= 1", "--window", "1s",
        "--select", f"{envelope.value} AS v, {envelope.name} AS id, r.x",
        "--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint"),
    )  # fmt: skip
    assert found(tmp_path) == expected()


@pytest.mark.parametrize("name", ["debezium with its schema", "senml"])
def test_in_toml(tmp_path: Path, name: str) -> None:
    envelope = ENVELOPES[name]
    w, r = _inputs(tmp_path, envelope)
    lines = [f"on = {json.dumps(f'abs({envelope.value} - r.x) <= 1')}", 'window = "1s"']
    lines += [f"select = {json.dumps([f'{envelope.value} AS v', f'{envelope.name} AS id', 'r.x'])}"]
    lines += [f"to = {json.dumps(str(tmp_path / 'out'))}", f"checkpoint = {json.dumps(str(tmp_path / 'checkpoint'))}"]
    lines += ["[streams.w]", f"source = {json.dumps(str(w))}"]
    lines += [f"{option} = {json.dumps(value)}" for option, value in envelope.options.items()]
    (tmp_path / "join.toml").write_text("\n".join([*lines, "[streams.r]", f"source = {json.dumps(str(r))}", ""]))
    _run("run", "--local", "--available-now", "--config", str(tmp_path / "join.toml"))
    assert found(tmp_path) == expected()


@pytest.mark.parametrize("name", ["shelly", "the things network"])
def test_in_sql(tmp_path: Path, name: str) -> None:
    envelope = ENVELOPES[name]
    w, r = _inputs(tmp_path, envelope)
    told = ", ".join(f"{option} = '{value}'" for option, value in envelope.options.items())
    time = "w.`" + envelope.options["time"] + "`"
    (tmp_path / "join.sql").write_text(
        f"CREATE STREAM w WITH (source = '{w}', {told}); CREATE STREAM r WITH (source = '{r}');"
        f"INSERT INTO '{tmp_path / 'out'}' WITH (checkpoint = '{tmp_path / 'checkpoint'}', available_now = true) "
        f"SELECT {envelope.value} AS v, {envelope.name} AS id, r.x FROM w JOIN r ON abs({envelope.value} - r.x) <= 1 "
        f"AND {time} BETWEEN r.ts - INTERVAL 1 SECOND AND r.ts + INTERVAL 1 SECOND"
    )
    _run("sql", "--local", str(tmp_path / "join.sql"))
    assert found(tmp_path) == expected()


def test_over_a_dataframe(tmp_path: Path, spark: SparkSession) -> None:
    envelope = ENVELOPES["the things network"]
    w, r = _inputs(tmp_path, envelope)
    frames = {
        "w": spark.read.json(str(w)).selectExpr("*", "to_timestamp(received_at) AS at"),
        "r": spark.read.csv(str(r), header=True, schema="ts TIMESTAMP, x DOUBLE"),
    }
    schemas = {"w": Stream("w", time="at"), "r": Stream("r")}
    select = [f"{envelope.value} AS v", f"{envelope.name} AS id", "r.x"]
    join = StreamJoin([*schemas.values()], f"abs({envelope.value} - r.x) <= 1", "1s", select=select)
    rows = join.dataframe(frames).select("v", "id", "r_x").collect()
    assert sorted(map(tuple, rows)) == expected()
