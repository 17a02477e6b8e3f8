"""What an exploration says is what DuckDB counts, where all tuples are drawn; where some are, its errors hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import Nearest, Stream, StreamJoin
from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import ArgumentError, WindowError
from streamjoin_ds.exploration import curves
from streamjoin_ds.exploration.curves import FACTORS
from streamjoin_ds.exploration.exploration import Exploration
from tests.support.examples import examples


def frame(count: int, seed: int, span_ms: int = 600_000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    ts = pd.to_datetime(np.sort(random.integers(0, span_ms, count)), unit="ms")
    values = {"x": random.uniform(0, 50, count).round(1), "n": random.integers(0, 40, count)}
    return pd.DataFrame({"ts": ts, **values, "name": random.choice(list("abc"), count)})


E, W = frame(400, 1), frame(500, 2)
SECONDS = "(epoch_us(w.ts) - epoch_us(e.ts))"


def counted(found: Exploration, condition: str, e: pd.DataFrame = E, w: pd.DataFrame = W) -> int:
    """Return the pairs whose tuple of e lies in the stretch."""
    with duckdb.connect() as connection:
        connection.register("e", e)
        connection.register("w", w)
        inside = f"e.ts BETWEEN TIMESTAMP '{found.first[:-1]}' AND TIMESTAMP '{found.last[:-1]}'"
        return int(connection.execute(f"SELECT count(*) FROM e, w WHERE {inside} AND {condition}").fetchall()[0][0])


# A join, the name of what is widened, and SQL with {0}, the factor, in its place.
WINDOW = f"abs{SECONDS} <= 8000000"
CASES = [
    ("abs(e.x - w.x) <= 0.5", "8s", "abs(e.x - w.x)", f"abs(e.x - w.x) <= 0.5 * {{0}} AND {WINDOW}"),
    ("abs(e.x - w.x) < 0.5", "8s", "abs(e.x - w.x)", f"abs(e.x - w.x) < 0.5 * {{0}} AND {WINDOW}"),
    ("abs(e.n - w.n) <= 2", "8s", "abs(e.n - w.n)", f"abs(e.n - w.n) <= 2 * {{0}} AND {WINDOW}"),
    ("abs(e.n - w.n) < 2", "8s", "abs(e.n - w.n)", f"abs(e.n - w.n) < 2 * {{0}} AND {WINDOW}"),
    (
        "e.n - w.n BETWEEN -1 AND 3 AND e.name = w.name",
        "8s",
        "e.n - w.n",
        f"e.n - w.n BETWEEN -1 * {{0}} AND 3 * {{0}} AND e.name = w.name AND {WINDOW}",
    ),
    (
        "e.n - w.n BETWEEN 4 AND 8",
        "8s",
        "e.n - w.n",
        f"e.n - w.n BETWEEN 6 - 2 * {{0}} AND 6 + 2 * {{0}} AND {WINDOW}",
    ),
    (
        "abs(e.n - w.n) + abs(e.x - w.x) <= 4 AND e.x > 10",
        "8s",
        "abs(e.n - w.n) + abs(e.x - w.x)",
        f"abs(e.n - w.n) + abs(e.x - w.x) <= 4 * {{0}} AND e.x > 10 AND {WINDOW}",
    ),
    ("abs(e.n - w.n) <= 2", "8s", "window", f"abs(e.n - w.n) <= 2 AND abs{SECONDS} <= 8000000 * {{0}}"),
    (
        "abs(e.n - w.n) <= 2",
        {"e": "6s", "w": "1s"},
        "window",
        f"abs(e.n - w.n) <= 2 AND {SECONDS} BETWEEN -1000000 * {{0}} AND 6000000 * {{0}}",
    ),
]


@pytest.mark.parametrize(("on", "window", "name", "sql"), CASES)
def test_curves_are_what_duckdb_counts(on: str, window: Any, name: str, sql: str) -> None:
    found = StreamJoin([Stream("e"), Stream("w")], on, window).explore(E, W)
    assert found.tuples == found.of > 200
    curve = next(one for one in found.curves if one.name == name)
    for place, factor in enumerate(FACTORS):
        exact = f"(CAST({factor.numerator} AS DOUBLE) / {factor.denominator})"
        assert round(curve.partners[place] * found.of) == counted(found, sql.format(exact)), curve.bounds[place]
    assert set(curve.errors) == {0.0}
    assert {one.partners[one.asked] for one in found.curves} == {found.partners["mean"]}


@examples(8)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(5, 20))
def test_the_join_itself_is_what_match_finds(seed: int, width: int, window_s: int) -> None:
    e, w = frame(150, seed), frame(150, seed + 1)
    join = StreamJoin([Stream("e", where="n < 30"), Stream("w")], f"abs(e.n - w.n) <= {width}", f"{window_s}s")
    found = join.explore(e, w.sample(frac=1, random_state=seed))
    stretch = pd.Timestamp(found.first[:-1]), pd.Timestamp(found.last[:-1])
    pairs = join.match(e, w)
    times = pairs.e_ts.dt.tz_localize(None)
    assert round(found.partners["mean"] * found.of) == ((times >= stretch[0]) & (times <= stretch[1])).sum()
    for curve in found.curves:
        for numbers in (curve.partners, curve.matched):
            assert list(numbers) == sorted(numbers)
        assert list(curve.at) == sorted(curve.at)


def test_what_is_drawn_is_without_bias_and_its_error_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 draws the mean is the truth within three of its own standard errors; 95 of 100 lie within two of theirs."""
    join = StreamJoin([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 5", "20s")
    truth = join.explore(E, W).partners["mean"]
    monkeypatch.setattr(curves, "_MOST_TUPLES", 60)
    whole = curves.drawn
    means, errors = [], []
    for seed in range(60):
        draw = lambda *given, seed=seed: whole(*given, seed=seed)  # noqa: E731
        monkeypatch.setattr("streamjoin_ds.exploration.exploration.drawn", draw)
        found = join.explore(E, W)
        assert found.tuples == 60 < found.of
        means.append(found.partners["mean"])
        errors.append(found.partners["error"])
    away = (np.array(means) - truth) / np.array(errors)
    assert abs(np.mean(means) - truth) < 3 * np.std(means) / np.sqrt(60)
    assert 0.85 <= (abs(away) <= 2).mean() < 1
    assert 0.75 < np.std(away) < 1.3


def test_few_are_drawn_where_pairs_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "_MOST_PAIRS", 20_000)
    found = StreamJoin([Stream("e"), Stream("w")], "abs(e.x - w.x) <= 20", "60s").explore(E, W)
    assert found.tuples == 200 < found.of
    assert all(error > 0 for error in found.curves[0].errors[1:])


@pytest.mark.parametrize(
    ("options", "rows_of"),
    [
        ({}, lambda partners: partners),
        ({"how": "left"}, lambda partners: np.maximum(partners, 1)),
        ({"how": "semi"}, lambda partners: partners > 0),
        ({"how": "anti"}, lambda partners: partners == 0),
        ({"nearest": Nearest(2)}, lambda partners: np.minimum(partners, 2)),
        ({"reduce": {"n": "count(*)"}}, lambda partners: partners > 0),
        ({"reduce": {"n": "count(*)"}, "how": "left"}, lambda partners: partners >= 0),
    ],
)
def test_rows_a_day_are_of_the_kind_of_join(options: Any, rows_of: Any) -> None:
    on = "abs(e.n - w.n) <= 2"
    found = StreamJoin([Stream("e"), Stream("w")], on, "8s", **options).explore(E, W)
    pairs = StreamJoin([Stream("e"), Stream("w")], on, "8s").match(E, W)
    times = E.ts.to_numpy("datetime64[us]")
    inside = (times >= np.datetime64(found.first[:-1])) & (times <= np.datetime64(found.last[:-1]))
    partners = np.bincount(pairs.e_seq, minlength=len(E))[inside]
    seconds = (np.datetime64(found.last[:-1], "us") - np.datetime64(found.first[:-1], "us")) / np.timedelta64(1, "s")
    assert found.rows_a_day == pytest.approx(rows_of(partners).sum() / seconds * 86_400)
    assert 0 < found.bytes_a_row < 200
    assert found.bytes_a_day == found.rows_a_day * found.bytes_a_row


def test_late_rows_are_counted_by_delay() -> None:
    shaken = E.assign(ts=E.ts + pd.to_timedelta(np.random.default_rng(3).integers(0, 30_000, len(E)), unit="ms"))
    found = StreamJoin([Stream("e"), Stream("w")], "abs(e.n - w.n) <= 2", "8s").explore(shaken, W)
    behind = (shaken.ts.cummax().shift().fillna(shaken.ts[0]) - shaken.ts).dt.total_seconds()
    late = dict(found.streams[0].late)
    for delay, seconds in (("0s", 0), ("1s", 1), ("10s", 10), ("1m", 60)):
        assert late[delay] == (behind > seconds).mean()
    assert set(dict(found.streams[1].late).values()) == {0.0}


def test_what_cannot_be_explored_is_refused() -> None:
    streams = [Stream("e"), Stream("w")]
    with pytest.raises(ArgumentError, match="of two streams"):
        StreamJoin([*streams, Stream("v")], "abs(e.n - w.n) <= 2", "8s").explore(E, W, W)
    with pytest.raises(WindowError, match="window of time"):
        StreamJoin(streams, "abs(e.n - w.n) <= 2", "last 10").explore(E, W)
    with pytest.raises(ArgumentError, match="a window is longer"):
        StreamJoin(streams, "abs(e.n - w.n) <= 2", "8h").explore(E, W)
    with pytest.raises(ArgumentError, match="apart"):
        StreamJoin(streams, "abs(e.n - w.n) <= 2", "8s").explore(E, W.assign(ts=W.ts + pd.Timedelta("1d")))
    with pytest.raises(ArgumentError, match="no tuples"):
        StreamJoin(streams, "abs(e.n - w.n) <= 2", "8s").explore(E, W[:0])


def test_a_page_has_a_picture_of_each_curve(tmp_path: Path) -> None:
    found = StreamJoin([Stream("e"), Stream("w")], "abs(e.n - w.n) < 2 AND abs(e.x - w.x) <= 5", "8s").explore(E, W)
    found.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    pictures = re.findall(r"<svg.*?</svg>", text)
    assert len(pictures) == len(found.curves) == 3
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        assert len(drawn.findall("polyline")[0].attrib["points"].split()) == len(FACTORS)
    assert "<script" not in text
    assert "http" not in text
    assert "abs(e.n - w.n) &lt;" in text
    assert found._repr_html_() in text


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    for name, rows in (("e", E), ("w", W)):
        rows.to_csv(tmp_path / f"{name}.csv", index=False, date_format="%Y-%m-%dT%H:%M:%S.%fZ")
    return [f"--stream={name}={tmp_path / f'{name}.csv'}" for name in "ew"]


def said(*arguments: str) -> str:
    result = CliRunner().invoke(group, ["explore", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_says_the_same_as_python(inputs: list[str], tmp_path: Path) -> None:
    on = ["--on=abs(e.n - w.n) <= 2 WITHIN 8 SECONDS"]
    found = StreamJoin([Stream("e"), Stream("w")], "abs(e.n - w.n) <= 2", "8s").explore(E, W)
    told = json.loads(said(*inputs, *on, "--json"))
    assert told["curves"] == json.loads(found.to_json())["curves"]
    text = said(*inputs, *on, f"--page={tmp_path / 'page.html'}")
    assert "partners" in text
    assert "rows a day" in text
    assert (tmp_path / "page.html").exists()


def test_without_a_condition_a_look_proposes_one(inputs: list[str]) -> None:
    text = said(*inputs)
    assert "abs(e.x - w.x)" in text or "abs(e.n - w.n)" in text
