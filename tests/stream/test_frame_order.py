"""`StreamJoin.start` over DataFrames with `order_by`: late is what is late in its own partition, on real Spark."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.blocks.place import place_of
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.errors import ArgumentError
from tests.stream.test_frame_query import DDL, Row, frames, rows_of, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BEGIN_S = 1_700_000_000
BATCHES, ROWS = 3, 40


def join(**options: Any) -> StreamJoin:
    streams = [Stream(name, time_unit="s", delay="5s", **options) for name in ("l", "r")]
    return StreamJoin(streams, on=band("l.x", "r.x", 1), window="10s")


def lagging() -> dict[str, list[list[Row]]]:
    """Return rows of two partitions, of which one is an hour behind; every tenth row is 8 s too old."""
    found: dict[str, list[list[Row]]] = {}
    for name, step in (("l", 3), ("r", 7)):
        found[name] = [
            [
                {"ts": BEGIN_S - 3600 * part + n - 8 * (n % 10 == 9), "x": n * step % 11, "part": part, "off": n}
                for n in range(number * ROWS, (number + 1) * ROWS)
                for part in (0, 1)
            ]
            for number in range(BATCHES)
        ]
    return found


def expected(batches: dict[str, list[list[Row]]]) -> tuple[Counter[tuple[int, int]], Counter[tuple[str, int]]]:
    kept: dict[str, list[Row]] = {"l": [], "r": []}
    late: Counter[tuple[str, int]] = Counter()
    for name, files in batches.items():
        largest: dict[int, int] = {}
        for row in (row for rows in files for row in rows):
            if row["ts"] < largest.get(row["part"], 0) - 5:
                late[name, row["part"] << 40 | row["off"]] += 1
            else:
                kept[name].append(row)
            largest[row["part"]] = max(row["ts"], largest.get(row["part"], 0))
    return Counter(
        (a["part"] << 40 | a["off"], b["part"] << 40 | b["off"])
        for a in kept["l"]
        for b in kept["r"]
        if abs(a["x"] - b["x"]) <= 1 and abs(a["ts"] - b["ts"]) <= 10
    ), late


def found_in(folder: Path) -> tuple[Counter[tuple[int, int]], Counter[tuple[str, int]]]:
    return (
        Counter((row["l_seq"], row["r_seq"]) for row in rows_of(folder / "m")),
        Counter((row["stream"], row["seq"]) for row in rows_of(f"{folder / 'm'}_late")),
    )


def test_a_partition_that_lags_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows are dealt to tasks in turns, between restarts, and are as late as in its own order."""
    batches = lagging()
    for first, last in ((0, 1), (1, BATCHES)):
        write(tmp_path / "in", {name: files[first:last] for name, files in batches.items()}, first)
        dealt = {name: frame.repartition(3) for name, frame in frames(spark, tmp_path / "in").items()}
        query = join().start(
            spark, tmp_path / "m", tmp_path / "c", frames=dealt, order_by=("part", "off"), layout="2x1",
            available_now=True,
        )  # fmt: skip
        query.awaitTermination()
    results, late = expected(batches)
    assert len(results) > 500
    assert len(late) == 4 * BATCHES * ROWS // 10
    assert found_in(tmp_path) == (results, late)
    judges = {
        (row["stream"], row["seq"]): row["largest_ts"].timestamp() - row["ts"].timestamp()
        for row in rows_of(f"{tmp_path / 'm'}_late")
    }
    assert set(judges.values()) == {7.0}
    metrics = rows_of(f"{tmp_path / 'm'}_metrics")
    assert {row["held_by"] for row in metrics} == {None}


def test_a_partition_that_fell_silent_holds_the_watermark_until_it_is_idle(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = lagging()
    for number in range(1, BATCHES):
        batches["l"][number] = [row for row in batches["l"][number] if not row["part"]]
    ends = {}
    for name, timeout in (("waits", None), ("goes on", "1ms")):
        folder = tmp_path / name
        write(folder / "in", batches)
        query = join(idle_timeout=timeout).start(
            spark, folder / "m", folder / "c", frames=frames(spark, folder / "in"), order_by=("part", "off"),
            available_now=True,
        )  # fmt: skip
        with caplog.at_level(logging.WARNING, logger="streamjoin_ds"):
            query.awaitTermination()
        assert found_in(folder) == expected(batches)
        punctuations = {
            row["batch_id"]: row["punctuation"].timestamp() for row in rows_of(f"{folder / 'm'}_punctuations")
        }
        ends[name] = punctuations[BATCHES - 1]
        held = {row["batch_id"]: row["held_by"] for row in rows_of(f"{folder / 'm'}_metrics")}
        assert held == {0: None, 1: "l/1", 2: "l/1" if timeout is None else None}
    assert ends["waits"] == BEGIN_S - 3600 + ROWS - 2 - 5
    assert ends["goes on"] == BEGIN_S - 3600 + BATCHES * ROWS - 2 - 5  # the other stream's partition


def test_a_checkpoint_of_a_former_version_goes_on_without_an_order(spark: SparkSession, tmp_path: Path) -> None:
    batches = lagging()
    write(tmp_path / "in", batches)
    options: dict[str, Any] = {"order_by": ("part", "off"), "available_now": True}

    def start(folder: Path, of: StreamJoin) -> None:
        given = frames(spark, tmp_path / "in")
        of.start(spark, folder / "m", folder / "c", frames=given, **options).awaitTermination()

    start(tmp_path / "new", join())
    new = CheckpointIdentity.load(place_of(str(tmp_path / "new" / "c")))
    assert new is not None
    assert new.in_order
    assert '"version": 5' in new.to_json()
    old = replace(new, join_id="of-a-former-version", in_order=False).to_json()
    assert '"version": 4' in old
    assert "in_order" not in old
    (tmp_path / "old" / "c").mkdir(parents=True)
    (tmp_path / "old" / "c" / "join.json").write_text(old)
    with pytest.raises(ArgumentError, match="a former version began this checkpoint") as caught:
        start(tmp_path / "old", join(idle_timeout="1m"))
    assert caught.value.name == "idle_timeout"
    assert not (tmp_path / "old" / "m").exists()
    start(tmp_path / "old", join())
    results, late = found_in(tmp_path / "old")
    # Of the partition that lags all is late from the second batch on, and before that nothing.
    lags = {1 << 40 | n for n in range(ROWS, BATCHES * ROWS)}
    assert {seq for _, seq in late} >= lags
    assert not {l_seq for l_seq, _ in results} & lags
    assert len({l_seq for l_seq, _ in found_in(tmp_path / "new")[0]} & lags) > ROWS


def test_what_is_idle_needs_an_order(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", {name: files[:1] for name, files in lagging().items()})
    given = frames(spark, tmp_path / "in")
    text = join(idle_timeout="1m").explain(frames=given, order_by={"l": ("part", "off"), "r": "off"})
    for line in (
        "lateness    of l by each partition's own order: the same rows are late whatever the batching",
        "lateness    of r by the order of its numbers: the same rows are late whatever the batching",
        "idle after 1m of silence",
    ):
        assert line in text
    idle = join(idle_timeout="1m")
    for order_by in (None, {"l": ("part", "off")}):
        for ask in (idle.explain, lambda **options: idle.start(spark, tmp_path / "m", tmp_path / "c", **options)):
            with pytest.raises(ArgumentError, match="DataFrames have none") as caught:
                ask(frames=given, order_by=order_by)
            assert caught.value.name == "idle_timeout"
            assert "order_by" in (caught.value.hint or "")
    static = {name: spark.read.schema(DDL).json(str(tmp_path / "in" / name)) for name in ("l", "r")}
    with pytest.raises(ArgumentError, match="DataFrames have none"):
        join(idle_timeout="1m").dataframe(static)
