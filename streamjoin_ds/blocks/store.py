"""A folder of blocks on a file system that every reader sees."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamjoin_ds.blocks.block import checksum, decode, encode
from streamjoin_ds.errors import BlockMissingError

__all__ = ["BlockRef", "BlockStore"]

_SUFFIX = ".arrow"


@dataclass(frozen=True, slots=True)
class BlockRef:
    """What is known of a block without opening it; `name` carries the checksum."""

    name: str
    rows: int
    size_bytes: int


class BlockStore:
    """Blocks under one folder, made when first written to; only this user may look in (mode 0700).

    Parameters
    ----------
    root : str
        A local path, or the path of a shared file system.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def write(self, stem: str, table: pa.Table, facts: Mapping[str, str] | None = None) -> BlockRef:
        """Write a block; the same stem, table and facts give the same file, however often and from wherever.

        Written aside and renamed: a reader sees all of it or nothing. Not synced to the device: the blocks of the
        exchange are written again on replay, and Spark does not sync a local checkpoint either.
        """
        data = encode(table, facts)
        name = f"{stem}-{checksum(data)}{_SUFFIX}"
        target = self.root / name
        if not (target.exists() and target.stat().st_size == data.size):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            aside = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex}")
            try:
                with aside.open("wb") as file:
                    file.write(data)
                aside.replace(target)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
        return BlockRef(name, table.num_rows, data.size)

    def read(self, name: str) -> pa.Table:
        """Map a block, verify its checksum, and give its table; nothing is copied.

        Raises
        ------
        BlockMissingError, BlockCorruptError
            The file is not there, or is not what its name says.
        """
        path = self.root / name
        try:
            with pa.memory_map(str(path)) as mapped:
                data = mapped.read_buffer()
        except FileNotFoundError:
            msg = f"block {name} is not there"
            raise BlockMissingError(msg, name=name, hint="restore the checkpoint's files; blocks lie under its folder") from None
        except (OSError, pa.ArrowInvalid):
            data = pa.py_buffer(b"")  # an empty file cannot be mapped: it fails its checksum below, by name
        expected = name.rsplit("-", 1)[-1].removesuffix(_SUFFIX)
        return decode(data, expected, name)

    def remove(self, names: Iterable[str]) -> int:
        """Remove blocks that nothing refers to any more; one that is gone already is no error. Returns how many went."""
        removed = 0
        for name in names:
            try:
                (self.root / name).unlink()
                removed += 1
            except FileNotFoundError:
                pass
        return removed

    def names(self, prefix: str = "") -> list[str]:
        """Names of the blocks whose name begins with `prefix`, sorted."""
        if not self.root.is_dir():
            return []
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob(f"*{_SUFFIX}"))
        return sorted(name for name in found if name.startswith(prefix) and "/." not in f"/{name}")
