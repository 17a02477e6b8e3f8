"""What each release of Spark has, as its version says."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from streamjoin_ds.errors import SessionError
from streamjoin_ds.spark import release
from streamjoin_ds.spark.release import (
    checkpoint_files_class,
    has_admission,
    needs_older_arrow,
    needs_python_sources,
    release_of,
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.2.0", (4, 2)), ("3.5.6-amzn-1", (3, 5)), ("4.1.0.1.2-SNAPSHOT", (4, 1)), ("4.10.0", (4, 10)), ("4.0", (4, 0))],
)
def test_versions_of_vendors_are_read(version: str, expected: tuple[int, int]) -> None:
    assert release_of(version) == expected


@pytest.mark.parametrize("version", ["", "4", "client.3.1", "next"])
def test_what_is_no_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(SessionError) as caught:
        release_of(version)
    assert caught.value.name == "spark"


def test_admission_control_begins_with_4_2() -> None:
    assert [has_admission(version) for version in ("3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0", "5.0.0")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip


def test_what_needs_a_source_in_python_is_refused_on_3_5() -> None:
    needs_python_sources(SimpleNamespace(version="4.0.5"))  # type: ignore[arg-type]
    with pytest.raises(SessionError, match=r"Spark 3\.5\.9 has no streaming sources in Python") as caught:
        needs_python_sources(SimpleNamespace(version="3.5.9"))  # type: ignore[arg-type]
    assert "frames=" in caught.value.hint


@pytest.mark.parametrize("version", ["3.5.9", "4.0.4", "4.0.2-amzn-0", "4.1.1"])
def test_an_arrow_that_spark_cannot_use_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first batch ends with a TypeError of pyarrow."""
    monkeypatch.setattr(pa, "__version__", "26.0.1")
    for fixed in ("4.0.5", "4.1.4", "4.2.0", "4.3.0"):
        needs_older_arrow(SimpleNamespace(version=fixed))  # type: ignore[arg-type]
    with pytest.raises(SessionError) as caught:
        needs_older_arrow(SimpleNamespace(version=version))  # type: ignore[arg-type]
    assert caught.value.name == "pyarrow"
    assert "pyarrow<26" in caught.value.hint
    monkeypatch.setattr(pa, "__version__", "22.0.0")
    needs_older_arrow(SimpleNamespace(version=version))  # type: ignore[arg-type]


def test_the_class_of_checkpoint_files_is_where_each_release_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for version in ("3.5.9", "4.0.5", "4.1.4", "4.2.0"):
        monkeypatch.setattr(release, "_installed", lambda version=version: version)
        found[version] = checkpoint_files_class().split(".streaming.")[1]
    plain = "FileSystemBasedCheckpointFileManager"
    moved = f"checkpointing.{plain}"
    assert found == {"3.5.9": plain, "4.0.5": plain, "4.1.4": moved, "4.2.0": moved}
