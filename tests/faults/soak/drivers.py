"""The driver processes of a soak, one after the other, and what each one says about its batches."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.faults.soak.settings import drawn
from tests.support.kinds import Kind

__all__ = ["Drivers", "killed"]

_KEPT_LOGS = 20


class Drivers:
    """Starts and ends drivers.

    Parameters
    ----------
    root : Path
        The root of `life.Life`.
    dice : random.Random
        The dice that draw settings.
    kind : Kind

    Attributes
    ----------
    life : subprocess.Popen or None
        The driver that drives now.
    """

    def __init__(self, root: Path, dice: random.Random, kind: Kind) -> None:
        self.root, self._dice, self._kind = root, dice, kind
        self.life: subprocess.Popen[bytes] | None = None
        self.lines = Lines(root / "batches.jsonl", kind.names)
        self._count = 0
        self._log_path = root / "life-00.log"

    def start(self, **wanted: Any) -> None:
        """Start a driver under settings of its own."""
        settings = drawn(self._dice, self._kind, **wanted)
        self._count += 1
        self._log_path = self.root / f"life-{self._count % _KEPT_LOGS:02d}.log"
        with self._log_path.open("wb") as log:
            log.write(json.dumps(settings).encode() + b"\n")
            log.flush()
            python = [sys.executable, "-X", "faulthandler", "-m", "tests.faults.soak.life"]
            command = [*python, str(self.root), json.dumps(settings)]
            self.life = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    @property
    def ended(self) -> int | None:
        """Return the exit status of the driver; None while it lives, or if there is none."""
        return None if self.life is None else self.life.poll()

    def tree(self) -> list[psutil.Process]:
        """Return the driver and its workers, the driver first."""
        if self.life is None:
            return []
        with contextlib.suppress(psutil.Error):
            driver = psutil.Process(self.life.pid)
            return [driver, *driver.children(recursive=True)]
        return []

    def kill(self) -> None:
        """End the driver and its workers, at once."""
        killed(self.tree())
        if self.life is not None:
            self.life.wait()
        self.life = None

    def stop(self, marker: str, most_s: float) -> str:
        """Let the driver end by itself; return what went wrong, or "".

        With the `marker` "stop" it ends after the batch at hand, with "drain" when all is read.
        """
        assert self.life is not None
        (self.root / marker).touch()
        try:
            status = self.life.wait(most_s)
        except subprocess.TimeoutExpired:
            return f"a driver did not end within {most_s:g} s"
        finally:
            (self.root / marker).unlink()
        return f"a driver that was to end ended with {status}" if status else ""

    def last_words(self) -> str:
        """Return the end of what the driver wrote."""
        return self._log_path.read_text(errors="replace")[-4_000:]


def killed(processes: list[psutil.Process]) -> None:
    """Kill those of these processes that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


class Lines:
    """Reads on at the end of the file of batches."""

    def __init__(self, path: Path, names: str) -> None:
        self._path, self._at, self._rest = path, 0, b""
        self._read = dict.fromkeys(names, 0)
        self.batches = self.starts = 0
        self.grew_at = time.monotonic()

    def read(self) -> dict[str, int]:
        """Return how many records of each stream are committed."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
            self._at += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    facts = json.loads(line)
                    self._read = facts["read"]
                    self.batches += "batch" in facts
                    self.starts += "begins" in facts
                    self.grew_at = time.monotonic()
        return self._read
