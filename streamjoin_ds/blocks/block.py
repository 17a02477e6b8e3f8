"""One block: a table as Arrow IPC bytes, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import xxhash

from streamjoin_ds.errors import BlockCorruptError

__all__ = ["ALIGNMENT_BYTES", "checksum", "decode", "encode", "pack", "unpack"]

# Of each fixed-width column in the file, and so in memory where it is mapped: a cache line, an AVX-512 register.
ALIGNMENT_BYTES = 64

_DIGEST_BYTES = 16
_MAGIC_BYTES = 8  # "ARROW1" and two zeros, before a file's first message
# Our own keys of the schema's metadata; they do not come back with the facts.
_ORDER, _PAD = b"streamjoin.order", b"streamjoin.pad"


def checksum(data: pa.Buffer | bytes | memoryview) -> str:
    """XXH3-128 of the bytes, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


def encode(table: pa.Table, facts: Mapping[str, str] | None = None) -> pa.Buffer:
    """The bytes of an Arrow IPC file with one record batch; the same arrays, the same bytes.

    Arrow aligns to 8 bytes only. Here every buffer of a fixed-width column begins on 64: such columns come first in the
    file (`decode` puts them back), their buffers are filled up with zeros, and the header is, with spaces.

    Parameters
    ----------
    table : pyarrow.Table
        Any number of rows; chunks are joined. Its own metadata is left out.
    facts : mapping of str to str, optional
        What the header says of the block; kept in the schema's metadata in the order of the keys.
    """
    table = table.combine_chunks()
    places = range(table.num_columns)
    order = sorted(places, key=lambda place: not _is_fixed(table.schema.field(place).type))
    fields = [table.schema.field(place).remove_metadata() for place in order]
    metadata = {key.encode(): facts[key].encode() for key in sorted(facts)} if facts else {}
    if order != list(places):
        metadata[_ORDER] = json.dumps(order, separators=(",", ":")).encode()
    unpadded = pa.schema(fields, {**metadata, _PAD: b""})
    start = _MAGIC_BYTES + unpadded.serialize().size + _header_bytes(unpadded.remove_metadata())
    schema = pa.schema(fields, {**metadata, _PAD: b" " * (-start % ALIGNMENT_BYTES)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in table.to_batches():  # one, or none of a table without rows
            columns = [batch.column(place) for place in order]
            filled = [_filled(column) if _is_fixed(column.type) else column for column in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(filled, schema=schema))
    return sink.getvalue()


def decode(data: pa.Buffer | bytes, expected: str, name: str = "inline") -> pa.Table:
    """The table in a block's bytes, without a copy; its columns keep the bytes alive.

    Raises
    ------
    BlockCorruptError
        The bytes do not have the checksum, so nothing of them is parsed; or they are no block.
    """
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    if checksum(buffer) != expected:
        msg = f"block {name} does not hold the bytes it was written with"
        raise BlockCorruptError(msg, name=name, hint="restore the checkpoint's files, or start from a spare copy of it")
    try:
        table = pa.ipc.open_file(buffer).read_all()
        metadata = dict(table.schema.metadata or {})
        metadata.pop(_PAD)
        stored = json.loads(metadata.pop(_ORDER, b"null")) or range(table.num_columns)
        table = table.select([int(place) for place in np.argsort(stored)])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        msg = f"block {name} was not written by this package"
        raise BlockCorruptError(msg, name=name, hint="leave the checkpoint's folder to its query") from error
    return table.replace_schema_metadata(metadata or None)


def pack(table: pa.Table, facts: Mapping[str, str] | None = None) -> bytes:
    """A block that travels inline, in one binary value: 16 bytes of checksum, then the block's bytes."""
    data = encode(table, facts)
    return b"".join((bytes.fromhex(checksum(data)), memoryview(data)))


def unpack(payload: bytes) -> pa.Table:
    """The table that `pack` packed, verified first; errors as `decode`."""
    view = memoryview(payload)
    return decode(pa.py_buffer(view[_DIGEST_BYTES:]), view[:_DIGEST_BYTES].hex())


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _filled(array: pa.Array) -> pa.Array:
    """A fixed-width array whose buffers begin with its first value and end on 64 bytes, in zeros."""
    validity, values = array.buffers()
    parts = [(validity if array.null_count else None, 1), (values, array.type.bit_width)]
    buffers = [None if part is None else _filled_buffer(part, width, array.offset, len(array)) for part, width in parts]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count)


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
    """Bytes of a batch before its first buffer: how many buffers there are sets them, not what they hold."""
    row = [pa.nulls(1, field.type) for field in schema]
    data = pa.RecordBatch.from_arrays(row, schema=schema).serialize()
    return int(pa.ipc.read_message(data).body.address - data.address)
