"""Slips on the command line: names that are nearly right are guessed at, before any Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.main import group

ROWS = "ts,x\n2024-03-05T09:00:00Z,1\n2024-03-05T09:00:01Z,2\n"


def said(*arguments: str) -> str:
    return CliRunner().invoke(group, arguments, prog_name="streamjoin").output


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    for name in ("kennedy.csv", "newark.csv.gz.csv"):
        (tmp_path / name).write_text(ROWS)
    return [f"--stream=k={tmp_path / 'kennedy.csv'}", f"--stream=n={tmp_path / 'newark.csv.gz.csv'}", "--on=k.x = n.x"]


@pytest.mark.parametrize(
    ("typed", "meant"), [("explian", "explain"), ("lok", "look"), ("Run", "run"), ("inspekt", "inspect")]
)
def test_a_command_is_guessed_at(typed: str, meant: str) -> None:
    assert f"Did you mean {meant}" in said(typed)


def test_a_command_that_is_like_none_is_refused() -> None:
    assert "No such command 'xyzzy'" in said("xyzzy")


def test_an_option_is_guessed_at(inputs: list[str]) -> None:
    assert "--window" in said("explain", *inputs, "--widow", "15m")


def test_a_file_is_guessed_at(inputs: list[str], tmp_path: Path) -> None:
    for typed, meant in (("newark.csv", "newark.csv.gz.csv"), ("kenedy.csv", "kennedy.csv")):
        told = said("explain", inputs[0], f"--stream=n={tmp_path / typed}", inputs[2], "--window=15m")
        assert f"did you mean {tmp_path / meant}?" in told
    assert "did you mean" not in said("look", str(tmp_path / "q"))


def test_a_time_is_guessed_at(inputs: list[str]) -> None:
    told = said("explain", *inputs, "--window=15m", "--time=timestamp")
    assert "did you mean 'ts'?" in told


def test_the_window_may_stand_in_the_condition(inputs: list[str]) -> None:
    told = said("explain", *inputs[:2], "--on=abs(k.x - n.x) <= 1 WITHIN 15 MINUTES")
    assert "window      15m" in told
    assert "end the conditions with WITHIN" in said("explain", *inputs)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    script = (
        CliRunner().invoke(group, [], prog_name="streamjoin", env={"_STREAMJOIN_COMPLETE": f"{shell}_source"}).output
    )
    assert "_STREAMJOIN_COMPLETE" in script
    words = {"COMP_WORDS": "streamjoin ex", "COMP_CWORD": "ex" if shell == "fish" else "1"}
    env = {"_STREAMJOIN_COMPLETE": f"{shell}_complete", **words}
    assert "explain" in CliRunner().invoke(group, [], prog_name="streamjoin", env=env).output
    words = {"COMP_WORDS": "streamjoin explain --win", "COMP_CWORD": "--win" if shell == "fish" else "2"}
    env = {"_STREAMJOIN_COMPLETE": f"{shell}_complete", **words}
    assert "--window" in CliRunner().invoke(group, [], prog_name="streamjoin", env=env).output
