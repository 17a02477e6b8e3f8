"""The payload of a grid's rows: numbers lead to values, batches stay few, and dead rows are left behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.kernels.loading import kernel_names, load_kernels
from streamjoin_ds.engine.storage.bucket_grid.payload import Payload
from streamjoin_ds.engine.tuning import PayloadTuning

SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int64()), ("parts", pa.list_(pa.int8()))])
KERNELS = [name for name in kernel_names() if name != "auto"]
SMALL = PayloadTuning(least_rows=4, slack_rows=16)


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = [
        pa.array([None if n % 7 == 0 else f"value {n}" for n in numbers], pa.string()),
        pa.array([0] * count, pa.int16()),  # not a column of the payload
        pa.array([None if n % 5 == 0 else n for n in numbers], pa.int64()),
        pa.array([[n % 100] * (n % 3) for n in numbers], pa.list_(pa.int8())),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["s", "other", "n", "parts"])


def values(held: Payload, numbers: np.ndarray) -> list[tuple]:
    columns = [held.take(name, numbers) for name in SCHEMA.names]
    assert [column.type for column in columns] == SCHEMA.types
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def expected(rows: list[int]) -> list[tuple]:
    return [(None if n % 7 == 0 else f"value {n}", None if n % 5 == 0 else n, [n % 100] * (n % 3)) for n in rows]


@given(
    sizes=st.lists(st.integers(0, 40), max_size=40),
    seed=st.integers(0, 1000),
    window=st.integers(1, 200),
    kernel=st.sampled_from(KERNELS),
)
def test_numbers_lead_to_their_rows_whatever_is_put_together_or_left_behind(
    sizes: list[int], seed: int, window: int, kernel: str
) -> None:
    held, chooser = Payload(SCHEMA, load_kernels(kernel), tuning=SMALL), np.random.default_rng(seed)
    assert held.take("s", np.empty(0, np.int32)).type == pa.string()
    known: dict[int, int] = {}  # row to number
    first = 0
    for size in sizes:
        numbers = held.append(batch(first, size))
        assert numbers.dtype == np.int32
        known |= dict(zip(range(first, first + size), numbers.tolist(), strict=True))
        first += size
        # Rows die in the order in which they came, but every 19th lives on.
        known = {row: number for row, number in known.items() if row >= first - window or row % 19 == 0}
        if held.is_loose(len(known)):
            told = np.array(list(known.values()), np.int32)
            held, moved = held.thinned(told)
            known = dict(zip(known, moved.tolist(), strict=True))
            assert held.rows <= len(known) / 0.75 + 1
        assert held.rows <= 2 * len(known) + 16
        asked = chooser.choice(list(known), min(len(known), 30)) if known else []
        numbers = np.array([known[row] for row in asked], np.int32)
        assert values(held, numbers) == expected([int(row) for row in asked])


def test_the_list_of_batches_stays_short() -> None:
    held, first, longest = Payload(SCHEMA, load_kernels("auto"), tuning=SMALL), 0, 0
    for number in range(1500):
        size = 1 if number % 3 else 30  # small batches between large ones
        held.append(batch(first, size))
        first += size
        longest = max(longest, len(held))
    assert held.rows == first
    whole = first // SMALL.whole_rows
    assert longest <= whole + 7 * 8


def test_whole_batches_are_left_alone() -> None:
    held = Payload(SCHEMA, load_kernels("auto"), tuning=replace(SMALL, whole_bytes=1))
    for number in range(20):
        held.append(batch(10 * number, 10))
    assert len(held) == 20, "batches of so many bytes are not put together"


def test_a_slice_does_not_keep_what_it_is_a_slice_of() -> None:
    large = batch(0, 5000)
    held = Payload(SCHEMA, load_kernels("auto"), tuning=SMALL)
    held.append(large.slice(100, 10))
    assert values(held, np.arange(10, dtype=np.int32)) == expected(list(range(100, 110)))
    assert sum(one.tuples.get_total_buffer_size() for one in held._batches) < 4000


def test_nothing_is_left_of_rows_that_nobody_wants() -> None:
    held = Payload(SCHEMA, load_kernels("auto"), tuning=SMALL)
    held.append(batch(0, 100))
    assert held.is_loose(0)
    held, moved = held.thinned(np.empty(0, np.int32))
    assert len(moved) == 0
    assert (held.rows, len(held)) == (0, 0)
    assert held.append(batch(3, 2)).tolist() == [0, 1]
