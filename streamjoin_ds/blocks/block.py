"""One block: a table as Arrow IPC bytes, and back."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import xxhash

from streamjoin_ds.errors import BlockCorruptError

__all__ = ["checksum", "decode", "encode"]


def checksum(data: pa.Buffer | bytes | memoryview) -> str:
    """XXH3-128 of the bytes, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


def encode(table: pa.Table, facts: Mapping[str, str] | None = None) -> pa.Buffer:
    """The bytes of an Arrow IPC file with one record batch, columns 64-byte aligned; the same table, the same bytes.

    Parameters
    ----------
    table : pyarrow.Table
        Any number of rows; chunks are joined.
    facts : mapping of str to str, optional
        What the header says of the block; kept in the schema's metadata in the order of the keys.
    """
    metadata = {key: facts[key] for key in sorted(facts)} if facts else None
    batch = table.combine_chunks().replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for piece in batch.to_batches():
            writer.write_batch(piece)
    return sink.getvalue()


def decode(data: pa.Buffer | bytes, expected: str, name: str = "inline") -> pa.Table:
    """The table in a block's bytes, without a copy; its columns keep the bytes alive.

    Raises
    ------
    BlockCorruptError
        The bytes do not have the checksum, so nothing of them is parsed.
    """
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    if checksum(buffer) != expected:
        msg = f"block {name} does not hold the bytes it was written with"
        raise BlockCorruptError(msg, name=name, hint="restore the checkpoint's files, or start from a spare copy of it")
    return pa.ipc.open_file(buffer).read_all()
