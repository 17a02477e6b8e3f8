"""Filters at the source and conditions that decide, through source, exchange, cells and commit (`MicroBatches`)."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streamjoin_ds.cell import cell
from streamjoin_ds.plan import Layout
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.sink.writer import TableWriter
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import BoundJoin, Generator, Join, Stream, bind
from streamjoin_ds.testing.arrivals import filtered_rows, late_rows
from streamjoin_ds.testing.oracle import oracle_numbers
from tests.source.feeds import SCHEMA, csv_text, rows
from tests.support.microbatch import MicroBatches

COUNT = 60
ON = "abs(e.x - g.b) <= 4 AND (e.x + g.a < 18 OR e.name = 'n1') AND g.c <> e.n"
WHERE = "n % 3 <> 1 AND (name IN ('n0', 'n2') OR n > 40)"


def join_of(folder: Path, *, where: str | None = WHERE, on: str = ON, delay: str = "500ms") -> BoundJoin:
    """Return the join of a file with late and broken rows and a generated stream; only the filter reads `n`."""
    path = folder / "e.csv"
    path.write_text(csv_text(rows(COUNT)) + "soon,a,1,2\n2024-01-01,a,wide,2\n")
    generated = Generator("band2d", {"rate": 2, "rows": 90, "side": "s", "low": 1, "high": 20})
    streams = [Stream("e", str(path), delay=delay, where=where), Stream("g", generated)]
    join = Join(streams, on, "10s", ["e.x", "g.*"])
    return bind(join, {"e": SCHEMA, "g": infer_schema(streams[1])})


def tuples_of(bound: BoundJoin) -> dict[str, list[dict[str, Any]]]:
    """Return the streams' tuples by their numbers, for the oracle.

    Rejects come last in the file, so they shift no number.
    """
    from streamjoin_ds.source.generator import GeneratorFeed

    stream = bound.join.streams[1]
    feed = GeneratorFeed(stream, infer_schema(stream))
    made = [row for chunk in feed.read(feed.initial(), None) for row in chunk.tuples.to_pylist()]
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    moment = [epoch + datetime.timedelta(microseconds=row["_ts"]) for row in made]
    listed = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows(COUNT)]
    for row in listed:
        row["ts"] = epoch + datetime.timedelta(microseconds=int(row["ts"]))
    return {"e": listed, "g": [row | {"ts": ts} for row, ts in zip(made, moment, strict=True)]}


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["reference", "packed"])
@pytest.mark.parametrize(("layout", "batch_rows"), [("1x1", 1_000), ("2x1", 37), ("3x2", 11), ("1x2", 1)])
def test_matches_and_ledger_are_the_contracts(tmp_path: Path, exchange: str, layout: str, batch_rows: int) -> None:
    if batch_rows == 1 and exchange != "reference":
        batch_rows = 5  # with a commit for each row it would take long
    bound = join_of(tmp_path)
    tuples = tuples_of(bound)
    run = MicroBatches(bound, tmp_path, Layout.parse(layout, 2), exchange, batch_rows)
    matches = run.run()
    found = sorted(zip(matches["e_seq"].to_pylist(), matches["g_seq"].to_pylist(), strict=True))
    assert found == oracle_numbers(bound.join, tuples)
    assert len(found) > 20
    ledger = scanned(DeltaTable(f"{run.plan.table_root}_ledger")).to_table().to_pylist()
    sums = {
        name: sum(row[name] for row in ledger if row["stream"] == "e")
        for name in ("read", "stored", "late", "rejected", "filtered", "null_keys")
    }
    filtered, late = filtered_rows(bound.join, "e", tuples["e"]), late_rows(bound.join, "e", tuples["e"])
    assert (sums["read"], sums["rejected"]) == (COUNT + 2, 2)
    assert sums["filtered"] == len(filtered) > 10
    assert sums["late"] == len(late) > 3
    kept = scanned(DeltaTable(f"{run.plan.table_root}_late")).to_table()
    assert sorted(kept["seq"].to_pylist()) == late
    assert sum(row["filtered"] for row in ledger if row["stream"] == "g") == 0


@pytest.mark.slow
def test_a_filter_changes_no_row_that_it_lets_through(tmp_path: Path) -> None:
    filtered = join_of(tmp_path)
    with_predicate = join_of(tmp_path, where=None, on=f"{ON} AND e.n % 3 <> 1 AND (e.name <> 'n1' OR e.n > 40)")
    unfiltered = join_of(tmp_path, where=None, on=ON)
    found = {}
    for name, bound in (("where", filtered), ("on", with_predicate), ("none", unfiltered)):
        run = MicroBatches(bound, tmp_path / name, Layout.parse("1x2", 2), max_rows_per_batch=20)
        table = run.run().sort_by([("e_seq", "ascending"), ("g_seq", "ascending")])
        found[name] = table.drop_columns(["batch_id"])
    assert found["where"].equals(found["on"])
    through = set(range(COUNT)) - set(filtered_rows(filtered.join, "e", tuples_of(filtered)["e"]))
    kept = [number in through for number in found["none"]["e_seq"].to_pylist()]
    assert found["none"].filter(kept).equals(found["where"])
    assert 0 < sum(kept) < len(kept)


def test_a_filter_that_lets_nothing_through_still_tells_the_time(tmp_path: Path) -> None:
    run = MicroBatches(join_of(tmp_path, where="n < 0"), tmp_path, Layout.parse("1x1", 2), max_rows_per_batch=30)
    assert run.run().num_rows == 0
    punctuations = scanned(DeltaTable(f"{run.plan.table_root}_punctuations")).to_table().sort_by("batch_id")
    known = [moment for moment in punctuations["punctuation"].to_pylist() if moment is not None]
    assert len(set(known)) > 2
    assert known == sorted(known)
    late = scanned(DeltaTable(f"{run.plan.table_root}_late")).to_table()
    assert late.num_rows == 0


def test_a_large_batch_rolls_its_files_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cell, "_TELL_MATCHES", 1000)
    roll = TableWriter.__init__.__kwdefaults__ | {"rows_per_file": 2000}
    monkeypatch.setattr(TableWriter.__init__, "__kwdefaults__", roll)
    run = MicroBatches(join_of(tmp_path, where=None, on="e.x + g.a >= 0", delay="1h"), tmp_path, Layout.parse("1x1", 2))
    with caplog.at_level(logging.WARNING):
        matches = run.run()
    assert matches.num_rows == len(oracle_numbers(run.bound.join, tuples_of(run.bound))) > 1500
    told = [record.getMessage() for record in caplog.records if "of its batch" in record.getMessage()]
    assert len(told) == 1
    files = DeltaTable(run.plan.table_root).file_uris()
    assert len(files) == -(-matches.num_rows // 2000)
