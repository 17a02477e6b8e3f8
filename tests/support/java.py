"""Java for tests: some sixty processes that live half a minute each, so what counts is how soon they start."""

from __future__ import annotations

import os

__all__ = ["quick_to_start"]

_OPTIONS = "JAVA_TOOL_OPTIONS"
# The second compiler pays for itself after minutes: without it a small query takes 15 instead of 27 CPU seconds, with
# an archive of classes too (`class_archive`) 11 (measured: `tests.faults.driver`, all of the process and its Java).
_QUICK = "-XX:TieredStopAtLevel=1"


def quick_to_start() -> None:
    """Have each Java process that this one or its children start compile with the first compiler only."""
    given = os.environ.get(_OPTIONS, "")
    if "TieredStopAtLevel" not in given:
        os.environ[_OPTIONS] = f"{given} {_QUICK}".strip()
