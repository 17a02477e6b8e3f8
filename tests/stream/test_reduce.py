"""Sums over a tuple's partners (`reduce`) through source, exchange, cells and commit, beside DuckDB and on Spark."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from streamjoin_ds import JoinEngine, Stream, StreamJoin
from streamjoin_ds.cell import answers
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.engine.tuning import DEFAULT, WaitingTuning
from streamjoin_ds.errors import FingerprintMismatchError, LayoutError
from streamjoin_ds.plan import Layout
from streamjoin_ds.request.request import request_of
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.spec import BoundJoin, Join, bind
from streamjoin_ds.testing.arrivals import batch_watermarks
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.microbatch import MicroBatches
from tests.support.real_data import RealJoin, answer, needs_data, real_joins, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("y", pa.float64()), ("tag", pa.string())])
SCHEMA = SCHEMA.append(pa.field("d", pa.decimal128(9, 2)))
ON = "abs(e.x - w.x) <= 9 AND w.tag <> 'w9'"
REDUCE = {
    "n": "count(*)",
    "total": "sum(w.y / 3)",
    "mean": "avg(w.x)",
    "closest": "arg_min(w.tag, abs(e.x - w.x))",
    "latest": "max(w.ts)",
    "tags": "collect(w.tag, 3)",
    "lag": "min(e.ts - w.ts)",
    "most": "max(w.y)",
    "name": "min(w.tag)",
    "first": "first(w.y)",
    "spread": "stddev(w.y)",
    "half": "quantile(w.x, 0.5)",
    "price": "sum(w.d)",
    "paid": "avg(w.d)",
}


def tuples(name: str, count: int = 90) -> list[dict[str, Any]]:
    """Return tuples a second apart, some of them late, some without a key."""
    step = {"e": 7, "w": 11}[name]
    late_s = [12 if n % 13 == 5 else 0 for n in range(count)]
    times = [START + timedelta(seconds=n - late_s[n]) for n in range(count)]
    keys = [None if n % 10 == 3 else n * step % 61 for n in range(count)]
    values = [None if n % 17 == 6 else n * step / 10 for n in range(count)]
    return [
        {"ts": ts, "x": x, "y": y, "tag": f"{name}{n}", "d": None if y is None else Decimal(repr(y))}
        for n, (ts, x, y) in enumerate(zip(times, keys, values, strict=True))
    ]


def write(folder: Path, lines: slice = slice(None)) -> None:
    for name in "ew":
        text = [
            ",".join("" if value is None else str(value) for value in (row["ts"].isoformat(), *list(row.values())[1:]))
            + "\n"
            for row in tuples(name)
        ]
        (folder / f"{name}.csv").write_text("".join(["ts,x,y,tag,d\n", *text[lines]]))


def join_of(folder: Path, how: str, reduce: dict[str, str] = REDUCE) -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), delay="5s", schema=SCHEMA) for name in "ew"]
    return StreamJoin(streams, ON, {"e": "9s", "w": "6s"}, how=how, reduce=reduce)


def bound_of(folder: Path, how: str, reduce: dict[str, str] = REDUCE) -> BoundJoin:
    join = join_of(folder, how, reduce)
    return bind(join, {stream.name: SCHEMA for stream in join.streams})


def rows_of(table: pa.Table, key: str = "e_seq") -> list[tuple[Any, ...]]:
    table = table.sort_by(key)
    columns = [table[name].cast(pa.int64()) if name == "latest" else table[name] for name in (key, *REDUCE)]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [tuple(Fraction(value) if isinstance(value, Decimal) else value for value in row) for row in rows]


def expected(join: Join, key: str = "e_seq", **known: Any) -> list[tuple[Any, ...]]:
    rows = {name: tuples(name) for name in "ew"}
    found = oracle_join(join, rows, **known)
    return sorted((row[key], *(row[name] for name in REDUCE)) for row in found)


def last_watermark(join: Join) -> int:
    rows = {name: tuples(name) for name in "ew"}
    (until_us,) = batch_watermarks(join, rows, [{name: len(rows[name]) for name in "ew"}])
    assert until_us is not None
    return until_us


@pytest.mark.parametrize(
    ("how", "layout", "exchange", "batch_rows", "blocks"),
    [
        ("left", "3x1", "reference", 23, 0),
        ("inner", "2x1", "packed", 1_000, 1 << 40),
        ("left", "1x1", "reference", 9, 0),
        ("left", "1x3", "reference", 23, 0),
        ("left", "2x2", "packed", 1_000, 1 << 40),
        ("inner", "1x2", "reference", 1_000, 1 << 40),
        ("inner", "3x2", "packed", 13, 0),
    ],
)
def test_cells_give_the_contracts_rows(
    how: str, layout: str, exchange: str, batch_rows: int, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    bound = bound_of(tmp_path, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    few = dataclasses.replace(DEFAULT, waiting=WaitingTuning(summed_rows=5, held_rows=3))
    monkeypatch.setattr(answers, "DEFAULT", few)
    run = MicroBatches(bound, tmp_path, Layout.parse(layout, 2), exchange, batch_rows, block_bytes=blocks)
    found = rows_of(run.run())
    until_us = last_watermark(join_of(tmp_path, how))
    assert found == expected(join_of(tmp_path, how), until_us=until_us)
    assert len(found) > 15
    assert (0 in {row[1] for row in found}) == (how == "left")
    given = run.companion("punctuations").sort_by("batch_id")
    assert given["punctuation"].cast(pa.int64())[-1].as_py() == until_us - 9_000_000
    for row in run.companion("ledger").to_pylist():
        assert row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"]


@pytest.mark.each_value
@pytest.mark.parametrize("blocks", [0, 1 << 40])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_restarts_on_other_cells_change_no_row(
    how: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    bound = bound_of(tmp_path, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    run = MicroBatches(bound, tmp_path, Layout.parse("1x1", 2), "reference", 13, block_bytes=blocks)
    for text in ("1x2", "5x1", "1x1", "3x1", "2x2", "1x4"):
        run.restart(Layout.parse(text, 2))
        for _ in range(2):
            run.step()
    join = join_of(tmp_path, how)
    assert rows_of(run.run()) == expected(join, until_us=last_watermark(join))


def test_explain_says_what_is_summed_up(tmp_path: Path) -> None:
    write(tmp_path)
    told = join_of(tmp_path, "inner").explain(cells=4)
    assert "how         inner: tuples of e with a partner, and sums over their partners" in told
    assert "reduce      n = count(*)   int64" in told
    assert "reduce      closest = arg_min(w.tag, abs(e.x - w.x))   string" in told
    assert "layout      4x1 = 4 cells" in told
    assert "tuples of e, each in one cell" in told
    told = join_of(tmp_path, "inner").explain(layout="2x2")
    assert "the commit puts together what 2 cells tell of each tuple of e" in told
    with pytest.raises(LayoutError, match="reduce has no layouts of ranges"):
        join_of(tmp_path, "left").explain(layout="ranges")


def test_a_checkpoint_refuses_another_reduction_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    identity = CheckpointIdentity.create(tmp_path / "checkpoint", bound_of(tmp_path, "left"), Layout((1, 1)), 1)
    identity.check(bound_of(tmp_path, "left"))
    with pytest.raises(FingerprintMismatchError, match="reduce"):
        identity.check(bound_of(tmp_path, "left", REDUCE | {"mean": "avg(w.y)"}))


def test_a_file_and_flags_say_it_as_python_does(tmp_path: Path) -> None:
    write(tmp_path)
    streams = "".join(f'[streams.{name}]\nsource = "{tmp_path}/{name}.csv"\n' for name in "ew")
    table = "".join(f'{name} = "{text}"\n' for name, text in REDUCE.items())
    head = f'on = "{ON}"\nwindow = "9s"\nhow = "left"\n'
    (tmp_path / "table.toml").write_text(f"{head}[reduce]\n{table}{streams}")
    (tmp_path / "plain.toml").write_text(f"{head}{streams}")
    wanted = join_of(tmp_path, "left").reduce
    assert request_of(tmp_path / "table.toml", {}).join.reduce == wanted
    flags = tuple(f"{name}={text}" for name, text in REDUCE.items())
    assert request_of(tmp_path / "plain.toml", {"reduce": flags}).join.reduce == wanted
    assert len(request_of(tmp_path / "table.toml", {"reduce": ("n=count(*)",)}).join.reduce) == 1


# ---------------------------------------------------------------------- recorded sensors, beside DuckDB


@pytest.mark.shared
@needs_data
@pytest.mark.parametrize("real", real_joins("flights-60s", "air"))
def test_sums_are_duckdbs_on_recorded_sensors(real: RealJoin) -> None:
    left, right, value = real.left, real.right, "altitude" if real.left == "e" else "TEMP"
    schemas = dict(zip((left, right), real.bound().schemas, strict=True))
    tables = {one: recorded(one) for one in (left, right)}
    used = {
        one: ["ts", *(c for c in schemas[one].names if c in " ".join((*real.on, value)) and c != "ts")]
        for one in tables
    }
    reduce = {
        "n": "count(*)",
        "total": f"sum({right}.{value})",
        "mean": f"avg({right}.{value})",
        "gap": f"min(abs({left}.{value} - {right}.{value}))",
        "most": f"max({right}.{value})",
        "half": f"quantile({right}.{value}, 0.5)",
        "spread": f"stddev({right}.{value})",
        "last": f"last({right}.{value})",
    }
    streams = [Stream(one, schema=pa.schema([schemas[one].field(column) for column in used[one]])) for one in tables]
    join = Join(streams, real.on, real.join().window, [f"{left}.ts"], reduce=reduce)
    engine = JoinEngine(join, threads=2)
    pushed = {one: table.select(used[one]) for one, table in tables.items()}
    cuts = {one: [0, table.num_rows // 3, table.num_rows // 2, table.num_rows] for one, table in pushed.items()}
    parts = [
        engine.push({one: table.slice(cuts[one][n], cuts[one][n + 1] - cuts[one][n]) for one, table in pushed.items()})
        for n in range(3)
    ]
    found = pa.concat_tables([*parts, engine.finish()]).sort_by(f"{left}_seq")
    connection = duckdb.connect()
    connection.register("pairs", answer(real.name))
    own, other = f'"{left}_{value}"', f'"{right}_{value}"'
    theirs = connection.sql(
        f"SELECT {left}_seq, count(*) n, sum({other}) total, avg({other}) mean, min(abs({own} - {other})) gap, "
        f"max({other}) most, quantile_cont({other}, 0.5) half, stddev_samp({other}) spread, "
        f"arg_max({other}, ({right}_ts, {right}_seq)) AS last FROM pairs GROUP BY {left}_seq ORDER BY {left}_seq"
    ).to_arrow_table()
    assert found.num_rows == theirs.num_rows > 500
    for column in (f"{left}_seq", "n", "gap", "most", "last"):
        assert found[column].to_pylist() == theirs[column].to_pylist(), column
    for column in ("total", "mean", "half", "spread"):
        far = pc.abs(pc.subtract(found[column].cast(pa.float64()), theirs[column].cast(pa.float64())))
        assert found[column].null_count == theirs[column].null_count
        assert pc.max(far).as_py() < 1e-6, column


# ---------------------------------------------------------------------- Spark

COLUMNS = "ts TIMESTAMP, k INT, x BIGINT, f DOUBLE, g FLOAT, d DECIMAL(9, 2), s STRING, b BOOLEAN, day DATE"


def values(name: str, count: int = 40) -> list[tuple[Any, ...]]:
    """Return tuples with the values on which engines differ: nulls, NaN, -0.0, infinities, halves of a cent."""
    floats = [0.1, 0.2, 0.3, -0.0, 0.0, math.nan, math.inf, -math.inf, 1e300, None, 2.5, 7.25]
    rows = []
    for n in range(count):
        step = n * (3 if name == "e" else 5)
        f = floats[step % len(floats)]
        rows.append(
            (
                START + timedelta(seconds=n),
                step % 7,
                None if n % 6 == 4 else step * 10**15,
                f if n % 4 else step / 8,
                None if n % 7 == 1 else step / 4,
                None if n % 5 == 2 else Decimal(step).scaleb(-2),
                None if n % 8 == 3 else "abcä"[n % 4] * (n % 3),
                None if n % 9 == 5 else n % 2 == 0,
                START.date() + timedelta(days=step % 5),
            )
        )
    return rows


SAME = {
    **{f"count_{c}": f"count(w.{c})" for c in ("x", "f", "s")},
    **{f"min_{c}": f"min(w.{c})" for c in ("x", "f", "g", "d", "s", "b", "day", "ts")},
    **{f"max_{c}": f"max(w.{c})" for c in ("x", "f", "g", "d", "s", "b", "day", "ts")},
    **{f"sum_{c}": f"sum(w.{c})" for c in ("x", "k", "g", "d")},
    **{f"avg_{c}": f"avg(w.{c})" for c in ("x", "k", "g", "d")},
    **{f"stddev_{c}": f"stddev(w.{c})" for c in ("k", "f", "g", "d")},
    **{f"p{p}_{c}": f"percentile(w.{c}, 0.{p})" for c in ("x", "g", "d") for p in ("3", "5")},
    "least": "min_by(w.ts, w.x)",
    "most": "max_by(w.ts, w.d)",
    "calculated": "max(abs(e.k - w.k))",
    "ratio": "sum(w.k * w.g / 4)",
}


def test_static_frames_give_what_spark_gives_by_group_by(spark: SparkSession) -> None:
    """Types too; floats may differ in their last digits: Spark adds them in the order in which they come."""
    from pyspark.sql.types import LongType

    frames = {name: spark.createDataFrame(values(name), COLUMNS) for name in "ew"}
    reduce = SAME | {"some": "collect(w.s, 2)"}
    join = StreamJoin([Stream(name) for name in "ew"], "abs(e.k - w.k) <= 2", "9s", ["e.ts"], reduce=reduce)
    ours = join.dataframe(frames)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"reduced_{name}")
    theirs = spark.sql(
        f"SELECT e.ts AS e_ts, {', '.join(f'{text} AS {name}' for name, text in SAME.items())}, "
        "transform(slice(array_sort(collect_list(CASE WHEN w.s IS NOT NULL THEN struct(w.ts, w.s) END)), 1, 2), "
        "z -> z.s) "
        "AS some FROM reduced_e e "
        "JOIN reduced_w w ON abs(e.k - w.k) <= 2 "
        "AND e.ts BETWEEN w.ts - INTERVAL 9 SECONDS AND w.ts + INTERVAL 9 SECONDS GROUP BY e.ts"
    )
    types = {field.name: field.dataType for field in theirs.schema}
    types["calculated"] = LongType()  # what is calculated from integers is BIGINT here
    assert {f.name: f.dataType.simpleString() for f in ours.schema if f.name in types} == {
        name: kind.simpleString() for name, kind in types.items()
    }
    found, wanted = (frame.select("e_ts", *reduce).sort("e_ts").collect() for frame in (ours, theirs))
    assert len(found) == len(wanted) == 40
    for ours_row, theirs_row in zip(found, wanted, strict=True):
        for name in reduce:
            one, other = ours_row[name], theirs_row[name]
            if isinstance(one, float) and isinstance(other, float) and not (math.isnan(one) or math.isnan(other)):
                assert one == pytest.approx(other, rel=1e-9), name
            else:
                assert repr(one).replace("-0.0", "0.0") == repr(other).replace("-0.0", "0.0"), name


def test_start_goes_on_where_it_was_and_spark_reads_the_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, slice(0, 40))
    to, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"
    for lines in (slice(0, 40), slice(None)):
        write(tmp_path, lines)
        query = join_of(tmp_path, "left").start(spark, to, checkpoint, available_now=True)
        query.awaitTermination()
    wanted = expected(join_of(tmp_path, "left"), until_us=last_watermark(join_of(tmp_path, "left")))
    assert rows_of(scanned(DeltaTable(str(to))).to_table()) == wanted
    assert [row.tags for row in spark.read.format("delta").load(str(to)).sort("e_seq").collect()] == [
        row[1 + [*REDUCE].index("tags")] for row in wanted
    ]
