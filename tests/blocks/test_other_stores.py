"""Object stores other than S3, of which no service runs here: how they are asked, and what their refusals say."""

from __future__ import annotations

import pytest
from pyarrow import fs

from streamjoin_ds.blocks.object_store import failed, open_remote
from streamjoin_ds.errors import DependencyMissingError, StoreAccessError, StoreUnreachableError


def test_google_is_asked_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def opened(uri: str) -> tuple[fs.FileSystem, str]:
        asked.append(uri)
        return fs.LocalFileSystem(), "/bucket/x"

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(opened)}))
    assert open_remote("gs://a-bucket-of-google/folder")[1] == "/bucket/folder"
    assert asked == ["gs://a-bucket-of-google/x?retry_limit_seconds=15"]


@pytest.mark.parametrize("library", ["libjvm", "libhdfs"])
def test_hadoops_libraries_are_named(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    def opened(uri: str) -> tuple[fs.FileSystem, str]:
        msg = f"Unable to load {library}"
        raise OSError(msg)

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(opened)}))
    with pytest.raises(DependencyMissingError) as caught:
        open_remote(f"hdfs://name-of-{library}:9000/folder")
    assert caught.value.name == "hdfs"
    assert "CLASSPATH" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("When reading: AWS Error: Unable to locate credentials", "AWS_ACCESS_KEY_ID"),
        ("google::cloud::Status(UNAVAILABLE: Could not create a OAuth2 access token to ...", "GOOGLE_APPLICATION"),
        ("Failed to get token from DefaultAzureCredential.", "AZURE_CLIENT_SECRET"),
    ],
)
def test_missing_credentials_say_where_they_are_looked_for(text: str, hint: str) -> None:
    error = failed(OSError(text), "gs://bucket/folder", "cannot be read")
    assert isinstance(error, StoreAccessError)
    assert hint in error.hint
    assert isinstance(failed(OSError("else"), "gs://bucket/folder", "cannot be read"), StoreUnreachableError)
