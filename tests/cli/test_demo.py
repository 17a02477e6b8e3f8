"""``streamjoin demo``: a newcomer's first minute, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet

TIMEOUT_S = 240


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


@pytest.mark.spark
@pytest.mark.delta
def test_a_newcomers_first_minute(tmp_path: Path) -> None:
    done = demo("--seconds", "1", "--to", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = done.stdout
    for unwanted in ("Traceback", "WARN", "Warning", "ERROR", "Exception"):
        assert unwanted not in text

    matches = str(tmp_path / "demo" / "matches")
    count = scanned(DeltaTable(matches)).to_table().num_rows
    ledger = scanned(DeltaTable(f"{matches}_ledger")).to_table().to_pylist()
    read = sum(row["read"] for row in ledger)
    late = {s: sum(row["late"] for row in ledger if row["stream"] == s) for s in ("indoor", "outdoor")}
    assert read == 2 * 2_000 * 25
    assert count > 1_000
    assert all(late.values())
    assert f"{read:,} readings gave {count:,} matches" in text
    assert f"First 5 of {count:,} matches, by Spark SQL" in text
    assert "Ledger (read = stored + late + rejected + filtered + duplicates)" in text
    assert "\u2026" not in text, "a number is cut off"
    late_line = next(line for line in text.splitlines() if re.match(r"\W+late\b", line))
    assert all(f"{number:,}" in late_line for number in late.values())
    assert f"SELECT * FROM delta.`{matches}`" in text
    for name in TableSet.names():
        assert DeltaTable.is_deltatable(TableSet(matches).path_of(name))
    log = re.search(r"Spark's log (\S+)", text)
    assert log is not None
    assert Path(log.group(1)).is_file()


@pytest.mark.slow
def test_a_folder_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    done = demo("--seconds", "1", "--to", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("streamjoin: ARGUMENT: the folder")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
