"""The data set that comes with the package: it is whole and small, and has the matches that its README states."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.data import DATA_SETS, command
from streamjoin_ds.cli.main import group

PAIRS = """
SELECT count(*) FROM '{0}/kennedy.csv.gz' k, '{0}/newark.csv.gz' n
WHERE abs(epoch(k.ts) - epoch(n.ts)) <= 900 AND abs(k.distance - n.distance) <= 10
  AND abs(k.air_time - n.air_time) <= 5 AND abs(k.delay - n.delay) <= 5
"""


@pytest.mark.parametrize("name", DATA_SETS)
def test_its_files_come_with_the_package_beside_their_source(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [name, str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == sorted(DATA_SETS[name].files)
    assert sum(path.stat().st_size for path in (tmp_path / "new").iterdir()) < 500_000
    text = files("streamjoin_ds").joinpath("_data", name, "README.md").read_text()
    assert "Source: " in text
    assert "licence" in text


def test_flights_are_in_order_and_have_the_known_pairs(tmp_path: Path) -> None:
    CliRunner().invoke(command, ["flights", str(tmp_path)])
    text = files("streamjoin_ds").joinpath("_data", "flights", "README.md").read_text()
    known = re.search(r"apart: (\d+) pairs", text)
    assert known is not None
    assert duckdb.sql(PAIRS.format(tmp_path)).fetchall() == [(int(known[1]),)]
    for name in ("kennedy", "newark"):
        rows = re.search(rf"`{name}\.csv\.gz` \(([\d ]+) rows\)", text)
        assert rows is not None
        times = [row[0] for row in duckdb.sql(f"SELECT ts FROM '{tmp_path / name}.csv.gz'").fetchall()]
        assert times == sorted(times)
        assert len(times) == int(rows[1].replace(" ", ""))


def test_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    for _ in range(2):
        assert CliRunner().invoke(group, ["data", "flights", str(tmp_path)]).exit_code == 0
    (tmp_path / "newark.csv.gz").write_bytes(b"mine")
    (tmp_path / "kennedy.csv.gz").unlink()
    done = CliRunner().invoke(group, ["data", "flights", str(tmp_path)])
    assert done.exit_code == 2
    assert "newark.csv.gz is there already, with other content" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["newark.csv.gz"]
    assert (tmp_path / "newark.csv.gz").read_bytes() == b"mine"


def test_another_name_is_refused() -> None:
    done = CliRunner().invoke(group, ["data", "weather", "."])
    assert done.exit_code == 2
    assert "flights" in done.output
