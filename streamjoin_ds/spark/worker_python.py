"""The Python with which Spark starts its workers on this machine: that of this process, without PySpark's zip.

Spark puts its own ``pyspark.zip`` before all other folders of a worker's path. A zip holds no compiled modules, so each
of the five Python processes of a starting query compiles PySpark anew. That takes 0.4 s of 0.5 s for each, one after
the other. If this Python has the same PySpark as a package, a wrapper takes the zips out of the worker's path.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import xxhash

from streamjoin_ds.spark.executable import write_executable
from streamjoin_ds.spark.user_cache import trusted_cache

__all__ = ["worker_python"]

_WRAPPER = """#!/bin/sh
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        {zips}) ;;
        *) path=$path${{path:+:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$path exec {python} "$@"
"""
_FIND = "import pyspark, py4j; print(pyspark.__path__[0]); print(py4j.__path__[0])"
_FIND_WITHIN_S = 60  # seconds that this Python may take to say where it finds PySpark


def worker_python(spark_home: Path) -> str:
    """Return the value of ``spark.pyspark.python`` for workers on this machine.

    Parameters
    ----------
    spark_home : Path
        Folder of the Spark that will start them.

    Returns
    -------
    str
        A wrapper in the user's cache; or this Python itself, if its PySpark is not that Spark's, or the wrapper cannot
        be kept.
    """
    zips = sorted((spark_home / "python" / "lib").glob("*.zip"))
    cache = trusted_cache()
    if not zips or cache is None:
        return sys.executable
    text = _WRAPPER.format(zips="|".join(shlex.quote(str(path)) for path in zips), python=shlex.quote(sys.executable))
    wrapper = cache / f"python-{xxhash.xxh3_64_hexdigest(text.encode())}"
    try:
        if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != text:
            if not _finds_itself(spark_home):
                return sys.executable
            write_executable(wrapper, text)
    except OSError:
        return sys.executable
    return str(wrapper) if os.access(wrapper, os.X_OK) else sys.executable


def _finds_itself(spark_home: Path) -> bool:
    """Whether a new process of this Python finds that Spark's Python package, and py4j, without the zips."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _FIND], capture_output=True, text=True, timeout=_FIND_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:  # a slow disk: workers start with this Python, a little later
        return False
    folders = [Path(line) for line in asked.stdout.splitlines()]
    return len(folders) == 2 and all(folder.is_dir() for folder in folders) and folders[0].samefile(spark_home)
