"""Deletion vectors: what a writer of Delta's format wrote is read back, row for row, and damage is named."""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from streamjoin_ds.delta.deletion_vectors import deleted_rows
from streamjoin_ds.errors import TableError
from tests.support.examples import examples

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    """Return bytes, a multiple of four of them, in base 85 of Z85."""
    text = ""
    for place in range(0, len(data), 4):
        (number,) = struct.unpack(">I", data[place : place + 4])
        text += "".join(Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def bitmap(values: list[int], with_runs: bool) -> bytes:
    """Return 32-bit values as a Roaring bitmap: lists, bitmaps, and where asked for runs."""
    by_key: dict[int, list[int]] = {}
    for value in sorted(values):
        by_key.setdefault(value >> 16, []).append(value & 0xFFFF)
    heads = b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in by_key.items())
    containers = []
    for low in by_key.values():
        if with_runs:
            cuts = np.split(np.array(low), np.flatnonzero(np.diff(low) > 1) + 1)
            runs = b"".join(struct.pack("<HH", int(cut[0]), len(cut) - 1) for cut in cuts)
            containers.append(struct.pack("<H", len(cuts)) + runs)
        elif len(low) <= 4096:
            containers.append(struct.pack(f"<{len(low)}H", *low))
        else:
            bits = np.zeros(1 << 16, np.uint8)
            bits[low] = 1
            containers.append(np.packbits(bits, bitorder="little").tobytes())
    count = len(by_key)
    offsets = b"\0" * 4 * count if not with_runs or count >= 4 else b""
    if with_runs:
        head = struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * ((count + 7) // 8)
    else:
        head = struct.pack("<II", 12346, count)
    return head + heads + offsets + b"".join(containers)


def encoded(rows: list[int], with_runs: bool = False) -> bytes:
    by_key: dict[int, list[int]] = {}
    for row in rows:
        by_key.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    parts = [struct.pack("<I", key) + bitmap(low, with_runs) for key, low in sorted(by_key.items())]
    return struct.pack("<iq", 1681511377, len(parts)) + b"".join(parts)


def stored(folder: Path, data: bytes, cardinality: int, **more: Any) -> dict[str, Any]:
    """Write a vector's file behind another one's bytes, and return what the log says of it."""
    name = uuid.uuid4()
    head = b"\1" + b"other"
    (folder / "ab").mkdir(exist_ok=True)
    path = folder / "ab" / f"deletion_vector_{name}.bin"
    path.write_bytes(head + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    place = "ab" + z85(name.bytes)
    return {"storageType": "u", "pathOrInlineDv": place, "offset": len(head), "cardinality": cardinality, **more}


def read(folder: Path, vector: dict[str, Any]) -> list[int]:
    return deleted_rows(fs.LocalFileSystem(), str(folder), vector).tolist()  # type: ignore[no-any-return]


ROWS = st.one_of(
    st.lists(st.integers(0, 200), min_size=1, max_size=50, unique=True),
    st.lists(st.integers(0, 1 << 34), min_size=1, max_size=20, unique=True),
    st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 100_000), st.integers(1, 9_000)),
)


@examples(100)
@given(ROWS, st.booleans())
def test_every_row_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[int], with_runs: bool) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    data = encoded(rows, with_runs)
    assert read(folder, stored(folder, data, len(rows))) == sorted(rows)
    padded = data + b"\0" * (-len(data) % 4)
    inline = {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": len(data), "cardinality": len(rows)}
    assert read(folder, inline) == sorted(rows)


def test_pythons_base_85_is_another_alphabet() -> None:
    assert base64.b85encode(b"\x86\x4f\xd2\x6f") != b"Hello"
    assert z85(b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b") == "HelloWorld"  # the example of Z85's specification


@pytest.mark.parametrize("damage", ["flipped", "cut", "cardinality"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    vector = stored(tmp_path, encoded([1, 5, 9]), 3)
    (path,) = tmp_path.glob("ab/*.bin")
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-8] ^= 1
    elif damage == "cut":
        del data[-6:]
    else:
        vector["cardinality"] = 4
    path.write_bytes(data)
    with pytest.raises(TableError, match="deletion vector"):
        read(tmp_path, vector)


def test_a_vector_elsewhere_is_refused(tmp_path: Path) -> None:
    vector = {"storageType": "p", "pathOrInlineDv": "s3://bucket/dv.bin", "offset": 1, "cardinality": 1}
    with pytest.raises(TableError, match="outside"):
        read(tmp_path, vector)
