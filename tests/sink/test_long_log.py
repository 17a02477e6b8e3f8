"""A small run of `long_log`; before entries were put by the sink itself, the last commits took 6 times the first."""

from __future__ import annotations

from .long_log import LongLog


def test_a_commit_costs_the_same_however_long_the_log(tmp_path):
    run = LongLog(f"{tmp_path}/matches", 1_500, part=400)
    run.run()
    assert run.violations() == []
