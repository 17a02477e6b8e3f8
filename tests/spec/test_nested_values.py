"""Lists and structs as bytes: equal bytes are equal values, as Spark says, however an array lies in memory."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.engine.columns import hashes_of
from streamjoin_ds.engine.kernels.loading import load_kernels
from streamjoin_ds.errors import ColumnError
from streamjoin_ds.spec import Join, Stream, bind
from streamjoin_ds.spec.nested_values import encoded, has_fine_times, shape_text, type_text
from streamjoin_ds.testing.values import plain_value
from tests.support.examples import examples

LEAVES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, 1, -128],
    pa.int64(): [0, 1, -(1 << 63)],
    pa.float32(): [0.0, -0.0, math.nan, math.inf, 1.5],
    pa.float64(): [0.0, -0.0, math.nan, -math.inf, 0.1],
    pa.string(): ["", "a", "ab", "\0", "\u00e4"],
    pa.binary(): [b"", b"\0", b"\0\0", b"\x01"],
    pa.bool_(): [False, True],
    pa.date32(): [date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", tz="UTC"): [datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(1, 1, 1, tzinfo=timezone.utc)],
    pa.decimal128(20, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal(10**17)],
}


def kinds(depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    inner = st.sampled_from(list(LEAVES))
    if depth > 1:
        inner = st.one_of(inner, kinds(depth - 1))
    fields = st.lists(inner, min_size=1, max_size=3)
    structs = fields.map(lambda of: pa.struct([(f"f{n}", kind) for n, kind in enumerate(of)]))
    return st.one_of(inner.map(pa.list_), structs)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        some = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        some = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    else:
        some = st.sampled_from(LEAVES[kind])
    return st.one_of(st.none(), some, some, some)


def relisted(kind: pa.DataType, made: Any) -> pa.DataType:
    """Return a type with other kinds of lists."""
    if pa.types.is_list(kind):
        return made(relisted(kind.value_type, made))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, relisted(field.type, made)) for field in kind])
    return kind


@examples(200)
@given(data=st.data(), kind=kinds(), begin=st.integers(0, 5))
def test_bytes_and_hashes_are_equal_where_values_are(data: st.DataObject, kind: pa.DataType, begin: int) -> None:
    given = data.draw(st.lists(values_of(kind), min_size=2, max_size=12))
    array = pa.array(given, kind)
    found = encoded(array).to_pylist()
    plain = [plain_value(value) for value in array.to_pylist()]
    assert [one is None for one in found] == [value is None for value in given]
    for one, one_plain in zip(found, plain, strict=True):
        assert [one == other for other in found] == [one_plain == other for other in plain]
    kernels = load_kernels("auto")
    hashes = hashes_of(array, kernels).tolist()
    known: dict[bytes, int] = {}
    for value, hashed in zip(found, hashes, strict=True):
        if value is not None:
            assert known.setdefault(value, hashed) == hashed
    assert len(set(known.values())) == len(known)
    # However the array lies in memory, and whatever kind its lists are of.
    assert encoded(array[begin:]).to_pylist() == found[begin:]
    hidden = pa.concat_arrays([pa.array(given[:1], kind), array]).filter(pa.array([False, *[True] * len(array)]))
    assert encoded(hidden).to_pylist() == found
    assert encoded(array.cast(relisted(kind, pa.large_list))).to_pylist() == found
    assert hashes_of(array[begin:], kernels).tolist() == hashes[begin:]


def test_what_lies_in_the_slot_of_a_null_does_not_count() -> None:
    items = pa.array([1, 2, 3, 4, 5, 6], pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), items, mask=pa.array([False, True, False]))
    pairs = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))
    wanted = encoded(pa.array([[1, 2], None, [5, 6]], pa.list_(pa.int32())))
    for found in (lists, pairs):
        assert encoded(found).equals(wanted)
        outer = pa.StructArray.from_arrays([found], ["x"], mask=pa.array([True, False, False]))
        assert encoded(outer).to_pylist() == [None, b"\1" + bytes(5), b"\1" + wanted[2].as_py()]


def test_a_type_as_text() -> None:
    kind = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.large_list(pa.string()))]))
    assert type_text(kind) == "list<struct<x: int32, y: list<string>>>"
    other = pa.large_list(pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.list_(pa.string()))]))
    assert shape_text(kind) == shape_text(other)
    assert has_fine_times(pa.struct([("x", pa.list_(pa.timestamp("ns")))]))
    assert not has_fine_times(kind)


@pytest.mark.parametrize("on", ["e.x = w.x", "e.x <> w.x", "e.x IS NOT DISTINCT FROM w.x OR e.ts = w.ts"])
def test_nanoseconds_inside_are_refused_where_they_are_compared(on: str) -> None:
    columns = pa.schema([("ts", pa.timestamp("us")), ("x", pa.list_(pa.timestamp("ns")))])
    streams = [Stream("e"), Stream("w")]
    with pytest.raises(ColumnError, match=r"'e\.x' has the type list<timestamp\[ns\]>") as caught:
        bind(Join(streams, on, "1m"), {"e": columns, "w": columns})
    assert caught.value.name == "e.x"
    bind(Join(streams, "e.x IS NOT NULL AND e.ts = w.ts", "1m"), {"e": columns, "w": columns})
