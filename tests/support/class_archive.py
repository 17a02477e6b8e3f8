"""Makes the archive of Java's classes before the first test: ``python -m tests.support.class_archive``.

The end of a join makes it in the background. For the tests that is too late: most of their Java processes start before.
"""

from __future__ import annotations

import contextlib
import os
import time

from streamjoin_ds.errors import JavaMissingError
from streamjoin_ds.spark.class_archive import ClassArchive
from streamjoin_ds.spark.java import find_java, spark_home
from tests.support.java import quick_to_start

__all__ = ["archive_options", "main", "spark_classes"]


def spark_classes() -> str:
    """Return the class path with which Spark's own scripts start Java; an archive of classes fits no other."""
    home = spark_home()
    first = [str(path) for path in sorted((home / "jars").glob("slf4j-api-*.jar"))]
    return os.pathsep.join([str(home / "conf"), *first, str(home / "jars" / "*")])


def archive_options() -> list[str]:
    """Return options of a Java process with `spark_classes` that map the archive; none if there is no archive."""
    archive = ClassArchive.of(find_java().home, spark_home())
    path = None if archive is None else archive.path()
    return [] if path is None else [f"-XX:SharedArchiveFile={path}"]


def main() -> None:
    """Make the archive, unless it is there."""
    with contextlib.suppress(JavaMissingError):  # the tests say this better
        _make()


def _make() -> None:
    archive = ClassArchive.of(find_java().home, spark_home())
    if archive is None or archive.path() is not None:
        return
    began = time.monotonic()
    print("tests: an archive of Java's classes, for all that start it ... ", end="", flush=True)
    quick_to_start()
    made = archive.make(wait=True)
    print(f"{time.monotonic() - began:.0f} s" if made else "none, which only takes longer")


if __name__ == "__main__":
    main()
