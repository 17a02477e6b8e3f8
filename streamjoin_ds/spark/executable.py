"""Writes shell scripts of a few lines that start another program."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_executable"]


def write_executable(path: Path, text: str) -> None:
    """Write a program in one step: a process that starts it meanwhile finds the old program or the new one, whole."""
    descriptor, aside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(aside).chmod(0o755)
    Path(aside).replace(path)
