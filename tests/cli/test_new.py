"""``streamjoin new``: what it writes is a join as it stands, and has the matches that it says."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

from streamjoin_ds.cli.main import group
from streamjoin_ds.request.join_keys import read_join_file
from streamjoin_ds.sink.reader import complete

METRES = """2 * 6371008.8 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2)
    + cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2)))"""
FLIGHTS = """SELECT count(*) FROM 'kennedy.csv.gz' e, 'newark.csv.gz' w WHERE abs(epoch(e.ts) - epoch(w.ts)) <= 900
    AND abs(e.distance - w.distance) <= 20 AND abs(e.air_time - w.air_time) <= 5"""
VESSELS = f"""SELECT count(*) FROM 'channel_a.csv.gz' a, 'channel_b.csv.gz' b
    WHERE abs(epoch_ms(a.ts) - epoch_ms(b.ts)) <= 10000 AND {METRES} <= 1000 AND a.mmsi <> b.mmsi"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("flights", "vessels"):
        assert typed("data", name, ".").exit_code == 0
    return tmp_path


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


@pytest.mark.delta
@pytest.mark.parametrize(
    ("sources", "asked", "query"),
    [
        ("kennedy.csv.gz newark.csv.gz", [], FLIGHTS),
        (
            "a=channel_a.csv.gz b=channel_b.csv.gz --window 10s",
            ["--on", "distance_m(a.lat, a.lon, b.lat, b.lon) <= 1000", "--on", "a.mmsi <> b.mmsi"],
            VESSELS,
        ),
    ],
)
def test_what_it_writes_runs_as_it_stands(here: Path, sources: str, asked: list[str], query: str) -> None:
    written = typed("new", "join.toml", *sources.split(), *asked)
    assert written.exit_code == 0, written.output
    assert "streamjoin run --config join.toml" in written.output
    plan = typed("explain", "--config", "join.toml")
    assert plan.exit_code == 0, plan.output
    done = typed("run", "--config", "join.toml", "--local")
    assert done.exit_code == 0, done.output
    assert [(complete("join").num_rows,)] == duckdb.connect().sql(query).fetchall()


def test_what_is_a_guess_says_so_and_every_proposal_can_be_taken(here: Path) -> None:
    assert typed("new", "new/join.toml", "k=kennedy.csv.gz", "n=newark.csv.gz").exit_code == 0
    text = Path("new/join.toml").read_text()
    assert "# how far apart in time two tuples may be; a guess: five steps between times" in text
    assert "The bounds are guesses" in text
    taken = text.replace('  # "', '  "').replace("# local", "local").replace('# how = "left"', 'how = "left"')
    assert taken.count('\n  "') == 6
    Path("all.toml").write_text(taken)
    plan = typed("explain", "--config", "all.toml")
    assert plan.exit_code == 0, plan.output
    assert "k.dest = n.dest" in plan.output


def test_options_that_a_look_finds_are_in_the_file(here: Path) -> None:
    rows = [f"05.03.2024 09:{minute:02}:00;{minute},5" for minute in range(30)]
    Path("wetter.csv").write_text("\n".join(["zeit;temperature", *rows, ""]))
    rows = [json.dumps({"at": 1709629200 + 60 * minute, "temp": minute + 0.25}) for minute in range(30)]
    Path("readings.jsonl").write_text("\n".join([*rows, ""]))
    written = typed("new", "air.toml", "w=wetter.csv", "r=readings.jsonl")
    assert written.exit_code == 0, written.output
    streams = read_join_file(Path("air.toml"))["streams"]
    assert streams["w"]["decimal"] == ","
    assert streams["w"]["time"] == "zeit"
    assert streams["r"]["time"] == "at"
    assert "# a guess: " in Path("air.toml").read_text()
    plan = typed("explain", "--config", "air.toml")
    assert plan.exit_code == 0, plan.output
    assert "abs(w.temperature - r.temp)" in plan.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["there.toml", "kennedy.csv.gz", "newark.csv.gz"], "is there already"),
        (["new.toml", "kennedy.csv.gz", "b=channel_b.csv.gz"], "no columns of like names and values"),
        (["new.toml", "kennedy.csv.gz", "newerk.csv.gz"], "is not there"),
        (["new.toml", "kennedy.csv.gz", "prose.txt"], "streamjoin look"),
        (["new.toml", "kennedy.csv.gz"], "takes 2 values"),
    ],
)
def test_what_cannot_be_proposed_is_refused_and_nothing_is_written(here: Path, arguments: list[str], told: str) -> None:
    Path("there.toml").write_text("mine")
    Path("prose.txt").write_text("It was a dark and stormy night.\n" * 9)
    before = sorted(here.iterdir())
    done = typed("new", *arguments)
    assert done.exit_code == 2
    assert told in done.output
    assert sorted(here.iterdir()) == before
    assert Path("there.toml").read_text() == "mine"
