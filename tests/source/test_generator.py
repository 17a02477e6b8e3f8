from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.generator import GENERATORS, GeneratorFeed, generator_schema, parse_generator
from streamjoin_ds.source.position import RowPosition
from streamjoin_ds.source.synthetic_rows import BLOCK_ROWS
from streamjoin_ds.spec import Stream
from tests.support.examples import examples

TEXTS = [
    "gen:band2d?side=r&rate=5117&seed=3&rows=150000",
    "gen:band2d?side=s&rate=0.5&rows=150000",
    "gen:band2d?rates=0s:1000,30s:40000,31s:7.25&rows=150000",
    "gen:band1d?rows=150000",
    "gen:band1d?keys=gaussian&rows=150000",
    "gen:band1d?keys=gamma&rows=150000",
    "gen:band1d?keys=drift&drift_rows=1000&rows=150000",
    "gen:sensor?rate=500&rows=150000&late=0.01",
]


def made(text: str, names: list[str] | None = None) -> GeneratorFeed:
    stream = Stream("g", parse_generator(text))
    schema = generator_schema(stream)
    return GeneratorFeed(
        stream, schema if names is None else pa.schema([f for f in schema if f.name in ("ts", *names)])
    )


def table(feed: GeneratorFeed, first: int, last: int) -> pa.Table:
    return pa.Table.from_batches([chunk.tuples for chunk in feed.read(RowPosition(first), RowPosition(last))])


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
@examples(8)
@given(st.data())
def test_any_split_gives_the_same_rows(text: str, data: st.DataObject) -> None:
    feed = made(text)
    edge = BLOCK_ROWS + data.draw(st.integers(-3, 3))
    cuts = sorted({0, 150_000, edge, data.draw(st.integers(1, 149_999))})
    whole = table(feed, 0, 150_000)
    pieces = [table(made(text), low, high) for low, high in pairwise(cuts)]
    joined = pa.concat_tables(pieces)
    for name in whole.column_names:
        left, right = (t[name].combine_chunks() for t in (whole, joined))
        assert left.is_null().equals(right.is_null())
        assert repr(left.to_pylist()) == repr(right.to_pylist())  # as text, since NaN is not equal to itself


@pytest.mark.parametrize("text", TEXTS)
def test_frontier_agrees_with_the_rows(text: str) -> None:
    feed = made(text)
    ts = table(feed, 0, 150_000)["_ts"].to_numpy()
    running = np.maximum.accumulate(ts)
    for first, limit in ((0, 150_000), (65_530, 10), (65_536, 70_000), (149_999, 5), (150_000, 5)):
        frontier = feed.frontier(RowPosition(first), limit)
        here = running[first : first + limit]
        assert frontier.rows == len(here)
        if not len(here):
            assert frontier.first_time() is None
            continue
        assert (frontier.first_time(), frontier.last_time()) == (here[0], here[-1])
        for at in {
            int(here[0]) - 1,
            int(here[0]),
            int(here[len(here) // 2]),
            int(here[len(here) // 2]) + 1,
            int(here[-1]),
        }:
            assert frontier.rows_until(at) == np.searchsorted(here, at, side="right")


def test_columns_do_not_depend_on_which_travel() -> None:
    text = "gen:band2d?side=s&rows=1000&seed=9"
    whole = table(made(text), 0, 1000)
    for name in ("a", "b", "c", "d"):
        assert table(made(text, [name]), 0, 1000)[name].equals(whole[name])


def test_band2d_is_the_papers_data() -> None:
    rows = table(made("gen:band2d?rows=200000&rate=1000"), 0, 200_000)
    x, y = rows["x"].to_numpy(), rows["y"].to_numpy()
    assert (x.min(), x.max()) == (1, 10_000)
    assert y.min() >= 1
    assert y.max() <= 10_000
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.01
    assert abs(x.mean() - 5000.5) < 30
    assert {len(z) for z in rows["z"].to_pylist()} == {20}
    assert rows.schema.field("x").type == pa.int32()
    assert rows["_ts"].to_numpy()[1000] - rows["_ts"].to_numpy()[0] == 1_000_000
    other = table(made("gen:band2d?rows=1000&seed=1"), 0, 1000)
    assert not other["x"].equals(rows["x"].slice(0, 1000))


def test_known_values_never_change() -> None:
    # These values are fixed: a checkpoint of a generated stream must replay on any version.
    r = table(made("gen:band2d?rows=3&seed=1"), 0, 3)
    assert r["x"].to_pylist() == KNOWN["x"]
    assert r["z"].to_pylist() == KNOWN["z"]
    assert [round(float(v), 3) for v in r["y"].to_pylist()] == KNOWN["y"]
    for keys in ("gamma", "gaussian"):
        assert table(made(f"gen:band1d?keys={keys}&rows=3&seed=1"), 0, 3)["key"].to_pylist() == KNOWN[keys]


KNOWN: dict[str, list[object]] = {
    "x": [7019, 4075, 7091],
    "y": [8123.475, 6118.817, 5297.313],
    "z": ["ckmthkodqsmydsdxnuzl", "ncjxjihkbviutqpfmovh", "zepjqbodocfyvjgskzpe"],
    "gamma": [698199934, 229579228, 568778895],
    "gaussian": [1252675497, 782606319, 1152832040],
}


def test_rates_change_when_they_should() -> None:
    ts = table(made("gen:band2d?rates=0s:10,2s:1000&rows=520"), 0, 520)["_ts"].to_numpy()
    since = ts - ts[0]
    assert np.count_nonzero(since < 2_000_000) == 20
    assert np.count_nonzero((since >= 2_000_000) & (since < 2_500_000)) == 500


def test_far_rows_cost_nothing() -> None:
    feed = made("gen:band2d?rate=1000000")
    far = 10**15
    assert feed.endless
    assert feed.frontier(RowPosition(far), 100).rows == 100
    assert table(feed, far, far + 10)["_seq"].to_pylist() == list(range(far, far + 10))


@pytest.mark.parametrize("keys", ["uniform", "gaussian", "gamma", "drift"])
def test_key_distributions(keys: str) -> None:
    key = table(made(f"gen:band1d?keys={keys}&rows=200000&high=999999"), 0, 200_000)["key"].to_numpy() / 1e6
    mean, deviation = {
        "uniform": (0.5, 0.2887),
        "gaussian": (0.5, 0.125),
        "gamma": (0.25, 0.144),
        "drift": (0.255, 0.125),
    }[keys]
    assert abs(key.mean() - mean) < 0.01
    assert abs(key.std() - deviation) < 0.01
    assert 0 <= key.min() < key.max() < 1


def test_sensor_has_what_real_sensors_have() -> None:
    rows = table(made("gen:sensor?rate=100&rows=100000"), 0, 100_000)
    ts, temperature = rows["_ts"].to_numpy(), rows["temperature"]
    behind = np.maximum.accumulate(ts) - ts
    assert 0 < np.count_nonzero(behind > 2_100_000) < 200  # late
    assert np.count_nonzero(behind) > 50_000  # out of order
    assert 500 < temperature.null_count < 10_000  # gaps
    assert 0 < np.count_nonzero(np.isnan(temperature.drop_null().to_numpy())) < 300


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gen:band3d", "band3d"),
        ("band2d", "generator"),
        ("gen:band2d?side=r&side=s", "generator"),
        ("gen:band2d?side", "generator"),
        ("gen:band2d?colour=red", "colour"),
        ("gen:band2d?side=q", "side"),
        ("gen:band2d?rate=0", "rate"),
        ("gen:band2d?rate=-1", "rate"),
        ("gen:band2d?rate=nan", "rate"),
        ("gen:band2d?rate=inf", "rate"),
        ("gen:band2d?rate=1/0", "rate"),
        ("gen:band2d?rows=-1", "rows"),
        ("gen:band2d?rows=1.5", "rows"),
        ("gen:band2d?seed=-1", "seed"),
        ("gen:band2d?low=5&high=4", "low"),
        ("gen:band2d?rates=1s:5", "rates"),
        ("gen:band2d?rates=0s:5,0s:6", "rates"),
        ("gen:band2d?rates=0s:5&rate=4", "rates"),
        ("gen:band2d?start=soon", "start"),
        ("gen:band1d?keys=zipf", "keys"),
        ("gen:band1d?high=99999999999", "high"),
        ("gen:sensor?nan=2", "nan"),
        ("gen:sensor?disorder=2", "disorder"),
    ],
)
def test_errors_name_the_parameter(text: str, name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_generator(text)
    assert caught.value.name == name
    assert caught.value.hint


def test_every_parameter_is_documented_and_valid() -> None:
    for name, kind in GENERATORS.items():
        if not kind.make.__module__.startswith("streamjoin_ds"):
            continue  # a generator of the simulator, whose tests may have run in this process
        assert kind.summary
        assert {"rate", "rows", "seed", "start"} <= set(kind.parameters)
        made(f"gen:{name}?rows=10")
