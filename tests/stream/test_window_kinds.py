"""Count and periodic windows all the way: broken records, self-joins, what is kept, replays, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from streamjoin_ds import Stream, StreamJoin
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.errors import FingerprintMismatchError, WindowError
from streamjoin_ds.plan import EXCHANGES, Layout
from streamjoin_ds.sink.reader import ordered, scanned
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import Generator, Join, bind
from streamjoin_ds.testing.oracle import oracle_join, source_order
from tests.support.microbatch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = [("1x1", "reference", 1_000), ("2x1", "packed", 7), ("1x2", "reference", 10), ("2x2", "packed", 3)]
KINDS = ["4us", "last 3", "l=last 5,r=last 2", "every 2us for 5us", "l=every 3us for 3us,r=every 3us for 6us lag 1"]


def found(batches: MicroBatches, names: str = "lr") -> Counter[tuple[int, ...]]:
    table = batches.run()
    columns = [*(f"{name}_seq" for name in names), *(["window_id"] if "window_id" in table.column_names else [])]
    return Counter(zip(*(table[column].to_pylist() for column in columns), strict=True))


def expected(join: Join, tables: dict[str, list[dict[str, object]]]) -> Counter[tuple[int, ...]]:
    rows = oracle_join(join, tables)
    columns = [*(f"{name}_seq" for name in join.names), *(["window_id"] if rows and "window_id" in rows[0] else [])]
    return Counter(tuple(row[column] for column in columns) for row in rows)


def runs(join: Join, folder: Path, streams: int = 2) -> list[Counter[tuple[int, ...]]]:
    bound = bind(join, {stream.name: infer_schema(stream) for stream in join.streams})
    names = "".join(join.names)
    results = []
    for layout, exchange, rows in WAYS:
        place = folder / f"{folder.name}-{layout}-{exchange}"
        grid = Layout.parse("x".join([*layout.split("x"), *["1"] * (streams - 2)]), streams)
        results.append(found(MicroBatches(bound, place, grid, exchange, rows), names))
    return results


@pytest.mark.parametrize("window", KINDS)
def test_broken_records_count_and_match_nothing(window: str, tmp_path: Path) -> None:
    """A record with a time and a broken value has a place in the order.

    One without a time has the place of the record before it.
    """
    lines = {
        "l": ["1,0", "2,x", "9,x", "3,1", ",1", "10,1", "zz,0", "11,0", "11,1", "12,0", "8,1"],
        "r": ["1,0", "4,1", "9,0", ",0", "9,1", "10,y", "10,0", "12,1"],
    }
    tables: dict[str, list[dict[str, object]]] = {}
    for name, rows in lines.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["ts,n", *rows, ""]))
        cut = [row.split(",") for row in rows]
        tables[name] = [
            {"ts": int(ts) if ts.isdigit() else None, "n": int(n) if n.isdigit() else None} for ts, n in cut
        ]
    streams = [
        Stream(name, tmp_path / f"{name}.csv", delay="9us", schema={"ts": "int64", "n": "int64"}) for name in "lr"
    ]
    join = Join(streams, "abs(l.n - r.n) <= 0", window)
    answer = expected(join, tables)
    assert len(answer) >= 8
    assert all(result == answer for result in runs(join, tmp_path))


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("window", [*KINDS, "last 1"])
def test_a_self_join_leaves_out_a_tuple_with_itself(window: str, include: bool, tmp_path: Path) -> None:
    """Each of two streams over one file is read by itself. Every pair but (n, n) is there twice, once each way."""
    rows = [{"ts": ts, "n": n % 3} for n, ts in enumerate([1, 2, 2, 2, 3, 5, 4, 8, 8, 9, 9, 9, 13])]
    text = "".join(f"{row['ts']},{row['n']}\n" for row in rows)
    (tmp_path / "one.csv").write_text("ts,n\n" + text)
    schema = {"ts": "int64", "n": "int64"}
    streams = [Stream(name, tmp_path / "one.csv", delay="5us", schema=schema) for name in "lr"]
    join = Join(streams, "abs(l.n - r.n) <= 1", window, include_self_pairs=include)
    answer = expected(join, {"l": rows, "r": rows})
    selves = sum(pair[0] == pair[1] for pair in answer)
    assert (selves > 0) == include
    assert len(answer) > 10
    assert all(result == answer for result in runs(join, tmp_path))


@pytest.mark.slow
def test_three_streams_and_a_count_each(tmp_path: Path) -> None:
    schema = {"ts": "int64", "n": "int64"}
    tables: dict[str, list[dict[str, object]]] = {}
    for place, name in enumerate("abc"):
        tables[name] = [{"ts": (7 * n + place) % 11 + 3 * n, "n": (n * (place + 2)) % 4} for n in range(30)]
        text = "".join(f"{row['ts']},{row['n']}\n" for row in tables[name])
        (tmp_path / f"{name}.csv").write_text("ts,n\n" + text)
    streams = [Stream(name, tmp_path / f"{name}.csv", delay="6us", schema=schema) for name in "abc"]
    on = "abs(a.n - b.n) <= 1 AND abs(b.n - c.n) <= 1"
    for window in (
        "a=last 4,b=last 9,c=last 2",
        "a=every 4us for 9us,b=every 4us for 4us lag 1,c=every 4us for 6us lag -1",
    ):
        join = Join(streams, on, window)
        answer = expected(join, tables)
        assert len(answer) > 20
        folder = tmp_path / window[2:7].replace(" ", "")
        folder.mkdir()
        assert all(result == answer for result in runs(join, folder, 3))


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_count_window_keeps_its_last_k_also_beside_a_silent_stream(exchange: str, tmp_path: Path) -> None:
    """While `r` is silent the watermark stands still: only numbers can empty the window of `l`."""
    streams = [
        Stream("l", Generator("band1d", {"rate": 1000, "rows": 4_000, "seed": 1, "high": 50})),
        Stream("r", Generator("band1d", {"rate": 1000, "rows": 20, "seed": 2, "high": 50})),
    ]
    join = Join(streams, "abs(l.key - r.key) <= 1", "l=last 100,r=last 30")
    bound = bind(join, {stream.name: infer_schema(stream) for stream in streams})
    batches = MicroBatches(bound, tmp_path, Layout.parse("2x1", 2), exchange, 200)
    batches.run()
    kept = batches.companion("metrics").sort_by("batch_id")["state_rows"].to_pylist()
    # A run goes when half of it is out of reach; the tuples of one batch may come on top.
    assert max(kept) <= 100 + 200 + 30
    assert len(kept) > 30


def test_a_replayed_batch_has_the_same_stamps(tmp_path: Path) -> None:
    """The stamps are a function of the offsets: a new reader, which has read nothing ahead, gives the same ones."""
    streams = [
        Stream(name, Generator("sensor", {"rate": 50, "rows": 300, "seed": seed, "disorder": "1s"}), "t", "2s")
        for seed, name in enumerate("lr")
    ]
    join = Join(streams, "abs(l.temperature - r.temperature) <= 1", "last 20")
    bound = bind(join, {stream.name: infer_schema(stream) for stream in streams})
    batches = MicroBatches(bound, tmp_path / "a", Layout.parse("1x1", 2), "packed", 70, options={"parts": "2"})
    batches.reader.prepareForTriggerAvailableNow()
    batches.step()
    start = batches.offset
    batches.step()
    once = [vars(row) for row in batches.exchanged(start, batches.offset)]
    again = MicroBatches(bound, tmp_path / "b", Layout.parse("1x1", 2), "packed", 70, options={"parts": "2"})
    assert [vars(row) for row in again.exchanged(start, batches.offset)] == once


def test_source_order_is_the_sources(tmp_path: Path) -> None:
    """The order is by largest time so far, stream and number. A record without a time stays with the one before."""
    rows = {"l": [5, 3, None, 7], "r": [5, 6, 9]}
    tables = {name: [{"ts": ts} for ts in times] for name, times in rows.items()}
    join = Join([Stream("l"), Stream("r")], (), "last 1")
    assert source_order(join, tables) == [("l", 0), ("l", 1), ("l", 2), ("r", 0), ("r", 1), ("l", 3), ("r", 2)]
    by_batch = source_order(join, tables, [{"l": 1, "r": 2}, {"l": 3, "r": 2}])
    assert by_batch == [("l", 0), ("r", 0), ("r", 1), ("l", 1), ("l", 2), ("l", 3), ("r", 2)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("last 5", "last 6"),
        ("last 5", "l=last 5,r=last 4"),
        ("last 5", "5s"),
        ("5s", "every 5s for 5s"),
        ("every 5s for 5s", "every 5s for 6s"),
        ("every 5s for 5s", "every 4s for 5s"),
        ("every 5s for 5s", "every 5s for 5s lag 1"),
    ],
)
def test_a_changed_window_is_refused_by_name(before: str, after: str, tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
    streams = [Stream(name, f"{name}.csv") for name in "lr"]
    old, new = (bind(Join(streams, "abs(l.x - r.x) <= 1", w), {"l": schema, "r": schema}) for w in (before, after))
    assert old.fingerprint != new.fingerprint
    grid = Layout.parse("1x1", 2)
    CheckpointIdentity.create(tmp_path / "c", old, grid, 1)
    loaded = CheckpointIdentity.load(tmp_path / "c")
    assert loaded is not None
    loaded.check(old)
    with pytest.raises(FingerprintMismatchError) as caught:
        loaded.check(new)
    assert caught.value.name == "window"


def test_count_windows_over_dataframes_are_refused() -> None:
    join = StreamJoin([Stream("l"), Stream("r")], "abs(l.x - r.x) <= 1", "last 5")
    with pytest.raises(WindowError, match="DataFrames have none"):
        join.dataframe({"l": None, "r": None})  # type: ignore[dict-item]  # refused before a frame is looked at


def test_explain_says_the_window(tmp_path: Path) -> None:
    streams = [Stream(name, Generator("band1d", {"rows": 10, "seed": n})) for n, name in enumerate("lr")]
    text = StreamJoin(streams, "abs(l.key - r.key) <= 1", "l=last 100,r=last 30").explain(cells=1)
    assert "l=last 100, r=last 30" in text
    assert "_before_r - _seq in [any, 30]" in text
    text = StreamJoin(streams, "abs(l.key - r.key) <= 1", "every 10s for 60s lag 3").explain(cells=1)
    assert "l=every 10s for 1m, r=every 10s for 1m lag 3" in text
    assert "window_id" in text


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_order_goes_on_where_the_batch_before_ended(form: str, tmp_path: Path) -> None:
    """With much disorder and small batches the largest time so far is often that of a batch long before."""
    chooser = random.Random(form)
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    tables = {}
    for name in "lr":
        times = [chooser.choice((10 * n // 4, chooser.randint(0, 100))) for n in range(40)]
        tables[name] = [{"ts": ts, "n": chooser.randint(0, 2)} for ts in times]
        table = pa.Table.from_pylist(tables[name], schema=schema)
        if form == "csv":
            pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
        else:
            pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
    streams = [Stream(name, tmp_path / f"{name}.{form}", delay="200us", schema=schema) for name in "lr"]
    join = Join(streams, "l.n = r.n", "l=last 6,r=last 9")
    answer = expected(join, tables)
    assert len(answer) > 100
    assert all(result == answer for result in runs(join, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "exchange", "batch_rows"), WAYS)
def test_what_a_stream_brings_behind_the_others_comes_after_them(
    layout: str, exchange: str, batch_rows: int, tmp_path: Path
) -> None:
    """A stream was silent. What it brings later is merged with what is there then, by the largest time so far."""
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    chooser = random.Random(7)
    first = {"l": [chooser.randint(0, 100) for _ in range(30)], "r": []}
    then = {
        "l": sorted(chooser.randint(0, 140) for _ in range(30)),
        "r": sorted(chooser.randint(0, 140) for _ in range(40)),
    }
    streams = [Stream(name, tmp_path / name, delay="200us", schema=schema, format="csv") for name in "lr"]
    join = Join(streams, "l.n = r.n", "l=last 6,r=last 9")
    engine, answer = JoinEngine(join), Counter()
    folder = tmp_path / f"{tmp_path.name}-run"
    bound = bind(join, {"l": schema, "r": schema})
    batches: MicroBatches | None = None
    for number, phase in enumerate((first, then)):
        push = {}
        for name, times in phase.items():
            (tmp_path / name).mkdir(exist_ok=True)
            push[name] = pa.Table.from_pylist([{"ts": ts, "n": ts % 3} for ts in times], schema=schema)
            if times:
                pyarrow.csv.write_csv(push[name], tmp_path / name / f"{number}.csv")
        result = engine.push(push)
        answer += Counter(zip(result["l_seq"].to_pylist(), result["r_seq"].to_pylist(), strict=True))
        batches = batches or MicroBatches(bound, folder, Layout.parse(layout, 2), exchange, batch_rows)
        batches.reader.prepareForTriggerAvailableNow()
        while batches.step():
            pass
    assert batches is not None
    assert len(answer) > 50
    assert found(batches) == answer


@pytest.mark.spark
@pytest.mark.parametrize(
    ("window", "exchange", "layout"),
    [
        pytest.param("l=last 40,r=last 70", "packed", "1x2", marks=pytest.mark.long),
        pytest.param("last 50", "reference", "2x1", marks=pytest.mark.long),
        ("every 1s for 2s lag 1", "packed", "1x2"),
    ],
)
def test_on_spark_too(spark: SparkSession, window: str, exchange: str, layout: str, tmp_path: Path) -> None:
    """There are two starts: the second goes on from the first one's offsets and windows."""
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
    chooser = random.Random(window)
    tables = {}
    for name in "lr":
        times = [1_700_000_000_000_000 + n * 50_000 - chooser.choice((0, 0, 300_000)) for n in range(300)]
        rows = [{"ts": ts, "n": chooser.randint(0, 9)} for ts in times]
        tables[name] = pa.table([pa.array([row[c] for row in rows]) for c in ("ts", "n")], names=["ts", "n"]).cast(
            schema
        )
        (tmp_path / name).mkdir()
    streams = [Stream(name, tmp_path / name, delay="250ms", schema=schema) for name in "lr"]
    join = StreamJoin(streams, "abs(l.n - r.n) <= 1", window)
    for part in range(2):
        for name in "lr":
            pq.write_table(tables[name].slice(150 * part, 150), tmp_path / name / f"{part}.parquet")
        query = join.start(
            spark,
            tmp_path / "matches",
            tmp_path / "checkpoint",
            available_now=True,
            max_rows_per_batch=90,
            layout=layout,
            exchange=exchange,
        )
        query.awaitTermination()
    table = ordered(scanned(DeltaTable(str(tmp_path / "matches"))).to_table())
    columns = ["l_seq", "r_seq", *(["window_id"] if "window_id" in table.column_names else [])]
    answer = [tuple(row[c] for c in columns) for row in oracle_join(join, tables)]
    assert sorted(zip(*(table[c].to_pylist() for c in columns), strict=True)) == answer
    assert len(answer) > 1_000


@pytest.mark.spark
def test_periodic_windows_over_dataframes(spark: SparkSession) -> None:
    rows = [{"ts": 1_700_000_000_000_000 + n * 400_000, "x": n} for n in range(40)]
    # There are two frames: one under two names would be one input, whose tuples do not meet themselves.
    left, right = (spark.createDataFrame([(r["ts"], r["x"]) for r in rows], "ts BIGINT, x BIGINT") for _ in "lr")
    join = StreamJoin([Stream("l"), Stream("r")], "abs(l.x - r.x) <= 3", "every 1s for 2s")
    found = join.dataframe({"l": left, "r": right}, layout="1x2").select("l_x", "r_x", "window_id").collect()
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    table = pa.Table.from_pylist(rows, schema=schema)
    answer = [(row["l_x"], row["r_x"], row["window_id"]) for row in oracle_join(join, {"l": table, "r": table})]
    assert sorted(tuple(row) for row in found) == sorted(answer)
    assert len(answer) > 200
