"""The jar cache is whole or not there.

Spark's resolver runs for real, against a repository that does not exist.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from streamjoin_ds.errors import JarsMissingError
from streamjoin_ds.spark import jars
from streamjoin_ds.spark.jars import default_cache_path, delta_coordinate, delta_jars, delta_jars_in

NAMES = ("io.delta_delta-spark_x.jar", "io.delta_delta-storage.jar")


def fetched(folder: Path, names: tuple[str, ...] = NAMES) -> list[Path]:
    """Return small jars as a fetch brings them."""
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode() * 50)
    return [folder / name for name in names]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store a cache of small jars as a fetch stores it, and return its folder."""
    found = fetched(tmp_path / "aside")
    monkeypatch.setitem(jars._SHA256, delta_coordinate(), {jar.name: jars._sha256(jar) for jar in found})
    cache = tmp_path / "cache"
    assert jars._store(found, tmp_path / "aside" / "ready", cache, tmp_path / "aside") == [
        cache / each for each in NAMES
    ]
    return cache


def test_the_coordinate_fits_the_installed_pair_and_its_jars_are_known() -> None:
    assert delta_coordinate() == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert len(jars.jar_checksums(delta_coordinate())) == 5


def test_a_pair_whose_jars_are_not_known_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "delta_coordinate", lambda: "io.delta:delta-spark_9.9_2.13:9.9.9")
    with pytest.raises(JarsMissingError, match=r"knows no checksums of io\.delta:delta-spark_9\.9"):
        delta_jars(tmp_path)


def test_a_whole_cache_is_listed_by_name(cache: Path) -> None:
    listed = delta_jars_in(cache)
    assert listed == [cache / name for name in NAMES]
    assert delta_jars(cache) == listed


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_seen(cache: Path, damage: str) -> None:
    jar = cache / NAMES[0]
    content = bytearray(jar.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        jar.write_bytes(content)
    elif damage == "truncate":
        jar.write_bytes(content[:-1])
    else:
        jar.unlink()
    assert delta_jars_in(cache) is None


def test_other_jars_with_a_manifest_that_fits_them_are_not_loaded(tmp_path: Path) -> None:
    """As one who may write into the folder could leave them there; what the cache of an older version held."""
    found = fetched(tmp_path / "cache", tuple(jars.jar_checksums(delta_coordinate())))
    sums = {jar.name: jars._sha256(jar) for jar in found}
    (tmp_path / "cache" / "manifest.json").write_text(json.dumps({"coordinate": delta_coordinate(), "sha256": sums}))
    assert delta_jars_in(tmp_path / "cache") is None


def test_a_damaged_cache_is_replaced_and_a_whole_one_is_kept(cache: Path, tmp_path: Path) -> None:
    for part, is_damaged in (("second", False), ("third", True)):
        if is_damaged:
            (cache / NAMES[0]).write_bytes(b"torn")
        before = (cache / NAMES[0]).stat().st_ino
        aside = tmp_path / part
        assert jars._store(fetched(aside), aside / "ready", cache, aside) == delta_jars_in(cache)
        assert ((cache / NAMES[0]).stat().st_ino != before) == is_damaged


def test_other_jars_than_those_of_this_delta_are_not_stored(cache: Path, tmp_path: Path) -> None:
    """As a mirror or a torn download may bring them."""
    found = fetched(tmp_path / "other")
    found[0].write_bytes(b"other")
    with pytest.raises(JarsMissingError, match="are not the jars of"):
        jars._store(found, tmp_path / "other" / "ready", tmp_path / "new", tmp_path / "other")
    assert not (tmp_path / "new").exists()


def test_what_is_stored_under_an_open_umask_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    before = os.umask(0)
    try:
        found = fetched(tmp_path / "aside")
        monkeypatch.setitem(jars._SHA256, delta_coordinate(), {jar.name: jars._sha256(jar) for jar in found})
        stored = jars._store(found, tmp_path / "aside" / "ready", default_cache_path(), tmp_path / "aside")
    finally:
        os.umask(before)
    assert not any(path.stat().st_mode & 0o022 for path in (*stored, stored[0].parent, stored[0].parent.parent))


def test_a_cache_that_others_may_write_to_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "streamjoin_ds").mkdir()
    (tmp_path / "streamjoin_ds").chmod(0o777)
    with pytest.raises(JarsMissingError, match="others may write to it") as caught:
        delta_jars()
    assert "XDG_CACHE_HOME" in caught.value.hint
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))  # what the hint says
    assert default_cache_path().parent == tmp_path / "own" / "streamjoin_ds"


@pytest.mark.spark
def test_offline_and_no_cache_is_one_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens at port 9, so Spark's resolver fails as it does without a network.
    for name in ("DEFAULT_ARTIFACT_REPOSITORY", "MAVEN_MIRROR_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    nowhere = "io.delta:delta-spark_0.0_2.13:0.0.0"
    monkeypatch.setattr(jars, "delta_coordinate", lambda: nowhere)
    monkeypatch.setitem(jars._SHA256, nowhere, {"none.jar": ""})
    log_path = tmp_path / "log" / "fetch.log"
    log_path.parent.mkdir()
    with pytest.raises(JarsMissingError, match=r"could not be fetched .*fetch\.log") as caught:
        delta_jars(tmp_path / "caches" / "jars", log_path=log_path)
    assert "unresolved" in str(caught.value).lower() or "not found" in str(caught.value).lower()
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "caches").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JarsMissingError, match="cannot be written"):
        delta_jars(tmp_path / "file" / "jars")
