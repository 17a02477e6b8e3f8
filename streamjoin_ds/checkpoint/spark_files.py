"""Spark's own files of a checkpoint on a local disk: which of them are whole, and the rows of its state store.

::

    metadata           the query's id
    offsets/N          up to where batch N reads           commits/N          batch N is done
    state/0/P/N.delta  what batch N - 1 changed in partition P         N.snapshot   all of it, now and then
    .<name>.crc        Hadoop's checksums of any of them, 4 bytes for each 512

Spark renames a file once it is written to its end, and forces nothing to the device. So a power cut may leave a file
whole, empty, cut off, full of zeros, or gone. It may also leave the checksums of a file that is gone or different.

A file of the state holds pairs of a key and a value in LZ4 blocks, as Java writes them::

    file    block, block, ..., empty block          block  "LZ4Block"  method  packed size  size  xxh32  bytes
    plain   (key size, key, value size, value) ..., -1                 sizes are 4 bytes, the largest first

Keys and values are Spark's rows: 8 bytes whose bits say which fields are null, 8 bytes for each field, then the fields
of variable size. A removed key has the value size -1.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import xxhash

from streamjoin_ds.blocks.place import Place

__all__ = [
    "BLOCK_HEADER",
    "COMMIT_ENTRY",
    "PARTITIONS_KEY",
    "SparkFiles",
    "blob_of",
    "file_of",
    "is_lz4",
    "key_of",
    "label_of",
    "numbered",
    "plain_of",
    "row_of",
    "source_offset",
    "state_pairs",
]

# What Spark writes for a batch that is done: it knows no watermark of these queries, as a join keeps its own.
COMMIT_ENTRY = 'v1\n{"nextBatchWatermarkMs":0}'
PARTITIONS_KEY = "spark.sql.shuffle.partitions"  # the setting that fixes a query's number of state partitions
_MAGIC, BLOCK_HEADER = b"LZ4Block", struct.Struct("<8sBiiI")
_SEED, _STORED, _LEVEL = 0x9747B28C, 0x10, 0x05
_BLOCK_BYTES = 1 << 15  # the block size that `_LEVEL` stands for: 2 ** (10 + level)
_SIZE, _KEY, _TWO = struct.Struct(">i"), struct.Struct("<qii"), struct.Struct("<qq")
_THREE = struct.Struct("<qqq")
_VERSION = 1  # first field of the state of a cell (`STATE_DDL`)
_CRC_MAGIC, _CRC_HEADER = b"crc\x00", 8


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


def source_offset(text: str) -> Any:
    """Return the offset of the one source from an entry of the offset log."""
    return json.loads(text.splitlines()[2])


@dataclass
class SparkFiles:
    """Spark's files in a checkpoint.

    Attributes
    ----------
    checkpoint : Place
    partitions : int
        Number of state partitions.
    offsets : dict of int to str
        The whole entries of the offset log.
    torn_offsets, torn_commits : set of int
        Entries that are there and not whole.
    commits : set of int
        The whole entries of the commit log.
    query_id : str or None
        None where ``metadata`` is not there, or not whole.
    has_metadata : bool
        Whether ``metadata`` is there, whole or not.
    torn_checksums : list of Place
        Checksums that do not fit their file, though the file is whole.
    """

    checkpoint: Place
    partitions: int
    offsets: dict[int, str] = field(default_factory=dict)
    torn_offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    torn_commits: set[int] = field(default_factory=set)
    query_id: str | None = None
    has_metadata: bool = False
    torn_checksums: list[Place] = field(default_factory=list)
    _state: dict[Place, bool] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, checkpoint: Place, partitions: int) -> SparkFiles:
        """Return Spark's files in a checkpoint. Change nothing."""
        found = cls(checkpoint, partitions)
        for number, path in numbered(checkpoint / "offsets"):
            if found._is_whole(path, _is_offset):
                found.offsets[number] = path.read_text()
            else:
                found.torn_offsets.add(number)
        for number, path in numbered(checkpoint / "commits"):
            (found.commits if found._is_whole(path, _is_commit) else found.torn_commits).add(number)
        metadata = checkpoint / "metadata"
        found.has_metadata = metadata.exists()
        if found.has_metadata and found._is_whole(metadata, _is_metadata):
            found.query_id = str(json.loads(metadata.read_bytes())["id"])
        return found

    def has_state(self, version: int) -> bool:
        """Whether every partition can be loaded as of a version, by a snapshot and all changes since."""
        if version == 0:
            return True
        if self.provider and not self.provider.endswith("HDFSBackedStateStoreProvider"):
            return True  # RocksDB verifies its own files, and names the one that is damaged
        if not all(self._is_state(path) for path in self._schemas()):
            return False
        return all(self._reaches(partition, version) for partition in range(self.partitions))

    @property
    def provider(self) -> str:
        """The class that keeps the state, by the newest entry of the offset log; empty where there is none."""
        return self.setting("spark.sql.streaming.stateStore.providerClass")

    @property
    def is_readable(self) -> bool:
        """Whether `state` can read the state: Spark's own provider keeps it, compressed with LZ4."""
        own = not self.provider or self.provider.endswith("HDFSBackedStateStoreProvider")
        return own and self.setting("spark.sql.streaming.stateStore.compression.codec") in ("", "lz4")

    def setting(self, name: str) -> str:
        """Return a setting of the query by the newest entry of the offset log; empty where the entry lacks it."""
        if not self.offsets:
            return ""
        conf = json.loads(self.offsets[max(self.offsets)].splitlines()[1]).get("conf", {})
        return str(conf.get(name, ""))

    def state(self, version: int) -> dict[bytes, bytes]:
        """Return the keys and values of all partitions as of a version, for which `has_state` must be true."""
        found: dict[bytes, bytes] = {}
        for partition in range(self.partitions):
            files = []
            for number in range(version, 0, -1):
                snapshot = self._folder(partition) / f"{number}.snapshot"
                files.append(snapshot if snapshot.exists() else snapshot.with_suffix(".delta"))
                if files[-1] is snapshot:
                    break
            for path in reversed(files):
                plain = plain_of(path.read_bytes())
                assert plain is not None, "the version is whole"
                for key, value in state_pairs(plain):
                    if value is None:
                        found.pop(key, None)
                    else:
                        found[key] = value
        return found

    def blobs(self, version: int) -> dict[int, bytes]:
        """Return the states of the cells as of a version, by their labels."""
        return {label_of(key): blob_of(row) for key, row in self.state(version).items()}

    def torn_state(self, version: int) -> list[Place]:
        """Return the state's files that are not whole, among those after a version and those `has_state` looked at."""
        for partition in range(self.partitions):
            for suffix in ("delta", "snapshot"):
                for number, path in numbered(self._folder(partition), f".{suffix}"):
                    if number > version:
                        self._is_state(path)
        return sorted(path for path, whole in self._state.items() if not whole)

    def later_state(self, version: int) -> list[Place]:
        """Return the state's files after a version."""
        return [
            path
            for partition in range(self.partitions)
            for suffix in ("delta", "snapshot")
            for number, path in numbered(self._folder(partition), f".{suffix}")
            if number > version
        ]

    def _reaches(self, partition: int, version: int) -> bool:
        folder = self._folder(partition)
        while version > 0:
            snapshot = folder / f"{version}.snapshot"
            if snapshot.exists() and self._is_state(snapshot):
                return True
            delta = folder / f"{version}.delta"
            if not delta.exists() or not self._is_state(delta):
                return False
            version -= 1
        return True

    def _folder(self, partition: int) -> Place:
        return self.checkpoint / "state" / "0" / str(partition)

    def _schemas(self) -> Iterator[Place]:
        paths = [self.checkpoint / "state" / "0" / "_metadata" / "metadata"]
        paths += [self._folder(partition) / "_metadata" / "schema" for partition in range(self.partitions)]
        return (path for path in paths if path.exists())

    def _is_state(self, path: Place) -> bool:
        if path not in self._state:
            self._state[path] = self._is_whole(path, _is_state if path.suffix else bool)
        return self._state[path]

    def _is_whole(self, path: Place, is_right: Callable[[bytes], bool]) -> bool:
        """Whether a file is whole: its checksums fit, or `is_right` accepts its bytes.

        In the second case checksums that do not fit are noted as torn: Hadoop refuses a file that does not fit its
        checksums, and reads one that has none.
        """
        data = path.read_bytes()
        sums = path.with_name(f".{path.name}.crc")
        fits = _fits(data, sums)
        if fits and data:
            return True
        if not is_right(data):
            return False
        if fits is False:
            self.torn_checksums.append(sums)
        return True


def numbered(folder: Place, suffix: str = "") -> Iterator[tuple[int, Place]]:
    """Yield the files of a folder, if it is there, whose names are a number and this suffix, with their numbers."""
    if folder.is_dir():
        for path in folder.iterdir():
            stem = path.name.removesuffix(suffix) if suffix else path.name
            if stem.isdigit() and path.name.endswith(suffix):
                yield int(stem), path


def _fits(data: bytes, sums: Place) -> bool | None:
    """Whether a file fits its checksums; None where there are none."""
    try:
        text = sums.read_bytes()
    except FileNotFoundError:
        return None
    if text[: len(_CRC_MAGIC)] != _CRC_MAGIC or len(text) < _CRC_HEADER:
        return None if not text else False
    size = int.from_bytes(text[4:8], "big")
    if size < 1:
        return False
    found = b"".join(zlib.crc32(data[at : at + size]).to_bytes(4, "big") for at in range(0, len(data), size))
    return found == text[_CRC_HEADER:]


def _is_offset(data: bytes) -> bool:
    lines = _lines(data)
    return len(lines) > 2 and all(line == "-" or _is_object(line) for line in lines[1:])


def _is_commit(data: bytes) -> bool:
    lines = _lines(data)
    return len(lines) > 1 and _is_object(lines[1])


def _lines(data: bytes) -> list[str]:
    """Return the lines of an entry of one of Spark's logs, its version first; none where it is no entry."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        return []
    return lines if lines and lines[0].startswith("v") and lines[0][1:].isdigit() else []


def _is_metadata(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data)["id"], str)
    except (KeyError, TypeError, ValueError):
        return False


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _is_state(data: bytes) -> bool:
    """Whether a file of the state is whole: its LZ4 blocks, and the empty block that ends them, are all there.

    Other codecs have no such end. There the file only has to hold something other than zeros.
    """
    return plain_of(data) is not None if is_lz4(data) else bool(data.strip(b"\0"))
