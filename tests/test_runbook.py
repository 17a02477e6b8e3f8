"""Each line of RUNBOOK.md names the test that tries it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES = [line for line in (ROOT / "RUNBOOK.md").read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("|")[1].strip()[:50])
def test_a_line_is_tried(line: str) -> None:
    last = line.removesuffix(" |").rpartition("| ")[2]
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", each) for each in last.split(", ")]
    for each in named:
        assert each is not None, line
        assert f"def {each[2]}(" in (ROOT / each[1]).read_text()


def test_every_code_is_an_error_s() -> None:
    codes = set(
        re.findall(r"class \w+\(.*?code = \"(\w+)\"", (ROOT / "streamjoin_ds/errors.py").read_text(), re.DOTALL)
    )
    told = {word for line in LINES for word in re.findall(r"\b[A-Z]{4,}(?:_[A-Z]+)+\b|\bRECOVERY\b|\bLEDGER\b", line)}
    assert told
    assert told <= codes
