"""Everything that the README tells a newcomer to type works as written, on the data that the README names."""

from __future__ import annotations

import contextlib
import json
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
import pytest
from deltalake import DeltaTable

from streamjoin_ds.cli.bench import command as bench
from streamjoin_ds.cli.data import command as data
from streamjoin_ds.cli.demo import command as demo
from streamjoin_ds.cli.doctor import command as doctor
from streamjoin_ds.cli.explain import command as explain
from streamjoin_ds.cli.inspect import command as inspect
from streamjoin_ds.cli.intake import command as intake
from streamjoin_ds.cli.main import group
from streamjoin_ds.cli.repair import command as repair
from streamjoin_ds.cli.run import command as run
from streamjoin_ds.cli.schema import command as schema
from streamjoin_ds.cli.sql import command as sql
from streamjoin_ds.cli.vacuum import command as vacuum
from streamjoin_ds.request.request import request_of
from streamjoin_ds.script.started import Script
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.bench.__main__ import command as fixed_workloads
from tests.bench.suites.engine.suite import workload_names
from tests.bench.suites.live.suite import MEASURES
from tests.bench.suites.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
COMMANDS: dict[str, click.Command] = {"run": run, "demo": demo, "explain": explain, "bench": bench, "doctor": doctor}
COMMANDS |= {"inspect": inspect, "vacuum": vacuum, "repair": repair, "data": data, "schema": schema}
COMMANDS |= {"intake": intake, "sql": sql}
TIMEOUT_S = 300
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for found, body in FENCED if found == language]


def command_lines() -> list[list[str]]:
    """Return every `streamjoin ...` line of the shell blocks, split as the shell splits it."""
    lines = [line for body in blocks("sh") for line in body.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("streamjoin ")]


def test_every_row_of_a_table_is_a_line_of_its_own() -> None:
    torn = [line for line in TEXT.splitlines() if line.startswith("|") and not line.endswith("|")]
    assert torn == []


def test_every_option_named_exists() -> None:
    suites = fixed_workloads.commands.values()
    known = {
        option
        for each in (group, *COMMANDS.values(), *suites)
        for parameter in each.params
        for option in parameter.opts
    }
    # A campaign has options of its own, and Spark has.
    ours = "\n".join(line for line in TEXT.splitlines() if " -m tests." not in line and "packages " not in line)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert named
    assert named <= known


def test_every_command_named_exists() -> None:
    named = set(re.findall(r"`streamjoin (\w+)", TEXT)) | {line[1] for line in command_lines()}
    assert {"run", "explain", "bench", "doctor"} <= named <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)) <= targets


def test_every_sql_statement_is_one_that_is_read() -> None:
    texts = [body for body in blocks("sql") if "CREATE STREAM" in body]
    assert texts
    for text in texts:
        script = Script(text)
        assert script.checked(script.steps, None)


def test_every_folder_and_file_named_exists() -> None:
    rooms = re.findall(r"^spec .*\n", "\n".join(blocks("text")), re.MULTILINE)
    assert rooms
    for folder in ("sql", "examples"):
        assert f"`{folder}/`" not in TEXT or any((ROOT / folder).iterdir())
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOT / link).exists()


def named_commands() -> list[list[str]]:
    """Return every `streamjoin ...` and `python -m tests.bench ...` in the text, in blocks and between backticks."""
    found = re.findall(r"`(streamjoin \w[^`]*|\.venv/bin/python -m tests\.bench\b [^`]*)`", TEXT)
    return [*command_lines(), *(shlex.split(" ".join(text.split())) for text in found)]


@pytest.mark.parametrize("line", named_commands(), ids=" ".join)
def test_every_command_is_one_that_the_command_line_takes(line: list[str]) -> None:
    """Each option and name of the line is known. A required parameter may be missing."""
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


def test_every_figure_names_the_command_that_gives_it() -> None:
    (section,) = re.findall(r"^## How fast\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("|")]
    figures = [line for line in rows if not line.startswith(("| command |", "|---"))]
    assert len(figures) > 15
    for number, line in enumerate(figures):
        first = line.split("|")[1].strip()
        named = first.startswith("`.venv/bin/python -m tests.")
        assert named or (number and first.startswith("the same")), line
    # Prose that states a speed must name a command as well.
    for paragraph in section.split("\n\n"):
        if not paragraph.startswith("|") and re.search(r"\d(\.\d+)? (x|times|ms|M rows)\b", paragraph):
            assert "-m tests.bench" in paragraph or "threads_2_over_1" in paragraph, paragraph


def test_every_test_and_campaign_named_is_there() -> None:
    (body,) = [body for body in blocks("sh") if " -m tests." in body]
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


def test_the_configuration_is_understood(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "join.toml"
    path.write_text(text)
    request = request_of(path, {})
    assert request.join.names == ("k", "n")
    assert request.join.streams[0].delay_us == 30_000_000
    assert (request.to, request.checkpoint, dict(request.run)) == ("far", "far.ckpt", {"available_now": True})


def test_the_joins_in_shell_and_python_are_one() -> None:
    (line,) = [line for line in command_lines() if line[1] == "run"]
    context = run.make_context("run", line[2:])
    given = {key: value for key, value in context.params.items() if key not in ("config", "as_json")}
    names: dict[str, Any] = {}
    code = blocks("python")[0].split("query =")[0].replace("spark = spark_session()", "")
    exec(compile(code, "README.md", "exec"), names)
    shell, python = request_of(None, given).join, names["join"]
    assert (shell.streams, shell.window, shell.select) == (python.streams, python.window, python.select)
    assert [str(predicate) for predicate in shell.predicates] == [str(predicate) for predicate in python.predicates]


def known_pairs() -> int:
    found = re.search(r"15 minutes; (\d+) pairs", TEXT)
    assert found is not None
    return int(found[1])


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
def test_every_block_of_the_shell_runs_as_pasted(folder: Path, environment: dict[str, str]) -> None:
    ran = 0
    for body in blocks("sh"):
        if re.match(r"make |\.venv/bin/python", body):
            continue  # these need a clone of the repository; other tests here check them
        done = pasted(["bash", "-e"], body, folder, environment)
        ran += 1
        if "streamjoin run" in body:
            assert f"{known_pairs():,} matches" in " ".join(done.stderr.split())
    assert ran >= 3
    assert scanned(DeltaTable(str(folder / "alike"))).to_table().num_rows == known_pairs()
    tables = re.findall(r"^\| `<name>(_\w+)?` \|", TEXT, re.MULTILINE)
    assert len(tables) == len(TableSet.names())
    for suffix in tables:
        assert DeltaTable(str(folder / f"alike{suffix}")).version() >= 0


@pytest.mark.spark
@pytest.mark.delta
def test_every_block_of_python_runs_as_pasted_and_finds_the_same(folder: Path, environment: dict[str, str]) -> None:
    done = pasted(["streamjoin", "data", "flights", "./"], "", folder, environment)
    done = pasted(["python", "-"], "\n".join(blocks("python")), folder, environment)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.isdigit()] == [str(known_pairs())] * 4
    assert "Join" in lines  # a plan is printed too
    assert done.stderr == ""


@pytest.mark.spark
@pytest.mark.delta
def test_the_configuration_runs(folder: Path, environment: dict[str, str]) -> None:
    pasted(["streamjoin", "data", "flights", "./"], "", folder, environment)
    (text,) = blocks("toml")
    (folder / "join.toml").write_text(text)
    done = pasted(["streamjoin", "run", "--config", "join.toml", "--json"], "", folder, environment)
    ((expected,),) = duckdb.sql(
        f"""SELECT count(*) FROM '{folder}/kennedy.csv.gz' k, '{folder}/newark.csv.gz' n
        WHERE abs(epoch(k.ts) - epoch(n.ts)) <= 900 AND abs(k.distance - n.distance) <= 10
          AND abs(k.air_time - n.air_time) <= 5 AND k.distance > 1000"""
    ).fetchall()
    assert json.loads(done.stdout)["matches"] == expected > 0
    assert len(done.stderr.splitlines()) == 1  # the line that says where Spark's log is
