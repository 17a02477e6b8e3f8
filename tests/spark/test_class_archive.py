"""The archive of Java's classes: it is whole or not there, bounded, made by one process, and never stops a start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamjoin_ds.spark.class_archive import ClassArchive, archive_setting
from streamjoin_ds.spark.jars import default_cache_path, delta_jars
from streamjoin_ds.spark.java import find_java, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A Java and a Spark of empty files, with a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java, spark = tmp_path / "java", tmp_path / "spark"
    for path in (java / "bin" / "java", java / "lib" / "server" / "libjvm.so", spark / "jars" / "core.jar"):
        path.parent.mkdir(parents=True)
        path.write_text("one")
    return java, spark


def archive_of(homes: tuple[Path, Path]) -> ClassArchive:
    archive = ClassArchive.of(*homes)
    assert archive is not None
    return archive


def made(archive: ClassArchive, content: str = "classes") -> Path:
    archive.aside().write_text(content)
    path = archive.keep(archive.aside())
    assert path is not None
    return path


def test_it_is_found_once_made_and_aside_until_then(homes: tuple[Path, Path]) -> None:
    archive = archive_of(homes)
    archive.aside().write_text("half of it")
    assert archive.path() is None
    assert made(archive) == archive.path()
    assert not archive.aside().exists()
    assert archive_of(homes).path() == archive.path()


@pytest.mark.parametrize("changed", ["java", "jar", "another jar", "HADOOP_CONF_DIR"])
def test_another_java_or_class_path_has_another(
    homes: tuple[Path, Path], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, spark = homes
    made(archive_of(homes))
    if changed == "java":
        (java / "lib" / "server" / "libjvm.so").write_text("two, newer")
    elif changed == "jar":
        (spark / "jars" / "core.jar").write_text("two, newer")
    elif changed == "another jar":
        (spark / "jars" / "more.jar").write_text("one")
    else:
        monkeypatch.setenv(changed, "/etc/hadoop")
    assert archive_of(homes).path() is None


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_one_is_not_used_and_goes(homes: tuple[Path, Path], damage: str) -> None:
    archive = archive_of(homes)
    path = made(archive)
    path.write_text({"flip": "clasSes", "cut": "class", "empty": ""}[damage])
    assert archive.path() is None
    assert not path.exists()
    assert made(archive) == path


def test_two_are_kept_and_what_killed_makers_left_goes(homes: tuple[Path, Path]) -> None:
    archive, jar = archive_of(homes), homes[1] / "jars" / "core.jar"
    torn, fresh = archive.folder / ".classes-x-1.jsa", archive.folder / ".classes-x-2.jsa"
    for path, age_s in ((torn, 7200), (fresh, 60)):
        path.write_text("half")
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    paths = []
    for number in range(4):
        jar.write_text("x" * number)
        paths.append(made(archive_of(homes)))
        os.utime(paths[-1], (1_000_000 + number,) * 2)
    assert sorted(archive.folder.glob("classes-*.jsa")) == sorted(paths[-2:])
    assert not torn.exists()
    assert fresh.exists()


def test_a_java_that_writes_none_is_asked_again_only_by_name(homes: tuple[Path, Path]) -> None:
    archive = archive_of(homes)
    assert archive.keep(archive.aside()) is None
    assert archive.refusal is not None
    assert archive.make(wait=False) is None
    assert list(archive.folder.glob("*.lock")) == []  # no maker was started
    made(archive)
    assert archive.refusal is None


def test_one_maker_at_a_time(homes: tuple[Path, Path]) -> None:
    archive = archive_of(homes)
    with archive.sole_maker() as first, archive_of(homes).sole_maker() as second:
        assert (first, second) == (True, False)
    with archive.sole_maker() as third:
        assert third


def test_the_callers_own_options_go_before(homes: tuple[Path, Path]) -> None:
    archive = archive_of(homes)
    assert archive_setting(archive, {}) == {}
    path = made(archive)
    assert archive_setting(archive, {OPTIONS: "-Xss64m"}) == {OPTIONS: f'"-XX:SharedArchiveFile={path}"'}
    for own in ("-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa"):
        assert archive_setting(archive, {OPTIONS: own}) == {}
    assert archive_setting(archive, {"spark.driver.extraClassPath": "/opt/mine.jar"}) == {}


def test_a_cache_that_anybody_may_write_to_is_not_trusted(homes: tuple[Path, Path]) -> None:
    folder = archive_of(homes).folder
    folder.chmod(0o777)
    assert ClassArchive.of(*homes) is None


def test_java_starts_with_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "other.jsa"
    path.write_bytes(b"not an archive" * 1000)
    java = find_java().home / "bin" / "java"
    started = subprocess.run([java, f"-XX:SharedArchiveFile={path}", "-version"], capture_output=True, check=False)
    assert started.returncode == 0, started.stderr


def test_the_tests_session_uses_the_archive_that_is_there(spark: SparkSession) -> None:
    archive = ClassArchive.of(find_java().home, spark_home())
    path = None if archive is None else archive.path()
    if path is None:
        pytest.skip("no archive was made before: `make test` makes it")
    assert f"-XX:SharedArchiveFile={path}" in spark.conf.get(OPTIONS)


@pytest.mark.spark
@pytest.mark.campaign
def test_a_session_takes_most_of_its_classes_from_the_archive(tmp_path: Path) -> None:
    """One process makes the archive in a cache that holds only Delta's jars; then another one uses it.

    `make test` makes the archive that its own processes use in the same way, and names how long that took.
    """
    jars = delta_jars()[0].parent
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    (cache / "streamjoin_ds").mkdir(parents=True)
    (cache / "streamjoin_ds" / default_cache_path().name).symlink_to(jars)
    home = str(find_java().home)
    maker = [sys.executable, "-m", "streamjoin_ds.stream.class_training", home]
    subprocess.run(maker, check=True, env=environment, timeout=900)
    [path] = (cache / "streamjoin_ds").glob("classes-*.jsa")
    log = tmp_path / "classes.log"
    program = f"""
from streamjoin_ds.spark.session import spark_session
spark = spark_session(master="local[1]", java_home={home!r}, log_path={str(tmp_path / "log")!r},
                      conf={{"{OPTIONS}": "-Xlog:class+load:file={log}"}})
assert "SharedArchiveFile" in spark.conf.get("{OPTIONS}")
assert spark.range(3).count() == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=600)
    loaded = log.read_text()
    # Java archives none of Scala's lambdas.
    spark_classes = re.findall(r"org\.apache\.spark\.(?!\S*Lambda)\S+ source: (.*)", loaded)
    shared = sum("shared objects file (top)" in source for source in spark_classes)
    assert shared > 0.9 * len(spark_classes) > 1_000, (shared, len(spark_classes))
    assert path.exists()
