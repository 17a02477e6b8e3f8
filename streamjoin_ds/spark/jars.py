"""The Delta jars that Spark needs: Spark itself fetches them once, then they are kept in a cache.

::

    cache valid? ──yes──► its jars (no Ivy, no net: a session starts in 5 s instead of 8)
        │no
        └──► Spark's --packages, into a temporary folder ──► checksums compared ──► rename into the cache

The checksums stand here: whoever can write into the cache, or stands between it and the repository, cannot change what
Java runs. Only the `io.delta` jars are kept (13 MB). Of Delta's other dependencies, Spark ships some itself, and Delta
does not use the rest here.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from streamjoin_ds.errors import DependencyMissingError, JarsMissingError
from streamjoin_ds.spark.local_files import cache_root, trusted_cache

__all__ = ["default_cache_path", "delta_coordinate", "delta_jars", "delta_jars_in", "jar_checksums"]

# SHA-256 of the jars of each coordinate, as Maven Central has them. A new pair of pyspark and delta-spark needs a new
# entry: sha256sum over what `mvn dependency:get -Dartifact=io.delta:NAME:VERSION` brings.
_SHA256_OF_ALL = {
    "io.delta_delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "io.delta_delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "io.delta_delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}
_SHA256_BY_SPARK = {
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}
_SHA256 = {
    f"io.delta:delta-spark_{spark}_2.13:4.4.0": {
        f"io.delta_delta-spark_{spark}_2.13-4.4.0.jar": checksum,
        **_SHA256_OF_ALL,
    }
    for spark, checksum in _SHA256_BY_SPARK.items()
}
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


def jar_checksums(coordinate: str) -> Mapping[str, str]:
    """Return the SHA-256 of each jar, by its name, that a coordinate brings.

    Raises
    ------
    JarsMissingError
        The jars of this coordinate are not known.
    """
    if coordinate not in _SHA256:
        message = f"This version knows no checksums of {coordinate}."
        hint = "pip install 'streamjoin-ds[spark]' installs a pair it knows; without Delta: spark_session(delta=False)"
        raise JarsMissingError(message, name="jars", hint=hint)
    return _SHA256[coordinate]


def default_cache_path() -> Path:
    """Return the folder for the jars: one for each pair of Delta and Spark, under the user's cache folder.

    Raises
    ------
    DependencyMissingError
        pyspark or delta-spark is not installed.
    JarsMissingError
        Others may write to the user's cache folder, or it cannot be made.
    """
    name = f"jars-{_installed('delta-spark')}-spark-{_minor(_installed('pyspark'))}"
    root = trusted_cache()
    if root is None:
        message = f"The cache folder cannot be made, is another user's, or others may write to it: {cache_root()}."
        hint = "name a folder that is yours alone in XDG_CACHE_HOME, or take the others' rights to write."
        raise JarsMissingError(message, name="jars", hint=hint)
    return root / name


def delta_jars_in(cache_path: Path) -> list[Path] | None:
    """List the jars of a cache, in the order of their names.

    Returns
    -------
    list of Path, or None
        None if a jar is not there, or is not the one of the installed Delta, by its SHA-256.

    Raises
    ------
    DependencyMissingError
        pyspark or delta-spark is not installed.
    JarsMissingError
        The jars of the installed pair are not known.
    """
    return _whole(cache_path, jar_checksums(delta_coordinate()))


def delta_jars(
    cache_path: Path | None = None, *, log_path: Path | None = None, java_home: Path | None = None
) -> list[Path]:
    """List the Delta jars; fetch them first if the cache does not hold all of them undamaged.

    Parameters
    ----------
    cache_path : Path, optional
        Default: `default_cache_path`. Another one should be a folder that only this user may write to.
    log_path : Path, optional
        Where Spark's resolver writes; default: a file in the folder for temporary files, kept only on failure.
    java_home : Path, optional
        The Java to resolve with; default: `find_java`.

    Raises
    ------
    JarsMissingError
        The jars are not cached and could not be fetched: the hint says what to do, the message names the log. Or other
        jars came, or the cache cannot be written.
    """
    cache_path = cache_path or default_cache_path()
    jars = delta_jars_in(cache_path)
    return _fetch(cache_path, log_path, java_home) if jars is None else jars


def _fetch(cache_path: Path, log_path: Path | None, java_home: Path | None) -> list[Path]:
    from streamjoin_ds.spark.java import last_error_line, resolve_packages

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
        found = sorted((aside / "ivy" / "jars").glob("io.delta_*.jar"))
        if not resolved or not any("delta-spark" in jar.name for jar in found):
            message = f"The Delta jars could not be fetched ({last_error_line(log_path)}; log: {log_path})."
            own_log = False
            raise JarsMissingError(message, name="jars", hint=_HINT)
        return _store(found, aside / "ready", cache_path, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if own_log:
            log_path.unlink(missing_ok=True)


def _store(found: list[Path], ready: Path, cache_path: Path, aside: Path) -> list[Path]:
    """Move jars into the cache, and return them there."""
    expected = jar_checksums(delta_coordinate())
    ready.mkdir(mode=0o755)
    for jar in found:
        jar.chmod(0o644)
        jar.rename(ready / jar.name)
    if _whole(ready, expected) is None:
        message = f"What was fetched are not the jars of {delta_coordinate()}: a SHA-256 is another."
        hint = "try again; if it stays so, ask who keeps the mirror or the Ivy cache that they came from."
        raise JarsMissingError(message, name="jars", hint=hint)
    if _whole(cache_path, expected) is None:  # otherwise another process was faster
        if cache_path.exists():
            cache_path.rename(aside / "damaged")
        try:
            ready.rename(cache_path)
        except OSError:
            if _whole(cache_path, expected) is None:  # no other process has just put the jars there either
                raise
    return [cache_path / name for name in sorted(expected)]


def _whole(folder: Path, expected: Mapping[str, str]) -> list[Path] | None:
    """Return the jars of a folder; None if one is not there, or is another."""
    jars = [folder / name for name in sorted(expected)]
    try:
        return jars if all(_sha256(jar) == expected[jar.name] for jar in jars) else None
    except OSError:
        return None


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
