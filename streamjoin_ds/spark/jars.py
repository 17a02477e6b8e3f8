"""The Delta jars that Spark needs: Spark itself fetches them once, then they are kept in a cache.

::

    cache valid? ──yes──► its jars (no Ivy, no net: a session starts in 5 s instead of 8)
        │no
        └──► Spark's --packages, into a temporary folder ──► manifest with checksums ──► rename into the cache

Only the `io.delta` jars are kept (13 MB). Of Delta's other dependencies, Spark ships some itself, and Delta does not
use the rest here.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

from streamjoin_ds.errors import DependencyMissingError, JarsMissingError
from streamjoin_ds.spark.user_cache import cache_root

__all__ = ["default_cache_path", "delta_coordinate", "delta_jars", "delta_jars_in"]

_MANIFEST = "manifest.json"
# Globs for Ivy: all that delta-spark depends on but io.delta's own jars. A fetch is 13 MB in 4 s, not 87 MB in 12 s.
_EXCLUDES = "org.*:*,com.*:*,io.unitycatalog*:*,io.netty*:*,jakarta*:*,javax*:*,net.*:*,dev.*:*"
_HINT = (
    "go online once and run `streamjoin doctor --spark`; behind a mirror set DEFAULT_ARTIFACT_REPOSITORY for Spark's "
    "resolver; or copy the cache folder from another machine."
)


def delta_coordinate() -> str:
    """Return the Maven coordinate of the Delta that fits the installed pyspark and delta-spark.

    Raises
    ------
    DependencyMissingError
        pyspark or delta-spark is not installed.
    """
    delta_version, spark_version = _installed("delta-spark"), _installed("pyspark")
    return f"io.delta:delta-spark_{_minor(spark_version)}_2.13:{delta_version}"


def default_cache_path() -> Path:
    """Return the folder for the jars: one for each pair of Delta and Spark, under the user's cache folder."""
    return cache_root() / f"jars-{_installed('delta-spark')}-spark-{_minor(_installed('pyspark'))}"


def delta_jars_in(cache_path: Path) -> list[Path] | None:
    """List the jars of a cache, in the order of their names.

    Returns
    -------
    list of Path, or None
        None if there is no cache, or if any file does not have the SHA-256 that the manifest says.
    """
    try:
        manifest = json.loads((cache_path / _MANIFEST).read_text(encoding="utf-8"))
        expected: dict[str, str] = manifest["sha256"]
        jars = [cache_path / name for name in sorted(expected)]
        good = bool(jars) and all(_sha256(jar) == expected[jar.name] for jar in jars)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return jars if good else None


def delta_jars(
    cache_path: Path | None = None, *, log_path: Path | None = None, java_home: Path | None = None
) -> list[Path]:
    """List the Delta jars; fetch them first if the cache does not hold all of them undamaged.

    Parameters
    ----------
    cache_path : Path, optional
        Default: `default_cache_path`.
    log_path : Path, optional
        Where Spark's resolver writes; default: a file in the folder for temporary files, kept only on failure.
    java_home : Path, optional
        The Java to resolve with; default: `find_java`.

    Raises
    ------
    JarsMissingError
        The jars are not cached and could not be fetched: the hint says what to do, the message names the log. Or the
        cache cannot be written, or is damaged after the fetch.
    """
    cache_path = cache_path or default_cache_path()
    jars = delta_jars_in(cache_path)
    if jars is None:
        _fetch(cache_path, log_path, java_home)
        jars = delta_jars_in(cache_path)
    if jars is None:
        message = f"The Delta jars in {cache_path} do not have the checksums they were stored with."
        raise JarsMissingError(message, name="jars", hint="remove that folder and try again.")
    return jars


def _fetch(cache_path: Path, log_path: Path | None, java_home: Path | None) -> None:
    from streamjoin_ds.spark.jvm import last_error_line, resolve_packages

    try:
        cache_path.parent.mkdir(parents=True, exist_ok=True)
        # Beside the cache, so that the rename at the end is one step on one file system.
        aside = Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache_path.parent))
    except OSError as error:
        message = f"The jar cache cannot be written: {error.strerror}: {cache_path.parent}."
        raise JarsMissingError(
            message, name="jars", hint="give another cache folder, or allow writing to this one."
        ) from error
    own_log = log_path is None
    log_path = log_path or _temporary_log()
    try:
        resolved = resolve_packages(delta_coordinate(), _EXCLUDES, aside / "ivy", log_path, java_home)
        found = [jar for jar in sorted((aside / "ivy" / "jars").glob("io.delta_*.jar")) if _is_whole_zip(jar)]
        if not resolved or not any("delta-spark" in jar.name for jar in found):
            message = f"The Delta jars could not be fetched ({last_error_line(log_path)}; log: {log_path})."
            own_log = False
            raise JarsMissingError(message, name="jars", hint=_HINT)
        _store(found, aside / "ready", cache_path, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if own_log:
            log_path.unlink(missing_ok=True)


def _store(found: list[Path], ready: Path, cache_path: Path, aside: Path) -> None:
    ready.mkdir()
    for jar in found:
        jar.rename(ready / jar.name)
    manifest = {"coordinate": delta_coordinate(), "sha256": {jar.name: _sha256(ready / jar.name) for jar in found}}
    (ready / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    if delta_jars_in(cache_path) is not None:
        return  # another process was faster
    if cache_path.exists():
        cache_path.rename(aside / "damaged")
    try:
        ready.rename(cache_path)
    except OSError:
        if delta_jars_in(cache_path) is None:  # no other process has just put the jars there either
            raise


def _is_whole_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _temporary_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="streamjoin-jars-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        message = f"The package {distribution} is not installed."
        raise DependencyMissingError(message, name=distribution, hint="pip install 'streamjoin-ds[spark]'") from error


def _minor(version: str) -> str:
    parsed = Version(version)
    return f"{parsed.major}.{parsed.minor}"
