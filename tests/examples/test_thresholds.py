"""The example of a stream and a table: thresholds that change, as Python and as SQL."""

from __future__ import annotations

import importlib.util
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streamjoin_ds.plan import Layout
from streamjoin_ds.script.script import Script
from streamjoin_ds.stream.source_facts import bound_join
from tests.support.microbatch import MicroBatches

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("thresholds", EXAMPLES / "thresholds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def write_thresholds(path: Path, *rows: tuple[int, float, int, int | None]) -> None:
    moment = pa.timestamp("us", tz="UTC")
    columns: dict[str, Any] = {
        "sensor": [sensor for sensor, *_ in rows],
        "most": [most for _, most, *_ in rows],
        "valid_from": pa.array([at(begin) for *_, begin, _ in rows], moment),
        "valid_to": pa.array([None if end is None else at(end) for *_, end in rows], moment),
    }
    write_deltalake(str(path), pa.table(columns), mode="overwrite")


def test_each_reading_is_held_against_the_threshold_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings").mkdir()
    readings = [(second, second % 2, float(second % 20)) for second in range(60)]
    lines = [f"{at(second).isoformat()},{sensor},{value}\n" for second, sensor, value in readings]
    (tmp_path / "readings" / "0.csv").write_text("ts,sensor,value\n" + "".join(lines[:40]))
    write_thresholds(tmp_path / "thresholds", (0, 15, 0, 20), (0, 5, 20, None), (1, 17, 0, None))
    join = example().alarms("readings", "thresholds")
    as_sql = Script((EXAMPLES / "thresholds.sql").read_text()).steps[0].asked.joined().request.join
    bound = bound_join(join)
    assert bound_join(as_sql).fingerprint == bound.fingerprint
    query = MicroBatches(bound, tmp_path / "checkpoint", Layout.parse("2", 1))
    assert query.step()
    # The batch after joins a new version. What was found before stays.
    write_thresholds(tmp_path / "thresholds", (1, 3, 0, None))
    query.reader = query.source.streamReader(query.source.schema())  # a restart looks at once
    (tmp_path / "readings" / "1.csv").write_text("ts,sensor,value\n" + "".join(lines[40:]))
    assert query.step()
    expected = [
        second
        for second, sensor, value in readings
        if (second < 40 and value > ((15 if second < 20 else 5) if sensor == 0 else 17))
        or (second >= 40 and sensor == 1 and value > 3)
    ]
    found = query.matches()
    assert sorted(row["r_ts"] for row in found.to_pylist()) == [at(second) for second in expected]
    assert len(expected) > 10
