"""Rejects in the log: the first of each kind, with what it is, where all of them are, and nothing twice."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.stream.reject_log import RejectLog


def test_each_kind_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    log = RejectLog()
    with caplog.at_level(logging.WARNING):
        for reasons in ({"e": ("x", "no int64")}, {"e": ("x", "no int64"), "w": ("", "not JSON")}):
            log.tell(reasons, {"e": 3, "w": 1}, {"e": 10, "w": 4}, "m_rejects")
        for number in range(100):
            log.tell({"e": ("x", f"kind {number}")}, {"e": 1}, {"e": 1}, "m_rejects")
    assert caplog.messages[:2] == [
        "stream e: 3 of the 10 records of a batch are rejects, one for this: column x: no int64. All are in m_rejects",
        "stream w: 1 of the 4 records of a batch are rejects, one for this: not JSON. All are in m_rejects",
    ]
    assert len(caplog.messages) == 21


@pytest.mark.spark
@pytest.mark.delta
def test_a_number_that_became_a_fraction_is_told(spark, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    # The columns are those of the first file, where x is a whole number.
    for file, values in enumerate([[20] * 10, [21] + [20.5] * 9]):
        lines = [json.dumps({"ts": 1_700_000_000_000 + k, "x": value}) for k, value in enumerate(values)]
        (tmp_path / "in" / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    streams = [Stream(name, str(tmp_path / "in"), time_unit="ms") for name in "ew"]
    join = StreamJoin(streams, on=[band("e.x", "w.x", 1)], window="1s")
    with caplog.at_level(logging.WARNING):
        query = join.start(spark, tmp_path / "m", tmp_path / "c", available_now=True, max_rows_per_batch=100)
        query.awaitTermination()
    told = [text for text in caplog.messages if "are rejects" in text]
    assert len(told) == 2
    assert "stream e: 9 of the 20 records of a batch are rejects, one for this: column x: " in told[0]
    assert told[0].endswith(f"All are in {tmp_path / 'm_rejects'}")
