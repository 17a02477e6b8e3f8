"""The user's cache folder: it stays in its old place, and is trusted only if nobody else can write to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from streamjoin_ds.spark import user_cache
from streamjoin_ds.spark.user_cache import cache_root, trusted_cache


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
def test_without_a_home_it_is_temporary(monkeypatch: pytest.MonkeyPatch, answer: Path | RuntimeError) -> None:
    def nowhere(name: str) -> Path:
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    monkeypatch.setattr(user_cache, "user_cache_path", nowhere)
    assert cache_root() == Path(tempfile.gettempdir()) / "streamjoin_ds"


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
