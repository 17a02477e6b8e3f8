"""`Checkpoint` in files, as Spark leaves them: written aside, renamed, never forced, each with Hadoop's checksums."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from streamjoin_ds.checkpoint.spark_files import blob_of, file_of, key_of, label_of, plain_of, row_of, state_pairs
from streamjoin_ds.plan import Plan
from tests.faults.model import disk
from tests.faults.model.checkpoint import Checkpoint, ConcurrentWriteError, NoRoomError

__all__ = ["SharedCheckpoint", "StoredCheckpoint", "lz4_file", "lz4_text", "sums_of", "sums_path"]

_LZ4 = struct.Struct("<8sBiiI")


@dataclass
class StoredCheckpoint(Checkpoint):
    """A checkpoint whose files a power cut may tear; `reload` reads what a new driver reads.

    Spark's maintenance writes a snapshot of every version here, which is the most often that it could.
    """

    folder: Path = field(default_factory=Path)
    query_id: str = ""

    def begin(self) -> None:
        """Do what Spark does first when a query starts."""
        path = self.folder / "metadata"
        if not path.exists():
            _write(path, json.dumps({"id": self.query_id}).encode())

    def log_offsets(self, batch: int, text: str) -> None:
        super().log_offsets(batch, text)
        self._log(self.folder / "offsets" / str(batch), f'v1\n{{"conf":{{}}}}\n{text}'.encode())

    def log_commit(self, batch: int) -> None:
        super().log_commit(batch)
        self._log(self.folder / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":0}')

    def keep_state(self, partition: int, version: int, state: dict[int, bytes], kind: object = None) -> None:
        super().keep_state(partition, version, state, kind)
        data = self._state_file(state)
        folder = self.folder / "state" / "0" / str(partition)
        _write(folder / f"{version}.delta", data)
        _write(folder / f"{version}.snapshot", data)

    def purge(self, batch: int, retain: int) -> None:
        super().purge(batch, retain)
        self._remove_entries()
        newest = max((version for _, version in self.states), default=0)
        for path in sorted((self.folder / "state").glob("0/*/*.*")):
            if not path.name.startswith(".") and int(path.stem) < newest - retain:
                _remove(path)

    def _remove_entries(self) -> None:
        for name, kept in (("offsets", set(self.offsets)), ("commits", self.commits)):
            for path in _entries(self.folder / name):
                if int(path.name) not in kept:
                    _remove(path)

    def reload(self) -> None:
        """Read all files, as Spark does when a query starts; an error is one with which that query would end."""
        self.offsets = {
            int(path.name): _read(path).decode().splitlines()[2] for path in _entries(self.folder / "offsets")
        }
        self.commits = {
            int(path.name) for path in _entries(self.folder / "commits") if _read(path).decode().splitlines()[1]
        }
        last = max(self.offsets, default=-1)
        newest = last + 1 if last in self.commits else last
        self.states = {}
        for path in sorted((self.folder / "state").glob("0/*/*.*")):
            # A delta of a batch that is done again is written over before anybody reads it.
            if path.name.startswith(".") or (int(path.stem) > newest and path.suffix == ".delta"):
                continue
            if path.suffix == ".delta" and path.with_suffix(".snapshot").exists():
                continue  # loading stops at a snapshot
            try:
                state = self._state_of(_read(path))
            except AssertionError:
                if int(path.stem) == newest:
                    raise
                continue  # two attempts wrote it in turns; nobody loads it, and whoever needs it finds it missing
            self.states[int(path.parent.name), int(path.stem)] = state

    def _log(self, path: Path, data: bytes) -> None:
        _write(path, data)

    def _state_file(self, state: dict[int, bytes]) -> bytes:
        texts = {str(cell): base64.b64encode(blob).decode() for cell, blob in state.items()}
        return lz4_file(json.dumps(texts).encode())

    def _state_of(self, data: bytes) -> dict[int, bytes]:
        texts = json.loads(lz4_text(data))
        return {int(cell): base64.b64decode(text) for cell, text in texts.items()}


@dataclass
class SharedCheckpoint(StoredCheckpoint):
    """A checkpoint that Spark and queries without Spark drive in turns: its states are Spark's rows."""

    plan: Plan | None = None

    def _log(self, path: Path, data: bytes) -> None:
        # What another driver has in its memory does not tell whether the entry is there: it is not of this process.
        _write(path, data, is_new=True)

    def _state_file(self, state: dict[int, bytes]) -> bytes:
        assert self.plan is not None
        labels = self.plan.labels_of(max(state, default=0) + 1)
        return file_of({key_of(labels[cell]): row_of(blob) for cell, blob in state.items()})

    def _state_of(self, data: bytes) -> dict[int, bytes]:
        assert self.plan is not None
        plain = plain_of(data)
        assert plain is not None, "the file is whole"
        pairs = {label_of(key): row for key, row in state_pairs(plain)}
        return {self.plan.cell_of(label): blob_of(row) for label, row in pairs.items() if row is not None}

    def taken_back(self, batches: int) -> int:
        """See `Checkpoint.taken_back`; the operator removes the files too."""
        taken = super().taken_back(batches)
        self._remove_entries()
        return taken


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def sums_path(path: Path) -> Path:
    """Return the path of a file's checksums."""
    return path.with_name(f".{path.name}.crc")


def sums_of(data: bytes) -> bytes:
    """Return Hadoop's checksums of a file's bytes."""
    checksums = b"".join(zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512))
    return b"crc\x00" + (512).to_bytes(4, "big") + checksums


def _write(path: Path, data: bytes, *, is_new: bool = False) -> None:
    aside, number = path.with_name(f".{path.name}.tmp"), 0
    try:
        disk.at("spark write", writes=True)
        # As Hadoop does where it creates a file: a driver without Spark may have removed the folder meanwhile.
        path.parent.mkdir(parents=True, exist_ok=True)
        # A file that is there is of an attempt that has stopped or died, so each attempt writes under its own name.
        while aside.exists() or sums_path(aside).exists():
            aside, number = path.with_name(f".{path.name}.{number}.tmp"), number + 1
        aside.write_bytes(data)
        sums_path(aside).write_bytes(sums_of(data))
    except OSError as error:
        raise NoRoomError(path.name) from error
    try:
        if is_new:
            os.link(aside, path)
            disk.unlink(aside)
        else:
            os.replace(aside, path)
        os.replace(sums_path(aside), sums_path(path))
    except FileExistsError as error:
        disk.unlink(aside)
        raise ConcurrentWriteError(path.name) from error
    except FileNotFoundError as error:  # a driver without Spark is far ahead, and has purged what had no name yet
        raise ConcurrentWriteError(path.name) from error


def _remove(path: Path) -> None:
    disk.unlink(path)
    if sums_path(path).exists():
        disk.unlink(sums_path(path))


def _read(path: Path) -> bytes:
    """Return a file's bytes; as in Hadoop its checksums must fit, if there are any."""
    data, sums = path.read_bytes(), sums_path(path)
    if sums.exists() and len(text := sums.read_bytes()) >= 8:
        found = b"".join(zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512))
        assert text[8:] == found, f"ChecksumException: {path.name}"
    return data


def lz4_file(data: bytes) -> bytes:
    """Return a file of the state as Spark writes it: LZ4's blocks, and the empty block that closes them."""
    check = xxhash.xxh32_intdigest(data, 0x9747B28C) & 0x0FFFFFFF
    block = _LZ4.pack(b"LZ4Block", 0x15, len(data), len(data), check) + data
    return block + _LZ4.pack(b"LZ4Block", 0x15, 0, 0, 0)


def lz4_text(data: bytes) -> bytes:
    """Return the bytes that `lz4_file` was given."""
    assert len(data) > 2 * _LZ4.size, "premature EOF"
    return data[_LZ4.size : -_LZ4.size]
