"""A hint that is followed works: each row is a call, what it is told, and the call that the hint makes of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streamjoin_ds import Join, Stream, StreamJoinError
from streamjoin_ds.blocks.store import BlockStore
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.cli.main import group
from streamjoin_ds.kafka.settings import SettingsSource
from streamjoin_ds.plan import Layout
from streamjoin_ds.script.script import Script
from streamjoin_ds.sink.maintenance import Maintenance
from streamjoin_ds.sink.reader import Follower, between
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.kafka.formats.registered_messages import SchemaRegistry
from streamjoin_ds.source.kafka.topic import KafkaUrl
from streamjoin_ds.spec import bind
from streamjoin_ds.spool.address import Address, secrets_of
from streamjoin_ds.spool.intake import Intake
from streamjoin_ds.spool.writer import SpoolLimits, SpoolWriter
from tests.sink.conftest import Join as Tables

# What is tried: flags of `explain`, a text in SQL, or a function of an empty folder.
Call: TypeAlias = str | Callable[[Path], object]

ROWS = [
    {"ts": f"2024-03-05T09:00:{n:02}Z", "x": n, "y": n / 2, "name": f"n{n}", "flag": n % 2 == 0, "day": "2024-03-05"}
    for n in range(30)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of inputs."""
    home = tmp_path_factory.mktemp("inputs")
    inputs(home)
    return home


def inputs(home: Path) -> None:
    """Put inputs into a folder, good ones and odd ones."""
    csv = "".join(",".join(map(str, row.values())) + "\n" for row in [dict(zip(ROWS[0], ROWS[0], strict=True)), *ROWS])
    for name in ("e.csv", "w.csv", "readings"):
        (home / name).write_text(csv)
    lines = [json.dumps(row) for row in ROWS]
    (home / "lines.log").write_text("\n".join(lines) + "\n")
    (home / "array.json").write_text(json.dumps(ROWS, indent=1))
    (home / "array.jsonl").write_text("\n".join(lines) + "\n")  # as jq -c '.[]' writes it
    (home / "pretty.json").write_text("\n".join(json.dumps(row, indent=1) for row in ROWS))
    (home / "semicolons.csv").write_text(csv.replace(",", ";"))
    (home / "tabs.csv").write_text(csv.replace(",", "\t"))
    (home / "odd.csv").write_text("ts,PM2.5,a b\n" + "".join(f"{row['ts']},{row['y']},{row['x']}\n" for row in ROWS))
    (home / "seconds.csv").write_text("ts,x\n" + "".join(f"{1_709_629_200 + row['x']},{row['x']}\n" for row in ROWS))
    (home / "when.csv").write_text("when,x\n" + "".join(f"{row['ts']},{row['x']}\n" for row in ROWS))
    nested = [json.dumps({"ts": row["ts"], "x": row["x"], "p": {"q": 1}}) for row in ROWS]
    (home / "nested.jsonl").write_text("\n".join(nested) + "\n")
    (home / "empty").mkdir()
    (home / "rules.csv").write_text("x,zone\n" + "".join(f"{n},z{n}\n" for n in range(30)))
    table = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "x": [1], "d": pa.array([1], pa.duration("us"))})
    pq.write_table(table, home / "durations.parquet")


def explained(folder: Path, flags: str) -> str:
    """Return what `explain` prints with these flags, and with what they leave out."""
    asked = shlex.split(flags)
    usual = {"e=": "--stream e=e.csv", "w=": "--stream w=w.csv"}
    streams = [part for part, before in zip(asked[1:], asked, strict=False) if before == "--stream"]
    asked += [
        word for name, flag in usual.items() if not any(s.startswith(name) for s in streams) for word in flag.split()
    ]
    if "--on" not in asked:
        asked += ["--on", "|e.x - w.x| <= 1"]
    if "--window" not in asked:
        asked += ["--window", "5s"]
    asked = [
        f"{name}={folder / file}"
        if before in ("--stream", "--table") and file and (folder / file.partition("?")[0]).exists()
        else part
        for before, part in zip(["", *asked], asked, strict=False)
        for name, _, file in [part.partition("=")]
    ]
    return command("explain", *asked)


def command(*words: str) -> str:
    """Return what the command line prints; raise its error."""
    done = CliRunner().invoke(group, ("--traceback", *words), prog_name="streamjoin")
    if done.exception is not None:
        raise done.exception
    return done.stdout


FLAGS: list[tuple[Call, str, str, Call]] = [
    # Files and formats.
    ("--stream e=readings", "FILE_FORMAT", "set format, for example to csv", "--stream e=readings --format e=csv"),
    ("--stream e=lines.log", "FILE_FORMAT", ".json", "--stream e=lines.log --format e=json"),
    ("--stream e=array.json", "FILE_FORMAT", "records=$ reads an array", "--stream e=array.json?records=$"),
    ("--stream e=pretty.json", "FILE_FORMAT", "objects of several lines", "--stream e=pretty.json?records=$"),
    ("--stream e=semicolons.csv", "COLUMN", "set the delimiter to ';'", "--stream e=semicolons.csv --delimiter 'e=;'"),
    ("--stream e=tabs.csv", "COLUMN", "set the delimiter to tab", "--stream e=tabs.csv --delimiter e=tab"),
    ("--stream e=empty", "FILE_MISSING", "declare the schema", "--stream e=empty --schema 'e=ts timestamp, x int64'"),
    ("--stream e=~/e.csv", "FILE_MISSING", "write $HOME/e.csv", "--stream e=e.csv"),
    (
        "--stream e=mqtt://broker/t",
        "ARGUMENT",
        "streamjoin intake makes a folder",
        "--stream e=empty --format e=spool --schema 'e=ts timestamp, x int64'",
    ),
    ("--stream e=gen:band3d", "ARGUMENT", "band2d", "--stream e=gen:band2d"),
    ("--stream e=gen:band2d?rat=5", "ARGUMENT", "rate", "--stream e=gen:band2d?rate=5"),
    ("--table z=rules.csv --table e=rules.csv", "ARGUMENT", "its own name", "--table z=rules.csv --table y=rules.csv"),
    # Columns and types.
    ("--time e=when", "COLUMN", "its columns are ts, x, y, name, flag, day", "--time e=ts"),
    ("--stream e=when.csv", "COLUMN", "its columns are when, x", "--stream e=when.csv --time e=when"),
    ("--time e=flag", "COLUMN", "a timestamp, a date, or a number with time_unit", "--time e=day"),
    (
        "--stream e=seconds.csv --time-unit sec",
        "ARGUMENT",
        "one of s, ms, us, ns",
        "--stream e=seconds.csv --time-unit e=s",
    ),
    ("--on 'e.xx = w.x'", "COLUMN", "did you mean 'x'?", "--on 'e.x = w.x'"),
    (
        "--stream e=odd.csv --on 'e.PM2.6 = w.y' --select w.x",
        "COLUMN",
        "did you mean 'PM2.5'",
        "--stream e=odd.csv --on 'e.PM2.5 = w.y' --select w.x",
    ),
    (
        "--stream e=odd.csv --on 'e.`PM2.5` = w.y' --select 'e.`a b` AS `c d`, w.x'",
        "COLUMN",
        "select='e.x AS name'",
        "--stream e=odd.csv --on 'e.`PM2.5` = w.y' --select 'e.`a b` AS name, w.x'",
    ),
    (
        "--stream e=nested.jsonl --on 'e.p.r = w.x'",
        "COLUMN",
        "'p' holds q",
        "--stream e=nested.jsonl --on 'e.p.q = w.x'",
    ),
    (
        "--stream e=nested.jsonl --on 'e.q = w.x'",
        "COLUMN",
        "did you mean 'p.q'?",
        "--stream e=nested.jsonl --on 'e.p.q = w.x'",
    ),
    (
        "--stream e=nested.jsonl --on 'e.p = w.x'",
        "PREDICATE",
        "make a field a column in the input",
        "--stream e=nested.jsonl --on 'e.x = w.x'",
    ),
    (
        "--stream e=nested.jsonl --select e.p.r",
        "COLUMN",
        "'p' holds q",
        "--stream e=nested.jsonl --select e.p.q",
    ),
    ("--stream e=durations.parquet", "COLUMN", "leave it out with select", "--stream e=durations.parquet --select e.x"),
    (
        "--schema 'e=ts instant, x int64'",
        "COLUMN",
        "timestamp[us, tz=UTC]",
        "--schema 'e=ts timestamp[us, tz=UTC], x int64'",
    ),
    # Conditions.
    ("--on 'x = w.x'", "PREDICATE_SYNTAX", "did you mean e.x?", "--on 'e.x = w.x'"),
    ("--on 'e.x = q.x'", "ARGUMENT", "the streams are e, w", "--on 'e.x = w.x'"),
    ("--on 'e.name < w.x'", "PREDICATE", "CAST(e.name AS DOUBLE)", "--on 'CAST(e.name AS DOUBLE) < w.x'"),
    ("--on 'e.ts = w.x'", "PREDICATE", "CAST(e.ts AS BIGINT) its seconds", "--on 'CAST(e.ts AS BIGINT) = w.x'"),
    ("--on 'w.day = e.x'", "PREDICATE", "CAST(w.day AS STRING)", "--on 'CAST(w.day AS STRING) = e.name'"),
    ("--on 'e.flag = w.x'", "PREDICATE", "CAST one of them", "--on 'CAST(e.flag AS INT) = w.x'"),
    (
        "--on '|e.ts - w.ts| <= 5'",
        "PREDICATE",
        "write INTERVAL 5 SECONDS",
        "--on '|e.ts - w.ts| <= INTERVAL 5 SECONDS'",
    ),
    ("--on '|e.name - w.name| <= 1'", "PREDICATE", "can only be equal", "--on 'e.name = w.name'"),
    ("--on 'e.x = w.x' --where 'q: x > 5'", "ARGUMENT", "the streams are e, w", "--where 'e: x > 5'"),
    ("--where 'w.x > e.x'", "ARGUMENT", "belong in on", "--on 'w.x > e.x'"),
    ("--where 'x > 5'", "PREDICATE_SYNTAX", "such as e.x", "--where 'e.x > 5'"),
    ("--where e.x", "PREDICATE", "compare it with something", "--where 'e.x > 5'"),
    # What is selected, and which rows there are.
    ("--select x", "ARGUMENT", "write stream.column", "--select e.x"),
    ("--select 'e.x - w.x'", "COLUMN", "write e.x - w.x AS name", "--select 'e.x - w.x AS name'"),
    ("--select 'e.x AS event_time'", "COLUMN", "give it another name", "--select 'e.x AS name'"),
    ("--select 'e.x AS a, w.x AS A'", "COLUMN", "give it another name", "--select 'e.x AS a, w.x AS name'"),
    ("--select 'count(e.x)'", "PREDICATE_SYNTAX", "an aggregate stands in reduce", "--reduce 'n=count(e.x)'"),
    ("--reduce e_x=count(*)", "COLUMN", "give it another name", "--reduce n=count(*)"),
    ("--reduce 'n=median(w.x)'", "PREDICATE_SYNTAX", "write quantile(x, 0.5)", "--reduce 'n=quantile(w.x, 0.5)'"),
    ("--reduce 'n=sum(w.name)'", "COLUMN", "takes integers, floats and decimals", "--reduce 'n=sum(w.x)'"),
    ("--reduce 'n=count(*)' --how anti", "ARGUMENT", "left all", "--reduce 'n=count(*)' --how left"),
    ("--reduce 'n=count(*)' --nearest 1", "ARGUMENT", "arg_min(x, by)", "--reduce 'n=arg_min(w.x, abs(e.x - w.x))'"),
    ("--nearest 1 --how right", "ARGUMENT", "left gives them a row", "--nearest 1 --how left"),
    ("--nearest 2 --nearest-by e.name", "PREDICATE", "abs(e.x - w.x)", "--nearest 2 --nearest-by 'abs(e.x - w.x)'"),
    ("--nearest-direction backward", "ARGUMENT", "nearest = 1", "--nearest 1 --nearest-direction backward"),
    # Windows and times.
    ("--window 5", "ARGUMENT", "'15s'", "--window 15s"),
    ("--window last", "WINDOW", "'last 1000'", "--window 'last 1000'"),
    ("--window 'every 10s'", "WINDOW", "'every 10s for 60s'", "--window 'every 10s for 60s'"),
    ("--window e=5s", "WINDOW", "or one for each", "--window e=5s,w=0s"),
    (
        "--window 'e=every 10s for 60s,w=every 5s for 60s'",
        "WINDOW",
        "the same 'every'",
        "--window 'e=every 10s for 60s,w=every 10s for 30s'",
    ),
    ("--delay 5", "ARGUMENT", "'15s'", "--delay 15s"),
    ("--idle-timeout 0s", "ARGUMENT", "'10m'", "--idle-timeout 10m"),
    ("--max-delay soon", "ARGUMENT", "'15s'", "--max-delay 15s"),
    # How the engine works.
    ("--layout 3x3x3", "LAYOUT", "for example 2x2", "--layout 2x2"),
    ("--layout wide", "LAYOUT", "auto, grid, ranges", "--layout grid"),
    ("--index btree", "ARGUMENT", "auto, scan", "--index scan"),
    ("--order w,q", "ARGUMENT", "all of e, w", "--order w,e"),
    ("--unique e=q", "COLUMN", "its columns are ts, x", "--unique e=x"),
    ("--partition-by e=gadget", "COLUMN", "partition_by is file, folder, or columns", "--partition-by e=file"),
    ("--file-order size", "ARGUMENT", "one of name, modified", "--file-order modified"),
    ("--on-bad-file skip", "ARGUMENT", "one of stop, quarantine", "--on-bad-file quarantine"),
    ("--delimiter e=ab", "ARGUMENT", "tab, or blanks", "--delimiter 'e=,'"),
    ("--rate e=fast", "ARGUMENT", "for example 20000", "--rate e=20000"),
    ("--refresh 1m", "ARGUMENT", "give --table NAME=SOURCE", "--refresh 1m --table z=rules.csv"),
]


def test_all_columns_are_selected_by_a_star(folder: Path) -> None:
    plain = explained(folder, "")
    assert explained(folder, "--select '*'") == plain
    assert "e_x, e_y, e_name, e_flag, e_day, w_x, e_seq" in explained(folder, "--select 'e.*, w.x'")


MADE = "CREATE STREAM e WITH (source = '{0}/e.csv'); CREATE STREAM w WITH (source = '{0}/w.csv'); "
NEAR = "FROM e JOIN w ON e.x = w.x AND e.ts BETWEEN w.ts - INTERVAL 15 SECONDS AND w.ts + INTERVAL 15 SECONDS"
TEXTS: list[tuple[Call, str, str, Call]] = [
    ("SELECT x " + NEAR, "SQL_SYNTAX", "write e.x or w.x", "SELECT e.x " + NEAR),
    ("SELECT e.x FROM e JOIN w ON e.x = w.x", "SQL_SYNTAX", NEAR.partition(" = w.x ")[2], "SELECT e.x " + NEAR),
    (
        "SELECT e.x FROM e JOIN w ON e.x = w.x AND w.ts >= e.ts",
        "SQL_SYNTAX",
        "AND w.ts <= e.ts + INTERVAL 15 SECONDS",
        "SELECT e.x FROM e JOIN w ON e.x = w.x AND w.ts >= e.ts AND w.ts <= e.ts + INTERVAL 15 SECONDS",
    ),
    ("SELECT e.x + w.x " + NEAR, "SQL_SYNTAX", "write e.x + w.x AS name", "SELECT e.x + w.x AS name " + NEAR),
    ("SELECT count(*) " + NEAR, "SQL_SYNTAX", "AS and a name", "SELECT count(*) AS n " + NEAR + " GROUP BY e.seq"),
    (
        "SELECT count(*) AS n " + NEAR,
        "SQL_SYNTAX",
        "write GROUP BY e.seq",
        "SELECT count(*) AS n " + NEAR + " GROUP BY e.seq",
    ),
    (
        "SELECT e.x, count(*) AS n " + NEAR + " GROUP BY e.x",
        "SQL_SYNTAX",
        "write GROUP BY e.seq",
        "SELECT e.x, count(*) AS n " + NEAR + " GROUP BY e.seq",
    ),
    (
        "SELECT e.x " + NEAR + " GROUP BY e.seq",
        "SQL_SYNTAX",
        "write LEFT SEMI JOIN",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT SEMI JOIN"),
    ),
    ("SELECT e.x FROM e JOIN w USING (x)", "SQL_SYNTAX", "write ON e.id = w.id", "SELECT e.x " + NEAR),
    (
        "SELECT e.x FROM e WHERE e.x IN (SELECT x FROM w)",
        "SQL_SYNTAX",
        "FROM e LEFT SEMI JOIN w ON",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT SEMI JOIN"),
    ),
    (
        "SELECT w.x " + NEAR.replace("JOIN", "LEFT ANTI JOIN"),
        "COLUMN",
        "select columns of e",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT ANTI JOIN"),
    ),
    (
        "SELECT e.x FROM e ASOF JOIN w ON e.x = w.x",
        "SQL_SYNTAX",
        "MATCH_CONDITION (e.ts >= w.ts)",
        "SELECT e.x FROM e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON e.x = w.x AND e.ts <= w.ts + INTERVAL 1 HOUR",
    ),
    (
        "CREATE STREAM q WITH (sources = 'x')",
        "SQL_SYNTAX",
        "did you mean 'source'?",
        "CREATE STREAM q WITH (source = 'x')",
    ),
    ("CREATE STREAM q WITH (source = x)", "SQL_SYNTAX", "a value: 'text'", "CREATE STREAM q WITH (source = 'x')"),
    ("CREATE STREAM e WITH (source = 'x')", "SQL_SYNTAX", "its own name", "CREATE STREAM q WITH (source = 'x')"),
    ("SET cells = many", "ARGUMENT", "give a whole number", "SET cells = 4"),
    ("SET available_now = yes", "ARGUMENT", "give true or false", "SET available_now = true"),
    ("SET max_delay = 5", "ARGUMENT", '"500ms"', 'SET max_delay = "500ms"'),
]


def read(folder: Path, text: str) -> None:
    for step in Script(MADE.format(folder) + text).steps:
        step.asked.joined()


def topic(url: str) -> Call:
    """Return the reading of the URL of a topic; no broker is asked."""
    return lambda _: KafkaUrl.parse(f"kafka://{url}")


TOPICS: list[tuple[Call, str, str, Call]] = [
    (
        "--stream e=kafka:/b/t",
        "ARGUMENT",
        "kafka://broker:9092/topic?format=json",
        topic("broker:9092/topic?format=json"),
    ),
    (topic("b/t"), "ARGUMENT", "format=json", topic("b/t?format=json")),
    (topic("b/t?format=xml"), "ARGUMENT", "one of json, csv", topic("b/t?format=csv")),
    (topic("b:x/t?format=json"), "ARGUMENT", "kafka://broker:9092/topic", topic("broker:9092/topic?format=json")),
    (topic("b/a b?format=json"), "ARGUMENT", "underscores and dashes", topic("b/a_b?format=json")),
    (topic("me:x@b/t?format=json"), "ARGUMENT", "settings=FILE", topic("b/t?format=json&settings=FILE")),
    (topic("b/t?format=json&sasl.username=x"), "ARGUMENT", "settings_env=N", topic("b/t?format=json&settings_env=N")),
    (topic("b/t?format=json&format=csv"), "ARGUMENT", "say it once", topic("b/t?format=json")),
    (topic("b/t?format=json&start="), "ARGUMENT", "leave it out", topic("b/t?format=json")),
    (topic("b/t?format=json&start=monday"), "ARGUMENT", "latest", topic("b/t?format=json&start=latest")),
    (topic("b/t?format=json&on_data_loss=go"), "ARGUMENT", "stop, skip", topic("b/t?format=json&on_data_loss=skip")),
    (topic("b/t?format=json&headers=a,a"), "ARGUMENT", "headers=trace,device", topic("b/t?format=json&headers=a,b")),
    (
        topic("b/t?format=avro"),
        "ARGUMENT",
        "format=avro&registry=http://registry:8081",
        topic("b/t?format=avro&registry=http://registry:8081"),
    ),
    (topic("b/t?format=json&reject_schemas=3"), "ARGUMENT", "leave it out", topic("b/t?format=json")),
    (
        topic("b/t?format=avro&registry=http://r:8081&reject_schemas=x"),
        "ARGUMENT",
        "reject_schemas=77,1634952",
        topic("b/t?format=avro&registry=http://r:8081&reject_schemas=77,1634952"),
    ),
    (
        lambda _: SchemaRegistry("registry:8081", {}),
        "ARGUMENT",
        "registry=http://registry:8081",
        lambda _: SchemaRegistry("http://registry:8081", {}),
    ),
]


def settings(text: str, **variables: str) -> Call:
    """Return the reading of a file of Kafka's settings."""

    def call(folder: Path) -> object:
        (folder / "settings").write_text(text)
        return SettingsSource(str(folder / "settings")).read(variables)

    return call


SETTINGS: list[tuple[Call, str, str, Call]] = [
    (
        settings("security.protocol SASL_SSL"),
        "ARGUMENT",
        "security.protocol=SASL_SSL",
        settings("security.protocol=ssl"),
    ),
    (settings("enable.auto.commit=true"), "ARGUMENT", "leave it out", settings("")),
    (settings("client.id=${ID}"), "ARGUMENT", "export ID", settings("client.id=${ID}", ID="me")),
]


def intake(address: str, *, secrets: str | None = None, **options: Any) -> Call:
    """Return the start of an intake that is told to end at once."""

    def call(folder: Path) -> object:
        (folder / "secrets").write_text(secrets or "")
        given = secrets_of(None if secrets is None else folder / "secrets", options.pop("environment", {}))
        taken = Intake(Address.parse(address), folder / "spool", given, SpoolLimits(), say=len, **options)
        taken.stop()
        return taken.run()

    return call


def two_writers(folder: Path, other: str) -> None:
    with SpoolWriter(folder / "spool"), SpoolWriter(folder / other):
        pass


HTTP, OPEN, BROKER = "http://127.0.0.1:0/in", "http://0.0.0.0:0/in", "kafka://127.0.0.1:1/t"
INTAKES: list[tuple[Call, str, str, Call]] = [
    (intake("127.0.0.1:8080/in"), "ARGUMENT", "mqtt://broker:1883/site/+/readings", intake("mqtt://127.0.0.1:1/a/+/b")),
    (intake("amqp://127.0.0.1/in"), "ARGUMENT", "http://", intake(HTTP)),
    (intake("http://127.0.0.1:port/in"), "ARGUMENT", "http://127.0.0.1:8080/topic", intake(HTTP)),
    (intake("mqtt://127.0.0.1:1/a/#/b"), "ARGUMENT", "stands at the end only", intake("mqtt://127.0.0.1:1/a/#")),
    (
        intake("mqtt://me:x@127.0.0.1:1/a"),
        "ARGUMENT",
        "by --secrets",
        intake("mqtt://127.0.0.1:1/a", secrets="user = 'me'"),
    ),
    (intake("kafka://me:x@b/t"), "ARGUMENT", "?settings=FILE", lambda _: Address.parse("kafka://b/t?settings=FILE")),
    (intake("kafka://b:x/t"), "ARGUMENT", "kafka://broker:9092", lambda _: Address.parse("kafka://broker:9092/t")),
    (
        intake("kafka://b/t?format=json"),
        "ARGUMENT",
        "settings=FILE",
        lambda _: Address.parse("kafka://b/t?settings=FILE"),
    ),
    (
        intake("kafka://b/t?start=monday"),
        "ARGUMENT",
        "earliest, latest",
        lambda _: Address.parse("kafka://b/t?start=latest"),
    ),
    (
        intake(BROKER, secrets="token = 'x'"),
        "ARGUMENT",
        "give user and password",
        intake(BROKER, secrets="user = 'x'\npassword = 'y'"),
    ),
    (intake(HTTP, secrets="token = x"), "ARGUMENT", "user = '...'", intake(HTTP, secrets="token = 'x'")),
    (intake(HTTP, secrets="tokens = 'x'"), "ARGUMENT", "user, password, token", intake(HTTP, secrets="token = 'x'")),
    (intake("mqtt://127.0.0.1:1/a", is_open=True), "ARGUMENT", "leave it out", intake("mqtt://127.0.0.1:1/a")),
    (intake(OPEN), "INTAKE", "--open takes", intake(OPEN, is_open=True)),
    (intake(OPEN), "INTAKE", "set STREAMJOIN_INTAKE_TOKEN", intake(OPEN, environment={"STREAMJOIN_INTAKE_TOKEN": "x"})),
    (intake("http://203.0.113.1:0/in", is_open=True), "INTAKE", "such as 127.0.0.1", intake(HTTP)),
    (partial(two_writers, other="spool"), "SPOOL_IN_USE", "another folder", partial(two_writers, other="another")),
]


def with_join(call: Callable[[Tables], object], batches: int = 2) -> Call:
    """Return a call that is given the tables of a join that has committed some batches."""

    def made(folder: Path) -> object:
        join = Tables(str(folder / "matches"))
        committer = join.committer()
        for batch in range(batches):
            join.commit(committer, batch)
        return call(join)

    return made


def begun(name: str, **identity: str) -> Call:
    """Return the start of another join into the table of that name, where ``matches`` is the former one's."""
    return with_join(lambda join: Tables(join.root.replace("matches", name)).committer(**identity))


AWARE = datetime(1970, 1, 1, tzinfo=timezone.utc)
TABLES: list[tuple[Call, str, str, Call]] = [
    (lambda _: TableSet(""), "ARGUMENT", "s3://bucket/folder/name", lambda _: TableSet("s3://bucket/folder/name")),
    (lambda _: TableSet("file://h/m"), "ARGUMENT", "such as /data/matches", lambda _: TableSet("/data/matches")),
    (lambda _: TableSet("/data/a%20b"), "ARGUMENT", "with its spaces", lambda _: TableSet("/data/a b")),
    (lambda _: TableSet("/"), "ARGUMENT", "such as /data/matches", lambda _: TableSet("/data/matches")),
    (lambda _: TableSet("m").path_of("too_late"), "ARGUMENT", "one of late,", lambda _: TableSet("m").path_of("late")),
    (
        lambda _: Maintenance(TableSet("m"), every_batches=0),
        "ARGUMENT",
        "1 or more",
        lambda _: Maintenance(TableSet("m"), every_batches=1),
    ),
    (
        lambda f: between(str(f), 0, 1),
        "TABLE",
        "matches table of a join",
        with_join(lambda join: between(join.root, 0, 1)),
    ),
    (
        with_join(lambda join: between(join.root, datetime(1970, 1, 1), 1)),
        "ARGUMENT",
        "an aware datetime",
        with_join(lambda join: between(join.root, AWARE, 1)),
    ),
    (
        with_join(lambda join: between(join.root, 0, 10**9)),
        "PUNCTUATION",
        "an earlier end",
        with_join(lambda join: between(join.root, 0, 2000)),
    ),
    (
        with_join(lambda join: Follower(join.root, since=1000, from_version=1)),
        "ARGUMENT",
        "Follower(root, since=",
        with_join(lambda join: Follower(join.root, since=1000)),
    ),
    (
        with_join(lambda join: Follower(join.root, from_version=9, in_order=False)),
        "ARGUMENT",
        "give at most 3",
        with_join(lambda join: list(Follower(join.root, from_version=3, in_order=False).poll())),
    ),
    (begun("matches", fingerprint="f2"), "FINGERPRINT_MISMATCH", "a new table", begun("new", fingerprint="f2")),
    (
        begun("matches", join_id="j2"),
        "FOREIGN_CHECKPOINT",
        "a new table and a new checkpoint",
        begun("new", join_id="j2"),
    ),
]


def checkpoint(call: Callable[[Path], object], change: Callable[[dict[str, Any]], object] = len) -> Call:
    """Return a call that is given a checkpoint of a join, whose facts are changed before."""

    def made(folder: Path) -> object:
        schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
        join = Join([Stream(name, schema=schema) for name in "ew"], "e.x = w.x", "5s")
        CheckpointIdentity.create(folder / "c", bind(join, dict.fromkeys("ew", schema)), Layout((1, 1)), 1)
        facts = json.loads((folder / "c" / "join.json").read_bytes())
        change(facts)
        (folder / "c" / "join.json").write_text(json.dumps(facts))
        return call(folder / "c")

    return made


def foreign(folder: Path) -> object:
    (folder / "offsets").mkdir()
    return CheckpointIdentity.load(folder)


CHECKPOINTS: list[tuple[Call, str, str, Call]] = [
    (
        lambda _: checkpoint_place("gs://b/c"),
        "ARGUMENT",
        "s3a://bucket/folder",
        lambda _: checkpoint_place("s3a://b/c"),
    ),
    (lambda _: checkpoint_place("s3a://b"), "ARGUMENT", "s3a://bucket/folder", lambda _: checkpoint_place("s3a://b/c")),
    (
        lambda _: checkpoint_place("s3a://b/c?region=x"),
        "ARGUMENT",
        "give s3a://bucket/folder",
        lambda _: checkpoint_place("s3a://b/c"),
    ),
    (foreign, "FOREIGN_CHECKPOINT", "a checkpoint of its own", checkpoint(CheckpointIdentity.load)),
    (
        checkpoint(CheckpointIdentity.load, lambda facts: facts.update(partitions=2)),
        "STATE_CORRUPT",
        "from a spare copy",
        checkpoint(CheckpointIdentity.load),
    ),
    (
        lambda f: command("vacuum", str(f)),
        "FOREIGN_CHECKPOINT",
        "streamjoin run",
        checkpoint(lambda c: command("vacuum", str(c))),
    ),
    (
        checkpoint(lambda c: command("repair", str(c))),
        "ARGUMENT",
        "--to PATH",
        checkpoint(lambda c: command("repair", str(c), "--to", f"{c}/matches")),
    ),
    (
        lambda f: BlockStore(str(f)).write("../a", pa.table({"x": [1]})),
        "ARGUMENT",
        "letters, digits and dashes",
        lambda f: BlockStore(str(f)).write("a", pa.table({"x": [1]})),
    ),
]

ROWS_OF_ALL = [*FLAGS, *TEXTS, *TOPICS, *SETTINGS, *INTAKES, *TABLES, *CHECKPOINTS]


@pytest.mark.parametrize(
    ("call", "code", "hint", "followed"),
    ROWS_OF_ALL,
    ids=[row[0][:70] if isinstance(row[0], str) else row[2] for row in ROWS_OF_ALL],
)
def test_a_hint_leads_somewhere(folder: Path, tmp_path: Path, call: Call, code: str, hint: str, followed: Call) -> None:
    def tried(what: Call, name: str) -> None:
        if not isinstance(what, str):
            (tmp_path / name).mkdir()
            what(tmp_path / name)
        elif what.startswith("--"):
            explained(folder, what)
        else:
            read(folder, what)

    with pytest.raises(StreamJoinError) as told:
        tried(call, "told")
    assert told.value.code == code
    assert hint in told.value.hint
    tried(followed, "followed")
