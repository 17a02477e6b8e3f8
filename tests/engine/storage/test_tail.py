"""The tail: small pushes give what large ones give, and leave no trace when they are given up."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamjoin_ds.engine.storage.tail import Tail
from streamjoin_ds.engine.tuning import DEFAULT
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.plan import Execution
from tests.engine.streams import band_join, pairs, tuples


def pushed(join: WindowJoin, tables: dict[int, pa.Table], sizes: list[int], watermarks: bool = False) -> list:
    found, place = [], 0
    rows = max(table.num_rows for table in tables.values())
    for size in sizes:
        batch = {stream: table.slice(place, size) for stream, table in tables.items()}
        place += size
        low = batch[0]["_ts"][0].as_py() if watermarks and batch[0].num_rows else None
        found += pairs(list(join.push(batch, low)))
    assert place >= rows
    return sorted(found)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_small_pushes_give_what_one_large_push_gives(kernel: str) -> None:
    bound = band_join(window="3s")
    rows = 12_000 if kernel == "auto" else 3000
    tables = {stream: tuples(bound, stream, rows, span_us=10_000_000) for stream in (0, 1)}
    whole = pushed(WindowJoin(bound), tables, [rows])
    chooser = random.Random(1)
    sizes: list[int] = []
    while sum(sizes) < rows:
        sizes.append(chooser.choice([1, 2, 7, 60, 500, 1500]))
    join = WindowJoin(bound, execution=Execution(kernel=kernel))
    assert pushed(join, tables, sizes, watermarks=True) == whole
    assert len(whole) > 1000


def test_a_one_tuple_push_makes_no_run() -> None:
    bound = band_join(window="100s")
    join = WindowJoin(bound)
    table = tuples(bound, 0, DEFAULT.tail.rows + 1)
    for row in range(DEFAULT.tail.rows + 1):
        list(join.push({0: table.slice(row, 1)}))
        assert len(join.windows[0].runs) == (1 if row < DEFAULT.tail.rows else 2)
    assert [run.rows for run in join.windows[0].runs] == [DEFAULT.tail.rows, 1]
    assert isinstance(join.windows[0].runs[-1], Tail)


def test_kernels_agree_on_the_order_of_results_and_on_the_state() -> None:
    bound = band_join(window="3s")
    tables = {stream: tuples(bound, stream, 3000, span_us=6_000_000) for stream in (0, 1)}
    answers = []
    for kernel in ("auto", "reference"):
        join, found = WindowJoin(bound, execution=Execution(kernel=kernel)), []
        for place in range(0, 3000, 75):
            batch = {stream: table.slice(place, 75) for stream, table in tables.items()}
            found += [chunk.to_pydict() for chunk in join.push(batch, batch[0]["_ts"][0].as_py())]
        answers.append((found, join.save()))
    assert answers[0][1] == answers[1][1]
    assert repr(answers[0][0]) == repr(answers[1][0])


def test_a_push_that_is_given_up_leaves_no_trace() -> None:
    bound = band_join(window="100s")
    join = WindowJoin(bound)
    tables = {stream: tuples(bound, stream, 300) for stream in (0, 1)}
    list(join.push({stream: table.slice(0, 200) for stream, table in tables.items()}))
    before = join.save()
    given_up = join.push({stream: table.slice(200, 100) for stream, table in tables.items()})
    assert next(given_up).num_rows
    del given_up
    assert join.save() == before
    other = tuples(bound, 0, 50, seq=1000, seed=9)
    expected = WindowJoin.restored(bound, before)
    assert pairs(list(join.push({0: other}))) == pairs(list(expected.push({0: other})))
    assert join.save() == expected.save()


def test_the_state_is_a_function_of_the_pushes_and_a_restored_tail_grows_on() -> None:
    bound = band_join(window="100s")
    tables = {stream: tuples(bound, stream, 900) for stream in (0, 1)}
    straight, broken = WindowJoin(bound), WindowJoin(bound)
    for place in range(0, 900, 30):
        batch = {stream: table.slice(place, 30) for stream, table in tables.items()}
        expected = [chunk.to_pydict() for chunk in straight.push(batch)]
        broken = WindowJoin.restored(bound, broken.save())
        assert repr([chunk.to_pydict() for chunk in broken.push(batch)]) == repr(expected)
        assert broken.save() == straight.save()
    assert len(straight.windows[0].runs) == 1


def test_a_null_in_a_payload_moves_that_column_only() -> None:
    bound = band_join(window="100s")
    join = WindowJoin(bound)
    table = tuples(bound, 0, 40)
    holed = table.set_column(4, table.schema.field(4), pa.array([None, *range(39)], pa.float32()))
    list(join.push({0: table}))
    list(join.push({0: holed.slice(0, 1)}))
    list(join.push({0: holed.slice(1, 39)}))
    whole = pa.concat_tables([table, holed])
    buffer = join.windows[0].tail.buffer
    assert set(buffer.pieces) == {"v"}
    result = pa.concat_tables(join.push({1: tuples(bound, 1, 900)}))
    values = {(seq, value) for seq, value in zip(whole["_seq"].to_pylist(), whole["v"].to_pylist(), strict=True)}
    assert {*zip(result["r_seq"].to_pylist(), result["r_v"].to_pylist(), strict=True)} <= values
    assert result.num_rows > 10
