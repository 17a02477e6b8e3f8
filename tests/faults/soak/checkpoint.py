"""What Spark keeps of a query on a local disk, in its formats: offsets before a batch, states, a commit after it.

State partition n holds cell n. Version b + 1 is what batch b left, as a snapshot. Nothing is forced to the device here,
since Spark forces nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.model.stored import lz4_file, lz4_text, sums_of, sums_path

__all__ = ["Checkpoint", "RivalError"]


class RivalError(Exception):
    """Another driver has logged this batch: Spark's own answer to a second driver on one checkpoint."""


class Checkpoint:
    """The logs and the states of one query.

    Parameters
    ----------
    folder : Path
        The folder of the checkpoint; it is made if it is not there.
    retain : int
        How many batches a query can be taken back by.
    """

    def __init__(self, folder: Path, retain: int) -> None:
        self.folder, self.retain = folder, retain
        self._state = folder / "state" / "0"

    def begin(self, query_id: str) -> None:
        """Do what Spark does first when a query starts."""
        for name in ("offsets", "commits"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        path = self.folder / "metadata"
        if not path.exists():
            self._put(path, json.dumps({"id": query_id}).encode())

    def last(self) -> tuple[int, bool]:
        """Return the newest batch whose offsets are logged, or -1, and whether it is committed."""
        batches = self._numbers("offsets")
        newest = max(batches, default=-1)
        return newest, newest in self._numbers("commits")

    def offset(self, batch_id: int) -> dict[str, Any]:
        """Return the offsets at the end of a batch."""
        text = _read(self.folder / "offsets" / str(batch_id)).decode()
        return json.loads(text.splitlines()[2])  # type: ignore[no-any-return]

    def log_offset(self, batch_id: int, offset: dict[str, Any]) -> None:
        """Log the end of a batch, before it is run."""
        text = f'v1\n{{"conf":{{}}}}\n{json.dumps(offset)}'
        self._put_new(self.folder / "offsets" / str(batch_id), text.encode())

    def log_commit(self, batch_id: int) -> None:
        """Log that a batch is done, and remove what nobody can go back to any more."""
        self._put_new(self.folder / "commits" / str(batch_id), b'v1\n{"nextBatchWatermarkMs":0}')
        for name in ("offsets", "commits"):
            for number in self._numbers(name):
                if number < batch_id - self.retain - 1:
                    _remove(self.folder / name / str(number))
        for cell in self._cells():
            for path in cell.glob("[0-9]*.snapshot"):
                if int(path.stem) < batch_id - self.retain:
                    _remove(path)

    def state(self, batch_id: int, cell: int) -> bytes | None:
        """Return a cell's state after a batch; None before the first one."""
        if batch_id < 0:
            return None
        return lz4_text(_read(self._state / str(cell) / f"{batch_id + 1}.snapshot"))

    def states(self, batch_id: int) -> Iterator[tuple[int, bytes]]:
        """Yield each cell and its state after a batch."""
        for folder in sorted(self._cells()):
            yield int(folder.name), lz4_text(_read(folder / f"{batch_id + 1}.snapshot"))

    def keep_state(self, batch_id: int, cell: int, state: bytes) -> None:
        """Keep a cell's state after a batch; a batch that is done again writes over it."""
        folder = self._state / str(cell)
        folder.mkdir(parents=True, exist_ok=True)
        self._put(folder / f"{batch_id + 1}.snapshot", lz4_file(state))

    def _cells(self) -> list[Path]:
        return list(self._state.iterdir()) if self._state.is_dir() else []

    def _numbers(self, name: str) -> set[int]:
        folder = self.folder / name
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.is_dir() else set()

    def _put(self, path: Path, content: bytes) -> None:
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        aside.write_bytes(content)
        sums_path(aside).write_bytes(sums_of(content))
        os.replace(aside, path)
        os.replace(sums_path(aside), sums_path(path))

    def _put_new(self, path: Path, content: bytes) -> None:
        """Write an entry whole, and only if there is none."""
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        aside.write_bytes(content)
        sums_path(aside).write_bytes(sums_of(content))
        try:
            os.link(aside, path)
            os.replace(sums_path(aside), sums_path(path))
        except FileExistsError as error:
            msg = f"{path.parent.name}/{path.name} is there already"
            raise RivalError(msg) from error
        finally:
            for gone in (aside, sums_path(aside)):
                gone.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    """Return a file's bytes; as in Hadoop its checksums must fit, if there are any."""
    data, sums = path.read_bytes(), sums_path(path)
    if sums.exists() and len(text := sums.read_bytes()) >= 8 and text != sums_of(data):
        msg = f"ChecksumException: {path}"
        raise OSError(msg)
    return data


def _remove(path: Path) -> None:
    for gone in (path, sums_path(path)):
        gone.unlink(missing_ok=True)
