"""Blocks: the same bytes for the same rows, verified before they are parsed, aligned where they are mapped."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.blocks import BlockStore, checksum, decode, encode, pack, unpack
from streamjoin_ds.blocks.block import ALIGNMENT_BYTES, encoded
from streamjoin_ds.errors import BlockCorruptError
from tests.support.examples import examples

KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "_ts": (pa.int64(), lambda n: 1_700_000_000_000_000 + n),
    "text": (pa.string(), lambda n: None if n % 5 == 0 else f"reading {n}"),
    "_seq": (pa.int64(), lambda n: n),
    "i8": (pa.int8(), lambda n: n % 100),
    "flag": (pa.bool_(), lambda n: None if n % 7 == 0 else n % 2 == 0),
    "raw": (pa.binary(), lambda n: bytes([n % 256]) * (n % 4)),
    "f4": (pa.float32(), lambda n: n / 8),
    "f8": (pa.float64(), lambda n: None if n % 3 == 0 else n / 3),
    "day": (pa.date32(), lambda n: n),
    "when": (pa.timestamp("us", tz="UTC"), lambda n: n),
    "price": (pa.decimal128(9, 2), lambda n: None if n % 4 == 0 else Decimal(n) / 4),
    "some": (pa.list_(pa.int16()), lambda n: None if n % 6 == 0 else list(range(n % 3))),
    "both": (pa.struct([("a", pa.int8()), ("b", pa.string())]), lambda n: {"a": n % 9, "b": str(n)}),
}


def rows(count: int, start: int = 0, names: tuple[str, ...] = tuple(KINDS)) -> pa.Table:
    columns = {
        name: pa.array([KINDS[name][1](n) for n in range(start, start + count)], KINDS[name][0]) for name in names
    }
    return pa.table(columns)


@examples(40)
@given(st.integers(0, 300), st.integers(0, 70), st.integers(0, 70), st.sets(st.sampled_from(list(KINDS)), min_size=1))
def test_rows_come_back_however_they_were_cut(count: int, before: int, after: int, chosen: set[str]) -> None:
    names = tuple(name for name in KINDS if name in chosen)
    whole = rows(count, 0, names)
    around = pa.concat_tables([rows(before, 1000, names), whole, rows(after, 2000, names)])
    parts = pa.concat_tables([whole.slice(0, count // 3), whole.slice(count // 3)])
    for table in (whole, around.slice(before, count), around.combine_chunks().slice(before, count), parts):
        data = encode(table)
        read = decode(data, checksum(data))
        read.validate(full=True)
        assert read.equals(whole)
        assert read.schema == whole.schema


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 512, 1000])
def test_the_same_rows_are_the_same_bytes(count: int) -> None:
    fixed = tuple(name for name in KINDS if name not in ("some", "both", "text", "raw"))
    whole = rows(count, 0, fixed)
    around = pa.concat_tables([rows(13, 1000, fixed), whole, rows(9, 3, fixed)]).combine_chunks()
    filtered = around.filter(pa.array([13 <= n < 13 + count for n in range(len(around))]))
    parts = pa.concat_tables([whole.slice(0, count // 2), whole.slice(count // 2)])
    expected = encode(whole, {"b": "2", "a": "1"}).to_pybytes()
    for table in (whole, around.slice(13, count), parts, whole.replace_schema_metadata({"x": "y"})):
        assert encode(table, {"a": "1", "b": "2"}).to_pybytes() == expected
    assert decode(encode(filtered), checksum(encode(filtered))).equals(whole)


def test_the_same_text_is_the_same_bytes() -> None:
    whole = rows(100)
    parts = pa.concat_tables([whole.slice(0, 33), whole.slice(33)])
    assert encode(parts).equals(encode(whole))
    assert encode(rows(100)).equals(encode(whole))


def test_other_rows_facts_and_names_are_other_bytes() -> None:
    base = rows(10)
    others = [
        rows(11),
        rows(10, 1),
        base.rename_columns([*list(KINDS)[:-1], "other"]),
        base.select(list(reversed(KINDS))),
    ]
    digests = {checksum(encode(table)) for table in (base, *others)} | {checksum(encode(base, {"a": "1"}))}
    assert len(digests) == 6


def test_facts_come_back_and_nothing_else() -> None:
    table = rows(5).replace_schema_metadata({"pandas": "{}"})
    facts = {"stream": "e", "pad": "x", "empty": "", "unicode": "ü"}
    data = encode(table, facts)
    assert decode(data, checksum(data)).schema.metadata == {
        key.encode(): value.encode() for key, value in facts.items()
    }
    data = encode(table)
    assert decode(data, checksum(data)).schema.metadata is None


def test_a_schema_that_forbids_nulls_stays_so() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("s", pa.string(), nullable=False)])
    for table in (schema.empty_table(), pa.table([[1], ["x"]], schema=schema)):
        data = encode(table)
        assert decode(data, checksum(data)).schema == schema


def test_a_table_of_no_columns_and_no_rows() -> None:
    data = encode(pa.table({}))
    assert decode(data, checksum(data)).num_columns == 0


@pytest.mark.parametrize("count", [1, 3, 64, 1000, 4097])
@pytest.mark.parametrize("facts", [None, {"stream": "e"}, {"stream": "eastbound", "x": "y" * 37}])
def test_columns_begin_on_a_cache_line_where_they_are_mapped(
    tmp_path: Path, count: int, facts: dict[str, str] | None
) -> None:
    store = BlockStore(str(tmp_path / "blocks"))
    read = store.read(store.write("e", rows(count), facts).name)
    for name in KINDS:
        if name in ("some", "both"):
            continue
        buffers = read[name].chunk(0).buffers()
        for buffer in buffers if name not in ("text", "raw") else []:
            assert buffer is None or buffer.address % ALIGNMENT_BYTES == 0, name
    assert read["f4"].chunk(0).to_numpy().flags.aligned
    assert read["_ts"].chunk(0).to_numpy().ctypes.data % ALIGNMENT_BYTES == 0


def test_nothing_is_copied_where_a_block_is_read() -> None:
    data = encode(rows(1000))
    read = decode(data, checksum(data))
    for name in ("_ts", "f4", "text"):
        address = read[name].chunk(0).buffers()[-1].address
        assert data.address <= address < data.address + data.size


def test_no_large_column_is_copied_where_a_block_is_made() -> None:
    table = pa.table({"a": pa.array(range(4096)), "b": pa.array(["x" * 9] * 4096)})
    made = encoded(table)
    addresses = {piece.address for piece in made.pieces if isinstance(piece, pa.Buffer)}
    assert {table["a"].chunk(0).buffers()[1].address, table["b"].chunk(0).buffers()[2].address} <= addresses
    whole = encode(table)
    assert (made.size, made.checksum) == (whole.size, checksum(whole))


def test_every_flipped_byte_is_found_before_anything_is_parsed() -> None:
    data = encode(rows(6, names=("_ts", "text", "flag")), {"stream": "e"})
    expected, whole = checksum(data), bytearray(data)
    for place in range(len(whole)):
        whole[place] ^= 0xFF
        with pytest.raises(BlockCorruptError, match="block east"):
            decode(bytes(whole), expected, "east")
        whole[place] ^= 0xFF
    assert decode(bytes(whole), expected).num_rows == 6


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_packed_block_is_found(bit: int) -> None:
    payload = bytearray(pack(rows(3, names=("_ts", "flag"))))
    for place in range(0, len(payload), 3):
        payload[place] ^= 1 << bit
        with pytest.raises(BlockCorruptError):
            unpack(bytes(payload))
        payload[place] ^= 1 << bit


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda payload: np.frombuffer(payload, np.uint8).tobytes()]
)
def test_packed_blocks_come_back(wrap: Any) -> None:
    for count in (0, 1, 100):
        table = rows(count)
        assert unpack(wrap(pack(table, {"a": "b"}))).equals(table)
    assert pack(rows(4)) == pack(rows(4))


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"x" * 15, b"x" * 16, b"x" * 17, pack(rows(2))[:-1], pack(rows(2)) + b"x", pack(rows(2))[:16]],
)
def test_what_was_never_packed(payload: bytes) -> None:
    with pytest.raises(BlockCorruptError):
        unpack(payload)


def foreign() -> list[bytes]:
    table = rows(3)
    sinks = [pa.BufferOutputStream(), pa.BufferOutputStream()]
    with pa.ipc.new_file(sinks[0], table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(sinks[1], table.schema) as writer:
        writer.write_table(table)
    return [b"", b"PAR1", b"ARROW1\0\0", b"not arrow at all" * 10, *(sink.getvalue().to_pybytes() for sink in sinks)]


@pytest.mark.parametrize("data", foreign())
def test_a_whole_file_of_someone_elses(data: bytes) -> None:
    with pytest.raises(BlockCorruptError, match="not written by this package"):
        decode(data, checksum(data), "east")


def test_the_form_does_not_change() -> None:
    # Blocks outlive the version that wrote them. If Arrow's own writer changes, this test is the first to say so.
    table = pa.table({"_ts": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"], "f": pa.array([0.5, None, 2.0])})
    data = encode(table, {"stream": "e"})
    assert data.to_pybytes()[:8] == b"ARROW1\0\0"
    read = pa.ipc.open_file(data).read_all()
    assert read.column_names == ["_ts", "f", "s"]
    assert read.schema.metadata[b"streamjoin.order"] == b"[0,2,1]"
    assert read.schema.metadata[b"stream"] == b"e"
    assert set(read.schema.metadata[b"streamjoin.pad"]) <= set(b" ")
