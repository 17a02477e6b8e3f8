"""Programs of a few lines of shell, which stand before another program."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_executable"]


def write_executable(path: Path, text: str) -> None:
    """Put a program in place in one step, so that a process that starts it meanwhile finds the old one or this one."""
    descriptor, aside = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(aside).chmod(0o755)
    Path(aside).replace(path)
