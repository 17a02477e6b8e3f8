"""The archive of Java's classes after a join: the next start maps it instead of loading the classes again.

::

    a join ends, and there is no archive ──► class_training, in the background: a small join, its classes dumped
                                                  │
    streamjoin doctor --spark ────────────────────┤
                                                  ▼
    spark_session ◄── classes-<key>-<checksum>.jsa in the user's cache     key: this Java, this Spark's jars

Java then need not read, check and link them. This takes 3 s off a start with full windows of 11 s (measured on two
cores). An archive for another Java or other jars has another key. Java itself refuses an archive that does not fit, and
starts without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import xxhash
from msgspec import Struct

from streamjoin_ds.spark.local_files import trusted_cache

__all__ = ["ClassArchive", "archive_setting"]

_KEPT = 2  # archives that stay in the cache: those used last
_STALE_S = 3600.0  # seconds after which a half-written archive is taken for one whose maker was killed
_OPTIONS = "spark.driver.extraJavaOptions"
# Java options by which the caller decides about archives himself: no archive is then set here.
_OWN_OPTIONS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive")
_CLASS_PATHS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


class ClassArchive(Struct, frozen=True):
    """The archive for one Java and one Spark, whether it is there or not.

    Attributes
    ----------
    folder : Path
        The folder for archives.
    key : str
        Digest of the Java, the Spark and the class paths that the archive is for; 16 hexadecimal digits.
    java_home : Path
        The home of that Java.
    """

    folder: Path
    key: str
    java_home: Path

    @classmethod
    def of(cls, java_home: Path, spark_home: Path) -> ClassArchive | None:
        """Return the archive for this Java and this Spark; None if there is no folder for it."""
        folder = trusted_cache()
        if folder is None:
            return None
        java = (java_home / "bin" / "java").resolve()
        files = [java, java.parent.parent / "lib" / "server" / "libjvm.so", java.parent.parent / "release"]
        files += sorted((spark_home / "jars").glob("*.jar"))
        digest = xxhash.xxh3_64()
        for text in (str(java_home), *(os.environ.get(name, "") for name in _CLASS_PATHS), *map(_facts, files)):
            digest.update(text.encode() + b"\0")
        return cls(folder, digest.hexdigest(), java_home)

    def path(self) -> Path | None:
        """Return the path of the complete archive; None if there is none. A damaged archive is removed."""
        for path in sorted(self.folder.glob(f"classes-{self.key}-*.jsa")):
            with contextlib.suppress(OSError):
                if path.stem.rpartition("-")[2] == _checksum(path):
                    with contextlib.suppress(OSError):
                        os.utime(path)  # the time tells when it was last used: `_tidy` goes by that
                    return path
                path.unlink()
        return None

    @property
    def refusal(self) -> str | None:
        """Why this Java makes no archive; None if it makes one, or was not tried."""
        try:
            return self._refused.read_text(encoding="utf-8")
        except OSError:
            return None

    @property
    def _refused(self) -> Path:
        return self.folder / f"classes-{self.key}.none"

    def aside(self) -> Path:
        """Return a path to which Java may write an archive, for `keep`."""
        return self.folder / f".classes-{self.key}-{os.getpid()}.jsa"

    def keep(self, aside: Path) -> Path | None:
        """Take over the archive that Java wrote, and return its path; older archives are removed.

        If Java wrote nothing, the result is None, and that is remembered as `refusal`.
        """
        checksum = _checksum(aside) if aside.exists() else ""
        if not checksum:
            self._refused.write_text("this Java writes no archive of classes", encoding="utf-8")
            return None
        descriptor = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path = self.folder / f"classes-{self.key}-{checksum}.jsa"
        aside.replace(path)
        self._refused.unlink(missing_ok=True)
        self._tidy()
        return path

    def _tidy(self) -> None:
        """Remove all archives but those used last, and files that killed makers left behind."""
        archives = sorted(self.folder.glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        before = time.time() - _STALE_S
        torn = [path for path in self.folder.glob(".classes-*.jsa") if path.stat().st_mtime < before]
        for path in [*archives[_KEPT:], *torn]:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def sole_maker(self) -> Iterator[bool]:
        """Give True if no other process is making this archive; no other one can then, until the context ends."""
        with (self.folder / f".classes-{self.key}.lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    def make(self, *, wait: bool) -> Path | None:
        """Have a separate process make the archive, unless it is there.

        Parameters
        ----------
        wait : bool
            True: wait for that process. False: it runs on at the lowest priority, also after this process ends, and is
            started only if this Java has not refused before.

        Returns
        -------
        Path or None
            The archive, if `wait` is true and it is there by now.
        """
        untried = wait or self.refusal is None  # a caller that waits asks for the archive: a refusal is tried again
        if untried and self.path() is None and os.access(self.folder, os.W_OK):
            command = [sys.executable, "-m", "streamjoin_ds.stream.class_training", str(self.java_home)]
            with contextlib.suppress(OSError):
                maker = subprocess.Popen(
                    [*command, *([] if wait else ["--background"])],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                if wait:
                    maker.wait()
        return self.path() if wait else None


def archive_setting(archive: ClassArchive, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Java option that maps the archive, as a Spark setting.

    The result is empty if there is no archive, or if the session's settings do not go with one.

    Parameters
    ----------
    archive : ClassArchive
        The archive.
    settings : mapping
        The session's other settings: what the caller set there has precedence.
    """
    options = settings.get(_OPTIONS, "")
    if "spark.driver.extraClassPath" in settings or any(own in options for own in _OWN_OPTIONS):
        return {}
    path = archive.path()
    return {} if path is None or '"' in str(path) else {_OPTIONS: f'"-XX:SharedArchiveFile={path}"'}


def _facts(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return f"{path} none"
    return f"{path} {facts.st_size} {facts.st_mtime_ns}"


def _checksum(path: Path) -> str:
    """Return the checksum of a file's content; "" for an empty file, which cannot be mapped."""
    if not path.stat().st_size:
        return ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return xxhash.xxh3_64_hexdigest(content)
