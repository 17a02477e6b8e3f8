"""``streamjoin sql``: a file or a text, the flags, the plans, and errors that say where in the text they arose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamjoin_ds.cli import sql as sql_module
from streamjoin_ds.cli.main import group
from streamjoin_ds.request.request import Request
from streamjoin_ds.spark import session

STREAMS = (
    "CREATE STREAM r WITH (source = 'gen:band2d?side=r&rows=500&rate=50');\n"
    "CREATE STREAM s WITH (source = 'gen:band2d?side=s&rows=500&rate=50');\n"
)
QUERY = (
    "SELECT r.x, s.a AS other FROM r JOIN s ON abs(r.x - s.a) <= 900\n"
    "AND r.ts BETWEEN s.ts - INTERVAL 10 SECONDS AND s.ts + INTERVAL 10 SECONDS;\n"
)
TEXT = f"{STREAMS}SET spark.ui.enabled = false;\nINSERT INTO near WITH (checkpoint = 'near.ckpt', cells = 2)\n{QUERY}"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(group, ("sql", *arguments), prog_name="streamjoin")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is started: the requests, and the arguments of the session."""
    seen: dict[str, Any] = {}

    def run(spark: object, steps: Sequence[object], joins: Sequence[Any], *, as_json: bool) -> None:
        seen["requests"] = [joined.request for joined in joins]

    monkeypatch.setattr(sql_module, "_run", run)
    monkeypatch.setattr(session, "session_log_path", lambda _: Path("spark.log"))
    monkeypatch.setattr(sql_module.Script, "catalog", lambda *_: None)
    monkeypatch.setattr(session, "spark_session", lambda name, **given: seen.setdefault("session", given))
    return seen


def test_a_file_or_a_text_is_run_and_flags_win(started: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "near.sql"
    path.write_text(TEXT)
    flags = ("--available-now", "--cells", "3", "--checkpoint", "other", "--conf", "spark.a=b", "--pace", "9")
    for arguments in ((str(path),), ("-e", TEXT)):
        started.clear()
        done = invoke(*arguments, *flags)
        assert done.exit_code == 0, done.output
        request: Request = started["requests"][0]
        assert (request.to, request.checkpoint) == ("near", "other")
        assert request.run == {"available_now": True, "cells": 3, "source_options": {"pace": "9"}}
        assert started["session"] == {"conf": {"spark.ui.enabled": "false", "spark.a": "b"}}
        assert request.join.select == ("r.`x`", "s.`a` AS `other`")


def test_explain_prints_what_streamjoin_explain_prints() -> None:
    done = invoke("-e", f"{STREAMS} EXPLAIN {QUERY}")
    assert done.exit_code == 0, done.output
    flags = ("--stream", "r=gen:band2d?side=r&rows=500&rate=50", "--stream", "s=gen:band2d?side=s&rows=500&rate=50")
    same = ("--on", "abs(r.x - s.a) <= 900", "--window", "10s", "--select", "r.x,s.a AS other")
    other = CliRunner().invoke(group, ("explain", *flags, *same), prog_name="streamjoin")
    assert done.stdout == other.stdout
    assert "other" in done.stdout
    again = invoke("-e", TEXT, "--explain")
    assert again.stdout == other.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no statements were given"),
        (("x.sql", "-e", TEXT), "the statements are given twice"),
        (("nosuch.sql",), "the file nosuch.sql cannot be read"),
        (("-e", f"{STREAMS}{QUERY}"), "does not say where its results go"),
        (("-e", f"{STREAMS}INSERT INTO near {QUERY}"), "write INSERT INTO near WITH (checkpoint = 'a/path')"),
        (("-e", TEXT.replace("900", "900 +")), "line 5, column 43: cannot read the predicate"),
        (("-e", TEXT.replace("cells = 2", "delay = 'hunter2'")), "delay = '...'"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(arguments: tuple[str, ...], says: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert "hunter2" not in done.output
