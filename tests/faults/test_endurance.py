"""Eight short lives of the endurance run; ``python -m tests.faults.endurance`` runs longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.endurance import GROWTH, LIMITS, broken

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.delta
@pytest.mark.long
def test_eight_lives_of_one_session():
    command = [sys.executable, "-m", "tests.faults.endurance", "--lives", "8", "--batches", "4", "--of", "generators"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert ended.stdout.count("life ") == 8, ended.stderr
    # Triggers are as slow as the tests beside them make them.
    assert [line for line in ended.stdout.splitlines() if " at most " in line and "trigger_s" not in line] == []


@pytest.mark.parametrize("name", [*GROWTH, *LIMITS])
def test_each_bound_can_break(name):
    usual = dict.fromkeys(GROWTH, 100.0) | dict.fromkeys(LIMITS, 0.2)
    lives = [dict(usual) for _ in range(12)]
    assert not broken(lives, {})
    for number, life in enumerate(lives):
        life[name] *= 1.3**number
    (text,) = broken(lives, {})
    assert text.startswith(name)


@pytest.mark.parametrize(("more", "broken_bounds"), [(0, 0), (4, 1)])
def test_what_spark_leaves_is_no_growth_but_a_file_more_is(more, broken_bounds):
    lives = [
        {**dict.fromkeys(GROWTH, 100.0), **dict.fromkeys(LIMITS, 0.2), "open_files": 100 + (17 + more) * number}
        for number in range(40)
    ]
    assert len(broken(lives, {"open_files": 17, "threads": 0})) == broken_bounds
