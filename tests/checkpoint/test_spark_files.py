"""Files of Spark's state store: what is written is read, and damage is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.checkpoint import spark_files
from streamjoin_ds.checkpoint.spark_files import blob_of, file_of, key_of, label_of, plain_of, row_of, state_pairs


@given(st.dictionaries(st.integers(0, 1 << 30), st.binary(max_size=200)), st.integers(0, 70_000))
def test_rows_come_back(blobs: dict[int, bytes], size: int) -> None:
    blobs[1 << 30] = bytes(size)  # more than one block of a file
    data = file_of({key_of(label): row_of(blob) for label, blob in blobs.items()})
    plain = plain_of(data)
    assert plain is not None
    assert {label_of(key): blob_of(row) for key, row in state_pairs(plain) if row is not None} == blobs


@given(st.integers(0, 1 << 30), st.binary(max_size=100))
def test_rows_have_sparks_form(label: int, blob: bytes) -> None:
    assert len(key_of(label)) == 16
    assert len(row_of(blob)) % 8 == 0


def test_a_removed_key_is_told() -> None:
    key = key_of(5)
    plain = len(key).to_bytes(4, "big") + key + (-1).to_bytes(4, "big", signed=True) + b"\xff" * 4
    assert [*state_pairs(plain)] == [(key, None)]


@pytest.mark.parametrize("size", [0, 1, 20, 60])
def test_a_file_that_is_cut_off_is_none(size: int) -> None:
    data = file_of({key_of(1): row_of(b"state")})
    assert plain_of(data) is not None
    assert plain_of(data[:size]) is None
    assert plain_of(data[:-1]) is None
    assert plain_of(data + b"x") is None
    damaged = bytearray(data)
    damaged[40] ^= 1
    assert plain_of(bytes(damaged)) is None


def test_blocks_that_java_has_packed_are_read() -> None:
    plain = b"state " * 1_000
    packed = pa.Codec("lz4_raw").compress(plain, asbytes=True)
    check = xxhash.xxh32_intdigest(plain, 0x9747B28C) & 0x0FFFFFFF
    header = spark_files.BLOCK_HEADER
    end = header.pack(b"LZ4Block", 0x25, 0, 0, 0)
    assert plain_of(header.pack(b"LZ4Block", 0x25, len(packed), len(plain), check) + packed + end) == plain
