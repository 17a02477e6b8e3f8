"""The Spark session: silent, set as promised, never someone else's, and gone when its process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError, SessionError
from streamjoin_ds.spark import session as module
from streamjoin_ds.spark.java import find_java
from streamjoin_ds.spark.local_files import is_held
from streamjoin_ds.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def run_alone(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **environment},
    )


def test_settings_that_others_rely_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.databricks.delta.snapshotPartitions") == "2"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(usable_core_count())
    assert "stateStore" not in " ".join(key for key in spark.conf.getAll)


def test_the_same_call_gives_the_same_session(spark: SparkSession) -> None:
    assert spark_session("another name", master="local[2,4]") is spark


def test_another_call_is_refused_and_changes_nothing(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    with pytest.raises(SessionError, match="other settings"):
        spark_session(master="local[2,4]", conf={"spark.sql.shuffle.partitions": "77"})
    assert dict(spark.conf.getAll) == before


def test_a_given_session_comes_back_as_it_is(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    assert spark_session(session=spark, conf={"spark.sql.shuffle.partitions": "77"}) is spark
    assert dict(spark.conf.getAll) == before


def test_delta_and_python_workers(spark: SparkSession, tmp_path: Path) -> None:
    def who(frames):  # type: ignore[no-untyped-def]
        import pandas as pd

        for _ in frames:
            yield pd.DataFrame({"executable": [sys.executable]})

    row = spark.range(1).mapInPandas(who, "executable string").first()
    assert row is not None
    assert row["executable"] == sys.executable
    spark.range(5).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 5


@pytest.mark.long
def test_terminal_stays_empty_log_has_it_all_and_java_ends(tmp_path: Path) -> None:
    """The program also has a worker that prints, two starts in one process, and a query that runs until its end."""
    finished = run_alone(
        f"""
        import sys
        from pathlib import Path
        from streamjoin_ds.spark.session import spark_session, session_log_path
        from streamjoin_ds.spark.local_files import is_held

        def loud(frames):
            print("a worker's word", file=sys.stderr, flush=True)
            yield from frames

        log = Path({str(tmp_path / "new" / "spark.log")!r})
        spark = spark_session(delta=False, log_path=log, conf={{"spark.driver.extraJavaOptions": "-Dours.too=1"}},
                              quick_compiler=True)
        assert session_log_path(spark) == log
        assert is_held(log)
        options = spark.conf.get("spark.driver.extraJavaOptions").split()
        options = [option for option in options if "SharedArchive" not in option]  # there may be an archive of classes
        code = "-XX:ReservedCodeCacheSize=240m"  # the quick compiler's own 48 MiB are full after minutes
        assert options == ["-Xss64m", "-XX:TieredStopAtLevel=1", code, "-Dours.too=1"], options
        spark.range(1).mapInPandas(loud, "id long").count()
        spark.stop()
        spark = spark_session(delta=False, log_path="ignored.log",
                              conf={{"spark.driver.extraJavaOptions": "-Dours.too=1"}})
        assert session_log_path(spark) == log
        query = (spark.readStream.format("rate").load().writeStream
                 .option("checkpointLocation", {str(tmp_path / "checkpoint")!r})
                 .foreachBatch(lambda frame, number: frame.count()).start())
        while query.lastProgress is None:
            query.awaitTermination(0.05)
        Path({str(tmp_path / "pid")!r}).write_text(str(spark.sparkContext._gateway.proc.pid))
        """
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
    assert "a worker's word" in (tmp_path / "new" / "spark.log").read_text()
    assert not is_held(tmp_path / "new" / "spark.log")
    java_pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(java_pid, 0)


@pytest.mark.long
def test_someone_elses_session_is_refused_but_taken_when_given(tmp_path: Path) -> None:
    finished = run_alone(
        """
        from pyspark.sql import SparkSession
        theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        before = dict(theirs.conf.getAll)
        from streamjoin_ds.errors import SessionError
        from streamjoin_ds.spark.session import session_log_path, spark_session
        try:
            spark_session(delta=False)
        except SessionError as error:
            print(error)
        assert spark_session(session=theirs) is theirs
        assert session_log_path(theirs) is None
        assert dict(theirs.conf.getAll) == before
        theirs.stop()
        """
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("SESSION: This process already has a Spark session. Hint: pass that session")


@pytest.mark.long
def test_a_plain_session_is_told_what_to_set_before_anything_is_written(tmp_path: Path) -> None:
    """The workers have PySpark, which Spark brings along, but not our package."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    finished = run_alone(
        f"""
        import os
        os.chdir({str(folder)!r})
        from pyspark.sql import SparkSession
        from streamjoin_ds import Generator, Stream, StreamJoin
        from streamjoin_ds.errors import SessionError
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        sides = [Stream(side, Generator("band2d", {{"rows": 100, "side": side}})) for side in ("r", "s")]
        join = StreamJoin(sides, on="abs(r.x - s.a) <= 10", window="1s")
        frame = spark.range(1).selectExpr("timestamp_seconds(id) AS ts", "id AS x", "id AS a")
        starts = [
            lambda: join.start(spark, to="matches", checkpoint="checkpoint", available_now=True),
            lambda: join.dataframe({{"r": frame, "s": frame}}),
        ]
        for start in starts:
            try:
                start()
            except SessionError as error:
                print(error)
        print(os.listdir("."))
        """,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        JAVA_HOME=str(find_java().home),
        PYTHONPATH="",
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    *errors, left = finished.stdout.splitlines()
    assert len(errors) == 2
    for line in errors:
        assert line.startswith("SESSION: Spark's workers cannot run this package (ModuleNotFoundError: ")
        assert "set PYSPARK_PYTHON and spark.pyspark.python to" in line
        assert "streamjoin_ds.spark_session()" in line
    assert left == "[]"


def test_a_java_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        "#!/bin/sh\necho 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n"
    )
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    finished = run_alone(
        f"""
        from streamjoin_ds.errors import SparkStartError
        from streamjoin_ds.spark.session import spark_session
        try:
            spark_session(delta=False, java_home={str(home)!r}, log_path={str(tmp_path / "start.log")!r})
        except SparkStartError as error:
            print(error)
        """
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert finished.stdout.count("\n") == 1
    assert "Could not create the Java Virtual Machine" in finished.stdout
    assert "start.log" in finished.stdout


def test_settings_are_text() -> None:
    with pytest.raises(ArgumentError, match=r"spark\.sql\.shuffle\.partitions") as caught:
        module._add({}, {"spark.sql.shuffle.partitions": 4})
    assert "4" not in caught.value.message
