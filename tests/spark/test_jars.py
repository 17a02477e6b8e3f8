"""The jar cache is whole or not there.

Spark's resolver runs for real, against a repository that does not exist.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from streamjoin_ds.errors import JarsMissingError
from streamjoin_ds.spark import jars
from streamjoin_ds.spark.jars import delta_coordinate, delta_jars, delta_jars_in


def stored_cache(
    root: Path, names: tuple[str, ...] = ("io.delta_delta-spark_x.jar", "io.delta_delta-storage.jar")
) -> Path:
    """Store a cache of small jars as a fetch stores it, and return its folder."""
    cache, aside = root / "cache", root / "aside"
    aside.mkdir()
    found = []
    for name in names:
        with zipfile.ZipFile(aside / name, "w") as archive:
            archive.writestr("a.class", name * 50)
        found.append(aside / name)
    jars._store(found, aside / "ready", cache, aside)
    return cache


def test_the_coordinate_fits_the_installed_pair() -> None:
    assert delta_coordinate() == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_a_whole_cache_is_listed_by_name(tmp_path: Path) -> None:
    cache = stored_cache(tmp_path)
    listed = delta_jars_in(cache)
    assert listed == [cache / "io.delta_delta-spark_x.jar", cache / "io.delta_delta-storage.jar"]
    assert delta_jars(cache) == listed


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "no manifest", "manifest cut", "manifest empty list"])
def test_damage_is_seen(tmp_path: Path, damage: str) -> None:
    cache = stored_cache(tmp_path)
    jar, manifest = cache / "io.delta_delta-spark_x.jar", cache / "manifest.json"
    content = bytearray(jar.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        jar.write_bytes(content)
    elif damage == "truncate":
        jar.write_bytes(content[:-1])
    elif damage == "remove":
        jar.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "manifest cut":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text('{"sha256": {}}')
    assert delta_jars_in(cache) is None


def test_a_damaged_cache_is_replaced_and_a_whole_one_is_kept(tmp_path: Path) -> None:
    for part in ("first", "second", "third"):
        (tmp_path / part).mkdir()
    cache = stored_cache(tmp_path / "first")
    kept = delta_jars_in(cache)
    assert kept is not None
    for part, damaged in (("second", False), ("third", True)):
        if damaged:
            kept[0].write_bytes(b"torn")
        aside = tmp_path / part
        with zipfile.ZipFile(aside / "other.jar", "w") as archive:
            archive.writestr("b.class", "b")
        jars._store([aside / "other.jar"], aside / "ready", cache, aside)
        assert delta_jars_in(cache) == ([cache / "other.jar"] if damaged else kept)


def test_a_torn_download_is_not_a_jar(tmp_path: Path) -> None:
    jar = stored_cache(tmp_path) / "io.delta_delta-storage.jar"
    assert jars._is_whole_zip(jar)
    jar.write_bytes(jar.read_bytes()[:-30])
    assert not jars._is_whole_zip(jar)


@pytest.mark.spark
def test_offline_and_no_cache_is_one_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens at port 9, so Spark's resolver fails as it does without a network.
    for name in ("DEFAULT_ARTIFACT_REPOSITORY", "MAVEN_MIRROR_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.setattr(jars, "delta_coordinate", lambda: "io.delta:delta-spark_0.0_2.13:0.0.0")
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
