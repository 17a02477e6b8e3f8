"""A small run of `long_log`.

Before the sink put entries itself, the last commits took many times as long as the first.
"""

from __future__ import annotations

import pytest

from .long_log import LongLog


@pytest.mark.long
def test_a_commit_costs_the_same_however_long_the_log(tmp_path):
    run = LongLog(f"{tmp_path}/matches", 700, part=120)
    run.run()
    assert run.violations() == []
