"""One block: a table as Arrow IPC bytes, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.errors import BlockCorruptError

__all__ = ["ALIGNMENT_BYTES", "BlockBytes", "checksum", "decode", "encode", "encoded", "pack", "unpack"]

# Alignment of a fixed-width column in the file, and so in memory where the file is mapped: the size of a cache line and
# of an AVX-512 register.
ALIGNMENT_BYTES = 64

_DIGEST_BYTES = 16
_PIECE_BYTES = 1 << 12  # buffers of so many bytes and more are pieces of their own, the others are copied together
_MAGIC_BYTES = 8  # "ARROW1" and two zeros, before a file's first message
# Keys in the schema's metadata that `encode` adds and `decode` takes away: the columns' order and the header's padding.
_ORDER, _PAD = b"streamjoin.order", b"streamjoin.pad"


def checksum(data: pa.Buffer | bytes | memoryview) -> str:
    """Return the XXH3-128 of the bytes, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


class BlockBytes:
    """The bytes of a block in pieces. The large buffers of its columns are pieces themselves, and are not copied.

    Attributes
    ----------
    pieces : list of pyarrow.Buffer or bytearray
    size : int
        Bytes of all pieces.
    """

    closed = False  # Arrow asks this of what it writes to

    def __init__(self) -> None:
        self.pieces: list[pa.Buffer | bytearray] = [bytearray()]
        self.size = 0
        self._digest = xxhash.xxh3_128()

    def write(self, data: pa.Buffer | bytes) -> int:
        """Take the next bytes; return how many they are."""
        count = len(data)
        self.size += count
        self._digest.update(data)
        if count >= _PIECE_BYTES:
            self.pieces += [data, bytearray()]
        else:
            self.pieces[-1] += memoryview(data)
        return count

    def flush(self) -> None:
        """Do nothing: all bytes are here."""

    def tell(self) -> int:
        """Return where the next bytes begin."""
        return self.size

    @property
    def checksum(self) -> str:
        """The checksum of the bytes (`checksum`)."""
        return self._digest.hexdigest()


def encode(table: pa.Table, facts: Mapping[str, str] | None = None) -> pa.Buffer:
    """Return the bytes of `encoded` as one buffer."""
    return pa.py_buffer(b"".join(encoded(table, facts).pieces))


def encoded(table: pa.Table, facts: Mapping[str, str] | None = None) -> BlockBytes:
    """Return the bytes of an Arrow IPC file with one record batch. The same arrays give the same bytes.

    Arrow aligns to 8 bytes only. Here every buffer of a fixed-width column begins at a multiple of 64 bytes. For that
    such columns come first in the file (`decode` restores the order), zeros fill up their buffers, and spaces fill up
    the header.

    Parameters
    ----------
    table : pyarrow.Table
        Any number of rows. Its chunks are joined. Its own metadata is left out.
    facts : mapping of str to str, optional
        What the header says about the block. The schema's metadata holds the facts in the order of their keys.
    """
    places = range(table.num_columns)
    order = sorted(places, key=lambda place: not _is_fixed(table.schema.field(place).type))
    fields = [table.schema.field(place).remove_metadata() for place in order]
    metadata = {key.encode(): facts[key].encode() for key in sorted(facts)} if facts else {}
    if order != list(places):
        metadata[_ORDER] = json.dumps(order, separators=(",", ":")).encode()
    unpadded = pa.schema(fields, {**metadata, _PAD: b""})
    start = _MAGIC_BYTES + unpadded.serialize().size + _header_bytes(unpadded.remove_metadata())
    schema = pa.schema(fields, {**metadata, _PAD: b" " * (-start % ALIGNMENT_BYTES)})
    written = BlockBytes()
    with pa.ipc.new_file(pa.PythonFile(written, mode="w"), schema) as writer:
        if table.num_rows:
            filled = [_filled(table.column(place)) for place in order]
            writer.write_batch(pa.RecordBatch.from_arrays(filled, schema=schema))
    return written


def decode(data: pa.Buffer | bytes, expected: str, name: str = "inline") -> pa.Table:
    """Return the table in a block's bytes, without a copy. Its columns keep the bytes alive.

    Parameters
    ----------
    data : pyarrow.Buffer or bytes
    expected : str
        The checksum that the bytes must have.
    name : str
        The block's name, for errors.

    Raises
    ------
    BlockCorruptError
        The bytes do not have the checksum, and then are not parsed; or they are no block.
    """
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    if checksum(buffer) != expected:
        msg = f"block {name} does not hold the bytes it was written with"
        raise BlockCorruptError(msg, name=name, hint="restore the checkpoint's files from a copy")
    try:
        table = pa.ipc.open_file(buffer).read_all()
        metadata = dict(table.schema.metadata or {})
        metadata.pop(_PAD)
        stored = json.loads(metadata.pop(_ORDER, b"null")) or range(table.num_columns)
        table = table.select([int(place) for place in np.argsort(stored)])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        msg = f"block {name} was not written by this package"
        raise BlockCorruptError(
            msg, name=name, hint="restore the checkpoint's files from a copy, and let nothing else write there"
        ) from error
    return table.replace_schema_metadata(metadata or None)


def pack(table: pa.Table, facts: Mapping[str, str] | None = None) -> bytes:
    """Return a block that travels inline, in one binary value: 16 bytes of checksum, then the block's bytes."""
    data = encoded(table, facts)
    return b"".join((bytes.fromhex(data.checksum), *data.pieces))


def unpack(payload: bytes) -> pa.Table:
    """Return the table that `pack` packed, after its checksum is verified. Errors are those of `decode`."""
    view = memoryview(payload)
    return decode(pa.py_buffer(view[_DIGEST_BYTES:]), view[:_DIGEST_BYTES].hex())


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _filled(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a fixed-width one with buffers that begin with its first value.

    They end with zeros up to 64 bytes.
    """
    kind = column.type
    if not _is_fixed(kind):
        return _joined(column)
    if not column.null_count and kind.bit_width % 8 == 0:
        return pa.Array.from_buffers(kind, len(column), [None, _filled_items(column.chunks, kind.bit_width // 8)], 0)
    array = _joined(column)
    validity, values = array.buffers()
    parts = [(validity if array.null_count else None, 1), (values, kind.bit_width)]
    buffers = [None if part is None else _filled_buffer(part, width, array.offset, len(array)) for part, width in parts]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _filled_items(chunks: Sequence[pa.Array], width: int) -> pa.Buffer:
    """Return the items of chunks without nulls one after the other, copied at most once."""
    items = [np.frombuffer(c.buffers()[1], np.uint8, len(c) * width, c.offset * width) for c in chunks if len(c)]
    used = sum(map(len, items))
    if len(items) == 1 and not used % ALIGNMENT_BYTES:
        return pa.py_buffer(items[0])
    filled = np.empty(-(-used // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, np.uint8)
    filled[used:] = 0
    np.concatenate(items, out=filled[:used])
    return pa.py_buffer(filled)


def _filled_buffer(buffer: pa.Buffer, bits: int, offset: int, length: int) -> pa.Buffer:
    first_bit, used_bits = offset * bits, length * bits
    data = np.frombuffer(buffer, np.uint8)
    if bits % 8:
        flags = np.unpackbits(data, bitorder="little")[first_bit : first_bit + used_bits] if first_bit else None
        data = data if flags is None else np.packbits(flags, bitorder="little")
        first_bit = 0
    used = -(-used_bits // 8)
    data = data[first_bit // 8 : first_bit // 8 + used]
    if not used % ALIGNMENT_BYTES and not used_bits % 8:
        return pa.py_buffer(data)
    filled = np.zeros(-(-used // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, np.uint8)
    filled[:used] = data
    if used_bits % 8:
        filled[used - 1] &= (1 << used_bits % 8) - 1
    return pa.py_buffer(filled)


@lru_cache(maxsize=256)
def _header_bytes(schema: pa.Schema) -> int:
    """Return the number of bytes of a batch before its first buffer. It depends on the schema, not on the values."""
    row = [pa.nulls(1, field.type) for field in schema]
    data = pa.RecordBatch.from_arrays(row, schema=schema).serialize()
    return int(pa.ipc.read_message(data).body.address - data.address)
