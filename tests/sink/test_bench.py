"""How fast matches reach the disk, and what a batch's commit costs: ``pytest tests/sink -m bench -s``."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.sink.tables import TIMESTAMP
from streamjoin_ds.sink.writer import TableWriter

pytestmark = pytest.mark.bench

SCHEMA = pa.schema(
    [
        pa.field("r_x", pa.int32(), nullable=False),
        pa.field("r_y", pa.float32(), nullable=False),
        pa.field("s_a", pa.int32(), nullable=False),
        pa.field("s_b", pa.float32(), nullable=False),
        pa.field("event_time", TIMESTAMP, nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
    ]
)


def probed(rows, matches_per_probe=100):
    """Return matches as a cell finds them: the probe's columns come in runs, the window's in any order."""
    chance = np.random.default_rng(7)
    probes = rows // matches_per_probe
    times = np.repeat(np.sort(chance.integers(0, 10**9, probes)), matches_per_probe)
    return pa.table(
        [
            pa.array(np.repeat(chance.integers(0, 10_000, probes).astype("i4"), matches_per_probe)),
            pa.array(np.repeat(chance.random(probes).astype("f4"), matches_per_probe)),
            pa.array(chance.integers(0, 10_000, rows).astype("i4")),
            pa.array(chance.random(rows).astype("f4")),
            pa.array(times).view(TIMESTAMP),
            pa.array(np.zeros(rows, "i8")),
        ],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("rows_per_write", [1 << 13, 1 << 16, 1 << 20])
def test_writer_rows_per_second(tmp_path, rows_per_write, durable):
    pa.set_cpu_count(1)
    rows = 8_000_000
    table = probed(rows)
    fastest_s, size_bytes = float("inf"), 0
    for _ in range(3):
        start = time.perf_counter()
        with TableWriter(str(tmp_path), SCHEMA, table="matches", batch_id=0, label="0", durable=durable) as writer:
            for offset in range(0, rows, rows_per_write):
                writer.write(table.slice(offset, rows_per_write))
            reports = writer.close()
        fastest_s = min(fastest_s, time.perf_counter() - start)
        size_bytes = sum(report.size_bytes for report in reports)
        writer.abort()
    assert sum(report.rows for report in reports) == rows
    print(
        f"\nwriter: {rows / fastest_s / 1e6:.0f} M rows/s, {size_bytes / rows:.1f} B/row, "
        f"{rows_per_write} rows a write, fsync {durable}, load {os.getloadavg()[0]:.1f}"
    )


def test_commit_latency(join, committer):
    batches = 250
    spent_ms = []
    for batch_id in range(batches):
        reports = join.write(batch_id)
        start = time.perf_counter()
        assert join.commit(committer, batch_id, reports).committed
        spent_ms.append(1e3 * (time.perf_counter() - start))
    for first in (1, 101, 201):
        part = spent_ms[first : first + 49]
        print(
            f"\ncommit of all tables, batches {first}..{first + 48}: median {np.median(part):.1f} ms, "
            f"p99 {np.quantile(part, 0.99):.1f} ms, load {os.getloadavg()[0]:.1f}"
        )
    join_again = time.perf_counter()
    join.committer()
    print(f"\nopen of all tables: {1e3 * (time.perf_counter() - join_again):.0f} ms")
