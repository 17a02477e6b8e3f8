"""Nearest partners through source, exchange, cells and commit, beside DuckDB on recorded sensors, and on Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamjoin_ds import JoinEngine, Nearest, Stream, StreamJoin
from streamjoin_ds.cell import answers
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.errors import FingerprintMismatchError, LayoutError
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.reader import between, scanned
from streamjoin_ds.spec import BoundJoin, Join, bind
from streamjoin_ds.testing.arrivals import batch_watermarks
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.support.microbatch import MicroBatches
from tests.support.real_data import RealJoin, answer, needs_data, real_joins, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.float64()), ("tag", pa.string())])
ON = "abs(e.x - w.x) <= 9 AND e.tag <> 'e7' AND w.tag <> 'w9'"
BY = "abs(e.x - w.x)"


def tuples(name: str, count: int = 90) -> list[dict[str, Any]]:
    """Return tuples a second apart, some of them late, some without a key, many at one distance."""
    step = {"e": 7, "w": 11}[name]
    late_s = [12 if n % 13 == 5 else 0 for n in range(count)]
    times = [START + timedelta(seconds=n - late_s[n]) for n in range(count)]
    keys = [None if n % 10 == 3 else float(n * step % 31) for n in range(count)]
    return [{"ts": ts, "x": x, "tag": f"{name}{n}"} for n, (ts, x) in enumerate(zip(times, keys, strict=True))]


def write(folder: Path, until: int = 90) -> None:
    for name in "ew":
        rows = tuples(name)[:until]
        lines = [f"{row['ts'].isoformat()},{'' if row['x'] is None else row['x']},{row['tag']}\n" for row in rows]
        (folder / f"{name}.csv").write_text("ts,x,tag\n" + "".join(lines))


def join_of(folder: Path, nearest: Nearest, how: str = "left") -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), delay="5s", schema=SCHEMA) for name in "ew"]
    return StreamJoin(streams, ON, {"e": "9s", "w": "6s"}, how=how, nearest=nearest)


def bound_of(folder: Path, nearest: Nearest, how: str = "left") -> BoundJoin:
    return bind(join_of(folder, nearest, how), {name: SCHEMA for name in "ew"})


def numbers_of(result: pa.Table) -> list[tuple[int, int | None]]:
    """Return the rows as numbers, those of a tuple in the order of their ranks."""
    ranks = result["rank"].to_pylist() if "rank" in result.schema.names else [1] * result.num_rows
    rows = zip(result["e_seq"].to_pylist(), ranks, result["w_seq"].to_pylist(), strict=True)
    return [(own, other) for own, _, other in sorted(rows, key=lambda row: (row[0], row[1] or 0))]


def expected(join: Join) -> tuple[list[tuple[Any, ...]], int]:
    """Return the results when all was read, and the last watermark."""
    rows = {name: tuples(name) for name in "ew"}
    (until_us,) = batch_watermarks(join, rows, [{name: len(rows[name]) for name in "ew"}])
    assert until_us is not None
    return oracle_numbers(join, rows, until_us=until_us), until_us


@pytest.mark.parametrize(
    ("nearest", "how", "layout", "exchange", "batch_rows", "blocks", "lag_s"),
    [
        (Nearest(2, BY), "left", "3x1", "reference", 40, 0, 9),
        (Nearest(1, BY, "backward"), "inner", "2x1", "packed", 50, 1 << 40, 0),
        (Nearest(1, None, "forward"), "left", "1x1", "reference", 1_000, 0, 9),
        (Nearest(2, BY), "left", "1x3", "packed", 1_000, 1 << 40, 9),
        (Nearest(3, BY), "inner", "2x2", "reference", 23, 0, 9),
        (Nearest(1, BY, "backward"), "left", "3x2", "reference", 23, 0, 0),
        (Nearest(1, None, "forward"), "inner", "1x2", "packed", 50, 1 << 40, 9),
    ],
)
def test_cells_give_the_contracts_rows(
    nearest: Nearest, how: str, layout: str, exchange: str, batch_rows: int, blocks: int, lag_s: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write(tmp_path)
    bound = bound_of(tmp_path, nearest, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    run = MicroBatches(bound, tmp_path, Layout.parse(layout, 2), exchange, batch_rows, block_bytes=blocks)
    matches = run.run()
    rows, until_us = expected(bound.join)  # type: ignore[arg-type]
    assert numbers_of(matches) == rows
    assert len(rows) > 30
    given = run.companion("punctuations").sort_by("batch_id")
    assert given["punctuation"].cast(pa.int64())[-1].as_py() == until_us - lag_s * 1_000_000
    for row in run.companion("ledger").to_pylist():
        assert row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"]
    last_us = run.companion("punctuations")["punctuation"].cast(pa.int64()).to_pylist()
    read = between(run.plan.table_root, 0, max(us for us in last_us if us is not None))
    assert read.num_rows == matches.num_rows


@pytest.mark.each_value
@pytest.mark.parametrize("blocks", [0, 1 << 40])
@pytest.mark.parametrize(("nearest", "how"), [(Nearest(2, BY), "left"), (Nearest(1, BY, "backward"), "inner")])
def test_restarts_on_other_cells_change_no_row(
    nearest: Nearest, how: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    bound = bound_of(tmp_path, nearest, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    run = MicroBatches(bound, tmp_path, Layout.parse("1x1", 2), "reference", 13, block_bytes=blocks)
    for text in ("1x2", "5x1", "1x1", "3x1", "2x2", "1x4"):
        run.restart(Layout.parse(text, 2))
        for _ in range(2):
            run.step()
    assert numbers_of(run.run()) == expected(bound.join)[0]  # type: ignore[arg-type]


def test_explain_says_which_partners_and_what_finds_them(tmp_path: Path) -> None:
    write(tmp_path)
    told = join_of(tmp_path, Nearest(3, BY, "backward")).explain(cells=4)
    assert "window      e=0s, w=6s" in told
    assert "how         left: tuples of e, each with its nearest of w or alone" in told
    assert "nearest     the 3 of w with the smallest abs(e.x - w.x)" in told
    assert "layout      4x1 = 4 cells" in told
    assert "e_seq, w_seq, rank, event_time" in told
    told = join_of(tmp_path, Nearest()).explain(layout="1x2")
    assert "the commit puts together what 2 cells tell of each tuple of e" in told
    with pytest.raises(LayoutError, match="nearest has no layouts of ranges"):
        join_of(tmp_path, Nearest()).explain(layout="ranges")


def test_a_checkpoint_refuses_others_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    bound = bound_of(tmp_path, Nearest(2, BY))
    identity = CheckpointIdentity.create(tmp_path / "checkpoint", bound, Layout((1, 1)), 1)
    identity.check(bound)
    for other, says in ((Nearest(3, BY), "nearest"), (Nearest(2), "nearest"), (Nearest(2, BY, "backward"), "window")):
        with pytest.raises(FingerprintMismatchError, match=says):
            identity.check(bound_of(tmp_path, other))


# ---------------------------------------------------------------------- recorded sensors, beside DuckDB


@pytest.mark.shared
@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("real", real_joins("flights", "flights-60s"))
def test_rows_are_duckdbs_on_recorded_sensors(real: RealJoin) -> None:
    """DuckDB ranks all pairs by a window function; ours never has all of them at once."""
    left, right = real.left, real.right
    schemas = dict(zip((left, right), real.bound().schemas, strict=True))
    compared = "altitude" if left == "e" else "TEMP"
    late = f"{right}_ts - {left}_ts"
    asked = {
        f"abs({left}_{compared} - {right}_{compared})": Nearest(2, f"abs({left}.{compared} - {right}.{compared})"),
        f"greatest({late}, -({late}))": Nearest(),
        late: Nearest(3, direction="forward"),
    }
    streams = [Stream(name, schema=schemas[name]) for name in (left, right)]
    shown = [f"{name}.ts" for name in (left, right)]
    tables = {name: recorded(name).select(schemas[name].names) for name in (left, right)}
    cuts = {name: (0, table.num_rows // 3, table.num_rows) for name, table in tables.items()}
    connection = duckdb.connect()
    connection.register("pairs", answer(real.name))
    for distance, nearest in asked.items():
        engine = JoinEngine(Join(streams, real.on, real.join().window, shown, nearest=nearest), threads=2)
        parts = [
            engine.push({name: tables[name].slice(cut[n], cut[n + 1] - cut[n]) for name, cut in cuts.items()})
            for n in range(2)
        ]
        found = pa.concat_tables([*parts, engine.finish()])
        assert found.num_rows > 100
        eligible = f"{right}_ts >= {left}_ts" if nearest.direction == "forward" else "true"
        ranked = connection.execute(
            f"SELECT {left}_seq, {right}_seq, row_number() OVER (PARTITION BY {left}_seq ORDER BY {distance}, "
            f"{right}_ts, {right}_seq) AS n FROM pairs WHERE {eligible} QUALIFY n <= {nearest.k}"
        ).fetchall()
        rank = found["rank"] if nearest.k > 1 else pa.array([1] * found.num_rows)
        columns = (found[f"{left}_seq"], found[f"{right}_seq"], rank)
        assert sorted(zip(*(column.to_pylist() for column in columns), strict=True)) == sorted(ranked), nearest


# ---------------------------------------------------------------------- Spark


@pytest.mark.long
def test_static_frames_give_the_rows_of_sparks_nearest_by(spark: SparkSession) -> None:
    """Spark ranks what is not null, so a condition is a distance that is null where it does not hold."""
    ddl = "ts TIMESTAMP, x DOUBLE, tag STRING"
    frames = {name: spark.createDataFrame(tuples(name), ddl) for name in "ew"}
    by = "abs(e.x * 1.37 - w.x)"
    join = StreamJoin([Stream(name) for name in "ew"], ON, {"e": "9s", "w": "6s"}, how="left", nearest=Nearest(2, by))
    found = join.dataframe(frames).toArrow()
    assert found.schema.names[-2:] == ["rank", "event_time"]
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"nearest_{name}")
    holds = f"{ON} AND e.ts <= w.ts + INTERVAL 6 SECONDS AND w.ts <= e.ts + INTERVAL 9 SECONDS"
    rows = spark.sql(
        "SELECT e.tag AS e, w.tag AS w FROM nearest_e AS e LEFT JOIN nearest_w AS w "
        f"EXACT NEAREST 2 BY DISTANCE CASE WHEN {holds} THEN {by} END"
    ).collect()
    pairs = zip(found["e_tag"].to_pylist(), found["w_tag"].to_pylist(), strict=True)
    assert sorted(pairs, key=str) == sorted(((row.e, row.w) for row in rows), key=str)


def test_start_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    nearest, to, checkpoint = Nearest(2, BY, "backward"), tmp_path / "matches", tmp_path / "checkpoint"
    for until in (41, 90):
        write(tmp_path, until)
        join_of(tmp_path, nearest).start(spark, to, checkpoint, available_now=True, cells=2).awaitTermination()
    assert numbers_of(scanned(DeltaTable(str(to))).to_table()) == expected(join_of(tmp_path, nearest))[0]
