"""``streamjoin run``: every flag, every key of the file, the totals as JSON, and errors in one line."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from streamjoin_ds.cli import run as run_module
from streamjoin_ds.cli.main import group, main, secrets_in
from streamjoin_ds.errors import WindowError, table_of_errors
from streamjoin_ds.plan import Execution
from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.request.request import source_of
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.source.kafka.topic import TOPIC_PARAMETERS
from streamjoin_ds.spark import session
from streamjoin_ds.spec import DeltaRows, Files, Generator, Spool, TimeWindow, band
from streamjoin_ds.spec.member.option_key import options_of
from streamjoin_ds.spec.member.source import SOURCE_KEYS
from streamjoin_ds.spec.member.stream import STREAM_KEYS
from streamjoin_ds.spec.member.table import TABLE_KEYS
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.run_keys import keys_of
from tests.support.real_data import BY_NAME, FILES, answer, assert_same_rows, needs_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANARY = "hunter2canary"
STREAMS = ("--stream", "r=gen:band2d?side=r&rows=500&rate=50", "--stream", "s=gen:band2d?side=s&rows=500&rate=50")
BANDS = ("--on", "abs(r.x - s.a) <= 900", "--on", "abs(r.y - s.b) <= 900")
TARGET = ("--to", "matches", "--checkpoint", "checkpoint")
TOTALS = {
    "batches", "matches", "match_bytes", "read", "stored", "late", "rejected", "filtered", "duplicates", "null_keys",
    "punctuation", "seconds", "backlog", "files_set_aside", "lost_offsets", "held_back_bytes", "rows_per_second",
    "results_per_second", "finished", "table", "checkpoint",
}  # fmt: skip

Asked = tuple[StreamJoin, str, str, Mapping[str, Any]]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments, prog_name="streamjoin")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """A function that returns what `streamjoin run` would start with its arguments."""
    seen: list[Asked] = []

    def run_join(spark: object, join: StreamJoin, to: str, checkpoint: str, options: Any, display: object) -> bool:
        seen.append((join, to, checkpoint, dict(options)))
        return True

    monkeypatch.setattr(run_module, "run_join", run_join)
    monkeypatch.setattr(run_module, "check_request", lambda _: None)  # of files that are not there
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: None)
    monkeypatch.setattr(session, "session_log_path", lambda _: Path("spark.log"))

    def ask(*arguments: str) -> Asked:
        done = invoke("run", *arguments)
        assert done.exit_code == 0, done.output
        return seen.pop()

    return ask


def test_every_flag_reaches_the_join(asked: Callable[..., Asked]) -> None:
    join, to, checkpoint, options = asked(
        *STREAMS, *BANDS, *TARGET, "--time", "r=at,s=ts", "--window", "r=6h,s=0s", "--select", "r.x,s.*",
        "--delay", "r=30s,s=1m", "--layout", "1x2", "--max-rows-per-batch", "1000", "--trigger", "1s",
        "--exchange", "packed", "--kernel", "scalar", "--threads", "2", "--no-pin", "--index", "r.x,s.a",
        "--order", "s,r", "--merge-runs", "8", "--delimiter", "tab", "--delimiter", "s=;", "--idle-timeout", "s=10m",
        "--pace", "60", "--parts", "2", "--missing-files", "ignore", "--max-block-rows", "500",
        "--on-bad-file", "s=quarantine", "--rate", "r=100,s=2000", "--max-delay", "5s", "--stream", "s=s.csv",
    )  # fmt: skip
    assert (to, checkpoint) == ("matches", "checkpoint")
    assert [(s.name, s.time, s.delay_us) for s in join.streams] == [("r", "at", 30_000_000), ("s", "ts", 60_000_000)]
    assert join.streams[0].source == Generator("band2d", {"side": "r", "rows": 500, "rate": 50})
    assert join.window == TimeWindow((6 * 3_600_000_000, 0))
    assert join.predicates == (band("r.x", "s.a", 900), band("r.y", "s.b", 900))
    assert join.select == ("r.x", "s.*")
    assert (join.streams[1].source.delimiter, join.streams[1].source.on_bad_file) == (";", "quarantine")
    assert options == {
        "layout": "1x2", "max_rows_per_batch": 1000, "trigger": "1s", "exchange": "packed", "max_delay": "5s",
        "execution": Execution("scalar", 2, pin=False, index="r.x,s.a", order="s,r", merge_runs=8),
        "source_options": {"pace": "60", "parts": "2", "missing_files": "ignore", "max_block_rows": "500"},
    }  # fmt: skip
    assert [stream.idle_timeout for stream in join.streams] == [None, "10m"]
    assert [stream.rate for stream in join.streams] == [100, 2000]


def test_options_of_tables_reach_their_streams(asked: Callable[..., Asked], tmp_path: Path) -> None:
    streams = ("--stream", "e=lake/e", "--stream", "w=lake/w", "--window", "1s", *TARGET)
    join, *_ = asked(*streams, "--on-change", "e=ignore", "--starting-version", "w=12")
    assert [(s.source.on_change, s.source.starting_version) for s in join.streams] == [("ignore", None), ("stop", 12)]
    join, *_ = asked(*streams, "--starting-timestamp", "2026-01-31")
    assert {s.source.starting_timestamp for s in join.streams} == {"2026-01-31T00:00:00+00:00"}
    path = tmp_path / "join.toml"
    path.write_text(
        "starting_version = 7\n[streams.e]\nsource = 'lake/e'\n[streams.w]\nsource = 'm'\nformat = 'results'\n"
        "starting_version = 'latest'\n"
    )
    refused = invoke("run", "--config", str(path), "--window", "1s", *TARGET)
    assert refused.exit_code != 0
    assert "reads the results of a join" in refused.output
    path.write_text(path.read_text().replace("'results'", "'delta'"))
    join, *_ = asked("--config", str(path), "--window", "1s", *TARGET)
    assert [s.source.starting_version for s in join.streams] == [7, "latest"]


def test_the_session_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Mapping[str, Any]] = []
    monkeypatch.setattr(run_module, "run_join", lambda *_: True)
    monkeypatch.setattr(session, "spark_session", lambda *_, **given: seen.append(given))
    monkeypatch.setattr(session, "session_log_path", lambda _: Path("spark.log"))
    path = tmp_path / "join.toml"
    path.write_text("master = 'local[3]'\nwindow = '1s'\npace = 2\n[conf]\n'spark.ui.enabled' = 'true'\n")
    asked = ("run", "--config", str(path), *STREAMS, *TARGET)
    assert invoke(*asked).exit_code == 0
    more = ("--master", "local[1]", "--conf", "spark.a=b=c", "--conf", "spark.x=y")
    assert invoke(*asked, *more).exit_code == 0
    assert seen == [
        {"master": "local[3]", "conf": {"spark.ui.enabled": "true"}, "quick_compiler": True},
        {"master": "local[1]", "conf": {"spark.a": "b=c", "spark.x": "y"}, "quick_compiler": True},
    ]


def test_what_is_not_given_keeps_its_default(asked: Callable[..., Asked]) -> None:
    join, _, _, options = asked(*STREAMS, *TARGET, "--window", "15s", "--delay", "2s", "--available-now")
    assert options == {"available_now": True}
    assert join.window == TimeWindow((15_000_000, 15_000_000))
    assert [(stream.time, stream.delay_us) for stream in join.streams] == [("ts", 2_000_000)] * 2


CONFIG = """
on = ["abs(r.x - s.a) <= 900"]
window = {r = "6h", s = "0s"}
select = ["r.x", "s.a"]
delay = "5s"
to = "from-file"
checkpoint = "checkpoint"
available_now = true
max_rows_per_batch = 100
max_delay = "500ms"
layout = "2x2"
exchange = "packed"
kernel = "scalar"
threads = 3
pin = false
index = {r = "scan", s = ["a"]}
order = ["s", "r"]
merge_runs = 5
delimiter = ";"
on_bad_file = "quarantine"
rate = 500

[streams.r]
source = "gen:band2d?side=r&rows=500"
time = "at"

[streams.s]
source = "somewhere.csv"
delay = "9s"
idle_timeout = "1m"
max_ahead = "1h"
rate = 2.5
delimiter = "|"
on_bad_file = "stop"
format = "csv"
time_unit = "ms"
schema = {ts = "int64", a = "double"}
"""


def test_partitions_are_asked_for_by_file_and_by_flag(asked: Callable[..., Asked], tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    said = ("to = 't'", "checkpoint = 'c'", "window = '1s'", "on = ['abs(r.x - s.a) <= 1']")
    path.write_text(
        "\n".join((*said, "[streams.r]", "source = 'r/'", "partition_by = 'folder'", "[streams.s]", "source = 's/'"))
    )
    assert [stream.source.partition_by for stream in asked("--config", str(path))[0].streams] == ["folder", None]
    told = asked("--config", str(path), "--partition-by", "file")[0].streams
    assert [stream.source.partition_by for stream in told] == ["file", "file"]
    told = asked("--config", str(path), "--partition-by", "s=file")[0].streams
    assert [stream.source.partition_by for stream in told] == ["folder", "file"]


def test_keys_of_unique_rows_are_asked_for_by_file_and_by_flag(asked: Callable[..., Asked], tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    said = ("to = 't'", "checkpoint = 'c'", "window = '1s'", "on = ['abs(r.x - s.a) <= 1']")

    def keys(*flags: str, more: str = "", of_r: str = "") -> list[tuple[str, ...]]:
        path.write_text("\n".join((*said, more, "[streams.r]", "source = 'r/'", of_r, "[streams.s]", "source = 's/'")))
        return [stream.unique_key for stream in asked("--config", str(path), *flags)[0].streams]

    assert keys(of_r="unique = 'device,n'") == keys(of_r="unique = ['device', 'n']") == [("device", "n"), ()]
    assert keys(more="unique = 'n'", of_r="unique = 'm'") == [("m",), ("n",)]
    assert keys(more="unique = {s = ['n', 'm']}") == [(), ("n", "m")]
    assert keys("--unique", "device,n") == [("device", "n")] * 2
    assert keys("--unique", "s=device,n", of_r="unique = 'm'") == [("m",), ("device", "n")]
    assert keys("--unique", "device", "--unique", "n", "--unique", "r=m") == [("m",), ("device", "n")]


def test_a_topic_is_a_stream_by_flag_and_by_file(asked: Callable[..., Asked], tmp_path: Path) -> None:
    sources = [
        "kafka://b:9092,c/readings?format=json&start=latest",
        "kafka://b/u?format=json&settings=login.properties",
    ]
    flags = [flag for name, source in zip("rs", sources, strict=True) for flag in ("--stream", f"{name}={source}")]
    streams = asked(*flags, *TARGET, "--on", "abs(r.x - s.a) <= 1", "--window", "1s")[0].streams
    assert [(stream.location, stream.partition_kind) for stream in streams] == [(source, "topic") for source in sources]
    path = tmp_path / "join.toml"
    said = ("to = 't'", "checkpoint = 'c'", "window = '1s'", "on = ['abs(r.x - s.a) <= 1']")
    path.write_text("\n".join((*said, *(f"[streams.{n}]\nsource = '{s}'" for n, s in zip("rs", sources, strict=True)))))
    assert [stream.location for stream in asked("--config", str(path))[0].streams] == sources


def test_a_file_says_it_all_and_flags_win(asked: Callable[..., Asked], tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    path.write_text(CONFIG)
    join, to, checkpoint, options = asked("--config", str(path))
    r, s = join.streams
    assert (r.time, r.delay_us, s.time, s.delay_us) == ("at", 5_000_000, "ts", 9_000_000)
    assert (s.source, s.time_unit) == (Files("somewhere.csv", "csv", "|"), "ms")
    assert join.window == TimeWindow((6 * 3_600_000_000, 0))
    assert (join.select, to, checkpoint) == (("r.x", "s.a"), "from-file", "checkpoint")
    assert (s.idle_timeout_us, s.max_ahead, r.max_ahead) == (60_000_000, "1h", None)
    assert (r.rate, s.rate) == (500, 2.5)
    assert options == {
        "available_now": True, "max_rows_per_batch": 100, "layout": "2x2", "exchange": "packed",
        "max_delay": "500ms",
        "execution": Execution("scalar", 3, False, index={"r": "scan", "s": ["a"]}, order=["s", "r"], merge_runs=5),
    }  # fmt: skip

    assert asked("--config", str(path), "--pin")[3]["execution"].pin is True
    told = ("--delay", "s=1s", "--delimiter", "s=,", "--rate", "7", "--on-bad-file", "s=quarantine", "--time", "r=when")
    r, s = asked("--config", str(path), *told)[0].streams
    assert (r.time, r.delay_us, r.rate, s.delay_us, s.rate) == ("when", 5_000_000, 7, 1_000_000, 7)
    assert s.source == Files("somewhere.csv", "csv", on_bad_file="quarantine")
    other = asked("--config", str(path), "--to", "flag", "--window", "1s", "--layout", "1x1", "--stream", "s=other.csv")
    assert (other[1], other[3]["layout"]) == ("flag", "1x1")
    assert other[0].window == TimeWindow((1_000_000, 1_000_000))
    assert other[0].streams[1].location == "other.csv"
    assert other[0].streams[1].delay_us == 9_000_000


def test_filters_from_flags_and_file_all_hold(asked: Callable[..., Asked], tmp_path: Path) -> None:
    flags = ("--where", "r: x > 1", "--where", "s.a < 5 OR s.a IS NULL", "--where", "r.x <> 7")
    join = asked(*STREAMS, *TARGET, "--window", "1s", *flags)[0]
    assert [str(stream.where) for stream in join.streams] == ["(r.x > 1) AND (r.x <> 7)", "(s.a < 5) OR (s.a IS NULL)"]

    path = tmp_path / "join.toml"
    text = CONFIG.replace('kernel = "scalar"', 'where = ["s.a > 0"]')
    path.write_text(text.replace("[streams.s]", "[streams.s]\nwhere = \"ts > TIMESTAMP '2024-01-01 12:30:00'\""))
    r, s = asked("--config", str(path))[0].streams
    assert r.where is None
    assert str(s.where) == "(s.ts > TIMESTAMP '2024-01-01 12:30:00') AND (s.a > 0)"
    assert str(asked("--config", str(path), "--where", "r.x=1")[0].streams[0].where) == "r.x = 1"


WINDOW = ("--window", "1s")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*TARGET, *WINDOW), "--stream NAME=SOURCE"),
        ((*STREAMS, *TARGET), "no window was given"),
        ((*STREAMS, *WINDOW, "--checkpoint", "c"), "--to was not given"),
        ((*STREAMS, *WINDOW, "--to", "m"), "--checkpoint was not given"),
        ((*STREAMS[:2], *WINDOW, *TARGET), "2 to 8 streams"),
        ((*STREAMS, *TARGET, "--window", CANARY), "window"),
        ((*STREAMS, *TARGET, *WINDOW, "--delay", CANARY), "delay"),
        ((*STREAMS, *TARGET, *WINDOW, "--where", "x > 1"), "a column in it is not written as stream.column"),
        ((*STREAMS, *TARGET, *WINDOW, "--where", "r.x > s.a"), "conditions on several"),
        ((*STREAMS, *TARGET, *WINDOW, "--where", "q.x > 1"), "name one of r, s"),
        ((*STREAMS, *TARGET, *WINDOW, "--where", "r: s.a > 1"), "stream r has no column 's.a'"),
        ((*STREAMS, *TARGET, *WINDOW, "--where", "r: zzz(x) > 1"), "is not supported"),
        ((*STREAMS, *TARGET, *WINDOW, "--delay", f"q={CANARY}"), "the streams are r, s"),
        ((*STREAMS, *TARGET, *WINDOW, "--time", f"r={CANARY},"), "time"),
        ((*STREAMS, *TARGET, *WINDOW, "--layout", CANARY), "layout"),
        ((*STREAMS, *TARGET, *WINDOW, "--layout", "1x2x3"), "layout"),
        ((*STREAMS, *TARGET, *WINDOW, "--trigger", CANARY), "trigger"),
        ((*STREAMS, *TARGET, *WINDOW, "--stream", CANARY), "NAME=SOURCE"),
        ((*STREAMS, *TARGET, *WINDOW, "--stream", f"q=gen:band2d?{CANARY}"), "gen:NAME?parameter=value"),
        ((*STREAMS, *TARGET, *WINDOW, "--select", "q.x"), "the streams are r, s"),
        ((*STREAMS, *TARGET, *WINDOW, "--on", "r.x SIMILAR TO s.a"), "PREDICATE_SYNTAX"),
        ((*STREAMS, *TARGET, *WINDOW, "--on", "abs(r.x - s.nope) <= 1"), "nope"),
        ((*STREAMS, *TARGET, *WINDOW, "--trigger", "1s", "--available-now"), "exclude each other"),
        ((*STREAMS, *TARGET, *WINDOW, "--pace", CANARY), "the option pace is neither max nor a number above 0"),
        ((*STREAMS, *TARGET, *WINDOW, "--parts", "0"), "the option parts must be a whole number"),
        ((*STREAMS, *TARGET, *WINDOW, "--missing-files", CANARY), "one of error, ignore"),
        ((*STREAMS, *TARGET, *WINDOW, "--conf", CANARY), "conf is not of the form NAME=VALUE"),
        ((*STREAMS, *TARGET, *WINDOW, "--idle-timeout", "0s"), "idle_timeout of r must be longer than 0"),
        ((*STREAMS, *TARGET, *WINDOW, "--max-ahead", "1h"), "stream r is generated"),
        ((*STREAMS, *TARGET, *WINDOW, "--rate", f"s={CANARY}"), "the rate of s must be a number greater than 0"),
        ((*STREAMS, *TARGET, *WINDOW, "--rate", "-5"), "the rate of r must be a number greater than 0"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_type(
    arguments: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class NoSpark:
        """A session that only says what its settings are: a refused request must ask nothing else of Spark."""

        class conf:
            get = staticmethod(lambda key, default=None: default)

    monkeypatch.setattr(session, "spark_session", lambda *_, **__: NoSpark())
    monkeypatch.setattr(session, "session_log_path", lambda _: None)
    monkeypatch.chdir(tmp_path)
    done = invoke("run", *arguments)
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Spark's own log")]
    assert len(lines) == 1 or (len(lines) == 3 and lines[2].strip() == "^")  # and the place in a condition
    assert lines[0].startswith("streamjoin: ")
    assert says in lines[0]
    assert "Hint: " in lines[0]
    assert CANARY not in done.output
    assert done.stdout == ""
    assert not (tmp_path / "matches").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("window = [", "is not TOML"),
        ("windw = '1s'", "unknown key 'windw'"),
        ("window = '1s'\n[streams.r]\nsource = 'a.csv'\npassword = 'x'", "stream r has an unknown key 'password'"),
    ],
)
def test_a_file_with_an_error_is_refused_by_its_key(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    path.write_text(text)
    done = invoke("run", "--config", str(path))
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def in_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let `run` use the session of this process, in a folder of its own."""
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    monkeypatch.chdir(tmp_path)


@pytest.mark.spark
@pytest.mark.shared
@needs_data
@pytest.mark.usefixtures("in_session")
def test_json_totals_are_those_of_the_tables(tmp_path: Path) -> None:
    real = BY_NAME["flights"]
    done = invoke(
        "run", "--stream", f"e={FILES['e']}", "--stream", f"w={FILES['w']}", "--time", "ts",
        *(part for text in real.on for part in ("--on", text)), "--window", "15s",
        *TARGET, "--max-rows-per-batch", "30000", "--available-now", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    totals = json.loads(done.stdout)
    assert set(totals) == TOTALS
    assert done.stdout.count("\n") == 1
    rows = {name: answer_rows(name) for name in ("e", "w")}
    assert totals["matches"] == real.matches
    assert totals["read"] == totals["stored"] == rows
    assert totals["late"] == totals["rejected"] == {"e": 0, "w": 0}
    assert totals["finished"] is True
    assert (totals["table"], totals["checkpoint"]) == ("matches", "checkpoint")
    assert totals["batches"] == -(-sum(rows.values()) // 30_000)
    assert_same_rows(table("matches"), answer("flights"))
    ledger = table("matches_ledger").to_pylist()
    for name in ("read", "stored", "late", "rejected", "filtered", "duplicates", "null_keys"):
        assert totals[name] == {s: sum(row[name] for row in ledger if row["stream"] == s) for s in ("e", "w")}
    punctuations = table("matches_punctuations").sort_by("batch_id")["punctuation"].to_pylist()
    assert totals["punctuation"] == punctuations[-1].isoformat().replace("+00:00", "Z")

    again = json.loads(invoke("run", *restart(real.on), "--json").stdout)
    assert (again["matches"], again["batches"], again["read"]) == (0, 0, {})


def restart(on: tuple[str, ...]) -> tuple[str, ...]:
    return (
        "--stream", f"e={FILES['e']}", "--stream", f"w={FILES['w']}",
        *(part for text in on for part in ("--on", text)), "--window", "15s", *TARGET, "--available-now",
    )  # fmt: skip


@pytest.mark.spark
@pytest.mark.usefixtures("in_session")
def test_a_run_for_people_ends_with_the_ledger_and_the_table(tmp_path: Path) -> None:
    done = invoke("run", *STREAMS, *BANDS, *TARGET, "--window", "5s", "--available-now", "--layout", "1x2")
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    matches = table("matches").num_rows
    assert matches > 100
    assert f"{matches:,} matches in 1 batch, " in done.stderr
    assert "Ledger (read = stored + late + rejected + filtered + duplicates)" in done.stderr
    assert "table: matches" in done.stderr
    changed = invoke("run", *STREAMS, *BANDS, *TARGET, "--window", "6s", "--available-now")
    assert changed.exit_code == 2
    assert "FINGERPRINT_MISMATCH: this checkpoint belongs to another join; changed: window" in changed.stderr
    assert "Traceback" not in changed.output


class OldProgress(dict[str, str]):
    """The progress of a source as pyspark 4.0 and 4.1 give it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__({name: str(value) for name, value in facts.items()})
        self.json = json.dumps(facts)


@pytest.mark.parametrize("form", [dict, OldProgress])
@pytest.mark.parametrize("written", [lambda facts: facts, json.dumps])
def test_bytes_that_are_held_back_are_read_of_any_releases_progress(form: Any, written: Any) -> None:
    offset = written({"held_back_bytes": {"r": 7, "s": 0}})
    assert run_module.held_back({"sources": [form({"latestOffset": offset})]}) == {"r": 7}
    for none in (None, {"sources": []}, {"sources": [form({"latestOffset": None})]}):
        assert run_module.held_back(none) == {}


@pytest.mark.spark
@pytest.mark.usefixtures("in_session")
def test_bad_files_are_set_aside_and_the_last_line_is_a_line(tmp_path: Path) -> None:
    line = "2024-01-01T00:00:{:02d}Z,{}\n".format
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "1.csv").write_text("ts,x\n" + "".join(line(k, k) for k in range(5)))
    (inbox / "2.csv").write_text("ts,other\n" + line(6, 6))
    whole = gzip.compress(("ts,x\n" + "".join(line(k, k) for k in range(10, 40))).encode())
    (inbox / "3.csv.gz").write_bytes(whole[:-20])
    (inbox / "4.csv.gz").write_bytes(gzip.compress(b""))
    (inbox / "5.csv").write_text("ts,x\n" + line(50, 50) + line(51, 51).strip())
    (tmp_path / "s.csv").write_text("ts,y\n" + "".join(line(k, k) for k in range(60)).strip())
    arguments = (
        "run", "--stream", "r=in", "--stream", "s=s.csv", "--on", "r.x = s.y", "--window", "1s", *TARGET,
        "--available-now", "--layout", "1x1", "--json", "--max-rows-per-batch", "40",
    )  # fmt: skip
    stopped = invoke(*arguments)
    assert stopped.exit_code != 0
    done = invoke(*arguments, "--on-bad-file", "r=quarantine")
    assert done.exit_code == 0, done.output
    totals = json.loads(done.stdout)
    rejects = sorted(table("matches_rejects").to_pylist(), key=lambda row: row["file"])
    assert [(Path(row["file"]).name, row["stream"]) for row in rejects] == [("2.csv", "r"), ("3.csv.gz", "r")]
    assert "SCHEMA_DRIFT" in rejects[0]["reason"]
    assert "FILE_FORMAT" in rejects[1]["reason"]
    ledger = table("matches_ledger").to_pylist()
    read, stored = (sum(row[what] for row in ledger if row["stream"] == "r") for what in ("read", "stored"))
    assert read - stored == 2
    assert totals["held_back_bytes"] == {}
    assert totals["backlog"] == {}
    assert totals["files_set_aside"] == {"r": 2}
    assert sum(row["files_set_aside"] for row in ledger) == 2
    assert max(row["files_set_aside"] for row in table("matches_metrics").to_pylist()) == 2
    assert all(json.loads(row["decided"])["position"] for row in ledger if row["stream"] == "r")
    seen = invoke("inspect", "checkpoint")
    assert "stream r: 2 bad files, or rests of files, are set aside" in seen.output
    found = sorted(table("matches")["r_x"].to_pylist())
    assert found[:5] == [0, 1, 2, 3, 4]
    assert found[-2:] == [50, 51]
    assert len(found) == stored


def table(name: str) -> Any:
    return scanned(DeltaTable(name)).to_table()


def answer_rows(stream: str) -> int:
    from tests.support.real_data import recorded

    rows: int = recorded(stream).num_rows
    return rows


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("spark.hadoop.fs.s3a.secret.key=sEcReT", ["spark.hadoop.fs.s3a.secret.key"]),
        ("--conf=spark.hadoop.fs.s3a.access.key=sEcReT", ["spark.hadoop.fs.s3a.access.key"]),
        (
            "spark.hadoop.fs.azure.account.key.a.blob.core.windows.net=x",
            ["spark.hadoop.fs.azure.account.key.a.blob.core.windows.net"],
        ),
        (
            "spark.hadoop.fs.azure.sas.c.a.blob.core.windows.net=x",
            ["spark.hadoop.fs.azure.sas.c.a.blob.core.windows.net"],
        ),
        (
            "spark.hadoop.fs.gs.auth.service.account.private.key=x",
            ["spark.hadoop.fs.gs.auth.service.account.private.key"],
        ),
        ("spark.hadoop.fs.s3a.encryption.key=x", ["spark.hadoop.fs.s3a.encryption.key"]),
        ("spark.hadoop.fs.s3a.encryption.key=arn:aws:kms:x", []),
        ("spark.hadoop.fs.azure.sas.token.provider.type=x", []),
        ("e=kafka://me:sEcReT@broker/topic?format=json", ["kafka://"]),
        ("e=kafka://broker/topic?sasl.password=sEcReT&format=json", ["sasl.password"]),
        ("mqtt://broker/t?password_file=x", []),
        ("e=s3://bucket/folder", []),
        ("spark.ui.enabled=true", []),
        ("e.token=w.token", []),
        ("abs(e.x - w.x) <= 1", []),
    ],
)
def test_a_secret_among_the_arguments_is_told_by_its_name(argument: str, names: list[str]) -> None:
    assert secrets_in(["run", argument]) == names


def test_a_secret_s_value_is_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["streamjoin", "run", "--conf", "spark.my.secret=sEcReT"])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    assert told.startswith("streamjoin: spark.my.secret: this looks like a secret, and every user of this machine sees")
    assert "sEcReT" not in told


def test_the_help_of_run_fits_two_screens_and_names_where_the_options_of_sources_are() -> None:
    done = CliRunner().invoke(group, ["run", "--help"], prog_name="streamjoin", terminal_width=98)  # a terminal of 100
    lines = done.output.splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 100
    assert "streamjoin help source files|spool|delta|kafka|gen|table" in done.output
    assert "streamjoin help engine" in lines[-1]
    engine = CliRunner().invoke(group, ["help", "engine"], prog_name="streamjoin")
    assert all(f"  {name} " in engine.output for name in keys_of("engine", "source"))
    for name in ("delimiter", "sub_folders", "starting_version", "refresh"):
        assert f"  --{name.replace('_', '-')} " not in done.output


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        ("files", set(options_of(Files))),
        ("spool", set(options_of(Spool))),
        ("delta", set(options_of(DeltaRows))),
        ("kafka", {*TOPIC_PARAMETERS, "delay"}),
        ("gen", {"side", "keys", "sensors", "delay"}),
        ("table", {*TABLE_KEYS} - {"source"}),
    ],
)
def test_the_options_of_a_source_are_listed(kind: str, has: set[str]) -> None:
    done = invoke("help", "source", kind)
    assert done.exit_code == 0, done.output
    assert has <= set(re.findall(r"^  (\w+)", done.output, re.MULTILINE))
    (written, *_) = re.findall(r'^--(?:stream|table) "(.+)"$', done.output, re.MULTILINE)
    what, keys = ("table", TABLE_KEYS) if kind == "table" else ("stream", STREAM_KEYS)
    assert len(source_of(written, keys, what)[1]) > (kind not in ("kafka", "gen"))


def test_help_of_commands_and_of_what_there_is_not() -> None:
    assert invoke("help").output == invoke("--help").output
    assert invoke("help", "explain").output == invoke("explain", "--help").output
    for words in (("source",), ("source", "mqtt"), ("walk",), ("run", "fast"), ("error", "WIND")):
        done = invoke("help", *words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "Hint: " in done.stderr
    assert "did you mean WINDOW?" in invoke("help", "error", "WIND").stderr


def test_an_error_says_where_more_about_it_stands() -> None:
    codes = [line.split()[0] for line in invoke("help", "error").output.splitlines() if not line.startswith(" ")]
    assert codes == list(table_of_errors())
    for code, kind in table_of_errors().items():
        told = " ".join(invoke("help", "error", code.lower()).output.split())
        assert kind.mend in told
        assert f"#{code.lower()}" in told
    assert invoke("help", "walk").stderr.endswith(" [streamjoin help error ARGUMENT]\n")
    assert WindowError("a").__notes__ == ["More: streamjoin help error WINDOW"]


def test_options_of_a_source_stand_with_it(asked: Callable[..., Asked], tmp_path: Path) -> None:
    odd = tmp_path / "what?delimiter=;"  # the name of a file that is there
    odd.write_text("ts,x\n")
    streams = (
        "--stream", "e=in/e?delimiter=;&sub_folders=read&where=x > 1 and y <> 'a%26b'&rate=50&unique=device,n",
        "--stream", "w=kafka://broker/topic?format=json&delay=30s&schema=ts int64, x double&start=latest",
        "--stream", f"f={odd}", "--stream", "g=gen:band2d?side=r&rate=7&idle_timeout=10m",
        "--stream", "d=lake/d?starting_version=12&on_change=ignore", "--table", "z=limits.csv?refresh=5m&where=is_on",
    )  # fmt: skip
    join, *_ = asked(*streams, *TARGET, "--window", "1s", "--delay", "e=3s")
    e, w, f, g, d = join.streams
    assert (e.source, e.rate, e.unique) == (Files("in/e", delimiter=";", sub_folders="read"), 50, ("device", "n"))
    assert (str(e.where), e.delay) == ("(e.x > 1) AND (e.y <> 'a&b')", "3s")
    assert (w.location, w.delay) == ("kafka://broker/topic?format=json&start=latest", "30s")
    assert w.schema == pa.schema([("ts", pa.int64()), ("x", pa.float64())])
    assert (f.location, f.source.delimiter) == (str(odd), ",")
    assert (g.source, g.idle_timeout, g.rate) == (Generator("band2d", {"side": "r", "rate": 7}), "10m", None)
    assert (d.location, d.source.starting_version, d.source.on_change) == ("lake/d", 12, "ignore")
    (z,) = join.tables
    assert (z.source, z.refresh, str(z.where)) == ("limits.csv", "5m", "z.is_on")
    path = tmp_path / "join.toml"
    path.write_text("[streams.e]\nsource = 'a.csv'\ntime = 'at'\ndelimiter = '|'\n[streams.w]\nsource = 'b.csv'\n")
    e, _ = asked("--config", str(path), "--stream", "e=c.csv?delimiter=;", *TARGET, "--window", "1s")[0].streams
    assert (e.location, e.time, e.source.delimiter) == ("c.csv", "at", ";")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a.csv?delimiters=;", "stream r has an unknown option 'delimiters'. Hint: did you mean 'delimiter'?"),
        ("a.csv?delimiter=;&delimiter=,", "stream r has the option delimiter twice"),
        ("a.csv?source=b.csv", "stream r has an unknown option 'source'"),
        ("gen:band2d?sid=r", "side"),
        ("s3://bucket/folder?secret_key=hunter2canary", "holds credentials or options"),
        ("a.csv?rate=hunter2canary", "the rate of r must be a number greater than 0"),
    ],
)
def test_an_option_that_is_no_sources_is_named(source: str, says: str) -> None:
    done = invoke("run", "--stream", f"r={source}", "--stream", "s=b.csv", *TARGET, "--window", "1s")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr
    assert CANARY not in done.output


def test_an_old_flag_goes_on_and_says_the_new_way(asked: Callable[..., Asked]) -> None:
    old = {name: key for name, key in JOIN_KEYS.items() if name in SOURCE_KEYS}
    assert {"delimiter", "on_bad_file", "starting_version"} <= set(old)
    for name, key in old.items():
        flag, value = f"--{name.replace('_', '-')}", str(key.example)
        done = invoke(
            "run", "--stream", "r=a.csv", "--stream", "s=b.csv", *TARGET, "--window", "1s", flag, f"r={value}"
        )
        assert done.exit_code == 0, done.output
        warned = f'streamjoin: {flag} is an old flag: write --stream "NAME=SOURCE?{name}=...", or the TOML file\n'
        assert warned in done.stderr
    done = invoke("run", "--stream", "r=a.csv", "--table", "z=z.csv", *TARGET, "--window", "1s", "--refresh", "5m")
    assert 'streamjoin: --refresh is an old flag: write --table "NAME=SOURCE?refresh=..."' in done.stderr


@pytest.mark.parametrize("words", [("run",), ("sql",)])
def test_what_cannot_be_joined_is_refused_before_spark_starts(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    (tmp_path / "e.csv").write_text("ts,x\n1,2\n")
    monkeypatch.chdir(tmp_path)
    given = ["run", "--stream", "e=e.csv", "--stream", "w=e.csv", "--on", "abs(e.x - w.y) <= 1", "--window", "1s"]
    given += ["--to", "m", "--checkpoint", "c"]
    text = "CREATE STREAM e WITH (source = 'e.csv'); CREATE STREAM w WITH (source = 'e.csv'); INSERT INTO m WITH "
    text += "(checkpoint = 'c') SELECT e.x FROM e JOIN w ON abs(e.x - w.y) <= 1 AND e.ts BETWEEN w.ts AND w.ts"
    done = invoke(*(given if words == ("run",) else ("sql", "-e", text)))
    assert done.exit_code != 0
    assert "no column 'y'" in str(done.exception) + done.output
    assert not (tmp_path / "c").exists()


def test_a_join_runs_without_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a flag, in the file and in SQL; options of a session beside it are refused, and so is what is Spark's."""
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.chdir(tmp_path)
    for name in "ew":
        (tmp_path / f"{name}.csv").write_text("ts,x\n1,2\n2,3\n")
    given = "window = '1s'\non = ['e.x = w.x']\navailable_now = true\n[streams.e]\nsource = 'e.csv'\n"
    (tmp_path / "join.toml").write_text(given + "[streams.w]\nsource = 'w.csv'\n")
    run = ("run", "--config", "join.toml", "--json", "--to")
    counts = [json.loads(invoke(*run, "a", "--checkpoint", "a.c", "--local").stdout)["matches"]]
    (tmp_path / "join.toml").write_text("local = true\nkernel = 'scalar'\n" + (tmp_path / "join.toml").read_text())
    counts += [json.loads(invoke(*run, "b", "--checkpoint", "b.c").stdout)["matches"]]
    streams = "CREATE STREAM e WITH (source = 'e.csv'); CREATE STREAM w WITH (source = 'w.csv');"
    text = f"SET local = true; {streams} INSERT INTO m WITH (checkpoint = 'c', available_now = true) SELECT e.x"
    text += " FROM e JOIN w ON e.x = w.x AND e.ts BETWEEN w.ts - INTERVAL 1 SECOND AND w.ts + INTERVAL 1 SECOND"
    counts += [json.loads(invoke("sql", "--json", "-e", text).stdout)["matches"]]
    assert counts == [2, 2, 2]
    refused = invoke(*run, "c", "--checkpoint", "c.c", "--master", "local[2]")
    assert "master is of a session of Spark" in refused.output
    of_catalog = text.replace("CREATE STREAM w WITH (source = 'w.csv');", "CREATE STREAM w WITH (table = 'w');")
    assert "is a table or view of Spark" in invoke("sql", "-e", of_catalog).output
