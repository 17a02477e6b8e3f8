"""Times through source, exchange, cells and commit: they are compared to the nanosecond, and set aside out of range."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamjoin_ds.plan import Layout
from streamjoin_ds.source.stream_source import infer_schema
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind
from tests.support.microbatch import MicroBatches

INT64_MAX = (1 << 63) - 1
DAY_NS = 86_400_000_000_000
KEYS = [1, 2, 3, 999, 1000, 1001, -1, None, DAY_NS]


def text(ns: int | None) -> str | None:
    if ns is None:
        return None
    days, rest = divmod(ns, DAY_NS)
    return (
        f"1970-01-{days + 1:02}T00:00:00.{rest:09}Z"
        if days >= 0
        else f"1969-12-31T23:59:59.{rest - DAY_NS + 10**9:09}Z"
    )


def written(folder: Path, suffix: str) -> list[Stream]:
    """Write two streams with event times and keys in nanoseconds; return the streams."""
    streams = []
    for name in ("l", "r"):
        path = folder / f"{name}.{suffix}"
        if suffix == "parquet":
            kind = pa.timestamp("ns")
            pq.write_table(pa.table({"ts": pa.array(range(len(KEYS)), kind), "p": pa.array(KEYS, kind)}), path)
        elif suffix == "csv":
            lines = [f"{text(n)},{text(key) or ''}\n" for n, key in enumerate(KEYS)]
            path.write_text("ts,p\n" + "".join(lines))
        else:
            path.write_text("".join(json.dumps({"ts": text(n), "p": text(key)}) + "\n" for n, key in enumerate(KEYS)))
        schema = pa.schema([("ts", pa.timestamp("ns")), ("p", pa.timestamp("ns"))]) if suffix == "json" else None
        streams.append(Stream(name, path, where="p < TIMESTAMP '1970-01-01 00:00:00.000001'", schema=schema))
    return streams


def bound_of(streams: list[Stream], on: str) -> BoundJoin:
    return bind(Join(streams, on, "1d"), {stream.name: infer_schema(stream) for stream in streams})


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["reference", "packed"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_nanoseconds_are_compared_as_they_are(tmp_path: Path, suffix: str, exchange: str) -> None:
    kept = [(n, key) for n, key in enumerate(KEYS) if key is not None and key < 1000]
    for on, expected in (
        ("l.p = r.p", [(n, n) for n, _ in kept]),
        ("l.p < r.p", [(n, m) for n, left in kept for m, right in kept if left < right]),
        ("l.ts < r.ts AND l.p = r.p", []),
        ("abs(l.p - r.p) <= INTERVAL 1 MICROSECOND AND l.ts = r.ts", [(n, n) for n, _ in kept]),
    ):
        folder = tmp_path / str(abs(hash(on)))
        folder.mkdir()
        matches = MicroBatches(bound_of(written(folder, suffix), on), folder, Layout.parse("1x2", 2), exchange, 4).run()
        assert sorted(zip(matches["l_seq"].to_pylist(), matches["r_seq"].to_pylist(), strict=True)) == expected, on
        places = [dict(kept)[n] // 1000 for n in matches["l_seq"].to_pylist()]
        assert matches["l_p"].cast(pa.int64()).to_pylist() == places


@pytest.mark.parametrize("exchange", ["reference", "packed"])
def test_times_of_parquet_that_are_out_of_range_are_rejected(tmp_path: Path, exchange: str) -> None:
    for name in ("l", "r"):
        far = [INT64_MAX, 0, 0, -INT64_MAX, 0]
        table = pa.table(
            {
                "ts": pa.array(far, pa.timestamp("ms")),
                "p": pa.array([0, INT64_MAX, 0, 0, None], pa.timestamp("ms")),
                "day": pa.array([0, 0, 0, 0, 2**31 - 1], pa.int32()).cast(pa.date32()),
            }
        )
        pq.write_table(table, tmp_path / f"{name}.parquet", version="2.6")
    streams = [Stream(name, tmp_path / f"{name}.parquet") for name in ("l", "r")]
    run = MicroBatches(bound_of(streams, "l.ts = r.ts"), tmp_path, Layout.parse("1x1", 2), exchange, 3)
    matches = run.run()
    assert matches["l_seq"].to_pylist() == matches["r_seq"].to_pylist() == [2]
    rejects = run.companion("rejects").filter(pa.compute.field("stream") == "l").sort_by("line").to_pylist()
    assert [(row["line"], row["column"]) for row in rejects] == [(1, "ts"), (2, "p"), (4, "ts"), (5, "day")]
    assert str(INT64_MAX) in rejects[0]["text"]
    assert all("in the years" in row["reason"] or "outside the years" in row["reason"] for row in rejects)
    ledger = run.companion("ledger").to_pylist()
    assert sum(row["rejected"] for row in ledger if row["stream"] == "l") == 4


def test_event_times_as_numbers_with_a_point(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text('{"ts": 1700000000.5, "x": 1}\n{"ts": 1700000001, "x": 2}\n')
    (tmp_path / "r.csv").write_text("ts,x\n1700000000.5,1\n1700000001,2\nsoon,3\n")
    schema = pa.schema([("ts", pa.float64()), ("x", pa.int64())])
    streams = [Stream(n, tmp_path / f, schema=schema, time_unit="s") for n, f in (("l", "l.json"), ("r", "r.csv"))]
    run = MicroBatches(bound_of(streams, "l.x = r.x"), tmp_path, Layout.parse("1x1", 2), "packed", 10)
    times = run.run()["event_time"].cast(pa.int64()).to_pylist()
    assert sorted(times) == [1_700_000_000_500_000, 1_700_000_001_000_000]
    assert run.companion("rejects")["reason"].to_pylist() == ["not an event time in the years 1 to 9999"]
