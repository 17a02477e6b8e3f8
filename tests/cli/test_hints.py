"""A hint that is followed works: each row is a call, what it is told, and the call that the hint makes of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from streamjoin_ds import StreamJoinError
from streamjoin_ds.cli.main import group
from streamjoin_ds.script.started import Script

ROWS = [
    {"ts": f"2024-03-05T09:00:{n:02}Z", "x": n, "y": n / 2, "name": f"n{n}", "flag": n % 2 == 0, "day": "2024-03-05"}
    for n in range(30)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of inputs, good ones and odd ones."""
    home = tmp_path_factory.mktemp("inputs")
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
    return home


def explained(folder: Path, flags: str) -> Result:
    """Run `explain` with these flags, and with what they leave out."""
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
        f"{name}={folder / file}" if before in ("--stream", "--table") and (folder / file).exists() and file else part
        for before, part in zip(["", *asked], asked, strict=False)
        for name, _, file in [part.partition("=")]
    ]
    return CliRunner().invoke(group, ("explain", *asked), prog_name="streamjoin")


CALLS = [
    # Files and formats.
    ("--stream e=readings", "FILE_FORMAT", "set format, for example to csv", "--stream e=readings --format e=csv"),
    ("--stream e=lines.log", "FILE_FORMAT", ".json", "--stream e=lines.log --format e=json"),
    ("--stream e=array.json", "FILE_FORMAT", "jq -c .[] writes such lines", "--stream e=array.jsonl"),
    ("--stream e=pretty.json", "FILE_FORMAT", "jq -c . writes such lines", "--stream e=array.jsonl"),
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
        "--stream e=odd.csv --on 'e.PM2.5 = w.y' --select w.x",
        "PREDICATE_SYNTAX",
        "write e.`PM2.5`",
        "--stream e=odd.csv --on 'e.`PM2.5` = w.y' --select w.x",
    ),
    (
        "--stream e=odd.csv --on 'e.`PM2.5` = w.y'",
        "COLUMN",
        "select='e.x AS name'",
        "--stream e=odd.csv --on 'e.`PM2.5` = w.y' --select 'e.`a b` AS name, w.x'",
    ),
    (
        "--stream e=nested.jsonl --on 'e.p.q = w.x'",
        "PREDICATE_SYNTAX",
        "make it a column in the input",
        "--stream e=nested.jsonl --on 'e.x = w.x'",
    ),
    (
        "--stream e=nested.jsonl --on 'e.p = w.x'",
        "PREDICATE",
        "make a field a column in the input",
        "--stream e=nested.jsonl --on 'e.x = w.x'",
    ),
    (
        "--stream e=nested.jsonl --select e.p.q",
        "COLUMN",
        "make 'p.q' a column before",
        "--stream e=nested.jsonl --select e.p",
    ),
    ("--stream e=durations.parquet", "COLUMN", "leave it out with select", "--stream e=durations.parquet --select e.x"),
    (
        "--schema 'e=ts instant, x int64'",
        "COLUMN",
        "timestamp[us, tz=UTC]",
        "--schema 'e=ts timestamp[us, tz=UTC], x int64'",
    ),
    # Conditions.
    ("--on 'x = w.x'", "PREDICATE_SYNTAX", "such as e.x", "--on 'e.x = w.x'"),
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
    ("--partition-by e=x", "ARGUMENT", "one of file, folder", "--partition-by e=file"),
    ("--file-order size", "ARGUMENT", "one of name, modified", "--file-order modified"),
    ("--on-bad-file skip", "ARGUMENT", "one of stop, quarantine", "--on-bad-file quarantine"),
    ("--delimiter e=ab", "ARGUMENT", "or tab", "--delimiter 'e=,'"),
    ("--rate e=fast", "ARGUMENT", "for example 20000", "--rate e=20000"),
    ("--refresh 1m", "ARGUMENT", "give --table NAME=SOURCE", "--refresh 1m --table z=rules.csv"),
]


@pytest.mark.parametrize(("call", "code", "hint", "followed"), CALLS, ids=[call[0] for call in CALLS])
def test_a_hint_of_the_command_line_leads_somewhere(
    folder: Path, call: str, code: str, hint: str, followed: str
) -> None:
    told = explained(folder, call)
    assert told.exit_code == 2, told.output
    assert f"streamjoin: {code}: " in told.stderr
    assert hint in told.stderr.partition(" Hint: ")[2], told.stderr
    done = explained(folder, followed)
    assert done.exit_code == 0, done.output


def test_all_columns_are_selected_by_a_star(folder: Path) -> None:
    plain = explained(folder, "").stdout
    assert explained(folder, "--select '*'").stdout == plain
    assert "e_x, e_y, e_name, e_flag, e_day, w_x, e_seq" in explained(folder, "--select 'e.*, w.x'").stdout


MADE = "CREATE STREAM e WITH (source = '{0}/e.csv'); CREATE STREAM w WITH (source = '{0}/w.csv'); "
NEAR = "FROM e JOIN w ON e.x = w.x AND e.ts BETWEEN w.ts - INTERVAL 15 SECONDS AND w.ts + INTERVAL 15 SECONDS"
TEXTS = [
    ("SELECT x " + NEAR, "write e.x or w.x", "SELECT e.x " + NEAR),
    ("SELECT e.x FROM e JOIN w ON e.x = w.x", NEAR.partition(" = w.x ")[2], "SELECT e.x " + NEAR),
    (
        "SELECT e.x FROM e JOIN w ON e.x = w.x AND w.ts >= e.ts",
        "AND w.ts <= e.ts + INTERVAL 15 SECONDS",
        "SELECT e.x FROM e JOIN w ON e.x = w.x AND w.ts >= e.ts AND w.ts <= e.ts + INTERVAL 15 SECONDS",
    ),
    ("SELECT e.x + w.x " + NEAR, "write e.x + w.x AS name", "SELECT e.x + w.x AS name " + NEAR),
    ("SELECT count(*) " + NEAR, "AS and a name", "SELECT count(*) AS n " + NEAR + " GROUP BY e.seq"),
    ("SELECT count(*) AS n " + NEAR, "write GROUP BY e.seq", "SELECT count(*) AS n " + NEAR + " GROUP BY e.seq"),
    (
        "SELECT e.x, count(*) AS n " + NEAR + " GROUP BY e.x",
        "write GROUP BY e.seq",
        "SELECT e.x, count(*) AS n " + NEAR + " GROUP BY e.seq",
    ),
    (
        "SELECT e.x " + NEAR + " GROUP BY e.seq",
        "write LEFT SEMI JOIN",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT SEMI JOIN"),
    ),
    ("SELECT e.x FROM e JOIN w USING (x)", "write ON e.id = w.id", "SELECT e.x " + NEAR),
    (
        "SELECT e.x FROM e WHERE e.x IN (SELECT x FROM w)",
        "FROM e LEFT SEMI JOIN w ON",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT SEMI JOIN"),
    ),
    (
        "SELECT w.x " + NEAR.replace("JOIN", "LEFT ANTI JOIN"),
        "select columns of e",
        "SELECT e.x " + NEAR.replace("JOIN", "LEFT ANTI JOIN"),
    ),
    (
        "SELECT e.x FROM e ASOF JOIN w ON e.x = w.x",
        "MATCH_CONDITION (e.ts >= w.ts)",
        "SELECT e.x FROM e ASOF JOIN w MATCH_CONDITION (e.ts >= w.ts) ON e.x = w.x AND e.ts <= w.ts + INTERVAL 1 HOUR",
    ),
    ("CREATE STREAM q WITH (sources = 'x')", "did you mean 'source'?", "CREATE STREAM q WITH (source = 'x')"),
    ("CREATE STREAM q WITH (source = x)", "a value: 'text'", "CREATE STREAM q WITH (source = 'x')"),
    ("CREATE STREAM e WITH (source = 'x')", "its own name", "CREATE STREAM q WITH (source = 'x')"),
    ("SET cells = many", "give a whole number", "SET cells = 4"),
    ("SET available_now = yes", "give true or false", "SET available_now = true"),
    ("SET max_delay = 5", '"500ms"', 'SET max_delay = "500ms"'),
]


def read(folder: Path, text: str) -> None:
    for step in Script(MADE.format(folder) + text).steps:
        step.asked.joined()


@pytest.mark.parametrize(("text", "hint", "followed"), TEXTS, ids=[text[0][:70] for text in TEXTS])
def test_a_hint_of_sql_leads_somewhere(folder: Path, text: str, hint: str, followed: str) -> None:
    with pytest.raises(StreamJoinError) as told:
        read(folder, text)
    assert hint in told.value.hint
    read(folder, followed)
