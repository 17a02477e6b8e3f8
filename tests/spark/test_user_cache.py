"""The user's cache folder: it stays in its old place, and is trusted only if nobody else can write to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from streamjoin_ds.spark import local_files
from streamjoin_ds.spark.local_files import cache_root, trusted_cache


def test_it_is_where_caches_were_made_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "streamjoin_ds"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_root() == tmp_path / ".cache" / "streamjoin_ds"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "else where"))
    assert cache_root() == tmp_path / "else where" / "streamjoin_ds"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answer", [RuntimeError("no home"), Path("~/.cache/streamjoin_ds")])
def test_without_a_home_it_is_temporary_and_the_users_alone(
    monkeypatch: pytest.MonkeyPatch, answer: Path | RuntimeError, tmp_path: Path
) -> None:
    def nowhere(name: str) -> Path:
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    monkeypatch.setattr(local_files, "user_cache_path", nowhere)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    root = tmp_path / f"streamjoin_ds-{os.geteuid()}"
    assert cache_root() == root
    assert trusted_cache() == root
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    assert trusted_cache() is None
    root.chmod(0o700)
    root.rename(tmp_path / "theirs")
    root.symlink_to(tmp_path / "theirs")
    assert trusted_cache() is None


def test_a_user_without_a_home_takes_no_jars_from_a_folder_that_somebody_else_has_made(tmp_path: Path) -> None:
    """A process whose user has no entry, as in a container; what lies there is not looked at."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    program = """
import os, tempfile
from streamjoin_ds.spark import local_files
local_files.user_cache_path = lambda name: local_files.Path("~/.cache/streamjoin_ds")
from streamjoin_ds.errors import JarsMissingError
from streamjoin_ds.spark.jars import delta_jars
try:
    delta_jars()
except JarsMissingError as error:
    print(error)
"""
    other = 65_534 if os.geteuid() == 0 else None
    if other is None:
        pytest.skip("only root can make a folder that is another user's")
    made = shared / "streamjoin_ds-0"
    made.mkdir(mode=0o700)
    os.chown(made, other, other)
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(shared)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"is another user's, or others may write to it: {made}" in found.stdout
    assert list(made.iterdir()) == []


def test_one_below_a_folder_that_anybody_may_write_to_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(above / "cache"))
    assert trusted_cache() == above / "cache" / "streamjoin_ds"
    above.chmod(0o777)
    assert trusted_cache() is None
    above.chmod(0o1777)  # nobody else can take away what is in it
    assert trusted_cache() is not None


def test_one_that_anybody_may_write_to_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = trusted_cache()
    assert made == tmp_path / "streamjoin_ds"
    assert made is not None
    made.chmod(0o777)
    assert trusted_cache() is None


def test_one_that_the_group_may_write_to_is_closed_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = tmp_path / "streamjoin_ds"
    made.mkdir()
    made.chmod(0o775)
    assert trusted_cache() == made
    assert made.stat().st_mode & 0o777 == 0o755
