"""What the README tells a newcomer to type works as it stands there, on the data it is about."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds.cli.bench import command as bench
from streamjoin_ds.cli.demo import command as demo
from streamjoin_ds.cli.doctor import command as doctor
from streamjoin_ds.cli.explain import command as explain
from streamjoin_ds.cli.inspect import command as inspect
from streamjoin_ds.cli.request import request_of
from streamjoin_ds.cli.run import command as run
from streamjoin_ds.cli.vacuum import command as vacuum
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.support.real_data import BY_NAME, FILES, needs_data, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
COMMANDS: dict[str, click.Command] = {"run": run, "demo": demo, "explain": explain, "bench": bench, "doctor": doctor}
COMMANDS |= {"inspect": inspect, "vacuum": vacuum}
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for found, body in FENCED if found == language]


def command_lines() -> list[list[str]]:
    """Every `streamjoin ...` that a block shows, as the shell would split it."""
    lines = [line for body in blocks("") for line in body.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("streamjoin ")]


@pytest.fixture
def beside_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's input files, and nothing else."""
    for stream, name in (("e", "eastbound.csv.gz"), ("w", "westbound.csv.gz")):
        (tmp_path / name).symlink_to(FILES[stream])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def count(name: str) -> int:
    rows: int = scanned(DeltaTable(name)).to_table().num_rows
    return rows


def test_every_option_named_exists() -> None:
    suites = [
        each for command in COMMANDS.values() if isinstance(command, click.Group) for each in command.commands.values()
    ]
    known = {option for each in (*COMMANDS.values(), *suites) for parameter in each.params for option in parameter.opts}
    ours = "\n".join(line for line in TEXT.splitlines() if " -m tests." not in line)  # a campaign has its own --help
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert named
    assert named <= known


def test_every_command_named_exists() -> None:
    named = set(re.findall(r"`streamjoin (\w+)", TEXT)) | {line[1] for line in command_lines()}
    assert {"run", "explain", "bench", "doctor"} <= named <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", "\n".join(blocks("")), re.MULTILINE)) <= targets


def test_every_folder_and_file_named_exists() -> None:
    rooms = re.findall(r"^spec .*\n", "\n".join(blocks("")), re.MULTILINE)
    assert rooms
    for folder in ("sql", "examples"):
        assert f"`{folder}/`" not in TEXT or any((ROOT / folder).iterdir())


def test_the_configuration_is_understood(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "join.toml"
    path.write_text(text)
    request = request_of(path, {})
    assert request.join.names == ("e", "w")
    assert request.join.streams[0].delay_us == 30_000_000
    assert (request.to, request.checkpoint, dict(request.run)) == (
        "conflicts",
        "conflicts.ckpt",
        {"available_now": True},
    )


def test_the_joins_in_shell_and_python_are_one() -> None:
    (line,) = [line for line in command_lines() if line[1] == "run"]
    context = run.make_context("run", line[2:])
    given = {key: value for key, value in context.params.items() if key not in ("config", "as_json")}
    shell, python = request_of(None, given).join, namespace_of(blocks("python")[0].split("query =")[0])["join"]
    assert (shell.streams, shell.window, shell.select) == (python.streams, python.window, python.select)
    assert [str(predicate) for predicate in shell.predicates] == [str(predicate) for predicate in python.predicates]


def namespace_of(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.spark
@pytest.mark.shared
@needs_data
def test_the_python_blocks_run(spark: SparkSession, beside_the_data: Path) -> None:
    reader = spark.read.option("header", True).option("inferSchema", True)
    names: dict[str, Any] = {
        "spark": spark,
        "eastbound_frame": reader.csv(str(FILES["e"])),
        "westbound_frame": reader.csv(str(FILES["w"])),
        "eastbound_batch": unnumbered("e"),
        "westbound_batch": unnumbered("w"),
    }
    for code in blocks("python"):
        names = namespace_of(code, **names)
    expected = BY_NAME["flights"].matches
    assert count("conflicts") == expected
    assert names["results"].count() == expected
    assert names["matches"].num_rows == expected
    assert isinstance(names["matches"], pa.Table)


def unnumbered(stream: str) -> pa.Table:
    return recorded(stream).drop_columns("seq")


@pytest.mark.spark
@pytest.mark.shared
@needs_data
def test_the_command_gives_the_known_matches_and_the_named_tables(beside_the_data: Path) -> None:
    (line,) = [line for line in command_lines() if line[1] == "run"]
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", *line[1:], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1  # where Spark's log is
    assert json.loads(done.stdout)["matches"] == BY_NAME["flights"].matches == count("conflicts")
    tables = re.findall(r"^\| `<name>(_\w+)?` \|", TEXT, re.MULTILINE)
    assert len(tables) == len(TableSet.names())
    for suffix in tables:
        assert DeltaTable(f"conflicts{suffix}").version() >= 0
