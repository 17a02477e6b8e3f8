"""The README and the pages of `docs/`: what a reader is told to type works as it stands, and links lead somewhere."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.cli.main import group
from streamjoin_ds.cli.run import command as run
from streamjoin_ds.errors import table_of_errors
from streamjoin_ds.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from streamjoin_ds.request.join_keys import JOIN_KEYS
from streamjoin_ds.request.request import request_of
from streamjoin_ds.script.script import Script
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import (
    LATE_SCHEMA,
    LEDGER_SCHEMA,
    METRICS_SCHEMA,
    PUNCTUATIONS_SCHEMA,
    REJECTS_SCHEMA,
    TableSet,
)
from tests.bench.__main__ import command as fixed_workloads
from tests.bench.suites.engine.suite import workload_names
from tests.bench.suites.live.suite import MEASURES
from tests.bench.suites.workloads import WORKLOADS
from tests.support import error_page, reference_page
from tests.support.documents import BESIDE, PAGES, ROOT, Page, anchors, page

README, START, DATAFRAMES, RUNNING = map(
    page, ("README.md", "docs/start.md", "docs/sources/dataframes.md", "docs/running.md")
)
CONTRIBUTING = page("CONTRIBUTING.md")
COMMANDS = {name: group.get_command(click.Context(group), name) for name in group.list_commands(click.Context(group))}
GENERATED = ("docs/reference.md", "docs/reference/errors.md", "docs/reference/python.md")
TIMEOUT_S = 300
EVERY = [*PAGES, *BESIDE]
BY_NAME = {"argvalues": PAGES, "ids": [each.name for each in PAGES]}


def test_the_front_page_is_short() -> None:
    assert len(README.text.splitlines()) <= 200
    assert len(README.text) <= 12_000


@pytest.mark.parametrize("page", **BY_NAME)
def test_a_page_has_one_title_whole_rows_and_languages(page: Page) -> None:
    assert len(re.findall(r"^# ", page.prose, re.MULTILINE)) == 1
    torn = [line for line in page.prose.splitlines() if line.startswith("|") and not line.endswith("|")]
    assert torn == []
    assert {block.language for block in page.blocks} <= {"sh", "console", "python", "sql", "toml", "text"}


@pytest.mark.parametrize("page", EVERY, ids=[each.name for each in EVERY])
def test_every_link_leads_to_a_file_and_a_heading(page: Page) -> None:
    folder = (ROOT / page.name).parent
    for link in page.links:
        path, _, anchor = link.partition("#")
        place = folder / path if path else ROOT / page.name
        assert place.exists(), link
        if anchor:
            assert anchor in anchors(place.read_text()), link


def test_every_page_that_the_code_names_is_there() -> None:
    """Hints and docstrings name pages by their paths."""
    named: set[str] = set()
    for path in (*(ROOT / "streamjoin_ds").rglob("*.py"), *(ROOT / "examples").rglob("*")):
        if path.is_file():
            named |= set(re.findall(r"\bdocs/[\w/-]+\.md", path.read_text()))
    assert named
    assert named <= {each.name for each in PAGES}


def test_every_page_is_in_the_index() -> None:
    linked = {os.path.normpath(f"docs/{link}") for link in page("docs/index.md").links}
    assert {each.name for each in PAGES if each.name != "docs/index.md"} <= linked


def test_the_reference_is_that_of_the_package() -> None:
    named = [name for names in reference_page.GROUPS.values() for name in names]
    assert sorted(named) == sorted(JOIN_KEYS)
    assert reference_page.PLACE.read_text() == reference_page.text(), "python -m tests.support.reference_page"


def test_the_page_of_errors_is_that_of_the_package() -> None:
    """Its examples are provoked while it is made, and what it says works is tried by `tests/cli/test_hints.py`."""
    assert [code for code, kind in table_of_errors().items() if "mend" not in vars(kind)] == []
    assert error_page.PLACE.read_text() == error_page.text(), "python -m tests.support.error_page"


@pytest.mark.parametrize(
    ("title", "schema"),
    [
        ("Punctuations", PUNCTUATIONS_SCHEMA),
        ("Late rows", LATE_SCHEMA),
        ("Rejects", REJECTS_SCHEMA),
        ("Ledger", LEDGER_SCHEMA),
        ("Metrics", METRICS_SCHEMA),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_column_of_a_table_is_explained(title: str, schema: pa.Schema) -> None:
    (section,) = re.findall(rf"^## {title}\n(.*?)^## ", page("docs/tables.md").text, re.MULTILINE | re.DOTALL)
    named = [
        name for line in re.findall(r"^\|([^|]*)\|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    ]
    assert sorted(named) == sorted(schema.names)


@pytest.mark.parametrize("page", **BY_NAME)
def test_every_option_named_exists(page: Page) -> None:
    suites = fixed_workloads.commands.values()
    known = {
        option
        for each in (group, *COMMANDS.values(), *suites)
        for parameter in each.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    # A campaign has options of its own, and Spark has.
    ours = "\n".join(line for line in page.text.splitlines() if " -m tests." not in line and "packages " not in line)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) <= known | {"--help"}


def test_every_command_named_exists() -> None:
    named = {line[1] for each in PAGES for block in each.blocks for line in block.command_lines}
    for each in PAGES:
        named |= set(re.findall(r"`streamjoin (\w+)", each.text))
    assert {"run", "explain", "bench", "doctor"} <= named <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", README.text, re.MULTILINE)) == {"demo", "test"} <= targets


def test_every_sql_statement_is_one_that_is_read() -> None:
    (block,) = page("docs/sql.md").of("sql")
    script = Script(block.body)
    assert script.checked(script.steps, None)


def named_commands() -> list[list[str]]:
    """Return every `streamjoin ...` and `python -m tests.bench ...` in the pages, in blocks and between backticks."""
    lines = [line for each in PAGES for block in each.blocks for line in block.command_lines]
    for each in PAGES:
        found = re.findall(r"`(streamjoin \w[^`]*|\.venv/bin/python -m tests\.bench\b [^`]*)`", each.prose)
        lines += [shlex.split(" ".join(text.split())) for text in found]
    return [list(line) for line in dict.fromkeys(map(tuple, lines))]


@pytest.mark.parametrize("line", named_commands(), ids=" ".join)
def test_every_command_is_one_that_the_command_line_takes(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option and name of the line is known. A required parameter may be missing."""
    logger = logging.getLogger("streamjoin_ds")  # how it logs is as before afterwards
    for name in (LEVEL_VARIABLE, FORMAT_VARIABLE):
        monkeypatch.setenv(name, "")
    for thing, name in ((sys, "stderr"), (logger, "level"), (logger, "propagate"), (logger, "handlers")):
        monkeypatch.setattr(thing, name, getattr(thing, name))
    logger.handlers = []
    known: dict[str, Collection[str]] = {}
    if line[0] == "streamjoin":
        command, name, rest = COMMANDS[line[1]], line[1], line[2:]
    else:
        name, *rest = line[3:] if line[3] in fixed_workloads.commands else ("paths", *line[3:])
        command = fixed_workloads.commands[name]
        known = {"paths": WORKLOADS, "engine": workload_names(), "stream": MEASURES}
    with contextlib.suppress(click.MissingParameter):
        given = command.make_context(name, list(rest)).params
        assert set(given.get("workloads") or given.get("measures") or ()) <= set(known.get(name, ()))


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_every_figure_names_the_command_that_gives_it(name: str) -> None:
    tables = re.findall(r"^\|[^\n]*(?:command)[^\n]*\|\n\|[-|]+\n((?:\|.*\n)+)", page(name).text, re.MULTILINE)
    assert tables
    for table in tables:
        for number, line in enumerate(table.splitlines()):
            named = "`.venv/bin/python -m tests." in line
            assert named or (number and ("| the same |" in line or line.startswith("| its "))), line


def test_prose_states_no_speed() -> None:
    """A figure of a speed stands in a table beside its command; elsewhere it grows old unseen."""
    for each in PAGES:
        prose = "\n".join(line for line in each.prose.splitlines() if not line.startswith("|"))
        assert re.findall(r"\d[\d. ]* (?:M |G )?(?:x|rows/s|messages/s|tuples/s|us|\u00b5s|ns)\b", prose) == [], (
            each.name
        )


def test_every_test_and_campaign_named_is_there() -> None:
    (body,) = [block.body for block in CONTRIBUTING.of("sh") if " -m tests." in block.body]
    for line in body.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            continue
        assert words[:2] == [".venv/bin/python", "-m"]
        if words[2] == "pytest":
            paths = [word for word in words[3:] if word.startswith("tests/")]
            assert paths
            assert all((ROOT / path).exists() for path in paths)
        else:
            path = ROOT / words[2].replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def configuration() -> str:
    (block,) = START.of("toml")
    return block.body


@pytest.mark.parametrize("name", ["docs/sources/http.md", "docs/sources/kafka.md"])
def test_a_part_of_a_configuration_is_understood(name: str, tmp_path: Path) -> None:
    (block,) = page(name).of("toml")
    other = '[streams.other]\nsource = "gen:band2d?side=s&rate=10"\n'
    (tmp_path / "join.toml").write_text(f'on = "w.t <> other.a"\nwindow = "1s"\n{block.body}\n{other}')
    assert request_of(tmp_path / "join.toml", {}).join.streams[0].records is not None


def test_no_page_repeats_another() -> None:
    """No run of so many words stands on two pages; what is made of the code's own texts may."""
    words = 30
    seen: dict[tuple[str, ...], str] = {}
    for each in PAGES:
        text = re.findall(r"[\w'`-]+", each.prose.lower())
        for start in range(len(text) - words if each.name not in GENERATED else 0):
            run = tuple(text[start : start + words])
            assert seen.setdefault(run, each.name) == each.name, " ".join(run)


def test_the_configuration_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "join.toml"
    path.write_text(configuration())
    request = request_of(path, {})
    assert request.join.names == ("k", "n")
    assert request.join.streams[0].delay_us == 30_000_000
    assert (request.to, request.checkpoint, dict(request.run)) == ("far", "far.ckpt", {"available_now": True})


def test_the_joins_in_shell_and_python_are_one() -> None:
    (line,) = [line for block in README.of("sh") for line in block.command_lines if line[1] == "run"]
    context = run.make_context("run", line[2:])
    given = {key: value for key, value in context.params.items() if key not in ("config", "as_json")}
    names: dict[str, Any] = {}
    code = START.of("python")[0].body.split("query =")[0].replace("spark = spark_session()", "")
    exec(compile(code, START.name, "exec"), names)
    shell, python = request_of(None, given).join, names["join"]
    assert (shell.streams, shell.window, shell.select) == (python.streams, python.window, python.select)
    assert [str(predicate) for predicate in shell.predicates] == [str(predicate) for predicate in python.predicates]


def known_pairs() -> int:
    found = re.search(r"15 minutes; (\d+) pairs", README.text)
    assert found is not None
    return int(found[1])


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a command asks for logs, it asks it of the processes that come after it, too: of none after its test."""
    for name in (LEVEL_VARIABLE, FORMAT_VARIABLE):
        monkeypatch.setenv(name, "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds only what earlier blocks have left."""
    return tmp_path_factory.mktemp("from-an-empty-folder")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose `streamjoin` and `python` are those of the package under test."""
    tools = tmp_path_factory.mktemp("bin")
    for name, what in (("streamjoin", "-m streamjoin_ds.cli.main"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {what} "$@"\n')
        (tools / name).chmod(0o755)
    search = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": search}


def pasted(
    command: list[str], text: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        input=text,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{text}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.spark
@pytest.mark.delta
def test_the_join_of_the_front_page_runs_as_pasted(folder: Path, environment: dict[str, str]) -> None:
    (make, join) = README.of("sh")
    assert make.body.startswith("make ")  # a clone of the repository is needed; another test looks at the targets
    done = pasted(["bash", "-e"], join.body, folder, environment)
    assert f"{known_pairs():,} matches" in " ".join(done.stderr.split())
    looks = [*README.of("python"), *page("docs/tables.md").of("python")]
    done = pasted(["python", "-"], "\n".join(look.body for look in looks), folder, environment)
    assert done.stdout == "".join(look.output or "" for look in looks)
    (kept,) = RUNNING.of("sh")  # it looks at that join's checkpoint
    pasted(["bash", "-e"], kept.body, folder, environment)
    assert scanned(DeltaTable(str(folder / "alike"))).to_table().num_rows == known_pairs()
    tables = re.findall(r"^\| `<name>(_\w+)?` \|", page("docs/tables.md").text, re.MULTILINE)
    assert len(tables) == len(TableSet.names())
    for suffix in tables:
        assert DeltaTable.is_deltatable(str(folder / f"alike{suffix}"))


@pytest.mark.spark
@pytest.mark.delta
def test_the_python_of_start_and_of_dataframes_runs_as_pasted(folder: Path, environment: dict[str, str]) -> None:
    (data,) = START.of("sh")
    pasted(["bash", "-e"], data.body, folder, environment)
    blocks = [*START.of("python"), *DATAFRAMES.of("python")]
    done = pasted(["python", "-"], "\n".join(block.body for block in blocks), folder, environment)
    lines = done.stdout.splitlines()
    counts = [line for line in lines if line.isdigit()]
    assert counts == [str(known_pairs())] * 6
    assert [line for block in blocks for line in (block.output or "").splitlines()] == counts[:5]
    assert "Join" in lines  # a plan is printed too
    assert done.stderr == ""


@pytest.mark.slow
def test_the_configuration_runs(folder: Path, environment: dict[str, str]) -> None:
    pasted(["streamjoin", "data", "flights", "./"], "", folder, environment)
    (folder / "join.toml").write_text(configuration())
    done = pasted(["streamjoin", "run", "--local", "--config", "join.toml", "--json"], "", folder, environment)
    query = f"""SELECT count(*) FROM '{folder}/kennedy.csv.gz' k, '{folder}/newark.csv.gz' n
        WHERE abs(epoch(k.ts) - epoch(n.ts)) <= 900 AND abs(k.distance - n.distance) <= 10
          AND abs(k.air_time - n.air_time) <= 5 AND k.distance > 1000"""
    ((expected,),) = duckdb.connect().sql(query).fetchall()
    assert json.loads(done.stdout)["matches"] == expected > 0
    assert done.stderr == ""
