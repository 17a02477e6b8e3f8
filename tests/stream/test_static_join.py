"""A join of whole frames: rows in any order, of any library, all of them, as DuckDB counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds import JoinEngine, Nearest, Stream, StreamJoin, Table, look
from streamjoin_ds.errors import ArgumentError, ColumnError
from tests.support.examples import examples

ON = "abs(e.x - w.x) <= 0.5 AND e.id <> w.id WITHIN 5 SECONDS"


def frame(count: int, seed: int) -> pd.DataFrame:
    """Return rows in no order."""
    random = np.random.default_rng(seed)
    ts = pd.to_datetime(random.integers(0, 60_000, count), unit="ms")
    return pd.DataFrame({"ts": ts, "x": random.uniform(0, 5, count).round(2), "id": random.integers(0, 9, count)})


E, W = frame(300, 1), frame(200, 2)
COUNT = """SELECT count(*) FROM e JOIN w ON abs(e.x - w.x) <= 0.5 AND e.id <> w.id
           AND abs(epoch_us(e.ts) - epoch_us(w.ts)) <= 5000000"""


def join(**options: Any) -> StreamJoin:
    return StreamJoin([Stream("e"), Stream("w", delay="1s")], ON, **options)


def counted(e: pd.DataFrame, w: pd.DataFrame) -> int:
    with duckdb.connect() as connection:
        connection.register("e", e)
        connection.register("w", w)
        return int(connection.execute(COUNT).fetchall()[0][0])


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda one: one, pd.DataFrame),
        (pl.from_pandas, pl.DataFrame),
        (lambda one: pl.from_pandas(one).lazy(), pl.DataFrame),
        (pa.Table.from_pandas, pa.Table),
        (lambda one: pa.Table.from_pandas(one).to_reader(), pa.Table),
        (lambda one: duckdb.connect().from_df(one), pa.Table),
        (lambda one: one.to_dict("records"), pa.Table),
    ],
    ids=["pandas", "polars", "lazy", "arrow", "reader", "duckdb", "dicts"],
)
def test_frames_of_any_library(made: Callable[[pd.DataFrame], Any], kind: type) -> None:
    found = join().match(made(E), made(W))
    assert isinstance(found, kind)
    assert len(found) == counted(E, W) > 100
    assert len(join().match({"w": made(W), "e": made(E)})) == len(found)


@examples(12)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 1000))
def test_any_order_gives_the_same_rows(left: int, right: int, seed: int) -> None:
    e, w = frame(left, seed), frame(right, seed + 1)
    found = join().match(e, w)
    assert len(found) == counted(e, w)
    # A number is a row's place in its frame.
    assert (e.x.to_numpy()[found.e_seq.to_numpy()] == found.e_x.to_numpy()).all()
    assert len(join(how="left").match(e, w)) == len(found) + left - found.e_seq.nunique()
    assert len(join(nearest=Nearest(1)).match(e, w)) == found.e_seq.nunique()


def test_tables_stand_beside_streams() -> None:
    zones = pd.DataFrame({"lo": [0.0, 1.0], "hi": [2.0, 3.0]})
    asked = StreamJoin([Stream("e")], "e.x BETWEEN zones.lo AND zones.hi", tables=[Table("zones")])
    assert len(asked.match(E, zones)) == sum(E.x.between(lo, hi).sum() for lo, hi in ((0, 2), (1, 3)))


def test_rows_that_are_none_are_told(caplog: pytest.LogCaptureFixture) -> None:
    broken = E.assign(ts=E.ts.where(E.index > 3))
    assert len(join().match(broken, W)) == counted(broken, W)
    assert "4 of the 300 rows of e are no tuples" in caplog.text


def test_the_event_time_may_be_the_index_of_a_frame() -> None:
    indexed = E.set_index("ts"), W.set_index("ts")
    found = join().match(*indexed)
    assert list(found.columns) == list(join().match(E, W).columns)
    assert len(found) == len(join().match(*(one.rename_axis(None) for one in indexed))) == counted(E, W)
    assert len(join().match(E.set_index(["id", "ts"]).sort_index(), W)) == counted(E, W)
    assert JoinEngine(join()).push({"e": indexed[0].sort_index(), "w": indexed[1].sort_index()}).num_rows
    assert [stream.time for stream in look(E.rename(columns={"ts": "at"}).set_index("at")).streams] == ["at"]


def test_an_index_that_is_no_time_is_no_column() -> None:
    named = E.rename_axis("row"), W.rename_axis("row")
    assert list(join().match(*named).columns) == list(join().match(E, W).columns)


def test_a_column_of_several_types_is_named() -> None:
    with pytest.raises(ColumnError, match="column 'odd' of stream e holds values of several types"):
        join().match(E.assign(odd=[1, "x"] * 150), W)


def test_odd_event_times_are_told(caplog: pytest.LogCaptureFixture) -> None:
    late = [one.assign(ts=one.ts + pd.Timedelta(days=20_000)) for one in (E, W)]
    assert len(join().match(*late)) == counted(E, W)
    assert not caplog.text
    join().match(*(one.assign(ts=range(len(one))) for one in late))  # counted from any moment
    assert not caplog.text
    join().match(*(one.assign(ts=one.ts.astype("int64") // 10**6) for one in late))
    assert "Are they milliseconds? With time_unit='ms'" in caplog.text
    join().match(late[0], late[1].assign(ts=late[1].ts + pd.Timedelta(hours=2)))
    assert "no event time of one is within the window of the other: are those of one local times" in caplog.text


@pytest.mark.parametrize("frames", [(E,), (E, W, W), ({"e": E},), ({"e": E, "v": W},)])
def test_frames_that_do_not_fit_are_refused(frames: Any) -> None:
    with pytest.raises(ArgumentError, match="e, w"):
        join().match(*frames)


def test_a_frame_in_place_of_a_mapping_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"push\(\{'e': ..., 'w': ...\}\)"):
        JoinEngine(join()).push(E)  # type: ignore[arg-type]


def test_progress_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    join().match(E, W, progress=True)
    assert "rows" in capsys.readouterr().err
    join().match(E, W)
    assert capsys.readouterr().err == ""


def test_what_is_shown_of_a_join() -> None:
    asked = StreamJoin([Stream("e", "in/", time="at", delay="3s"), Stream("w", where="x > 1")], ON, how="left")
    assert repr(asked).splitlines() == [
        "StreamJoin of e, w",
        "  on       abs(e.x - w.x) <= 0.5",
        "           e.id <> w.id",
        "  window   5s",
        "  how      left",
        "  stream   Stream('e', 'in/', time='at', delay='3s')",
        "  stream   Stream('w', where='w.x > 1')",
    ]
    assert "abs(e.x - w.x) &lt;= 0.5" in asked._repr_html_()
    engine = JoinEngine(join())
    assert "not known" in repr(engine)
    engine.push({"e": E.sort_values("ts"), "w": W.sort_values("ts")})
    assert "e 300, w 200 so far" in repr(engine)
    assert repr(Stream("e")) == "Stream('e')"
