"""The data sets that come with the package: each is whole and small, and has the matches that its README states."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from streamjoin_ds.cli.data import DATA_SETS, command, put_files
from streamjoin_ds.cli.main import group

PAIRS = {
    "flights": """
SELECT count(*), NULL FROM '{0}/kennedy.csv.gz' k, '{0}/newark.csv.gz' n
WHERE abs(epoch(k.ts) - epoch(n.ts)) <= 900 AND abs(k.distance - n.distance) <= 10
  AND abs(k.air_time - n.air_time) <= 5 AND abs(k.delay - n.delay) <= 5
""",
    "vessels": """
SELECT count(*), count(DISTINCT least(a.mmsi, b.mmsi) || ' ' || greatest(a.mmsi, b.mmsi))
FROM '{0}/channel_a.csv.gz' a, '{0}/channel_b.csv.gz' b
WHERE abs(epoch_ms(a.ts) - epoch_ms(b.ts)) <= 15000 AND a.mmsi <> b.mmsi AND a.knots > 1 AND b.knots > 1
  AND 2 * 6371008.8 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2)
      + cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2))) <= 1852
""",
}
KNOWN = {"flights": r"apart: (\d+) pairs", "vessels": r"knot: (\d+) pairs of\s+positions, of (\d+) pairs of vessels"}


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


@pytest.mark.parametrize("name", DATA_SETS)
def test_its_rows_are_in_order_and_have_the_known_pairs(name: str, tmp_path: Path) -> None:
    put_files(name, tmp_path)
    text = files("streamjoin_ds").joinpath("_data", name, "README.md").read_text()
    known = re.search(KNOWN[name], text)
    assert known is not None
    (found,) = duckdb.connect().sql(PAIRS[name].format(tmp_path)).fetchall()
    assert tuple(each for each in found if each is not None) == tuple(map(int, known.groups()))
    for file in DATA_SETS[name].files:
        rows = re.search(rf"`{re.escape(file)}` \(([\d ]+) rows\)", text)
        assert rows is not None
        times = [row[0] for row in duckdb.connect().sql(f"SELECT ts FROM '{tmp_path / file}'").fetchall()]
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


def test_what_watches_a_join_comes_with_the_package(tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["data", "monitoring", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"prometheus.yml", "alerts.yml", "dashboard.json"}


def test_another_name_is_refused() -> None:
    done = CliRunner().invoke(group, ["data", "weather", "."])
    assert done.exit_code == 2
    assert "flights" in done.output
