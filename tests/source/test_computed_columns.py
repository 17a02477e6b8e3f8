"""Computed columns of what is read: the same numbers, rejects and times in every format, wherever a batch is cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.source.stream_source import infer_schema, open_feed
from streamjoin_ds.spec import Join, Stream, bind, bound_from_facts
from tests.source.feeds import FORMATS, SCHEMA, iso, rows, steps, write

COLUMNS = {"half": "x / 2", "inverse": "1 / (n % 4)", "name": "upper(name)", "late": "ts + INTERVAL 1 SECOND"}
W = Stream("w", schema={"ts": "timestamp[us]", "y": "double"})


def opened(stream: Stream, on: str):  # type: ignore[no-untyped-def]
    bound = bind(Join([stream, W], on, "10s"), {"e": infer_schema(stream), "w": W.schema})
    bound = bound_from_facts(bound.to_facts())  # as a worker has it
    return open_feed(bound.join.streams[0], bound.read_schemas[0])


@pytest.mark.each_value
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_record_is_computed_alike_in_every_format_and_cut(tmp_path: Path, form: str, size: int) -> None:
    items = rows(30)
    path = write(tmp_path / f"a.{form}", items)
    schema = {"schema": SCHEMA, "format": "spool"} if form == "spool" else {"schema": SCHEMA}
    feed = opened(
        Stream("e", path.parent if form == "spool" else path, columns=COLUMNS, **schema), "abs(e.half - w.y) <= 1"
    )
    positions = steps(feed, feed.initial(), size)
    chunks = [chunk for low, high in pairwise(positions) for chunk in feed.read(low, high)]
    found = pa.Table.from_batches([chunk.tuples for chunk in chunks]).to_pylist()
    assert [(row["_seq"], row["half"], row["inverse"], row["name"], row["late"].timestamp()) for row in found] == [
        (seq, x / 2, 1 / (n % 4), name.upper(), ts / 1e6 + 1) for seq, (ts, name, x, n) in enumerate(items) if n % 4
    ]
    rejects = [(reject.seq, reject.column, reject.reason) for chunk in chunks for reject in chunk.rejects]
    assert rejects == [(n, "inverse", "a division by zero") for *_, n in items if n % 4 == 0]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_computed_time_is_what_the_planner_sees(tmp_path: Path, form: str) -> None:
    items = [(ts, iso(ts) if n % 5 else "soon", x, n) for ts, _, x, n in rows(20)]
    path = write(tmp_path / f"a.{form}", items)
    feed = opened(Stream("e", path, columns={"ts": "name || ''"}), "abs(e.x - w.y) <= 1")
    frontier = feed.frontier(feed.initial(), 100)
    end = feed.advance(feed.initial(), frontier.rows)
    chunks = list(feed.read(feed.initial(), end))
    found = [ts for chunk in chunks for ts in chunk.tuples.column("_ts").to_pylist()]
    assert found == [ts for ts, _, _, n in items if n % 5]
    rejects = {(reject.seq, reject.column) for chunk in chunks for reject in chunk.rejects}
    assert rejects == {(n, "ts") for *_, n in items if n % 5 == 0}
    known = np.maximum.accumulate([ts if n % 5 else np.iinfo(np.int64).min for ts, _, _, n in items])
    assert frontier.last_time() == known[-1]
    np.testing.assert_array_equal(feed.running_max(feed.initial(), end), known)


def test_a_generated_stream_has_computed_columns_of_its_own_ones() -> None:
    made, columns = "gen:band2d?side=r&rate=1000&rows=50", {"y": "x * 2", "big": "x > 5000"}
    computed = opened(Stream("e", made, columns=columns), "abs(e.y - w.y) <= 1 AND e.big")
    plain = opened(Stream("e", made), "abs(e.x - w.y) <= 1")
    failing = opened(Stream("e", made, columns=columns | {"z": "1 / (x - x)"}), "abs(e.z - w.y) <= 1")
    end = plain.advance(plain.initial(), 50)
    (found,), (other,), (none,) = (feed.read(feed.initial(), end) for feed in (computed, plain, failing))
    assert found.tuples.column("y").to_pylist() == [2 * x for x in other.tuples.column("x").to_pylist()]
    assert found.tuples.column("_ts") == other.tuples.column("_ts")
    assert (none.tuples.num_rows, len(none.rejects)) == (0, 50)
    with pytest.raises(ArgumentError, match="its event time is its own"):
        Stream("e", made, time="to_timestamp(x)")
