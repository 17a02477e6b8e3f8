"""`StreamJoin.start` over DataFrames: each batch once, late rows and rejects kept, whatever stops in between."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, band, equal
from streamjoin_ds.blocks.place import place_of
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.checkpoint.inspection import inspected, leftovers
from streamjoin_ds.checkpoint.repair import repaired
from streamjoin_ds.errors import (
    ArgumentError,
    ColumnError,
    FingerprintMismatchError,
    ForeignCheckpointError,
    LayoutError,
    WindowError,
)
from streamjoin_ds.sink.commit import Committer
from streamjoin_ds.sink.reader import scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DDL = "ts BIGINT, x BIGINT, part INT, off BIGINT"
DELAY_S, WINDOW_S = 5, 10
Row = dict[str, Any]


def made(name: str, files: int, rows: int) -> list[list[Row]]:
    """Return the rows of each file, one file a batch: mostly in order, some late, some without a time or a number."""
    step = 3 if name == "l" else 7
    found: list[list[Row]] = []
    for number in range(files):
        batch = []
        for n in range(number * rows, (number + 1) * rows):
            late = 40 if n % 23 == 22 and number else 0
            row: Row = {"ts": 1_700_000_000 + n - late, "x": n * step % 11, "part": n % 3, "off": n // 3}
            if n % 31 == 30:
                row["ts"] = None
            if n % 37 == 36:
                row["off"] = None
            batch.append(row)
        found.append(batch)
    return found


def write(folder: Path, batches: dict[str, list[list[Row]]], first: int = 0) -> None:
    for name, files in batches.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, rows in enumerate(files, first):
            path = folder / name / f"{number}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source goes by the files' times


def frames(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
    return {name: reader.json(str(folder / name)) for name in ("l", "r")}


def join(**other: Any) -> StreamJoin:
    streams = [Stream(name, time_unit="s", delay=f"{DELAY_S}s") for name in ("l", "r")]
    return StreamJoin(streams, on=other.get("on", band("l.x", "r.x", 1)), window=f"{WINDOW_S}s")


def run(spark: SparkSession, folder: Path, **options: Any) -> None:
    options = {"order_by": ("part", "off"), **options}
    query = join().start(
        spark, folder / "m", folder / "c", frames=frames(spark, folder / "in"), available_now=True, **options
    )
    query.awaitTermination()


def expected(batches: dict[str, list[list[Row]]], *, in_order: bool) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
    """Return results, late rows and rejects by the contract.

    Lateness goes by each partition's order where there is one. Without, it goes by the watermark at the batch's start.
    """
    largest: dict[Any, int] = {}
    watermark: int | None = None
    kept: dict[str, list[Row]] = {"l": [], "r": []}
    late: Counter[Any] = Counter()
    rejects: Counter[Any] = Counter()
    for number in range(len(batches["l"])):
        before = dict(largest)
        for name in ("l", "r"):
            for row in batches[name][number]:
                partition = name, row["part"] if in_order else None
                if in_order and row["off"] is None:
                    rejects[name, number, "ts" if row["ts"] is None else "off"] += 1
                    continue
                if row["ts"] is None:
                    rejects[name, number, "ts"] += 1
                    continue
                limit = None if watermark is None else watermark
                if in_order and partition in largest:
                    limit = max(largest[partition] - DELAY_S, watermark or 0)
                if limit is not None and row["ts"] < limit:
                    late[name, number, row["ts"]] += 1
                else:
                    kept[name].append(row)
                (largest if in_order else before)[partition] = max(
                    row["ts"], (largest if in_order else before).get(partition, 0)
                )
        largest = largest if in_order else before
        lows = [min(t for (of, _), t in largest.items() if of == name) for name in ("l", "r")]
        watermark = max(min(lows) - DELAY_S, watermark or 0)
    numbered = in_order
    results = Counter(
        (
            (a["part"] << 40 | a["off"]) if numbered else None,
            (b["part"] << 40 | b["off"]) if numbered else None,
            a["ts"],
            b["ts"],
        )
        for a in kept["l"]
        for b in kept["r"]
        if abs(a["x"] - b["x"]) <= 1 and abs(a["ts"] - b["ts"]) <= WINDOW_S
    )
    return results, late, rejects


def rows_of(path: Path | str) -> list[Row]:
    return scanned(DeltaTable(str(path))).to_table().to_pylist()


def check(folder: Path, batches: dict[str, list[list[Row]]], *, numbered: bool = True) -> None:
    results, late, rejects = expected(batches, in_order=numbered)
    assert len(results) > 100
    assert len(late) > 1
    found = rows_of(folder / "m")

    def seconds(row: Row, name: str) -> int:
        return int(row[f"{name}_ts"].timestamp())

    assert results == Counter(
        (row["l_seq"] if numbered else None, row["r_seq"] if numbered else None, seconds(row, "l"), seconds(row, "r"))
        for row in found
    )
    assert late == Counter(
        (row["stream"], row["batch_id"], int(row["ts"].timestamp())) for row in rows_of(f"{folder / 'm'}_late")
    )
    assert rejects == Counter(
        (row["stream"], row["batch_id"], row["column"]) for row in rows_of(f"{folder / 'm'}_rejects")
    )
    ledger = rows_of(f"{folder / 'm'}_ledger")
    for row in ledger:
        assert row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"]
    assert sum(row["read"] for row in ledger) == sum(len(rows) for files in batches.values() for rows in files)
    punctuations = {row["batch_id"]: row["punctuation"] for row in rows_of(f"{folder / 'm'}_punctuations")}
    for row in found:
        before = punctuations.get(row["batch_id"] - 1)
        assert before is None or row["event_time"] >= before


def test_rows_late_rows_and_rejects_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    batches = {name: made(name, 6, 40) for name in ("l", "r")}
    for first, last in ((0, 2), (2, 5), (5, 6)):
        write(tmp_path / "in", {name: files[first:last] for name, files in batches.items()}, first)
        run(spark, tmp_path, cells=2)
    check(tmp_path, batches)
    found = inspected(lambda: spark, str(tmp_path / "c"))
    assert (found.batch_id, len(found.cells)) == (5, 2)
    assert leftovers(found, now_s=time.time() + 3600, older_than_s=60) == []
    with pytest.raises(ForeignCheckpointError, match="over DataFrames"):
        repaired(lambda: spark, str(tmp_path / "c"), dry_run=True)


def test_what_rows_of_frames_show_is_logged_as_of_sources(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Late rows, a row without a time, and times that are in another unit: each is told once."""
    batches = {name: made(name, 3, 40) for name in ("l", "r")}
    for row in (row for files in batches["r"] for row in files if row["ts"] is not None):
        row["ts"] //= 1000
    write(tmp_path / "in", batches)
    run(spark, tmp_path, cells=2)
    told = [record.message for record in caplog.records if record.name == "streamjoin_ds.stream.query_log"]
    assert sum("stream l: " in text and " are late" in text for text in told) in (1, 2)  # the first, and above 1 %
    assert sum("column ts: " in text and " reject" in text for text in told) == 2
    assert sum("stream r: its first event times" in text and "before 1990" in text for text in told) == 1
    assert sum(text.startswith("l: 20") and ", r: 19" in text for text in told) == 1


def test_a_batch_that_breaks_off_is_in_the_tables_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch breaks off before its commit, the next between the tables, the third after the last of them."""
    batches = {name: made(name, 3, 40) for name in ("l", "r")}
    write(tmp_path / "in", batches)
    whole, before = Committer.commit, Committer.commit_before
    broken: list[int] = []

    def breaks(batch: int) -> None:
        if batch not in broken:
            broken.append(batch)
            raise OSError(5, "the driver dies")

    def commit(self: Committer, batch: int, *arguments: Any, **options: Any) -> Any:
        if batch == 0:
            breaks(batch)
        outcome = whole(self, batch, *arguments, **options)
        if batch == 2:
            breaks(batch)
        return outcome

    def commit_before(self: Committer, batch: int, *arguments: Any, **options: Any) -> Any:
        before(self, batch, *arguments, **options)
        if batch == 1:
            breaks(batch)

    monkeypatch.setattr(Committer, "commit", commit)
    monkeypatch.setattr(Committer, "commit_before", commit_before)
    for _ in range(3):
        with pytest.raises(StreamingQueryException):
            run(spark, tmp_path, cells=2)
    run(spark, tmp_path, cells=2)
    assert broken == [0, 1, 2]
    check(tmp_path, batches)


def test_without_numbers_rows_are_told_apart_by_what_they_hold(spark: SparkSession, tmp_path: Path) -> None:
    batches = {name: made(name, 3, 40) for name in ("l", "r")}
    write(tmp_path / "in", batches)
    run(spark, tmp_path, order_by=None, layout="1x3")
    check(tmp_path, batches, numbered=False)
    with pytest.raises(FingerprintMismatchError) as caught:
        run(spark, tmp_path)
    assert caught.value.name == "order_by"
    with pytest.raises(LayoutError):
        run(spark, tmp_path, order_by=None, cells=2)
    sources = [Stream(name, tmp_path / "in" / name, time_unit="s", delay="5s") for name in ("l", "r")]
    over_sources = StreamJoin(sources, on=band("l.x", "r.x", 1), window="10s")
    with pytest.raises(FingerprintMismatchError) as caught:
        over_sources.start(spark, tmp_path / "m", tmp_path / "c")
    assert caught.value.name == "frames"


def test_one_frame_under_two_names_needs_numbers(spark: SparkSession, tmp_path: Path) -> None:
    batches = {"l": made("l", 2, 40)}
    write(tmp_path / "in", batches)
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in" / "l"))
    both = StreamJoin(
        [Stream("a", time_unit="s"), Stream("b", time_unit="s")], on=equal("a.part", "b.part"), window="10s"
    )
    given = {"a": frame, "b": frame}
    with pytest.raises(ArgumentError) as caught:
        both.start(spark, tmp_path / "m", tmp_path / "c", frames=given)
    assert caught.value.name == "order_by"
    query = both.start(
        spark, tmp_path / "m", tmp_path / "c", frames=given, order_by=("part", "off"), available_now=True
    )
    query.awaitTermination()
    pairs = [(row["a_seq"], row["b_seq"]) for row in rows_of(tmp_path / "m")]
    assert len(set(pairs)) == len(pairs) > 40
    assert all(a != b for a, b in pairs)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", {name: made(name, 1, 10) for name in ("l", "r")})
    given = frames(spark, tmp_path / "in")

    def start(of: StreamJoin, **options: Any) -> None:
        of.start(spark, tmp_path / "m", tmp_path / "c", **{"frames": given, **options})

    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ArgumentError, "max_delay", {"max_delay": "1s"}),
        (ArgumentError, "max_rows_per_batch", {"max_rows_per_batch": 10}),
        (ArgumentError, "source_options", {"source_options": {"pace": "1"}}),
        (ArgumentError, "exchange", {"exchange": "reference"}),
        (LayoutError, "layout", {"layout": "ranges"}),
        (ArgumentError, "order_by", {"order_by": {"q": "off"}}),
        (ArgumentError, "order_by", {"order_by": ("part", "off", "x")}),
        (ColumnError, "offset", {"order_by": "offset"}),
        (ArgumentError, "l", {"frames": {**given, "l": spark.read.schema(DDL).json(str(tmp_path / "in" / "l"))}}),
        (ArgumentError, "order_by", {"frames": None, "order_by": "off"}),
        (ArgumentError, "r", {"frames": {"l": given["l"]}, "order_by": "off"}),
    ]
    for kind, name, options in refused:
        with pytest.raises(kind) as caught:
            start(join(), **options)
        assert caught.value.name == name  # type: ignore[attr-defined]
        if "max_rows_per_batch" not in options and name != "l":
            with pytest.raises(kind) as caught:
                join().explain(**{"frames": given, **options})
            assert caught.value.name == name  # type: ignore[attr-defined]
    idle = [Stream("l", time_unit="s", idle_timeout="1m"), Stream("r", time_unit="s")]
    sourced = [Stream("l", tmp_path / "in" / "l", time_unit="s"), Stream("r", time_unit="s")]
    for streams, name in ((idle, "idle_timeout"), (sourced, "l")):
        for ask in (start, lambda of: of.explain(frames=given)):
            with pytest.raises(ArgumentError) as caught:
                ask(StreamJoin(streams, on=band("l.x", "r.x", 1), window="10s"))
            assert caught.value.name == name
    with pytest.raises(WindowError):
        start(StreamJoin([Stream("l"), Stream("r")], on=band("l.x", "r.x", 1), window="last 10"))
    assert not (tmp_path / "c").exists()


def test_the_plan_over_frames_is_that_of_the_start(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", {name: made(name, 1, 10) for name in ("l", "r")})
    moving = frames(spark, tmp_path / "in")
    still = {name: spark.read.schema(DDL).json(str(tmp_path / "in" / name)) for name in ("l", "r")}
    options: dict[str, Any] = {"cells": 6, "order_by": {"l": ("part", "off")}, "durable": False}
    text = join().explain(frames=moving, rates={"l": 1, "r": 1000}, **options)
    assert text == join().explain(frames=still, rates={"l": 1, "r": 1000}, **options)
    for line in (
        "layout      1x6 = 6 cells",
        "packed inline",
        "of r judged by the watermark at each batch's start, without order_by they have no order",
        "lateness    of l by each partition's own order",
        "numbers     l: part, off",
        "numbers     r: a hash of the row",
        "r 1,000/s (as given)",
    ):
        assert line in text
    run(spark, tmp_path, **options)
    identity = CheckpointIdentity.load(place_of(str(tmp_path / "c")))
    assert identity is not None
    assert f"fingerprint {identity.bound.fingerprint}" in text
