"""Count and periodic windows in the engine: what may be dropped and when, what is refused, bounded chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.spec import BoundJoin, Join, Stream, bind

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])


def engine(window: str, on: Any = "l.x = r.x", names: str = "lr") -> JoinEngine:
    return JoinEngine(Join([Stream(name, schema=SCHEMA) for name in names], on, window))


def row(ts: int, x: int = 0) -> dict[str, int]:
    return {"ts": ts, "x": x}


@pytest.mark.parametrize(
    ("window", "apart"),
    [
        ("5us", 5),
        ("l=5us,r=0us", 5),
        ("every 1us for 5us", 4),
        ("l=every 1us for 5us,r=every 1us for 1us", 4),
        ("l=every 1us for 5us,r=every 1us for 1us lag 3", 7),
        ("l=every 1us for 5us,r=every 1us for 1us lag -2", 2),
    ],
)
def test_a_tuple_waits_to_the_last_microsecond(window: str, apart: int) -> None:
    """With the watermark at 100 a tuple meets one that is `apart` younger, and none a microsecond younger still."""
    joined = engine(window)
    joined.push({"l": row(100 - apart)})
    joined.push({"l": row(100, 1)})
    joined.push({"r": row(100, 2)})
    assert joined.watermark == 100
    assert joined.push({"r": row(100)}).num_rows == 1
    assert joined.push({"r": row(101)}).num_rows == 0
    # A tuple out of reach is dropped at the latest when most of what is kept with it is out of reach.
    joined.push({"l": row(1_000, 1), "r": row(1_000, 2)})
    assert 100 - apart not in times_kept(joined, 0)


def times_kept(joined: JoinEngine, stream: int) -> list[int]:
    window = joined._join.windows[stream]
    return [time for run in window.runs for time in run.key(0).tolist()]


def test_a_count_window_meets_exactly_its_last_k_and_keeps_little_more() -> None:
    joined = engine("l=last 300,r=last 2")
    for n in range(60):
        joined.push({"l": [row(50 * n + k, 50 * n + k) for k in range(50)]})
        assert len(times_kept(joined, 0)) <= 2 * 300 + 2 * 50  # runs that are mostly out of reach are dropped
    assert joined.push({"r": [row(2_990, x) for x in range(3_000)]})["l_seq"].to_pylist() == list(range(2_700, 3_000))
    # A late tuple counts: it is one of the last two of `r`.
    joined.push({"r": row(3, 17)})
    assert joined.late["r"].num_rows == 1
    assert joined.push({"l": row(3_000, 2_999)})["r_seq"].to_pylist() == [2_999]
    assert joined.push({"l": row(3_000, 2_998)}).num_rows == 0


def test_rows_without_a_time_count() -> None:
    joined = engine("last 2")
    joined.push({"l": [row(1, 7), {"ts": None, "x": 7}]})
    assert joined.rejected["l"].num_rows == 1
    assert joined.push({"r": row(1, 7)})["l_seq"].to_pylist() == [0]
    joined.push({"l": {"ts": None, "x": 7}})
    assert joined.push({"r": row(1, 7)}).num_rows == 0


def test_streams_of_one_push_are_merged_by_time() -> None:
    joined = engine("last 1", on=())
    result = joined.push({"r": [row(15), row(25)], "l": [row(n) for n in (10, 20, 30)]})
    pairs = sorted(zip(result["l_seq"].to_pylist(), result["r_seq"].to_pylist(), strict=True))
    assert pairs == [(0, 0), (1, 0), (1, 1), (2, 1)]


def test_count_windows_go_on_after_a_restart() -> None:
    first, second = engine("last 2"), engine("last 2")
    first.push({"l": [row(n, 1) for n in range(5)], "r": [row(n, 2) for n in range(3)]})
    second.restore(first.save())
    for joined in (first, second):
        assert joined.push({"r": row(9, 1)})["l_seq"].to_pylist() == [3, 4]
        assert joined.push({"l": row(9, 2)})["r_seq"].to_pylist() == [2]


def bound_join(window: str) -> BoundJoin:
    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])
    return bind(Join([Stream(name) for name in "lrt"], (), window), dict.fromkeys("lrt", schema))


def tuples(bound: BoundJoin, stream: int, times: Any) -> pa.Table:
    count = len(times)
    columns = [pa.array(np.asarray(times, np.int64)), pa.array(np.arange(count)), pa.array(np.zeros(count, np.int64))]
    return pa.Table.from_arrays(columns, schema=bound.tuple_schema(stream))


def test_results_of_many_windows_come_in_bounded_chunks_and_in_their_windows_order() -> None:
    bound = bound_join("every 1us for 100us")
    join = WindowJoin(bound, chunk_rows=64)
    chunks = list(join.push({stream: tuples(bound, stream, [0, 1]) for stream in range(3)}))
    assert max(chunk.num_rows for chunk in chunks) <= 64
    result = pa.concat_tables(chunks)
    # Triples of one time have 100 windows in common, triples with times one apart 99. Two of the eight are of one time.
    assert result.num_rows == 2 * 100 + 6 * 99
    rows = list(zip(*(result[c].to_pylist() for c in ("l_seq", "r_seq", "t_seq", "window_id")), strict=True))
    assert len(set(rows)) == len(rows)
    of_one = [window for *numbers, window in rows if numbers == [1, 1, 1]]
    assert of_one == list(range(1, 101))


def test_partial_results_are_of_common_windows_only() -> None:
    """Windows tumble: half of the pairs that are near enough share no window, and go no further."""
    bound = bound_join("every 10us for 10us")
    join = WindowJoin(bound)
    rows = sum(
        chunk.num_rows for chunk in join.push({stream: tuples(bound, stream, range(1, 41)) for stream in range(3)})
    )
    assert rows == 4 * 10**3
    assert join.counters["partials"] == 4 * 10**2
