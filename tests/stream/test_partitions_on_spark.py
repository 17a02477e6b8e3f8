"""Streams of many partitions on real Spark: started, grown, started again, and looked at."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from streamjoin_ds import Stream, StreamJoin, band
from streamjoin_ds.cli.main import group
from streamjoin_ds.errors import FingerprintMismatchError
from streamjoin_ds.sink.reader import scanned
from streamjoin_ds.testing.arrivals import late_rows
from streamjoin_ds.testing.oracle import oracle_join
from tests.support.partitioned import arrival

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START_US = 1_704_067_200_000_000
Records = dict[str, dict[str, list[dict[str, Any]]]]


def write(folder: Path, records: Records, seconds: range, devices: Sequence[str], dice: random.Random) -> None:
    """Let devices of `l` (a file each) and of `r` (a folder each) send for so long; some rows are late in their own."""
    for stream in ("l", "r"):
        for number, device in enumerate(devices):
            rows = []
            for second in seconds:
                time = START_US + (second - 3 * number - 5 * (dice.random() < 0.1)) * 1_000_000
                rows.append({"ts": time, "x": dice.randrange(20)})
            name = f"{device}.csv" if stream == "l" else device
            path = folder / stream / (name if stream == "l" else f"{device}/{seconds[0]:04d}.csv")
            path.parent.mkdir(parents=True, exist_ok=True)
            header = "" if path.exists() else "ts,x\n"
            with path.open("a") as file:
                file.write(header + "".join(f"{row['ts']},{row['x']}\n" for row in rows))
            records[stream].setdefault(name, []).extend(rows)


def joined(folder: Path, by: str | None = "file") -> StreamJoin:
    streams = [
        Stream("l", folder / "l", delay="2s", partition_by=by),
        Stream("r", folder / "r", delay="2s", partition_by="folder"),
    ]
    return StreamJoin(streams, on=band("l.x", "r.x", 1), window="10s")


def offsets(checkpoint: Path) -> list[Mapping[str, Any]]:
    """Return the ends of the batches, as Spark's log of offsets has them."""
    logs = sorted((path for path in checkpoint.rglob("offsets/*") if path.name.isdigit()), key=lambda p: int(p.name))
    return [json.loads(log.read_text().splitlines()[2]) for log in logs]


def check(join: StreamJoin, folder: Path, records: Records) -> None:
    """Assert that matches, late rows and the ledger are the oracle's over the order of arrival."""
    listed, seqs, known = arrival(join, offsets(folder / "checkpoint"), records)
    names = join.names
    assert {n: len(listed[n]) for n in names} == {n: sum(map(len, records[n].values())) for n in names}
    matches = scanned(DeltaTable(str(folder / "matches"))).to_table()
    found = Counter(zip(matches["l_seq"].to_pylist(), matches["r_seq"].to_pylist(), strict=True))
    expected = oracle_join(join, listed, **known)
    assert found == Counter((seqs["l"][row["l_seq"]], seqs["r"][row["r_seq"]]) for row in expected)
    late = scanned(DeltaTable(str(folder / "matches_late"))).to_table()
    missed = {n: late_rows(join, n, listed, **known) for n in names}
    told = Counter(zip(late["stream"].to_pylist(), late["seq"].to_pylist(), strict=True))
    assert told == Counter((n, seqs[n][number]) for n in names for number in missed[n])
    ledger = scanned(DeltaTable(str(folder / "matches_ledger"))).to_table().to_pylist()
    for name in names:
        own = [row for row in ledger if row["stream"] == name]
        assert sum(row["read"] for row in own) == len(listed[name])
        assert all(row["read"] == row["stored"] + row["late"] + row["rejected"] + row["filtered"] for row in own)
    assert len(expected) > 100
    assert all(missed.values())


@pytest.mark.long
def test_devices_come_the_query_starts_again_and_one_vanishes(spark: SparkSession, tmp_path: Path) -> None:
    records: Records = {"l": {}, "r": {}}
    dice, join = random.Random(1), joined(tmp_path)

    def run(asked: StreamJoin = join, **options: Any) -> None:
        options = {"max_rows_per_batch": 90, "available_now": True, "layout": "1x2"} | options
        asked.start(spark, tmp_path / "matches", tmp_path / "checkpoint", **options).awaitTermination()

    write(tmp_path, records, range(40), ("b", "c"), dice)
    run()
    check(join, tmp_path, records)
    write(tmp_path, records, range(40, 80), ("b", "a", "c"), dice)  # "a" comes, and sorts first
    run(exchange="packed")
    check(join, tmp_path, records)
    numbers = offsets(tmp_path / "checkpoint")[-1]["streams"]["l"]["partitions"]
    assert {name: at["number"] for name, at in numbers.items()} == {"b.csv": 0, "c.csv": 1, "a.csv": 2}

    matches = scanned(DeltaTable(str(tmp_path / "matches"))).to_table()
    assert pa.types.is_int64(matches["l_seq"].type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamjoin_ds.spark.session.spark_session", lambda *_, **__: spark)
        shown = CliRunner().invoke(group, ["inspect", str(tmp_path / "checkpoint")], prog_name="streamjoin")
        facts = CliRunner().invoke(group, ["inspect", str(tmp_path / "checkpoint"), "--json"], prog_name="streamjoin")
    assert "stream l: 3 partitions, 0 of them idle, held by" in shown.output
    assert json.loads(facts.stdout)["partitions"]["r"]["count"] == 3
    assert "each file a partition" in str(join.explain())
    assert "by each partition's own order" in str(join.explain())

    with pytest.raises(FingerprintMismatchError):
        run(joined(tmp_path, None))
    (tmp_path / "l" / "c.csv").unlink()
    write(tmp_path, records, range(80, 90), ("b",), dice)
    with pytest.raises(StreamingQueryException, match=r"FILE_MISSING: the partition \S*/l/c\.csv of stream l"):
        run()
