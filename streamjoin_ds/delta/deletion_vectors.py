"""Deletion vectors: which rows of a data file are deleted although the file still holds them.

The bytes are those of Delta's protocol ("Deletion Vector Format"): one 32-bit Roaring bitmap for each 2**32 rows.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyarrow import fs

from streamjoin_ds.delta.table_state import file_path
from streamjoin_ds.errors import TableError
from streamjoin_ds.spec.columns import Int64

__all__ = ["deleted_rows"]


_MAGIC = 1681511377
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346  # cookies of a Roaring bitmap
_LEAST_WITH_OFFSETS = 4  # containers from which a bitmap with runs has a list of offsets
_MOST_LISTED = 4096  # values of a container that is a list; one with more is a bitmap
_BITMAP_BYTES = 8192
_UUID_TEXT = 20  # characters of a UUID in base 85

# Python's alphabet of base 85 in the order of Z85's.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)


def deleted_rows(filesystem: fs.FileSystem, folder: str, vector: Mapping[str, Any]) -> Int64:
    """Return the numbers of the rows that a file's deletion vector deletes, ascending.

    Parameters
    ----------
    vector : mapping
        The ``deletionVector`` of an ``add`` action.

    Raises
    ------
    TableError
        The vector is damaged, or lies outside of the table's folder.
    FileNotFoundError
        Its file is gone.
    """
    place = str(vector["pathOrInlineDv"])
    try:
        if vector["storageType"] == "i":
            data = base64.b85decode(place.translate(_TO_B85))[: int(vector["sizeInBytes"])]
        else:
            data = _stored(filesystem, _path(folder, str(vector["storageType"]), place), int(vector.get("offset") or 0))
        rows = _rows(data)
    except (ValueError, IndexError, struct.error) as error:
        raise _damaged(folder) from error
    if len(rows) != int(vector["cardinality"]):
        raise _damaged(folder)
    return rows


def _path(folder: str, kind: str, place: str) -> str:
    if kind != "u":
        return file_path(folder, place)
    name = uuid.UUID(bytes=base64.b85decode(place[-_UUID_TEXT:].translate(_TO_B85)))
    prefix = place[:-_UUID_TEXT]
    return f"{folder}/{prefix + '/' if prefix else ''}deletion_vector_{name}.bin"


def _stored(filesystem: fs.FileSystem, path: str, offset: int) -> bytes:
    with filesystem.open_input_file(path) as file:
        file.seek(offset)
        (size,) = struct.unpack(">i", file.read(4))
        data: bytes = file.read(size)
        (checksum,) = struct.unpack(">I", file.read(4))
    if zlib.crc32(data) != checksum:
        msg = "checksum"
        raise ValueError(msg)
    return data


def _rows(data: bytes) -> Int64:
    magic, count = struct.unpack_from("<iq", data)
    if magic != _MAGIC:
        msg = "magic number"
        raise ValueError(msg)
    at, found = 12, [np.empty(0, np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        rows, at = _bitmap(data, at + 4)
        found.append(rows + (high << 32))
    return np.concatenate(found)


def _bitmap(data: bytes, at: int) -> tuple[Int64, int]:
    """Return the values of the Roaring bitmap that begins at a byte, and the byte after it."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = np.zeros(1 << 16, np.bool_)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        flags = np.unpackbits(np.frombuffer(data, np.uint8, size, at), bitorder="little")
        runs[:count] = flags[:count].astype(np.bool_)
        at += size
        has_offsets = count >= _LEAST_WITH_OFFSETS
    elif cookie == _WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
        has_offsets = True
    else:
        msg = "cookie"
        raise ValueError(msg)
    heads = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).reshape(count, 2)
    at += 4 * count + (4 * count if has_offsets else 0)
    found = [np.empty(0, np.int64)]
    for number, (key, less) in enumerate(heads.tolist()):
        if runs[number]:
            (pairs,) = struct.unpack_from("<H", data, at)
            ranges = np.frombuffer(data, "<u2", 2 * pairs, at + 2).astype(np.int64).reshape(pairs, 2)
            values = np.concatenate([np.arange(first, first + more + 1) for first, more in ranges.tolist()])
            at += 2 + 4 * pairs
        elif less + 1 <= _MOST_LISTED:
            values = np.frombuffer(data, "<u2", less + 1, at).astype(np.int64)
            at += 2 * (less + 1)
        else:
            bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITMAP_BYTES, at), bitorder="little")
            values = np.flatnonzero(bits)
            at += _BITMAP_BYTES
        found.append(values + (key << 16))
    return np.concatenate(found), at


def _damaged(folder: str) -> TableError:
    msg = f"a deletion vector of the table {folder} is damaged"
    return TableError(msg, name=folder, hint="restore it from a copy of the table")
