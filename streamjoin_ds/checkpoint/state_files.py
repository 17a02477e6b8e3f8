"""The rows of Spark's state store in its files: pairs of a key and a value in LZ4 blocks, as Java writes them.

::

    file    block, block, ..., empty block          block  "LZ4Block"  method  packed size  size  xxh32  bytes
    plain   (key size, key, value size, value) ..., -1                 sizes are 4 bytes, the largest first

Keys and values are Spark's rows: 8 bytes whose bits say which fields are null, 8 bytes for each field, then the fields
of variable size. A removed key has the value size -1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pyarrow as pa
import xxhash

__all__ = ["BLOCK_HEADER", "blob_of", "file_of", "is_lz4", "key_of", "label_of", "plain_of", "row_of", "state_pairs"]

_MAGIC, BLOCK_HEADER = b"LZ4Block", struct.Struct("<8sBiiI")
_SEED, _STORED, _LEVEL = 0x9747B28C, 0x10, 0x05
_BLOCK_BYTES = 1 << 15  # the block size that `_LEVEL` stands for: 2 ** (10 + level)
_SIZE, _KEY, _TWO = struct.Struct(">i"), struct.Struct("<qii"), struct.Struct("<qq")
_THREE = struct.Struct("<qqq")
_VERSION = 1  # first field of the state of a cell (`STATE_DDL`)


def is_lz4(data: bytes) -> bool:
    """Whether a file begins like one of LZ4 blocks; true also of a file that was cut off within its first bytes."""
    return _MAGIC.startswith(data[: len(_MAGIC)])


def plain_of(data: bytes) -> bytes | None:
    """Return the decompressed contents of a file's blocks; None where the file is cut off or a block is damaged."""
    at, codec = 0, pa.Codec("lz4_raw")
    found: list[bytes] = []
    while at + BLOCK_HEADER.size <= len(data):
        magic, token, packed, size, check = BLOCK_HEADER.unpack_from(data, at)
        at += BLOCK_HEADER.size
        if magic != _MAGIC or packed < 0 or size < 0 or at + packed > len(data):
            return None
        if not packed:
            return b"".join(found) if at == len(data) else None
        block = data[at : at + packed]
        try:
            plain = block if token & 0xF0 == _STORED else codec.decompress(block, size, asbytes=True)
        except pa.ArrowException:
            return None
        if _checksum(plain) != check:
            return None
        found.append(plain)
        at += packed
    return None


def file_of(pairs: Mapping[bytes, bytes]) -> bytes:
    """Return a snapshot's file with these keys and values."""
    plain = b"".join(
        part for key, value in pairs.items() for part in (_SIZE.pack(len(key)), key, _SIZE.pack(len(value)), value)
    )
    plain += _SIZE.pack(-1)
    found = []
    for begin in range(0, len(plain), _BLOCK_BYTES):
        block = plain[begin : begin + _BLOCK_BYTES]
        found += [BLOCK_HEADER.pack(_MAGIC, _STORED | _LEVEL, len(block), len(block), _checksum(block)), block]
    return b"".join([*found, BLOCK_HEADER.pack(_MAGIC, _STORED | _LEVEL, 0, 0, 0)])


def state_pairs(plain: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values of a snapshot, or of the changes of one batch; None for a removed key."""
    at = 0
    while True:
        (size,) = _SIZE.unpack_from(plain, at)
        at += _SIZE.size
        if size < 0:
            return
        key = plain[at : at + size]
        at += size
        (size,) = _SIZE.unpack_from(plain, at)
        at += _SIZE.size
        yield key, None if size < 0 else plain[at : at + size]
        at += max(size, 0)


def key_of(label: int) -> bytes:
    """Return the key of a cell's label."""
    return _KEY.pack(0, label, 0)


def label_of(key: bytes) -> int:
    """Return the label in a cell's key."""
    return int(_KEY.unpack(key)[1])


def row_of(blob: bytes) -> bytes:
    """Return a cell's state as a row of `STATE_DDL`, in the one field ``groupState``."""
    padded = blob + bytes(-len(blob) % 8)
    inside = _THREE.pack(0, _VERSION, _place(_THREE.size, len(blob))) + padded
    return _TWO.pack(0, _place(_TWO.size, len(inside))) + inside


def blob_of(row: bytes) -> bytes:
    """Return a cell's state from its row."""
    inside = _inside(row, 1)
    return _inside(inside, 2)


def _inside(row: bytes, field: int) -> bytes:
    (place,) = struct.unpack_from("<q", row, 8 * field)
    begin, size = place >> 32, place & 0xFFFFFFFF
    return row[begin : begin + size]


def _place(begin: int, size: int) -> int:
    return begin << 32 | size


def _checksum(block: bytes) -> int:
    return xxhash.xxh32_intdigest(block, _SEED) & 0x0FFFFFFF
