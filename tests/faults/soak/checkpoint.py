"""What Spark keeps of a query on a local disk: offsets before a batch, states, and a commit after it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["Checkpoint", "RivalError"]


class RivalError(Exception):
    """Another driver has logged this batch: Spark's own answer to a second driver on one checkpoint."""


class Checkpoint:
    """The logs and the states of one query.

    Parameters
    ----------
    folder : Path
        Of the checkpoint; made where it is not there.
    retain : int
        Batches that a query can be taken back by.
    """

    def __init__(self, folder: Path, retain: int) -> None:
        self.folder, self.retain = folder, retain
        self._logs = {name: folder / name for name in ("offsets", "commits", "states")}
        for log in self._logs.values():
            log.mkdir(parents=True, exist_ok=True)

    def last(self) -> tuple[int, bool]:
        """Return the newest batch whose offsets are logged, or -1, and whether it is committed."""
        batches = self._numbers("offsets")
        newest = max(batches, default=-1)
        return newest, newest in self._numbers("commits")

    def offset(self, batch_id: int) -> dict[str, Any]:
        """Return the offsets at the end of a batch."""
        return json.loads((self._logs["offsets"] / str(batch_id)).read_text())  # type: ignore[no-any-return]

    def log_offset(self, batch_id: int, offset: dict[str, Any]) -> None:
        """Log the end of a batch, before it is run."""
        self._put("offsets", batch_id, json.dumps(offset).encode())

    def log_commit(self, batch_id: int) -> None:
        """Log that a batch is done, and forget what no longer can be gone back to."""
        self._put("commits", batch_id, b"{}")
        for name in self._logs:
            for number in self._numbers(name):
                if number < batch_id - self.retain - 1:
                    for path in self._logs[name].glob(f"{number}.*" if name == "states" else str(number)):
                        path.unlink(missing_ok=True)

    def state(self, batch_id: int, cell: int) -> bytes | None:
        """Return a cell's state after a batch; None before the first one."""
        if batch_id < 0:
            return None
        return (self._logs["states"] / f"{batch_id}.{cell}").read_bytes()

    def keep_state(self, batch_id: int, cell: int, state: bytes) -> None:
        """Keep a cell's state after a batch; a batch that is done again writes over it."""
        aside = self._logs["states"] / f"{batch_id}.{cell}.{os.getpid()}.tmp"
        aside.write_bytes(state)
        os.replace(aside, self._logs["states"] / f"{batch_id}.{cell}")

    def _numbers(self, name: str) -> set[int]:
        return {int(path.name.partition(".")[0]) for path in self._logs[name].iterdir() if path.name[0] != "."}

    def _put(self, name: str, batch_id: int, content: bytes) -> None:
        """Write an entry whole, and only where there is none."""
        aside = self._logs[name] / f".{batch_id}.{os.getpid()}"
        aside.write_bytes(content)
        try:
            os.link(aside, self._logs[name] / str(batch_id))
        except FileExistsError as error:
            msg = f"{name}/{batch_id} is there already"
            raise RivalError(msg) from error
        finally:
            aside.unlink()
