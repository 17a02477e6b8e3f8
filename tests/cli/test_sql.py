"""``streamjoin sql``: a file or a text, the flags, the plans, and errors that say where in the text they arose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from streamjoin_ds.cli import sql as sql_module
from streamjoin_ds.cli.display import Display
from streamjoin_ds.cli.main import group
from streamjoin_ds.cli.run import run_queries
from streamjoin_ds.request.request import Request
from streamjoin_ds.spark import session
from streamjoin_ds.stream.commit import BatchSummary

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
        assert started["session"]["conf"] == {"spark.ui.enabled": "false", "spark.a": "b"}
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
    assert again.stdout == CliRunner().invoke(group, ("explain", *flags, *same, "--cells", "2")).stdout


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


class Query:
    """A query that ends after some looks, with an error or without."""

    def __init__(self, looks: int, error: str = "") -> None:
        self.looks, self.error, self.stops = looks, error, 0
        self.lastProgress = None

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks > 0 and not self.stops

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if self.looks <= 0 and self.error:
            raise ValueError(self.error)
        return self.looks <= 0

    def stop(self) -> None:
        self.stops += 1


def displays(count: int) -> list[Display]:
    return [Display(Console(quiet=True), quiet=True) for _ in range(count)]


def test_several_queries_run_until_all_have_ended() -> None:
    queries = [Query(3), Query(9)]
    assert run_queries(lambda: queries, displays(2))  # type: ignore[arg-type, return-value]
    assert [query.looks <= 0 for query in queries] == [True, True]


def test_the_error_of_one_query_stops_the_others() -> None:
    queries = [Query(99), Query(4, "torn")]
    with pytest.raises(ValueError, match="torn"):
        run_queries(lambda: queries, displays(2))  # type: ignore[arg-type, return-value]
    assert queries[0].stops


def test_a_line_of_progress_names_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(Console(), clock=lambda: 1.0, name="near")
    display.batch(BatchSummary(0, 0, 0, *({"e": 0} for _ in range(6)), None, {}, 0, 0, replayed=False))
    assert capsys.readouterr().out.startswith("near:    0.0 s  batch 0")
