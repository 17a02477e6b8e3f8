"""Batches put in grid order by one kernel: it gives what ordering, gathering and ranges give one after the other."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels.loading import kernel_names, load_kernels
from streamjoin_ds.errors import KernelError
from tests.support.examples import examples

MODULES = list({load_kernels(name).module.__name__: load_kernels(name).module for name in kernel_names()}.values())
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("small", pa.int16()),
        ("narrow", pa.float32()),
        ("wide", pa.float64()),
        ("day", pa.date32()),
        ("price", pa.decimal128(18, 2)),
    ]
)
KEYS = [(0, False), (2, True), (3, True), (1, False), (4, False)]  # the first and the third are their column itself
ITEMS = [np.int64, np.int16, np.float32, np.float64, np.int32, np.complex128]

numbers = st.integers(-40, 40)
floats = st.one_of(
    numbers.map(float), st.sampled_from([-0.0, 0.0, 1e30, -1e30, float("inf"), -float("inf"), 0.1, 5e-324])
)
rows = st.lists(st.tuples(numbers, numbers, floats, floats, numbers, numbers), min_size=1, max_size=70)


def batch_of(made, offset: int = 0) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in made], pa.int64()) for place in (0, 1, 4)]
    narrow = pa.array(np.array([row[2] for row in made], np.float32))
    wide = pa.array([row[3] for row in made], pa.float64())
    cast = [
        columns[0].cast(pa.timestamp("us")),
        columns[1].cast(pa.int16()),
        narrow,
        wide,
        columns[2].cast(pa.int32()).cast(pa.date32()),
        pa.array([decimal.Decimal(row[5]) for row in made], pa.decimal128(18, 2)),
    ]
    return pa.RecordBatch.from_arrays(cast, schema=SCHEMA).slice(offset)


def room(count: int):
    keys = [None, np.empty(count), None, np.empty(count, np.int64), np.empty(count, np.int64)]
    return [np.empty(count, kind) for kind in ITEMS], keys


@each_module
@examples(80)
@given(
    made=rows,
    offset=st.integers(0, 9),
    layout=st.sampled_from([(-1, 0, 1), (-1, 2, 1), (1, 2, 0.7), (0, 3, 5), (4, 1, 3), (2, 0, 2.0)]),
)
def test_rows_columns_and_ends_are_those_of_the_steps(module, made, offset, layout) -> None:
    batch = batch_of(made, min(offset, len(made) - 1))
    count, (first, second, width) = batch.num_rows, layout
    values, keys = room(count)
    given_batch = module.BatchColumns(module.BatchForm(SCHEMA), batch)
    zone = module.SealForm(KEYS).sealing(given_batch, values, keys, first, second, width).do()

    kept = made[-count:]
    own = [np.array([row[place] for row in kept], np.float64 if is_float else np.int64) for place, is_float in KEYS]
    own[1] = own[1].astype(np.float32).astype(np.float64)
    buckets = None if first < 0 else module.grid_buckets(own[first], width, 0.0 if KEYS[first][1] else 0)
    order = module.grid_order(buckets, own[second])
    for key, expected in zip(keys, own, strict=True):
        assert key is None or (key == expected[order]).all()
    for column, items in zip(batch.take(pa.array(order)).columns, values, strict=True):
        lying = np.frombuffer(column.buffers()[1], items.dtype, count, column.offset * items.itemsize)
        assert lying.tobytes() == items.tobytes()
    assert zone == tuple((values.min().item() + 0, values.max().item() + 0) for values in own)
    assert [[type(end) for end in ends] for ends in zone] == [[float if kind else int] * 2 for _, kind in KEYS]


@each_module
def test_boundary(module) -> None:
    form, seal = module.BatchForm(SCHEMA), module.SealForm(KEYS)
    batch = module.BatchColumns(form, batch_of([(1, 1, 1.0, 1.0, 1, 1)] * 3))
    values, keys = room(3)
    short, _ = room(2)
    read_only = [array.copy() for array in values]
    read_only[0].flags.writeable = False
    texts = pa.schema([("text", pa.string())])
    words = module.BatchColumns(module.BatchForm(texts), pa.record_batch([["a", "b"]], schema=texts))
    for name, call in [
        ("values", lambda: seal.sealing(batch, values[:2], keys, 0, 1, 1)),
        ("values", lambda: seal.sealing(batch, values, keys[:2], 0, 1, 1)),
        ("values", lambda: seal.sealing(batch, short, keys, 0, 1, 1)),
        ("values", lambda: seal.sealing(batch, read_only, keys, 0, 1, 1)),
        ("keys", lambda: seal.sealing(batch, values, room(2)[1], 0, 1, 1)),
        ("keys", lambda: seal.sealing(batch, values, [None, np.empty(3, np.int64), None, None, None], 0, 1, 1)),
        ("keys", lambda: module.SealForm([(9, False)]).sealing(batch, values, [None], -1, 0, 1)),
        ("second", lambda: seal.sealing(batch, values, keys, 0, 5, 1)),
        ("second", lambda: seal.sealing(batch, values, keys, -2, 0, 1)),
        ("batch", lambda: seal.sealing(module.BatchColumns(form, batch_of([])), *room(0), 0, 1, 1)),
    ]:
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name == name, name
    for call in (  # refused at once, or when the task is done
        lambda: module.SealForm([(0, False)]).sealing(words, [np.empty(2, np.int64)], [None], -1, 0, 1).do(),
        lambda: module.SealForm([(5, False)]).sealing(batch, values, [None], -1, 0, 1).do(),
    ):
        with pytest.raises(KernelError):
            call()
