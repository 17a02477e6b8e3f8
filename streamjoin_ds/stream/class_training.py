"""Makes the archive of Java's classes: runs a small join in a Spark of its own; its Java writes the archive as it ends.

`ClassArchive.make` runs this as ``python -m streamjoin_ds.stream.class_training JAVA_HOME [--background]``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from streamjoin_ds.spark.class_archive import ClassArchive
from streamjoin_ds.spark.jars import default_cache_path, delta_jars_in
from streamjoin_ds.spark.java import shut_down, spark_home
from streamjoin_ds.spark.session import own_gateway, spark_session
from streamjoin_ds.spec import Generator, Stream, band
from streamjoin_ds.stream.join import StreamJoin

__all__ = ["main"]

_ROWS = 4_000  # rows of each of the two streams
_DUMPED_WITHIN_S = 300.0  # seconds that Java may take to end, in which it writes the archive


def main(java_home: str, *, background: bool) -> None:
    """Make the archive for this Java and the installed Spark, unless it is there or another process is making it."""
    archive = ClassArchive.of(Path(java_home), spark_home())
    if archive is None:
        return
    if background:
        os.nice(19)
        # Where Linux groups processes by session, `nice` counts only inside a session: this lowers the whole group.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19", encoding="ascii")
    with archive.sole_maker() as sole, tempfile.TemporaryDirectory(prefix="streamjoin-classes-") as folder:
        if sole and archive.path() is None:
            aside = archive.aside()
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
            _run(Path(folder), aside, Path(java_home))
            archive.keep(aside)


def _run(folder: Path, aside: Path, java_home: Path) -> None:
    """Run a join that starts, commits, stops and starts again: it has Java load the classes that every join needs."""
    session = spark_session(
        "streamjoin classes",
        delta=delta_jars_in(default_cache_path()) is not None,  # jars that are not there yet are not fetched for this
        conf={"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={aside}"'},
        log_path=folder / "log",
        java_home=java_home,
        class_archive=False,
    )
    sides = [
        Stream(side, Generator("band2d", {"rate": 1_000, "rows": _ROWS, "seed": 1, "side": side}))
        for side in ("r", "s")
    ]
    join = StreamJoin(sides, on=[band("r.x", "s.a", 10), band("r.y", "s.b", 10)], window="1s")
    for rows, available_now in ((_ROWS, False), (_ROWS // 2, True)):
        query = join.start(
            session, folder / "matches", folder / "checkpoint", available_now=available_now, max_rows_per_batch=rows
        )
        if available_now:
            query.awaitTermination()
        else:
            query.processAllAvailable()
            query.stop()
    session.stop()
    shut_down(own_gateway(), within_s=_DUMPED_WITHIN_S)


if __name__ == "__main__":
    main(sys.argv[1], background="--background" in sys.argv[2:])
