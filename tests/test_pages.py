"""A page of `docs` does what it shows: its blocks run in order, and its forms of a join find the same rows.

Pages whose subject is Spark are run by `test_documents.py`.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv

from streamjoin_ds import JoinEngine
from streamjoin_ds.cli.main import group
from streamjoin_ds.cli.run import command as run
from streamjoin_ds.request.request import request_of
from streamjoin_ds.script.script import Script
from tests.support.documents import PAGES, Block

ON_SPARK = (
    "README.md",
    "docs/start.md",
    "docs/sources/dataframes.md",
    "docs/running.md",
    "docs/tables.md",
    "docs/sql.md",
)
GENERATED = ("docs/reference.md", "docs/reference/errors.md")  # their blocks are run where they are made
RUN = [each.name for each in PAGES if each.name not in (*ON_SPARK, *GENERATED) and each.of("python", "sql", "sh")]
# A page about a kind of join has it in Python, in SQL and on the command line.
KINDS = [
    name
    for name in RUN
    if name.startswith("docs/joins/") and name not in ("docs/joins/index.md", "docs/joins/event-time.md")
]


def rows(join: Any) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of a join over files of CSV, in an order of their own, and whether some wait for its end."""
    given = {stream.name: csv.read_csv(stream.source) for stream in join.streams}
    engine = JoinEngine(join, {name: table.schema for name, table in given.items()})
    for table in join.tables:
        engine.use_table(table.name, csv.read_csv(table.source))
    pushed, waited = engine.push(given), engine.finish()
    return sorted(pa.concat_tables([pushed, waited]).to_pylist(), key=repr), waited.num_rows > 0


def shown(block: Block, names: dict[str, Any]) -> str:
    """Run a block, and return what it prints. `names` has the joins that it asks for under the block's language."""
    if block.language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.body, "page", "exec"), names)
        return printed.getvalue()
    if block.language == "sql":
        script = Script(block.body)
        names["sql"] = [asked.request.join for asked in script.checked(script.steps, None)]
        return ""
    if block.body.startswith("streamjoin run"):
        (line,) = block.command_lines
        given = run.make_context("run", line[2:]).params
        names["run"] = [request_of(None, {key: value for key, value in given.items() if key != "config"}).join]
        return ""
    if block.body.startswith("streamjoin "):
        (line,) = block.command_lines
        return CliRunner().invoke(group, line[1:], catch_exceptions=False).output
    done = subprocess.run(["bash", "-e"], input=block.body, capture_output=True, text=True, check=True)
    return done.stdout


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@pytest.mark.parametrize("name", RUN)
def test_a_page_does_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (page,) = [each for each in PAGES if each.name == name]
    forms = 0
    for block in page.of("python", "sql", "sh"):
        printed = shown(block, names)
        if block.output is not None:
            assert lines(printed) == lines(block.output), block.body
        for join in names.pop("sql", []) + names.pop("run", []):
            assert rows(join) == rows(names["join"]) != ([], False), block.body
            forms += 1
    if name in KINDS:
        assert forms == 2  # each is compared with the one in Python
        assert any(block.output for block in page.of("python"))
        assert rows(names["join"])[1] == ("A run that ends" in page.text)


def test_the_pages_are_those_of_all_kinds() -> None:
    assert len(KINDS) == 10
