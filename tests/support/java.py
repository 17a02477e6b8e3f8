"""Settings of Java for tests: some sixty processes live half a minute each, so that a quick start counts most."""

from __future__ import annotations

import os

from streamjoin_ds.spark.java import QUICK_COMPILER

__all__ = ["quick_to_start"]

_OPTIONS = "JAVA_TOOL_OPTIONS"


def quick_to_start() -> None:
    """Have each Java process that this one or its children start compile with the first compiler only.

    The second compiler pays for itself only after minutes. A small query takes 27 CPU seconds with it, 15 without it,
    and 11 with an archive of classes as well (`class_archive`). Measured with `tests.faults.driver`: the whole process
    and its Java.
    """
    given = os.environ.get(_OPTIONS, "")
    if "TieredStopAtLevel" not in given:
        os.environ[_OPTIONS] = f"{given} {QUICK_COMPILER}".strip()
