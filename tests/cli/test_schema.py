"""``streamjoin schema``: it takes the files that the command takes, and refuses those that the reader refuses.

`conftest.py` checks every other file of these tests against the schema, too.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.explain import command as explain
from streamjoin_ds.cli.main import group
from streamjoin_ds.cli.run import command as run
from streamjoin_ds.errors import ArgumentError, StreamJoinError
from streamjoin_ds.plan import EXECUTION_OPTIONS
from streamjoin_ds.request.join_keys import JOIN_KEYS, json_schema, read_join_file, tomllib
from streamjoin_ds.request.request import EXPLAINED, request_of
from streamjoin_ds.script.reader import statements
from streamjoin_ds.script.sql_options import stream_facts
from streamjoin_ds.script.sql_text import SqlText
from streamjoin_ds.script.statements import StreamStatement
from streamjoin_ds.spec import Stream
from streamjoin_ds.spec.member.source import SOURCE_KEYS
from streamjoin_ds.spec.member.stream import FORMAT_KEYS, PER_STREAM, STREAM_KEYS
from streamjoin_ds.stream.join import StreamJoin
from streamjoin_ds.stream.query_options import STREAM_OPTIONS, QueryOptions
from streamjoin_ds.stream.run_keys import keys_of
from tests.cli.test_run import CONFIG
from tests.support.documents import follow_recipe

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json_schema()
CANARY = "hunter2canary"
R, S = '[streams.r]\nsource = "gen:band2d?side=r"\n', '[streams.s]\nsource = "gen:band2d?side=s"\n'
# TOML values of every kind. Each is tried as the value of every key.
VALUES = (
    f'"{CANARY}"', '""', "0", "1", "-1", "3", "1.5", "true", "false", "2024-01-01", "[]", f'["{CANARY}"]', "[1]",
    "{}", f'{{r = "{CANARY}"}}', "{r = 1}", "[[1]]", '"5s"', '{r = "5s", s = "0s"}', '"tab"', '"2"', '"1x1"', '"auto"',
    '["r.x", "s.a"]', '{r = "scan", s = ["a"]}', '["s", "r"]', '"packed"', '"stop"', '{s = "quarantine"}', '"max"',
    '"us"', '"csv"', '"folder"', '{ts = "int64", a = "double"}', '{"spark.ui.enabled" = "true"}', '["spark.a=b"]',
    '"ignore"', '"."', '"read"', '"modified"', '"left"', '"backward"',
)  # fmt: skip


def schema_takes(text: str) -> bool:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return bool(validator.is_valid(tomllib.loads(text)))


def refusal(path: Path) -> str:
    """Return the error with which the reader refuses a file; "" if it takes the file."""
    try:
        read_join_file(path)
    except ArgumentError as error:
        return str(error)
    return ""


def command_takes(path: Path) -> bool:
    """Whether the command takes a file, as far as it can tell without Spark."""
    try:
        request = request_of(path, {})
        options = dict(request.run)
        reading = tuple(options.pop("source_options", {}).items())
        QueryOptions(source_options=reading, **options)
        request.join.explain(**{name: request.run[name] for name in EXPLAINED if name in request.run})
    except StreamJoinError:
        return False
    return True


def test_the_schema_is_one_and_is_printed() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    done = CliRunner().invoke(group, ["schema"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == SCHEMA
    assert set(SCHEMA["properties"]) == {*JOIN_KEYS, "streams", "tables"}
    assert set(SCHEMA["$defs"]["Stream"]["properties"]) == set(STREAM_KEYS)


def test_every_key_is_a_flag_and_every_option_of_a_stream_is_one() -> None:
    # The options about logs belong to the group. A command that the group has handed out has them too, hidden.
    flags, explained = (
        {parameter.name for parameter in command.params if parameter.name not in ("verbose", "log_level", "log_format")}
        for command in (run, explain)
    )
    assert flags == {*JOIN_KEYS, "config", "streams", "tables", "as_json"}
    assert explained - {"config", "streams", "tables", "cells"} <= set(JOIN_KEYS)
    # `nested` is no option: a binding says which paths are columns. `devices` is partition_by without a source.
    bound = {"name", "nested", "devices"}
    assert set(Stream.__dataclass_fields__) == {*STREAM_KEYS.keys() - SOURCE_KEYS.keys(), *bound}


def test_an_option_of_a_stream_is_given_everywhere() -> None:
    """One list says what each is; the flags, the file, SQL, ``format("sensors")`` and the reference come of it."""
    page = (ROOT / "docs" / "reference.md").read_text()
    flags = {flag for parameter in run.params for flag in parameter.opts}
    for name in PER_STREAM:
        assert f"--{name.replace('_', '-')}" in flags
        assert f"| `{name}` |" in page
        assert name in SCHEMA["properties"]
        example = STREAM_KEYS[name].example
        value = f"'{example}'" if isinstance(example, str) else example
        text = SqlText(f"CREATE STREAM e WITH ({name} = {value});")
        (made,) = statements(text)
        assert isinstance(made, StreamStatement)
        assert stream_facts(text, made) == {name: example}
    assert set(FORMAT_KEYS) < set(STREAM_OPTIONS)


EVERYWHERE = """
import json, re, sys
from pathlib import Path
from click.testing import CliRunner
from streamjoin_ds import Execution, JoinEngine, Join, Stream
from streamjoin_ds.cli.main import group
from streamjoin_ds.request.join_keys import json_schema
from streamjoin_ds.request.request import request_of
from streamjoin_ds.script.script import Script
from tests.support.reference_page import text
streams = ["--stream", "r=gen:band2d?side=r", "--stream", "s=gen:band2d?side=s", "--window", "1s"]
said = lambda *words: CliRunner().invoke(group, words).output
assert re.search("  chunk_rows +Most rows of a chunk of results", said("help", "engine")), said("help", "engine")
assert "  chunk_rows  99" in said("explain", *streams, "--chunk-rows", "99"), said("explain", *streams)
assert json_schema()["properties"]["chunk_rows"]["minimum"] == 64
assert "| `chunk_rows` | Most rows of a chunk of results. |" in text()
(file := Path("join.toml")).write_text("chunk_rows = 98")
given = {"streams": streams[1:4:2], "window": "1s"}
assert request_of(file, given).run == {"execution": Execution(chunk_rows=98)}
sql = "CREATE STREAM r WITH (source = 'gen:band2d?side=r'); CREATE STREAM s WITH (source = 'gen:band2d?side=s');"
sql += "SET chunk_rows = 97; INSERT INTO t WITH (checkpoint = 'c'{}) SELECT * FROM r JOIN s ON r.ts = s.ts"
for more, rows in (("", 97), (", chunk_rows = 96", 96)):
    (step,) = Script(sql.format(more)).steps
    assert step.checked(None).request.run == {"execution": Execution(chunk_rows=rows)}
join = Join([Stream(name, schema={"ts": "int64", "x": "int64"}) for name in "ew"], "e.x = w.x", "1s")
rows = [{"ts": n, "x": 1} for n in range(20)]
chunks = list(JoinEngine(join, execution=Execution(chunk_rows=64)).push_chunks({"e": rows, "w": rows}))
assert sum(map(len, chunks)) == 400 and max(map(len, chunks)) == 64, [len(chunk) for chunk in chunks]
"""


OF_A_SOURCE = """
import json, re
from pathlib import Path
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import CommitProperties, Transaction, write_deltalake
from streamjoin_ds import DeltaRows, Join, Stream, StreamJoin
from streamjoin_ds.checkpoint.identity import _changes
from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.request.join_keys import json_schema
from streamjoin_ds.request.request import request_of
from streamjoin_ds.script.script import Script
from streamjoin_ds.source.stream_source import first_records
from streamjoin_ds.stream.query_options import SourceOptions
from streamjoin_ds.stream.source_facts import bound_join
from tests.support.reference_page import text
said = lambda *words: CliRunner().invoke(group, words).output
for at, writer in enumerate(("etl", "other", "etl")):
    done = CommitProperties(app_transactions=[Transaction(writer, at)])
    write_deltalake("t", pa.table({"ts": [at], "x": [at]}), mode="append", commit_properties=done)
streams = ["--stream", "r=t?starting_version=0&writer=etl", "--stream", "s=gen:band2d", "--window", "1s"]
assert re.search(r"^  writer +Only changes by one application \\(all\\)$", said("help", "source", "delta"), re.M)
assert "writer=etl" in said("explain", *streams), said("explain", *streams)
assert "| `writer` | Only changes by one application: etl, or e=etl. |" in text()
assert json_schema()["$defs"]["Stream"]["properties"]["writer"]["examples"] == ["etl"]
toml = "window = '1s'\\n[streams.r]\\nsource = 't'\\nwriter = 'etl'\\n[streams.s]\\nsource = 'gen:band2d'"
Path("join.toml").write_text(toml)
made = request_of(Path("join.toml"), {}).join.streams[0].source
sql = "CREATE STREAM r WITH (source = 't', writer = 'etl'); CREATE STREAM s WITH (source = 'gen:band2d');"
sql += "INSERT INTO m WITH (checkpoint = 'c') SELECT * FROM r JOIN s ON r.ts = s.ts"
(step,) = Script(sql).steps
assert made == step.checked(None).request.join.streams[0].source == DeltaRows("t", "auto", "etl")
(stream,) = SourceOptions.parse({"path": "t", "writer": "etl", "startingversion": "0"}).streams
again = Stream.from_facts(json.loads(json.dumps(stream.to_facts())))
for one, rows in ((stream, [0, 2]), (again, [0, 2]), (Stream("r", "t", starting_version=0), [0, 1, 2])):
    found = first_records(one, pa.schema([("ts", pa.int64()), ("x", pa.int64())]), 9)
    assert [x for chunk in found for x in chunk.tuples["x"].to_pylist()] == rows
pairs = ([Stream("r", "t", format="delta", writer=name), Stream("s", "gen:band2d")] for name in (None, "etl"))
joins = [bound_join(Join(pair, "r.ts = s.ts", "1s")) for pair in pairs]
assert joins[0].fingerprint != joins[1].fingerprint and _changes(*joins) == ["writer of r"]
with pytest.raises(ArgumentError, match="with another writer"):
    Join([Stream("r", "t", writer="etl"), Stream("s", "t")], "r.ts = s.ts", "1s")
with pytest.raises(ArgumentError, match="reads no Delta table, so it cannot have writer"):
    Stream("r", "a.csv", format="csv", writer="etl")
"""


def test_an_option_that_is_added_as_contributing_says_is_everywhere(tmp_path: Path) -> None:
    follow_recipe("An option", tmp_path, EVERYWHERE)


def test_an_option_of_a_source_that_is_added_as_contributing_says_is_everywhere(tmp_path: Path) -> None:
    follow_recipe("An option of a source", tmp_path, OF_A_SOURCE)


def test_calls_in_python_have_the_options_of_the_table() -> None:
    start, explained = (inspect.signature(call).parameters for call in (StreamJoin.start, StreamJoin.explain))
    assert {*keys_of("start", "plan"), "threads", "execution", "source_options"} <= set(start)
    assert {*EXPLAINED, "threads"} <= set(explained)
    assert {*keys_of("start", "plan"), "execution", "source_options", "restarts"} == set(
        QueryOptions.__dataclass_fields__
    )
    assert set(EXECUTION_OPTIONS) == set(keys_of("engine"))
    for name, value in (("exchange", "rows"), ("cells", 0), ("cells", 4097), ("trigger", 1), ("durable", "no")):
        with pytest.raises(ArgumentError, match=f": {name} is ") as caught:
            QueryOptions(**{name: value})  # type: ignore[arg-type]
        assert caught.value.name == name


def test_the_readmes_files_are_taken() -> None:
    texts = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "docs/start.md").read_text(), re.MULTILINE | re.DOTALL)
    assert texts
    for text in (*texts, CONFIG):
        assert schema_takes(text)
        # Commented-out lines must be right, too: each is an example of its key.
        assert schema_takes(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))


def test_every_example_in_the_schema_is_one() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for keys, name in ((JOIN_KEYS, None), (STREAM_KEYS, "r")):
        for key, about in keys.items():
            if about.example is not None:
                about.check(about.example, key, key)
                facts: Any = {key: about.example}
                validator.validate(facts if name is None else {"streams": {name: facts}})


@pytest.mark.parametrize("key", [*JOIN_KEYS, "streams", *(f"r.{key}" for key in STREAM_KEYS)])
def test_it_refuses_what_the_command_refuses_and_nothing_else(key: str, tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    outcomes = set()
    for value in VALUES:
        stream, _, name = key.rpartition(".")
        line = f"{name} = {value}\n"
        head = "" if key == "window" else 'window = "1s"\n'
        in_stream = R.partition("source")[0] if name == "source" else R
        body = "" if key == "streams" else R + S
        text = f"{head}{in_stream}{line}{S}" if stream else f"{head}{line}{body}"
        path.write_text(text)
        said = refusal(path)
        by_schema, by_reader, by_command = schema_takes(text), not said, command_takes(path)
        assert CANARY not in said
        assert by_command <= by_reader, value
        assert by_command <= by_schema, value
        # The reader checks kinds only; the schema knows of texts and limits besides.
        assert by_schema <= by_reader, value
        outcomes.add(by_schema)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("windw = '1s'", "an unknown key 'windw'. Hint: did you mean 'window'"),
        (
            "[streams.r]\npassword = 'x'",
            "stream r has an unknown key 'password'. Hint: one of source",
        ),
        ("[streams.r]\nidle_timeot = '5s'", "has an unknown key 'idle_timeot'. Hint: did you mean 'idle_timeout'"),
        ("[streams.r]\nmax_delay = '5s'", "Hint: max_delay is of the whole join: write it above the first [streams.r]"),
        ("available_now = 'false'", "available_now is not true or false. Hint: give true or false, or leave it out"),
        ("threads = 2.5", "threads is not a whole number. Hint: give a whole number, or leave it out"),
        ("streams = 1", "streams is not a table of tables. Hint: give each stream a table"),
        ("[streams.r]\nformat = 1", "format of stream r is not a text. Hint: one of auto, csv, json, parquet"),
        ("conf = 1", 'neither a table of texts nor a list of texts. Hint: for example {"spark.ui.enabled" = "true"}'),
    ],
)
def test_what_is_refused_is_named_with_what_is_valid(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    path.write_text(text)
    assert not schema_takes(text)
    for command in ("run", "explain"):
        done = CliRunner().invoke(group, [command, "--config", str(path)])
        assert done.exit_code == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--exchange", CANARY), "'--exchange': it is not one of auto, reference, packed."),
        (("--kernel", CANARY), "'--kernel': it is not one of auto, avx512, avx2, scalar, reference."),
        (("--threads", CANARY), "'--threads': it is not a whole number of 1 or more."),
        (("--merge-runs", "1"), "'--merge-runs': it is not a whole number of 2 or more."),
        (("--max-rows-per-batch", CANARY), "'--max-rows-per-batch': it is not a whole number of 1 or more."),
    ],
)
def test_a_flag_that_is_refused_does_not_show_its_value(arguments: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(group, ["run", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr
    assert CANARY not in done.output
