"""Rows of one tuple alone (`how`) through source, exchange, cells and commit, and on Spark."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from streamjoin_ds import JoinEngine, Nearest, Stream, StreamJoin
from streamjoin_ds.cell import answers
from streamjoin_ds.cell.cell_state import CellState
from streamjoin_ds.cell.cell_windows import CellWindows
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.errors import FingerprintMismatchError, LayoutError, StreamJoinError
from streamjoin_ds.plan import Layout, Load, deciding_layouts
from streamjoin_ds.sink.reader import between, scanned
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.source.delta.results_feed import read_results, row_hashes
from streamjoin_ds.spec import BoundJoin, Join, bind
from streamjoin_ds.spec.row_kind import HOWS, has_pairs
from streamjoin_ds.testing.arrivals import batch_watermarks
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.support.further import further
from tests.support.microbatch import MicroBatches
from tests.support.real_data import REAL_JOINS, RealJoin, answer, needs_data, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = [how for how in HOWS if how != "inner"]
WHOLE = {"left": "3x1", "right": "1x3", "full": "1x1", "semi": "2x1", "anti": "3x1"}
SPLIT = {"left": "2x3", "right": "3x2", "full": "2x2", "semi": "1x3", "anti": "3x2"}
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("tag", pa.string())])
ON = "abs(e.x - w.x) <= 2 AND e.tag <> 'e7' AND w.tag <> 'w9'"
Number = int | None


def tuples(name: str, count: int = 90) -> list[dict[str, Any]]:
    """Return tuples a second apart, some of them late, some without a key."""
    step = {"e": 7, "w": 11, "z": 5}[name]
    late_s = [12 if n % 13 == 5 else 0 for n in range(count)]
    times = [START + timedelta(seconds=n - late_s[n]) for n in range(count)]
    keys = [None if n % 10 == 3 else n * step % 61 for n in range(count)]
    return [{"ts": ts, "x": x, "tag": f"{name}{n}"} for n, (ts, x) in enumerate(zip(times, keys, strict=True))]


def write(folder: Path, suffix: str = "csv", names: str = "ew") -> None:
    for name in names:
        text = "".join(
            f"{row['ts'].isoformat()},{'' if row['x'] is None else row['x']},{row['tag']}\n" for row in tuples(name)
        )
        (folder / f"{name}.{suffix}").write_text(f"ts,x,tag\n{text}")


def join_of(folder: Path, how: str, **options: Any) -> StreamJoin:
    streams = [Stream(name, str(folder / f"{name}.csv"), delay="5s", schema=SCHEMA) for name in "ew"]
    return StreamJoin(streams, ON, {"e": "9s", "w": "6s"}, how=how, **options)


def bound_of(folder: Path, how: str) -> BoundJoin:
    join = join_of(folder, how)
    return bind(join, {stream.name: SCHEMA for stream in join.streams})


def numbers_of(how: str, result: pa.Table, names: str = "ew") -> list[tuple[Number, ...]]:
    shown = names if has_pairs(how) else names[:1]
    return ordered(zip(*(result[f"{name}_seq"].to_pylist() for name in shown), strict=True))


def ordered(rows: Any) -> list[tuple[Number, ...]]:
    return sorted(rows, key=lambda row: [(number is None, number or 0) for number in row])


def expected(join: Join) -> tuple[list[tuple[Number, ...]], int]:
    """Return the results when all was read, and the last watermark."""
    rows = {name: tuples(name) for name in join.names}
    (until_us,) = batch_watermarks(join, rows, [{name: len(rows[name]) for name in rows}])
    assert until_us is not None
    return oracle_numbers(join, rows, until_us=until_us), until_us


@pytest.mark.each_value
@pytest.mark.parametrize("layouts", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize(("exchange", "batch_rows", "blocks"), [("reference", 23, 0), ("packed", 1_000, 1 << 40)])
def test_cells_give_the_contracts_rows(
    how: str, exchange: str, batch_rows: int, blocks: int, layouts: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write(tmp_path)
    bound = bound_of(tmp_path, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    run = MicroBatches(
        bound, tmp_path, Layout.parse(layouts[how], 2), exchange, batch_rows, block_bytes=blocks, retain_batches=3
    )
    matches = run.run()
    rows, until_us = expected(bound.join)  # type: ignore[arg-type]
    assert numbers_of(how, matches) == rows
    assert len(rows) > 15
    lag_us = {"left": 9, "right": 6, "full": 9, "semi": 9, "anti": 9}[how] * 1_000_000
    given = run.companion("punctuations").sort_by("batch_id")
    assert given["watermark"].cast(pa.int64())[-1].as_py() == until_us
    assert given["punctuation"].cast(pa.int64())[-1].as_py() == until_us - lag_us
    for row in run.companion("ledger").to_pylist():
        assert row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"]
    metrics = run.companion("metrics").sort_by([("batch_id", "ascending"), ("cell", "ascending")])
    assert (metrics["undecided_rows"][-1].as_py() > 0) == (how != "inner")


@pytest.mark.each_value
@pytest.mark.parametrize("blocks", [0, 1 << 40])
@pytest.mark.parametrize("how", KINDS)
def test_restarts_on_other_cells_change_no_row(
    how: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    bound = bound_of(tmp_path, how)
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    run = MicroBatches(bound, tmp_path, Layout.parse("1x1", 2), "reference", 13, block_bytes=blocks, retain_batches=2)
    for text in ("1x2", "5x1", "1x1", "3x1", "2x2", "1x4"):
        run.restart(Layout.parse(text, 2))
        for _ in range(2):
            run.step()
        assert len(run.states) == Layout.parse(text, 2).cells
    assert numbers_of(how, run.run()) == expected(bound.join)[0]  # type: ignore[arg-type]
    metrics = run.companion("metrics")
    assert sorted(set(metrics["cell"].to_pylist())) == [0, 1, 2, 3, 4]
    last = metrics.filter(pc.field("batch_id") == run.batch_id - 1)
    assert sum(last["undecided_rows"].to_pylist()) > 0
    if not blocks:  # what is left on the disk is named by a state that Spark may still come back to
        states = [CellWindows(run.plan, cell, blob) for cell, blob in run.states.items()]
        named = set().union(*(state.blocks | {name for _, name in state.state.retired} for state in states))
        assert {path.name for path in (tmp_path / "blocks").iterdir()} == named


@pytest.mark.each_value
@pytest.mark.parametrize("blocks", [0, 1 << 40])
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_cells_of_three_streams_tell_of_each(
    how: str, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, names="ewz")
    monkeypatch.setattr(answers, "INLINE_BYTES", blocks)
    streams = [Stream(name, str(tmp_path / f"{name}.csv"), delay="5s", schema=SCHEMA) for name in "ewz"]
    on = "abs(e.x - w.x) <= 2 AND abs(e.x - z.x) <= 2"
    join = StreamJoin(streams, on, {"e": "6s", "w": "4s", "z": "4s"}, how=how)
    bound = bind(join, dict.fromkeys("ewz", SCHEMA))
    run = MicroBatches(bound, tmp_path, Layout.parse("1x2x2", 3), "reference", 23, block_bytes=blocks)
    for text in ("2x1x1", "1x1x3", "3x1x1", "2x2x1", "1x2x1"):
        for _ in range(2):
            run.step()
        run.restart(Layout.parse(text, 3))
    assert numbers_of(how, run.run()) == expected(join)[0]
    assert len(expected(join)[0]) > 10
    assert "2x2x1 = 4 cells" in (told := join.explain(layout="2x2x1"))
    assert "the commit puts together what 2 cells tell of each tuple of e" in told
    assert "layout      4x1x1" in join.explain(cells=4)


def test_results_are_read_in_one_order_where_a_stream_lacks(tmp_path: Path) -> None:
    write(tmp_path)
    found = []
    for number, batch_rows in enumerate((17, 1_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = MicroBatches(bound_of(tmp_path, "full"), folder, Layout.parse("1x1", 2), "reference", batch_rows)
        run.run()
        path = run.plan.table_root
        last_us = run.companion("punctuations")["punctuation"].cast(pa.int64()).to_pylist()
        end_us = max(us for us in last_us if us is not None)
        found.append(between(path, 0, end_us).select(["e_seq", "w_seq"]))
        files = DeltaTable(path).files() if hasattr(DeltaTable, "files") else []
        names = files or [os.path.relpath(uri, path) for uri in DeltaTable(path).file_uris()]
        again = read_results(path, names, 0, end_us - 1, ["event_time"])
        assert again.select(["e_seq", "w_seq"]) == found[-1]
        assert len(set(row_hashes(again).tolist())) == again.num_rows > 20
    assert found[0] == found[1]


def test_what_waits_is_the_same_in_all_cells_of_a_group(tmp_path: Path) -> None:
    write(tmp_path)
    run = MicroBatches(bound_of(tmp_path, "full"), tmp_path, Layout.parse("2x2", 2), "reference", 13, block_bytes=0)
    for _ in range(9):
        run.step()
    waiting: dict[tuple[int, int], Any] = {}
    for cell, blob in run.states.items():
        facts, _ = state_blob.opened(run.bound.fingerprint, CellState.decode(blob).windows)
        for of_stream in facts["waiting"]:
            assert of_stream["probing"]["pieces"]
            group = of_stream["stream"], run.layout.window_group(cell, of_stream["stream"])
            assert waiting.setdefault(group, of_stream) == of_stream  # the same blocks
    assert len(waiting) == 4


def test_rows_of_several_cells_go_when_the_batch_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setattr(answers, "INLINE_BYTES", 0)
    run = MicroBatches(bound_of(tmp_path, "anti"), tmp_path, Layout.parse("1x2", 2), "reference", 23, block_bytes=0)
    seen = set()
    while run.step():
        there = {path.name for path in (tmp_path / "blocks").iterdir() if path.name.startswith("answers")}
        named = {name for blob in run.states.values() for _, name in CellState.decode(blob).retired}
        assert there <= named
        assert not there & seen  # what the batch before told is gone
        seen |= there
    assert len(seen) > 4


def test_a_layout_is_chosen_by_its_copies(tmp_path: Path) -> None:
    def chosen(how: str, cells: int, rates: tuple[float, float]) -> str:
        bound = bound_of(tmp_path, how)
        return str(deciding_layouts(bound, cells, Load.of_join(bound, rates), 1)[0].layout)

    write(tmp_path)
    assert chosen("left", 4, (1.0, 1.0)) == "4x1"  # no answers to put together, as many copies
    assert chosen("anti", 4, (1.0, 20.0)) == "1x4"  # the decided stream is the small one
    assert chosen("right", 4, (20.0, 1.0)) == "4x1"
    assert chosen("semi", 16, (1.0, 1.0)) == "4x4"
    assert chosen("full", 16, (1.0, 1.0)) == "4x4"
    assert chosen("full", 1, (1.0, 1.0)) == "1x1"


@pytest.mark.parametrize("options", [{"reduce": {"n": "count(*)"}}, {"nearest": Nearest(by="abs(e.x - w.x)")}])
def test_a_layout_without_answers_comes_first_where_every_tuple_has_one(options: dict[str, Any]) -> None:
    streams = [Stream(name, schema=SCHEMA) for name in "ew"]
    bound = bind(Join(streams, ON, "9s", **options), {stream.name: SCHEMA for stream in streams})
    layouts = [str(cost.layout) for cost in deciding_layouts(bound, 16, Load.of_windows([1.0, 1.0]))]
    assert layouts == ["16x1", "4x4", "8x2"]


def test_explain_says_who_is_decided_and_where(tmp_path: Path) -> None:
    write(tmp_path)
    told = join_of(tmp_path, "left").explain(cells=4)
    assert "how         left: pairs, and tuples of e without a partner" in told
    assert "bar         e.tag <> 'e7'   else a tuple of e has no partner" in told
    assert "filter      w.tag <> 'w9'" in told
    assert "layout      4x1 = 4 cells" in told
    assert "tuples of e, each in one cell" in told
    told = join_of(tmp_path, "full").explain(layout="2x2")
    assert (
        "decided     tuples of e and w; the commit puts together what 2 cells tell of each tuple of e, and 2 cells"
        in told
    )
    assert "choices     first those" in told
    assert "layout      1x1 = 1 cells" in join_of(tmp_path, "full").explain(cells=1)
    with pytest.raises(LayoutError, match="no layouts of ranges"):
        join_of(tmp_path, "full").explain(layout="ranges")


def test_a_checkpoint_refuses_another_kind_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    identity = CheckpointIdentity.create(tmp_path / "checkpoint", bound_of(tmp_path, "left"), Layout((1, 1)), 1)
    with pytest.raises(FingerprintMismatchError, match="how"):
        identity.check(bound_of(tmp_path, "anti"))


# ---------------------------------------------------------------------- recorded sensors, beside DuckDB's pairs


@pytest.mark.shared
@needs_data
@pytest.mark.parametrize("real", REAL_JOINS, ids=lambda real: real.name)
def test_rows_are_duckdbs_on_recorded_sensors(real: RealJoin) -> None:
    """Who has a partner follows from DuckDB's pairs; its own SEMI and ANTI joins take minutes with such conditions."""
    pairs = answer(real.name)
    schemas = dict(zip((real.left, real.right), real.bound().schemas, strict=True))
    tables = {name: _compared(recorded(name), real) for name in (real.left, real.right)}
    partnered = [pc.unique(pairs[f"{name}_seq"].combine_chunks()) for name in tables]
    everyone = [set(range(table.num_rows)) for table in tables.values()]
    lonely = [sorted(every - set(some.to_pylist())) for every, some in zip(everyone, partnered, strict=True)]
    counts = {
        "semi": len(partnered[0]),
        "anti": len(lonely[0]),
        "left": pairs.num_rows + len(lonely[0]),
        "right": pairs.num_rows + len(lonely[1]),
        "full": pairs.num_rows + len(lonely[0]) + len(lonely[1]),
    }
    for how, count in counts.items():
        shown = list(tables) if has_pairs(how) else [real.left]
        streams = [Stream(name, schema=_only(schemas[name], tables[name])) for name in tables]
        join = Join(streams, real.on, real.join().window, [f"{name}.ts" for name in shown], how=how)
        engine = JoinEngine(join, threads=2 if how == "full" else 1)
        cuts = {name: [0, table.num_rows // 3, table.num_rows // 2, table.num_rows] for name, table in tables.items()}
        parts = [
            engine.push(
                {name: table.slice(cuts[name][n], cuts[name][n + 1] - cuts[name][n]) for name, table in tables.items()}
            )
            for n in range(3)
        ]
        found = pa.concat_tables([*parts, engine.finish()])
        assert found.num_rows == count, how
        for stream, name in enumerate(tables):
            if not has_pairs(how) or (how in ("left", "right") and how != ("left", "right")[stream]):
                continue
            other = next(one for one in tables if one != name)
            alone = found.filter(pc.is_null(found[f"{other}_seq"]))[f"{name}_seq"].to_pylist()
            assert sorted(alone) == lonely[stream], how
        if not has_pairs(how):
            wanted = sorted(partnered[0].to_pylist()) if how == "semi" else lonely[0]
            assert sorted(found[f"{real.left}_seq"].to_pylist()) == wanted, how


def _compared(table: pa.Table, real: RealJoin) -> pa.Table:
    text = " ".join(real.on)
    return table.select([name for name in table.column_names if name == "ts" or name in text])


def _only(schema: pa.Schema, table: pa.Table) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in table.column_names])


# ---------------------------------------------------------------------- Spark


@pytest.mark.parametrize("how", ["left", "full", "semi", "anti"])
def test_static_frames_decide_all(how: str, spark: SparkSession) -> None:
    ddl = "ts TIMESTAMP, x BIGINT, tag STRING"
    frames = {name: spark.createDataFrame(tuples(name), ddl) for name in "ew"}
    join = StreamJoin([Stream(name) for name in "ew"], ON, {"e": "9s", "w": "6s"}, how=how)
    found = join.dataframe(frames).toArrow()
    rows = {name: tuples(name) for name in "ew"}
    named = Join([Stream(name, schema=SCHEMA) for name in "ew"], ON, {"e": "9s", "w": "6s"}, how=how)
    shown = "ew" if has_pairs(how) else "e"
    wanted = [
        tuple(
            None if number is None else rows[name][number]["tag"] for name, number in zip(shown, numbers, strict=True)
        )
        for numbers in oracle_numbers(named, rows, lateness=False)
    ]
    tags = zip(*(found[f"{name}_tag"].to_pylist() for name in shown), strict=True)
    assert sorted(tags, key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize(("how", "last"), [("full", "1x4"), *further(("left", "1x1"), ("semi", "4x1"))])
def test_start_goes_on_where_it_was_in_another_layout(how: str, last: str, spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    whole = {name: (tmp_path / f"{name}.csv").read_text().splitlines(keepends=True) for name in "ew"}
    for name, lines in whole.items():
        (tmp_path / f"{name}.csv").write_text("".join(lines[:41]))
    to, checkpoint = tmp_path / "matches", tmp_path / "checkpoint"

    def run(**options: Any) -> None:
        join_of(tmp_path, how).start(spark, to, checkpoint, available_now=True, **options).awaitTermination()

    run(cells=2)
    for name, lines in whole.items():
        (tmp_path / f"{name}.csv").write_text("".join(lines[:60]))
    with pytest.raises(StreamJoinError) as error:
        run(layout="ranges")
    assert error.value.name == "layout"
    run(layout="2x2")
    for name, lines in whole.items():
        (tmp_path / f"{name}.csv").write_text("".join(lines))
    run(layout=last)
    identity, layout = CheckpointIdentity.load(checkpoint), Layout.parse(last, 2)
    assert identity is not None
    assert (identity.layout, identity.partitions, identity.generation) == (layout, layout.cells, 2)
    table = scanned(DeltaTable(str(to))).to_table()
    assert numbers_of(how, table) == expected(join_of(tmp_path, how))[0]
    metrics = scanned(DeltaTable(TableSet(str(to)).path_of("metrics"))).to_table()
    assert sum(metrics["matches"].to_pylist()) == table.num_rows


@pytest.mark.long
@pytest.mark.parametrize("way", ["dataframe", "start"])
def test_streaming_frames_decide_what_their_watermark_has_passed(way: str, spark: SparkSession, tmp_path: Path) -> None:
    for name in "ew":
        (tmp_path / name).mkdir()
        rows = [row for row in tuples(name) if row["ts"].second % 13 != 5]
        for number in range(3):
            path = tmp_path / name / f"{number}.json"
            part = rows[number * 30 : number * 30 + 30]
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in part))
            os.utime(path, (1_700_000_000 + number,) * 2)
    reader = spark.readStream.schema("ts TIMESTAMP, x BIGINT, tag STRING").option("maxFilesPerTrigger", 1)
    frames = {name: reader.json(str(tmp_path / name)).withWatermark("ts", "20 seconds") for name in "ew"}
    join = StreamJoin([Stream(name, delay="20s") for name in "ew"], ON, {"e": "9s", "w": "6s"}, how="full")
    if way == "start":
        to = str(tmp_path / "matches")
        join.start(spark, to, tmp_path / "checkpoint", frames=frames, available_now=True).awaitTermination()
        found = scanned(DeltaTable(to)).to_table()
    else:
        query = join.dataframe(frames).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    rows = {name: [row for row in tuples(name) if row["ts"].second % 13 != 5] for name in "ew"}
    named = Join([Stream(name, delay="20s", schema=SCHEMA) for name in "ew"], ON, {"e": "9s", "w": "6s"}, how="full")
    # The last batch of `dataframe` is judged by the watermark before it, that of `start` by the one after it.
    read = {name: len(rows[name]) - (way == "dataframe") * (len(rows[name]) - 60) for name in "ew"}
    (until_us,) = batch_watermarks(named, rows, [read])
    wanted = [
        tuple(None if number is None else rows[name][number]["tag"] for name, number in zip("ew", numbers, strict=True))
        for numbers in oracle_numbers(named, rows, lateness=False, until_us=until_us)
    ]
    tags = zip(found["e_tag"].to_pylist(), found["w_tag"].to_pylist(), strict=True)
    assert sorted(tags, key=str) == sorted(wanted, key=str)
    assert any(None in row for row in wanted)
