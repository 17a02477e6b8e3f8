"""Columns that come from Arrow and go to it: the compiled form and its twin against Arrow itself."""

from __future__ import annotations

import gc
import math
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.support.examples import examples

MODULES = pytest.mark.parametrize("module", [native, twins], ids=["native", "reference"])
NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.float32(),
    pa.float64(),
]
MOMENTS = [
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.duration("ms"),
    pa.time32("s"),
    pa.time64("us"),
]
OTHERS = [pa.string(), pa.bool_(), pa.decimal128(20, 3), pa.list_(pa.int32()), pa.dictionary(pa.int32(), pa.string())]


def looked_at(module, batch: pa.RecordBatch):
    return module.BatchColumns(module.BatchForm(batch.schema), batch)


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns], [f"c{n}" for n in range(len(columns))])


@MODULES
@pytest.mark.parametrize("kind", [*NUMBERS, *MOMENTS, *OTHERS], ids=str)
def test_nulls_are_seen_through_slices(module, kind) -> None:
    array = pa.array([None, 1, 2, 3, None, 5, 6, 7, 8, 9, None], pa.int32())
    if pa.types.is_list(kind):
        column = pa.array([None if value is None else [value] for value in array.to_pylist()], kind)
    elif kind in MOMENTS and kind.bit_width == 64:
        column = array.cast(pa.int64()).cast(kind)
    elif pa.types.is_dictionary(kind):
        column = array.cast(pa.string()).dictionary_encode()
    else:
        column = array.cast(kind)
    for begin in range(len(array)):
        for count in range(1, len(array) - begin + 1):
            part = batch_of(array.slice(begin, count), column.slice(begin, count))
            columns = looked_at(module, part)
            assert columns.rows == count
            assert columns.has_null((1,)) == (column.slice(begin, count).null_count > 0)
            assert columns.batch is part
    assert not looked_at(module, batch_of(column.drop_null())).has_null((0,))


@MODULES
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_nans_are_seen_and_infinities_are_none(module, kind) -> None:
    inf = float("inf")
    column = pa.array([1.0, float("nan"), -inf, inf, 0.0], kind)
    columns = [looked_at(module, batch_of(column.slice(n, 1), pa.array(["nan"]))) for n in range(5)]
    assert [one.has_nan((0,)) for one in columns] == [False, True, False, False, False]
    assert not any(one.has_nan((1,)) for one in columns)
    assert looked_at(module, batch_of(column)).has_nan((0,))
    with pytest.raises(KernelError, match="no such column"):
        columns[0].has_nan((2,))
    with pytest.raises(KernelError, match="no such column"):
        columns[0].has_null((-1,))


@MODULES
@pytest.mark.parametrize("kind", [*NUMBERS, *MOMENTS], ids=str)
def test_a_batch_is_put_behind_the_rows_and_its_keys_are_widened(module, kind) -> None:
    width = kind.bit_width // 8
    floating = pa.types.is_floating(kind)
    source = np.array([3, 1, 100, 7, 0, 90], np.float64 if floating else f"i{width}")
    column = pa.array(source.astype(kind.to_pandas_dtype())) if kind in NUMBERS else pa.array(source).cast(kind)
    values, key = np.zeros(50, f"i{width}"), np.zeros(50, np.float64 if floating else np.int64)
    room = module.RoomColumns([values, None], [key], [0])
    batch = batch_of(column, pa.array(["ignored"] * 6))
    assert room.append(looked_at(module, batch.slice(1, 4)), 2) == ((0, 100),)
    assert room.append(looked_at(module, batch.slice(5, 1)), 49) == ((90, 90),)
    assert key[2:6].tolist() == [1, 100, 7, 0]
    assert (key[49], np.count_nonzero(key)) == (90, 4)
    seen = values.view({2: np.int16, 1: np.int8, 4: np.float32, 8: np.float64}[width]) if floating else values
    assert seen[2:6].tolist() == [1, 100, 7, 0]


@MODULES
def test_extremes_are_kept_and_keys_that_are_there_already_are_measured(module) -> None:
    extremes = [-(1 << 63), (1 << 63) - 1, 0]
    ts, made = np.zeros(8, np.int64), np.zeros(8, np.float64)
    made[:3] = [2.5, -0.5, 1e300]
    room = module.RoomColumns([ts], [ts, made], [-1, -1])
    assert room.append(looked_at(module, batch_of(pa.array(extremes))), 0) == (
        (extremes[0], extremes[1]),
        (-0.5, 1e300),
    )
    assert ts[:3].tolist() == extremes
    small = pa.array([-128, 127, 0], pa.int8())
    floats = np.zeros(8)
    assert module.RoomColumns([None], [floats], [0]).append(looked_at(module, batch_of(small)), 5) == ((-128.0, 127.0),)


@MODULES
@pytest.mark.parametrize("values", [[-0.0], [-0.0, 0.0], [0.0, -0.0], [-0.0, 1.0], [-1.0, -0.0]])
def test_a_range_has_no_zero_with_a_sign(module, values) -> None:
    """Otherwise a tail's range would tell in which batches its rows came, and a restart would change the state."""
    room, batch = module.RoomColumns([None], [np.zeros(4)], [0]), looked_at(module, batch_of(pa.array(values)))
    ((low, high),) = room.append(batch, 0)
    assert (low, high) == (min(values), max(values))
    assert all(math.copysign(1, end) > 0 for end in (low, high) if not end)


@MODULES
def test_what_does_not_fit_the_room_is_refused(module) -> None:
    room = module.RoomColumns([np.zeros(4, np.int64), np.zeros(4, np.int32)], [np.zeros(4)], [-1])
    good = batch_of(pa.array([1, 2]), pa.array([1, 2], pa.int32()))
    for begin in (-1, 3, 4):
        with pytest.raises(KernelError, match="room"):
            room.append(looked_at(module, good), begin)
    with pytest.raises(KernelError, match="room"):
        room.append(looked_at(module, good.slice(0, 0)), 0)
    with pytest.raises(KernelError, match="number of columns"):
        room.append(looked_at(module, batch_of(pa.array([1]))), 0)
    for column in (pa.array([1, 2]), pa.array(["a", "b"]), pa.array([True, False]), pa.array([1, 2], pa.int16())):
        with pytest.raises(KernelError, match="width"):
            room.append(looked_at(module, batch_of(pa.array([1, 2]), column)), 0)
    for column in (pa.array(["a"]), pa.array([1.5]), pa.array([True])):
        with pytest.raises(KernelError, match="key"):
            module.RoomColumns([None], [np.zeros(4, np.int64)], [0]).append(looked_at(module, batch_of(column)), 0)
    for values, keys, sources in (
        ([np.zeros(4)], [np.zeros(5)], [-1]),
        ([np.zeros(4)], [np.zeros(4)], [1]),
        ([np.zeros(4)], [np.zeros(4)], []),
        ([np.zeros(4)], [np.zeros(4, np.int32)], [-1]),
        ([np.zeros((2, 2))], [], []),
        ([np.zeros(4, object)], [], []),
    ):
        with pytest.raises(KernelError):
            module.RoomColumns(values, keys, sources)
    with pytest.raises(KernelError, match="schema"):
        module.BatchColumns(module.BatchForm(good.schema), batch_of(pa.array([1])))


SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int8()), ("c", pa.timestamp("us", "UTC")), ("d", pa.int64())])


def gathered(module, count: int, exported=(0, 1, 0, 4), greatest=True):
    """Return rows of two parts, each taken from two runs, and the same columns as lists."""
    rng = np.random.default_rng(count)
    form = module.RowsForm([[8, 1], [8, 16]], list(exported), greatest=greatest)
    rows, lists, parts = module.ArrowRows(form, count), [], []
    for kinds in ((np.int64, np.int8), (np.int64, np.complex128)):
        runs = [[rng.integers(-100, 100, size).astype(kind) for kind in kinds] for size in (7, 30)]
        run_numbers = rng.integers(0, 2, count).astype(np.int32)
        numbers = (rng.random(count) * [len(runs[run_number][0]) for run_number in run_numbers]).astype(np.int32)
        parts.append((module.RunColumns(runs), run_numbers, numbers))
        lists += [[runs[p][c][n] for p, n in zip(run_numbers, numbers, strict=True)] for c in range(2)]
    for begin in range(0, count, -(-count // 3) or 1):
        end = min(begin + -(-count // 3), count)
        some = [(columns, run_numbers[begin:end], numbers[begin:end]) for columns, run_numbers, numbers in parts]
        rows.gather(some, begin) if begin else rows.gathering(some).do()
    return rows, [*lists, [max(pair) for pair in zip(lists[0], lists[2], strict=True)]]


@pytest.mark.each_value
@MODULES
@pytest.mark.parametrize("count", [0, 1, 3, 5000, 300_000])
def test_rows_are_gathered_and_handed_to_arrow(module, count) -> None:
    rows, lists = gathered(module, count)
    batch = pa.RecordBatch._import_from_c(rows.exported(), SCHEMA)
    batch.validate(full=True)
    del rows
    gc.collect()
    assert batch.num_rows == count
    assert batch.column(0).to_pylist() == lists[0]
    assert batch.column(1).to_pylist() == lists[1]
    assert batch.column(2).cast(pa.int64()).to_pylist() == lists[0]
    assert batch.column(3).to_pylist() == lists[4]
    kept = batch.column(3)
    del batch  # a column outlives its batch
    again, _ = gathered(module, count + 1)
    pa.RecordBatch._import_from_c(again.exported(), SCHEMA)
    assert kept.to_pylist() == lists[4]


@MODULES
def test_rows_that_nobody_imports_are_let_go(module) -> None:
    rows, _ = gathered(module, 5)
    rows.exported()
    with pytest.raises(KernelError, match="already"):
        rows.exported()
    del rows
    gc.collect()


def held(count: int, chunks: int) -> list[pa.RecordBatch]:
    """Return so many chunks of results, all held at a time."""
    columns = native.RunColumns([[np.arange(count)]])
    numbers, form, found = np.zeros(count, np.int32), native.RowsForm([[8]], [0, 0, 0, 0]), []
    for _ in range(chunks):
        rows = native.ArrowRows(form, count)
        rows.gather([(columns, 0, numbers)])
        found.append(pa.RecordBatch._import_from_c(rows.exported(), pa.schema([(name, pa.int64()) for name in "abcd"])))
    return found


def faults(count: int, chunks: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held(count, chunks)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_the_memory_of_chunks_that_were_let_go_together_is_taken_again() -> None:
    """Several threads hold several chunks; memory from the system would fault at every page, in every push."""
    count, chunks, page_bytes = 200_000, 6, resource.getpagesize()
    held(count, chunks)
    held(count // 100, 1)  # a small chunk must not clear the shelf
    own = faults(count, 0)
    assert faults(count, chunks) - own < chunks * count * 8 / page_bytes / 4
    assert faults(count - count // 100, chunks) - own < chunks * count * 8 / page_bytes / 4, "and of a little less"


def test_chunks_of_many_sizes_come_from_many_threads_whole() -> None:
    """Whatever was let go by whom, a chunk's memory is its own as long as it is held."""

    def work(seed: int) -> bool:
        rng, kept = np.random.default_rng(seed), []
        for _ in range(60):
            count = int(rng.integers(1, 60_000))
            values = np.full(count, rng.integers(1 << 60))
            rows = native.ArrowRows(native.RowsForm([[8]], [0]), count)
            rows.gather([(native.RunColumns([[values]]), 0, np.arange(count, dtype=np.int32))])
            kept.append((pa.RecordBatch._import_from_c(rows.exported(), pa.schema([("a", pa.int64())])), values))
            if len(kept) > rng.integers(1, 12):
                batch, expected = kept.pop(int(rng.integers(len(kept))))
                if not np.array_equal(batch.column(0).to_numpy(), expected):
                    return False
        return all(np.array_equal(batch.column(0).to_numpy(), expected) for batch, expected in kept)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@MODULES
def test_what_is_no_part_of_the_rows_is_refused(module) -> None:
    columns = module.RunColumns([[np.arange(5), np.arange(5, dtype=np.int8)]])
    rows = module.ArrowRows(module.RowsForm([[8, 1]], [0]), 2)
    with pytest.raises(KernelError, match="not filled"):
        rows.exported()
    two = [(columns, 0, np.zeros(2, np.int32))]
    for parts, begin in (([], 0), (two * 2, 0), (two, -1)):
        with pytest.raises(KernelError, match="number of parts"):
            rows.gather(parts, begin)
    for count, begin in ((3, 0), (2, 1), (1, 2)):
        with pytest.raises(KernelError, match="number"):
            rows.gather([(columns, 0, np.zeros(count, np.int32))], begin)
    with pytest.raises(KernelError, match="outside"):
        rows.gather([(columns, 0, np.array([0, 5], np.int32))])
    for other in ([np.arange(5), np.arange(5)], [np.arange(5)]):
        with pytest.raises(KernelError, match="part"):
            rows.gather([(module.RunColumns([other]), 0, np.zeros(2, np.int32))])
    uneven = module.ArrowRows(module.RowsForm([[8, 1], [8, 1]], [0]), 2)
    with pytest.raises(KernelError, match="number"):
        uneven.gather([*two, (columns, 0, np.zeros(1, np.int32))])
    with pytest.raises((KernelError, TypeError, AttributeError)):
        rows.gather([(None, 0, np.zeros(2, np.int32))])
    rows.gather([(columns, 0, np.zeros(1, np.int32))], 1)
    with pytest.raises(KernelError, match="not filled"):
        rows.exported()
    for parts, exported, greatest in (([[3]], [0], False), ([[8]], [1], False), ([[4]], [0], True), ([], [], True)):
        with pytest.raises(KernelError):
            module.RowsForm(parts, exported, greatest=greatest)
    with pytest.raises(KernelError, match="rows"):
        module.ArrowRows(module.RowsForm([[8]], [0]), -1)


def put(module, kind: pa.DataType, values: list) -> tuple[bool, pa.Array]:
    rows = module.ArrowRows(module.RowsForm([[kind.bit_width // 8]], [0]), len(values))
    is_put = rows.put(0, values, floating=pa.types.is_floating(kind))
    return is_put, pa.RecordBatch._import_from_c(rows.exported(), pa.schema([("c", kind)])).column(0)


VALUES = st.one_of(
    st.integers(-130, 130),
    st.integers(-(1 << 65), 1 << 65),
    st.sampled_from([n + d for b in (7, 15, 24, 31, 53, 63) for n in (-(1 << b), 1 << b) for d in (-1, 0, 1)]),
    st.floats(),
    st.sampled_from([None, True, "1", 1.0, np.float32(1.5), np.int64(3), b"", [1]]),
)


@examples(300)
@given(
    st.sampled_from([k for k in NUMBERS if not pa.types.is_unsigned_integer(k)]),
    st.lists(VALUES, min_size=1, max_size=4),
)
def test_numbers_are_put_as_arrow_puts_them_or_not_at_all(kind, values) -> None:
    answers = [put(module, kind, values) for module in (native, twins)]
    assert answers[0][0] == answers[1][0]
    is_put = answers[0][0]
    for _, column in answers:
        expected = pa.array(values, kind) if is_put else pa.array([0] * len(values), kind)
        width = np.dtype(f"i{kind.bit_width // 8}")  # as bits, so that NaN and -0.0 count
        assert (
            np.frombuffer(column.buffers()[1], width).tolist() == np.frombuffer(expected.buffers()[1], width).tolist()
        )


@MODULES
def test_plain_numbers_are_put(module) -> None:
    assert put(module, pa.int32(), [1, -(1 << 31)]) == (True, pa.array([1, -(1 << 31)], pa.int32()))
    assert put(module, pa.float32(), [1, 0.1, 1e300])[1].to_pylist() == [1.0, pytest.approx(0.1), float("inf")]
    for values in ([1.0], [True], [None], ["1"], [1 << 31]):
        assert not put(module, pa.int32(), values)[0]
    rows = module.ArrowRows(module.RowsForm([[8, 16, 2]], [0]), 1)
    for column, values, floating in (
        (0, [1, 2], False),
        (1, [1], False),
        (2, [1.0], True),
        (3, [1], False),
        (-1, [1], False),
    ):
        with pytest.raises(KernelError):
            rows.put(column, values, floating=floating)
