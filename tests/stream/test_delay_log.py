"""What a driver logs of delays: once when the bound is not kept, once when it is kept again."""

from __future__ import annotations

import logging

import pytest

from streamjoin_ds.source.delay_bound import DelayFacts
from streamjoin_ds.stream.query_log import TOLD_BATCHES, DelayLog

KEPT, MISSED = DelayFacts(500_000, 400_000, 0), DelayFacts(500_000, 812_345, 77)


def told(caplog: pytest.LogCaptureFixture, *facts: DelayFacts | None) -> list[str]:
    log = DelayLog()
    with caplog.at_level(logging.WARNING, "streamjoin_ds.stream.query_log"):
        for each in facts:
            log.tell(each)
    return [record.getMessage() for record in caplog.records]


def test_a_bound_that_is_missed_for_a_while_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = told(caplog, *[KEPT] * 3, *[MISSED] * (10 * TOLD_BATCHES))
    assert line.startswith("max_delay 500ms is not kept: ")
    assert "up to 812ms" in line
    assert "77 records still wait" in line


def test_a_bound_that_is_kept_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(caplog, *[MISSED] * TOLD_BATCHES, *[KEPT] * (3 * TOLD_BATCHES), *[MISSED] * TOLD_BATCHES)
    assert [line.split(" ", 2)[2][:6] for line in lines] == ["is not", "is kep", "is not"]


def test_single_slow_batches_and_joins_without_a_bound_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not told(caplog, *([MISSED] * (TOLD_BATCHES - 1) + [KEPT]) * 5, *[None] * 100)
    assert not told(caplog, *[DelayFacts(1, None, 9)] * 100)
