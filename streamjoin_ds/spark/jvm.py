"""Spark's Java process: it is started with nothing on the terminal, and ends when this process does."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamjoin_ds.errors import SparkStartError
from streamjoin_ds.spark.holding import hold
from streamjoin_ds.spark.java import find_java
from streamjoin_ds.spark.scratch import Scratch

__all__ = ["QUICK_COMPILER", "environment", "last_error_line", "launch", "resolve_packages", "shut_down", "spark_home"]

# Java options for the first of Java's two compilers alone. Java then reserves 48 MiB for code, of which a join fills 44
# within a minute; once all are taken, no class can be linked any more and the query ends. 240 MiB is what Java reserves
# for both compilers. Only what is used takes memory.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_LAST_WORDS_SECONDS = 15  # seconds that Java may take to stop Spark and remove its temporary files
_environment_lock = threading.RLock()


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables inside the context: Spark's launcher takes some settings in no other way."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def spark_home() -> Path:
    """Return the folder of the Spark that `launch` starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def launch(configuration: Mapping[str, str], log_path: Path, java_home: Path | None = None) -> Any:
    """Start Spark's Java process.

    All that it, its launcher and its Python workers write to standard output and error is appended to `log_path`. It
    watches a pipe, so it ends when this process does, however that ends. Its temporary files lie in a folder of its own
    (`Scratch`).

    Returns
    -------
    py4j gateway
        For ``SparkContext(gateway=...)``; its `proc` attribute is the process.

    Raises
    ------
    SparkStartError
        The Java process ended before it could be reached; the message has its last error line and names the log.
    JavaMissingError
        No Java was given, and none is found.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    java_home = java_home or find_java().home
    scratch = Scratch.new()
    options = "spark.driver.extraJavaOptions"
    given = {**scratch.settings(), **configuration}
    if options in configuration:  # the caller's options come last: of two equal ones Java takes the last
        given[options] = f"{scratch.settings()[options]} {configuration[options]}"
    settings = SparkConf(loadDefaults=False)
    settings.setAll(list(given.items()))
    # Without SPARK_HOME Spark's script starts a Python to look for it.
    homes = {"JAVA_HOME": str(java_home), "SPARK_HOME": str(spark_home())}
    with log_path.open("ab") as log, environment(**homes):
        hold(log)
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                settings, popen_kwargs={"stdout": log, "stderr": subprocess.STDOUT, "pass_fds": [scratch.descriptor]}
            )
        except PySparkRuntimeError as error:
            scratch.remove()
            message = f"Spark's Java process ended at once ({last_error_line(log_path)}; log: {log_path})."
            raise SparkStartError(message, name="spark", hint="`streamjoin doctor` checks what it needs.") from error
    atexit.register(scratch.remove)  # registered before `shut_down`, so it runs after Java's end
    atexit.register(shut_down, gateway)
    return gateway


def shut_down(gateway: Any, within_s: float = _LAST_WORDS_SECONDS) -> None:
    """End the Java process and wait until it has removed its temporary files; a second call does nothing.

    Parameters
    ----------
    gateway : py4j gateway
        The gateway that `launch` returned.
    within_s : float
        Seconds that the process has to end by itself; then again as many after each signal (terminate, kill).
    """
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None or process.poll() is not None:
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # Java takes this as the sign to stop the context, run its hooks and exit.
    for end in (None, process.terminate, process.kill):
        if end is not None:
            end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
            return


def resolve_packages(
    coordinate: str, excludes: str, ivy_path: Path, log_path: Path, java_home: Path | None = None
) -> bool:
    """Let Spark's own resolver fetch `coordinate` into ``ivy_path/jars``; return False if it could not."""
    configuration = {
        "spark.jars.packages": coordinate,
        "spark.jars.excludes": excludes,
        "spark.jars.ivy": str(ivy_path),
    }
    try:
        gateway = launch(configuration, log_path, java_home)
    except SparkStartError:
        return False
    shut_down(gateway)
    return True


def last_error_line(log_path: Path) -> str:
    """Return the line of a Java log that most likely says what went wrong, at most 200 characters of it."""
    try:
        lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "no log"
    telling = re.compile(r"\b(Error|Exception|ERROR|UNRESOLVED|unresolved|not found|No such)\b")
    candidates = [line.strip() for line in lines if telling.search(line) and not line.lstrip().startswith("at ")]
    return (candidates or [line.strip() for line in lines if line.strip()] or ["the log is empty"])[-1][:200]
