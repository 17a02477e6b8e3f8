"""``streamjoin demo``: a newcomer's first minute, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import csv

import streamjoin_ds
from streamjoin_ds.cli.data import put_files
from streamjoin_ds.cli.demo import PYTHON, SQL, demo_join
from streamjoin_ds.script.script import Script
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.tables import TableSet
from tests.support.documents import ROOT

TIMEOUT_S = 240
KNOWN = 308  # near misses, as the README of the data says; `test_data.py` holds it against DuckDB


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamjoin_ds.cli.main", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


@pytest.mark.spark
@pytest.mark.delta
def test_a_newcomers_first_minute(tmp_path: Path) -> None:
    done = demo("--seconds", "2", "--to", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"page: http://127\.0\.0\.1:\d+/\n", done.stderr)
    text = done.stdout
    for unwanted in ("Traceback", "WARN", "Warning", "ERROR"):
        assert unwanted not in text

    table = str(tmp_path / "demo" / "near")
    rows = scanned(DeltaTable(table)).to_table().to_pylist()
    assert len(rows) == KNOWN
    there = set()
    for row in rows:
        one, other = sorted((row["a_vessel"], row["b_vessel"]))
        there.add(f"{row['event_time']:%H:%M:%S}  {one} and {other}, {row['metres']:,.0f} m, {row['seconds']} s apart")
    told = re.findall(r"^\d\d:\d\d:\d\d  .* s apart$", text, re.MULTILINE)
    assert set(told) <= there
    shown = [line for line in (ROOT / "README.md").read_text().splitlines() if line.endswith(" s apart")]
    assert len(shown) == 2
    assert set(shown) <= set(told)
    pairs = {tuple(sorted((row["a_vessel"], row["b_vessel"]))) for row in rows}
    assert all(any(f"{one} and {other}," in line for line in told) for one, other in pairs)
    assert f"2,275 positions gave {KNOWN} near misses of {len(pairs)} pairs of vessels" in text
    nearest = min(rows, key=lambda row: row["metres"])
    closest = text.partition("closest, by Spark SQL")[2].splitlines()[4]
    assert nearest["a_vessel"] in closest
    assert f" {nearest['metres']:.0f} " in closest

    for who in ("this join, of two tables", "DuckDB, of two tables", "Spark, of two tables"):
        assert re.search(rf"^  {who} +{KNOWN} near misses in \d+\.\d\d s", text, re.MULTILINE)
    assert re.search(r"^  Spark, of two streams +refuses: .*without equality predicate", text, re.MULTILINE)
    assert all(f"  {line}" in text for line in (*PYTHON.splitlines(), *SQL.splitlines()))
    assert f"SELECT * FROM delta.`{table}`" in text
    for name in TableSet.names():
        assert DeltaTable.is_deltatable(TableSet(table).path_of(name))
    log = re.search(r"Spark's log (\S+)", text)
    assert log is not None
    assert Path(log.group(1)).is_file()


def test_the_lines_that_are_shown_are_the_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [csv.read_csv(path) for path in put_files("vessels", tmp_path)]
    *lines, start = PYTHON.splitlines()
    names = dict(vars(streamjoin_ds), Stream=streamjoin_ds.Stream, StreamJoin=streamjoin_ds.StreamJoin)
    exec("\n".join(lines), names)
    assert start.startswith("join.start(spark, ")
    assert names["join"] == demo_join(Path())
    script = Script(SQL)
    (asked,) = script.checked(script.steps, None)

    def pairs(join: streamjoin_ds.StreamJoin) -> pa.Table:
        return join.match(*tables, progress=False).sort_by([("a_seq", "ascending"), ("b_seq", "ascending")])

    found = pairs(demo_join(Path()))
    assert found.num_rows == KNOWN
    assert pairs(asked.request.join).select(found.column_names).equals(found)


@pytest.mark.slow
def test_a_folder_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    done = demo("--seconds", "1", "--to", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("streamjoin: ARGUMENT: the folder")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
