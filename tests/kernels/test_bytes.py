"""Strings and binary values: hashes are those of the published function; values are gathered from several columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.columns import byte_column, bytes_of
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.engine.kernels.loading import Kernels
from streamjoin_ds.errors import KernelError

each_module = pytest.mark.parametrize("module", [twins, native], ids=["twin", "native"])


def column_of(module, values, first=0):
    """Return the `ByteColumn` of an array whose first values are cut off."""
    return byte_column(pa.array(values, pa.binary()).slice(first), Kernels(module, module.default_implementation()))


@each_module
def test_hashes_are_the_librarys_at_every_length(module) -> None:
    chooser = np.random.default_rng(3)
    sizes = [*range(300), *range(500, 560), *range(1000, 1100), 1024, 1025, 2048, 2049, 4096, 10_000]
    values = [chooser.bytes(size) for size in sizes]
    expected = np.array([xxhash.xxh3_64_intdigest(value) for value in values], np.uint64).view(np.int64)
    assert column_of(module, values).hashes().tolist() == expected.tolist()
    assert column_of(module, values, first=250).hashes().tolist() == expected[250:].tolist()
    assert column_of(module, []).hashes().dtype == np.int64


@each_module
@given(
    columns=st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    count=st.integers(0, 100),
)
def test_values_are_gathered_from_several_columns(module, columns, seed, count) -> None:
    chooser = np.random.default_rng(seed)
    cuts = [int(chooser.integers(0, len(values) // 2 + 1)) for values in columns]
    made = [column_of(module, values, cut) for values, cut in zip(columns, cuts, strict=True)]
    columns = [values[cut:] for values, cut in zip(columns, cuts, strict=True)]
    assert [len(column) for column in made] == [len(values) for values in columns]
    usable = [number for number, values in enumerate(columns) if values]
    column_numbers = chooser.choice(usable, count).astype(np.int32) if usable else np.empty(0, np.int32)
    rows = np.array([chooser.integers(len(columns[number])) for number in column_numbers], np.int32)
    kernels = Kernels(module, module.default_implementation())
    found = bytes_of(made, column_numbers, rows, pa.binary(), kernels)
    found.validate(full=True)
    expected = [columns[number][row] for number, row in zip(column_numbers, rows, strict=True)]
    assert found.to_pylist() == expected
    assert found.null_count == expected.count(None)
    for number in usable:
        rows = chooser.integers(0, len(columns[number]), count).astype(np.int32)
        assert bytes_of(made, number, rows, pa.binary(), kernels).to_pylist() == [columns[number][row] for row in rows]


OFFSETS, DATA = np.array([0, 2, 2, 5], np.int32), np.arange(5, dtype=np.uint8)
BITS = np.array([7], np.uint8)


@each_module
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ((OFFSETS[:0], DATA), "offsets"),
        ((OFFSETS - 1, DATA), "offsets"),
        ((OFFSETS[::-1].copy(), DATA), "offsets"),
        ((OFFSETS + 1, DATA), "offsets"),
        ((OFFSETS.astype(np.int64), DATA), "offsets"),
        ((OFFSETS, DATA.astype(np.int8)), "data"),
        ((OFFSETS, DATA, BITS, 6), "valid"),
        ((OFFSETS, DATA, BITS, -1), "valid"),
        ((OFFSETS, DATA, BITS.astype(np.int64)), "valid"),
        ((OFFSETS, DATA, BITS, 1.5), "valid_from"),
    ],
)
def test_columns_that_do_not_hold_together_are_refused(module, given, name) -> None:
    with pytest.raises(KernelError) as caught:
        module.ByteColumn(*given)
    assert caught.value.name == name


@each_module
def test_rows_outside_are_refused(module) -> None:
    columns = [module.ByteColumn(OFFSETS, DATA), module.ByteColumn(OFFSETS[:1], DATA)]
    inside = np.array([0, 2], np.int32)
    assert module.gather_bytes(columns, 0, inside)[0].tolist() == [0, 2, 5]
    for column_numbers, rows, name in [
        (0, np.array([3], np.int32), "rows"),
        (0, np.array([-1], np.int32), "rows"),
        (1, np.array([0], np.int32), "rows"),
        (2, inside, "rows"),
        (-1, inside, "rows"),
        (np.array([0, 1], np.int32), inside, "rows"),
        (np.array([0], np.int32), inside, "column_numbers"),
        (np.array([0, 0]), inside, "column_numbers"),
        (0, np.array([0]), "rows"),
    ]:
        with pytest.raises(KernelError) as caught:
            module.gather_bytes(columns, column_numbers, rows)
        assert caught.value.name == name


def test_more_than_a_column_holds_is_refused() -> None:
    """Only the compiled kernel is tried: the twin would make the whole column first."""
    large = native.ByteColumn(np.array([0, 1 << 20], np.int32), np.zeros(1 << 20, np.uint8))
    with pytest.raises(KernelError, match="too long"):
        native.gather_bytes([large], 0, np.zeros(2048, np.int32))
